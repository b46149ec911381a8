//! Kubernetes protobuf: the envelope, and translation from and to JSON.

use serde_json::Value;

use crate::decode::WireError;

/// Translates a message of the named type to JSON.
pub(crate) fn to_json(message: &str, _bytes: &[u8]) -> Result<Value, WireError> {
    Err(WireError::new(format!("{message} is not known in protobuf")))
}
