//! Connections to ports of a pod over SPDY: a pair of streams for each, of which one carries the data and the other an error.
//!
//! | documented | where |
//! |---|---|
//! | Sub-protocol `portforward.k8s.io`, over SPDY/3.1 or tunnelled through WebSocket | `handshake::accept` |
//! | Headers `port`, `streamtype` and `requestid` | `accepts`, `request_id` |
//! | A pair is complete within a minute (upstream: 30 seconds) | `Pairs` |
//!
//! Upstream: `httpStreamHandler` of the kubelet's `portforward`.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::spdy::{self, Headers, Received, Stream};
use super::transport::Transport;
use crate::kubelet::PodConnection;

/// How often it is looked for requests whose second stream is missing.
///
/// Upstream: `streamCreationTimeout`.
const STREAM_CREATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes that are read at once.
const READ: usize = 16 * 1024;

/// A pod whose ports are forwarded.
pub(crate) struct Forwarded<D> {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Connects to a port, or says why it cannot.
    pub(crate) dial: D,
}

/// Forwards ports until the client is gone.
pub(super) async fn run<D>(transport: Transport, pod: Forwarded<D>)
where
    D: Fn(u16) -> Result<PodConnection, String> + Send + Sync,
{
    let pod = &pod;
    spdy::serve(transport, accepts, async |mut streams| {
        let mut pairs = Pairs::default();
        let mut forwarding = FuturesUnordered::new();
        let mut looks = tokio::time::interval(STREAM_CREATION_TIMEOUT);
        loop {
            tokio::select! {
                stream = streams.recv() => match stream {
                    Some(stream) => if let Some(pair) = pairs.add(stream).await {
                        forwarding.push(forward(pod, pair));
                    },
                    None => return,
                },
                Some(()) = forwarding.next() => {}
                _ = looks.tick() => pairs.expire().await,
            }
        }
    })
    .await;
}

fn port(headers: &Headers) -> Option<&str> {
    headers.get("port").map(String::as_str).filter(|port| !port.is_empty())
}

fn stream_type(headers: &Headers) -> Option<&str> {
    headers.get("streamtype").map(String::as_str).filter(|kind| !kind.is_empty())
}

/// Refuses a stream whose headers do not say what it is.
///
/// Upstream: `httpStreamReceived`.
fn accepts(headers: &Headers) -> Result<(), String> {
    let port = port(headers).ok_or("\"port\" header is required")?;
    match port.parse::<u16>() {
        Err(error) => return Err(format!("unable to parse {port:?} as a port: {error}")),
        Ok(0) => return Err(format!("port {port:?} must be > 0")),
        Ok(_) => {}
    }
    match stream_type(headers) {
        None => Err("\"streamType\" header is required".to_owned()),
        Some("error" | "data") => Ok(()),
        Some(other) => Err(format!("invalid stream type {other:?}")),
    }
}

/// The request that a stream belongs to. Clients that send no header for it open the error stream first, then the data stream.
///
/// Upstream: `requestID`.
fn request_id(stream: &Stream) -> String {
    match stream.headers.get("requestid").filter(|id| !id.is_empty()) {
        Some(id) => id.clone(),
        None if stream_type(&stream.headers) == Some("data") => {
            i64::from(stream.id).saturating_sub(2).to_string()
        }
        None => stream.id.to_string(),
    }
}

/// Both streams of a connection.
struct Pair {
    data: Stream,
    error: Stream,
}

/// A stream whose other one is not there yet.
struct Waiting {
    stream: Stream,
    /// Whether it has waited since before the last look.
    is_old: bool,
}

/// Streams whose other one is not there yet, by request.
#[derive(Default)]
struct Pairs(HashMap<String, Waiting>);

impl Pairs {
    /// Takes a stream; returns the pair that it completes.
    async fn add(&mut self, stream: Stream) -> Option<Pair> {
        let id = request_id(&stream);
        let Some(Waiting { stream: first, is_old }) = self.0.remove(&id) else {
            self.0.insert(id, Waiting { stream, is_old: false });
            return None;
        };
        match (stream_type(&first.headers), stream_type(&stream.headers)) {
            (Some("data"), Some("error")) => Some(Pair { data: first, error: stream }),
            (Some("error"), Some("data")) => Some(Pair { data: stream, error: first }),
            (kind, _) => {
                let kind = kind.unwrap_or_default();
                let why = format!(
                    "error processing stream for request {id}: {kind} stream already assigned"
                );
                report(&first, why).await;
                stream.sender.reset().await;
                self.0.insert(id, Waiting { stream: first, is_old });
                None
            }
        }
    }

    /// Ends the requests that waited for their second stream at the last look, too.
    async fn expire(&mut self) {
        let is_old =
            |_: &String, waiting: &mut Waiting| std::mem::replace(&mut waiting.is_old, true);
        for (id, Waiting { stream, .. }) in self.0.extract_if(is_old).collect::<Vec<_>>() {
            report(&stream, format!("(request={id}) timed out waiting for streams")).await;
            stream.sender.reset().await;
        }
    }
}

/// Tells the client what went wrong, if the stream is that for errors.
async fn report(stream: &Stream, why: String) {
    if stream_type(&stream.headers) == Some("error") {
        stream.sender.send(why.into()).await;
    }
}

/// Moves bytes between a port and a pair of streams until one of them ends.
///
/// Upstream: `httpStreamHandler.portForward`.
async fn forward<D>(pod: &Forwarded<D>, pair: Pair)
where
    D: Fn(u16) -> Result<PodConnection, String>,
{
    let Pair { mut data, error } = pair;
    // What a client sends on the stream for errors is not read.
    drop(error.receiver);
    let port: u16 = port(&data.headers).and_then(|port| port.parse().ok()).unwrap_or_default();
    let PodConnection { stream, server } = match (pod.dial)(port) {
        Ok(connection) => connection,
        Err(why) => {
            let Forwarded { name, uid, .. } = pod;
            let why = format!("error forwarding port {port} to pod {name}, uid {uid}: {why}");
            error.sender.send(why.into()).await;
            error.sender.finish().await;
            return data.sender.reset().await;
        }
    };
    let (mut reader, mut writer) = tokio::io::split(stream);
    let up = async {
        loop {
            // After an error, what the port sent before it was closed is still read.
            let _ = match data.receiver.receive().await {
                Received::Data(piece) => writer.write_all(&piece.bytes).await,
                Received::Finished => writer.shutdown().await,
                Received::Reset => return,
            };
        }
    };
    let down = async {
        let mut buffer = vec![0; READ];
        while let Ok(size @ 1..) = reader.read(&mut buffer).await {
            let bytes = Bytes::copy_from_slice(buffer.get(..size).unwrap_or_default());
            data.sender.send(bytes).await;
        }
    };
    let serving = async {
        server.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = up => {}
        () = down => {}
        () = serving => {}
    }
    data.sender.finish().await;
    error.sender.finish().await;
}

#[cfg(test)]
mod tests {
    use super::spdy::client::{Client, data, reset};
    use super::*;

    fn stream<'a>(kind: &'a str, port: &'a str, id: &'a str) -> Vec<(&'a str, &'a str)> {
        let headers = [("streamtype", kind), ("port", port), ("requestid", id)];
        headers.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    /// A pod that sends back what comes to port 80, and then its end.
    fn pod() -> Forwarded<impl Fn(u16) -> Result<PodConnection, String> + Send + Sync> {
        let dial = |port| {
            let (stream, server) = tokio::io::duplex(64);
            let server = async {
                let (mut reader, mut writer) = tokio::io::split(server);
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = writer.write_all(b".").await;
            };
            let server = Box::pin(server);
            if port == 80 {
                Ok(PodConnection { stream, server })
            } else {
                Err("refused".to_owned())
            }
        };
        Forwarded { name: "p".to_owned(), uid: "u".to_owned(), dial }
    }

    #[tokio::test]
    async fn ports_are_connected() {
        let (mut client, transport) = Client::new();
        let client = async {
            for (first, id) in [(1, "0"), (5, "")] {
                // Older clients name no request.
                client.opened(first, &stream("error", "80", id)).await;
                client.data(first, b"", true).await;
                client.opened(first + 2, &stream("data", "80", id)).await;
                client.data(first + 2, b"hello", false).await;
                assert_eq!(client.receive().await, data(first + 2, b"hello", false));
                client.data(first + 2, b"", true).await;
                assert_eq!(client.receive().await, data(first + 2, b".", false));
                assert_eq!(client.receive().await, data(first + 2, b"", true));
                assert_eq!(client.receive().await, data(first, b"", true));
            }
            drop(client);
        };
        futures::join!(client, run(transport, pod()));
    }

    #[tokio::test]
    async fn a_port_that_nobody_listens_on_is_reported() {
        let (mut client, transport) = Client::new();
        let client = async {
            client.opened(1, &stream("data", "81", "x")).await;
            client.opened(3, &stream("error", "81", "x")).await;
            let why = b"error forwarding port 81 to pod p, uid u: refused";
            assert_eq!(client.receive().await, data(3, why, false));
            assert_eq!(client.receive().await, data(3, b"", true));
            assert_eq!(client.receive().await, reset(1, 5));
            // A second stream of the same kind, and requests that stay incomplete.
            client.opened(5, &stream("error", "80", "y")).await;
            client.open(7, &stream("error", "80", "y")).await;
            client.receive().await;
            let why = b"error processing stream for request y: error stream already assigned";
            assert_eq!(client.receive().await, data(5, why, false));
            assert_eq!(client.receive().await, reset(7, 5));
            drop(client);
        };
        futures::join!(client, run(transport, pod()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_needs_both_streams() {
        let (mut client, transport) = Client::new();
        let client = async {
            client.opened(1, &stream("error", "80", "y")).await;
            let why = b"(request=y) timed out waiting for streams";
            assert_eq!(client.receive().await, data(1, why, false));
            assert_eq!(client.receive().await, reset(1, 5));
            drop(client);
        };
        futures::join!(client, run(transport, pod()));
    }

    #[test]
    fn streams_need_headers() {
        for (headers, why) in [
            (stream("data", "80", ""), None),
            (stream("error", "65535", ""), None),
            (stream("data", "", ""), Some("\"port\" header is required")),
            (
                stream("data", "x", ""),
                Some("unable to parse \"x\" as a port: invalid digit found in string"),
            ),
            (
                stream("data", "65536", ""),
                Some("unable to parse \"65536\" as a port: number too large to fit in target type"),
            ),
            (stream("data", "0", ""), Some("port \"0\" must be > 0")),
            (stream("", "80", ""), Some("\"streamType\" header is required")),
            (stream("stdin", "80", ""), Some("invalid stream type \"stdin\"")),
        ] {
            let headers =
                headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            assert_eq!(accepts(&headers.collect()).err().as_deref(), why);
        }
    }
}
