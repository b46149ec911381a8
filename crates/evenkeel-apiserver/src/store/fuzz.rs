//! Fuzz target for records with any content and a valid checksum.

use super::entry::Change;
use super::record::{self, Identity};

/// Corrects the checksum of a record, and decodes the record. Asserts that a valid record survives another encoding,
/// and that all representations of its object can be read.
pub(crate) fn record(data: &[u8]) {
    const REVISION: u64 = 7;
    let mut bytes = data.to_vec();
    let sum = record::checksum(REVISION, &bytes);
    if let Some(field) = bytes.get_mut(record::CHECKSUM) {
        field.copy_from_slice(&sum.to_le_bytes());
    }
    let Ok(record) = record::decode(REVISION, &bytes, &Identity) else { return };
    let Some(entry) = record.entry else { return };
    entry.item();
    entry.event(Change::Deleted);
    entry.with_revision(REVISION + 1, Change::Modified);
    entry.selection.label("a");
    entry.selection.field(0);
    let again = record::encode(record.resource_prefix, &entry, &Identity)
        .expect("a decoded record can be encoded");
    let read = record::decode(REVISION, &again.bytes, &Identity)
        .expect("an encoded record can be decoded");
    let again = read.entry.expect("the record has an object");
    assert_eq!(again.object(), entry.object());
    assert_eq!(again.selection, entry.selection);
    let _ = entry.decode();
}
