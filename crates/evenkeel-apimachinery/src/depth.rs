//! The limit of nesting that every decoder, patch and stored object keeps.

use evenkeel_api::json;
use serde_json::Value;

/// The object nests deeper than any reader takes: once stored, nobody could change or delete it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the object nests more than {} arrays and objects: {}", json::MAX_DEPTH, json::TOO_DEEP)]
pub struct TooDeep;

/// Refuses an object that nests deeper than [`json::MAX_DEPTH`].
///
/// # Errors
/// [`TooDeep`].
pub fn check(object: &Value) -> Result<(), TooDeep> {
    if json::is_deeper(object, json::MAX_DEPTH) { Err(TooDeep) } else { Ok(()) }
}
