//! The strategies of built-in kinds: what their rows say, with the functions of the few kinds that need some.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use evenkeel_apimachinery::group_version::GroupVersionKind;
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::validation::Errors;
use evenkeel_apimachinery::value::{self, text};
use evenkeel_kinds::rows::{ROWS, Row};
use evenkeel_kinds::strategy::{self, Context};
use evenkeel_kinds::validate::{self, Subject};
use evenkeel_kinds::{autoscaling, defaults, pods, scale, warnings};
use serde_json::Value;

use super::rest::{GarbageCollectionPolicy, Strategy, set_api_version};

/// The strategy of one built-in kind.
pub(super) struct BuiltIn {
    /// Its particulars.
    row: &'static Row,
    /// Version of its stored form.
    version: &'static str,
    /// Labels of its selectable fields.
    labels: &'static [&'static str],
}

impl BuiltIn {
    /// The strategy of the kind with this row.
    pub(super) fn new(row: &'static Row) -> Self {
        let version = if row.group == "autoscaling" { "v2" } else { "v1" };
        Self { row, version, labels: labels(row) }
    }

    fn subject<'a>(&self, cx: &Context<'a>) -> Subject<'a> {
        Subject { group: self.row.group, kind: self.row.kind, subresource: cx.subresource }
    }
}

impl Strategy for BuiltIn {
    fn default(&self, object: &mut Value) {
        defaults::apply(self.row.group, self.version, self.row.kind, object);
    }

    fn prepare_for_create(&self, cx: &Context<'_>, object: &mut Value) -> Result<(), StatusError> {
        if !self.row.status.is_empty() {
            let status: Value = serde_json::from_str(self.row.status).unwrap_or_default();
            value::set(object, "status", status);
        }
        strategy::create(self.row, cx, object);
        Ok(())
    }

    fn prepare_for_update(&self, cx: &Context<'_>, new: &mut Value, old: &Value) {
        strategy::update(self.row, cx, new, old);
    }

    fn validate(&self, cx: &Context<'_>, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        validate::create(self.subject(cx), object, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, cx: &Context<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        validate::update(self.subject(cx), new, old, &mut errors);
        errors.into_vec()
    }

    fn warnings(&self, _cx: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        warnings::of(self.row.group, self.row.kind, object, old)
    }

    fn generation_changes(&self, new: &Value, old: &Value) -> bool {
        self.row.counted && evenkeel_apimachinery::reset::spec_differs(new, old)
    }

    fn has_generation(&self, _has_status: bool) -> bool {
        self.row.counted
    }

    fn allow_create_on_update(&self) -> bool {
        self.row.put_creates
    }

    fn allow_unconditional_update(&self) -> bool {
        self.row.unconditional
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Option<Vec<String>> {
        if prefix && name.ends_with('-') {
            // What is generated ends in letters, so a prefix may end as no name may.
            let mut masked = name[..name.len() - 1].to_owned();
            masked.push('a');
            return Some((self.row.name)(&masked));
        }
        Some((self.row.name)(name))
    }

    fn check_graceful_delete(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        if self.row.group.is_empty() && self.row.kind == "Pod" {
            pods::grace(object, requested)
        } else {
            None
        }
    }

    fn returns_deleted_object(&self) -> bool {
        self.row.answers_deleted
    }

    fn default_garbage_collection_policy(&self) -> GarbageCollectionPolicy {
        match (self.row.group, self.row.kind) {
            ("", "ReplicationController") | ("batch", "Job") => {
                GarbageCollectionPolicy::OrphanDependents
            }
            _ => GarbageCollectionPolicy::DeleteDependents,
        }
    }

    fn selectable_fields(&self, group: &str) -> &'static [&'static str] {
        if group == "events.k8s.io" { EVENT_LABELS } else { self.labels }
    }

    fn field_values(&self, object: &Value, put: &mut dyn FnMut(&str)) {
        for (_, path, absent) in self.row.fields {
            match value::at(object, path) {
                None => put(absent),
                Some(Value::String(text)) => put(text),
                Some(other) => put(&other.to_string()),
            }
        }
    }

    fn convert_out(&self, to: &GroupVersionKind, object: &mut Value) {
        match (&*to.group, &*to.kind, &*to.version) {
            ("autoscaling", "HorizontalPodAutoscaler", "v1") => autoscaling::to_v1(object),
            ("events.k8s.io", ..) => strategy::event_to_new(object),
            _ => {}
        }
        set_api_version(object, to);
    }

    fn convert_in(&self, stored: &GroupVersionKind, object: &mut Value) {
        match text(object, "apiVersion") {
            "autoscaling/v1" if self.row.kind == "HorizontalPodAutoscaler" => {
                autoscaling::to_v2(object);
            }
            "events.k8s.io/v1" => strategy::event_to_core(object),
            _ => {}
        }
        set_api_version(object, stored);
    }

    fn read_part(&self, subresource: &str, object: &Value) -> Option<Result<Value, StatusError>> {
        (subresource == "scale").then(|| Ok(scale::read(self.row, object)))
    }

    fn write_part(
        &self,
        subresource: &str,
        object: &mut Value,
        part: &Value,
    ) -> Option<Result<(), StatusError>> {
        (subresource == "scale").then(|| scale::write(object, part))
    }
}

/// Labels of an event's fields in the group `events.k8s.io`, in the order of the core ones.
const EVENT_LABELS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "source",
    "type",
];

/// Labels of a kind's selectable fields.
fn labels(row: &Row) -> &'static [&'static str] {
    static LABELS: OnceLock<BTreeMap<(&'static str, &'static str), Vec<&'static str>>> =
        OnceLock::new();
    let all = LABELS.get_or_init(|| {
        let labels = |row: &Row| row.fields.iter().map(|(label, _, _)| *label).collect();
        ROWS.iter().map(|(_, row)| ((row.group, row.kind), labels(row))).collect()
    });
    all.get(&(row.group, row.kind)).map_or(&[], Vec::as_slice)
}
