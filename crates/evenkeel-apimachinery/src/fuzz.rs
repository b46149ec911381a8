//! What fuzz targets call of the decoders that are private to this crate (`evenkeel-fuzz`). No program uses it.

use serde_json::Value;

use crate::managedfields;

/// Decodes `fieldsV1` and encodes it again.
///
/// # Errors
/// Why it cannot be decoded.
pub fn fields_v1(fields: &Value) -> Result<Value, String> {
    managedfields::FieldSet::parse(fields).map(|set| set.to_value())
}
