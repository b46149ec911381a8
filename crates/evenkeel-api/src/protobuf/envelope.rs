//! Envelope of an object in Kubernetes protobuf: four magic bytes, then `runtime.Unknown`.

#![deny(clippy::indexing_slicing)]

use std::borrow::Cow;

use super::wire;
use crate::DecodeError;
use crate::decode::{Reader, Wire, WireError};

/// Prefix of every enveloped object.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// An object in an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// apiVersion of the object: `v1`, `apps/v1`, …
    pub api_version: Cow<'a, str>,
    /// Kind of the enveloped object.
    pub kind: Cow<'a, str>,
    /// Encoded message of the object.
    pub raw: &'a [u8],
    /// Compression of the message; empty if none.
    pub content_encoding: Cow<'a, str>,
    /// Media type of the message; empty for protobuf.
    pub content_type: Cow<'a, str>,
}

impl<'a> Envelope<'a> {
    /// Opens an envelope.
    ///
    /// # Errors
    /// Fails if the magic is missing, or the rest is not an envelope.
    pub fn open(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let into_decode_error = |error: WireError| error.into_decode_error("Unknown");
        let body = bytes
            .strip_prefix(MAGIC)
            .ok_or_else(|| into_decode_error(WireError::new("the magic number is missing")))?;
        Self::read(body).map_err(into_decode_error)
    }

    /// Decodes a `runtime.Unknown`, which follows the magic bytes.
    fn read(body: &'a [u8]) -> Result<Self, WireError> {
        let empty = || Cow::Borrowed("");
        let mut envelope = Self {
            api_version: empty(),
            kind: empty(),
            raw: &[],
            content_encoding: empty(),
            content_type: empty(),
        };
        let text = |name, wire: Wire, reader: &mut Reader<'a>| {
            reader
                .expect_bytes(wire)
                .map(String::from_utf8_lossy)
                .map_err(|error| error.at_field(name))
        };
        let mut reader = Reader::new(body);
        while let Some((number, wire)) = reader.tag()? {
            match number {
                1 => {
                    let bytes =
                        reader.expect_bytes(wire).map_err(|error| error.at_field("typeMeta"))?;
                    let mut type_meta = Reader::new(bytes);
                    while let Some((number, wire)) = type_meta.tag()? {
                        match number {
                            1 => envelope.api_version = text("apiVersion", wire, &mut type_meta)?,
                            2 => envelope.kind = text("kind", wire, &mut type_meta)?,
                            _ => type_meta.skip(number, wire)?,
                        }
                    }
                }
                2 => {
                    envelope.raw =
                        reader.expect_bytes(wire).map_err(|error| error.at_field("raw"))?;
                }
                3 => envelope.content_encoding = text("contentEncoding", wire, &mut reader)?,
                4 => envelope.content_type = text("contentType", wire, &mut reader)?,
                _ => reader.skip(number, wire)?,
            }
        }
        Ok(envelope)
    }

    /// Wraps a message in an envelope. As upstream's server, writes all fields, even empty ones.
    pub fn seal(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let (mut bytes, tail) = Self::around(api_version, kind, raw, 0);
        bytes.extend_from_slice(&tail);
        bytes
    }

    /// Returns the bytes of an envelope before and after its message, for a message that is not contiguous in memory.
    /// The first part already includes `beginning`, the first bytes of the message. The caller writes the remaining
    /// `rest` bytes of the message between the two parts.
    pub fn around(
        api_version: &str,
        kind: &str,
        beginning: &[u8],
        rest: usize,
    ) -> (Vec<u8>, Vec<u8>) {
        let mut head = Vec::with_capacity(beginning.len() + api_version.len() + kind.len() + 24);
        head.extend_from_slice(MAGIC);
        let type_meta_length =
            wire::size_of_bytes(1, api_version.len()) + wire::size_of_bytes(2, kind.len());
        wire::open(&mut head, 1, type_meta_length);
        wire::bytes(&mut head, 1, api_version.as_bytes());
        wire::bytes(&mut head, 2, kind.as_bytes());
        wire::open(&mut head, 2, beginning.len() + rest);
        head.extend_from_slice(beginning);
        let mut tail = Vec::with_capacity(4);
        wire::bytes(&mut tail, 3, b"");
        wire::bytes(&mut tail, 4, b"");
        (head, tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opened_envelope_has_the_sealed_type_and_bytes() {
        let sealed = Envelope::seal("apps/v1", "Deployment", b"hello");
        let open = Envelope::open(&sealed).unwrap();
        assert_eq!(
            (&*open.api_version, &*open.kind, open.raw),
            ("apps/v1", "Deployment", &b"hello"[..])
        );
        assert_eq!(Envelope::open(b"k8s\0").unwrap().raw, b"", "an object without any field");
        assert!(Envelope::open(b"{}").is_err());
        assert!(Envelope::open(b"k8s\0\x12\x7fx").is_err());
    }
}
