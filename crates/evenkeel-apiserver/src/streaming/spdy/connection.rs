//! Serves a SPDY connection: the streams that a client opens, and their data.
//!
//! Kubernetes clients do not use SPDY flow control: they neither send window updates nor wait for them. Instead, the
//! server stops reading from the connection while too much received data waits for its handler.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use super::frame::{Decoder, Encoder, Frame};
use super::headers::Headers;
use crate::streaming::transport::{Gone, Reader, Transport, Writer};

/// Time without data in either direction after which the connection ends.
///
/// Upstream: `streamingConnectionIdleTimeout`.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4 * 60 * 60);

/// Time within which the client must close the connection after GOAWAY.
const FINISH_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of open streams of a connection. The server refuses more.
pub(super) const MAX_STREAMS: usize = 256;

/// Maximum number of received bytes that wait for their handler, on all streams of a connection together.
pub(super) const MAX_WAITING_BYTES: usize = 256 * 1024;

/// Minimum number of bytes that a waiting chunk counts as, because each chunk also needs memory in a queue.
const MIN_CHUNK_BYTES: usize = 256;

/// Number of frames that may wait to be written.
const QUEUE_LENGTH: usize = 4;

// Status codes of RST_STREAM.
const PROTOCOL_ERROR: u32 = 1;
const REFUSED_STREAM: u32 = 3;
const CANCEL: u32 = 5;

/// Stream that the client has opened.
pub(crate) struct Stream {
    /// Id of the stream: odd, and larger than those of earlier streams.
    pub(crate) id: u32,
    /// Headers of SYN_STREAM.
    pub(crate) headers: Headers,
    /// Direction from the client. After the drop, the server discards further data.
    pub(crate) receiver: Receiver,
    /// Direction to the client.
    pub(crate) sender: Sender,
}

/// Event of a stream from the client.
pub(crate) enum Received {
    /// The next bytes.
    Data(Chunk),
    /// The client sends no more data.
    Finished,
    /// The client has reset the stream or disconnected.
    Reset,
}

/// Bytes of a stream. They count as waiting until the drop.
pub(crate) struct Chunk {
    pub(crate) bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

/// Direction of a stream from the client.
pub(crate) struct Receiver(mpsc::UnboundedReceiver<Received>);

impl Receiver {
    /// Waits for the next event.
    pub(crate) async fn receive(&mut self) -> Received {
        self.0.recv().await.unwrap_or(Received::Reset)
    }
}

/// Direction of a stream to the client. Discards everything after the client has disconnected.
#[derive(Clone)]
pub(crate) struct Sender {
    id: u32,
    frames: mpsc::Sender<Frame>,
}

impl Sender {
    /// Sends bytes in one frame, which holds less than 16 MiB.
    pub(crate) async fn send(&self, bytes: Bytes) {
        self.send_frame(Frame::Data { stream: self.id, fin: false, bytes }).await;
    }

    /// Finishes this direction.
    pub(crate) async fn finish(&self) {
        self.send_frame(Frame::Data { stream: self.id, fin: true, bytes: Bytes::new() }).await;
    }

    /// Ends the stream in both directions.
    pub(crate) async fn reset(&self) {
        self.send_frame(Frame::Reset { stream: self.id, status: CANCEL }).await;
    }

    async fn send_frame(&self, frame: Frame) {
        let _ = self.frames.send(frame).await;
    }
}

/// Serves a connection until `handle` returns or the client disconnects. `handle` receives the streams that the client
/// opens and whose headers pass `check_headers`.
///
/// Upstream: `connection` of `httpstream/spdy`, `Connection.Serve` of `spdystream`.
pub(crate) async fn serve<F>(
    transport: Transport,
    check_headers: fn(&Headers) -> Result<(), String>,
    handle: impl FnOnce(mpsc::Receiver<Stream>) -> F,
) where
    F: Future<Output = ()>,
{
    let (reader, writer) = transport.split();
    let (frames, frame_receiver) = mpsc::channel(QUEUE_LENGTH);
    let (opened_streams, streams) = mpsc::channel(1);
    let activity = Notify::new();
    let connection_reader = ConnectionReader {
        reader,
        frames: frames.clone(),
        opened_streams,
        check_headers,
        streams: HashMap::new(),
        last_stream_id: 0,
        waiting_bytes: Arc::new(Semaphore::new(MAX_WAITING_BYTES)),
        activity: &activity,
    };
    let mut reading = std::pin::pin!(connection_reader.run());
    let mut writing = std::pin::pin!(write_frames(writer, frame_receiver, &activity));
    tokio::select! {
        () = handle(streams) => {}
        Err(Gone) = &mut reading => return,
        Err(Gone) = &mut writing => return,
        () = wait_until_idle(&activity) => return,
    }
    // Give the client time to read the remaining frames, and keep reading, because it may still send.
    let go_away = frames.send(Frame::GoAway { last: 0, status: 0 });
    let finish = futures::future::join3(go_away, reading, writing);
    let _ = tokio::time::timeout(FINISH_TIMEOUT, finish).await;
}

/// Waits until there was no activity for [`IDLE_TIMEOUT`].
async fn wait_until_idle(activity: &Notify) {
    while tokio::time::timeout(IDLE_TIMEOUT, activity.notified()).await.is_ok() {}
}

/// Writes frames up to `GoAway`, which is the last.
async fn write_frames(
    mut writer: Writer,
    mut frames: mpsc::Receiver<Frame>,
    activity: &Notify,
) -> Result<(), Gone> {
    let mut encoder = Encoder::default();
    while let Some(frame) = frames.recv().await {
        let bytes = encoder.encode(&frame).map_err(|_| Gone)?;
        writer.write(bytes).await?;
        activity.notify_one();
        if matches!(frame, Frame::GoAway { .. }) {
            writer.close().await;
            return Ok(());
        }
    }
    Ok(())
}

/// Reads the frames of the client, and sends each to its stream.
struct ConnectionReader<'a> {
    reader: Reader,
    frames: mpsc::Sender<Frame>,
    /// Opened streams, for the handler.
    opened_streams: mpsc::Sender<Stream>,
    check_headers: fn(&Headers) -> Result<(), String>,
    /// Senders to the handlers of the streams, by stream id.
    streams: HashMap<u32, mpsc::UnboundedSender<Received>>,
    /// Id of the last stream that the client opened.
    last_stream_id: u32,
    /// Bytes that may still wait for the handler, of [`MAX_WAITING_BYTES`].
    waiting_bytes: Arc<Semaphore>,
    /// Restarts the idle timeout.
    activity: &'a Notify,
}

impl ConnectionReader<'_> {
    /// Reads until the client disconnects.
    async fn run(mut self) -> Result<(), Gone> {
        let mut decoder = Decoder::default();
        loop {
            let bytes = self.reader.read().await?;
            self.activity.notify_one();
            decoder.push(&bytes);
            while let Some(frame) = decoder.next().map_err(|error| {
                tracing::debug!(%error, "a connection of streams ended");
                Gone
            })? {
                self.handle_frame(frame).await?;
            }
        }
    }

    async fn handle_frame(&mut self, frame: Frame) -> Result<(), Gone> {
        match frame {
            Frame::SynStream { stream, fin, headers } => {
                self.open_stream(stream, fin, headers).await?;
            }
            Frame::Data { stream, fin, bytes } => {
                self.receive_data(stream, bytes).await?;
                if fin {
                    self.finish(stream);
                }
            }
            Frame::Headers { stream, fin: true, .. } => self.finish(stream),
            Frame::Reset { stream, .. } => {
                if let Some(received) = self.streams.remove(&stream) {
                    let _ = received.send(Received::Reset);
                }
            }
            // Odd ids are pings of the client. Even ids would be replies to pings of the server, which sends none.
            Frame::Ping(id) if id % 2 == 1 => self.reply(Frame::Ping(id)).await?,
            Frame::GoAway { .. } => return Err(Gone),
            Frame::Ping(_)
            | Frame::Headers { .. }
            | Frame::SynReply { .. }
            | Frame::Settings
            | Frame::WindowUpdate { .. } => {}
        }
        Ok(())
    }

    async fn open_stream(&mut self, id: u32, fin: bool, headers: Headers) -> Result<(), Gone> {
        if id.is_multiple_of(2) || id <= self.last_stream_id {
            return self.reply(Frame::Reset { stream: id, status: PROTOCOL_ERROR }).await;
        }
        self.last_stream_id = id;
        self.streams.retain(|_, received| !received.is_closed());
        if let Err(why) = (self.check_headers)(&headers) {
            tracing::debug!(why, "a stream was rejected");
            return self.reply(Frame::Reset { stream: id, status: CANCEL }).await;
        }
        if self.streams.len() >= MAX_STREAMS {
            return self.reply(Frame::Reset { stream: id, status: REFUSED_STREAM }).await;
        }
        let (received, receiver) = mpsc::unbounded_channel();
        let sender = Sender { id, frames: self.frames.clone() };
        self.reply(Frame::SynReply { stream: id, fin: false, headers: Headers::new() }).await?;
        let stream = Stream { id, headers, receiver: Receiver(receiver), sender };
        if self.opened_streams.send(stream).await.is_err() {
            // The handler has returned.
            return self.reply(Frame::Reset { stream: id, status: REFUSED_STREAM }).await;
        }
        self.streams.insert(id, received);
        if fin {
            self.finish(id);
        }
        Ok(())
    }

    /// Passes bytes to the handler of a stream, after a wait for free waiting bytes. Discards bytes of unknown streams.
    async fn receive_data(&mut self, stream: u32, bytes: Bytes) -> Result<(), Gone> {
        let Some(received) = self.streams.get(&stream).filter(|_| !bytes.is_empty()) else {
            return Ok(());
        };
        let size = bytes.len().clamp(MIN_CHUNK_BYTES, MAX_WAITING_BYTES);
        let size = u32::try_from(size).map_err(|_| Gone)?;
        let permit = self.waiting_bytes.clone().acquire_many_owned(size).await.map_err(|_| Gone)?;
        let _ = received.send(Received::Data(Chunk { bytes, _permit: permit }));
        Ok(())
    }

    /// Ends the direction from the client. The stream remains known, because the client can still reset it.
    fn finish(&self, stream: u32) {
        if let Some(received) = self.streams.get(&stream) {
            let _ = received.send(Received::Finished);
        }
    }

    async fn reply(&mut self, frame: Frame) -> Result<(), Gone> {
        self.frames.send(frame).await.map_err(|_| Gone)
    }
}

#[cfg(test)]
mod tests;
