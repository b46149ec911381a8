//! Commands over SPDY, with one stream for each standard stream and one for errors.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::outcome::{Outcome, error_channel_message};
use super::protocol::{Channels, Version};
use super::spdy::{self, Headers, Received, Receiver, Sender, Stream};
use super::transport::Transport;
use crate::kubelet::{Output, Streams};

/// Time within which the client must open its streams.
///
/// Upstream: `streamCreationTimeout`.
const STREAM_CREATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Number of input or output chunks that may wait in a queue.
const QUEUE_LENGTH: usize = 4;

/// Streams of a client that the server uses. The server ignores data on all other streams.
struct OpenedStreams {
    error: Sender,
    stdin: Option<Receiver>,
    stdout: Option<Sender>,
    stderr: Option<Sender>,
}

/// Serves a command until its process exits. `start` starts the process with its streams.
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
    let accept_all = |_: &Headers| Ok(());
    spdy::serve(transport, accept_all, async |mut streams| {
        let opened = wait_for_streams(&mut streams, version, channels, tty);
        let opened = tokio::time::timeout(STREAM_CREATION_TIMEOUT, opened).await;
        // Like upstream, close the connection without an error message after a timeout.
        let Ok(Some(mut opened)) = opened else { return };
        let outcome = execute(&mut opened, channels, tty, start).await;
        for output in opened.stdout.iter().chain(&opened.stderr) {
            output.finish().await;
        }
        if let Some(status) = error_channel_message(&outcome, version) {
            opened.error.send(status.into()).await;
        }
        opened.error.finish().await;
    })
    .await;
}

/// Waits until the client has opened all streams of its request. Returns `None` if the client disconnects.
///
/// Upstream: `v4ProtocolHandler.waitForStreams`.
async fn wait_for_streams(
    streams: &mut mpsc::Receiver<Stream>,
    version: Version,
    channels: Channels,
    tty: bool,
) -> Option<OpenedStreams> {
    let has_resize_stream = tty && matches!(version, Version::V3 | Version::V4 | Version::V5);
    let Channels { stdin, stdout, stderr } = channels;
    let has_error_stream = true;
    let mut missing_streams = [has_error_stream, stdin, stdout, stderr, has_resize_stream]
        .into_iter()
        .filter(|is_expected| *is_expected)
        .count();
    let (mut error, mut stdin, mut stdout, mut stderr) = (None, None, None, None);
    while missing_streams > 0 {
        let Stream { headers, receiver, sender, .. } = streams.recv().await?;
        match headers.get("streamtype").map(String::as_str) {
            Some("error") => error = Some(sender),
            Some("stdin") => stdin = Some(receiver),
            Some("stdout") => stdout = Some(sender),
            Some("stderr") => stderr = Some(sender),
            Some("resize") => {}
            _ => continue,
        }
        missing_streams -= 1;
    }
    Some(OpenedStreams { error: error?, stdin, stdout, stderr })
}

/// Runs the process, and copies its input and output until it exits.
async fn execute<F>(
    opened: &mut OpenedStreams,
    channels: Channels,
    tty: bool,
    start: impl FnOnce(Streams) -> F,
) -> Outcome
where
    F: Future<Output = Outcome>,
{
    let (stdin_sender, stdin_receiver) = mpsc::channel(QUEUE_LENGTH);
    let (output, mut output_receiver) = mpsc::channel(QUEUE_LENGTH);
    let stdin = channels.stdin.then_some(stdin_receiver);
    let mut process = std::pin::pin!(start(Streams { stdin, output, tty }));
    let mut stdin_copy = std::pin::pin!(copy_stdin(opened.stdin.take(), stdin_sender));
    let mut is_copying_stdin = true;
    loop {
        tokio::select! {
            biased;
            output = output_receiver.recv(), if !output_receiver.is_closed() || !output_receiver.is_empty() => {
                if let Some(output) = output {
                    send_output(opened, output).await;
                }
            }
            outcome = &mut process => {
                while let Ok(output) = output_receiver.try_recv() {
                    send_output(opened, output).await;
                }
                return outcome;
            }
            () = &mut stdin_copy, if is_copying_stdin => is_copying_stdin = false,
        }
    }
}

/// Copies the client's standard input to the process until the client ends it.
async fn copy_stdin(input: Option<Receiver>, sender: mpsc::Sender<Bytes>) {
    let Some(mut input) = input else { return };
    // Ignore errors, to discard the client's data if the process has stopped reading.
    while let Received::Data(chunk) = input.receive().await {
        let _ = sender.send(chunk.bytes).await;
    }
}

/// Sends output of the process to the client.
async fn send_output(opened: &OpenedStreams, output: Output) {
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

    /// Copies its input to its output, and exits with 3.
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
            let status = error_channel_message(&Outcome::Exited(3), Version::V4).expect("a status");
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
                let text = error_channel_message(&Outcome::Exited(1), version).expect("a text");
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
