//! Header blocks. Each direction of a connection compresses all its blocks as one zlib stream.

use std::collections::BTreeMap;

use bytes::{Buf as _, BufMut as _, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::dictionary::DICTIONARY;
use super::error::FrameError;

/// Headers of a stream by lower-case name. NUL separates several values of one name.
pub(crate) type Headers = BTreeMap<String, String>;

/// Maximum size of a decompressed block in bytes; a larger one ends the connection.
pub(super) const MAX_BLOCK_BYTES: usize = 64 * 1024;

/// Maximum number of headers in a block.
pub(super) const MAX_HEADERS: u32 = 128;

/// Base-2 logarithm of the compression window in bytes. A small window suffices, because headers are short.
const WINDOW_BITS: u8 = 9;

/// Decompresses the blocks of one direction.
#[derive(Debug)]
pub(super) struct Inflater(Decompress);

impl Default for Inflater {
    fn default() -> Self {
        Self(Decompress::new(true))
    }
}

impl Inflater {
    /// Decompresses and parses a block. After an error, no further block can be read.
    pub(super) fn read(&mut self, block: &[u8]) -> Result<Headers, FrameError> {
        let plain = self.inflate(block)?;
        parse(&plain)
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, FrameError> {
        let mut plain = Vec::new();
        loop {
            // Reserve up to one byte more than the maximum, to detect a block that is too large.
            let max = (MAX_BLOCK_BYTES + 1).saturating_sub(plain.len());
            plain.reserve(block.len().saturating_mul(4).max(256).min(max));
            let (in_before, out_before) = (self.0.total_in(), self.0.total_out());
            let status = match self.0.decompress_vec(block, &mut plain, FlushDecompress::Sync) {
                Ok(status) => status,
                Err(error) if error.needs_dictionary().is_some() => {
                    let set = self.0.set_dictionary(&DICTIONARY);
                    set.map_err(|_| FrameError::Compression)?;
                    Status::Ok
                }
                Err(_) => return Err(FrameError::Compression),
            };
            if plain.len() > MAX_BLOCK_BYTES {
                return Err(FrameError::TooLarge);
            }
            let read = usize::try_from(self.0.total_in() - in_before).unwrap_or(usize::MAX);
            block = block.get(read..).unwrap_or_default();
            let is_stuck = self.0.total_in() == in_before && self.0.total_out() == out_before;
            match status {
                // The compressed stream may only end with the connection.
                Status::StreamEnd => return Err(FrameError::Compression),
                _ if block.is_empty() && plain.len() < plain.capacity() => return Ok(plain),
                _ if is_stuck && !block.is_empty() => return Err(FrameError::Compression),
                _ => {}
            }
        }
    }
}

/// Parses a decompressed block.
fn parse(mut plain: &[u8]) -> Result<Headers, FrameError> {
    let count = plain.try_get_u32().map_err(|_| FrameError::Malformed)?;
    if count > MAX_HEADERS {
        return Err(FrameError::TooLarge);
    }
    let mut headers = Headers::new();
    for _ in 0..count {
        let name = take_text(&mut plain)?;
        let value = take_text(&mut plain)?;
        let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
        if name.is_empty() || !is_lower || headers.insert(name, value).is_some() {
            return Err(FrameError::Malformed);
        }
    }
    if plain.is_empty() { Ok(headers) } else { Err(FrameError::Malformed) }
}

/// Removes a string with a length prefix from the front of `plain`.
fn take_text(plain: &mut &[u8]) -> Result<String, FrameError> {
    let length = plain.try_get_u32().map_err(|_| FrameError::Malformed)?;
    let length = usize::try_from(length).map_err(|_| FrameError::Malformed)?;
    let (text, rest) = plain.split_at_checked(length).ok_or(FrameError::Malformed)?;
    *plain = rest;
    String::from_utf8(text.to_vec()).map_err(|_| FrameError::Malformed)
}

/// Compresses the blocks of one direction.
#[derive(Debug)]
pub(super) struct Deflater(Compress);

impl Default for Deflater {
    fn default() -> Self {
        let mut stream = Compress::new_with_window_bits(Compression::fast(), true, WINDOW_BITS);
        // Only fails after compression has begun.
        let _ = stream.set_dictionary(&DICTIONARY);
        Self(stream)
    }
}

impl Deflater {
    /// Encodes and compresses a block.
    pub(super) fn write(&mut self, headers: &Headers) -> Result<Vec<u8>, FrameError> {
        let mut plain = BytesMut::new();
        plain.put_u32(headers.len() as u32);
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.put_u32(text.len() as u32);
            plain.put_slice(text.as_bytes());
        }
        let (mut remaining, mut block) = (&*plain, Vec::new());
        loop {
            // Compression of short data can add some bytes.
            block.reserve(remaining.len() + 64);
            let before = self.0.total_in();
            let result = self.0.compress_vec(remaining, &mut block, FlushCompress::Sync);
            result.map_err(|_| FrameError::Compression)?;
            let read = usize::try_from(self.0.total_in() - before).unwrap_or(usize::MAX);
            remaining = remaining.get(read..).unwrap_or_default();
            if remaining.is_empty() && block.len() < block.capacity() {
                return Ok(block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn blocks_follow_each_other() {
        let (mut deflater, mut inflater) = (Deflater::default(), Inflater::default());
        for expected in [
            headers(&[]),
            headers(&[("port", "80"), ("streamtype", "error")]),
            headers(&[("port", "80"), ("streamtype", "data")]),
            headers(&[("x", &"long ".repeat(5000))]),
            headers(&[("content-type", "text/html"), ("empty", "")]),
        ] {
            let block = deflater.write(&expected).expect("it is compressed");
            assert_eq!(inflater.read(&block), Ok(expected));
        }
    }

    #[test]
    fn a_block_that_becomes_large_is_refused() {
        let mut deflater = Deflater::default();
        let bomb = deflater.write(&headers(&[("x", &"a".repeat(1024 * 1024))]));
        let bomb = bomb.expect("it is compressed");
        assert!(bomb.len() < MAX_BLOCK_BYTES / 2);
        assert_eq!(Inflater::default().read(&bomb), Err(FrameError::TooLarge));
    }

    /// A block that is read in several steps may end at any distance from the maximum.
    #[test]
    fn blocks_of_any_length_and_compression_are_read_or_refused() {
        for n_letters in 1..=8_u32 {
            let mut state = 1_u32;
            let mut letter = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                char::from(b'a' + u8::try_from((state >> 24) % n_letters).unwrap_or_default())
            };
            let text: String = (0..MAX_BLOCK_BYTES).map(|_| letter()).collect();
            for length in (MAX_BLOCK_BYTES - 700..MAX_BLOCK_BYTES).step_by(37) {
                let sent = headers(&[("x", &text[..length])]);
                let block = Deflater::default().write(&sent).expect("it is compressed");
                // The number of headers, and the lengths of name and value, take 13 bytes with the name.
                let expected = if length + 13 > MAX_BLOCK_BYTES {
                    Err(FrameError::TooLarge)
                } else {
                    Ok(sent)
                };
                assert_eq!(Inflater::default().read(&block), expected, "{n_letters} {length}");
            }
        }
    }

    #[test]
    fn malformed_blocks_are_refused() {
        for plain in [
            &b""[..],
            b"\0\0\0",
            b"\0\0\0\x01",
            b"\0\0\0\x01\0\0\0\x01a",
            b"\0\0\0\x01\0\0\0\x01a\0\0\0\x02b",
            b"\0\0\0\x01\xff\xff\xff\xffa",
            b"\0\0\0\x01\0\0\0\0\0\0\0\0",
            b"\0\0\0\x01\0\0\0\x01A\0\0\0\0",
            b"\0\0\0\x02\0\0\0\x01a\0\0\0\0\0\0\0\x01a\0\0\0\0",
            b"\0\0\0\0rest",
            b"\0\0\0\x01\0\0\0\x01\xff\0\0\0\0",
        ] {
            assert_eq!(parse(plain), Err(FrameError::Malformed), "{plain:?}");
        }
        assert_eq!(parse(b"\0\0\x01\0"), Err(FrameError::TooLarge));
        for block in [&b"x"[..], b"\x78\x9c", b"\x78\xbb\0\0\0\0", &[0xff; 40]] {
            assert!(Inflater::default().read(block).is_err(), "{block:?}");
        }
    }
}
