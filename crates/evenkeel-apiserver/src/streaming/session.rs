//! Commands over WebSocket, whose messages belong to channels.

use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::outcome::{Outcome, error_channel_message};
use super::protocol::{ChannelProtocol, Channels, ERROR, Received, STDERR, STDOUT, decode, encode};
use super::transport::{Gone, Socket};
use crate::kubelet::{Output, Streams};

/// Time without a message in either direction after which the connection ends.
///
/// Upstream: `defaultIdleConnectionTimeout`, `streamingConnectionIdleTimeout`.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4 * 60 * 60);

/// Time within which the client must close the connection after the process exits.
const FINISH_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Number of input or output chunks that may wait in a queue.
const QUEUE_LENGTH: usize = 4;

/// Parameters of a command's connection.
pub(super) struct Session {
    pub(super) protocol: ChannelProtocol,
    pub(super) channels: Channels,
    pub(super) tty: bool,
}

/// Serves a command until its process exits. `start` starts the process with its streams.
pub(super) async fn run<F>(
    session: Session,
    mut socket: Socket,
    start: impl FnOnce(Streams) -> F + Send,
) where
    F: Future<Output = Outcome> + Send,
{
    if let Ok(outcome) = execute(&session, &mut socket, start).await {
        let _ = tokio::time::timeout(FINISH_TIMEOUT, finish(&session, &mut socket, &outcome)).await;
    }
}

/// Runs the process, and copies its input and output until it exits.
async fn execute<F>(
    session: &Session,
    socket: &mut Socket,
    start: impl FnOnce(Streams) -> F,
) -> Result<Outcome, Gone>
where
    F: Future<Output = Outcome>,
{
    // As in upstream, an empty message informs the client that the connection is ready.
    send(session, socket, session.channels.lowest_output(), b"").await?;
    let (stdin_sender, stdin_receiver) = mpsc::channel(QUEUE_LENGTH);
    let (output, mut output_receiver) = mpsc::channel(QUEUE_LENGTH);
    let stdin = session.channels.stdin.then_some(stdin_receiver);
    let mut process = std::pin::pin!(start(Streams { stdin, output, tty: session.tty }));
    let mut stdin = Some(stdin_sender).filter(|_| session.channels.stdin);
    // Input of the client that the queue of the process has no capacity for yet.
    let mut waiting_input: Option<Bytes> = None;
    loop {
        tokio::select! {
            biased;
            // The timeout restarts in each iteration, after each message in either direction.
            () = tokio::time::sleep(IDLE_TIMEOUT) => return Err(Gone),
            output = output_receiver.recv(), if !output_receiver.is_closed() || !output_receiver.is_empty() => {
                if let Some(output) = output {
                    send_output(session, socket, output).await?;
                }
            }
            outcome = &mut process => {
                while let Ok(output) = output_receiver.try_recv() {
                    send_output(session, socket, output).await?;
                }
                return Ok(outcome);
            }
            permit = reserve_capacity(stdin.clone()), if waiting_input.is_some() => {
                let data = waiting_input.take().unwrap_or_default();
                match permit {
                    Some(permit) => drop(permit.send(data)),
                    // The process has stopped reading.
                    None => stdin = None,
                }
            }
            message = receive(socket), if waiting_input.is_none() => match message? {
                Message::Binary(data) => handle_message(session, data, &mut stdin, &mut waiting_input)?,
                Message::Text(text) => handle_message(session, text.into(), &mut stdin, &mut waiting_input)?,
                Message::Close(_) => return Err(Gone),
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}

/// Waits for capacity in the queue of standard input. Returns `None` if the process does not read it.
async fn reserve_capacity(stdin: Option<mpsc::Sender<Bytes>>) -> Option<mpsc::OwnedPermit<Bytes>> {
    stdin?.reserve_owned().await.ok()
}

/// Handles a message of the client.
fn handle_message(
    session: &Session,
    message: Bytes,
    stdin: &mut Option<mpsc::Sender<Bytes>>,
    waiting_input: &mut Option<Bytes>,
) -> Result<(), Gone> {
    match decode(session.protocol, session.channels, message) {
        Received::Stdin(data) => {
            *waiting_input = Some(data).filter(|data| !data.is_empty() && stdin.is_some());
        }
        Received::StdinClosed => *stdin = None,
        Received::Ignored => {}
        Received::Broken => return Err(Gone),
    }
    Ok(())
}

/// Waits for the next message of the client.
async fn receive(socket: &mut Socket) -> Result<Message, Gone> {
    socket.next().await.ok_or(Gone)?.map_err(|error| {
        tracing::debug!(%error, "a stream ended");
        Gone
    })
}

/// Sends output of the process to the client if the request connects its channel.
async fn send_output(session: &Session, socket: &mut Socket, output: Output) -> Result<(), Gone> {
    let Output { to_stderr, bytes } = output;
    let (channel, is_connected) = if to_stderr {
        (STDERR, session.channels.stderr)
    } else {
        (STDOUT, session.channels.stdout)
    };
    if is_connected { send(session, socket, channel, &bytes).await } else { Ok(()) }
}

/// Sends a message on a channel.
async fn send(
    session: &Session,
    socket: &mut Socket,
    channel: u8,
    data: &[u8],
) -> Result<(), Gone> {
    let bytes = encode(session.protocol, channel, data);
    let message = if session.protocol.base64 {
        Message::Text(bytes.try_into().map_err(|_| Gone)?)
    } else {
        Message::Binary(bytes)
    };
    match tokio::time::timeout(IDLE_TIMEOUT, socket.send(message)).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(Gone),
    }
}

/// Sends the result of the command, and waits until the client closes the connection, so that it can read everything.
///
/// Upstream: `conns.finish`.
async fn finish(session: &Session, socket: &mut Socket, outcome: &Outcome) {
    if let Some(status) = error_channel_message(outcome, session.protocol.version)
        && send(session, socket, ERROR, &status).await.is_err()
    {
        return;
    }
    // Without a code, client-go treats the close as an error.
    let close = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
    if socket.close(Some(close)).await.is_err() {
        return;
    }
    while let Some(Ok(_)) = socket.next().await {}
}
