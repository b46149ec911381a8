//! `Warning` headers for valid writes with effects that the client may not expect.

mod network;
mod objects;
mod pod;
mod service;

pub use objects::is_excluded_from_admission;

use crate::validation::dns_label;
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::value::{self, get, int, list, text};
use serde_json::Value;

/// Deprecated labels of nodes, each with the message of the warning.
const DEPRECATED_LABELS: &[(&str, &str)] = &[
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
];

/// Deprecated types of volumes, each with the message of the warning.
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

/// Deprecated annotation with the name of a StorageClass.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const CLASS_ANNOTATION_DEPRECATED: &str =
    "deprecated since v1.8; use \"storageClassName\" attribute instead";

/// Warning about a CSIDriver that requests tokens without `serviceAccountTokenInSecrets`.
const TOKENS_IN_SECRETS: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";

/// Returns the deprecation warning of a built-in kind. Each response to a request for the kind has it.
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

/// Returns the warnings about a new (`old` is `None`) or updated object.
///
/// Upstream: `GetWarningsForPod`, `WarningsOnCreate`.
pub fn warnings(group: &str, kind: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    let has_pods_named_after_it =
        matches!(kind, "ReplicationController" | "Deployment" | "ReplicaSet" | "Job" | "CronJob");
    if old.is_none() && has_pods_named_after_it {
        let violations = dns_label(text(object, "metadata.name"));
        if !violations.is_empty() {
            warnings.push(format!(
                "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
                 label is recommended: [{}]",
                violations.join(" ")
            ));
        }
    }
    let differs = |path: &str| old.is_none_or(|old| get(old, path) != get(object, path));
    match (group, kind) {
        ("", "Pod") if old.is_none() => pod::pod(object, &mut warnings),
        ("", "PodTemplate") => {
            template_if(differs("template"), object, "template", &mut warnings);
        }
        // Upstream warns about the template that an update replaces.
        ("", "ReplicationController") => {
            let owner = old.unwrap_or(object);
            template_if(is_respecified(object, old), owner, "spec.template", &mut warnings);
        }
        ("apps", "DaemonSet") => {
            template_if(differs("spec.template"), object, "spec.template", &mut warnings);
        }
        ("apps", _) => {
            template_if(is_respecified(object, old), object, "spec.template", &mut warnings);
            if kind == "StatefulSet" {
                objects::stateful_set(object, old.is_some(), &mut warnings);
            }
        }
        ("batch", "Job") if is_respecified(object, old) => {
            warn_about_indexed_job(object, "spec", &mut warnings);
            pod::template(object, "spec.template", &mut warnings);
        }
        ("batch", "CronJob") if is_respecified(object, old) => {
            warn_about_indexed_job(object, "spec.jobTemplate.spec", &mut warnings);
            pod::template(object, "spec.jobTemplate.spec.template", &mut warnings);
        }
        ("storage.k8s.io", "CSIDriver") => {
            let requests = list(object, "spec.tokenRequests");
            let are_changed = old.is_none_or(|old| list(old, "spec.tokenRequests") != requests);
            if !requests.is_empty()
                && are_changed
                && get(object, "spec.serviceAccountTokenInSecrets").is_none()
            {
                warnings.push(TOKENS_IN_SECRETS.to_owned());
            }
        }
        ("", "PersistentVolume") => persistent_volume(object, &mut warnings),
        ("", "PersistentVolumeClaim") => persistent_volume_claim(object, &mut warnings),
        ("", "Service") => service::service(object, &mut warnings),
        ("", "Node") => objects::node(object, &mut warnings),
        ("", "Endpoints") => network::endpoints(object, &mut warnings),
        ("", "ResourceQuota") if old.is_none() => objects::resource_quota(object, &mut warnings),
        ("networking.k8s.io", "Ingress")
            if old.is_none()
                && annotation(object, "kubernetes.io/ingress.class").is_some()
                && get(object, "spec.ingressClassName").is_none() =>
        {
            warnings.push(
                    "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
                        .to_owned(),
                );
        }
        ("networking.k8s.io", "NetworkPolicy") => network::policy(object, &mut warnings),
        ("discovery.k8s.io", "EndpointSlice") => {
            network::endpoint_slice(object, old.is_none(), &mut warnings);
        }
        ("node.k8s.io", "RuntimeClass") => objects::runtime_class(object, &mut warnings),
        ("storage.k8s.io", "StorageClass") => objects::storage_class(object, &mut warnings),
        ("storage.k8s.io", "CSIStorageCapacity") => {
            objects::storage_capacity(object, &mut warnings);
        }
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => objects::webhooks(object, &mut warnings),
        ("resource.k8s.io", "ResourceSlice") => {
            let driver = text(object, "spec.driver");
            if driver != driver.to_lowercase() {
                warnings.push(format!(
                    "spec.driver: driver names should be lowercase; {driver:?} contains uppercase characters"
                ));
            }
        }
        _ => {}
    }
    warnings
}

/// Returns the warnings about an update of the `status` of an object.
pub fn status_warnings(kind: &str, object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    network::status(kind, object, &mut warnings);
    warnings
}

/// Warns about an object's pod template if `is_warned` is true.
fn template_if(is_warned: bool, object: &Value, path: &str, warnings: &mut Vec<String>) {
    if is_warned {
        pod::template(object, path, warnings);
    }
}

/// Returns whether an object is new, or has a change that increments its generation.
fn is_respecified(object: &Value, old: Option<&Value>) -> bool {
    old.is_none_or(|old| get(old, "metadata.generation") != get(object, "metadata.generation"))
}

/// Warns about an Indexed Job whose failed indexes may become too many to track.
///
/// Upstream: `WarningsForJobSpec`.
fn warn_about_indexed_job(object: &Value, path: &str, warnings: &mut Vec<String>) {
    const MANY_COMPLETIONS: i64 = 100_000;
    const MANY_PODS: i64 = 10_000;
    let number = |field: &str| int(object, &format!("{path}.{field}")).unwrap_or_default();
    if text(object, &format!("{path}.completionMode")) == "Indexed"
        && number("completions") > MANY_COMPLETIONS
        && number("parallelism") > MANY_PODS
    {
        warnings.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
}

/// Warns about deprecated annotations, the reclaim policy `Recycle`, and deprecated node labels in the node affinity.
///
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
            let path = format!("{terms}[{term_index}].matchExpressions[{index}].key");
            warn_about_deprecated_label(&path, text(expression, "key"), warnings);
        }
    }
    for (source, path) in [
        ("cephfs", "cephfs"),
        ("photonPersistentDisk", "photonPersistentDisk"),
        ("scaleIO", "scaleIO"),
        // Upstream's path has this capitalization.
        ("storageos", "storageOS"),
        ("glusterfs", "glusterfs"),
        ("rbd", "rbd"),
    ] {
        if get(volume, &format!("spec.{source}")).is_none() {
            continue;
        }
        let deprecation = DEPRECATED_VOLUMES.iter().find(|(volume_type, _)| *volume_type == source);
        if let Some((_, warning)) = deprecation {
            warnings.push(format!("spec.{path}: {warning}"));
        }
    }
}

/// Warns about the deprecated storage class annotation, and about storage amounts with a fraction of a byte.
///
/// Upstream: `GetWarningsForPersistentVolumeClaim`.
fn persistent_volume_claim(claim: &Value, warnings: &mut Vec<String>) {
    if annotation(claim, CLASS_ANNOTATION).is_some() {
        warnings.push(format!(
            "metadata.annotations[{CLASS_ANNOTATION}]: {CLASS_ANNOTATION_DEPRECATED}"
        ));
    }
    for field in ["requests", "limits"] {
        let amount = get(claim, &format!("spec.resources.{field}.storage"));
        warn_about_fractional_bytes(&format!("spec.resources.{field}[storage]"), amount, warnings);
    }
}

/// Returns the value of the object's annotation `key`.
fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    value::object(object, "metadata.annotations")?.get(key)
}

/// Returns the warning about a label, if it is deprecated.
fn deprecation_of_label(key: &str) -> Option<&'static str> {
    DEPRECATED_LABELS.iter().find(|(label, _)| *label == key).map(|(_, message)| *message)
}

/// Warns if the label `key` is deprecated.
fn warn_about_deprecated_label(path: &str, key: &str, warnings: &mut Vec<String>) {
    if let Some(message) = deprecation_of_label(key) {
        warnings.push(format!("{path}: {key} is {message}"));
    }
}

/// Warns about a number of bytes that is not an integer.
fn warn_about_fractional_bytes(path: &str, amount: Option<&Value>, warnings: &mut Vec<String>) {
    if let Some(value) = amount
        && Amount::of(value).is_some_and(|amount| !amount.is_whole())
    {
        let text = value.as_str().unwrap_or_default();
        warnings
            .push(format!("{path}: fractional byte value {text:?} is invalid, must be an integer"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn volumes_and_claims_warn_about_deprecated_fields_and_fractional_bytes() {
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
            let path_of = |warning: &String| {
                let (path, _) = warning.split_once(": ").expect("a path and a message");
                path.to_owned()
            };
            let paths: Vec<String> = found.iter().map(path_of).collect();
            assert_eq!(paths, expected, "{object}");
        }
    }
}
