//! Fuzz target for configuration files: reading a file succeeds or fails, but never panics.

use evenkeel_apimachinery::decode;
use evenkeel_apiserver::fuzz;

/// Reads the data as configuration files in YAML or JSON.
pub(crate) fn configuration(data: &[u8]) {
    let _ = decode::file(data);
    if let Ok(text) = std::str::from_utf8(data) {
        fuzz::encryption_configuration(text);
        fuzz::authentication_configuration(text);
    }
}
