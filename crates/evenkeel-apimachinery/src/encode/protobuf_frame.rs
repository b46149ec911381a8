//! Frames of a protobuf watch stream.

use bytes::Bytes;

/// Encodes a watch event with its length prefix; `object` already has its envelope.
pub fn event(event: &str, object: &[u8]) -> Bytes {
    let mut raw = Vec::with_capacity(object.len() + 8);
    field(1, object, &mut raw);
    let mut message = Vec::with_capacity(raw.len() + event.len() + 8);
    field(1, event.as_bytes(), &mut message);
    field(2, &raw, &mut message);
    let mut out = Vec::with_capacity(message.len() + 4);
    out.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(&message);
    out.into()
}

/// Appends a length-delimited field.
fn field(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or_default());
    out.extend_from_slice(bytes);
}
