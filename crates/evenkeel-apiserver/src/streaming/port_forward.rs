//! Connections to ports of a pod over SPDY. Each connection has a stream for data and a stream for an error.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | Sub-protocol `portforward.k8s.io`, over SPDY/3.1 or tunnelled through WebSocket | `handshake::accept` |
//! | Headers `port`, `streamtype` and `requestid` | `check_headers`, `request_id` |
//! | A stream without its pair is reset after 30 to 60 seconds (upstream: 30) | `UnpairedStreams` |
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

/// Interval of the checks for unpaired streams. A stream that is unpaired in two checks is reset.
///
/// Upstream: `streamCreationTimeout`.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum number of bytes of one read from the port.
const BUFFER_SIZE: usize = 16 * 1024;

/// Pod whose ports a client forwards.
pub(crate) struct ForwardedPod<D> {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Connects to a port, or returns an error message.
    pub(crate) dial: D,
}

/// Forwards ports until the client disconnects.
pub(super) async fn run<D>(transport: Transport, pod: ForwardedPod<D>)
where
    D: Fn(u16) -> Result<PodConnection, String> + Send + Sync,
{
    let pod = &pod;
    spdy::serve(transport, check_headers, async |mut streams| {
        let mut unpaired = UnpairedStreams::default();
        let mut forwarding = FuturesUnordered::new();
        let mut expiry_checks = tokio::time::interval(EXPIRY_CHECK_INTERVAL);
        loop {
            tokio::select! {
                stream = streams.recv() => {
                    let Some(stream) = stream else { return };
                    if let Some(pair) = unpaired.add(stream).await {
                        forwarding.push(forward(pod, pair));
                    }
                }
                Some(()) = forwarding.next() => {}
                _ = expiry_checks.tick() => unpaired.expire().await,
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

/// Checks that the headers of a new stream name a port and a stream type.
///
/// Upstream: `httpStreamReceived`.
fn check_headers(headers: &Headers) -> Result<(), String> {
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

/// Returns the id of the request that a stream belongs to.
///
/// Without the header `requestid`, the id is that of the error stream. Such clients open the error stream and then the
/// data stream; a client's stream ids are odd, so the data stream's id is larger by 2.
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

/// The first stream of a request that lacks its second stream.
struct Unpaired {
    stream: Stream,
    /// Whether an expiry check has seen the stream.
    was_checked: bool,
}

/// Unpaired streams by request id.
#[derive(Default)]
struct UnpairedStreams(HashMap<String, Unpaired>);

impl UnpairedStreams {
    /// Adds a stream, or returns the pair that it completes.
    async fn add(&mut self, stream: Stream) -> Option<Pair> {
        let id = request_id(&stream);
        let Some(Unpaired { stream: first, was_checked }) = self.0.remove(&id) else {
            self.0.insert(id, Unpaired { stream, was_checked: false });
            return None;
        };
        match (stream_type(&first.headers), stream_type(&stream.headers)) {
            (Some("data"), Some("error")) => Some(Pair { data: first, error: stream }),
            (Some("error"), Some("data")) => Some(Pair { data: stream, error: first }),
            (kind, _) => {
                let kind = kind.unwrap_or_default();
                let message = format!(
                    "error processing stream for request {id}: {kind} stream already assigned"
                );
                send_error(&first, message).await;
                stream.sender.reset().await;
                self.0.insert(id, Unpaired { stream: first, was_checked });
                None
            }
        }
    }

    /// Resets the streams that the last check has seen, and marks the others as checked.
    async fn expire(&mut self) {
        let expired: Vec<(String, Unpaired)> =
            self.0.extract_if(|_, unpaired| unpaired.was_checked).collect();
        for unpaired in self.0.values_mut() {
            unpaired.was_checked = true;
        }
        for (id, Unpaired { stream, .. }) in expired {
            send_error(&stream, format!("(request={id}) timed out waiting for streams")).await;
            stream.sender.reset().await;
        }
    }
}

/// Sends an error message to the client if this is an error stream. Data streams cannot carry one.
async fn send_error(stream: &Stream, message: String) {
    if stream_type(&stream.headers) == Some("error") {
        stream.sender.send(message.into()).await;
    }
}

/// Copies bytes between a port and a pair of streams. Ends when the port sends no more, or when the client resets the
/// data stream.
///
/// Upstream: `httpStreamHandler.portForward`.
async fn forward<D>(pod: &ForwardedPod<D>, pair: Pair)
where
    D: Fn(u16) -> Result<PodConnection, String>,
{
    let Pair { mut data, error } = pair;
    // Only the server sends on the error stream.
    drop(error.receiver);
    let port: u16 = port(&data.headers).and_then(|port| port.parse().ok()).unwrap_or_default();
    let PodConnection { stream, server } = match (pod.dial)(port) {
        Ok(connection) => connection,
        Err(reason) => {
            let ForwardedPod { name, uid, .. } = pod;
            let message =
                format!("error forwarding port {port} to pod {name}, uid {uid}: {reason}");
            error.sender.send(message.into()).await;
            error.sender.finish().await;
            return data.sender.reset().await;
        }
    };
    let (mut reader, mut writer) = tokio::io::split(stream);
    let upload = async {
        loop {
            // A failed write to the port is ignored, so that `download` can forward the bytes that the port sent
            // before.
            let _ = match data.receiver.receive().await {
                Received::Data(chunk) => writer.write_all(&chunk.bytes).await,
                Received::Finished => writer.shutdown().await,
                Received::Reset => return,
            };
        }
    };
    let download = async {
        let mut buffer = vec![0; BUFFER_SIZE];
        while let Ok(size @ 1..) = reader.read(&mut buffer).await {
            let bytes = Bytes::copy_from_slice(buffer.get(..size).unwrap_or_default());
            data.sender.send(bytes).await;
        }
    };
    // Drives the pod's side of the connection. After its end, `download` still forwards the remaining bytes.
    let pod_side = async {
        server.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = upload => {}
        () = download => {}
        () = pod_side => {}
    }
    data.sender.finish().await;
    error.sender.finish().await;
}

#[cfg(test)]
mod tests {
    use super::spdy::client::{Client, data, reset};
    use super::*;

    /// Status of RST_STREAM frames in SPDY/3.1.
    const CANCEL: u32 = 5;

    fn stream<'a>(kind: &'a str, port: &'a str, id: &'a str) -> Vec<(&'a str, &'a str)> {
        let headers = [("streamtype", kind), ("port", port), ("requestid", id)];
        headers.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Returns a pod whose port 80 sends each byte back, and a dot at the end of the stream. Other ports refuse.
    fn pod() -> ForwardedPod<impl Fn(u16) -> Result<PodConnection, String> + Send + Sync> {
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
        ForwardedPod { name: "p".to_owned(), uid: "u".to_owned(), dial }
    }

    #[tokio::test]
    async fn ports_are_connected() {
        let (mut client, transport) = Client::new();
        let client = async {
            for (first, id) in [(1, "0"), (5, "")] {
                // Older clients name no request.
                client.open_accepted(first, &stream("error", "80", id)).await;
                client.data(first, b"", true).await;
                client.open_accepted(first + 2, &stream("data", "80", id)).await;
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
            client.open_accepted(1, &stream("data", "81", "x")).await;
            client.open_accepted(3, &stream("error", "81", "x")).await;
            let why = b"error forwarding port 81 to pod p, uid u: refused";
            assert_eq!(client.receive().await, data(3, why, false));
            assert_eq!(client.receive().await, data(3, b"", true));
            assert_eq!(client.receive().await, reset(1, CANCEL));
            // A second stream of the same kind, and requests that remain incomplete.
            client.open_accepted(5, &stream("error", "80", "y")).await;
            client.open(7, &stream("error", "80", "y")).await;
            client.receive().await;
            let why = b"error processing stream for request y: error stream already assigned";
            assert_eq!(client.receive().await, data(5, why, false));
            assert_eq!(client.receive().await, reset(7, CANCEL));
            drop(client);
        };
        futures::join!(client, run(transport, pod()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_needs_both_streams() {
        let (mut client, transport) = Client::new();
        let client = async {
            client.open_accepted(1, &stream("error", "80", "y")).await;
            let why = b"(request=y) timed out waiting for streams";
            assert_eq!(client.receive().await, data(1, why, false));
            assert_eq!(client.receive().await, reset(1, CANCEL));
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
            assert_eq!(check_headers(&headers.collect()).err().as_deref(), why);
        }
    }
}
