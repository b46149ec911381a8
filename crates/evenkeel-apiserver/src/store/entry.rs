//! Stored object: its encoded bytes and its attributes for selectors.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use evenkeel_api::json;
use evenkeel_api::sharding::{ShardField, hash_field};
use serde::Deserialize;
use serde_json::Value;

/// Start of a watch event's frame. The spaces give all three starts the same length, so that the object has the same
/// position in each frame.
const ADDED: &[u8] = b"{\"type\":\"ADDED\",   \"object\":";
const MODIFIED: &[u8] = b"{\"type\":\"MODIFIED\",\"object\":";
const DELETED: &[u8] = b"{\"type\":\"DELETED\", \"object\":";
const FRAME_END: &[u8] = b"}\n";
/// Position of the object in a frame.
const OBJECT_START: usize = MODIFIED.len();
/// Start of the metadata, up to its value.
const METADATA_FIELD: &[u8] = b"\"metadata\":";
/// Start of the metadata, up to the resource version.
const METADATA_START: &[u8] = b"\"metadata\":{\"resourceVersion\":\"";

/// Kind of a change to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    /// The object was created.
    Added,
    /// The object was updated.
    Modified,
    /// The object was deleted.
    Deleted,
}

impl Change {
    /// Returns the change in the spelling of watch events.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }

    /// Returns the start of the frame of a watch event of this type.
    fn frame_start(self) -> &'static [u8] {
        match self {
            Self::Added => ADDED,
            Self::Modified => MODIFIED,
            Self::Deleted => DELETED,
        }
    }
}

/// Maximum size of an object in bytes: etcd's default of `--max-request-bytes`. It limits the JSON of an object, while
/// etcd limits the protobuf of built-in kinds.
const MAX_OBJECT_BYTES: usize = 3 * 512 * 1024;

/// Encoded object without its resource version, which the store inserts when it assigns the revision.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    /// Start of a frame ([`MODIFIED`]), then the object as JSON with an empty resource version.
    buffer: Vec<u8>,
    /// Position in `buffer` at which the store inserts the resource version.
    version_start: usize,
    selection: SelectionAttributes,
    /// Whether the object nests deeper than stored objects may.
    too_deep: bool,
    /// Whether the entry becomes [stale](Entry::is_stale). A restart forgets this.
    pub(crate) is_stale: bool,
}

impl Encoded {
    /// Encodes `object` as compact JSON. `kind` and `apiVersion` come first, because list items omit them; `metadata`
    /// follows and begins with the resource version.
    pub(crate) fn new(object: &Value, selection: SelectionAttributes) -> Self {
        let mut buffer = Vec::with_capacity(1024);
        buffer.extend_from_slice(MODIFIED);
        buffer.push(b'{');
        for field in ["kind", "apiVersion"] {
            push_field(&mut buffer, field, object.get(field).unwrap_or(&Value::Null));
        }
        buffer.extend_from_slice(METADATA_START);
        let version_start = buffer.len();
        buffer.extend_from_slice(b"\",");
        for (key, value) in object.get("metadata").and_then(Value::as_object).into_iter().flatten()
        {
            if key != "resourceVersion" {
                push_field(&mut buffer, key, value);
            }
        }
        // Remove the comma after the last field.
        buffer.pop();
        buffer.extend_from_slice(b"},");
        for (key, value) in object.as_object().into_iter().flatten() {
            if !matches!(key.as_str(), "kind" | "apiVersion" | "metadata") {
                push_field(&mut buffer, key, value);
            }
        }
        buffer.pop();
        buffer.push(b'}');
        Self {
            buffer,
            version_start,
            selection,
            too_deep: json::is_deeper(object, json::MAX_DEPTH),
            is_stale: false,
        }
    }

    /// Returns whether the object nests too deeply to be stored, because no reader could decode it.
    pub(super) fn is_too_deep(&self) -> bool {
        self.too_deep
    }

    /// Returns whether the object is larger than etcd accepts.
    pub(crate) fn is_too_large(&self) -> bool {
        self.buffer.len() - OBJECT_START > MAX_OBJECT_BYTES
    }

    /// Returns the buffer, which holds the object.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Returns the same object with another buffer. The buffers may differ only after the resource version.
    pub(super) fn with_bytes(&self, buffer: Vec<u8>) -> Self {
        let Self { version_start, too_deep, is_stale, .. } = *self;
        Self { buffer, version_start, selection: self.selection.clone(), too_deep, is_stale }
    }

    /// Decodes the object, with an empty resource version.
    pub(crate) fn decode(&self) -> Result<Value, serde_json::Error> {
        json::value(&self.buffer[OBJECT_START..])
    }

    /// Encodes an object as compact JSON in the same order, with its own resource version.
    pub(crate) fn plain(object: &Value) -> Vec<u8> {
        let encoded = Self::new(object, SelectionAttributes::default());
        let version =
            object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
        let mut out = Vec::with_capacity(encoded.buffer.len());
        if version.is_empty() {
            const FIELD: usize = b"\"resourceVersion\":\"".len();
            out.extend_from_slice(&encoded.buffer[OBJECT_START..encoded.version_start - FIELD]);
            // Skip the closing quote, and the comma unless `metadata` ends.
            let rest = &encoded.buffer[encoded.version_start + 1..];
            out.extend_from_slice(rest.strip_prefix(b",").unwrap_or(rest));
        } else {
            out.extend_from_slice(&encoded.buffer[OBJECT_START..encoded.version_start]);
            out.extend_from_slice(version.as_bytes());
            out.extend_from_slice(&encoded.buffer[encoded.version_start..]);
        }
        out
    }

    /// Returns the approximate size in memory in bytes of the object's entry; see [`Entry::size`].
    pub(super) fn size(&self) -> usize {
        self.buffer.len() + self.selection.0.len() + ENTRY_OVERHEAD
    }

    /// Returns whether `entry` has the same object, apart from the resource version.
    pub(crate) fn has_same_object(&self, entry: &Entry) -> bool {
        let frame = &entry.frame;
        let version_start = self.version_start;
        let version_end = entry.version_start as usize + entry.version_length as usize;
        version_start == entry.version_start as usize
            && self.buffer[OBJECT_START..version_start] == frame[OBJECT_START..version_start]
            && self.buffer[version_start..] == frame[version_end..frame.len() - FRAME_END.len()]
    }

    /// Returns the entry of the object at a revision, which becomes its resource version.
    pub(crate) fn into_entry(self, key: Arc<str>, revision: u64, change: Change) -> Entry {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(revision).as_bytes();
        let mut frame = Vec::with_capacity(self.buffer.len() + digits.len() + FRAME_END.len());
        frame.extend_from_slice(change.frame_start());
        frame.extend_from_slice(&self.buffer[OBJECT_START..self.version_start]);
        frame.extend_from_slice(digits);
        frame.extend_from_slice(&self.buffer[self.version_start..]);
        frame.extend_from_slice(FRAME_END);
        Entry {
            key,
            frame: Bytes::from(frame),
            version_start: u32::try_from(self.version_start).unwrap_or(u32::MAX),
            version_length: u8::try_from(digits.len()).unwrap_or(u8::MAX),
            revision,
            change,
            is_stale: self.is_stale,
            selection: self.selection,
            protobuf: OnceLock::new(),
            uid_hash: OnceLock::new(),
        }
    }
}

fn push_field(buffer: &mut Vec<u8>, key: &str, value: &Value) {
    // Writes of JSON to memory do not fail.
    let _ = serde_json::to_writer(&mut *buffer, key);
    buffer.push(b':');
    let _ = serde_json::to_writer(&mut *buffer, value);
    buffer.push(b',');
}

/// Approximate size in bytes of an entry's other fields and of its key.
const ENTRY_OVERHEAD: usize = 176;

/// Stored object in one state.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// `namespace/name`, or only the name of a cluster-scoped object.
    pub(crate) key: Arc<str>,
    /// Frame of the state's watch event, which contains the object.
    frame: Bytes,
    /// Position of the resource version in the frame.
    version_start: u32,
    /// Length of the resource version.
    version_length: u8,
    /// Revision of the write that created this state.
    pub(crate) revision: u64,
    /// Kind of the write that created this state.
    pub(crate) change: Change,
    /// Whether the object's form on disk is outdated. The next write then stores the object even if it does not change.
    pub(crate) is_stale: bool,
    /// Attributes for selectors.
    pub(crate) selection: SelectionAttributes,
    /// Protobuf message of the object, cached at its first use.
    protobuf: OnceLock<Bytes>,
    /// Hash of the object's UID for shard selectors, cached at its first use.
    uid_hash: OnceLock<u64>,
}

/// UID in an object's metadata.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Uid<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
}

impl Entry {
    /// Returns the object as compact JSON.
    pub(crate) fn object(&self) -> Bytes {
        self.frame.slice(OBJECT_START..self.frame.len() - FRAME_END.len())
    }

    /// Returns the object as compact JSON, borrowed.
    pub(crate) fn json(&self) -> &[u8] {
        &self.frame[OBJECT_START..self.frame.len() - FRAME_END.len()]
    }

    /// Returns the object as a list item: without its outer braces, `kind` and `apiVersion`.
    pub(crate) fn item(&self) -> &[u8] {
        &self.frame
            [self.version_start as usize - METADATA_START.len()..self.frame.len() - FRAME_END.len()]
    }

    /// Returns the object's protobuf message. `encode` creates it from the JSON at the first use.
    ///
    /// # Errors
    /// Fails with the errors of `encode`.
    pub(crate) fn protobuf<E>(
        &self,
        encode: impl FnOnce(&[u8]) -> Result<Vec<u8>, E>,
    ) -> Result<&Bytes, E> {
        if let Some(message) = self.protobuf.get() {
            return Ok(message);
        }
        let mut message = encode(self.json())?;
        message.shrink_to_fit();
        Ok(self.protobuf.get_or_init(|| message.into()))
    }

    /// Returns the object's namespace; empty for a cluster-scoped object.
    pub(crate) fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Returns the hash that a shard selector compares. The hash of the UID is computed once for all lists and watches,
    /// from the metadata alone.
    pub(crate) fn shard_hash(&self, field: ShardField) -> u64 {
        match field {
            ShardField::Namespace => hash_field(self.namespace()),
            ShardField::Uid => *self.uid_hash.get_or_init(|| {
                let metadata = self.item().strip_prefix(METADATA_FIELD).unwrap_or_default();
                let mut metadata = serde_json::Deserializer::from_slice(metadata);
                hash_field(&Uid::deserialize(&mut metadata).unwrap_or_default().uid)
            }),
        }
    }

    /// Returns the protobuf message if it is cached.
    pub(crate) fn known_protobuf(&self) -> Option<&Bytes> {
        self.protobuf.get()
    }

    /// Returns the frame of a watch event of type `change`. It is a copy if `change` is not the entry's own.
    pub(crate) fn event(&self, change: Change) -> Bytes {
        if change == self.change {
            return self.frame.clone();
        }
        let mut frame = Vec::with_capacity(self.frame.len());
        frame.extend_from_slice(change.frame_start());
        frame.extend_from_slice(&self.frame[OBJECT_START..]);
        frame.into()
    }

    /// Decodes the object.
    pub(crate) fn decode(&self) -> Result<Value, serde_json::Error> {
        json::value(self.json())
    }

    /// Returns the object at another revision, for its deletion or for an event that removes it from a selector's
    /// results.
    pub(crate) fn with_revision(&self, revision: u64, change: Change) -> Self {
        let version_start = self.version_start as usize;
        let version_end = version_start + self.version_length as usize;
        let mut buffer = Vec::with_capacity(self.frame.len());
        buffer.extend_from_slice(&self.frame[..version_start]);
        buffer.extend_from_slice(&self.frame[version_end..self.frame.len() - FRAME_END.len()]);
        let selection = self.selection.clone();
        let encoded =
            Encoded { buffer, version_start, selection, too_deep: false, is_stale: false };
        encoded.into_entry(self.key.clone(), revision, change)
    }

    /// Returns the approximate size in memory in bytes, without the protobuf message.
    pub(crate) fn size(&self) -> usize {
        self.frame.len() + self.selection.0.len() + ENTRY_OVERHEAD
    }

    /// Encodes the entry for a record on disk.
    ///
    /// | bytes | content |
    /// |---|---|
    /// | 0 | format, 1 |
    /// | 1 | 1 if the write created the object, 0 if it updated the object |
    /// | 2 | length of the resource version |
    /// | 3–6 | position of the resource version in the frame |
    /// | 7–14 | revision |
    /// | 15–18 | length of the attributes for selectors |
    /// | then | attributes for selectors, and the frame |
    pub(super) fn to_log(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.frame.len() + self.selection.0.len() + 32);
        out.push(1);
        out.push(u8::from(self.change == Change::Added));
        out.push(self.version_length);
        out.extend_from_slice(&self.version_start.to_le_bytes());
        out.extend_from_slice(&self.revision.to_le_bytes());
        out.extend_from_slice(&u32::try_from(self.selection.0.len()).unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&self.selection.0);
        out.extend_from_slice(&self.frame);
        out
    }

    /// Decodes the bytes of [`to_log`](Self::to_log). Returns `None` if they are damaged.
    pub(super) fn from_log(key: Arc<str>, bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(19)?;
        if head[0] != 1 {
            return None;
        }
        let version_start = u32::from_le_bytes(head[3..7].try_into().ok()?);
        let revision = u64::from_le_bytes(head[7..15].try_into().ok()?);
        let selection = u32::from_le_bytes(head[15..19].try_into().ok()?) as usize;
        let (selection, frame) = rest.split_at_checked(selection)?;
        let version_length = head[2];
        // Check the positions of the frame's parts, because readers return slices of it: the object, its list item and
        // its events.
        let (before, rest) = frame.split_at_checked(version_start as usize)?;
        let (version, after) = rest.split_at_checked(version_length as usize)?;
        let is_intact = before.get(OBJECT_START..)?.ends_with(METADATA_START)
            && after.starts_with(b"\"")
            && after.ends_with(FRAME_END)
            && version == itoa::Buffer::new().format(revision).as_bytes();
        if !is_intact {
            return None;
        }
        Some(Self {
            key,
            frame: Bytes::copy_from_slice(frame),
            version_start,
            version_length,
            revision,
            change: if head[1] == 1 { Change::Added } else { Change::Modified },
            is_stale: false,
            selection: SelectionAttributes(selection.into()),
            protobuf: OnceLock::new(),
            uid_hash: OnceLock::new(),
        })
    }
}

/// Selectable fields and labels of an object in one buffer: the number of fields in one byte, the values of the fields
/// in the kind's order, and the labels as keys and values. A zero byte ends each string. Empty without fields and
/// labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SelectionAttributes(Box<[u8]>);

impl SelectionAttributes {
    /// Packs the attributes of an object. `fields` must call its callback once for each selectable field, with the
    /// value.
    pub(crate) fn new(object: &Value, fields: impl FnOnce(&mut dyn FnMut(&str))) -> Self {
        let mut packed = Vec::new();
        let mut count = 0u8;
        packed.push(0);
        fields(&mut |value| {
            push_text(&mut packed, value);
            count += 1;
        });
        packed[0] = count;
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        for (key, value) in labels.into_iter().flatten() {
            push_text(&mut packed, key);
            push_text(&mut packed, value.as_str().unwrap_or_default());
        }
        if packed == [0] {
            packed.clear();
        }
        Self(packed.into())
    }

    /// Returns the value of the selectable field with this index.
    pub(crate) fn field(&self, index: usize) -> &str {
        let Some((&count, rest)) = self.0.split_first() else { return "" };
        if index < count as usize { Texts(rest).nth(index).unwrap_or_default() } else { "" }
    }

    /// Returns the value of a label, or `None` if the object lacks it.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        let (&count, rest) = self.0.split_first()?;
        let mut texts = Texts(rest).skip(count as usize);
        while let (Some(k), Some(v)) = (texts.next(), texts.next()) {
            if k == key {
                return Some(v);
            }
        }
        None
    }
}

fn push_text(packed: &mut Vec<u8>, text: &str) {
    packed.extend(text.bytes().filter(|b| *b != 0));
    packed.push(0);
}

/// Iterator over strings that each end with a zero byte.
struct Texts<'a>(&'a [u8]);

impl<'a> Iterator for Texts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let end = self.0.iter().position(|b| *b == 0)?;
        let text = std::str::from_utf8(&self.0[..end]).unwrap_or_default();
        self.0 = &self.0[end + 1..];
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Change, Encoded, Entry, SelectionAttributes, ShardField, Value, hash_field};

    fn entry() -> Entry {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "é"},
            "metadata": {"name": "x", "resourceVersion": "77", "labels": {"app": "web", "tier": ""}}});
        let selection = SelectionAttributes::new(&object, |put| {
            put("node-1");
            put("");
        });
        Encoded::new(&object, selection).into_entry("ns/x".into(), 1234, Change::Added)
    }

    #[test]
    fn the_frame_contains_the_object_the_event_and_the_list_item() {
        let entry = entry();
        let object: Value = serde_json::from_slice(&entry.object()).expect("json");
        assert_eq!(object["metadata"]["resourceVersion"], "1234");
        assert_eq!(object["data"]["a"], "é");
        let event: Value = serde_json::from_slice(&entry.event(Change::Modified)).expect("json");
        assert_eq!((&event["type"], &event["object"]), (&json!("MODIFIED"), &object));
        let item: Value = serde_json::from_slice(&[b"{", entry.item()].concat()).expect("json");
        assert_eq!(item["metadata"], object["metadata"]);
        assert!(item.get("kind").is_none());
        let deleted = entry.with_revision(99_999, Change::Deleted);
        let event: Value = serde_json::from_slice(&deleted.event(Change::Deleted)).expect("json");
        assert_eq!(event["object"]["metadata"]["resourceVersion"], "99999");
        assert_eq!(event["type"], "DELETED");
    }

    #[test]
    fn selection_attributes_have_fields_and_labels() {
        let entry = entry();
        assert_eq!(entry.selection.field(0), "node-1");
        assert_eq!(entry.selection.field(1), "");
        assert_eq!(entry.selection.label("app"), Some("web"));
        assert_eq!(entry.selection.label("tier"), Some(""));
        assert_eq!(entry.selection.label("node-1"), None);
    }

    #[test]
    fn an_entry_survives_encoding_and_truncated_bytes_are_refused() {
        let entry = entry();
        let bytes = entry.to_log();
        let back = Entry::from_log(entry.key.clone(), &bytes).expect("readable");
        assert_eq!(back.json(), entry.json());
        assert_eq!(
            (back.revision, back.change, &back.selection),
            (1234, Change::Added, &entry.selection)
        );
        for end in 0..bytes.len().min(40) {
            assert!(Entry::from_log(entry.key.clone(), &bytes[..end]).is_none());
        }
    }

    #[test]
    fn an_entry_whose_resource_version_is_misplaced_is_damaged() {
        let whole = entry().to_log();
        let read = |bytes: &[u8]| Entry::from_log("ns/x".into(), bytes);
        let version_start = u32::from_le_bytes(whole[3..7].try_into().expect("four bytes"));
        for moved in [0, 28, 31, version_start - 1, version_start + 1, u32::MAX] {
            let mut bytes = whole.clone();
            bytes[3..7].copy_from_slice(&moved.to_le_bytes());
            assert!(read(&bytes).is_none(), "the version at {moved}");
        }
        for digits in [0, 3, 5, 255] {
            let mut bytes = whole.clone();
            bytes[2] = digits;
            assert!(read(&bytes).is_none(), "a version of {digits} digits");
        }
        let mut other = whole.clone();
        other[7] ^= 1;
        assert!(read(&other).is_none(), "the version of another revision");
        for cut in 1..3 {
            assert!(read(&whole[..whole.len() - cut]).is_none(), "{cut} bytes less");
        }
        assert!(read(&whole).is_some());
    }

    #[test]
    fn a_shard_hash_is_that_of_the_field() {
        let owner = json!([{"uid": "another", "name": "o"}]);
        let object = json!({"kind": "ConfigMap", "data": {"uid": "data"}, "metadata": {"name": "x",
            "annotations": {"uid": "annotation"}, "ownerReferences": owner, "uid": "\u{e9}\"1"}});
        let entry = |key: &str, object: &Value| {
            let encoded = Encoded::new(object, SelectionAttributes::default());
            encoded.into_entry(key.into(), 7, Change::Added)
        };
        let namespaced = entry("ns/x", &object);
        let later = namespaced.with_revision(12, Change::Deleted);
        for entry in [&namespaced, &later] {
            assert_eq!(entry.shard_hash(ShardField::Uid), hash_field("\u{e9}\"1"));
            assert_eq!(entry.shard_hash(ShardField::Namespace), hash_field("ns"));
        }
        let without = entry("x", &json!({"metadata": {"name": "x"}}));
        let fields = [ShardField::Uid, ShardField::Namespace];
        assert_eq!(fields.map(|field| without.shard_hash(field)), [hash_field(""); 2]);
    }

    #[test]
    fn an_unchanged_object_is_the_same_as_its_entry() {
        let entry = entry();
        let mut object = entry.decode().expect("json");
        let encoded = |object: &Value| Encoded::new(object, SelectionAttributes::default());
        assert!(encoded(&object).has_same_object(&entry));
        object["data"]["a"] = json!("e");
        assert!(!encoded(&object).has_same_object(&entry));
    }
}
