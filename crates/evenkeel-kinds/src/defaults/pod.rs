//! Defaults of pods and pod templates.
//!
//! Upstream: `k8s.io/kubernetes/pkg/apis/core/v1/defaults.go`.

use super::Fill::{Flag, Int, Object, Optional, Positive, Text};
use super::{Table, fill, image};
use evenkeel_apimachinery::value::{self, each, flag, get, object, object_mut, text};
use serde_json::{Value, json};

const SPEC: Table = &[
    ("dnsPolicy", Text("ClusterFirst")),
    ("restartPolicy", Text("Always")),
    ("securityContext", Object),
    ("terminationGracePeriodSeconds", Int(30)),
    ("schedulerName", Text("default-scheduler")),
];

const CONTAINER: Table = &[
    ("resources", Object),
    ("terminationMessagePath", Text("/dev/termination-log")),
    ("terminationMessagePolicy", Text("File")),
    ("ports.*.protocol", Text("TCP")),
    ("env.*.valueFrom?.fieldRef?.apiVersion", Text("v1")),
    ("env.*.valueFrom?.resourceFieldRef?.divisor", Optional("0")),
    ("env.*.valueFrom?.fileKeyRef?.optional", Flag(false)),
    ("lifecycle?.postStart?.httpGet?.path", Text("/")),
    ("lifecycle?.postStart?.httpGet?.scheme", Text("HTTP")),
    ("lifecycle?.preStop?.httpGet?.path", Text("/")),
    ("lifecycle?.preStop?.httpGet?.scheme", Text("HTTP")),
];

const PROBE: Table = &[
    ("timeoutSeconds", Positive(1)),
    ("periodSeconds", Positive(10)),
    ("successThreshold", Positive(1)),
    ("failureThreshold", Positive(3)),
    ("httpGet?.path", Text("/")),
    ("httpGet?.scheme", Text("HTTP")),
    ("grpc?.service", Optional("")),
];

/// Defaults that volumes of pods share with persistent volumes.
pub(super) const VOLUME_SOURCE: Table = &[
    ("hostPath?.type", Optional("")),
    ("iscsi?.iscsiInterface", Text("default")),
    ("rbd?.pool", Text("rbd")),
    ("rbd?.user", Text("admin")),
    ("rbd?.keyring", Text("/etc/ceph/keyring")),
    ("azureDisk?.cachingMode", Optional("ReadWrite")),
    ("azureDisk?.fsType", Optional("ext4")),
    ("azureDisk?.readOnly", Flag(false)),
    ("azureDisk?.kind", Optional("Shared")),
    ("scaleIO?.storageMode", Text("ThinProvisioned")),
    ("scaleIO?.fsType", Text("xfs")),
];

const VOLUME: Table = &[
    ("secret?.defaultMode", Int(0o644)),
    ("configMap?.defaultMode", Int(0o644)),
    ("downwardAPI?.defaultMode", Int(0o644)),
    ("downwardAPI?.items.*.fieldRef?.apiVersion", Text("v1")),
    ("downwardAPI?.items.*.resourceFieldRef?.divisor", Optional("0")),
    ("projected?.defaultMode", Int(0o644)),
    ("projected?.sources.*.serviceAccountToken?.expirationSeconds", Int(3600)),
    ("projected?.sources.*.downwardAPI?.items.*.fieldRef?.apiVersion", Text("v1")),
    ("projected?.sources.*.downwardAPI?.items.*.resourceFieldRef?.divisor", Optional("0")),
    ("ephemeral?.volumeClaimTemplate?.spec.volumeMode", Optional("Filesystem")),
];

const CONTAINER_LISTS: [&str; 3] = ["containers.*", "initContainers.*", "ephemeralContainers.*"];
const PROBES: [&str; 3] = ["livenessProbe?", "readinessProbe?", "startupProbe?"];

/// Sets the defaults of a pod spec in a pod or a template.
///
/// Upstream: `SetDefaults_PodSpec`.
pub(crate) fn pod_spec(spec: &mut Value) {
    if spec.is_null() {
        *spec = json!({});
    }
    if !spec.is_object() {
        return;
    }
    service_account(spec);
    fill(spec, SPEC);
    for containers in CONTAINER_LISTS {
        each(spec, containers, &mut container);
    }
    each(spec, "volumes.*", &mut volume);
}

/// Sets the defaults that only pods have. Pod templates do not get these defaults: a later default would change stored
/// templates.
///
/// Upstream: `SetDefaults_Pod`.
pub(super) fn pod(pod: &mut Value) {
    fill(pod, &[("spec.enableServiceLinks", Flag(true))]);
    let Some(spec) = pod.get_mut("spec") else { return };
    pod_spec(spec);
    if value::int(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        value::set(spec, "terminationGracePeriodSeconds", 1);
    }
    let host_network = flag(spec, "hostNetwork");
    for containers in ["containers.*", "initContainers.*"] {
        each(spec, containers, &mut |container| {
            requests_from_limits(container);
            if host_network {
                each(container, "ports.*", &mut host_port);
            }
        });
    }
    pod_ips(pod);
}

/// Keeps the deprecated `serviceAccount` equal to `serviceAccountName`. If both are set, `serviceAccountName`
/// applies.
fn service_account(spec: &mut Value) {
    if text(spec, "serviceAccountName").is_empty() && !text(spec, "serviceAccount").is_empty() {
        value::set(spec, "serviceAccountName", text(spec, "serviceAccount").to_owned());
    }
    let name = text(spec, "serviceAccountName").to_owned();
    if !name.is_empty() {
        value::set(spec, "serviceAccount", name);
    }
}

/// Sets the defaults of a container: image pull policy, fields in `CONTAINER`, and those of its probes.
///
/// Upstream: `SetDefaults_Container`.
fn container(container: &mut Value) {
    if !container.is_object() {
        return;
    }
    if text(container, "imagePullPolicy").is_empty() {
        let policy = pull_policy(text(container, "image"));
        value::set(container, "imagePullPolicy", policy);
    }
    fill(container, CONTAINER);
    for probe in PROBES {
        each(container, probe, &mut |probe| fill(probe, PROBE));
    }
}

/// Sets the default source of a volume: an `emptyDir`.
///
/// Upstream: `SetDefaults_Volume`.
fn volume(volume: &mut Value) {
    let Some(fields) = volume.as_object_mut() else { return };
    let has_source = fields.iter().any(|(name, value)| name != "name" && !value.is_null());
    if !has_source {
        fields.insert("emptyDir".to_owned(), json!({}));
    }
    fill(volume, VOLUME);
    fill(volume, VOLUME_SOURCE);
    if get(volume, "image").is_some() && text(volume, "image.pullPolicy").is_empty() {
        let policy = pull_policy(text(volume, "image.reference"));
        value::set(volume, "image.pullPolicy", policy);
    }
}

/// Returns `Always` for an image with the tag `latest` or without a tag, else `IfNotPresent`.
///
/// Upstream: `SetDefaults_Container`.
pub(crate) fn pull_policy(image: &str) -> &'static str {
    if image::tag(image) == Some("latest") { "Always" } else { "IfNotPresent" }
}

/// Sets absent requests of a container to its limits.
fn requests_from_limits(container: &mut Value) {
    let Some(limits) = object(container, "resources.limits").cloned() else { return };
    let Some(requests) = object_mut(container, "resources.requests") else { return };
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// Sets an absent host port to the container port, in a pod with host network.
fn host_port(port: &mut Value) {
    if value::int(port, "hostPort").unwrap_or_default() == 0
        && let Some(number) = value::int(port, "containerPort")
    {
        value::set(port, "hostPort", number);
    }
}

/// Keeps `status.podIP` equal to the first of `status.podIPs`. If they differ, `podIP` applies.
fn pod_ips(pod: &mut Value) {
    let ip = text(pod, "status.podIP").to_owned();
    let first = value::list(pod, "status.podIPs").first().map(|first| text(first, "ip").to_owned());
    match (first, ip.is_empty()) {
        (Some(first), true) => value::set(pod, "status.podIP", first),
        (None, true) => {}
        (Some(first), false) if first == ip => {}
        (_, false) => value::set(pod, "status.podIPs", json!([{ "ip": ip }])),
    }
}
