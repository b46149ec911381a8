//! Indented JSON, as `?pretty` requests it.

use serde_json::Value;

/// The value, indented.
pub fn json(value: &Value) -> Vec<u8> {
    serde_json::to_vec_pretty(value).unwrap_or_default()
}
