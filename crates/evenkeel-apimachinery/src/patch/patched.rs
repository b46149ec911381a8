//! From the body of a patch to the patched object, with upstream's refusals on the way.

use evenkeel_api::json::TOO_DEEP;
use http::StatusCode;
use serde_json::{Map, Value};

use super::go_text::go;
use super::strategic::Refused;
use super::{PatchType, Patched, json_patch, merge_patch, strategic};
use crate::decode::json::{self, Json};
use crate::decode::typed::{self, Source};
use crate::decode::{FieldValidation, judge, kinds, named, read_as};
use crate::group_version::{GroupKind, GroupVersionKind};
use crate::schema::Schema;
use crate::schema::node::At;
use crate::status::{FieldError, StatusError};

/// Implements [`super::patch`] for JSON, merge and strategic merge patches.
pub(super) fn patch(
    kind: &GroupVersionKind,
    schema: Option<&Schema>,
    form: PatchType,
    current: &Value,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Patched, StatusError> {
    let patch = json::parse(body).map_err(|error| {
        StatusError::bad_request(if error == TOO_DEEP {
            error
        } else {
            "invalid JSON patch".to_owned()
        })
    })?;
    let (object, strict, source) = match form {
        PatchType::Json => {
            let strict = checked(json_patch::check(&patch))?;
            (by_json_patch(current, &patch)?, strict, Source::Text)
        }
        PatchType::Strategic => {
            let strict = map_only(&patch, "")?;
            (by_strategy(current, &patch, schema)?, strict, Source::Tree)
        }
        PatchType::Merge | PatchType::Apply => {
            let strict = map_only(&patch, "error decoding patch: ")?;
            (by_merge(current, &patch)?, strict, Source::Text)
        }
    };
    if schema.is_some_and(Schema::is_custom) {
        same_kind(kind, &object)?;
    }
    finish(kind, schema, &object, source, strict, validation).map_err(|detail| match form {
        PatchType::Strategic => invalid(&go(&patch.to_value()), &detail),
        _ => invalid(&object.to_string(), &detail),
    })
}

/// Custom objects may be patched into anything, which is then found to be of another kind.
fn same_kind(kind: &GroupVersionKind, object: &Value) -> Result<(), StatusError> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (given, version) = (text("kind"), text("apiVersion"));
    let mut errors = Vec::new();
    if given != &*kind.kind {
        errors.push(FieldError::invalid("kind", given, format!("must be {}", kind.kind)));
    }
    if version != kind.api_version() {
        let why = format!("must be {}", kind.api_version());
        errors.push(FieldError::invalid("apiVersion", version, why));
    }
    if errors.is_empty() {
        return Ok(());
    }
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    Err(StatusError::invalid(&GroupKind { group: group.into(), kind: given.into() }, name, &errors))
}

fn checked(strict: Result<Vec<String>, String>) -> Result<Vec<String>, StatusError> {
    strict.map_err(|e| StatusError::bad_request(format!("error decoding patch: {e}")))
}

/// A patch that must be an object; what it repeats is returned.
fn map_only(patch: &Json<'_>, prefix: &str) -> Result<Vec<String>, StatusError> {
    match patch {
        Json::Object(_) | Json::Null => Ok(json::repeated(patch)),
        other => Err(StatusError::bad_request(format!(
            "{prefix}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            other.form()
        ))),
    }
}

fn by_json_patch(current: &Value, patch: &Json<'_>) -> Result<Value, StatusError> {
    if let Json::Array(operations) = patch
        && operations.len() > json_patch::MAX_OPERATIONS
    {
        return Err(StatusError::too_large(&format!(
            "The allowed maximum operations in a JSON patch is {}, got {}",
            json_patch::MAX_OPERATIONS,
            operations.len()
        )));
    }
    let mut object = current.clone();
    json_patch::apply(&mut object, patch).map_err(|refused| match refused {
        json_patch::Refused::NotApplicable | json_patch::Refused::CopiesTooMuch(_) => {
            unprocessable()
        }
        json_patch::Refused::TooDeep => StatusError::bad_request(refused.to_string()),
    })?;
    Ok(object)
}

fn by_merge(current: &Value, patch: &Json<'_>) -> Result<Value, StatusError> {
    if matches!(patch, Json::Null) {
        return Err(StatusError::bad_request("Invalid JSON Patch"));
    }
    let mut object = current.clone();
    merge_patch::apply(&mut object, patch.to_value());
    Ok(object)
}

fn by_strategy(
    current: &Value,
    patch: &Json<'_>,
    schema: Option<&Schema>,
) -> Result<Value, StatusError> {
    let map = |value| match value {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let at: Option<At<'_>> = schema.map(Schema::at);
    let merged = strategic::apply(map(current.clone()), map(patch.to_value()), at);
    merged.map(Value::Object).map_err(|refused| match refused {
        Refused::Bad(text) => StatusError::bad_request(text),
        Refused::Unprocessable => unprocessable(),
        Refused::Internal(text) => StatusError::plain_internal(text),
    })
}

/// Decodes the patched object again; the error is what is wrong with it.
fn finish(
    kind: &GroupVersionKind,
    schema: Option<&Schema>,
    object: &Value,
    source: Source,
    repeated: Vec<String>,
    validation: FieldValidation,
) -> Result<Patched, String> {
    let Some(schema) = schema else {
        let warnings = judge(validation, &[], repeated)?;
        return Ok(Patched { object: named(object.clone(), kind), warnings });
    };
    let json = Json::from(object);
    let given = kinds::given(&json, kind)?;
    if given != *kind {
        return Err(other_kind(&given, kind, &json));
    }
    let (object, findings) = read_as(source, &json, schema);
    if let Some(error) = findings.error {
        return Err(error);
    }
    let strict = repeated.into_iter().chain(findings.strict).collect();
    let warnings = judge(validation, &[], strict)?;
    Ok(Patched { object: named(object, kind), warnings })
}

/// A patch that makes another kind of the object fails as soon as that kind cannot be decoded or converted.
fn other_kind(given: &GroupVersionKind, kind: &GroupVersionKind, json: &Json<'_>) -> String {
    let decoded = Schema::of(given).and_then(|schema| typed::decode(json, schema.at()).1.error);
    decoded.unwrap_or_else(|| {
        if given.kind == kind.kind && given.group == kind.group {
            kinds::other_version(given, kind).unwrap_or_else(|error| error)
        } else {
            kinds::mismatch(given, kind)
        }
    })
}

/// 422 about no field of any object.
fn unprocessable() -> StatusError {
    StatusError::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "Invalid",
        "the server rejected our request due to an error in our request",
    )
    .about("", "", "")
}

/// 422 about the patched object as a whole.
fn invalid(shown: &str, detail: &str) -> StatusError {
    let message = format!("Invalid value: {}: {detail}", typed::quoted(shown));
    StatusError::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "Invalid",
        format!(" \"\" is invalid: patch: {message}"),
    )
    .about("", "", "")
    .cause("FieldValueInvalid", message, "patch")
}
