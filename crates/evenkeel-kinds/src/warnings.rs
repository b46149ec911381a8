//! `Warning` headers for valid writes that do not do what the client may expect.

pub use crate::validation::dns_label;
use evenkeel_apimachinery::value::{get, int, list, object, text};
use serde_json::Value;
use std::collections::BTreeMap;

const DEPRECATED_LABELS: &[(&str, &str, &str)] = &[
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
    ("beta.kubernetes.io/instance-type", "v1.17", "node.kubernetes.io/instance-type"),
];
const DEPRECATED_VOLUMES: &[(&str, &str)] = &[
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Returns the warning of a deprecated built-in kind, which every request for it gets.
///
/// Upstream: `APILifecycleDeprecated`.
pub fn deprecation_warning(group: &str, kind: &str) -> Option<&'static str> {
    match (group, kind) {
        ("", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        ("", "Endpoints") => {
            Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
        }
        _ => None,
    }
}

/// Returns the warnings about a created (no `old`) or updated object.
///
/// Upstream: `GetWarningsForPod`, `WarningsOnCreate`.
pub fn warnings(group: &str, kind: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    match (group, kind) {
        ("", "Pod") if old.is_none() => pod(object, &mut warnings),
        ("", "PodTemplate") => template(object, "template", old, &mut warnings),
        ("", "ReplicationController") | ("apps", _) => {
            template(object, "spec.template", old, &mut warnings);
        }
        ("batch", "Job") => template(object, "spec.template", old, &mut warnings),
        ("batch", "CronJob") => {
            template(object, "spec.jobTemplate.spec.template", old, &mut warnings);
        }
        ("", "Service") => {
            if !list(object, "spec.externalIPs").is_empty() {
                warnings.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
            }
            if !text(object, "spec.loadBalancerIP").is_empty() {
                warnings.push("spec.loadBalancerIP is deprecated".to_owned());
            }
        }
        ("networking.k8s.io", "Ingress")
            if old.is_none() && annotation(object, "kubernetes.io/ingress.class").is_some() =>
        {
            warnings.push(
                    "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
                        .to_owned(),
                );
        }
        ("discovery.k8s.io", "EndpointSlice") if text(object, "addressType") == "FQDN" => {
            warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        _ => {}
    }
    warnings
}

fn annotation<'a>(target: &'a Value, key: &str) -> Option<&'a Value> {
    object(target, "metadata.annotations")?.get(key)
}

fn pod(pod: &Value, warnings: &mut Vec<String>) {
    let name = text(pod, "metadata.name");
    let messages = dns_label(name);
    if !messages.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is \
             recommended: [{}]",
            messages.join(" ")
        ));
    }
    if let Some(spec) = pod.get("spec") {
        pod_spec(spec, "spec", warnings);
    }
}

/// Warns about a pod template on create, and when it changes.
///
/// Upstream: `GetWarningsForPodTemplate`.
fn template(object: &Value, path: &str, old: Option<&Value>, warnings: &mut Vec<String>) {
    let Some(template) = get(object, path) else { return };
    if old.is_some_and(|old| get(old, path) == Some(template)) {
        return;
    }
    if let Some(spec) = get(template, "spec") {
        pod_spec(spec, &format!("{path}.spec"), warnings);
    }
}

/// Upstream: `warningsForPodSpecAndMeta`.
fn pod_spec(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    for (old, since, new) in DEPRECATED_LABELS {
        if object(spec, "nodeSelector").is_some_and(|labels| labels.contains_key(*old)) {
            warnings.push(format!(
                "{path}.nodeSelector[{old}]: deprecated since {since}; use \"{new}\" instead"
            ));
        }
    }
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        for (kind, words) in DEPRECATED_VOLUMES {
            if get(volume, kind).is_some() {
                warnings.push(format!("{path}.volumes[{index}].{kind}: {words}"));
            }
        }
    }
    for containers in ["initContainers", "containers"] {
        for (index, container) in list(spec, containers).iter().enumerate() {
            self::container(container, &format!("{path}.{containers}[{index}]"), warnings);
        }
    }
    if int(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        warnings.push(format!("{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"));
    }
}

fn container(container: &Value, path: &str, warnings: &mut Vec<String>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, variable) in list(container, "env").iter().enumerate() {
        let name = text(variable, "name");
        if seen.insert(name, index).is_some() {
            warnings.push(format!(
                "{path}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
    let mut ports: BTreeMap<(i64, &str), usize> = BTreeMap::new();
    for (index, port) in list(container, "ports").iter().enumerate() {
        let key = (int(port, "containerPort").unwrap_or_default(), text(port, "protocol"));
        match ports.get(&key) {
            Some(first) => {
                warnings.push(format!(
                    "{path}.ports[{index}]: duplicate port definition with {path}.ports[{first}]"
                ));
            }
            None => {
                ports.insert(key, index);
            }
        }
    }
}
