//! Records: the encoding of one revision on disk, with a checksum.
//!
//! | bytes | content |
//! |---|---|
//! | 0 | format of the record, [`FORMAT`] |
//! | 1 | 0 for a stored object, 1 for a deletion |
//! | 2–5 | CRC-32 of the revision and of all bytes except these four |
//! | 6–9, 10–13 | length of the collection's name, and of the key |
//! | then | collection, key, and the value as the [`Transformer`] stores it (none for a deletion) |

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::entry::{Change, Entry};

/// Record format that this version writes.
const FORMAT: u8 = 2;
/// Kind of a record, in its byte 1, for a deletion.
const DELETION: u8 = 1;
/// Position of the checksum.
pub(super) const CHECKSUM: Range<usize> = 2..6;
/// Positions of the lengths of the collection's name and of the key.
const PREFIX_LENGTH: usize = 6;
const KEY_LENGTH: usize = 10;
/// Number of bytes before the collection's name.
const HEAD_LENGTH: usize = 14;

/// Transforms values between memory and disk, such as by encryption.
///
/// Upstream: `value.Transformer`.
pub(crate) trait Transformer: Send + Sync {
    /// Returns the reason why no value of a resource can be stored now, such as a key server that does not answer. `None` if
    /// values can be stored. The store asks before it queues a transaction, so that no other one can depend on it: a failure
    /// of [`Transformer::transform_to_storage`] refuses the transactions that depend on its own as well.
    fn refusal(&self, resource_prefix: &str) -> Option<String> {
        let _ = resource_prefix;
        None
    }

    /// Returns the bytes to store for `value`.
    ///
    /// # Errors
    /// Returns the reason why the value cannot be stored. The store then refuses the write.
    fn transform_to_storage<'a>(
        &self,
        context: DataContext<'_>,
        value: Cow<'a, [u8]>,
    ) -> Result<Cow<'a, [u8]>, String>;

    /// Returns the value of stored bytes, and whether it is stale. The next write of a stale object stores it even if
    /// it does not change.
    ///
    /// # Errors
    /// Returns the reason why the value cannot be read. The server then does not start.
    fn transform_from_storage<'a>(
        &self,
        context: DataContext<'_>,
        stored: &'a [u8],
    ) -> Result<(Cow<'a, [u8]>, bool), Untransformable>;
}

/// Reason why a stored value cannot be transformed, such as a missing key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Untransformable(pub(crate) String);

/// Object that a value belongs to. Encryption may bind the value to it, so that objects cannot swap values.
///
/// Upstream: `value.Context`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DataContext<'a> {
    /// Resource prefix of the object.
    pub(crate) resource_prefix: &'a str,
    /// Key of the object under that prefix.
    pub(crate) key: &'a str,
}

/// Transformer that leaves values unchanged.
///
/// Upstream: `identity`.
pub(crate) struct Identity;

impl Transformer for Identity {
    fn transform_to_storage<'a>(
        &self,
        _context: DataContext<'_>,
        value: Cow<'a, [u8]>,
    ) -> Result<Cow<'a, [u8]>, String> {
        Ok(value)
    }

    fn transform_from_storage<'a>(
        &self,
        _context: DataContext<'_>,
        stored: &'a [u8],
    ) -> Result<(Cow<'a, [u8]>, bool), Untransformable> {
        Ok((Cow::Borrowed(stored), false))
    }
}

/// Encoded record with its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredRecord {
    pub(super) revision: u64,
    pub(super) bytes: Vec<u8>,
}

/// Record that was decoded from its bytes.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) resource_prefix: &'a str,
    pub(super) key: &'a str,
    /// Stored object; `None` for a deletion.
    pub(super) entry: Option<Entry>,
}

/// Record that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
"the record of revision {revision}{} {}: {why}",
shown_object(.object),
if *.is_encrypted { "cannot be decrypted" } else { "is damaged" }
)]
pub(super) struct DamagedRecord {
    pub(super) revision: u64,
    /// Collection and key in the record, if they can be read.
    pub(super) object: Option<(String, String)>,
    pub(super) why: String,
    /// Whether the record is intact, but the transformer cannot read its value.
    pub(super) is_encrypted: bool,
}

/// Formats the object of a damaged record for its message.
fn shown_object(object: &Option<(String, String)>) -> String {
    object.as_ref().map_or_else(String::new, |(prefix, key)| format!(" ({prefix} {key})"))
}

/// Encodes an object or its deletion.
///
/// # Errors
/// Returns the reason why the transformer refuses the value, or why the key is too long.
pub(super) fn encode(
    resource_prefix: &str,
    entry: &Entry,
    transformer: &dyn Transformer,
) -> Result<StoredRecord, String> {
    let is_deletion = entry.change == Change::Deleted;
    let value = if is_deletion {
        Cow::Borrowed(&[][..])
    } else {
        let context = DataContext { resource_prefix, key: &entry.key };
        transformer.transform_to_storage(context, entry.to_log().into())?
    };
    let length =
        |text: &str| u32::try_from(text.len()).map_err(|_| "the key is too long".to_owned());
    let parts = [HEAD_LENGTH, resource_prefix.len(), entry.key.len(), value.len()];
    let mut bytes = Vec::with_capacity(parts.iter().sum());
    bytes.extend_from_slice(&[FORMAT, u8::from(is_deletion), 0, 0, 0, 0]);
    bytes.extend_from_slice(&length(resource_prefix)?.to_le_bytes());
    bytes.extend_from_slice(&length(&entry.key)?.to_le_bytes());
    bytes.extend_from_slice(resource_prefix.as_bytes());
    bytes.extend_from_slice(entry.key.as_bytes());
    bytes.extend_from_slice(&value);
    let sum = checksum(entry.revision, &bytes);
    if let Some(field) = bytes.get_mut(CHECKSUM) {
        field.copy_from_slice(&sum.to_le_bytes());
    }
    Ok(StoredRecord { revision: entry.revision, bytes })
}

/// Returns the CRC-32 of the revision and of all bytes except the checksum's own.
pub(super) fn checksum(revision: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&revision.to_le_bytes());
    hasher.update(bytes.get(..CHECKSUM.start).unwrap_or_default());
    hasher.update(bytes.get(CHECKSUM.end..).unwrap_or_default());
    hasher.finalize()
}

/// Head of a record: its object, and whether it is a deletion.
#[derive(Debug)]
pub(super) struct Head<'a> {
    pub(super) resource_prefix: &'a str,
    pub(super) key: &'a str,
    pub(super) is_deletion: bool,
}

/// Verifies a record's checksum without decoding its value.
///
/// # Errors
/// Fails if the record is damaged.
pub(super) fn verify(revision: u64, bytes: &[u8]) -> Result<Head<'_>, DamagedRecord> {
    split(revision, bytes).map(|(head, _)| head)
}

/// Verifies and decodes a record.
///
/// # Errors
/// Fails if the record is damaged, or its value cannot be decrypted.
pub(super) fn decode<'a>(
    revision: u64,
    bytes: &'a [u8],
    transformer: &dyn Transformer,
) -> Result<Record<'a>, DamagedRecord> {
    let (Head { is_deletion, resource_prefix, key }, value) = split(revision, bytes)?;
    if is_deletion {
        return Ok(Record { resource_prefix, key, entry: None });
    }
    let damaged = |why: String, is_encrypted| DamagedRecord {
        revision,
        object: Some((resource_prefix.to_owned(), key.to_owned())),
        why,
        is_encrypted,
    };
    let (value, is_stale) = transformer
        .transform_from_storage(DataContext { resource_prefix, key }, value)
        .map_err(|Untransformable(why)| damaged(why, true))?;
    match Entry::from_log(Arc::from(key), &value) {
        Some(mut entry) if entry.revision == revision => {
            entry.is_stale = is_stale;
            Ok(Record { resource_prefix, key, entry: Some(entry) })
        }
        _ => Err(damaged("its value has another format".to_owned(), false)),
    }
}

/// Verifies a record's checksum, and splits the record into its head and its value.
fn split(revision: u64, bytes: &[u8]) -> Result<(Head<'_>, &[u8]), DamagedRecord> {
    let parts = try_split(bytes);
    let object =
        parts.as_ref().map(|(head, _)| (head.resource_prefix.to_owned(), head.key.to_owned()));
    let damaged =
        |why: &str| DamagedRecord { revision, object, why: why.to_owned(), is_encrypted: false };
    let sum = bytes.get(CHECKSUM).and_then(|sum| sum.try_into().ok()).map(u32::from_le_bytes);
    if sum != Some(checksum(revision, bytes)) {
        return Err(damaged("its checksum does not match"));
    }
    match (bytes.first(), parts) {
        (Some(&FORMAT), Some(parts)) => Ok(parts),
        (Some(&FORMAT), None) => Err(damaged("it is too short")),
        _ => Err(damaged("another version of this program wrote it")),
    }
}

/// Splits a record, which may be damaged. Returns `None` if a length or a string is invalid.
fn try_split(bytes: &[u8]) -> Option<(Head<'_>, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD_LENGTH)?;
    let length_at = |index: usize| -> Option<usize> {
        let bytes = head.get(index..index.saturating_add(4))?;
        usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    let (resource_prefix, rest) = rest.split_at_checked(length_at(PREFIX_LENGTH)?)?;
    let (key, value) = rest.split_at_checked(length_at(KEY_LENGTH)?)?;
    let head = Head {
        is_deletion: head.get(1) == Some(&DELETION),
        resource_prefix: std::str::from_utf8(resource_prefix).ok()?,
        key: std::str::from_utf8(key).ok()?,
    };
    Some((head, value))
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Encoded, SelectionAttributes};
    use super::*;

    /// Transformer that reverses the bytes of a value.
    struct Reversed;

    impl Transformer for Reversed {
        fn transform_to_storage<'a>(
            &self,
            _: DataContext<'_>,
            value: Cow<'a, [u8]>,
        ) -> Result<Cow<'a, [u8]>, String> {
            Ok(value.iter().rev().copied().collect())
        }

        fn transform_from_storage<'a>(
            &self,
            context: DataContext<'_>,
            stored: &'a [u8],
        ) -> Result<(Cow<'a, [u8]>, bool), Untransformable> {
            assert_eq!((context.resource_prefix, context.key), ("/configmaps", "ns/x"));
            Ok((stored.iter().rev().copied().collect(), false))
        }
    }

    fn entry(change: Change) -> Entry {
        let object = serde_json::json!({"metadata": {"name": "x"}, "data": {"a": "b"}});
        Encoded::new(&object, SelectionAttributes::default()).into_entry("ns/x".into(), 7, change)
    }

    #[test]
    fn a_record_decodes_to_the_encoded_entry() {
        let entry = entry(Change::Added);
        for transformer in [&Identity as &dyn Transformer, &Reversed] {
            let stored = encode("/configmaps", &entry, transformer).expect("encoded");
            let record = decode(7, &stored.bytes, transformer).expect("whole");
            assert_eq!((record.resource_prefix, record.key), ("/configmaps", "ns/x"));
            let read = record.entry.expect("an object");
            assert_eq!((read.json(), read.change), (entry.json(), Change::Added));
        }
        let deleted = self::entry(Change::Deleted);
        let stored = encode("/configmaps", &deleted, &Identity).expect("encoded");
        assert!(decode(7, &stored.bytes, &Identity).expect("whole").entry.is_none());
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_detected() {
        let stored = encode("/configmaps", &entry(Change::Added), &Identity).expect("encoded");
        assert!(verify(8, &stored.bytes).is_err(), "under another revision");
        for bit in 0..stored.bytes.len() * 8 {
            let mut bytes = stored.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(verify(7, &bytes).is_err(), "bit {bit}");
        }
        for end in 0..stored.bytes.len() {
            assert!(verify(7, &stored.bytes[..end]).is_err(), "cut at {end}");
        }
        let mut bytes = stored.bytes;
        *bytes.last_mut().expect("a byte") ^= 1;
        let error = verify(7, &bytes).expect_err("damaged").to_string();
        assert!(error.contains("revision 7 (/configmaps ns/x)"), "{error}");
    }
}
