//! Fuzz targets for server-side apply and managed fields.

use evenkeel_apimachinery::decode::FieldValidation;
use evenkeel_apimachinery::patch::{self, Patched, Writer};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::validation::metadata;
use evenkeel_apimachinery::{fuzz, patch::set_scale_managers};
use jiff::Timestamp;
use serde_json::Value;

use crate::input::{self, Kind};

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, subresource: "", now: Timestamp::UNIX_EPOCH }
}

fn apply_as(
    kind: &Kind,
    current: Option<&Value>,
    body: &[u8],
    manager: &str,
    force: bool,
) -> Result<Value, StatusError> {
    let validation = FieldValidation::Warn;
    let writer = writer(manager);
    let schema = kind.schema.as_ref();
    patch::apply(&kind.gvk, schema, current, body, &writer, force, validation)
        .map(|Patched { object, .. }| object)
}

/// Applies a body again. Returns whether that left the object unchanged, and asserts so for valid objects.
///
/// Upstream's merge may change an invalid object again: it duplicates list items without a key, and nulls.
fn is_stable(kind: &Kind, applied: &Value, body: &[u8], manager: &str) -> bool {
    let second = apply_as(kind, Some(applied), body, manager, false);
    let is_unchanged = matches!(&second, Ok(object) if object == applied);
    assert!(
        is_unchanged || !kind.is_valid(applied),
        "the second application changes {applied} or fails: {second:?}"
    );
    is_unchanged
}

/// Applies each part as one of three managers in turn. Checks that applying it again changes nothing, and that the
/// managed fields are valid.
pub(crate) fn apply(data: &[u8]) {
    let (kind, rest) = input::kind(data);
    let mut current: Option<Value> = None;
    for (body, manager) in input::parts(rest).zip(["a", "b", "a", "c", "b"]) {
        let unforced = apply_as(kind, current.as_ref(), body, manager, false);
        let Ok(applied) = apply_as(kind, current.as_ref(), body, manager, true) else {
            assert!(unforced.is_err(), "a forced apply fails where an unforced one succeeds");
            return;
        };
        if let Ok(unforced) = unforced {
            assert_eq!(unforced, applied, "force changes an apply without conflicts");
        }
        input::assert_depth(&applied);
        assert_valid_managers(&applied);
        if !is_stable(kind, &applied, body, manager) {
            return;
        }
        current = Some(applied);
    }
}

fn assert_valid_managers(object: &Value) {
    let errors = metadata::validate(object);
    let error = errors.iter().find(|error| error.to_string().starts_with("metadata.managedFields"));
    assert!(error.is_none(), "{error:?}");
}

/// Reads the first part as an object whose `managedFields` a client wrote, so that they may be invalid. Applies the
/// second part to it, and replaces it with the third.
pub(crate) fn managed_fields(data: &[u8]) {
    let (kind, rest) = input::kind(data);
    let mut parts = input::parts(rest);
    let Some(current) = parts.next().and_then(|body| kind.decode(body)) else { return };
    for entry in current["metadata"]["managedFields"].as_array().into_iter().flatten() {
        if let Ok(fields) = fuzz::reencode_fields_v1(&entry["fieldsV1"]) {
            let again = fuzz::reencode_fields_v1(&fields);
            assert_eq!(again.as_ref(), Ok(&fields), "a second encoding differs");
        }
    }
    // The scale is dropped: the call must only not panic.
    let mut scale = Value::Object(Default::default());
    set_scale_managers(&current, &["spec", "replicas"], &mut scale);
    if let Some(body) = parts.next()
        && let Ok(applied) = apply_as(kind, Some(&current), body, "a", true)
    {
        input::assert_depth(&applied);
        is_stable(kind, &applied, body, "a");
    }
    if let Some(mut new) = parts.next().and_then(|body| kind.decode(body)) {
        update(kind, Some(&current), &mut new);
        let mut updated_again = new.clone();
        update(kind, Some(&new), &mut updated_again);
        assert_eq!(updated_again, new, "an update without a change changes the managed fields");
    }
}

fn update(kind: &Kind, old: Option<&Value>, new: &mut Value) {
    patch::update_managed_fields(kind.schema.as_ref(), old, new, &writer("u"));
}
