//! Strategies of built-in kinds, from the data and functions of `evenkeel_kinds`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use evenkeel_apimachinery::group_version::GroupVersionKind;
use evenkeel_apimachinery::reset::spec_differs;
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::validation::Errors;
use evenkeel_apimachinery::value::{self, text};
use evenkeel_kinds::registry::{KindStrategy, STRATEGIES};
use evenkeel_kinds::strategy::{self, Context};
use evenkeel_kinds::validation::{self, ValidationTarget};
use evenkeel_kinds::{app_armor, autoscaling, defaults, pod, scale, warnings};
use serde_json::Value;

use super::rest::{GarbageCollectionPolicy, Strategy, set_api_version};

/// Strategy of one built-in kind.
pub(super) struct BuiltIn {
    /// Rules of the kind, as functions and data.
    kind_strategy: &'static KindStrategy,
    /// Storage version of the kind.
    version: &'static str,
    /// Names of the kind's selectable fields in field selectors.
    labels: &'static [&'static str],
}

impl BuiltIn {
    /// Creates the strategy of the kind with these rules.
    pub(super) fn new(kind_strategy: &'static KindStrategy) -> Self {
        let version = if kind_strategy.group == "autoscaling" { "v2" } else { "v1" };
        Self { kind_strategy, version, labels: labels(kind_strategy) }
    }

    fn validation_target<'a>(&self, cx: &Context<'a>) -> ValidationTarget<'a> {
        ValidationTarget {
            group: self.kind_strategy.group,
            request_group: cx.request_group,
            kind: self.kind_strategy.kind,
            subresource: cx.subresource,
        }
    }
}

impl Strategy for BuiltIn {
    fn default(&self, object: &mut Value) {
        defaults::apply(self.kind_strategy.group, self.version, self.kind_strategy.kind, object);
    }

    fn early_warnings(&self, object: &Value) -> Vec<String> {
        match (self.kind_strategy.group, self.kind_strategy.kind) {
            ("", "Pod") => app_armor::warnings(object),
            _ => Vec::new(),
        }
    }

    fn prepare_for_create(&self, cx: &Context<'_>, object: &mut Value) -> Result<(), StatusError> {
        if !self.kind_strategy.initial_status.is_empty() {
            let status: Value =
                serde_json::from_str(self.kind_strategy.initial_status).unwrap_or_default();
            value::set(object, "status", status);
        }
        strategy::prepare_create(self.kind_strategy, cx, object);
        Ok(())
    }

    fn prepare_for_update(&self, cx: &Context<'_>, new: &mut Value, old: &Value) {
        strategy::prepare_update(self.kind_strategy, cx, new, old);
    }

    fn validate(&self, cx: &Context<'_>, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        validation::create(self.validation_target(cx), object, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, cx: &Context<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        validation::update(self.validation_target(cx), new, old, &mut errors);
        errors.into_vec()
    }

    fn warnings(&self, cx: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        // A status update cannot change the fields with other warnings.
        if cx.subresource == "status" {
            return warnings::status_warnings(self.kind_strategy.kind, object);
        }
        warnings::warnings(self.kind_strategy.group, self.kind_strategy.kind, object, old)
    }

    fn generation_changes(&self, new: &Value, old: &Value) -> bool {
        let differs = |pointer: &str| value::get(new, pointer) != value::get(old, pointer);
        match self.kind_strategy.kind {
            // Upstream never increases the generation of a PriorityClass.
            "PriorityClass" => false,
            // kube-proxy selects slices by label.
            "EndpointSlice" => spec_differs(new, old) || differs("metadata.labels"),
            // The Deployment controller copies annotations to ReplicaSets.
            "Deployment" => spec_differs(new, old) || annotations_differ(new, old),
            _ => spec_differs(new, old),
        }
    }

    fn generates_uuid_name(&self) -> bool {
        self.kind_strategy.kind == "LimitRange"
    }

    fn has_generation(&self, _has_status: bool) -> bool {
        self.kind_strategy.has_generation
    }

    fn creates_with_status(&self) -> bool {
        self.kind_strategy.creates_with_status
    }

    fn allow_create_on_update(&self) -> bool {
        self.kind_strategy.allow_create_on_update
    }

    fn allow_unconditional_update(&self) -> bool {
        self.kind_strategy.allow_unconditional_update
    }

    fn validate_name(&self, cx: &Context<'_>, name: &str, prefix: bool) -> Option<Vec<String>> {
        Some(self.kind_strategy.validate_name(cx.request_group, name, prefix))
    }

    fn update_validates_name(&self, cx: &Context<'_>) -> bool {
        validation::update_validates_name(self.validation_target(cx))
    }

    fn check_graceful_delete(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        if self.kind_strategy.group.is_empty() && self.kind_strategy.kind == "Pod" {
            pod::deletion_grace_period(object, requested)
        } else {
            None
        }
    }

    fn returns_deleted_object(&self) -> bool {
        self.kind_strategy.return_deleted_object
    }

    fn default_garbage_collection_policy(&self) -> GarbageCollectionPolicy {
        match (self.kind_strategy.group, self.kind_strategy.kind) {
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
        for (label, path, absent) in self.kind_strategy.selectable_fields {
            let value = match value::get(object, path) {
                // The source of an event is its reporting controller, unless it names another one.
                Some(Value::String(text)) if *label == "source" && text.is_empty() => None,
                value => value,
            };
            let value = match value {
                None if *label == "source" => value::get(object, "reportingComponent"),
                value => value,
            };
            match value {
                None => put(absent),
                Some(Value::String(text)) => put(text),
                Some(other) => put(&other.to_string()),
            }
        }
    }

    fn convert_out(&self, to: &GroupVersionKind, object: &mut Value) {
        match (&*to.group, &*to.kind, &*to.version) {
            ("autoscaling", "HorizontalPodAutoscaler", "v1") => autoscaling::to_v1(object),
            ("events.k8s.io", ..) => strategy::event_to_v1(object),
            _ => {}
        }
        set_api_version(object, to);
    }

    fn convert_in(&self, stored: &GroupVersionKind, object: &mut Value) {
        match text(object, "apiVersion") {
            "autoscaling/v1" if self.kind_strategy.kind == "HorizontalPodAutoscaler" => {
                autoscaling::to_v2(object);
            }
            "events.k8s.io/v1" => strategy::event_to_core(object),
            _ => {}
        }
        set_api_version(object, stored);
    }

    fn read_subresource(
        &self,
        subresource: &str,
        object: &Value,
    ) -> Option<Result<Value, StatusError>> {
        (subresource == "scale").then(|| Ok(scale::scale_of(self.kind_strategy, object)))
    }

    fn write_subresource(
        &self,
        subresource: &str,
        object: &mut Value,
        written: &Value,
    ) -> Option<Result<(), StatusError>> {
        (subresource == "scale").then(|| scale::set_replicas(object, written))
    }
}

/// Labels of an event's selectable fields in the group `events.k8s.io`, in the same order as in the core group. Its
/// last label, `source`, has none here.
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
    "type",
];

/// Labels of the selectable fields of each kind, by group and kind.
static LABELS: LazyLock<BTreeMap<(&str, &str), Vec<&str>>> = LazyLock::new(|| {
    let labels = |kind_strategy: &KindStrategy| {
        kind_strategy.selectable_fields.iter().map(|(label, _, _)| *label).collect()
    };
    let strategies = STRATEGIES.iter().map(|(_, kind_strategy)| kind_strategy);
    strategies.map(|strategy| ((strategy.group, strategy.kind), labels(strategy))).collect()
});

/// Returns the labels of a kind's selectable fields.
fn labels(kind_strategy: &KindStrategy) -> &'static [&'static str] {
    LABELS.get(&(kind_strategy.group, kind_strategy.kind)).map_or(&[], Vec::as_slice)
}

/// Returns whether two objects have different annotations. Absent annotations equal an empty map.
fn annotations_differ(new: &Value, old: &Value) -> bool {
    fn annotations(object: &Value) -> Option<&Value> {
        value::get(object, "metadata.annotations").filter(|found| !value::is_blank(found))
    }
    annotations(new) != annotations(old)
}
