//! Defaults of the core API group.

use super::Fill::{Int, Optional, Text};
use super::pod::VOLUME_SOURCE;
use super::{Table, fill, pod, service};
use base64::Engine as _;
use evenkeel_apimachinery::value::{self, each, get, is_empty, list, object, object_mut, text};
use serde_json::Value;

const PERSISTENT_VOLUME: Table = &[
    ("status.phase", Text("Pending")),
    ("spec.persistentVolumeReclaimPolicy", Text("Retain")),
    ("spec.volumeMode", Optional("Filesystem")),
];
const CLAIM: Table =
    &[("status.phase", Text("Pending")), ("spec.volumeMode", Optional("Filesystem"))];
const ENDPOINTS: Table = &[("subsets.*.ports.*.protocol", Text("TCP"))];

pub(crate) fn apply(kind: &str, object: &mut Value) {
    match kind {
        "Pod" => pod::pod(object),
        "PodTemplate" => each(object, "template.spec", &mut pod::pod_spec),
        "Service" => service::apply(object),
        "ReplicationController" => replication_controller(object),
        "Namespace" => namespace(object),
        "Secret" => secret(object),
        "PersistentVolume" => {
            fill(object, PERSISTENT_VOLUME);
            each(object, "spec?", &mut |spec| fill(spec, VOLUME_SOURCE));
        }
        "PersistentVolumeClaim" => fill(object, CLAIM),
        "Endpoints" => fill(object, ENDPOINTS),
        "Node" => node(object),
        "LimitRange" => each(object, "spec.limits.*", &mut limit_range_item),
        _ => {}
    }
}

/// Sets the defaults of a ReplicationController. Selector and labels default to the labels of the template.
///
/// Upstream: `SetDefaults_ReplicationController`.
fn replication_controller(rc: &mut Value) {
    let labels =
        get(rc, "spec.template.metadata.labels").filter(|labels| !value::is_blank(labels)).cloned();
    if let Some(labels) = labels {
        if is_empty(rc, "spec.selector") {
            value::set(rc, "spec.selector", labels.clone());
        }
        if is_empty(rc, "metadata.labels") {
            value::set(rc, "metadata.labels", labels);
        }
    }
    fill(rc, &[("spec.replicas", Int(1))]);
    each(rc, "spec.template?.spec", &mut pod::pod_spec);
}

/// Sets the label with the namespace's name (KEP-2161), and the phase Active.
///
/// Upstream: `SetDefaults_Namespace`, `SetDefaults_NamespaceStatus`.
fn namespace(namespace: &mut Value) {
    let name = text(namespace, "metadata.name").to_owned();
    if !name.is_empty()
        && let Some(labels) = object_mut(namespace, "metadata.labels")
    {
        labels.insert("kubernetes.io/metadata.name".to_owned(), Value::from(name));
    }
    fill(namespace, &[("status.phase", Text("Active"))]);
}

/// Moves the write-only `stringData` into `data`, whose values it overwrites.
///
/// Upstream: `SetDefaults_Secret`.
fn secret(secret: &mut Value) {
    fill(secret, &[("type", Text("Opaque"))]);
    each(secret, "data.*", &mut |value| {
        if value.is_null() {
            *value = Value::from("");
        }
    });
    let Some(Value::Object(strings)) = value::remove(secret, "stringData") else { return };
    if strings.is_empty() {
        return;
    }
    let Some(data) = object_mut(secret, "data") else { return };
    for (key, text) in strings {
        let encoded =
            base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default());
        data.insert(key, Value::from(encoded));
    }
}

/// Status of a node before its kubelet reports one.
const INITIAL_NODE_STATUS: &str = r#"{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"architecture":"","bootID":"",
    "containerRuntimeVersion":"","kernelVersion":"","kubeProxyVersion":"","kubeletVersion":"","machineID":"",
    "operatingSystem":"","osImage":"","systemUUID":""}}"#;

/// Sets the allocatable resources, and makes `podCIDR` and `podCIDRs` consistent. If they differ, `podCIDR`
/// applies.
///
/// Upstream: `SetDefaults_NodeStatus`, `Convert_v1_NodeSpec_To_core_NodeSpec`, `Convert_core_NodeSpec_To_v1_NodeSpec`.
fn node(node: &mut Value) {
    let first = list(node, "spec.podCIDRs").first().and_then(Value::as_str).unwrap_or_default();
    let (cidr, first) = (text(node, "spec.podCIDR").to_owned(), first.to_owned());
    if cidr.is_empty() && !first.is_empty() {
        value::set(node, "spec.podCIDR", first);
    } else if cidr != first {
        value::set(node, "spec.podCIDRs", vec![cidr]);
    }
    if is_empty(node, "status") {
        let status = serde_json::from_str::<Value>(INITIAL_NODE_STATUS).unwrap_or_default();
        value::set(node, "status", status);
    }
    if get(node, "status.allocatable").is_none()
        && let Some(capacity) = get(node, "status.capacity").cloned()
    {
        value::set(node, "status.allocatable", capacity);
    }
}

/// Sets the defaults of a LimitRange item for containers. The default limit is the maximum. The default request is
/// the default limit, or else the minimum.
///
/// Upstream: `SetDefaults_LimitRangeItem`.
fn limit_range_item(item: &mut Value) {
    if text(item, "type") != "Container" {
        return;
    }
    // The order matters: the default limit must be complete before the default request is derived from it.
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")]
    {
        let Some(source) = object(item, from).cloned() else { continue };
        let Some(target) = object_mut(item, to) else { continue };
        for (name, quantity) in source {
            target.entry(name).or_insert(quantity);
        }
    }
}
