//! What the store reads from disk.

use evenkeel_apiserver::fuzz;

/// Records of the store, with their checksum made right: a whole record is written as it was read.
pub(crate) fn record(data: &[u8]) {
    fuzz::store_record(data);
}

/// Encrypted values: what was encrypted is decrypted; anything else is refused.
pub(crate) fn encryption(data: &[u8]) {
    fuzz::encrypted_value(data);
}
