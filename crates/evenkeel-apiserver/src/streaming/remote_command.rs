//! A command over SPDY: a stream for each standard stream, and one for the error.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::outcome::{Outcome, on_error_channel};
use super::protocol::{Channels, Version};
use super::spdy::{self, Headers, Received, Receiver, Sender, Stream};
use super::transport::Transport;
use crate::kubelet::{Output, Streams};

/// How long the client may take to open its streams.
///
/// Upstream: `streamCreationTimeout`.
const STREAM_CREATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Pieces of input and output that wait.
const QUEUE: usize = 4;

/// The streams of a client that are used. What it sends on others is not read.
struct Opened {
    error: Sender,
    stdin: Option<Receiver>,
    stdout: Option<Sender>,
    stderr: Option<Sender>,
}

/// Serves a command to its end. `start` starts the process with its streams.
///
/// Upstream: `createHTTPStreamStreams`, `ServeExec`.
pub(super) async fn run<F>(
    transport: Transport,
    version: Version,
    channels: Channels,
    tty: bool,
    start: impl FnOnce(Streams) -> F + Send,
) where
    F: Future<Output = Outcome> + Send,
{
    let accepts = |_: &Headers| Ok(());
    spdy::serve(transport, accepts, async |mut streams| {
        let opened = wait_for_streams(&mut streams, version, channels, tty);
        let opened = tokio::time::timeout(STREAM_CREATION_TIMEOUT, opened).await;
        // Upstream has no way to say that it timed out.
        let Ok(Some(mut opened)) = opened else { return };
        let outcome = execute(&mut opened, channels, tty, start).await;
        for output in opened.stdout.iter().chain(&opened.stderr) {
            output.finish().await;
        }
        if let Some(status) = on_error_channel(&outcome, version) {
            opened.error.send(status.into()).await;
        }
        opened.error.finish().await;
    })
    .await;
}

/// Waits until the client has opened the streams that its request asks for; `None` when it is gone.
///
/// Upstream: `v4ProtocolHandler.waitForStreams`.
async fn wait_for_streams(
    streams: &mut mpsc::Receiver<Stream>,
    version: Version,
    channels: Channels,
    tty: bool,
) -> Option<Opened> {
    let resizes = tty && matches!(version, Version::V3 | Version::V4 | Version::V5);
    let Channels { stdin, stdout, stderr } = channels;
    let mut missing = [true, stdin, stdout, stderr, resizes].iter().filter(|one| **one).count();
    let (mut error, mut input, mut output, mut errors) = (None, None, None, None);
    while missing > 0 {
        let Stream { headers, receiver, sender, .. } = streams.recv().await?;
        match headers.get("streamtype").map(String::as_str) {
            Some("error") => error = Some(sender),
            Some("stdin") => input = Some(receiver),
            Some("stdout") => output = Some(sender),
            Some("stderr") => errors = Some(sender),
            Some("resize") => {}
            _ => continue,
        }
        missing -= 1;
    }
    Some(Opened { error: error?, stdin: input, stdout: output, stderr: errors })
}

/// Runs the process, and moves bytes until it ends.
async fn execute<F>(
    opened: &mut Opened,
    channels: Channels,
    tty: bool,
    start: impl FnOnce(Streams) -> F,
) -> Outcome
where
    F: Future<Output = Outcome>,
{
    let (sender, receiver) = mpsc::channel(QUEUE);
    let (output, mut printed) = mpsc::channel(QUEUE);
    let stdin = channels.stdin.then_some(receiver);
    let mut process = std::pin::pin!(start(Streams { stdin, output, tty }));
    let mut feeding = std::pin::pin!(feed(opened.stdin.take(), sender));
    let mut feeds = true;
    loop {
        tokio::select! {
            biased;
            output = printed.recv(), if !printed.is_closed() || !printed.is_empty() => {
                if let Some(output) = output {
                    print(opened, output).await;
                }
            }
            outcome = &mut process => {
                while let Ok(output) = printed.try_recv() {
                    print(opened, output).await;
                }
                return outcome;
            }
            () = &mut feeding, if feeds => feeds = false,
        }
    }
}

/// Passes on standard input to its end.
async fn feed(input: Option<Receiver>, sender: mpsc::Sender<Bytes>) {
    let Some(mut input) = input else { return };
    // A process that reads no more does not hold up the client.
    while let Received::Data(piece) = input.receive().await {
        let _ = sender.send(piece.bytes).await;
    }
}

async fn print(opened: &Opened, output: Output) {
    let Output { to_stderr, bytes } = output;
    let stream = if to_stderr { &opened.stderr } else { &opened.stdout };
    if let Some(stream) = stream {
        stream.send(bytes).await;
    }
}

#[cfg(test)]
mod tests {
    use super::spdy::client::{Client, data, go_away};
    use super::*;

    const ALL: Channels = Channels { stdin: true, stdout: true, stderr: true };

    fn stream(kind: &str) -> [(&str, &str); 1] {
        [("streamtype", kind)]
    }

    /// Prints what it reads, and exits with 3.
    async fn copies(streams: Streams) -> Outcome {
        let Streams { stdin, output, .. } = streams;
        let Some(mut stdin) = stdin else { return Outcome::Exited(1) };
        while let Some(bytes) = stdin.recv().await {
            for to_stderr in [false, true] {
                let _ = output.send(Output { to_stderr, bytes: bytes.clone() }).await;
            }
        }
        Outcome::Exited(3)
    }

    #[tokio::test]
    async fn a_command_has_its_streams_and_a_status() {
        let (mut client, transport) = Client::new();
        let client = async {
            client.open_accepted(1, &stream("error")).await;
            client.open_accepted(3, &stream("other")).await;
            client.open_accepted(5, &stream("stdin")).await;
            client.open_accepted(7, &stream("stdout")).await;
            client.open_accepted(9, &stream("stderr")).await;
            client.data(5, b"a", false).await;
            assert_eq!(client.receive().await, data(7, b"a", false));
            assert_eq!(client.receive().await, data(9, b"a", false));
            client.data(5, b"", true).await;
            assert_eq!(client.receive().await, data(7, b"", true));
            assert_eq!(client.receive().await, data(9, b"", true));
            let status = on_error_channel(&Outcome::Exited(3), Version::V4).expect("a status");
            let status = spdy::Frame::Data { stream: 1, fin: false, bytes: status.into() };
            assert_eq!(client.receive().await, Some(status));
            assert_eq!(client.receive().await, data(1, b"", true));
            assert_eq!(client.receive().await, go_away());
            assert_eq!(client.receive().await, None);
            drop(client);
        };
        futures::join!(client, run(transport, Version::V4, ALL, false, copies));
    }

    #[tokio::test]
    async fn older_clients_have_a_text_and_no_size() {
        for (version, tty, kinds) in [
            (Version::V1, true, &["stdout", "error"][..]),
            (Version::V3, true, &["stdout", "error", "resize"]),
            (Version::V3, false, &["stdout", "error"]),
        ] {
            let (mut client, transport) = Client::new();
            let channels = Channels { stdout: true, ..Channels::default() };
            let client = async {
                for (stream_id, kind) in (1..).step_by(2).zip(kinds) {
                    client.open_accepted(stream_id, &stream(kind)).await;
                }
                assert_eq!(client.receive().await, data(1, b"", true));
                let text = on_error_channel(&Outcome::Exited(1), version).expect("a text");
                let text = spdy::Frame::Data { stream: 3, fin: false, bytes: text.into() };
                assert_eq!(client.receive().await, Some(text));
                assert_eq!(client.receive().await, data(3, b"", true));
                assert_eq!(client.receive().await, go_away());
                drop(client);
            };
            futures::join!(client, run(transport, version, channels, tty, copies));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_has_to_open_its_streams() {
        let (mut client, transport) = Client::new();
        let client = async {
            client.open_accepted(1, &stream("error")).await;
            client.open_accepted(3, &stream("stdout")).await;
            assert_eq!(client.receive().await, go_away());
            drop(client);
        };
        futures::join!(client, run(transport, Version::V4, ALL, false, copies));
    }
}
