//! Watch events: splits a byte stream into frames, and decodes the event in each frame.

use std::borrow::Cow;

use bytes::{Buf, Bytes, BytesMut};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::decode::{Reader, WireError};
use crate::protobuf::{Envelope, MAGIC, wire};
use crate::{DecodeError, Encoding};

/// Maximum length of a frame in bytes. It exceeds any object that etcd can store, so a longer frame means a corrupt
/// stream.
pub const MAX_FRAME: usize = 64 << 20;
/// Size in bytes of the length prefix of a protobuf frame, which is a big-endian integer.
const PREFIX: usize = 4;

/// Type of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// An object was created, or newly matches the watch.
    Added,
    /// An object was updated.
    Modified,
    /// An object was deleted, or no longer matches the watch.
    Deleted,
    /// A bookmark: the object has only a resourceVersion.
    Bookmark,
    /// The watch failed; the object is a `Status`.
    Error,
}

impl EventType {
    /// Returns the type as the API spells it, such as `ADDED`.
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

/// A watch event whose object is still encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// Type of the event.
    pub type_: EventType,
    /// Kind of the object for protobuf; empty for JSON.
    pub kind: Cow<'a, str>,
    /// The object as JSON, or as a message without its envelope.
    pub object: &'a [u8],
}

/// Watch event in JSON.
#[derive(Deserialize)]
struct JsonEvent<'a> {
    #[serde(borrow, rename = "type")]
    type_: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl<'a> Event<'a> {
    /// Decodes one frame: a line of JSON, or a protobuf frame without its length prefix.
    ///
    /// # Errors
    /// Fails if the frame is not an event.
    pub fn read(frame: &'a [u8], encoding: Encoding) -> Result<Self, DecodeError> {
        match encoding {
            Encoding::Json => {
                let event: JsonEvent<'a> = serde_json::from_slice(frame).map_err(|error| {
                    WireError::new(error.to_string()).into_decode_error("WatchEvent")
                })?;
                Ok(Self {
                    type_: parse_event_type(&event.type_)?,
                    kind: Cow::Borrowed(""),
                    object: event.object.get().as_bytes(),
                })
            }
            Encoding::Protobuf => Self::read_protobuf(frame),
        }
    }

    /// Decodes a protobuf frame. Upstream sends the event without an envelope, and the event's object in one. An
    /// event in an envelope is accepted, too.
    fn read_protobuf(frame: &'a [u8]) -> Result<Self, DecodeError> {
        let body = if frame.starts_with(MAGIC) { Envelope::open(frame)?.raw } else { frame };
        let (type_, raw) =
            event_fields(body).map_err(|error| error.into_decode_error("WatchEvent"))?;
        let type_ = parse_event_type(&type_)?;
        let envelope = Envelope::open(raw)?;
        Ok(Self { type_, kind: envelope.kind, object: envelope.raw })
    }

    /// Encodes a frame with its length prefix. `object` must be in an envelope.
    pub fn write_protobuf(type_: EventType, object: &[u8]) -> Vec<u8> {
        let mut extension = Vec::with_capacity(object.len() + 6);
        wire::bytes(&mut extension, 1, object);
        // The length is not known yet.
        let mut frame = vec![0; PREFIX];
        frame.reserve(extension.len() + 24);
        wire::bytes(&mut frame, 1, type_.as_str().as_bytes());
        wire::bytes(&mut frame, 2, &extension);
        let length = u32::try_from(frame.len() - PREFIX).unwrap_or(u32::MAX);
        frame[..PREFIX].copy_from_slice(&length.to_be_bytes());
        frame
    }
}

fn parse_event_type(text: &str) -> Result<EventType, DecodeError> {
    EventType::parse(text).ok_or_else(|| {
        WireError::new(format!("{text:?} is not a type of event"))
            .at_field("type")
            .into_decode_error("WatchEvent")
    })
}

/// Returns the type of an event in protobuf, and its object in the encoding of a `RawExtension`.
fn event_fields(body: &[u8]) -> Result<(Cow<'_, str>, &[u8]), WireError> {
    let (mut type_, mut raw) = (Cow::Borrowed(""), &[][..]);
    let mut reader = Reader::new(body);
    while let Some((number, wire)) = reader.tag()? {
        match number {
            1 => {
                type_ = String::from_utf8_lossy(
                    reader.expect_bytes(wire).map_err(|error| error.at_field("type"))?,
                );
            }
            2 => {
                let mut extension = Reader::new(
                    reader.expect_bytes(wire).map_err(|error| error.at_field("object"))?,
                );
                while let Some((number, wire)) = extension.tag()? {
                    match number {
                        1 => {
                            raw = extension
                                .expect_bytes(wire)
                                .map_err(|error| error.at_field("object"))?;
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

/// Splits the chunks of a watch stream into frames. A frame within one chunk is not copied; a frame that spans chunks
/// is copied once.
#[derive(Debug)]
pub struct Frames {
    encoding: Encoding,
    /// Beginning of a frame whose end has not yet arrived.
    carry: BytesMut,
    /// Bytes after `carry` that have not been scanned.
    chunk: Bytes,
}

impl Frames {
    /// Returns frames of an empty stream.
    pub fn new(encoding: Encoding) -> Self {
        Self { encoding, carry: BytesMut::new(), chunk: Bytes::new() }
    }

    /// Returns the encoding of frames and objects.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Appends a chunk of the stream. The chunk is not copied if [`Frames::next_frame`] has returned all earlier frames.
    pub fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            self.chunk = [&*self.chunk, &*chunk].concat().into();
        }
    }

    /// Returns the next frame: a line of JSON, or a protobuf frame without its length prefix. Returns `None` if the
    /// frame's end has not yet arrived.
    ///
    /// # Errors
    /// Fails if the frame exceeds the maximum length. The rest of the stream is then unusable.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, DecodeError> {
        while let Some(end) = self.frame_end()? {
            let mut frame = self.take_frame(end);
            match self.encoding {
                // A server may send blank lines to keep the connection alive.
                Encoding::Json if frame.trim_ascii().is_empty() => continue,
                Encoding::Json => {}
                Encoding::Protobuf => frame.advance(PREFIX),
            }
            return Ok(Some(frame));
        }
        self.carry.extend_from_slice(&std::mem::take(&mut self.chunk));
        if self.carry.len() > MAX_FRAME + PREFIX {
            return Err(frame_error("a frame has no end".into()));
        }
        Ok(None)
    }

    /// Returns the index in the chunk at which the current frame ends, or `None` if its end has not yet arrived.
    fn frame_end(&mut self) -> Result<Option<usize>, DecodeError> {
        match self.encoding {
            Encoding::Json => Ok(memchr::memchr(b'\n', &self.chunk).map(|index| index + 1)),
            Encoding::Protobuf => self.prefixed_frame_end(),
        }
    }

    /// Returns the end of a protobuf frame, from its length prefix.
    fn prefixed_frame_end(&mut self) -> Result<Option<usize>, DecodeError> {
        let available = self.carry.len() + self.chunk.len();
        if available < PREFIX {
            return Ok(None);
        }
        let mut prefix = [0; PREFIX];
        // The prefix itself may span chunks.
        let bytes = self.carry.iter().chain(self.chunk.iter());
        for (to, from) in prefix.iter_mut().zip(bytes) {
            *to = *from;
        }
        let length = u32::from_be_bytes(prefix) as usize;
        if length > MAX_FRAME {
            return Err(frame_error(format!("a frame of {length} bytes")));
        }
        let missing = (PREFIX + length).saturating_sub(self.carry.len());
        if available < PREFIX + length {
            self.carry.reserve(missing);
            return Ok(None);
        }
        Ok(Some(missing))
    }

    /// Removes the frame that ends at this index of the chunk, and returns it.
    fn take_frame(&mut self, end: usize) -> Bytes {
        let rest = self.chunk.split_to(end);
        if self.carry.is_empty() {
            return rest;
        }
        self.carry.extend_from_slice(&rest);
        self.carry.split().freeze()
    }
}

#[cold]
fn frame_error(reason: String) -> DecodeError {
    WireError::new(reason).into_decode_error("WatchEvent")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::View as _;
    use crate::protobuf::Transcoder;
    use crate::views::Pod;
    use proptest::prelude::*;
    use serde_json::json;

    /// Returns the frames of a stream that arrives in chunks of these sizes, repeated.
    fn frames(encoding: Encoding, stream: &[u8], sizes: &[usize]) -> Vec<Bytes> {
        let (mut frames, mut rest, mut found) = (Frames::new(encoding), stream, Vec::new());
        let mut sizes = sizes.iter().cycle();
        while !rest.is_empty() {
            let (chunk, tail) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            rest = tail;
            frames.push(Bytes::copy_from_slice(chunk));
            while let Some(frame) = frames.next_frame().unwrap() {
                found.push(frame);
            }
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn frames_are_independent_of_chunks(
            texts in proptest::collection::vec("[a-z]{1,40}", 0..12),
            sizes in proptest::collection::vec(1usize..50, 1..6),
        ) {
            let lines: String = texts.iter().map(|text| format!("{text}\n\n")).collect();
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
    fn oversized_frame_is_an_error() {
        let mut frames = Frames::new(Encoding::Protobuf);
        frames.push(Bytes::from_static(&[0xff; 8]));
        assert!(frames.next_frame().is_err());
    }

    #[test]
    fn unterminated_line_is_an_error() {
        let (mut frames, chunk) =
            (Frames::new(Encoding::Json), Bytes::from(vec![b' '; MAX_FRAME / 4]));
        let cuts = (0..5).map(|_| {
            frames.push(chunk.clone());
            frames.next_frame()
        });
        assert_eq!(
            cuts.map(|cut| cut.is_ok()).collect::<Vec<_>>(),
            [true, true, true, true, false]
        );
    }

    #[test]
    fn frame_within_a_chunk_is_not_copied() {
        let stream = Bytes::from_static(b"{\"first\":1}\n{\"second\":2}\n{\"thi");
        let mut frames = Frames::new(Encoding::Json);
        frames.push(stream.clone());
        let first = frames.next_frame().unwrap().unwrap();
        let second = frames.next_frame().unwrap().unwrap();
        assert_eq!(first.as_ptr(), stream.as_ptr());
        assert_eq!(second.as_ptr(), stream[first.len()..].as_ptr());
        assert_eq!(frames.next_frame().unwrap(), None);
        // The end of the frame that began in the previous chunk is copied; later frames of the chunk are not.
        let rest = Bytes::from_static(b"rd\":3}\n{}\n");
        frames.push(rest.clone());
        assert_eq!(&*frames.next_frame().unwrap().unwrap(), b"{\"third\":3}\n");
        assert_eq!(frames.next_frame().unwrap().unwrap().as_ptr(), rest[7..].as_ptr());
    }

    #[test]
    fn frames_may_be_pushed_before_cutting() {
        let mut frames = Frames::new(Encoding::Json);
        frames.push(Bytes::from_static(b"{}\n{"));
        frames.push(Bytes::from_static(b"}\n"));
        let lines = [frames.next_frame().unwrap().unwrap(), frames.next_frame().unwrap().unwrap()];
        assert_eq!(lines, ["{}\n", "{}\n"]);
    }

    #[test]
    fn protobuf_event_with_and_without_envelope() {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" } });
        let stream =
            Event::write_protobuf(EventType::Modified, &Transcoder::encode_envelope(&pod).unwrap());
        let mut frames = Frames::new(Encoding::Protobuf);
        frames.push(Bytes::copy_from_slice(&stream[..stream.len() - 1]));
        assert_eq!(frames.next_frame().unwrap(), None);
        frames.push(Bytes::copy_from_slice(&stream[stream.len() - 1..]));
        let frame = frames.next_frame().unwrap().unwrap();
        for frame in [frame.to_vec(), Envelope::seal("v1", "WatchEvent", &frame)] {
            let event = Event::read(&frame, Encoding::Protobuf).unwrap();
            assert_eq!((event.type_, &*event.kind), (EventType::Modified, "Pod"));
            assert_eq!(&*Pod::decode(event.object, Encoding::Protobuf).unwrap().meta.name, "a");
        }
    }
}
