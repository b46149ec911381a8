//! Chunked body of a list. Each chunk is copied or encoded when it is sent, so that memory never holds a second copy of a
//! long list.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_api::protobuf::wire;
use evenkeel_tasks::run_busy;

use crate::output::{Format, Frame, LIST_ITEMS, ListEncoder, ListMeta};
use crate::resource::ResourceType;
use crate::response::BodyError;
use crate::store::Entry;
use evenkeel_apimachinery::status::StatusError;

/// Approximate size of each chunk, in bytes.
const PIECE_BYTES: usize = 128 * 1024;
/// Approximate size in the store of the objects that are decoded for one chunk, in bytes: some milliseconds of work.
const DECODED_BYTES: usize = 256 * 1024;

/// Iterator over the chunks of an encoded list.
pub(super) struct Pieces {
    /// Chunks that were encoded to find out whether the list is short.
    ready: std::vec::IntoIter<Bytes>,
    /// Bytes before the items; empty after the first chunk.
    head: Vec<u8>,
    /// Objects that are not encoded yet.
    items: std::vec::IntoIter<Arc<Entry>>,
    write: WriteItem,
    /// Bytes between two items.
    separator: &'static [u8],
    /// Bytes after the items.
    tail: Vec<u8>,
    is_first_item: bool,
    /// Whether the last chunk was returned.
    is_done: bool,
}

/// Appends an item to a chunk.
enum WriteItem {
    /// Copies the stored form.
    Copy(fn(&Entry, &mut Vec<u8>)),
    /// Encodes the object in another form.
    Encode(Box<ListEncoder>),
}

/// Chunks of a list, or all its bytes if it is short.
pub(super) enum ShortOrLong {
    Short(Bytes),
    Long(Pieces),
}

impl Pieces {
    /// Creates the iterator over a list's chunks.
    fn new(frame: Frame, entries: Vec<Arc<Entry>>, write: WriteItem) -> Self {
        Self {
            ready: Vec::new().into_iter(),
            head: frame.head,
            items: entries.into_iter(),
            write,
            separator: frame.separator,
            tail: frame.tail,
            is_first_item: true,
            is_done: false,
        }
    }

    /// Creates the chunks of a list in JSON.
    pub(super) fn json(resource: &ResourceType, entries: Vec<Arc<Entry>>, meta: &ListMeta) -> Self {
        let write_item = |entry: &Entry, piece: &mut Vec<u8>| {
            piece.push(b'{');
            piece.extend_from_slice(entry.item());
        };
        let (head, tail) = (json_head(resource, meta), b"]}\n".to_vec());
        Self::new(Frame { head, separator: b",", tail }, entries, WriteItem::Copy(write_item))
    }

    /// Creates the chunks of a list in protobuf. Each object is encoded once for all clients until it changes.
    ///
    /// # Errors
    /// Returns a 406 for an object without a protobuf message type.
    pub(super) fn protobuf(
        resource: &ResourceType,
        entries: Vec<Arc<Entry>>,
        meta: &ListMeta,
    ) -> Result<Self, StatusError> {
        let mut size = 0;
        for entry in &entries {
            let message = entry.protobuf(|json| Format::message(resource, json))?;
            size += wire::size_of_bytes(LIST_ITEMS, message.len());
        }
        let write_item = |entry: &Entry, piece: &mut Vec<u8>| {
            if let Some(message) = entry.known_protobuf() {
                wire::bytes(piece, LIST_ITEMS, message);
            }
        };
        let (head, tail) = Format::protobuf_list_head_and_tail(resource, meta, size)?;
        Ok(Self::new(Frame { head, separator: b"", tail }, entries, WriteItem::Copy(write_item)))
    }

    /// Creates the chunks of a list whose items are encoded one by one, while they are sent.
    pub(super) fn encoded(mut encoder: ListEncoder, entries: Vec<Arc<Entry>>) -> Self {
        let frame = encoder.take_frame();
        Self::new(frame, entries, WriteItem::Encode(Box::new(encoder)))
    }

    /// Returns the whole list if it fits in one chunk, or else the iterator.
    ///
    /// # Errors
    /// An object among the first ones cannot be encoded.
    pub(super) fn into_short_or_long(mut self) -> Result<ShortOrLong, BodyError> {
        let (mut ready, mut size) = (Vec::new(), 0);
        for piece in self.by_ref() {
            let piece = piece?;
            size += piece.len();
            ready.push(piece);
            if size > PIECE_BYTES {
                self.ready = ready.into_iter();
                return Ok(ShortOrLong::Long(self));
            }
        }
        Ok(ShortOrLong::Short(match <[Bytes; 1]>::try_from(ready) {
            Ok([whole]) => whole,
            Err(pieces) => pieces.concat().into(),
        }))
    }

    /// Appends the next items to a chunk, until it is full. Returns whether all items are written.
    fn fill(&mut self, piece: &mut Vec<u8>) -> Result<bool, BodyError> {
        let mut decoded = 0;
        for entry in self.items.by_ref() {
            if !std::mem::take(&mut self.is_first_item) {
                piece.extend_from_slice(self.separator);
            }
            match &mut self.write {
                WriteItem::Copy(write) => write(&entry, piece),
                WriteItem::Encode(encoder) => {
                    let object = entry.json();
                    decoded += object.len();
                    encoder
                        .item(object, piece)
                        .map_err(|error| BodyError::Unencodable(error.to_string()))?;
                }
            }
            if piece.len() >= PIECE_BYTES || decoded >= DECODED_BYTES {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Iterator for Pieces {
    type Item = Result<Bytes, BodyError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(piece) = self.ready.next() {
            return Some(Ok(piece));
        }
        if self.is_done {
            return None;
        }
        let mut piece = std::mem::take(&mut self.head);
        let filled = match self.write {
            WriteItem::Copy(_) => self.fill(&mut piece),
            // A client that reads fast would otherwise keep one of the server's threads for itself.
            WriteItem::Encode(_) => run_busy(|| self.fill(&mut piece)),
        };
        match filled {
            Ok(false) => {}
            Ok(true) => {
                piece.append(&mut self.tail);
                self.is_done = true;
            }
            Err(error) => {
                self.is_done = true;
                return Some(Err(error));
            }
        }
        Some(Ok(piece.into()))
    }
}

/// Returns the bytes of a list in JSON before its items.
fn json_head(resource: &ResourceType, meta: &ListMeta) -> Vec<u8> {
    use std::fmt::Write as _;
    let mut head = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{{\"resourceVersion\":\"{}\"",
        resource.list_kind, resource.api_version, meta.resource_version
    );
    if !meta.token.is_empty() {
        let _ = write!(head, ",\"continue\":\"{}\"", meta.token);
    }
    if let Some(remaining) = meta.remaining {
        let _ = write!(head, ",\"remainingItemCount\":{remaining}");
    }
    if !meta.shard_selector.is_empty() {
        // A selector has no character that JSON escapes.
        let _ = write!(head, ",\"shardInfo\":{{\"selector\":\"{}\"}}", meta.shard_selector);
    }
    head.push_str("},\"items\":[");
    head.into_bytes()
}
