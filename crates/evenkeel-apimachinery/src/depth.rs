//! Maximum nesting depth for every decoder, every patch and every stored object.

use evenkeel_api::json;
use serde_json::Value;

/// Error for an object that nests deeper than any decoder accepts. If it were stored, no client could change or delete
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the object nests more than {} arrays and objects: {}", json::MAX_DEPTH, json::TOO_DEEP)]
pub struct TooDeep;

/// Rejects an object that nests deeper than [`json::MAX_DEPTH`].
///
/// # Errors
/// Returns [`TooDeep`] if a value nests too deep.
pub fn check(object: &Value) -> Result<(), TooDeep> {
    if json::is_deeper(object, json::MAX_DEPTH) { Err(TooDeep) } else { Ok(()) }
}
