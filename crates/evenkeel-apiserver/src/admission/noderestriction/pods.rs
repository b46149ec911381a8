//! Checks of writes to pods: a node may create its own mirror pods, and may delete, evict and update the status of the
//! pods that run on it.

use serde_json::Value;

use super::write::{Refusal, Write};
use crate::admission::attributes::Operation;
use crate::auth::{MIRROR_ANNOTATION, refers_to_any};
use evenkeel_apimachinery::status::quote;
use evenkeel_apimachinery::value::{flag, get, list, object, same, same_meaning, text};

/// Checks a node's write to a pod or one of its subresources.
pub(super) fn admit(write: &Write<'_>) -> Result<(), Refusal> {
    match write.cx.subresource {
        "" => check_pod(write),
        "status" => check_status(write),
        "eviction" => check_eviction(write),
        subresource => {
            let subresource = quote(subresource);
            Err(format!(
                "unexpected pod subresource {subresource}, only 'status' and 'eviction' are allowed"
            )
            .into())
        }
    }
}

/// Checks a write to the pod itself.
///
/// Upstream: `admitPod`.
fn check_pod(write: &Write<'_>) -> Result<(), Refusal> {
    let node = write.quoted_node();
    match write.operation {
        Operation::Create => check_creation(write),
        Operation::Delete if text(write.old, "spec.nodeName") == write.node => Ok(()),
        Operation::Delete => {
            Err(format!("node {node} can only delete pods with spec.nodeName set to itself").into())
        }
        Operation::Update | Operation::Connect => Err(format!(
            "{}, node {node} can only create and delete mirror pods",
            write.unexpected_operation()
        )
        .into()),
    }
}

/// Checks that a new pod is a mirror pod of the node that refers to no other objects.
///
/// Upstream: `admitPodCreate`.
fn check_creation(write: &Write<'_>) -> Result<(), Refusal> {
    let (node, pod) = (write.quoted_node(), write.object);
    if !is_mirror(pod) {
        return Err(format!(
            "pod does not have {MIRROR_ANNOTATION:?} annotation, node {node} can only create mirror pods"
        )
        .into());
    }
    if text(pod, "spec.nodeName") != write.node {
        return Err(
            format!("node {node} can only create pods with spec.nodeName set to itself").into()
        );
    }
    check_owner(write)?;
    match object_reference(pod)? {
        Some(resource) => {
            Err(format!("node {node} can not create pods that reference {resource}").into())
        }
        None => Ok(()),
    }
}

/// Returns whether the pod is a mirror pod: the API object of a node's static pod.
pub(super) fn is_mirror(pod: &Value) -> bool {
    object(pod, "metadata.annotations")
        .is_some_and(|annotations| annotations.contains_key(MIRROR_ANNOTATION))
}

/// Checks that the node is the only owner of its mirror pod, so that the pod is deleted with the node.
fn check_owner(write: &Write<'_>) -> Result<(), Refusal> {
    let node = write.quoted_node();
    let owner = match list(write.object, "metadata.ownerReferences") {
        [owner] => owner,
        [] => {
            return Err(format!(
                "node {node} can only create pods with an owner reference set to itself"
            )
            .into());
        }
        _ => {
            return Err(format!(
                "node {node} can only create pods with a single owner reference set to itself"
            )
            .into());
        }
    };
    let own_node = ("v1", "Node", write.node);
    if (text(owner, "apiVersion"), text(owner, "kind"), text(owner, "name")) != own_node {
        return Err(format!(
            "node {node} can only create pods with an owner reference set to itself"
        )
        .into());
    }
    if !flag(owner, "controller") {
        return Err(format!(
            "node {node} can only create pods with a controller owner reference set to itself"
        )
        .into());
    }
    if flag(owner, "blockOwnerDeletion") {
        return Err(
            format!("node {node} must not set blockOwnerDeletion on an owner reference").into()
        );
    }
    let stored = write.stored_object("nodes", "node", "", write.node)?;
    let (referred_uid, uid) = (text(owner, "uid"), text(&stored, "metadata.uid"));
    if referred_uid != uid {
        let node = write.node;
        return Err(format!("node {node} UID mismatch: expected {referred_uid} got {uid}").into());
    }
    Ok(())
}

/// Volume sources that refer to no API object.
const PLAIN_SOURCES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// Volume sources that refer to an API object, with that object's resource.
const REFERRING_SOURCES: [(&str, &str); 7] = [
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];

/// Sources of projected volumes that refer to an API object, with that object's resource.
const PROJECTED_SOURCES: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// Returns the resource of an API object that the pod refers to; `None` if it refers to no object. A node must not gain
/// access to objects by creating a pod that refers to them.
///
/// Upstream: `HasAPIObjectReference`.
fn object_reference(pod: &Value) -> Result<Option<&'static str>, Refusal> {
    let account_fields = ["spec.serviceAccountName", "spec.serviceAccount"];
    if account_fields.into_iter().any(|field| !text(pod, field).is_empty()) {
        return Ok(Some("serviceaccounts"));
    }
    for resource in ["secrets", "configmaps"] {
        if refers_to_any(pod, resource) {
            return Ok(Some(resource));
        }
    }
    if !list(pod, "spec.resourceClaims").is_empty() {
        return Ok(Some("resourceclaims"));
    }
    for volume in list(pod, "spec.volumes") {
        if let Some(resource) = volume_reference(volume)? {
            return Ok(Some(resource));
        }
    }
    Ok(None)
}

/// Returns the resource of an API object that the volume refers to; `None` if it refers to no object.
fn volume_reference(volume: &Value) -> Result<Option<&'static str>, Refusal> {
    let has = |field: &str| get(volume, field).is_some();
    let name = || quote(text(volume, "name"));
    if let Some((_, resource)) = REFERRING_SOURCES.iter().find(|(field, _)| has(field)) {
        return Ok(Some(resource));
    }
    if !has("projected") {
        let is_known = PLAIN_SOURCES.into_iter().any(has);
        return if is_known {
            Ok(None)
        } else {
            Err(format!("unknown volume type for volume  {}", name()).into())
        };
    }
    for source in list(volume, "projected.sources") {
        if let Some((_, resource)) =
            PROJECTED_SOURCES.iter().find(|(field, _)| get(source, field).is_some())
        {
            return Ok(Some(resource));
        }
        if get(source, "downwardAPI").is_none() {
            return Err(format!("unknown source for projected volume {}", name()).into());
        }
    }
    Ok(None)
}

/// Checks an update of a pod's status.
///
/// Upstream: `admitPodStatus`.
fn check_status(write: &Write<'_>) -> Result<(), Refusal> {
    let (node, old, new) = (write.quoted_node(), write.old, write.object);
    if write.operation != Operation::Update {
        return Err(write.unexpected_operation().into());
    }
    if text(old, "spec.nodeName") != write.node {
        return Err(format!(
            "node {node} can only update pod status for pods with spec.nodeName set to itself"
        )
        .into());
    }
    if !same(get(old, "metadata.labels"), get(new, "metadata.labels")) {
        return Err(format!("node {node} cannot update labels through pod status").into());
    }
    let claims = |pod: &Value| -> Vec<(Value, Value)> {
        let claims = list(pod, "status.resourceClaimStatuses").iter();
        claims.map(|claim| (claim["name"].clone(), claim["resourceClaimName"].clone())).collect()
    };
    if claims(old) != claims(new) {
        return Err(format!("node {node} cannot update resource claim statues").into());
    }
    let [old_extended, new_extended] = [old, new]
        .map(|pod| get(pod, "status.extendedResourceClaimStatus").cloned().unwrap_or_default());
    if !same_meaning(&old_extended, &new_extended) {
        return Err(format!("node {node} cannot update extended resource claim status").into());
    }
    Ok(())
}

/// Checks that a node evicts only pods that run on it.
///
/// Upstream: `admitPodEviction`.
fn check_eviction(write: &Write<'_>) -> Result<(), Refusal> {
    if write.operation != Operation::Create {
        return Err(format!("unexpected operation {}", write.operation.as_str()).into());
    }
    let pod = write.pod(write.cx.name)?;
    if text(&pod, "spec.nodeName") != write.node {
        let node = write.node;
        return Err(
            format!("node {node} can only evict pods with spec.nodeName set to itself").into()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_reference_to_another_object_is_found() {
        let with = |path: &str, value: Value| {
            let mut pod = json!({"spec": {"containers": [{"name": "c"}]}});
            evenkeel_apimachinery::value::set(&mut pod, path, value);
            match object_reference(&pod) {
                Ok(resource) => resource.map(str::to_owned),
                Err(Refusal::Forbidden(why)) => Some(why),
                Err(Refusal::Other(error)) => Some(error.message().to_owned()),
            }
        };
        let volume = |source: Value| {
            let mut volume = source;
            volume["name"] = json!("v");
            with("spec.volumes", json!([volume]))
        };
        let container = |field: &str, value: Value| with(&format!("spec.{field}"), json!([value]));
        let found = |resource: &str| Some(resource.to_owned());
        assert_eq!(with("spec.serviceAccountName", json!("sa")), found("serviceaccounts"));
        assert_eq!(with("spec.serviceAccount", json!("sa")), found("serviceaccounts"));
        assert_eq!(with("spec.imagePullSecrets", json!([{"name": "s"}])), found("secrets"));
        assert_eq!(with("spec.resourceClaims", json!([{"name": "r"}])), found("resourceclaims"));
        for containers in ["containers", "initContainers", "ephemeralContainers"] {
            for (source, resource) in [
                (json!({"env": [{"valueFrom": {"secretKeyRef": {"name": "s"}}}]}), "secrets"),
                (json!({"envFrom": [{"secretRef": {"name": "s"}}]}), "secrets"),
                (json!({"env": [{"valueFrom": {"configMapKeyRef": {"name": "s"}}}]}), "configmaps"),
                (json!({"envFrom": [{"configMapRef": {"name": "s"}}]}), "configmaps"),
            ] {
                assert_eq!(container(containers, source.clone()), found(resource), "{source}");
            }
        }
        for (source, resource) in [
            (json!({"secret": {"secretName": "s"}}), Some("secrets")),
            (json!({"secret": {}}), Some("secrets (via secret volumes)")),
            (json!({"cephfs": {"secretRef": {"name": "s"}}}), Some("secrets")),
            (json!({"azureFile": {"secretName": "s"}}), Some("secrets")),
            (json!({"configMap": {"name": "m"}}), Some("configmaps")),
            (json!({"persistentVolumeClaim": {"claimName": "c"}}), Some("persistentvolumeclaims")),
            (json!({"ephemeral": {}}), Some("persistentvolumeclaims (via ephemeral volumes)")),
            (json!({"csi": {"driver": "d"}}), Some("csidrivers (via CSI volumes)")),
            (json!({"glusterfs": {"endpoints": "e"}}), Some("endpoints (via glusterFS volumes)")),
            (json!({"projected": {"sources": [{"secret": {"name": "s"}}]}}), Some("secrets")),
            (
                json!({"projected": {"sources": [{"downwardAPI": {}}, {"serviceAccountToken": {"path": "p"}}]}}),
                Some("serviceaccounts (via projected volumes)"),
            ),
            (
                json!({"projected": {"sources": [{"clusterTrustBundle": {"path": "p"}}]}}),
                Some("clustertrustbundles"),
            ),
            (json!({"projected": {"sources": [{"podCertificate": {}}]}}), Some("podcertificates")),
            (
                json!({"projected": {"sources": [{"another": {}}]}}),
                Some("unknown source for projected volume \"v\""),
            ),
            (json!({"another": {}}), Some("unknown volume type for volume  \"v\"")),
            (json!({"projected": {"sources": [{"downwardAPI": {}}]}}), None),
            (json!({"hostPath": {"path": "/"}}), None),
            (json!({"emptyDir": {}}), None),
        ] {
            assert_eq!(volume(source.clone()), resource.map(str::to_owned), "{source}");
        }
    }
}
