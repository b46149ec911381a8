//! The bytes of an upgraded connection, as they are or as messages of WebSocket.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::io::{ReadHalf, WriteHalf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// How long the client may take to switch protocols after the answer.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest message of a client; a longer one ends the stream.
const MAX_MESSAGE: usize = 1024 * 1024;

/// Bytes that are read at once.
const READ: usize = 16 * 1024;

/// A WebSocket of the server's side.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Why a stream ends without an outcome: its client is gone, or breaks the protocol.
#[derive(Debug)]
pub(super) struct Gone;

/// Waits for the upgrade; `None` if the client did not switch protocols.
pub(super) async fn upgraded(upgrade: OnUpgrade) -> Option<TokioIo<Upgraded>> {
    let upgraded = tokio::time::timeout(UPGRADE_TIMEOUT, upgrade).await;
    upgraded.ok()?.ok().map(TokioIo::new)
}

/// Makes a WebSocket of a connection after its handshake.
pub(super) async fn websocket(io: TokioIo<Upgraded>) -> Socket {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        // What is written goes out at once.
        .write_buffer_size(0);
    WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await
}

/// A connection of bytes in both directions.
pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// What carries the bytes of a SPDY connection.
pub(super) enum Transport {
    /// The connection itself.
    Plain(Box<dyn Connection>),
    /// Binary messages of WebSocket.
    ///
    /// Upstream: `TunnelingConnection`.
    Tunnel(Box<Socket>),
}

/// Reads what the client sends.
pub(super) enum Reader {
    Plain(ReadHalf<Box<dyn Connection>>),
    Tunnel(SplitStream<Box<Socket>>),
}

/// Writes what the client receives.
pub(super) enum Writer {
    Plain(WriteHalf<Box<dyn Connection>>),
    Tunnel(SplitSink<Box<Socket>, Message>),
}

impl Transport {
    pub(super) fn split(self) -> (Reader, Writer) {
        match self {
            Self::Plain(io) => {
                let (reader, writer) = tokio::io::split(io);
                (Reader::Plain(reader), Writer::Plain(writer))
            }
            Self::Tunnel(socket) => {
                let (writer, reader) = socket.split();
                (Reader::Tunnel(reader), Writer::Tunnel(writer))
            }
        }
    }
}

impl Reader {
    /// Returns the next bytes; an error at their end.
    pub(super) async fn read(&mut self) -> Result<Bytes, Gone> {
        match self {
            Self::Plain(reader) => {
                let mut buffer = Vec::with_capacity(READ);
                match reader.read_buf(&mut buffer).await {
                    Ok(size) if size > 0 => Ok(buffer.into()),
                    _ => Err(Gone),
                }
            }
            Self::Tunnel(reader) => loop {
                match reader.next().await {
                    Some(Ok(Message::Binary(bytes))) => return Ok(bytes),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    _ => return Err(Gone),
                }
            },
        }
    }
}

impl Writer {
    /// Writes the bytes, and sends them off.
    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<(), Gone> {
        match self {
            Self::Plain(writer) => {
                writer.write_all(&bytes).await.map_err(|_| Gone)?;
                writer.flush().await.map_err(|_| Gone)
            }
            Self::Tunnel(writer) => writer.send(Message::Binary(bytes)).await.map_err(|_| Gone),
        }
    }

    /// Says that nothing follows.
    pub(super) async fn close(&mut self) {
        let _ = match self {
            Self::Plain(writer) => writer.shutdown().await.map_err(|_| Gone),
            Self::Tunnel(writer) => writer.send(Message::Close(None)).await.map_err(|_| Gone),
        };
    }
}
