//! Watch events on the wire.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::decode::{Reader, WireError};
use crate::protobuf::envelope::push_field;
use crate::protobuf::{Envelope, MAGIC};
use crate::{DecodeError, Encoding};

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// An object is there that was not.
    Added,
    /// An object has changed.
    Modified,
    /// An object is gone.
    Deleted,
    /// Nothing, but time has passed: the object has a version only.
    Bookmark,
    /// The watch is over: the object is a `Status`.
    Error,
}

impl EventType {
    /// As on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Added, Self::Modified, Self::Deleted, Self::Bookmark, Self::Error]
            .into_iter()
            .find(|type_| type_.as_str() == text)
    }
}

/// An event, its object still encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// What has happened.
    pub type_: EventType,
    /// Kind of the object, where the encoding tells; empty in JSON.
    pub kind: Cow<'a, str>,
    /// The object: JSON, or a message without its envelope.
    pub object: &'a [u8],
}

#[derive(Deserialize)]
struct JsonEvent<'a> {
    #[serde(borrow, rename = "type")]
    type_: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl<'a> Event<'a> {
    /// Reads one frame: a line of JSON, or a protobuf frame without its length.
    ///
    /// # Errors
    /// When it is no event.
    pub fn read(frame: &'a [u8], encoding: Encoding) -> Result<Self, DecodeError> {
        match encoding {
            Encoding::Json => {
                let event: JsonEvent<'a> = serde_json::from_slice(frame)
                    .map_err(|error| WireError::new(error.to_string()).of("WatchEvent"))?;
                Ok(Self {
                    type_: type_of(&event.type_)?,
                    kind: Cow::Borrowed(""),
                    object: event.object.get().as_bytes(),
                })
            }
            Encoding::Protobuf => Self::read_protobuf(frame),
        }
    }

    /// Upstream's server sends the event bare and the object in an envelope; an event in an envelope is read as well.
    fn read_protobuf(frame: &'a [u8]) -> Result<Self, DecodeError> {
        let body = if frame.starts_with(MAGIC) { Envelope::open(frame)?.raw } else { frame };
        let (type_, raw) = fields(body).map_err(|error| error.of("WatchEvent"))?;
        let type_ = type_of(&type_)?;
        let envelope = Envelope::open(raw)?;
        Ok(Self { type_, kind: envelope.kind, object: envelope.raw })
    }

    /// The frame, with its length, of an object that is in its envelope.
    pub fn write_protobuf(type_: EventType, object: &[u8]) -> Vec<u8> {
        let mut extension = Vec::with_capacity(object.len() + 6);
        push_field(&mut extension, 1, object);
        let mut frame = vec![0; 4];
        frame.reserve(extension.len() + 24);
        push_field(&mut frame, 1, type_.as_str().as_bytes());
        push_field(&mut frame, 2, &extension);
        let length = u32::try_from(frame.len() - 4).unwrap_or(u32::MAX);
        frame[..4].copy_from_slice(&length.to_be_bytes());
        frame
    }
}

fn type_of(text: &str) -> Result<EventType, DecodeError> {
    EventType::parse(text).ok_or_else(|| {
        WireError::new(format!("{text:?} is no type of event")).field("type").of("WatchEvent")
    })
}

fn fields(body: &[u8]) -> Result<(Cow<'_, str>, &[u8]), WireError> {
    let (mut type_, mut raw) = (Cow::Borrowed(""), &[][..]);
    let mut reader = Reader::new(body);
    while let Some((number, wire)) = reader.tag()? {
        match number {
            1 => {
                type_ = String::from_utf8_lossy(
                    reader.expect_bytes(wire).map_err(|error| error.field("type"))?,
                );
            }
            2 => {
                let mut extension =
                    Reader::new(reader.expect_bytes(wire).map_err(|error| error.field("object"))?);
                while let Some((number, wire)) = extension.tag()? {
                    match number {
                        1 => {
                            raw = extension
                                .expect_bytes(wire)
                                .map_err(|error| error.field("object"))?;
                        }
                        _ => extension.skip(number, wire)?,
                    }
                }
            }
            _ => reader.skip(number, wire)?,
        }
    }
    Ok((type_, raw))
}

/// Takes one frame off the front of a stream of protobuf frames: its contents, and how many bytes it took. `None` when
/// it is not all there yet.
pub fn next_frame(stream: &[u8]) -> Option<(&[u8], usize)> {
    let (length, rest) = stream.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    Some((rest.get(..length)?, length + 4))
}
