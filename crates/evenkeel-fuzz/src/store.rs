//! Fuzz targets for data that the store reads from disk.

use evenkeel_apiserver::fuzz;

/// Records of the store with a corrected checksum: a whole record encodes to the same bytes.
pub(crate) fn record(data: &[u8]) {
    fuzz::store_record(data);
}

/// Encrypted values: decrypting an encrypted value returns the original, and decrypting other bytes does not panic.
pub(crate) fn encryption(data: &[u8]) {
    fuzz::encrypted_value(data);
}
