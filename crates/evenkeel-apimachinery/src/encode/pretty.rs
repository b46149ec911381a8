//! Indented JSON for `?pretty`.

use serde_json::Value;

/// Encodes a value as indented JSON.
pub fn json(value: &Value) -> Vec<u8> {
    serde_json::to_vec_pretty(value).unwrap_or_default()
}
