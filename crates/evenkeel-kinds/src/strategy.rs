//! Strategies of the built-in kinds. Before validation, the server sets the fields that it controls, and resets the
//! fields that the request's path cannot change.
//!
//! [`prepare_status_update`] ensures that a status update cannot change the spec.
//!
//! Upstream: `PrepareForCreate` and `PrepareForUpdate` of the strategies in `pkg/registry`.

use crate::defaults::labels_from_template;
use crate::disabled_fields::drop_disabled_fields;
use crate::registry::KindStrategy;
use crate::{certificatesigningrequest, job, persistentvolumeclaim, pod, resourceclaim};
use evenkeel_api::forms::dns_label;
use evenkeel_apimachinery::reset::{
    reset_all_but_metadata_and_status, reset_all_but_status_and_managed_fields, reset_field,
    reset_metadata_fields, reset_metadata_for_status, status_update_resets_metadata,
};
use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::value::{self, get, list, object_mut, set, text};
use serde_json::{Value, json};

/// Parts of the request that strategies read.
pub struct Context<'a> {
    /// Time of the request, formatted as in objects.
    pub now: String,
    /// User who sent the request.
    pub user: &'a User,
    /// API group of the request. It may differ from the group of the kind: a core Event can also be written through
    /// `events.k8s.io`.
    pub request_group: &'a str,
    /// Subresource of the request. It is empty for the object itself.
    pub subresource: &'a str,
    /// Whether the kind has a `status` subresource.
    pub has_status: bool,
    /// Whether defaulting copied the pod template's labels to a new object without labels. Upstream shares one map
    /// between both, so the labels that are generated for a Job's pods also become labels of the Job.
    pub has_template_labels: bool,
}

/// Prepares a new object. The caller has already set its initial `status`.
///
/// Upstream: `PrepareForCreate`.
pub fn prepare_create(strategy: &KindStrategy, cx: &Context<'_>, object: &mut Value) {
    drop_disabled_fields(strategy.group, strategy.kind, "", object, None);
    match (strategy.group, strategy.kind) {
        ("", "Pod") => pod::prepare_create(object, &cx.now),
        ("", "Namespace") => prepare_namespace(object),
        ("", "PersistentVolume") => {
            set(object, "status.lastPhaseTransitionTime", &*cx.now);
        }
        ("", "PersistentVolumeClaim") => persistentvolumeclaim::prepare(object, None),
        ("apps", "DaemonSet") => set_template_generation(object, 1),
        ("", "ServiceAccount") => clean_secret_references(object),
        ("batch", "Job") => job::generate_selector(object, cx.has_template_labels),
        ("rbac.authorization.k8s.io", _) => null_empty_rules(object),
        ("certificates.k8s.io", "CertificateSigningRequest") => set_requester(cx, object),
        ("discovery.k8s.io", "EndpointSlice") => drop_topology(object, None),
        ("apiregistration.k8s.io", "APIService") => mark_local(object, &cx.now),
        ("resource.k8s.io", kind) => resourceclaim::set_time_added(kind, object, &cx.now),
        _ => {}
    }
}

/// Prepares an update of the subresource `cx.subresource`, or of the object itself if that is empty.
///
/// Upstream: `PrepareForUpdate`.
pub fn prepare_update(strategy: &KindStrategy, cx: &Context<'_>, new: &mut Value, old: &Value) {
    // Upstream increments the generation of these kinds before it drops fields. A change of a field that is dropped
    // below, such as the topology of endpoints, therefore counts too.
    let generation_field = match strategy.kind {
        "ResourceSlice" => Some("spec"),
        "EndpointSlice" => Some("endpoints"),
        _ => None,
    };
    if generation_field.is_some_and(|field| get(new, field) != get(old, field)) {
        let generation = value::int(old, "metadata.generation").unwrap_or_default();
        set(new, "metadata.generation", generation + 1);
    }
    drop_disabled_fields(strategy.group, strategy.kind, cx.subresource, new, Some(old));
    match (strategy.group, strategy.kind, cx.subresource) {
        ("", "Pod", subresource) => pod::prepare_update(subresource, new, old),
        ("", "Namespace", "finalize") => {
            let finalizers = get(new, "spec.finalizers").cloned();
            reset_all_but_metadata_and_status(new, old);
            reset_field(new, old, "status");
            match finalizers.filter(|finalizers| !value::is_blank(finalizers)) {
                Some(finalizers) => set(new, "spec.finalizers", finalizers),
                None => {
                    value::remove(new, "spec.finalizers");
                }
            }
        }
        ("", "Namespace", "") => {
            reset_field(new, old, "spec");
            reset_field(new, old, "status");
        }
        ("certificates.k8s.io", "CertificateSigningRequest", "approval") => {
            certificatesigningrequest::prepare_approval_update(new, old, &cx.now);
        }
        ("certificates.k8s.io", "CertificateSigningRequest", "status") => {
            certificatesigningrequest::prepare_status_update(new, old, &cx.now);
        }
        ("certificates.k8s.io", "CertificateSigningRequest", "") => {
            reset_field(new, old, "spec");
            reset_field(new, old, "status");
        }
        ("", "PersistentVolume", "status") => {
            prepare_status_update(StatusStrategy::of(strategy), new, old);
            set_phase_transition_time(new, old, &cx.now);
        }
        (_, _, "status") => prepare_status_update(StatusStrategy::of(strategy), new, old),
        _ if cx.has_status => reset_field(new, old, "status"),
        _ => {}
    }
    match (strategy.group, strategy.kind) {
        ("", "ServiceAccount") => clean_secret_references(new),
        ("", "PersistentVolumeClaim") if cx.subresource.is_empty() => {
            persistentvolumeclaim::prepare(new, Some(old));
        }
        ("", "PersistentVolumeClaim") => persistentvolumeclaim::prepare_status_update(new, old),
        ("discovery.k8s.io", "EndpointSlice") => drop_topology(new, Some(old)),
        // A status update has the template of the stored object. Upstream applies defaults when it reads the stored
        // object, so the template's labels become defaults again.
        ("batch", "Job") | ("", "ReplicationController") if cx.subresource == "status" => {
            labels_from_template(new);
        }
        ("resource.k8s.io", "DeviceTaintRule") => {
            resourceclaim::set_time_added("DeviceTaintRule", new, &cx.now);
            resourceclaim::prepare_taint_rule_update(new, old, &cx.now);
        }
        ("resource.k8s.io", "ResourceSlice") => {
            resourceclaim::set_time_added("ResourceSlice", new, &cx.now);
        }
        ("resource.k8s.io", "ResourceClaim") if cx.subresource == "status" => {
            resourceclaim::drop_deallocated_devices(new, old);
        }
        // A CSIDriver is created without a generation, so `has_generation` is false for it. Only updates count.
        ("storage.k8s.io", "CSIDriver") if get(new, "spec") != get(old, "spec") => {
            let generation = value::int(old, "metadata.generation").unwrap_or_default();
            set(new, "metadata.generation", generation + 1);
        }
        _ => {}
    }
    if strategy.group == "rbac.authorization.k8s.io" {
        null_empty_rules(new);
    }
    if (strategy.group, strategy.kind) == ("apps", "DaemonSet") {
        let old_generation = template_generation(old);
        let is_changed =
            cx.subresource.is_empty() && get(new, "spec.template") != get(old, "spec.template");
        let generation = if is_changed { old_generation + 1 } else { old_generation };
        set_template_generation(new, generation);
    }
}

/// Marks an APIService of the server itself as available.
///
/// Upstream: `NewLocalAvailableAPIServiceCondition`.
fn mark_local(object: &mut Value, now: &str) {
    if get(object, "spec.service").is_none() {
        let condition = json!({
            "type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Local",
            "message": "Local APIServices are always available",
        });
        set(object, "status.conditions", vec![condition]);
    }
}

/// Sets the time of a volume's phase transition when the phase changes, unless the client changes the time itself.
fn set_phase_transition_time(new: &mut Value, old: &Value, now: &str) {
    const TIME: &str = "status.lastPhaseTransitionTime";
    let (old_time, new_time) = (get(old, TIME).cloned(), get(new, TIME).cloned());
    let is_transition = text(new, "status.phase") != text(old, "status.phase");
    if is_transition {
        let is_set_by_client = new_time.is_some() && new_time != old_time;
        if !is_set_by_client {
            set(new, TIME, now);
        }
    } else if let Some(old_time) = old_time
        && new_time.is_none()
    {
        set(new, TIME, old_time);
    }
}

/// Strategy of a kind's `/status` path. The variants differ in the metadata that a status update can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusStrategy {
    /// Changes `status` only, and records managers of no other field: custom resource, or kind of flow control.
    StatusOnly,
    /// Changes `status` and `metadata`: built-in kind.
    StatusAndMetadata,
    /// Changes `status` only, but records managers of metadata before it resets them: built-in kind such as ResourceClaim.
    StatusOnlyKeepingManagers,
    /// Changes `status`, and `metadata` except labels: Deployment.
    Deployment,
}

impl StatusStrategy {
    /// Returns the strategy of a built-in kind.
    fn of(strategy: &KindStrategy) -> Self {
        match (strategy.group, strategy.kind) {
            ("apps", "Deployment") => Self::Deployment,
            ("flowcontrol.apiserver.k8s.io", _) => Self::StatusOnly,
            (group, kind) if status_update_resets_metadata(group, kind) => {
                Self::StatusOnlyKeepingManagers
            }
            _ => Self::StatusAndMetadata,
        }
    }
}

/// Resets the fields of `new` that a write to `/status` cannot change to their values in the stored object `old`.
/// Therefore, a status update cannot change the spec.
///
/// | kind | fields that a client can change |
/// |---|---|
/// | custom resource, flow control | `status` |
/// | built-in kind | `status`, `metadata` |
/// | built-in kind in [`status_update_resets_metadata`] | `status` |
/// | Deployment | `status`, `metadata` except labels |
/// | Pod, CertificateSigningRequest | `prepare_update` of `pod.rs` and `certificatesigningrequest.rs` |
///
/// A body without `status` removes the status. `new` keeps its own `metadata.managedFields`, where the server has
/// just recorded the manager. Built-in metadata may change because a kubelet writes its node's labels and
/// annotations through `/status`.
///
/// A write calls [`reset_for_status_update`] first. The strategies of `/approval` and `/finalize` are in
/// [`prepare_update`].
///
/// Upstream: `podStatusStrategy.PrepareForUpdate`, `nodeStatusStrategy.PrepareForUpdate` and, for custom resources,
/// `statusStrategy.PrepareForUpdate`.
pub fn prepare_status_update(strategy: StatusStrategy, new: &mut Value, old: &Value) {
    match strategy {
        StatusStrategy::StatusOnly => reset_all_but_status_and_managed_fields(new, old),
        StatusStrategy::StatusAndMetadata => reset_all_but_metadata_and_status(new, old),
        StatusStrategy::StatusOnlyKeepingManagers => {
            prepare_status_update(StatusStrategy::StatusAndMetadata, new, old);
            reset_metadata_for_status(new, old);
        }
        StatusStrategy::Deployment => {
            prepare_status_update(StatusStrategy::StatusAndMetadata, new, old);
            reset_metadata_fields(new, old, &["labels"]);
        }
    }
}

/// Resets the fields that a status update cannot change before the server writes managedFields, so that no manager
/// is recorded as the owner of such a field. [`prepare_status_update`] then applies the full rule.
///
/// Upstream: `podStatusStrategy.GetResetFields`, `statusStrategy.GetResetFields`.
pub fn reset_for_status_update(strategy: StatusStrategy, new: &mut Value, old: &Value) {
    match strategy {
        StatusStrategy::StatusOnly => prepare_status_update(strategy, new, old),
        _ => reset_all_but_metadata_and_status(new, old),
    }
}

/// Adds the finalizer `kubernetes` to `spec.finalizers`, and labels a namespace by its generated name, which the
/// defaults do not know.
///
/// Upstream: `namespaceStrategy.PrepareForCreate`, `namespaceStrategy.Canonicalize`.
fn prepare_namespace(object: &mut Value) {
    let name = text(object, "metadata.name").to_owned();
    let is_generated = !text(object, "metadata.generateName").is_empty();
    // Upstream sets the label after it has checked the name.
    if is_generated
        && dns_label(&name).is_empty()
        && let Some(labels) = object_mut(object, "metadata.labels")
    {
        labels.insert("kubernetes.io/metadata.name".to_owned(), Value::from(name));
    }
    let mut finalizers = list(object, "spec.finalizers").to_vec();
    if !finalizers.iter().any(|name| name == "kubernetes") {
        finalizers.push(json!("kubernetes"));
    }
    set(object, "spec.finalizers", finalizers);
}

/// Drops `deprecatedTopology` of changed endpoints, because only v1beta1 could write it.
///
/// Upstream: `dropTopologyOnV1`.
fn drop_topology(slice: &mut Value, old: Option<&Value>) {
    if old.is_some_and(|old| value::same(old.get("endpoints"), slice.get("endpoints"))) {
        return;
    }
    value::each(slice, "endpoints.*", &mut |endpoint| {
        value::remove(endpoint, "deprecatedTopology");
    });
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Returns a DaemonSet's template generation from the annotation, or 0 if it is absent or malformed.
fn template_generation(object: &Value) -> i64 {
    let annotations = value::object(object, "metadata.annotations");
    let text = annotations
        .and_then(|annotations| annotations.get(TEMPLATE_GENERATION))
        .and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Stores a DaemonSet's template generation, which is a field in upstream's internal version, as an annotation.
fn set_template_generation(object: &mut Value, generation: i64) {
    if let Some(annotations) = object_mut(object, "metadata.annotations") {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), Value::from(generation.to_string()));
    }
}

/// Removes all fields except the name from a ServiceAccount's secrets.
///
/// Upstream: `cleanSecretReferences`.
fn clean_secret_references(account: &mut Value) {
    value::each(account, "secrets.*", &mut |secret| {
        let name = get(secret, "name").cloned();
        *secret = json!({});
        if let Some(name) = name {
            set(secret, "name", name);
        }
    });
}

/// Replaces an empty list of rules by null, as upstream stores it.
fn null_empty_rules(role: &mut Value) {
    if role.get("rules").is_some_and(value::is_blank) {
        set(role, "rules", Value::Null);
    }
}

/// Sets the requester of a certificate to the user of the request.
fn set_requester(cx: &Context<'_>, object: &mut Value) {
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
        let mut extra = value::Object::new();
        for (key, values) in &cx.user.extra {
            let values: Vec<&str> = values.iter().map(|value| &**value).collect();
            extra.insert(key.to_string(), json!(values));
        }
        set(object, "spec.extra", extra);
    }
}

/// Names of an Event's fields in the core group and in `events.k8s.io`.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("source", "deprecatedSource"),
];

/// Converts a core Event to `events.k8s.io`.
pub fn event_to_v1(object: &mut Value) {
    for (core, new) in EVENT_FIELDS {
        rename(object, core, new);
    }
    for field in ["reportingController", "reportingInstance", "note", "reason", "type"] {
        if text(object, field).is_empty() {
            value::remove(object, field);
        }
    }
}

/// Converts an Event of `events.k8s.io` to the core group.
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
        if get(object, field).is_none() {
            set(object, field, Value::Null);
        }
    }
    if get(object, "source").is_none() {
        set(object, "source", json!({}));
    }
    if get(object, "involvedObject").is_none() {
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
    fn a_status_update_does_not_change_the_spec() {
        let old = json!({"metadata": {"labels": {"a": "1"}}, "spec": 1, "data": 1, "status": 1});
        let sent = json!({"metadata": {"labels": {"a": "2"}, "managedFields": []}, "spec": 2, "status": 2});
        let changed = |strategy, sent: &Value| {
            let mut new = sent.clone();
            prepare_status_update(strategy, &mut new, &old);
            new
        };
        let metadata_kept = json!({"metadata": {"labels": {"a": "1"}, "managedFields": []}, "spec": 1, "data": 1, "status": 2});
        assert_eq!(changed(StatusStrategy::StatusOnly, &sent), metadata_kept);
        let mut metadata_changed = metadata_kept.clone();
        metadata_changed["metadata"]["labels"]["a"] = json!("2");
        assert_eq!(changed(StatusStrategy::StatusAndMetadata, &sent), metadata_changed);
        assert_eq!(changed(StatusStrategy::StatusOnlyKeepingManagers, &sent), metadata_kept);
        assert_eq!(changed(StatusStrategy::Deployment, &sent), metadata_kept);
    }

    #[test]
    fn a_status_update_gives_a_job_the_labels_of_its_template() {
        let strategy = crate::registry::strategy("batch", "jobs").expect("a strategy");
        let user = User::default();
        let cx = Context {
            now: String::new(),
            user: &user,
            request_group: "batch",
            subresource: "status",
            has_status: true,
            has_template_labels: false,
        };
        let old = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"template": {"metadata": {"labels": {"c": "d"}}}}});
        let mut new = json!({"metadata": {}, "spec": {}, "status": {}});
        prepare_update(strategy, &cx, &mut new, &old);
        assert_eq!(new["metadata"]["labels"], json!({"c": "d"}));
    }

    #[test]
    fn a_namespace_gets_its_generated_name_as_a_label() {
        for (name, prefix, label) in [
            ("a-x", "a-", json!("a-x")),
            ("a", "", Value::Null),
            // The name is refused later, and so is no label.
            ("A-x", "A-", Value::Null),
        ] {
            let mut namespace = json!({"metadata": {"name": name, "generateName": prefix}});
            prepare_namespace(&mut namespace);
            let found = &namespace["metadata"]["labels"]["kubernetes.io/metadata.name"];
            assert_eq!(*found, label, "{name}");
        }
    }

    #[test]
    fn a_body_without_status_removes_the_status() {
        let old = json!({"metadata": {"labels": {"a": "1"}}, "spec": 1, "status": 1});
        let sent = json!({"metadata": {"labels": {"a": "2"}}, "spec": 2});
        for (strategy, label) in [
            (StatusStrategy::StatusOnly, "1"),
            (StatusStrategy::StatusAndMetadata, "2"),
            (StatusStrategy::StatusOnlyKeepingManagers, "1"),
            (StatusStrategy::Deployment, "1"),
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
