//! JSON, merge and strategic merge patches of a request, with upstream's errors.
//!
//! Upstream: `k8s.io/apiserver/pkg/endpoints/handlers/patch.go`.

use evenkeel_api::json::{TOO_DEEP, TOO_MANY_VALUES};
use http::StatusCode;
use serde_json::{Map, Value};

use super::strategic::StrategicError;
use super::{PatchType, Patched, json_patch, merge_patch, patched_text, strategic};
use crate::decode::json::{self, Json};
use crate::decode::typed::{self, DecoderKind};
use crate::decode::{FieldValidation, apply_field_validation, decode_as, kinds, named};
use crate::go_text::go;
use crate::group_version::{GroupKind, GroupVersionKind};
use crate::schema::Schema;
use crate::schema::node::TypeRef;
use crate::status::{FieldError, StatusError, quote};

/// Implements [`super::patch`] for JSON, merge and strategic merge patches.
pub(super) fn patch(
    kind: &GroupVersionKind,
    schema: Option<&Schema>,
    form: PatchType,
    current: &Value,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Patched, StatusError> {
    let patch = parse(body)?;
    let (object, strict, decoder) = match form {
        PatchType::Json => {
            let strict = match validation {
                FieldValidation::Ignore => {
                    json_patch::check_operations(&patch).map_err(StatusError::bad_request)?;
                    Vec::new()
                }
                _ => accept_strict(json_patch::check(&patch))?,
            };
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
    } else if form == PatchType::Strategic {
        check_kind_types(&patch, schema)?;
    }
    decode_patched(kind, schema, current, object, decoder, strict, validation).map_err(|detail| {
        match form {
            PatchType::Strategic => invalid(&go(&patch.to_value()), &detail),
            _ => invalid(&patched_text::patched_text(form, current, &patch, schema), &detail),
        }
    })
}

/// Parses a JSON, merge or strategic merge patch.
pub(super) fn parse(body: &[u8]) -> Result<Json<'_>, StatusError> {
    json::parse(body).map_err(|error| {
        StatusError::bad_request(if error == TOO_DEEP || error == TOO_MANY_VALUES {
            error
        } else {
            "invalid JSON patch".to_owned()
        })
    })
}

/// Rejects a strategic merge patch that sets `kind` or `apiVersion` to something other than a string. Any string is
/// accepted, because the patched object keeps its kind.
fn check_kind_types(patch: &Json<'_>, schema: Option<&Schema>) -> Result<(), StatusError> {
    let Some(schema) = schema else { return Ok(()) };
    for field in ["kind", "apiVersion"] {
        let value = patch.get(field).filter(|value| !matches!(value, Json::Null | Json::String(_)));
        let type_ref = schema.type_ref().child(field);
        if let (Some(value), Some(type_ref)) = (value, type_ref) {
            let detail = typed::conversion_error(value, type_ref);
            return Err(invalid(&go(&patch.to_value()), &detail));
        }
    }
    Ok(())
}

/// Checks apiVersion and kind of a patched custom object, which a patch may have changed.
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

/// Converts the decoding error of a JSON patch to a 400.
fn accept_strict(strict: Result<Vec<String>, String>) -> Result<Vec<String>, StatusError> {
    strict.map_err(|e| StatusError::bad_request(format!("error decoding patch: {e}")))
}

/// Rejects a patch that is neither an object nor null. Returns the errors of duplicate keys.
fn require_object(patch: &Json<'_>, prefix: &str) -> Result<Vec<String>, StatusError> {
    match patch {
        Json::Object(_) | Json::Null => Ok(json::duplicate_keys(patch)),
        other => Err(StatusError::bad_request(format!(
            "{prefix}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            other.json_type()
        ))),
    }
}

/// Applies a JSON patch with a limited number of operations.
///
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
    json_patch::apply(&mut object, patch).map_err(|error| match error {
        json_patch::PatchError::NotApplicable | json_patch::PatchError::CopiesTooMuch(_) => {
            unprocessable()
        }
        json_patch::PatchError::TooDeep => StatusError::bad_request(error.to_string()),
        json_patch::PatchError::TooMuchWork => StatusError::too_large(&error.to_string()),
    })?;
    Ok(object)
}

/// Applies a merge patch, which must not be null.
fn apply_merge_patch(current: &Value, patch: &Json<'_>) -> Result<Value, StatusError> {
    if matches!(patch, Json::Null) {
        return Err(StatusError::bad_request("Invalid JSON Patch"));
    }
    let mut object = current.clone();
    merge_patch::apply(&mut object, patch.to_value());
    Ok(object)
}

/// Applies a strategic merge patch. The object keeps its kind and version.
///
/// Upstream: `strategicPatchObject`.
fn apply_strategic_patch(
    current: &Value,
    patch: &Json<'_>,
    schema: Option<&Schema>,
) -> Result<Value, StatusError> {
    let into_map = |value| match value {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let type_ref: Option<TypeRef<'_>> = schema.map(Schema::type_ref);
    let merged = strategic::apply(into_map(current.clone()), into_map(patch.to_value()), type_ref);
    // The merged object keeps the kind and version of the current one, as in upstream.
    let merged = merged.map(|mut merged| {
        for field in ["apiVersion", "kind"] {
            match current.get(field) {
                Some(value) => drop(merged.insert(field.to_owned(), value.clone())),
                None => drop(merged.remove(field)),
            }
        }
        merged
    });
    merged.map(Value::Object).map_err(|error| match error {
        StrategicError::BadRequest(text) => StatusError::bad_request(text),
        StrategicError::Unprocessable => unprocessable(),
        StrategicError::Internal(text) => StatusError::plain_internal(text),
    })
}

/// Decodes the patched object. The error is the reason why it is invalid.
///
/// Fields of a built-in kind that are equal in `current` are kept unchanged, because they have been decoded before.
fn decode_patched(
    kind: &GroupVersionKind,
    schema: Option<&Schema>,
    current: &Value,
    patched: Value,
    decoder: DecoderKind,
    duplicate_keys: Vec<String>,
    validation: FieldValidation,
) -> Result<Patched, String> {
    let Some(schema) = schema else {
        let warnings = apply_field_validation(validation, &[], duplicate_keys)?;
        return Ok(Patched { object: named(patched, kind), warnings });
    };
    let type_meta = type_meta(&patched);
    let actual = kinds::body_kind(&type_meta, kind)?;
    let has_version = kinds::has_version(&type_meta);
    if decoder == DecoderKind::Text && !schema.is_custom() && !has_version {
        return decode_internal(&actual, kind, &patched, duplicate_keys, validation);
    }
    if actual != *kind {
        return Err(kind_change_error(&actual, kind, &Json::from(&patched)));
    }
    let is_unchanged = |name: &str, value: &Value| current.get(name) == Some(value);
    let (unchanged, changed): (Map<_, _>, _) = match patched {
        Value::Object(fields) if !schema.is_custom() => {
            let (unchanged, changed) =
                fields.into_iter().partition(|(name, value)| is_unchanged(name, value));
            (unchanged, Value::Object(changed))
        }
        other => (Map::new(), other),
    };
    let (mut object, errors) = decode_as(decoder, &Json::from(&changed), schema);
    if let Some(error) = errors.error {
        return Err(error);
    }
    if let Value::Object(fields) = &mut object {
        fields.extend(unchanged);
    }
    let strict = duplicate_keys.into_iter().chain(errors.strict).collect();
    let warnings = apply_field_validation(validation, &[], strict)?;
    Ok(Patched { object: named(object, kind), warnings })
}

/// Returns the `apiVersion` and `kind` of an object; a value of another type as a whole.
fn type_meta(object: &Value) -> Json<'_> {
    let Value::Object(fields) = object else { return Json::from(object) };
    let names = ["apiVersion", "kind"];
    let present =
        names.into_iter().filter_map(|name| Some((name.into(), fields.get(name)?.into())));
    Json::Object(present.collect())
}

/// Decodes an object without a version as upstream's internal version of its kind. Its Go fields have no JSON
/// names, so all fields are unknown.
fn decode_internal(
    actual: &GroupVersionKind,
    kind: &GroupVersionKind,
    object: &Value,
    duplicate_keys: Vec<String>,
    validation: FieldValidation,
) -> Result<Patched, String> {
    if actual.kind != kind.kind {
        return Err(kinds::not_registered_internally(actual));
    }
    let fields = object.as_object().into_iter().flatten().map(|(name, _)| name);
    let unknown = fields
        .filter(|name| !matches!(name.as_str(), "apiVersion" | "kind"))
        .map(|name| format!("unknown field {}", typed::quoted(name)));
    let strict = duplicate_keys.into_iter().chain(unknown).collect();
    let warnings = apply_field_validation(validation, &[], strict)?;
    Ok(Patched { object: named(Value::Null, kind), warnings })
}

/// Returns the error for a patch that changes the object's kind: an error of decoding as the new kind, or else a
/// conversion error.
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

/// Returns a 422 that names no field.
fn unprocessable() -> StatusError {
    StatusError::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "Invalid",
        "the server rejected our request due to an error in our request",
    )
    .about("", "", "")
}

/// Returns the 422 for an invalid patched object.
fn invalid(shown: &str, detail: &str) -> StatusError {
    let message = format!("Invalid value: {}: {detail}", quote(shown));
    StatusError::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "Invalid",
        format!(" \"\" is invalid: patch: {message}"),
    )
    .about("", "", "")
    .cause("FieldValueInvalid", message, "patch")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the Lease `a` with an empty spec, and its kind.
    fn lease() -> (GroupVersionKind, Value) {
        let kind = GroupVersionKind {
            group: "coordination.k8s.io".into(),
            version: "v1".into(),
            kind: "Lease".into(),
        };
        let object = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {}});
        (kind, object)
    }

    /// Patches the Lease. Returns the object, or the error's message.
    fn patched_lease(
        form: PatchType,
        body: &str,
        validation: FieldValidation,
    ) -> Result<Value, String> {
        let (kind, object) = lease();
        let schema = Schema::of(&kind).expect("a built-in kind");
        patch(&kind, Some(&schema), form, &object, body.as_bytes(), validation)
            .map(|patched| patched.object)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_strategic_patch_sets_kind_and_version_only_to_strings() {
        for (body, end) in [
            (r#"{"kind": true}"#, "unrecognized type: string"),
            (r#"{"apiVersion": {}}"#, "unrecognized type: string"),
            (r#"{"apiVersion": 5}"#, "cannot convert int64 to string"),
        ] {
            let refused = patched_lease(PatchType::Strategic, body, FieldValidation::Ignore);
            assert!(refused.as_ref().is_err_and(|text| text.ends_with(end)), "{body}: {refused:?}");
        }
        let kept = patched_lease(PatchType::Strategic, r#"{"kind": "x"}"#, FieldValidation::Ignore);
        assert_eq!(kept.expect("accepted")["kind"], "Lease");
    }

    #[test]
    fn fields_that_a_patch_does_not_change_stay_as_they_are() {
        let patched = |form, body| patched_lease(form, body, FieldValidation::Strict);
        let body =
            r#"{"spec": {"holderIdentity": "b", "renewTime": "2026-01-02T03:04:05.000000+02:00"}}"#;
        for form in [PatchType::Merge, PatchType::Strategic] {
            let lease = patched(form, body).expect("accepted");
            assert_eq!(lease["metadata"], json!({"name": "a"}), "{form:?}");
            let decoded =
                json!({"holderIdentity": "b", "renewTime": "2026-01-02T01:04:05.000000Z"});
            assert_eq!(lease["spec"], decoded, "{form:?}");
        }
        let removed = patched(PatchType::Merge, r#"{"spec": null}"#).expect("accepted");
        assert_eq!(removed["spec"], json!({}), "as a Lease without a spec");
        let unknown = patched(PatchType::Merge, r#"{"status": {}}"#);
        let end = r#"strict decoding error: unknown field "status""#;
        assert!(unknown.as_ref().is_err_and(|text| text.ends_with(end)), "{unknown:?}");
    }

    #[test]
    fn an_object_without_version_is_decoded_as_the_internal_version() {
        let body = r#"{"apiVersion": null}"#;
        let refused = patched_lease(PatchType::Merge, body, FieldValidation::Strict);
        let end = r#"strict decoding error: unknown field "metadata", unknown field "spec""#;
        assert!(refused.as_ref().is_err_and(|text| text.ends_with(end)), "{refused:?}");
        let ignored =
            patched_lease(PatchType::Merge, body, FieldValidation::Ignore).expect("accepted");
        assert_eq!(ignored["metadata"], json!({}), "no field has a name");
        let body = r#"{"apiVersion": null, "kind": "x"}"#;
        let refused = patched_lease(PatchType::Merge, body, FieldValidation::Ignore);
        let registered =
            r#"no kind "x" is registered for the internal version of group "coordination.k8s.io""#;
        assert!(refused.as_ref().is_err_and(|text| text.contains(registered)), "{refused:?}");
        let kind_only =
            patched_lease(PatchType::Merge, r#"{"kind": null}"#, FieldValidation::Strict);
        assert_eq!(kind_only.expect("accepted")["metadata"]["name"], "a");
    }
}
