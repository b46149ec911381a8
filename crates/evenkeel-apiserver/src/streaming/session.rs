//! A command over WebSocket: its messages are those of channels.

use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::outcome::{Outcome, on_error_channel};
use super::protocol::{ChannelProtocol, Channels, ERROR, Received, STDERR, STDOUT, decode, encode};
use super::transport::{Gone, Socket};
use crate::kubelet::{Output, Streams};

/// How long nothing may come or go.
///
/// Upstream: `defaultIdleConnectionTimeout`, `streamingConnectionIdleTimeout`.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4 * 60 * 60);

/// How long the client may take to close the stream after its end.
const FINISH_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Messages and pieces of output that wait.
const QUEUE: usize = 4;

/// What a stream is about.
pub(super) struct Session {
    pub(super) protocol: ChannelProtocol,
    pub(super) channels: Channels,
    pub(super) tty: bool,
}

/// Serves a stream to its end. `start` starts the process with its streams.
pub(super) async fn run<F>(
    session: Session,
    mut socket: Socket,
    start: impl FnOnce(Streams) -> F + Send,
) where
    F: Future<Output = Outcome> + Send,
{
    if let Ok(outcome) = stream(&session, &mut socket, start).await {
        let _ = tokio::time::timeout(FINISH_TIMEOUT, finish(&session, &mut socket, &outcome)).await;
    }
}

/// Moves bytes until the process ends.
async fn stream<F>(
    session: &Session,
    socket: &mut Socket,
    start: impl FnOnce(Streams) -> F,
) -> Result<Outcome, Gone>
where
    F: Future<Output = Outcome>,
{
    // An empty message says that the stream is there.
    send(session, socket, session.channels.lowest(), b"").await?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    let (output, mut printed) = mpsc::channel(QUEUE);
    let stdin = session.channels.stdin.then_some(receiver);
    let mut process = std::pin::pin!(start(Streams { stdin, output, tty: session.tty }));
    let mut stdin = Some(sender).filter(|_| session.channels.stdin);
    // What came from the client and has no room yet.
    let mut waiting: Option<Bytes> = None;
    loop {
        tokio::select! {
            biased;
            // Begins anew whenever something comes or goes.
            () = tokio::time::sleep(IDLE_TIMEOUT) => return Err(Gone),
            output = printed.recv(), if !printed.is_closed() || !printed.is_empty() => {
                if let Some(output) = output {
                    print(session, socket, output).await?;
                }
            }
            outcome = &mut process => {
                while let Ok(output) = printed.try_recv() {
                    print(session, socket, output).await?;
                }
                return Ok(outcome);
            }
            permit = reserve(stdin.clone()), if waiting.is_some() => {
                let data = waiting.take().unwrap_or_default();
                match permit {
                    Some(permit) => drop(permit.send(data)),
                    // The process reads no more.
                    None => stdin = None,
                }
            }
            message = receive(socket), if waiting.is_none() => match message? {
                Message::Binary(data) => take(session, data, &mut stdin, &mut waiting)?,
                Message::Text(text) => take(session, text.into(), &mut stdin, &mut waiting)?,
                Message::Close(_) => return Err(Gone),
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}

/// Room for standard input; `None` if nobody reads it.
async fn reserve(stdin: Option<mpsc::Sender<Bytes>>) -> Option<mpsc::OwnedPermit<Bytes>> {
    stdin?.reserve_owned().await.ok()
}

/// Takes a message of the client.
fn take(
    session: &Session,
    message: Bytes,
    stdin: &mut Option<mpsc::Sender<Bytes>>,
    waiting: &mut Option<Bytes>,
) -> Result<(), Gone> {
    match decode(session.protocol, session.channels, message) {
        Received::Stdin(data) => {
            *waiting = Some(data).filter(|data| !data.is_empty() && stdin.is_some());
        }
        Received::StdinClosed => *stdin = None,
        Received::Ignored => {}
        Received::Broken => return Err(Gone),
    }
    Ok(())
}

/// The next message of the client.
async fn receive(socket: &mut Socket) -> Result<Message, Gone> {
    socket.next().await.ok_or(Gone)?.map_err(|error| {
        tracing::debug!(%error, "a stream ended");
        Gone
    })
}

async fn print(session: &Session, socket: &mut Socket, output: Output) -> Result<(), Gone> {
    let Output { to_stderr, bytes } = output;
    let (channel, wanted) = if to_stderr {
        (STDERR, session.channels.stderr)
    } else {
        (STDOUT, session.channels.stdout)
    };
    if wanted { send(session, socket, channel, &bytes).await } else { Ok(()) }
}

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

/// Says how the stream ended, and waits until the client closes it: it may still read.
///
/// Upstream: `conns.finish`.
async fn finish(session: &Session, socket: &mut Socket, outcome: &Outcome) {
    if let Some(status) = on_error_channel(outcome, session.protocol.version)
        && send(session, socket, ERROR, &status).await.is_err()
    {
        return;
    }
    // Without a code, client-go takes the end of the stream for an error.
    let close = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
    if socket.close(Some(close)).await.is_err() {
        return;
    }
    while let Some(Ok(_)) = socket.next().await {}
}
