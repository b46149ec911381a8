//! Chunked body of a list of stored objects. Each chunk is copied when it is sent, so that memory never holds a second
//! copy of a long list.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_api::protobuf::wire;

use crate::output::{Format, LIST_ITEMS, ListMeta};
use crate::resource::ResourceType;
use crate::store::Entry;
use evenkeel_apimachinery::status::StatusError;

/// Approximate size of each chunk, in bytes.
const PIECE_BYTES: usize = 128 * 1024;

/// Iterator over the chunks of an encoded list.
pub(super) struct Pieces {
    /// Bytes before the items; `None` after the first chunk.
    head: Option<Vec<u8>>,
    /// Objects that are not encoded yet.
    items: std::vec::IntoIter<Arc<Entry>>,
    /// Appends an item to a chunk.
    write_item: fn(&Entry, &mut Vec<u8>),
    /// Bytes between two items.
    separator: &'static [u8],
    /// Bytes after the items.
    tail: Vec<u8>,
    /// Size of the whole list, in bytes.
    size: usize,
    is_first_item: bool,
    /// Whether the last chunk was returned.
    is_done: bool,
}

impl Pieces {
    /// Creates the iterator over a list's chunks. `size` is the size of all items in bytes.
    fn new(
        head: Vec<u8>,
        tail: Vec<u8>,
        entries: Vec<Arc<Entry>>,
        write_item: fn(&Entry, &mut Vec<u8>),
        separator: &'static [u8],
        size: usize,
    ) -> Self {
        let size = head.len() + size + tail.len();
        Self {
            head: Some(head),
            items: entries.into_iter(),
            write_item,
            separator,
            tail,
            size,
            is_first_item: true,
            is_done: false,
        }
    }

    /// Creates the chunks of a list in JSON.
    pub(super) fn json(resource: &ResourceType, entries: Vec<Arc<Entry>>, meta: &ListMeta) -> Self {
        // Each item also has a brace and a comma.
        let size = entries.iter().map(|entry| entry.item().len() + 2).sum();
        let write_item = |entry: &Entry, piece: &mut Vec<u8>| {
            piece.push(b'{');
            piece.extend_from_slice(entry.item());
        };
        let (head, tail) = (json_head(resource, meta), b"]}\n".to_vec());
        Self::new(head, tail, entries, write_item, b",", size)
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
        Ok(Self::new(head, tail, entries, write_item, b"", size))
    }

    /// Returns the whole list if it fits in one chunk, or else the iterator.
    pub(super) fn into_whole(mut self) -> Result<Bytes, Self> {
        if self.size > PIECE_BYTES {
            return Err(self);
        }
        Ok(self.next().unwrap_or_default())
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_done {
            return None;
        }
        let mut piece = self.head.take().unwrap_or_default();
        piece.reserve(self.size.min(PIECE_BYTES));
        for entry in self.items.by_ref() {
            if !std::mem::take(&mut self.is_first_item) {
                piece.extend_from_slice(self.separator);
            }
            (self.write_item)(&entry, &mut piece);
            if piece.len() >= PIECE_BYTES {
                return Some(piece.into());
            }
        }
        piece.extend_from_slice(&self.tail);
        self.is_done = true;
        Some(piece.into())
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
