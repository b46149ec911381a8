//! The hooks of built-in kinds: what their strategies say, with the functions of the few kinds that need some.

use super::registry::{KindStrategy, STRATEGIES};
use super::{
    KindHooks, admission, autoscaling, binding, defaults, eviction, pod, proxies, scale, services,
    strategy, warnings,
};
use crate::api::{Answer, Api, Call, Context};
use crate::resource::ResourceType;
use crate::store::Transaction;
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::validation::Errors;
use evenkeel_apimachinery::value::{self, text};
use evenkeel_kinds::validation::{self, ValidationTarget};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Hooks of one built-in kind.
pub(crate) struct Builtin {
    /// The rules of the kind, as functions and data.
    pub(crate) kind_strategy: &'static KindStrategy,
    /// Version of its stored form.
    pub(crate) version: &'static str,
    /// Labels of its selectable fields.
    pub(crate) labels: &'static [&'static str],
}

impl Builtin {
    /// Returns the hooks of a kind with this strategy.
    pub(crate) fn new(kind_strategy: &'static KindStrategy) -> Self {
        let version = if kind_strategy.group == "autoscaling" { "v2" } else { "v1" };
        Self { kind_strategy, version, labels: labels(kind_strategy) }
    }

    fn is_service(&self) -> bool {
        self.kind_strategy.group.is_empty() && self.kind_strategy.kind == "Service"
    }

    fn validation_target<'a>(&self, cx: &Context<'a>) -> ValidationTarget<'a> {
        ValidationTarget {
            group: self.kind_strategy.group,
            kind: self.kind_strategy.kind,
            subresource: cx.subresource,
        }
    }
}

impl KindHooks for Builtin {
    fn default(&self, object: &mut Value) {
        defaults::apply(self.kind_strategy.group, self.version, self.kind_strategy.kind, object);
    }

    fn prepare_create(&self, cx: &Context<'_>, object: &mut Value) -> Result<(), StatusError> {
        if !self.kind_strategy.initial_status.is_empty() {
            let status: Value =
                serde_json::from_str(self.kind_strategy.initial_status).unwrap_or_default();
            value::set(object, "status", status);
        }
        strategy::prepare_create(self.kind_strategy, &cx.strategy(), object);
        if self.is_service() { services::create(cx, object) } else { Ok(()) }
    }

    fn prepare_update(
        &self,
        cx: &Context<'_>,
        new: &mut Value,
        old: &Value,
    ) -> Result<(), StatusError> {
        strategy::prepare_update(self.kind_strategy, &cx.strategy(), new, old);
        if self.is_service() && cx.subresource.is_empty() {
            services::update(cx, new, old)
        } else {
            Ok(())
        }
    }

    fn admit(
        &self,
        cx: &Context<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), StatusError> {
        admission::admit(self.kind_strategy, cx, object, old)
    }

    fn validate_create(&self, cx: &Context<'_>, object: &Value) -> Vec<FieldError> {
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
        let mut all =
            warnings::warnings(self.kind_strategy.group, self.kind_strategy.kind, object, old);
        all.extend(admission::pod_security::warnings(cx, object, old));
        all
    }

    fn generation_changes(&self, new: &Value, old: &Value) -> bool {
        self.kind_strategy.has_generation && evenkeel_apimachinery::reset::spec_differs(new, old)
    }

    fn has_generation(&self, _has_status: bool) -> bool {
        self.kind_strategy.has_generation
    }

    fn allow_create_on_update(&self) -> bool {
        self.kind_strategy.allow_create_on_update
    }

    fn allow_unconditional_update(&self) -> bool {
        self.kind_strategy.allow_unconditional_update
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Option<Vec<String>> {
        if prefix && name.ends_with('-') {
            // What is generated ends in letters, so a prefix may end as no name may.
            let mut masked = name[..name.len() - 1].to_owned();
            masked.push('a');
            return Some((self.kind_strategy.validate_name)(&masked));
        }
        Some((self.kind_strategy.validate_name)(name))
    }

    fn grace(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        if self.kind_strategy.group.is_empty() && self.kind_strategy.kind == "Pod" {
            pod::deletion_grace_period(object, requested)
        } else {
            None
        }
    }

    fn answers_deleted(&self) -> bool {
        self.kind_strategy.return_deleted_object
    }

    fn default_propagation(&self) -> super::Propagation {
        match (self.kind_strategy.group, self.kind_strategy.kind) {
            ("", "ReplicationController") | ("batch", "Job") => super::Propagation::Orphan,
            _ => super::Propagation::Background,
        }
    }

    fn selectable_fields(&self, resource: &ResourceType) -> &'static [&'static str] {
        if resource.group() == "events.k8s.io" { EVENT_LABELS } else { self.labels }
    }

    fn field_values(&self, object: &Value, put: &mut dyn FnMut(&str)) {
        for (_, path, absent) in self.kind_strategy.selectable_fields {
            match value::at(object, path) {
                None => put(absent),
                Some(Value::String(text)) => put(text),
                Some(other) => put(&other.to_string()),
            }
        }
    }

    fn convert_out(&self, resource: &ResourceType, object: &mut Value) {
        match (resource.group(), resource.plural(), resource.version()) {
            ("autoscaling", "horizontalpodautoscalers", "v1") => autoscaling::to_v1(object),
            ("events.k8s.io", ..) => strategy::event_to_v1(object),
            _ => {}
        }
        super::set_api_version(object, resource);
    }

    fn convert_in(&self, stored: &ResourceType, object: &mut Value) {
        match text(object, "apiVersion") {
            "autoscaling/v1" if self.kind_strategy.kind == "HorizontalPodAutoscaler" => {
                autoscaling::to_v2(object);
            }
            "events.k8s.io/v1" => strategy::event_to_core(object),
            _ => {}
        }
        super::set_api_version(object, stored);
    }

    fn read_part(&self, subresource: &str, object: &Value) -> Option<Result<Value, StatusError>> {
        (subresource == "scale").then(|| Ok(scale::scale_of(self.kind_strategy, object)))
    }

    fn write_part(
        &self,
        _cx: &Context<'_>,
        subresource: &str,
        object: &mut Value,
        part: &Value,
    ) -> Option<Result<(), StatusError>> {
        (subresource == "scale").then(|| scale::set_replicas(object, part))
    }

    fn connects(&self, subresource: &str) -> bool {
        match (self.kind_strategy.group, self.kind_strategy.kind) {
            ("", "Pod") => {
                matches!(
                    subresource,
                    "binding" | "eviction" | "log" | "exec" | "attach" | "portforward" | "proxy"
                )
            }
            ("", "Node" | "Service") => subresource == "proxy",
            _ => false,
        }
    }

    fn connect<'a>(
        &'a self,
        call: &'a Call<'a>,
    ) -> Option<BoxFuture<'a, Result<Answer, StatusError>>> {
        Some(match (self.kind_strategy.kind, call.cx.subresource) {
            ("Pod", "binding") => binding::bind(call).boxed(),
            ("Pod", "eviction") => eviction::evict(call).boxed(),
            ("Pod", _) => async { proxies::pod(call) }.boxed(),
            ("Node", "proxy") => async { proxies::node(call) }.boxed(),
            ("Service", "proxy") => async { proxies::service(call) }.boxed(),
            _ => return None,
        })
    }

    fn begin_write(
        &self,
        api: &Api,
        object: &Value,
        old: Option<&Value>,
        transaction: &mut Transaction,
    ) {
        if self.is_service() {
            services::begin_write(api, object, old, transaction);
        }
    }

    fn finish_write(
        &self,
        api: &Api,
        object: Option<&Value>,
        old: &Value,
        transaction: &mut Transaction,
    ) {
        if self.is_service() {
            services::finish_write(api, object, old, transaction);
        }
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
fn labels(kind_strategy: &KindStrategy) -> &'static [&'static str] {
    static LABELS: OnceLock<BTreeMap<(&'static str, &'static str), Vec<&'static str>>> =
        OnceLock::new();
    let all = LABELS.get_or_init(|| {
        let labels = |kind_strategy: &KindStrategy| {
            kind_strategy.selectable_fields.iter().map(|(label, _, _)| *label).collect()
        };
        STRATEGIES
            .iter()
            .map(|(_, kind_strategy)| {
                ((kind_strategy.group, kind_strategy.kind), labels(kind_strategy))
            })
            .collect()
    });
    all.get(&(kind_strategy.group, kind_strategy.kind)).map_or(&[], Vec::as_slice)
}
