//! Decoding of stored objects.

use evenkeel_apimachinery::status::StatusError;
use serde_json::Value;

/// Decodes JSON of the store. An error is the server's, not the client's.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, StatusError> {
    evenkeel_api::json::value(bytes).map_err(StatusError::internal)
}
