//! A watch: events cut from the byte stream as they arrive.

use super::{ApiError, Client, send::Call, wire};
use bytes::{Buf, Bytes, BytesMut};
use evenkeel_api::{Encoding, Kind, View};
use http::Method;
use http_body_util::BodyExt as _;
use kube::client::Body;

/// Larger than any object that etcd can hold; a longer frame is a broken stream.
const MAX_FRAME: usize = 64 << 20;

/// The byte stream of a watch, cut into frames.
pub(crate) struct Watch {
    body: Body,
    cutter: Cutter,
}

/// Why a watch ended before its time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchBroken {
    #[error("the connection broke: {0}")]
    Transport(Box<str>),
    #[error("the stream makes no sense: {0}")]
    Frame(Box<str>),
}

impl Client {
    /// Opens a watch; `query` starts with `?`.
    pub(crate) async fn watch<V: View>(&self, kind: &Kind, query: &str) -> Result<Watch, ApiError> {
        let mut call = Call::new(Method::GET, kind.path("") + query, wire::accept::<V>());
        call.limited = false;
        let response = self.send(&call).await?;
        let encoding = wire::encoding(response.headers());
        Ok(Watch { body: response.into_body(), cutter: Cutter::new(encoding) })
    }
}

impl Watch {
    /// How frames and their objects are encoded.
    pub(crate) fn encoding(&self) -> Encoding {
        self.cutter.encoding
    }

    /// The next frame; none at the stream's regular end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, WatchBroken> {
        loop {
            if let Some(frame) = self.cutter.cut()? {
                return Ok(Some(frame));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.cutter.push(data);
                    }
                }
                Some(Err(error)) => {
                    return Err(WatchBroken::Transport(super::full_text(&error).into()));
                }
                // A frame without its end is what a dying server leaves; the watch goes on from the last whole one.
                None => return Ok(None),
            }
        }
    }
}

/// Cuts frames out of chunks. A frame within one chunk is not copied.
struct Cutter {
    encoding: Encoding,
    /// The start of a frame whose end is still to come.
    carry: BytesMut,
    /// How much of `carry` is known to hold no end of line.
    scanned: usize,
    chunk: Bytes,
}

impl Cutter {
    fn new(encoding: Encoding) -> Self {
        Self { encoding, carry: BytesMut::new(), scanned: 0, chunk: Bytes::new() }
    }

    /// Takes the next chunk; [`Cutter::cut`] has been called until there was nothing.
    fn push(&mut self, chunk: Bytes) {
        if self.carry.is_empty() {
            self.chunk = chunk;
        } else {
            self.carry.extend_from_slice(&chunk);
        }
    }

    fn cut(&mut self) -> Result<Option<Bytes>, WatchBroken> {
        loop {
            let found = match self.encoding {
                Encoding::Json => self.line(),
                Encoding::Protobuf => self.prefixed()?,
            };
            match found {
                // Blank lines may keep a connection alive.
                Some(frame) if frame.trim_ascii().is_empty() && self.encoding == Encoding::Json => {
                }
                Some(frame) => return Ok(Some(frame)),
                None => break,
            }
        }
        if !self.chunk.is_empty() {
            self.carry.extend_from_slice(&std::mem::take(&mut self.chunk));
        }
        if self.carry.len() > MAX_FRAME {
            return Err(WatchBroken::Frame("a frame has no end".into()));
        }
        Ok(None)
    }

    /// The bytes to look at: the carried ones or, when there are none, the chunk's.
    fn pending(&self) -> &[u8] {
        if self.carry.is_empty() { &self.chunk } else { &self.carry }
    }

    fn take(&mut self, n: usize) -> Bytes {
        if self.carry.is_empty() { self.chunk.split_to(n) } else { self.carry.split_to(n).freeze() }
    }

    fn line(&mut self) -> Option<Bytes> {
        let from = self.scanned;
        let Some(end) = memchr::memchr(b'\n', &self.pending()[from..]) else {
            self.scanned = self.pending().len();
            return None;
        };
        self.scanned = 0;
        Some(self.take(from + end + 1))
    }

    fn prefixed(&mut self) -> Result<Option<Bytes>, WatchBroken> {
        let Some(prefix) = self.pending().first_chunk::<4>() else { return Ok(None) };
        let n = u32::from_be_bytes(*prefix) as usize;
        if n > MAX_FRAME {
            return Err(WatchBroken::Frame(format!("a frame of {n} bytes").into()));
        }
        if self.pending().len() < 4 + n {
            return Ok(None);
        }
        let mut frame = self.take(4 + n);
        frame.advance(4);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames(encoding: Encoding, stream: &[u8], sizes: &[usize]) -> Vec<Bytes> {
        let (mut cutter, mut rest, mut found) = (Cutter::new(encoding), stream, Vec::new());
        let mut sizes = sizes.iter().cycle();
        while !rest.is_empty() {
            let (chunk, tail) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            rest = tail;
            cutter.push(Bytes::copy_from_slice(chunk));
            while let Some(frame) = cutter.cut().unwrap() {
                found.push(frame);
            }
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn frames_do_not_depend_on_chunks(
            texts in proptest::collection::vec("[a-z]{1,40}", 0..12),
            sizes in proptest::collection::vec(1usize..50, 1..6),
        ) {
            let lines: String = texts.iter().map(|text| format!("{text}\n")).collect();
            let found = frames(Encoding::Json, lines.as_bytes(), &sizes);
            let found: Vec<_> = found.iter().map(|f| std::str::from_utf8(f).unwrap().trim_end()).collect();
            prop_assert_eq!(found, texts.clone());

            let prefixed: Vec<u8> = texts
                .iter()
                .flat_map(|text| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat())
                .collect();
            let found = frames(Encoding::Protobuf, &prefixed, &sizes);
            let found: Vec<_> = found.iter().map(|f| std::str::from_utf8(f).unwrap()).collect();
            prop_assert_eq!(found, texts);
        }
    }

    #[test]
    fn an_impossible_length_is_an_error() {
        let mut cutter = Cutter::new(Encoding::Protobuf);
        cutter.push(Bytes::from_static(&[0xff; 8]));
        assert!(matches!(cutter.cut(), Err(WatchBroken::Frame(_))));
    }
}
