//! Encodes and decodes frames of SPDY/3.1.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::error::FrameError;
use super::headers::{Deflater, Headers, Inflater};

/// Version of all control frames.
const VERSION: u16 = 3;

/// Maximum size of a control frame's payload in bytes; a larger one ends the connection.
pub(super) const MAX_CONTROL: u32 = 32 * 1024;

/// Maximum number of bytes of a data frame that [`Decoder::next`] returns in one call.
const MAX_CHUNK_BYTES: usize = 16 * 1024;

const FLAG_FIN: u8 = 1;
/// Bits of a stream id. The highest bit distinguishes control frames from data frames.
const STREAM_ID_MASK: u32 = 0x7fff_ffff;

/// Frame, or a part of a data frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// SYN_STREAM: the peer opens a stream; with `fin`, it will send no data on it.
    SynStream { stream: u32, fin: bool, headers: Headers },
    /// SYN_REPLY: the peer accepts a stream.
    SynReply { stream: u32, fin: bool, headers: Headers },
    /// RST_STREAM: the peer ends a stream in both directions.
    Reset { stream: u32, status: u32 },
    /// Parameters of the connection.
    Settings,
    /// PING: the receiver replies with the same id.
    Ping(u32),
    /// GOAWAY: the peer accepts no further streams.
    GoAway { last: u32, status: u32 },
    /// More headers of a stream.
    Headers { stream: u32, fin: bool, headers: Headers },
    /// WINDOW_UPDATE: the peer can receive more bytes.
    WindowUpdate { stream: u32, delta: u32 },
    /// Bytes of a stream; with `fin`, they are the last in this direction.
    Data { stream: u32, fin: bool, bytes: Bytes },
}

/// Data frame whose payload has not arrived completely.
#[derive(Debug, Clone, Copy)]
struct Payload {
    stream: u32,
    fin: bool,
    /// Number of bytes that [`Decoder::next`] has not returned yet.
    remaining: usize,
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
    /// Appends received bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next frame; `None` until more bytes arrive. A large data frame is returned in several parts.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some(payload) = self.payload.take() {
            return Ok(self.next_chunk(payload));
        }
        // A frame begins with two words. The first has the control bit, then the stream id of a data frame, or the
        // version and type of a control frame. The second has the flags and the length of the payload.
        let mut head: &[u8] = &self.buffer;
        let (Ok(first), Ok(second)) = (head.try_get_u32(), head.try_get_u32()) else {
            return Ok(None);
        };
        let (flags, length) = ((second >> 24) as u8, second & 0x00ff_ffff);
        let is_data_frame = first & !STREAM_ID_MASK == 0;
        if is_data_frame {
            self.buffer.advance(8);
            if first == 0 {
                return Err(FrameError::Malformed);
            }
            let remaining = usize::try_from(length).map_err(|_| FrameError::TooLarge)?;
            let fin = flags & FLAG_FIN != 0;
            if remaining == 0 {
                return Ok(Some(Frame::Data { stream: first, fin, bytes: Bytes::new() }));
            }
            return Ok(self.next_chunk(Payload { stream: first, fin, remaining }));
        }
        if length > MAX_CONTROL {
            return Err(FrameError::TooLarge);
        }
        let length = usize::try_from(length).map_err(|_| FrameError::TooLarge)?;
        let Some(payload) = head.get(..length) else { return Ok(None) };
        if (first & STREAM_ID_MASK) >> 16 != u32::from(VERSION) {
            return Err(FrameError::Unknown);
        }
        let frame = decode_control(first & 0xffff, flags, payload, &mut self.inflater)?;
        self.buffer.advance(8 + length);
        Ok(Some(frame))
    }

    /// Returns the next part of a data frame, or `None` until more bytes arrive.
    fn next_chunk(&mut self, payload: Payload) -> Option<Frame> {
        let Payload { stream, fin, remaining } = payload;
        let size = remaining.min(self.buffer.len()).min(MAX_CHUNK_BYTES);
        let remaining = remaining - size;
        if remaining > 0 {
            self.payload = Some(Payload { stream, fin, remaining });
        }
        if size == 0 {
            return None;
        }
        // Copy the bytes, so that a short part does not keep the whole buffer in memory.
        let bytes = Bytes::copy_from_slice(self.buffer.get(..size)?);
        self.buffer.advance(size);
        Some(Frame::Data { stream, fin: fin && remaining == 0, bytes })
    }
}

/// Decodes a control frame. `kind` is its type.
fn decode_control(
    kind: u32,
    flags: u8,
    mut payload: &[u8],
    inflater: &mut Inflater,
) -> Result<Frame, FrameError> {
    let fin = flags & FLAG_FIN != 0;
    let mut number = || payload.try_get_u32().map_err(|_| FrameError::Malformed);
    let frame = match kind {
        1 => {
            let stream = number()? & STREAM_ID_MASK;
            // Skip the associated stream id (4 bytes), the priority and the credential slot (1 byte each).
            let (_, rest) = payload.split_at_checked(6).ok_or(FrameError::Malformed)?;
            Frame::SynStream { stream, fin, headers: inflater.read(rest)? }
        }
        2 => {
            let stream = number()? & STREAM_ID_MASK;
            Frame::SynReply { stream, fin, headers: inflater.read(payload)? }
        }
        3 => {
            let (stream, status) = (number()? & STREAM_ID_MASK, number()?);
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
            let (last, status) = (number()? & STREAM_ID_MASK, number()?);
            if !payload.is_empty() {
                return Err(FrameError::Malformed);
            }
            return Ok(Frame::GoAway { last, status });
        }
        8 => {
            let stream = number()? & STREAM_ID_MASK;
            Frame::Headers { stream, fin, headers: inflater.read(payload)? }
        }
        9 => {
            let (stream, delta) = (number()? & STREAM_ID_MASK, number()? & STREAM_ID_MASK);
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
    /// Encodes a frame. `Settings` is encoded without any setting.
    pub(crate) fn encode(&mut self, frame: &Frame) -> Result<Bytes, FrameError> {
        let (kind, flags, payload) = match frame {
            Frame::Data { stream, fin, bytes } => return encode_data(*stream, *fin, bytes),
            Frame::SynStream { stream, fin, headers } => {
                let mut payload = payload_of(&[*stream, 0]);
                payload.put_u16(0);
                payload.put_slice(&self.deflater.write(headers)?);
                (1, u8::from(*fin), payload)
            }
            Frame::SynReply { stream, fin, headers } => {
                let mut payload = payload_of(&[*stream]);
                payload.put_slice(&self.deflater.write(headers)?);
                (2, u8::from(*fin), payload)
            }
            Frame::Reset { stream, status } => (3, 0, payload_of(&[*stream, *status])),
            Frame::Settings => (4, 0, payload_of(&[0])),
            Frame::Ping(id) => (6, 0, payload_of(&[*id])),
            Frame::GoAway { last, status } => (7, 0, payload_of(&[*last, *status])),
            Frame::Headers { stream, fin, headers } => {
                let mut payload = payload_of(&[*stream]);
                payload.put_slice(&self.deflater.write(headers)?);
                (8, u8::from(*fin), payload)
            }
            Frame::WindowUpdate { stream, delta } => (9, 0, payload_of(&[*stream, *delta])),
        };
        let mut bytes = BytesMut::with_capacity(8 + payload.len());
        bytes.put_u16(0x8000 | VERSION);
        bytes.put_u16(kind);
        bytes.put_u32(flags_and_length(flags, payload.len())?);
        bytes.put_slice(&payload);
        Ok(bytes.freeze())
    }
}

fn encode_data(stream: u32, fin: bool, data: &[u8]) -> Result<Bytes, FrameError> {
    let mut bytes = BytesMut::with_capacity(8 + data.len());
    bytes.put_u32(stream & STREAM_ID_MASK);
    bytes.put_u32(flags_and_length(u8::from(fin), data.len())?);
    bytes.put_slice(data);
    Ok(bytes.freeze())
}

/// Returns a payload of big-endian numbers.
fn payload_of(numbers: &[u32]) -> BytesMut {
    let mut payload = BytesMut::new();
    for number in numbers {
        payload.put_u32(*number);
    }
    payload
}

/// Returns the second word of a frame: 8 bits of flags and 24 bits of length.
fn flags_and_length(flags: u8, length: usize) -> Result<u32, FrameError> {
    let length = u32::try_from(length).ok().filter(|length| *length < 1 << 24);
    Ok(u32::from(flags) << 24 | length.ok_or(FrameError::TooLarge)?)
}

#[cfg(test)]
mod tests;
