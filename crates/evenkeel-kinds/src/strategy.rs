//! What a write may set: fields that only the server sets are set, those that a path may not change are restored.

use crate::rows::Row;
use crate::{jobs, pods, signing_requests};
use evenkeel_apimachinery::reset::{keep_all_but_status, keep_field, keep_spec_of};
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

/// Before a create, after `status` is what it is for new objects.
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

/// Before an update through `cx.subresource`.
pub fn update(row: &Row, cx: &Context<'_>, new: &mut Value, old: &Value) {
    match (row.group, row.kind, cx.subresource) {
        ("", "Pod", subresource) => pods::update(subresource, new, old),
        ("", "Namespace", "finalize") => {
            let finalizers = at(new, "spec.finalizers").cloned();
            keep_spec_of(new, old);
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
            status_update(row, new, old);
            phase_time(new, old, &cx.now);
        }
        (_, _, "status") => status_update(row, new, old),
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

/// A write of `/status`: the rest of the object stays.
fn status_update(row: &Row, new: &mut Value, old: &Value) {
    if (row.group, row.kind) == ("", "Node") {
        // A node's labels and annotations are its kubelet's to write through this path, as upstream has it.
        keep_field(new, old, "spec");
        return;
    }
    // Metadata may change through this path too; only what is asked for may not.
    keep_spec_of(new, old);
    if new.get("status").is_none() {
        keep_all_but_status(new, old);
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
