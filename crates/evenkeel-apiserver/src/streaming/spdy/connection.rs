//! A connection under way: the streams that a client opens, and the bytes on them.
//!
//! Clients of Kubernetes have no flow control of SPDY: they send no window updates, and do not wait for any. What holds back a
//! sender is the connection itself. The server stops reading while a client's bytes wait for whoever takes them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use super::frame::{Decoder, Encoder, Frame};
use super::headers::Headers;
use crate::streaming::transport::{Gone, Reader, Transport, Writer};

/// How long nothing may come or go.
///
/// Upstream: `streamingConnectionIdleTimeout`.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4 * 60 * 60);

/// How long the client may take to close the connection after its end.
const FINISH_TIMEOUT: Duration = Duration::from_secs(60);

/// Streams of a connection at once; further ones are refused.
pub(super) const MAX_STREAMS: usize = 256;

/// Bytes of a client that wait on all streams of a connection together.
pub(super) const MAX_WAITING: usize = 256 * 1024;

/// Bytes for which a piece counts at least: it is held in a queue.
const MIN_PIECE: usize = 256;

/// Frames that wait to be written.
const QUEUE: usize = 4;

const PROTOCOL_ERROR: u32 = 1;
const REFUSED_STREAM: u32 = 3;
const CANCEL: u32 = 5;

/// A stream that the client has opened.
pub(crate) struct Stream {
    /// Number of the stream: odd, and larger than those before it.
    pub(crate) id: u32,
    /// Headers that came with it.
    pub(crate) headers: Headers,
    /// Its direction to the server. When it is dropped, further bytes are passed over.
    pub(crate) receiver: Receiver,
    /// Its direction to the client.
    pub(crate) sender: Sender,
}

/// What comes on a stream.
pub(crate) enum Received {
    /// Bytes in their order.
    Data(Piece),
    /// Nothing more: the client has finished its direction.
    Finished,
    /// Nothing more: the client has ended the stream in both directions, or is gone.
    Reset,
}

/// Bytes of a stream. They count as waiting until they are dropped.
pub(crate) struct Piece {
    pub(crate) bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

/// The direction of a stream to the server.
pub(crate) struct Receiver(mpsc::UnboundedReceiver<Received>);

impl Receiver {
    pub(crate) async fn receive(&mut self) -> Received {
        self.0.recv().await.unwrap_or(Received::Reset)
    }
}

/// The direction of a stream to the client. Where the client is gone, all is lost that is sent.
#[derive(Clone)]
pub(crate) struct Sender {
    id: u32,
    frames: mpsc::Sender<Frame>,
}

impl Sender {
    /// Sends bytes that fit into a frame.
    pub(crate) async fn send(&self, bytes: Bytes) {
        self.frame(Frame::Data { stream: self.id, fin: false, bytes }).await;
    }

    /// Finishes this direction.
    pub(crate) async fn finish(&self) {
        self.frame(Frame::Data { stream: self.id, fin: true, bytes: Bytes::new() }).await;
    }

    /// Ends the stream in both directions.
    pub(crate) async fn reset(&self) {
        self.frame(Frame::Reset { stream: self.id, status: CANCEL }).await;
    }

    async fn frame(&self, frame: Frame) {
        let _ = self.frames.send(frame).await;
    }
}

/// Serves a connection until `handle` is done with its streams, or the client is gone. `accepts` says which streams are accepted.
///
/// Upstream: `connection` of `httpstream/spdy`, `Connection.Serve` of `spdystream`.
pub(crate) async fn serve<F>(
    transport: Transport,
    accepts: fn(&Headers) -> Result<(), String>,
    handle: impl FnOnce(mpsc::Receiver<Stream>) -> F,
) where
    F: Future<Output = ()>,
{
    let (reader, writer) = transport.split();
    let (frames, queued) = mpsc::channel(QUEUE);
    let (opened, streams) = mpsc::channel(1);
    let activity = Notify::new();
    let reads = Reads {
        reader,
        frames: frames.clone(),
        opened,
        accepts,
        streams: HashMap::new(),
        last: 0,
        room: Arc::new(Semaphore::new(MAX_WAITING)),
        activity: &activity,
    };
    let mut reading = std::pin::pin!(reads.run());
    let mut writing = std::pin::pin!(write(writer, queued, &activity));
    tokio::select! {
        () = handle(streams) => {}
        Err(Gone) = &mut reading => return,
        Err(Gone) = &mut writing => return,
        () = idle(&activity) => return,
    }
    // The client may still send, and has to read what was written.
    let last = frames.send(Frame::GoAway { last: 0, status: 0 });
    let finish = futures::future::join3(last, reading, writing);
    let _ = tokio::time::timeout(FINISH_TIMEOUT, finish).await;
}

/// Returns once nothing has come or gone for long.
async fn idle(activity: &Notify) {
    while tokio::time::timeout(IDLE_TIMEOUT, activity.notified()).await.is_ok() {}
}

/// Writes frames up to the last, which is `GoAway`.
async fn write(
    mut writer: Writer,
    mut queued: mpsc::Receiver<Frame>,
    activity: &Notify,
) -> Result<(), Gone> {
    let mut encoder = Encoder::default();
    while let Some(frame) = queued.recv().await {
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

/// Takes what the client sends.
struct Reads<'a> {
    reader: Reader,
    frames: mpsc::Sender<Frame>,
    opened: mpsc::Sender<Stream>,
    accepts: fn(&Headers) -> Result<(), String>,
    streams: HashMap<u32, mpsc::UnboundedSender<Received>>,
    /// Number of the last stream that was opened.
    last: u32,
    room: Arc<Semaphore>,
    activity: &'a Notify,
}

impl Reads<'_> {
    /// Reads until the client is gone.
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
                self.take(frame).await?;
            }
        }
    }

    async fn take(&mut self, frame: Frame) -> Result<(), Gone> {
        match frame {
            Frame::SynStream { stream, fin, headers } => self.open(stream, fin, headers).await?,
            Frame::Data { stream, fin, bytes } => {
                self.data(stream, bytes).await?;
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
            // Odd numbers are the client's; the server sends none of its own.
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

    async fn open(&mut self, id: u32, fin: bool, headers: Headers) -> Result<(), Gone> {
        if id.is_multiple_of(2) || id <= self.last {
            return self.reply(Frame::Reset { stream: id, status: PROTOCOL_ERROR }).await;
        }
        self.last = id;
        self.streams.retain(|_, received| !received.is_closed());
        if let Err(why) = (self.accepts)(&headers) {
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
        if self.opened.send(stream).await.is_err() {
            // The server is done.
            return self.reply(Frame::Reset { stream: id, status: REFUSED_STREAM }).await;
        }
        self.streams.insert(id, received);
        if fin {
            self.finish(id);
        }
        Ok(())
    }

    /// Passes on bytes once there is room for them. Those of a stream that is none are lost.
    async fn data(&mut self, stream: u32, bytes: Bytes) -> Result<(), Gone> {
        let Some(received) = self.streams.get(&stream).filter(|_| !bytes.is_empty()) else {
            return Ok(());
        };
        let size = bytes.len().clamp(MIN_PIECE, MAX_WAITING);
        let room = self.room.clone().acquire_many_owned(u32::try_from(size).map_err(|_| Gone)?);
        let piece = Piece { bytes, _room: room.await.map_err(|_| Gone)? };
        let _ = received.send(Received::Data(piece));
        Ok(())
    }

    /// The client can still end the stream in the other direction.
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
