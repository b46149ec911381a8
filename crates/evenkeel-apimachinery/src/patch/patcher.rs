//! JSON, merge and strategic merge patches of a request, with upstream's errors.
//!
//! Upstream: `k8s.io/apiserver/pkg/endpoints/handlers/patch.go`.

use evenkeel_api::json::TOO_DEEP;
use http::StatusCode;
use serde_json::{Map, Value};

use super::strategic::StrategicError;
use super::{PatchType, Patched, json_patch, merge_patch, strategic};
use crate::decode::json::{self, Json};
use crate::decode::typed::{self, DecoderKind};
use crate::decode::{FieldValidation, apply_field_validation, decode_as, kinds, named};
use crate::go_text::go;
use crate::group_version::{GroupKind, GroupVersionKind};
use crate::schema::Schema;
use crate::schema::node::TypeRef;
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
    let (object, strict, decoder) = match form {
        PatchType::Json => {
            let strict = accept_strict(json_patch::check(&patch))?;
            (apply_json_patch(current, &patch)?, strict, DecoderKind::Text)
        }
        PatchType::Strategic => {
            let strict = require_object(&patch, "")?;
            (apply_strategic_patch(current, &patch, schema)?, strict, DecoderKind::Unstructured)
        }
        PatchType::Merge | PatchType::Apply => {
            let strict = require_object(&patch, "error decoding patch: ")?;
            (apply_merge_patch(current, &patch)?, strict, DecoderKind::Text)
        }
    };
    if schema.is_some_and(Schema::is_custom) {
        validate_kind(kind, &object)?;
    }
    decode_patched(kind, schema, &object, decoder, strict, validation).map_err(
        |detail| match form {
            PatchType::Strategic => invalid(&go(&patch.to_value()), &detail),
            _ => invalid(&object.to_string(), &detail),
        },
    )
}

/// A custom object may be patched to any content, which may then be of another kind.
fn validate_kind(kind: &GroupVersionKind, object: &Value) -> Result<(), StatusError> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (actual, version) = (text("kind"), text("apiVersion"));
    let mut errors = Vec::new();
    if actual != &*kind.kind {
        errors.push(FieldError::invalid("kind", actual, format!("must be {}", kind.kind)));
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
    Err(StatusError::invalid(
        &GroupKind { group: group.into(), kind: actual.into() },
        name,
        &errors,
    ))
}

fn accept_strict(strict: Result<Vec<String>, String>) -> Result<Vec<String>, StatusError> {
    strict.map_err(|e| StatusError::bad_request(format!("error decoding patch: {e}")))
}

/// Rejects a patch that is no object; returns its duplicate keys.
fn require_object(patch: &Json<'_>, prefix: &str) -> Result<Vec<String>, StatusError> {
    match patch {
        Json::Object(_) | Json::Null => Ok(json::duplicate_keys(patch)),
        other => Err(StatusError::bad_request(format!(
            "{prefix}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            other.json_type()
        ))),
    }
}

/// Upstream: `applyJSPatch`.
fn apply_json_patch(current: &Value, patch: &Json<'_>) -> Result<Value, StatusError> {
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
        json_patch::PatchError::NotApplicable | json_patch::PatchError::CopiesTooMuch(_) => {
            unprocessable()
        }
        json_patch::PatchError::TooDeep => StatusError::bad_request(refused.to_string()),
    })?;
    Ok(object)
}

fn apply_merge_patch(current: &Value, patch: &Json<'_>) -> Result<Value, StatusError> {
    if matches!(patch, Json::Null) {
        return Err(StatusError::bad_request("Invalid JSON Patch"));
    }
    let mut object = current.clone();
    merge_patch::apply(&mut object, patch.to_value());
    Ok(object)
}

/// Upstream: `strategicPatchObject`.
fn apply_strategic_patch(
    current: &Value,
    patch: &Json<'_>,
    schema: Option<&Schema>,
) -> Result<Value, StatusError> {
    let map = |value| match value {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let type_ref: Option<TypeRef<'_>> = schema.map(Schema::type_ref);
    let merged = strategic::apply(map(current.clone()), map(patch.to_value()), type_ref);
    // The merged object is converted to the type of the current one, whatever it calls itself.
    let merged = merged.map(|mut merged| {
        for field in ["apiVersion", "kind"] {
            match current.get(field) {
                Some(value) => drop(merged.insert(field.to_owned(), value.clone())),
                None => drop(merged.remove(field)),
            }
        }
        merged
    });
    merged.map(Value::Object).map_err(|refused| match refused {
        StrategicError::BadRequest(text) => StatusError::bad_request(text),
        StrategicError::Unprocessable => unprocessable(),
        StrategicError::Internal(text) => StatusError::plain_internal(text),
    })
}

/// Decodes the patched object; the error says why it is invalid.
fn decode_patched(
    kind: &GroupVersionKind,
    schema: Option<&Schema>,
    object: &Value,
    decoder: DecoderKind,
    duplicate_keys: Vec<String>,
    validation: FieldValidation,
) -> Result<Patched, String> {
    let Some(schema) = schema else {
        let warnings = apply_field_validation(validation, &[], duplicate_keys)?;
        return Ok(Patched { object: named(object.clone(), kind), warnings });
    };
    let json = Json::from(object);
    let actual = kinds::body_kind(&json, kind)?;
    if actual != *kind {
        return Err(kind_change_error(&actual, kind, &json));
    }
    let (object, errors) = decode_as(decoder, &json, schema);
    if let Some(error) = errors.error {
        return Err(error);
    }
    let strict = duplicate_keys.into_iter().chain(errors.strict).collect();
    let warnings = apply_field_validation(validation, &[], strict)?;
    Ok(Patched { object: named(object, kind), warnings })
}

/// Returns the error for a patch that changes the object's kind: of decoding it as that kind, or of converting it.
fn kind_change_error(
    actual: &GroupVersionKind,
    kind: &GroupVersionKind,
    json: &Json<'_>,
) -> String {
    let decoded =
        Schema::of(actual).and_then(|schema| typed::decode(json, schema.type_ref()).1.error);
    decoded.unwrap_or_else(|| {
        if actual.kind == kind.kind && actual.group == kind.group {
            kinds::version_error(actual, kind).unwrap_or_else(|error| error)
        } else {
            kinds::conversion_error(actual, kind)
        }
    })
}

/// Returns a 422 without a field.
fn unprocessable() -> StatusError {
    StatusError::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "Invalid",
        "the server rejected our request due to an error in our request",
    )
    .about("", "", "")
}

/// Returns the 422 about the patched object as a whole.
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
