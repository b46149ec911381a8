//! Private decoders of this crate, for the fuzz targets in `evenkeel-fuzz`. No program uses this module.

use serde_json::Value;

use crate::managedfields;

/// Decodes `fieldsV1` and encodes it again.
///
/// # Errors
/// Returns the reason why it cannot be decoded.
pub fn reencode_fields_v1(fields: &Value) -> Result<Value, String> {
    managedfields::FieldSet::parse(fields).map(|set| set.to_value())
}
