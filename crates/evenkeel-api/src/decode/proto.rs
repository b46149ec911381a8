//! Protobuf decoding: a reader that never reads past the end of its bytes.

use crate::DecodeError;

/// Maximum nesting of skipped groups. Kubernetes uses no groups, so only a malformed message exceeds the limit.
const MAX_GROUP_DEPTH: usize = 64;

/// Largest field number that protobuf allows: 29 bits.
const MAX_FIELD_NUMBER: u32 = 0x1fff_ffff;

/// Maximum length of a varint in bytes. Each byte has 7 bits of the number.
const MAX_VARINT_LENGTH: usize = 10;

/// Wire type of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// An integer of one to ten bytes.
    Varint,
    /// Eight bytes in little-endian order.
    Fixed64,
    /// A length, then that many bytes.
    Len,
    /// The start of a group.
    Start,
    /// The end of a group.
    End,
    /// Four bytes in little-endian order.
    Fixed32,
    /// Not a wire type of protobuf, but a message without a length prefix, which extends to the reader's end.
    Message,
}

/// A decoding error. Each caller that returns the error prepends its field or index to the path.
#[derive(Debug)]
pub(crate) struct WireError(Box<Inner>);

/// Content of the error, boxed so that a `Result` stays small.
#[derive(Debug)]
struct Inner {
    /// Path of the field, innermost segment first.
    path: Vec<Segment>,
    reason: Box<str>,
}

/// Segment of a field's path.
#[derive(Debug)]
enum Segment {
    Field(&'static str),
    Index(usize),
}

impl WireError {
    /// Returns an error with an empty path.
    #[cold]
    pub(crate) fn new(reason: impl Into<Box<str>>) -> Self {
        Self(Box::new(Inner { path: Vec::new(), reason: reason.into() }))
    }

    /// Prepends the named field to the path; an inlined field has no name.
    #[cold]
    pub(crate) fn at_field(mut self, name: &'static str) -> Self {
        if !name.is_empty() {
            self.0.path.push(Segment::Field(name));
        }
        self
    }

    /// Prepends an index of a list to the path.
    #[cold]
    pub(crate) fn at_index(mut self, index: usize) -> Self {
        self.0.path.push(Segment::Index(index));
        self
    }

    /// Converts the error to the public type, for an object of this kind.
    #[cold]
    pub(crate) fn into_decode_error(self, kind: &str) -> DecodeError {
        use std::fmt::Write;
        let mut field = String::new();
        for segment in self.0.path.iter().rev() {
            // Writing to a string cannot fail.
            let _ = match segment {
                Segment::Field(name) if field.is_empty() => write!(field, "{name}"),
                Segment::Field(name) => write!(field, ".{name}"),
                Segment::Index(index) => write!(field, "[{index}]"),
            };
        }
        if field.is_empty() {
            field.push('.');
        }
        DecodeError { kind: kind.into(), field: field.into(), reason: self.0.reason }
    }
}

/// Reader of the fields of one message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader of a message's bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes that have not been decoded.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes the bytes that have not been decoded, which leaves the reader empty.
    pub(crate) fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Reads the number and wire type of the next field; `None` at the end.
    pub(crate) fn tag(&mut self) -> Result<Option<(u32, Wire)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        // The lowest three bits of a tag are the wire type, and the others the field number.
        let wire = match tag & 7 {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Len,
            3 => Wire::Start,
            4 => Wire::End,
            5 => Wire::Fixed32,
            other => return Err(WireError::new(format!("wire type {other} does not exist"))),
        };
        match u32::try_from(tag >> 3) {
            Ok(number @ 1..=MAX_FIELD_NUMBER) => Ok(Some((number, wire))),
            _ => Err(WireError::new(format!("field number {} is out of range", tag >> 3))),
        }
    }

    /// Reads a variable-length integer.
    pub(crate) fn varint(&mut self) -> Result<u64, WireError> {
        // Most varints have a single byte.
        if let [byte @ 0..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*byte));
        }
        let mut value = 0u64;
        for (index, byte) in self.rest.iter().enumerate().take(MAX_VARINT_LENGTH) {
            // Nine bytes have 63 bits, so only one bit of the tenth byte fits into 64 bits.
            if index == 9 && *byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << index.saturating_mul(7);
            if byte & 0x80 == 0 {
                self.rest = self.rest.split_at(index.saturating_add(1)).1;
                return Ok(value);
            }
        }
        Err(WireError::new(if self.rest.len() < MAX_VARINT_LENGTH {
            "the message ends within a number"
        } else {
            "a number is too long"
        }))
    }

    /// Reads a length, then that many bytes.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.varint()?;
        let split =
            usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        match split {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(bytes)
            }
            None => {
                Err(WireError::new(format!("{length} bytes announced, {} left", self.rest.len())))
            }
        }
    }

    /// Reads the bytes of a field. Fails if the field has another wire type.
    pub(crate) fn expect_bytes(&mut self, wire: Wire) -> Result<&'a [u8], WireError> {
        match wire {
            Wire::Len => self.bytes(),
            Wire::Message => Ok(self.take_rest()),
            other => Err(mismatch(other, "bytes")),
        }
    }

    /// Reads the integer of a field. Fails if the field has another wire type.
    pub(crate) fn expect_varint(&mut self, wire: Wire) -> Result<u64, WireError> {
        match wire {
            Wire::Varint => self.varint(),
            other => Err(mismatch(other, "a number")),
        }
    }

    /// Reads the eight bytes of a field. Fails if the field has another wire type.
    pub(crate) fn expect_fixed64(&mut self, wire: Wire) -> Result<u64, WireError> {
        match (wire, self.rest.split_first_chunk()) {
            (Wire::Fixed64, Some((bytes, rest))) => {
                self.rest = rest;
                Ok(u64::from_le_bytes(*bytes))
            }
            (Wire::Fixed64, None) => Err(WireError::new("the message ends within a number")),
            (other, _) => Err(mismatch(other, "eight bytes")),
        }
    }

    /// Skips the value of the field with this number. For a group, skips all fields up to the group's end.
    pub(crate) fn skip(&mut self, number: u32, wire: Wire) -> Result<(), WireError> {
        // Field numbers of the groups that have not ended, outermost first.
        let mut groups: Vec<u32> = Vec::new();
        let (mut number, mut wire) = (number, wire);
        loop {
            match wire {
                Wire::Varint => drop(self.varint()?),
                Wire::Fixed64 => self.advance(8)?,
                Wire::Fixed32 => self.advance(4)?,
                Wire::Len => drop(self.bytes()?),
                Wire::Start if groups.len() == MAX_GROUP_DEPTH => {
                    return Err(WireError::new("groups are nested too deep"));
                }
                Wire::Start => groups.push(number),
                Wire::End if groups.pop() != Some(number) => {
                    return Err(WireError::new("a group ends that did not begin"));
                }
                Wire::End => {}
                Wire::Message => drop(self.take_rest()),
            }
            if groups.is_empty() {
                return Ok(());
            }
            (number, wire) =
                self.tag()?.ok_or_else(|| WireError::new("the message ends within a group"))?;
        }
    }

    /// Skips this number of bytes.
    fn advance(&mut self, length: usize) -> Result<(), WireError> {
        match self.rest.split_at_checked(length) {
            Some((_, rest)) => {
                self.rest = rest;
                Ok(())
            }
            None => {
                Err(WireError::new(format!("{length} bytes expected, {} left", self.rest.len())))
            }
        }
    }
}

/// Returns the error for a field with an unexpected wire type.
#[cold]
fn mismatch(wire: Wire, expected: &str) -> WireError {
    WireError::new(format!("{wire:?} on the wire where {expected} should be"))
}
