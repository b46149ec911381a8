//! The hooks of built-in kinds: what their rows say, with the functions of the few kinds that need some.

use super::rows::{ROWS, Row};
use super::{
    KindHooks, admission, autoscaling, binding, defaults, eviction, pods, proxies, scale, services,
    strategy, warnings,
};
use crate::api::{Answer, Api, Call, Context};
use crate::resource::ResourceType;
use crate::store::Transaction;
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::validation::Errors;
use evenkeel_apimachinery::value::{self, text};
use evenkeel_kinds::validate::{self, Subject};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Hooks of one built-in kind.
pub(crate) struct Builtin {
    /// The rules of the kind, as functions and data.
    pub(crate) row: &'static Row,
    /// Version of its stored form.
    pub(crate) version: &'static str,
    /// Labels of its selectable fields.
    pub(crate) labels: &'static [&'static str],
}

impl Builtin {
    /// The hooks of a kind with this row.
    pub(crate) fn new(row: &'static Row) -> Self {
        let version = if row.group == "autoscaling" { "v2" } else { "v1" };
        Self { row, version, labels: labels(row) }
    }

    fn is_service(&self) -> bool {
        self.row.group.is_empty() && self.row.kind == "Service"
    }

    fn subject<'a>(&self, cx: &Context<'a>) -> Subject<'a> {
        Subject { group: self.row.group, kind: self.row.kind, subresource: cx.subresource }
    }
}

impl KindHooks for Builtin {
    fn default(&self, object: &mut Value) {
        defaults::apply(self.row.group, self.version, self.row.kind, object);
    }

    fn prepare_create(&self, cx: &Context<'_>, object: &mut Value) -> Result<(), StatusError> {
        if !self.row.status.is_empty() {
            let status: Value = serde_json::from_str(self.row.status).unwrap_or_default();
            value::set(object, "status", status);
        }
        strategy::create(self.row, &cx.strategy(), object);
        if self.is_service() { services::create(cx, object) } else { Ok(()) }
    }

    fn prepare_update(
        &self,
        cx: &Context<'_>,
        new: &mut Value,
        old: &Value,
    ) -> Result<(), StatusError> {
        strategy::update(self.row, &cx.strategy(), new, old);
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
        admission::admit(self.row, cx, object, old)
    }

    fn validate_create(&self, cx: &Context<'_>, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        validate::create(self.subject(cx), object, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, cx: &Context<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        validate::update(self.subject(cx), new, old, &mut errors);
        errors.into_vec()
    }

    fn warnings(&self, cx: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        let mut all = warnings::of(self.row.group, self.row.kind, object, old);
        all.extend(admission::pod_security::warnings(cx, object, old));
        all
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

    fn grace(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        if self.row.group.is_empty() && self.row.kind == "Pod" {
            pods::grace(object, requested)
        } else {
            None
        }
    }

    fn answers_deleted(&self) -> bool {
        self.row.answers_deleted
    }

    fn default_propagation(&self) -> super::Propagation {
        match (self.row.group, self.row.kind) {
            ("", "ReplicationController") | ("batch", "Job") => super::Propagation::Orphan,
            _ => super::Propagation::Background,
        }
    }

    fn selectable_fields(&self, resource: &ResourceType) -> &'static [&'static str] {
        if resource.group() == "events.k8s.io" { EVENT_LABELS } else { self.labels }
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

    fn convert_out(&self, resource: &ResourceType, object: &mut Value) {
        match (resource.group(), resource.plural(), resource.version()) {
            ("autoscaling", "horizontalpodautoscalers", "v1") => autoscaling::to_v1(object),
            ("events.k8s.io", ..) => strategy::event_to_new(object),
            _ => {}
        }
        super::set_api_version(object, resource);
    }

    fn convert_in(&self, stored: &ResourceType, object: &mut Value) {
        match text(object, "apiVersion") {
            "autoscaling/v1" if self.row.kind == "HorizontalPodAutoscaler" => {
                autoscaling::to_v2(object);
            }
            "events.k8s.io/v1" => strategy::event_to_core(object),
            _ => {}
        }
        super::set_api_version(object, stored);
    }

    fn read_part(&self, subresource: &str, object: &Value) -> Option<Result<Value, StatusError>> {
        (subresource == "scale").then(|| Ok(scale::read(self.row, object)))
    }

    fn write_part(
        &self,
        _cx: &Context<'_>,
        subresource: &str,
        object: &mut Value,
        part: &Value,
    ) -> Option<Result<(), StatusError>> {
        (subresource == "scale").then(|| scale::write(object, part))
    }

    fn connects(&self, subresource: &str) -> bool {
        match (self.row.group, self.row.kind) {
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
        Some(match (self.row.kind, call.cx.subresource) {
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
fn labels(row: &Row) -> &'static [&'static str] {
    static LABELS: OnceLock<BTreeMap<(&'static str, &'static str), Vec<&'static str>>> =
        OnceLock::new();
    let all = LABELS.get_or_init(|| {
        let labels = |row: &Row| row.fields.iter().map(|(label, _, _)| *label).collect();
        ROWS.iter().map(|(_, row)| ((row.group, row.kind), labels(row))).collect()
    });
    all.get(&(row.group, row.kind)).map_or(&[], Vec::as_slice)
}
