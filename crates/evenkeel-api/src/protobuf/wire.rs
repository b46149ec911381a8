//! Encoders of protobuf fields, for messages that are written by hand.

#![deny(clippy::indexing_slicing)]

/// Writes an integer as a varint.
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes an integer, enum or boolean field.
pub fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    varint(out, u64::from(field) << 3);
    varint(out, value);
}

/// Writes a field of type `double`.
pub fn double(out: &mut Vec<u8>, field: u32, value: f64) {
    varint(out, u64::from(field) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes a string, bytes or message field.
pub fn bytes(out: &mut Vec<u8>, field: u32, contents: &[u8]) {
    open(out, field, contents.len());
    out.extend_from_slice(contents);
}

/// Returns the number of bytes that [`bytes`](fn@bytes) writes for contents of this length.
pub fn size_of_bytes(field: u32, length: usize) -> usize {
    size_of_varint(u64::from(field) << 3) + size_of_varint(length as u64) + length
}

/// Returns the number of bytes that [`varint`] writes.
pub fn size_of_varint(value: u64) -> usize {
    value.checked_ilog2().unwrap_or_default() as usize / 7 + 1
}

/// Writes tag and length of a string, bytes or message field with contents of this length.
pub fn open(out: &mut Vec<u8>, field: u32, length: usize) {
    varint(out, u64::from(field) << 3 | 2);
    varint(out, length as u64);
}

/// Writes a message field: `write` appends the message, then the function inserts the message's length before it.
pub fn message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    varint(out, u64::from(field) << 3 | 2);
    let start = out.len();
    write(out);
    let mut length = Vec::with_capacity(5);
    varint(&mut length, (out.len() - start) as u64);
    out.splice(start..start, length);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    #[test]
    fn fields_are_encoded_with_their_computed_size() {
        assert_eq!(written(|out| number(out, 1, 150)), [0x08, 0x96, 0x01]);
        assert_eq!(written(|out| number(out, 16, 0)), [0x80, 0x01, 0]);
        assert_eq!(written(|out| bytes(out, 2, b"testing")), *b"\x12\x07testing");
        assert_eq!(written(|out| double(out, 1, 1.0)), [9, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        assert_eq!(written(|out| varint(out, u64::MAX)).len(), 10);
        for value in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::MAX] {
            assert_eq!(written(|out| varint(out, value)).len(), size_of_varint(value));
        }
        for (field, length) in [(1, 0), (2, 127), (16, 128), (2, 20_000)] {
            let sealed = written(|out| bytes(out, field, &vec![0; length]));
            assert_eq!(sealed.len(), size_of_bytes(field, length));
        }
    }

    #[test]
    fn message_contains_the_bytes_of_its_fields() {
        for length in [0, 127, 128, 20_000] {
            let text = vec![b'a'; length];
            let contents = written(|out| bytes(out, 1, &text));
            let expected = written(|out| bytes(out, 3, &contents));
            assert_eq!(written(|out| message(out, 3, |out| bytes(out, 1, &text))), expected);
        }
    }
}
