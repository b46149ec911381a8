//! From the body of a server-side apply to the merged object.

use serde_json::{Map, Value};

use super::Patched;
use crate::decode::json::{self, Json};
use crate::decode::typed::{self, Source};
use crate::decode::{FieldValidation, named, read_as, yaml};
use crate::group_version::GroupVersionKind;
use crate::managed::{self, Write};
use crate::schema::Schema;
use crate::status::StatusError;

/// Implements [`super::apply`]: merges the applied fields and records their manager.
pub(super) fn apply(
    schema: &Schema,
    kind: &GroupVersionKind,
    current: Option<&Value>,
    body: &[u8],
    write: &Write<'_>,
    force: bool,
    validation: FieldValidation,
) -> Result<Patched, StatusError> {
    let (patch, repeated) = read(body)?;
    let object = managed::apply(schema, kind, current, &patch, write, force)?;
    let (object, findings) = read_as(Source::Tree, &Json::from(&object), schema);
    if let Some(error) = findings.error {
        return Err(StatusError::plain_internal(format!(
            "failed to convert new object to proper version: {error}"
        )));
    }
    let mut object = named(object, kind);
    if !schema.is_custom() {
        typed::forget_empty(&mut object, schema.at());
    }
    if let Some(current) = current {
        managed::keep_times(current, &mut object);
    }
    Ok(Patched { object, warnings: judge(validation, repeated)? })
}

/// The applied object and the keys that it repeats. JSON is read as JSON, which is the same and quicker.
fn read(body: &[u8]) -> Result<(Value, Vec<String>), StatusError> {
    let refuse = |e: String| StatusError::bad_request(format!("error decoding patch: {e}"));
    let (value, repeated) = match json::parse(body) {
        Ok(json) => {
            let repeated = json::repeated(&json);
            (json.to_value(), repeated)
        }
        Err(_) => {
            let document = yaml::parse(body)
                .map_err(|e| StatusError::bad_request(format!("error encoding patch: {e}")))?;
            (document.json.to_value(), document.repeated)
        }
    };
    match value {
        Value::Object(_) => Ok((value, repeated)),
        Value::Null => Ok((Value::Object(Map::new()), repeated)),
        _ => {
            let form = Json::from(&value).form();
            Err(refuse(format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {form} into Go value of type map[string]interface {{}}"
            )))
        }
    }
}

fn judge(validation: FieldValidation, repeated: Vec<String>) -> Result<Vec<String>, StatusError> {
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict if !repeated.is_empty() => Err(StatusError::bad_request(format!(
            "error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
            repeated.join("\n  ")
        ))),
        FieldValidation::Warn | FieldValidation::Strict => Ok(repeated),
    }
}
