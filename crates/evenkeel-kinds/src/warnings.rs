//! `Warning` headers for valid writes that do not do what the client may expect.

pub use crate::validation::dns_label;
use evenkeel_apimachinery::amount::Amount;
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

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const CLASS_ANNOTATION_DEPRECATED: &str =
    "deprecated since v1.8; use \"storageClassName\" attribute instead";

/// Recommends `serviceAccountTokenInSecrets` to a CSIDriver that asks for tokens.
const TOKENS_IN_SECRETS: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";

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
        ("storage.k8s.io", "CSIDriver") => {
            let requests = |driver: &Value| list(driver, "spec.tokenRequests").to_vec();
            let has_new = !requests(object).is_empty()
                && old.is_none_or(|old| requests(old) != requests(object));
            if has_new && get(object, "spec.serviceAccountTokenInSecrets").is_none() {
                warnings.push(TOKENS_IN_SECRETS.to_owned());
            }
        }
        ("", "PersistentVolume") => persistent_volume(object, &mut warnings),
        ("", "PersistentVolumeClaim") => persistent_volume_claim(object, &mut warnings),
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

/// Upstream: `GetWarningsForPersistentVolume`.
fn persistent_volume(volume: &Value, warnings: &mut Vec<String>) {
    for (key, message) in [
        (CLASS_ANNOTATION, CLASS_ANNOTATION_DEPRECATED),
        (
            "volume.beta.kubernetes.io/mount-options",
            "deprecated since v1.31; use \"mountOptions\" attribute instead",
        ),
    ] {
        if annotation(volume, key).is_some() {
            warnings.push(format!("metadata.annotations[{key}]: {message}"));
        }
    }
    if text(volume, "spec.persistentVolumeReclaimPolicy") == "Recycle" {
        warnings.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
    }
    let terms = "spec.nodeAffinity.required.nodeSelectorTerms";
    for (term_index, term) in list(volume, terms).iter().enumerate() {
        for (index, expression) in list(term, "matchExpressions").iter().enumerate() {
            let key = text(expression, "key");
            for (_, since, new) in DEPRECATED_LABELS.iter().filter(|(old, ..)| *old == key) {
                warnings.push(format!(
                    "{terms}[{term_index}].matchExpressions[{index}].key: {key} is deprecated since {since}; use \"{new}\" instead"
                ));
            }
        }
    }
    for (source, path) in [
        ("cephfs", "cephfs"),
        ("photonPersistentDisk", "photonPersistentDisk"),
        ("scaleIO", "scaleIO"),
        // The path has upstream's case.
        ("storageos", "storageOS"),
        ("glusterfs", "glusterfs"),
        ("rbd", "rbd"),
    ] {
        if get(volume, &format!("spec.{source}")).is_none() {
            continue;
        }
        for (_, words) in DEPRECATED_VOLUMES.iter().filter(|(kind, _)| *kind == source) {
            warnings.push(format!("spec.{path}: {words}"));
        }
    }
}

/// Upstream: `GetWarningsForPersistentVolumeClaim`.
fn persistent_volume_claim(claim: &Value, warnings: &mut Vec<String>) {
    if annotation(claim, CLASS_ANNOTATION).is_some() {
        warnings.push(format!(
            "metadata.annotations[{CLASS_ANNOTATION}]: {CLASS_ANNOTATION_DEPRECATED}"
        ));
    }
    for field in ["requests", "limits"] {
        let Some(amount) = get(claim, &format!("spec.resources.{field}.storage")) else { continue };
        if Amount::of(amount).is_some_and(|amount| !amount.is_whole()) {
            let text = amount.as_str().unwrap_or_default();
            warnings.push(format!(
                "spec.resources.{field}[storage]: fractional byte value {text:?} is invalid, must be an integer"
            ));
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn volumes_and_claims_warn_of_what_is_deprecated_or_fractional() {
        let annotated = json!({"annotations": {CLASS_ANNOTATION: "a"}});
        let term = json!({"matchExpressions": [{"key": "beta.kubernetes.io/os"}]});
        let table: [(&str, Value, &[&str]); 5] = [
            ("PersistentVolume", json!({"spec": {"nfs": {}}}), &[]),
            (
                "PersistentVolume",
                json!({"metadata": annotated, "spec": {"storageos": {}, "persistentVolumeReclaimPolicy": "Recycle"}}),
                &[
                    "metadata.annotations[volume.beta.kubernetes.io/storage-class]",
                    "spec.persistentVolumeReclaimPolicy",
                    "spec.storageOS",
                ],
            ),
            (
                "PersistentVolume",
                json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}}),
                &["spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key"],
            ),
            (
                "PersistentVolumeClaim",
                json!({"metadata": annotated, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}),
                &["metadata.annotations[volume.beta.kubernetes.io/storage-class]"],
            ),
            (
                "PersistentVolumeClaim",
                json!({"spec": {"resources": {"requests": {"storage": "1500m"}, "limits": {"storage": "1500m"}}}}),
                &["spec.resources.requests[storage]", "spec.resources.limits[storage]"],
            ),
        ];
        for (kind, object, expected) in table {
            let found = warnings("", kind, &object, None);
            let paths: Vec<&str> =
                found.iter().filter_map(|text| Some(text.split_once(": ")?.0)).collect();
            assert_eq!(paths, expected, "{object}");
        }
    }
}
