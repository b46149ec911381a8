//! The strategies of built-in kinds: before a write is validated, the server sets the fields that it decides itself, and
//! restores those that the path of the request may not change.
//!
//! [`prepare_status_update`] is why a status update cannot change the spec.
//!
//! Upstream: `PrepareForCreate` and `PrepareForUpdate` of the strategies in `pkg/registry`.

use crate::rows::Row;
use crate::{jobs, pods, signing_requests};
use evenkeel_apimachinery::reset::{
    keep_all_but_metadata_and_status, keep_all_but_status_and_managed_fields, keep_field,
};
use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::value::{self, at, list, object_mut, set, text};
use serde_json::{Value, json};

/// What a strategy knows of the request that writes.
pub struct Context<'a> {
    /// When the request came, as objects have it.
    pub now: String,
    /// Who sent the request.
    pub user: &'a User,
    /// The sub-resource written through; empty for the object itself.
    pub subresource: &'a str,
    /// Whether the kind has a `status` sub-resource.
    pub has_status: bool,
}

/// Prepares a new object, whose `status` the caller has set to that of new objects.
///
/// Upstream: `PrepareForCreate`.
pub fn create(row: &Row, cx: &Context<'_>, object: &mut Value) {
    match (row.group, row.kind) {
        ("", "Pod") => pods::create(object, &cx.now),
        ("", "Namespace") => namespace(object),
        ("", "PersistentVolume") => {
            set(object, "status.lastPhaseTransitionTime", &*cx.now);
        }
        ("apps", "DaemonSet") => template_generation(object, 1),
        ("batch", "Job") => jobs::create(object),
        ("rbac.authorization.k8s.io", _) => empty_rules(object),
        ("certificates.k8s.io", "CertificateSigningRequest") => signing_request(cx, object),
        _ => {}
    }
}

/// Prepares an update through `cx.subresource` (empty: the object itself).
///
/// Upstream: `PrepareForUpdate`.
pub fn update(row: &Row, cx: &Context<'_>, new: &mut Value, old: &Value) {
    match (row.group, row.kind, cx.subresource) {
        ("", "Pod", subresource) => pods::update(subresource, new, old),
        ("", "Namespace", "finalize") => {
            let finalizers = at(new, "spec.finalizers").cloned();
            keep_all_but_metadata_and_status(new, old);
            match finalizers.filter(|finalizers| !value::is_blank(finalizers)) {
                Some(finalizers) => set(new, "spec.finalizers", finalizers),
                None => {
                    value::remove(new, "spec.finalizers");
                }
            }
        }
        ("", "Namespace", "") => {
            keep_field(new, old, "spec");
            keep_field(new, old, "status");
        }
        ("certificates.k8s.io", "CertificateSigningRequest", "approval") => {
            signing_requests::approve(new, old, &cx.now);
        }
        ("certificates.k8s.io", "CertificateSigningRequest", "status") => {
            signing_requests::report(new, old, &cx.now);
        }
        ("certificates.k8s.io", "CertificateSigningRequest", "") => {
            keep_field(new, old, "spec");
            keep_field(new, old, "status");
        }
        ("", "PersistentVolume", "status") => {
            prepare_status_update(StatusStrategy::of(row), new, old);
            phase_time(new, old, &cx.now);
        }
        (_, _, "status") => prepare_status_update(StatusStrategy::of(row), new, old),
        _ if cx.has_status => keep_field(new, old, "status"),
        _ => {}
    }
    if row.group == "rbac.authorization.k8s.io" {
        empty_rules(new);
    }
    if (row.group, row.kind, cx.subresource) == ("apps", "DaemonSet", "") {
        let before = generation_annotation(old);
        let changed = at(new, "spec.template") != at(old, "spec.template");
        template_generation(new, if changed { before + 1 } else { before });
    }
}

/// Since when a volume is in its phase, unless the writer says so.
fn phase_time(new: &mut Value, old: &Value, now: &str) {
    let time = "status.lastPhaseTransitionTime";
    let (was, is) = (at(old, time).cloned(), at(new, time).cloned());
    let moved = text(new, "status.phase") != text(old, "status.phase");
    match (moved, was) {
        (true, was) if is.is_none() || is == was => set(new, time, now),
        (false, Some(was)) if is.is_none() => set(new, time, was),
        _ => {}
    }
}

/// Which strategy the `/status` path of a kind has. They differ in what of the metadata a status update may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusStrategy {
    /// A custom resource: an update of its status changes the status alone.
    Custom,
    /// A built-in kind: an update of its status may change metadata too.
    BuiltIn,
    /// A Node: as a built-in kind, and also where the update has no status.
    Node,
}

impl StatusStrategy {
    /// The strategy of a built-in kind.
    fn of(row: &Row) -> Self {
        if (row.group, row.kind) == ("", "Node") { Self::Node } else { Self::BuiltIn }
    }
}

/// Why a status update cannot change the spec: gives `new`, which was sent to `/status`, the values of the stored object
/// `old` in every field that this path may not change.
///
/// | kind | what the client may change | where the body has no `status` |
/// |---|---|---|
/// | custom resource | `status` | the status is removed |
/// | built-in kind | `status`, `metadata` | the status is removed, and metadata stays as it was |
/// | Node | `status`, `metadata` | the status is removed |
///
/// `metadata.managedFields` is always the new object's: the server has just written in it who set the status. A kubelet
/// writes its node's labels and annotations through `/status`, so a Node's metadata changes with any body.
///
/// A write calls [`reset_for_status_update`] first. The strategies of `/approval` and `/finalize` stand in [`update`].
///
/// Upstream: `podStatusStrategy.PrepareForUpdate`, `nodeStatusStrategy.PrepareForUpdate` and, for custom resources,
/// `statusStrategy.PrepareForUpdate`.
pub fn prepare_status_update(strategy: StatusStrategy, new: &mut Value, old: &Value) {
    match strategy {
        StatusStrategy::Custom => keep_all_but_status_and_managed_fields(new, old),
        StatusStrategy::Node => keep_field(new, old, "spec"),
        StatusStrategy::BuiltIn => {
            keep_all_but_metadata_and_status(new, old);
            if new.get("status").is_none() {
                keep_all_but_status_and_managed_fields(new, old);
            }
        }
    }
}

/// Restores what a status update may not change before the server writes managedFields, so that no manager is noted as the
/// owner of a field that it could not set. [`prepare_status_update`] then applies the strategy's rule in full.
///
/// Upstream: `podStatusStrategy.GetResetFields`, `statusStrategy.GetResetFields`.
pub fn reset_for_status_update(strategy: StatusStrategy, new: &mut Value, old: &Value) {
    match strategy {
        StatusStrategy::Custom => prepare_status_update(strategy, new, old),
        StatusStrategy::BuiltIn | StatusStrategy::Node => {
            keep_all_but_metadata_and_status(new, old);
        }
    }
}

fn namespace(object: &mut Value) {
    let mut finalizers = list(object, "spec.finalizers").to_vec();
    if !finalizers.iter().any(|name| name == "kubernetes") {
        finalizers.push(json!("kubernetes"));
    }
    set(object, "spec.finalizers", finalizers);
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn generation_annotation(object: &Value) -> i64 {
    let annotations = value::object(object, "metadata.annotations");
    let text = annotations.and_then(|all| all.get(TEMPLATE_GENERATION)).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Upstream writes a DaemonSet's template generation (a field of its internal form) as an annotation.
fn template_generation(object: &mut Value, generation: i64) {
    if let Some(annotations) = object_mut(object, "metadata.annotations") {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), Value::from(generation.to_string()));
    }
}

/// An empty list of rules is stored as none, and shown as null.
fn empty_rules(role: &mut Value) {
    if role.get("rules").is_some_and(value::is_blank) {
        set(role, "rules", Value::Null);
    }
}

/// Who asks for a certificate is written down by the server.
fn signing_request(cx: &Context<'_>, object: &mut Value) {
    set(object, "spec.username", &*cx.user.name);
    if cx.user.uid.is_empty() {
        value::remove(object, "spec.uid");
    } else {
        set(object, "spec.uid", &*cx.user.uid);
    }
    let groups: Vec<&str> = cx.user.groups.iter().map(|group| &**group).collect();
    set(object, "spec.groups", json!(groups));
    if cx.user.extra.is_empty() {
        value::remove(object, "spec.extra");
    } else {
        let extra: value::Object = cx
            .user
            .extra
            .iter()
            .map(|(key, values)| {
                (key.to_string(), json!(values.iter().map(|value| &**value).collect::<Vec<_>>()))
            })
            .collect();
        set(object, "spec.extra", extra);
    }
}

/// Names of an event's fields: in the core group and in `events.k8s.io`.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("source", "deprecatedSource"),
];

/// A core event in the form of `events.k8s.io`.
pub fn event_to_new(object: &mut Value) {
    for (core, new) in EVENT_FIELDS {
        rename(object, core, new);
    }
    for field in ["reportingController", "reportingInstance", "note", "reason", "type"] {
        if text(object, field).is_empty() {
            value::remove(object, field);
        }
    }
}

/// An event of `events.k8s.io` in its core form.
pub fn event_to_core(object: &mut Value) {
    for (core, new) in EVENT_FIELDS {
        rename(object, new, core);
    }
    if text(object, "reportingComponent").is_empty() {
        set(object, "reportingComponent", "");
    }
    if text(object, "reportingInstance").is_empty() {
        set(object, "reportingInstance", "");
    }
    for field in ["firstTimestamp", "lastTimestamp"] {
        if at(object, field).is_none() {
            set(object, field, Value::Null);
        }
    }
    if at(object, "source").is_none() {
        set(object, "source", json!({}));
    }
    if at(object, "involvedObject").is_none() {
        set(object, "involvedObject", json!({}));
    }
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(fields) = object.as_object_mut()
        && let Some(value) = fields.remove(from)
    {
        fields.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_update_changes_no_spec() {
        let old = json!({"metadata": {"labels": {"a": "1"}}, "spec": 1, "data": 1, "status": 1});
        let sent = json!({"metadata": {"labels": {"a": "2"}, "managedFields": []}, "spec": 2, "status": 2});
        let changed = |strategy, sent: &Value| {
            let mut new = sent.clone();
            prepare_status_update(strategy, &mut new, &old);
            new
        };
        let stays = json!({"metadata": {"labels": {"a": "1"}, "managedFields": []}, "spec": 1, "data": 1, "status": 2});
        assert_eq!(changed(StatusStrategy::Custom, &sent), stays);
        let mut moves = stays.clone();
        moves["metadata"]["labels"]["a"] = json!("2");
        assert_eq!(changed(StatusStrategy::BuiltIn, &sent), moves);
        assert_eq!(changed(StatusStrategy::Node, &sent)["spec"], 1);
    }

    #[test]
    fn without_a_status_only_a_node_changes_its_labels() {
        let old = json!({"metadata": {"labels": {"a": "1"}}, "spec": 1, "status": 1});
        let sent = json!({"metadata": {"labels": {"a": "2"}}, "spec": 2});
        for (strategy, label) in [
            (StatusStrategy::Custom, "1"),
            (StatusStrategy::BuiltIn, "1"),
            (StatusStrategy::Node, "2"),
        ] {
            let mut new = sent.clone();
            prepare_status_update(strategy, &mut new, &old);
            assert_eq!(
                new,
                json!({"metadata": {"labels": {"a": label}}, "spec": 1}),
                "{strategy:?}"
            );
        }
    }
}
