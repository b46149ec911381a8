//! Frames of SPDY/3.1: bytes in, frames out, and the other way round.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::error::FrameError;
use super::headers::{Deflater, Headers, Inflater};

/// Version of all control frames.
const VERSION: u16 = 3;

/// Size of a control frame's payload; a larger one ends the connection.
pub(super) const MAX_CONTROL: u32 = 32 * 1024;

/// Bytes of a data frame that are passed on together.
const MAX_PIECE: usize = 16 * 1024;

const FLAG_FIN: u8 = 1;
const STREAM: u32 = 0x7fff_ffff;

/// A frame, or a piece of a data frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The peer opens a stream; `fin` says that it will send nothing on it.
    SynStream { stream: u32, fin: bool, headers: Headers },
    /// The peer accepts a stream.
    SynReply { stream: u32, fin: bool, headers: Headers },
    /// The peer ends a stream in both directions.
    Reset { stream: u32, status: u32 },
    /// Parameters of the connection.
    Settings,
    /// To be answered with the same one.
    Ping(u32),
    /// The peer accepts no further streams.
    GoAway { last: u32, status: u32 },
    /// More headers of a stream.
    Headers { stream: u32, fin: bool, headers: Headers },
    /// The peer has room for more bytes.
    WindowUpdate { stream: u32, delta: u32 },
    /// Bytes of a stream; `fin` says that they are the last of this direction.
    Data { stream: u32, fin: bool, bytes: Bytes },
}

/// A data frame whose payload is still to come.
#[derive(Debug, Clone, Copy)]
struct Payload {
    stream: u32,
    fin: bool,
    left: usize,
}

/// Decodes the bytes of one direction of a connection.
///
/// Upstream: `Framer.ReadFrame` of `spdystream`.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    buffer: BytesMut,
    payload: Option<Payload>,
    inflater: Inflater,
}

impl Decoder {
    /// Takes bytes as they arrive.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next frame; `None` until more bytes arrive. A large data frame comes in pieces.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some(payload) = self.payload.take() {
            return Ok(self.piece(payload));
        }
        let mut head: &[u8] = &self.buffer;
        let (Ok(first), Ok(second)) = (head.try_get_u32(), head.try_get_u32()) else {
            return Ok(None);
        };
        let (flags, length) = ((second >> 24) as u8, second & 0x00ff_ffff);
        if first & !STREAM == 0 {
            self.buffer.advance(8);
            if first == 0 {
                return Err(FrameError::Malformed);
            }
            let left = usize::try_from(length).map_err(|_| FrameError::TooLarge)?;
            let fin = flags & FLAG_FIN != 0;
            if left == 0 {
                return Ok(Some(Frame::Data { stream: first, fin, bytes: Bytes::new() }));
            }
            return Ok(self.piece(Payload { stream: first, fin, left }));
        }
        if length > MAX_CONTROL {
            return Err(FrameError::TooLarge);
        }
        let length = usize::try_from(length).map_err(|_| FrameError::TooLarge)?;
        let Some(payload) = head.get(..length) else { return Ok(None) };
        if (first & STREAM) >> 16 != u32::from(VERSION) {
            return Err(FrameError::Unknown);
        }
        let frame = control(first & 0xffff, flags, payload, &mut self.inflater)?;
        self.buffer.advance(8 + length);
        Ok(Some(frame))
    }

    /// Returns the next piece of a data frame.
    fn piece(&mut self, payload: Payload) -> Option<Frame> {
        let Payload { stream, fin, left } = payload;
        let size = left.min(self.buffer.len()).min(MAX_PIECE);
        let left = left - size;
        if left > 0 {
            self.payload = Some(Payload { stream, fin, left });
        }
        if size == 0 {
            return None;
        }
        // A copy, so that a short piece does not hold the whole buffer.
        let bytes = Bytes::copy_from_slice(self.buffer.get(..size)?);
        self.buffer.advance(size);
        Some(Frame::Data { stream, fin: fin && left == 0, bytes })
    }
}

/// Decodes a control frame.
fn control(
    kind: u32,
    flags: u8,
    mut payload: &[u8],
    inflater: &mut Inflater,
) -> Result<Frame, FrameError> {
    let fin = flags & FLAG_FIN != 0;
    let mut number = || payload.try_get_u32().map_err(|_| FrameError::Malformed);
    let frame = match kind {
        1 => {
            let stream = number()? & STREAM;
            // The stream that it belongs to, its priority and slot are of no use here.
            let (_, rest) = payload.split_at_checked(6).ok_or(FrameError::Malformed)?;
            Frame::SynStream { stream, fin, headers: inflater.read(rest)? }
        }
        2 => {
            let stream = number()? & STREAM;
            Frame::SynReply { stream, fin, headers: inflater.read(payload)? }
        }
        3 => {
            let (stream, status) = (number()? & STREAM, number()?);
            if status == 0 || !payload.is_empty() {
                return Err(FrameError::Malformed);
            }
            Frame::Reset { stream, status }
        }
        4 => {
            let count = u64::from(number()?);
            if count * 8 != payload.len() as u64 {
                return Err(FrameError::Malformed);
            }
            return Ok(Frame::Settings);
        }
        6 => {
            let id = number()?;
            if id == 0 || !payload.is_empty() {
                return Err(FrameError::Malformed);
            }
            return Ok(Frame::Ping(id));
        }
        7 => {
            let (last, status) = (number()? & STREAM, number()?);
            if !payload.is_empty() {
                return Err(FrameError::Malformed);
            }
            return Ok(Frame::GoAway { last, status });
        }
        8 => {
            let stream = number()? & STREAM;
            Frame::Headers { stream, fin, headers: inflater.read(payload)? }
        }
        9 => {
            let (stream, delta) = (number()? & STREAM, number()? & STREAM);
            if delta == 0 || !payload.is_empty() {
                return Err(FrameError::Malformed);
            }
            return Ok(Frame::WindowUpdate { stream, delta });
        }
        _ => return Err(FrameError::Unknown),
    };
    match frame {
        Frame::SynStream { stream: 0, .. }
        | Frame::SynReply { stream: 0, .. }
        | Frame::Reset { stream: 0, .. }
        | Frame::Headers { stream: 0, .. } => Err(FrameError::Malformed),
        frame => Ok(frame),
    }
}

/// Encodes the frames of one direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    deflater: Deflater,
}

impl Encoder {
    /// Encodes a frame. Of `Settings`, it sends none.
    pub(crate) fn encode(&mut self, frame: &Frame) -> Result<Bytes, FrameError> {
        let (kind, flags, payload) = match frame {
            Frame::Data { stream, fin, bytes } => return data(*stream, *fin, bytes),
            Frame::SynStream { stream, fin, headers } => {
                let mut payload = numbers(&[*stream, 0]);
                payload.put_u16(0);
                payload.put_slice(&self.deflater.write(headers)?);
                (1, u8::from(*fin), payload)
            }
            Frame::SynReply { stream, fin, headers } => {
                let mut payload = numbers(&[*stream]);
                payload.put_slice(&self.deflater.write(headers)?);
                (2, u8::from(*fin), payload)
            }
            Frame::Reset { stream, status } => (3, 0, numbers(&[*stream, *status])),
            Frame::Settings => (4, 0, numbers(&[0])),
            Frame::Ping(id) => (6, 0, numbers(&[*id])),
            Frame::GoAway { last, status } => (7, 0, numbers(&[*last, *status])),
            Frame::Headers { stream, fin, headers } => {
                let mut payload = numbers(&[*stream]);
                payload.put_slice(&self.deflater.write(headers)?);
                (8, u8::from(*fin), payload)
            }
            Frame::WindowUpdate { stream, delta } => (9, 0, numbers(&[*stream, *delta])),
        };
        let mut bytes = BytesMut::with_capacity(8 + payload.len());
        bytes.put_u16(0x8000 | VERSION);
        bytes.put_u16(kind);
        bytes.put_u32(flags_and_length(flags, payload.len())?);
        bytes.put_slice(&payload);
        Ok(bytes.freeze())
    }
}

fn data(stream: u32, fin: bool, data: &[u8]) -> Result<Bytes, FrameError> {
    let mut bytes = BytesMut::with_capacity(8 + data.len());
    bytes.put_u32(stream & STREAM);
    bytes.put_u32(flags_and_length(u8::from(fin), data.len())?);
    bytes.put_slice(data);
    Ok(bytes.freeze())
}

fn numbers(numbers: &[u32]) -> BytesMut {
    let mut payload = BytesMut::new();
    for number in numbers {
        payload.put_u32(*number);
    }
    payload
}

fn flags_and_length(flags: u8, length: usize) -> Result<u32, FrameError> {
    let length = u32::try_from(length).ok().filter(|length| *length < 1 << 24);
    Ok(u32::from(flags) << 24 | length.ok_or(FrameError::TooLarge)?)
}

#[cfg(test)]
mod tests;
