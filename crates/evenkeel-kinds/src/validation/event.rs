//! Validation of Events, which are stored as core/v1. An Event with `eventTime` has the fields of the newer
//! API, `events.k8s.io`. Writes through `events.k8s.io` have stricter rules.

use super::names;
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, is_empty, text};
use serde_json::Value;

/// Maximum length of `reportingInstance` in bytes.
const MAX_REPORTING_INSTANCE: usize = 128;
/// Maximum length of `action` in bytes.
const MAX_ACTION: usize = 128;
/// Maximum length of `reason` in bytes.
const MAX_REASON: usize = 128;
/// Maximum length in bytes of `message`, which `events.k8s.io` calls `note`.
const MAX_NOTE: usize = 1024;

/// Validates a new Event. `request_group` is the API group of the request.
///
/// Upstream: `ValidateEventCreate`.
pub(super) fn create(request_group: &str, event: &Value, errors: &mut Errors) {
    common_fields(request_group, event, errors);
    if request_group.is_empty() {
        return;
    }
    series(event, errors);
    if is_empty(event, "eventTime") {
        errors.required(&Path::new("eventTime"), "");
    }
    let type_ = text(event, "type");
    if !["Normal", "Warning"].contains(&type_) {
        errors.invalid(&Path::new("type"), "", &format!("has invalid value: {type_}"));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        let is_set = match field {
            "count" => int(event, field).unwrap_or_default() != 0,
            "source" => ["source.component", "source.host"]
                .iter()
                .any(|field| !text(event, field).is_empty()),
            _ => !text(event, field).is_empty(),
        };
        if is_set {
            errors.invalid(&Path::new(field), "", "needs to be unset");
        }
    }
}

/// Validates the update of an Event. `request_group` is the API group of the request.
///
/// Upstream: `ValidateEventUpdate`.
pub(super) fn update(request_group: &str, new: &Value, old: &Value, errors: &mut Errors) {
    common_fields(request_group, new, errors);
    if request_group.is_empty() {
        return;
    }
    if get(new, "series") != get(old, "series") {
        series(new, errors);
    }
    // Each immutable field, with its path in errors and its internal type.
    let fields = [
        ("involvedObject", "involvedObject", "core.ObjectReference"),
        ("reason", "reason", "s"),
        ("message", "message", "s"),
        ("source", "source", "core.EventSource"),
        ("firstTimestamp", "firstTimestamp", "=null"),
        ("lastTimestamp", "lastTimestamp", "=null"),
        ("count", "count", "i"),
        ("type", "type", "s"),
        ("eventTime", "eventTime", "=null"),
        ("action", "action", "s"),
        ("related", "related", "*core.ObjectReference"),
        ("reportingComponent", "reportingController", "s"),
        ("reportingInstance", "reportingInstance", "s"),
    ];
    for (field, name, type_name) in fields {
        let quoted = |value: Option<&Value>| quoted(type_name, value);
        let (path, new, old) = (Path::new(name), get(new, field), get(old, field));
        if type_name.starts_with('*') {
            errors.immutable_pointer(&path, new, old, quoted);
        } else {
            errors.immutable_as(&path, new, old, quoted);
        }
    }
}

/// Requires a count of at least 2 and the time of the last event, if the Event has a series.
///
/// Upstream: `validateV1EventSeries`.
fn series(event: &Value, errors: &mut Errors) {
    if get(event, "series").is_none() {
        return;
    }
    if int(event, "series.count").unwrap_or_default() < 2 {
        errors.invalid(&Path::new("series.count"), "", "should be at least 2");
    }
    if is_empty(event, "series.lastObservedTime") {
        errors.required(&Path::new("series.lastObservedTime"), "");
    }
}

/// Validates fields that Events of both API groups share. The paths of errors depend on the group of the request.
///
/// Upstream: `legacyValidateEvent`.
fn common_fields(request_group: &str, event: &Value, errors: &mut Errors) {
    let namespace = text(event, "metadata.namespace");
    let involved = text(event, "involvedObject.namespace");
    let mut mismatch = || {
        let path = Path::new("involvedObject");
        errors.invalid(&path.field("namespace"), involved, "does not match event.namespace");
    };
    if is_empty(event, "eventTime") {
        let matches = match involved {
            "" => ["", "default"].contains(&namespace),
            _ => namespace == involved,
        };
        if !matches {
            mismatch();
        }
        return;
    }
    if involved.is_empty() && !["default", "kube-system"].contains(&namespace) {
        mismatch();
    }
    let name = if request_group.is_empty() { "reportingComponent" } else { "reportingController" };
    let (path, controller) = (Path::new(name), text(event, "reportingComponent"));
    if controller.is_empty() {
        errors.required(&path, "");
    }
    errors.invalid_for_each(&path, controller, &names::qualified_name(controller));
    for (field, max_length) in [
        ("reportingInstance", MAX_REPORTING_INSTANCE),
        ("action", MAX_ACTION),
        ("reason", MAX_REASON),
        ("message", MAX_NOTE),
    ] {
        let (path, value) = (Path::new(field), text(event, field));
        if value.is_empty() && field != "message" {
            errors.required(&path, "");
        }
        if value.len() > max_length {
            errors.invalid(&path, "", &format!("can have at most {max_length} characters"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn writes_through_events_k8s_io_have_stricter_rules() {
        let event = json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "a"},
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingComponent": "a/b", "reportingInstance": "i",
            "action": "a", "reason": "r", "type": "Normal"});
        let fields_of_errors = |group: &str, event: &Value| -> Vec<String> {
            let mut errors = Errors::default();
            create(group, event, &mut errors);
            errors.into_vec().into_iter().map(|error| error.field).collect()
        };
        let group = "events.k8s.io";
        assert!(fields_of_errors(group, &event).is_empty());
        // Changed field and value, and the fields of the errors in `events.k8s.io` and in the core group.
        for (field, value, strict, core) in [
            ("type", json!("A"), "type", ""),
            ("count", json!(1), "count", ""),
            ("series", json!({"count": 2}), "series.lastObservedTime", ""),
            ("reason", json!(""), "reason", "reason"),
            ("reportingComponent", json!("-"), "reportingController", "reportingComponent"),
            (
                "involvedObject",
                json!({"namespace": ""}),
                "involvedObject.namespace",
                "involvedObject.namespace",
            ),
        ] {
            let mut event = event.clone();
            event[field] = value;
            assert_eq!(fields_of_errors(group, &event), [strict]);
            assert_eq!(fields_of_errors("", &event).join(","), core);
        }
        let mut changed = event.clone();
        changed["reason"] = json!("s");
        for (group, fields) in [("", ""), (group, "reason")] {
            let mut errors = Errors::default();
            update(group, &changed, &event, &mut errors);
            let found: Vec<String> =
                errors.into_vec().into_iter().map(|error| error.field).collect();
            assert_eq!(found.join(","), fields);
        }
    }
}
