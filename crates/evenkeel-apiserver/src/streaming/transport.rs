//! Byte transport of upgraded connections: raw, or in WebSocket messages.

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

/// Time within which the client must switch protocols after the response.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of a client's message in bytes; a larger one ends the connection.
const MAX_MESSAGE: usize = 1024 * 1024;

/// Maximum number of bytes that wait to be sent to the client: a message, and pongs. The socket drops pongs beyond it, so that
/// a client that sends pings and never reads takes no more memory.
const MAX_UNSENT: usize = MAX_MESSAGE + 64 * 1024;

/// Maximum number of bytes of one read.
const READ_SIZE: usize = 16 * 1024;

/// Server's end of a WebSocket.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Error that ends a connection: the client has disconnected or violated the protocol.
#[derive(Debug)]
pub(super) struct Gone;

/// Waits for the upgrade. Returns `None` if the client does not switch protocols in time.
pub(super) async fn upgraded(upgrade: OnUpgrade) -> Option<TokioIo<Upgraded>> {
    let upgraded = tokio::time::timeout(UPGRADE_TIMEOUT, upgrade).await;
    upgraded.ok()?.ok().map(TokioIo::new)
}

/// Creates a WebSocket from a connection after its handshake.
pub(super) async fn websocket(io: TokioIo<Upgraded>) -> Socket {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        .max_write_buffer_size(MAX_UNSENT)
        // Send each message immediately.
        .write_buffer_size(0);
    WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await
}

/// Bidirectional byte connection.
pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Transport of the bytes of a SPDY connection.
pub(super) enum Transport {
    /// The connection itself.
    Plain(Box<dyn Connection>),
    /// Binary WebSocket messages.
    ///
    /// Upstream: `TunnelingConnection`.
    Tunnel(Box<Socket>),
}

/// Half of a transport that receives from the client.
pub(super) enum Reader {
    Plain(ReadHalf<Box<dyn Connection>>),
    Tunnel(SplitStream<Box<Socket>>),
}

/// Half of a transport that sends to the client.
pub(super) enum Writer {
    Plain(WriteHalf<Box<dyn Connection>>),
    Tunnel(SplitSink<Box<Socket>, Message>),
}

impl Transport {
    /// Splits the transport into its directions.
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
    /// Returns the next bytes, or an error at the end of the connection.
    pub(super) async fn read(&mut self) -> Result<Bytes, Gone> {
        match self {
            Self::Plain(reader) => {
                let mut buffer = Vec::with_capacity(READ_SIZE);
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
    /// Writes and flushes bytes.
    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<(), Gone> {
        match self {
            Self::Plain(writer) => {
                writer.write_all(&bytes).await.map_err(|_| Gone)?;
                writer.flush().await.map_err(|_| Gone)
            }
            Self::Tunnel(writer) => writer.send(Message::Binary(bytes)).await.map_err(|_| Gone),
        }
    }

    /// Closes the direction to the client.
    pub(super) async fn close(&mut self) {
        let _ = match self {
            Self::Plain(writer) => writer.shutdown().await.map_err(|_| Gone),
            Self::Tunnel(writer) => writer.send(Message::Close(None)).await.map_err(|_| Gone),
        };
    }
}
