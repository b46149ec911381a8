//! Fuzz targets for data that the store reads from disk.

use evenkeel_apiserver::fuzz;

/// Checks that a whole record of the store, with its checksum corrected, encodes to the same bytes.
pub(crate) fn record(data: &[u8]) {
    fuzz::store_record(data);
}

/// Checks that decrypting an encrypted value returns the original, and that decrypting other bytes does not panic.
pub(crate) fn encryption(data: &[u8]) {
    fuzz::encrypted_value(data);
}
