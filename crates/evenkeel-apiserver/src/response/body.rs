//! Bodies of answers.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http_body::{Frame, SizeHint};

use super::written::{self, Unwritten, WriteTimeout, Writing};

/// Bytes of a whole body that go out at once. Longer ones are divided, so that their end is handed over when most of them is
/// written.
const FRAME: usize = 128 * 1024;

/// The body of an answer: whole, or made piece by piece while it is sent.
pub struct Body {
    inner: Inner,
    /// Dropped with the body.
    held: Option<Box<dyn Send>>,
    /// What the request holds until this is written.
    unwritten: Option<Unwritten>,
}

enum Inner {
    Whole(Option<Bytes>),
    Pieces(Box<dyn Iterator<Item = Bytes> + Send>),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Body {
    /// A body without bytes.
    pub fn empty() -> Self {
        Inner::Whole(None).into()
    }

    /// All of it at once.
    pub fn whole(bytes: Bytes) -> Self {
        Inner::Whole(Some(bytes)).into()
    }

    /// Pieces that are made when the last one was taken.
    pub(crate) fn pieces(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Self {
        Inner::Pieces(Box::new(pieces)).into()
    }

    /// Pieces as they come.
    pub(crate) fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Inner::Stream(Box::pin(stream)).into()
    }

    /// Keeps a guard until the body is sent or dropped.
    pub(crate) fn hold(&mut self, guard: impl Send + 'static) {
        self.held = Some(Box::new(guard));
    }

    /// Whether the body goes out at once, whether or not the client reads it.
    pub(crate) fn is_short(&self) -> bool {
        match &self.inner {
            Inner::Whole(bytes) => bytes.as_ref().is_none_or(|bytes| bytes.len() <= FRAME),
            Inner::Pieces(_) | Inner::Stream(_) => false,
        }
    }

    /// Keeps a guard until the body is sent or dropped, or until the result, which is to be waited for, says that its time is
    /// over. The body then fails.
    pub(crate) fn hold_until_written(&mut self, guard: impl Send + 'static) -> Writing {
        let (unwritten, writing) = written::hold(Box::new(guard));
        self.unwritten = Some(unwritten);
        writing
    }
}

impl From<Inner> for Body {
    fn from(inner: Inner) -> Self {
        Self { inner, held: None, unwritten: None }
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
    type Error = WriteTimeout;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, WriteTimeout>>> {
        let this = self.get_mut();
        if let Some(Err(timeout)) = this.unwritten.as_ref().map(Unwritten::check) {
            return Poll::Ready(Some(Err(timeout)));
        }
        let piece = match &mut this.inner {
            Inner::Whole(Some(bytes)) if bytes.len() > FRAME => Some(bytes.split_to(FRAME)),
            Inner::Whole(bytes) => bytes.take().filter(|b| !b.is_empty()),
            Inner::Pieces(pieces) => pieces.next(),
            Inner::Stream(stream) => match stream.as_mut().poll_next(cx) {
                Poll::Ready(piece) => piece,
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
    /// The bytes of a body that is whole.
    pub(crate) fn into_whole(self) -> Option<Bytes> {
        match self.inner {
            Inner::Whole(bytes) => bytes,
            _ => None,
        }
    }
}
