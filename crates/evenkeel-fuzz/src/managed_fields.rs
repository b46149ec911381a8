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

/// Applies each part as one of three managers in turn. Checks that applying it again changes nothing, and that the
/// managed fields are valid. A second application may only change objects that validation rejects: upstream's merge
/// keeps both of two list items without a key, or both of two nulls.
pub(crate) fn apply(data: &[u8]) {
    let (kind, rest) = input::kind(data);
    let mut current: Option<Value> = None;
    for (body, manager) in input::parts(rest).zip(["a", "b", "a", "c", "b"]) {
        let unforced = apply_as(kind, current.as_ref(), body, manager, false);
        let Ok(once) = apply_as(kind, current.as_ref(), body, manager, true) else {
            assert!(unforced.is_err(), "a forced apply succeeds where an unforced one does");
            return;
        };
        if let Ok(unforced) = unforced {
            assert_eq!(unforced, once, "without a conflict, force changes nothing");
        }
        input::assert_depth(&once);
        assert_valid_managers(&once);
        let twice = apply_as(kind, Some(&once), body, manager, false);
        if !twice.as_ref().is_ok_and(|twice| *twice == once) {
            assert!(
                !kind.is_valid(&once),
                "the second application to {once} changes nothing: {twice:?}"
            );
            return;
        }
        current = Some(once);
    }
}

fn assert_valid_managers(object: &Value) {
    let errors = metadata::validate(object);
    let about = errors.iter().find(|error| error.to_string().starts_with("metadata.managedFields"));
    assert!(about.is_none(), "{about:?}");
}

/// Reads the first part as an object with managed fields from a client. Applies the second part to it, and replaces
/// it with the third.
pub(crate) fn managed_fields(data: &[u8]) {
    let (kind, rest) = input::kind(data);
    let mut parts = input::parts(rest);
    let Some(current) = parts.next().and_then(|body| kind.decode(body)) else { return };
    for entry in current["metadata"]["managedFields"].as_array().into_iter().flatten() {
        if let Ok(fields) = fuzz::fields_v1(&entry["fieldsV1"]) {
            assert_eq!(fuzz::fields_v1(&fields).as_ref(), Ok(&fields), "encoded fields stay");
        }
    }
    set_scale_managers(&current, &["spec", "replicas"], &mut Value::Object(Default::default()));
    if let Some(body) = parts.next()
        && let Ok(applied) = apply_as(kind, Some(&current), body, "a", true)
    {
        input::assert_depth(&applied);
        let again = apply_as(kind, Some(&applied), body, "a", false);
        if !again.as_ref().is_ok_and(|again| *again == applied) {
            assert!(
                !kind.is_valid(&applied),
                "the second application to {applied} changes nothing: {again:?}"
            );
        }
    }
    if let Some(mut new) = parts.next().and_then(|body| kind.decode(body)) {
        update(kind, Some(&current), &mut new);
        let mut same = new.clone();
        update(kind, Some(&new), &mut same);
        assert_eq!(same, new, "an update without a change changes nothing");
    }
}

fn update(kind: &Kind, old: Option<&Value>, new: &mut Value) {
    patch::update_managed_fields(kind.schema.as_ref(), old, new, &writer("u"));
}
