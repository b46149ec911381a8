//! Bodies of responses.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http_body::{Frame, SizeHint};

use super::written::{self, Unwritten, WriteTimeout, Writing};

/// Maximum size of a frame in bytes. A larger body is split, so that its last frame is sent only after the client has
/// read most of the body.
const MAX_FRAME_BYTES: usize = 128 * 1024;

/// Error of a response whose body cannot be written to its end. The connection, or the stream of HTTP/2, is reset, so
/// that the client does not mistake the part that it received for the whole body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The client did not read the response before its deadline.
    #[error(transparent)]
    WriteTimeout(#[from] WriteTimeout),
    /// The server that a request was forwarded to did not send its whole response.
    #[error("reading the proxied answer failed: {0}")]
    Broken(String),
    /// An object of a list cannot be encoded in the format of the response.
    #[error("an object of the list cannot be encoded: {0}")]
    Unencodable(String),
}

/// Body of a response. It is complete, or the server produces its chunks while it sends them.
pub struct Body {
    inner: Inner,
    /// Guards that drop with the body.
    held: Vec<Box<dyn Send>>,
    /// Guard that drops when the body is written, or at its deadline.
    unwritten: Option<Unwritten>,
}

/// Content of a body.
enum Inner {
    /// All bytes that are not sent yet; `None` after they are sent.
    Whole(Option<Bytes>),
    Pieces(Box<dyn Iterator<Item = Result<Bytes, BodyError>> + Send>),
    Stream(Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>),
}

impl Body {
    /// Creates an empty body.
    pub fn empty() -> Self {
        Inner::Whole(None).into()
    }

    /// Creates a body from all its bytes.
    pub fn whole(bytes: Bytes) -> Self {
        Inner::Whole(Some(bytes)).into()
    }

    /// Creates a body from chunks. The iterator produces a chunk after the previous one is sent.
    pub(crate) fn pieces(
        pieces: impl Iterator<Item = Result<Bytes, BodyError>> + Send + 'static,
    ) -> Self {
        Inner::Pieces(Box::new(pieces)).into()
    }

    /// Creates a body from a stream of chunks.
    pub(crate) fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::relay(stream.map(Ok))
    }

    /// Creates a body from a stream of chunks that can fail.
    pub(crate) fn relay(
        stream: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static,
    ) -> Self {
        Inner::Stream(Box::pin(stream)).into()
    }

    /// Holds a guard until the body is sent or dropped.
    pub(crate) fn hold(&mut self, guard: impl Send + 'static) {
        self.held.push(Box::new(guard));
    }

    /// Returns whether the body fits in one frame, which the server can send even if the client does not read.
    pub(crate) fn is_short(&self) -> bool {
        match &self.inner {
            Inner::Whole(bytes) => {
                bytes.as_ref().is_none_or(|bytes| bytes.len() <= MAX_FRAME_BYTES)
            }
            Inner::Pieces(_) | Inner::Stream(_) => false,
        }
    }

    /// Holds a guard until the body is sent or dropped. The returned timer must be awaited: after its limit it releases
    /// the guard, and the body fails.
    pub(crate) fn hold_until_written(&mut self, guard: impl Send + 'static) -> Writing {
        let (unwritten, writing) = written::hold(Box::new(guard));
        self.unwritten = Some(unwritten);
        writing
    }
}

impl From<Inner> for Body {
    fn from(inner: Inner) -> Self {
        Self { inner, held: Vec::new(), unwritten: None }
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.inner {
            Inner::Whole(_) => "Body(whole)",
            Inner::Pieces(_) => "Body(pieces)",
            Inner::Stream(_) => "Body(stream)",
        })
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(Err(timeout)) = this.unwritten.as_ref().map(Unwritten::check) {
            return Poll::Ready(Some(Err(timeout.into())));
        }
        let piece = match &mut this.inner {
            Inner::Whole(Some(bytes)) if bytes.len() > MAX_FRAME_BYTES => {
                Some(bytes.split_to(MAX_FRAME_BYTES))
            }
            Inner::Whole(bytes) => bytes.take().filter(|b| !b.is_empty()),
            Inner::Pieces(pieces) => match pieces.next().transpose() {
                Ok(piece) => piece,
                Err(error) => return Poll::Ready(Some(Err(error))),
            },
            Inner::Stream(stream) => match stream.as_mut().poll_next(cx) {
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(piece) => piece.and_then(Result::ok),
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(piece.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            _ => SizeHint::default(),
        }
    }
}

impl Body {
    /// Returns the bytes of a complete body without removing them.
    pub(crate) fn peek(&self) -> Option<Bytes> {
        match &self.inner {
            Inner::Whole(bytes) => bytes.clone(),
            Inner::Pieces(_) | Inner::Stream(_) => None,
        }
    }

    /// Turns a chunked body into a complete one. Returns its bytes like [`peek`](Self::peek). A body that fails has no
    /// bytes, and fails when it is sent.
    pub(crate) fn gather(&mut self) -> Option<Bytes> {
        if let Inner::Pieces(pieces) = &mut self.inner {
            let mut bytes = Vec::new();
            self.inner = match pieces.try_for_each(|piece| {
                bytes.extend_from_slice(&piece?);
                Ok(())
            }) {
                Ok(()) => Inner::Whole(Some(bytes.into())),
                Err(error) => Inner::Pieces(Box::new(std::iter::once(Err(error)))),
            };
        }
        self.peek()
    }

    /// Returns the bytes of a complete body.
    pub(crate) fn into_whole(self) -> Option<Bytes> {
        match self.inner {
            Inner::Whole(bytes) => bytes,
            _ => None,
        }
    }
}
