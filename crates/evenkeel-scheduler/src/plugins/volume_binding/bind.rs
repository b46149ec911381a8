//! Patches of volumes and claims in PreBind, and the check that the claims are bound.

use super::{AssumedPodVolumes, Observed, find};
use crate::plugins::volumes::{VolumeListers, not_found};
use evenkeel_api::{
    Text, View,
    views::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
};
use evenkeel_component_helpers::storage::volume;
use serde_json::{Value, json};

/// A written object with its new resource version.
pub(super) struct WrittenObject {
    namespace: Text,
    name: Text,
    version: u64,
}

impl WrittenObject {
    pub(super) fn new<V: View>(object: &V, version: u64) -> Self {
        let meta = object.meta();
        Self { namespace: meta.namespace.clone(), name: meta.name.clone(), version }
    }
}

/// Objects that PreBind wrote for a pod.
#[derive(Default)]
pub(super) struct WrittenObjects {
    /// Volumes of the bindings, in order.
    pub(super) volumes: Vec<WrittenObject>,
    /// Claims to provision.
    pub(super) claims: Vec<WrittenObject>,
}

/// Returns the patch that binds the volume to the claim.
pub(super) fn claim_ref_patch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Value {
    let mut change = json!({"spec": {"claimRef": volume::claim_reference(claim)}});
    if !volume::is_for_claim(volume, claim) {
        change["metadata"] = json!({"annotations": {volume::BOUND_BY_CONTROLLER: "yes"}});
    }
    change
}

/// Returns the patch that sets the annotation `selected-node` for the provisioner, or `None` if the claim already has
/// it.
pub(super) fn selected_node_patch(claim: &PersistentVolumeClaim, node: &str) -> Option<Value> {
    let is_set = claim.meta.annotations.get(volume::SELECTED_NODE) == Some(node);
    (!is_set).then(|| json!({"metadata": {"annotations": {volume::SELECTED_NODE: node}}}))
}

/// Returns whether all claims are bound.
///
/// # Errors
///
/// Fails if a claim can no longer be bound: an object was deleted, the volume is not accessible from the node, or the
/// provisioner failed.
///
/// Upstream: `checkBindings`.
pub(super) fn check_bindings(
    observed: &Observed,
    pod: &Pod,
    assumed_volumes: &AssumedPodVolumes,
    written: &WrittenObjects,
) -> Result<bool, String> {
    let name = &pod.meta.name;
    let pod_not_found = || format!("pod does not exist any more: pod \"{name}\" not found");
    observed.pods.get(&pod.meta.namespace, name).ok_or_else(pod_not_found)?;
    let node = &assumed_volumes.node;
    let node_object = observed.nodes.get("", node);
    let node_object = node_object
        .ok_or_else(|| format!("failed to get node \"{node}\": node \"{node}\" not found"))?;
    for (written_volume, (_, claim)) in
        written.volumes.iter().zip(&assumed_volumes.pod_volumes.bindings)
    {
        let not_found = |resource: &str, key: &str| {
            format!("failed to check binding: {}", not_found(resource, key))
        };
        let volume = observed.listers.volume(&written_volume.name);
        let volume = volume.ok_or_else(|| not_found("persistentvolumes", &written_volume.name))?;
        let namespace = &claim.meta.namespace;
        let name = &claim.meta.name;
        let claim = observed.listers.claim(namespace, name);
        let claim = claim
            .ok_or_else(|| not_found("persistentvolumeclaims", &format!("{namespace}/{name}")))?;
        if volume.meta.version() < written_volume.version {
            return Ok(false);
        }
        check_node_affinity(observed, &volume, &node_object)?;
        if volume.spec.claim_ref.as_deref().is_none_or(|claim| claim.uid.is_empty()) {
            return Err(format!("ClaimRef got reset for pv \"{}\"", written_volume.name));
        }
        if !find::is_bound(&claim) {
            return Ok(false);
        }
    }
    for written_claim in &written.claims {
        if !is_provisioned(observed, written_claim, &node_object)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether the volume of a claim was provisioned and the claim is bound to it.
fn is_provisioned(
    observed: &Observed,
    written: &WrittenObject,
    node: &Node,
) -> Result<bool, String> {
    let name = &written.name;
    let claim = observed.listers.claim(&written.namespace, name);
    let claim = claim.ok_or_else(|| {
        let key = format!("{}/{name}", written.namespace);
        format!("failed to check provisioning pvc: {}", not_found("persistentvolumeclaims", &key))
    })?;
    if claim.meta.version() < written.version {
        return Ok(false);
    }
    let annotations = &claim.meta.annotations;
    if annotations.is_empty() {
        return Err(format!("selectedNode annotation reset for PVC \"{name}\""));
    }
    // A provisioner that cannot use the node removes the annotation.
    if annotations.get(volume::SELECTED_NODE) != Some(&*node.meta.name) {
        return Err(format!("provisioning failed for PVC \"{name}\""));
    }
    if !claim.spec.volume_name.is_empty() {
        let Some(volume) = observed.listers.volume(&claim.spec.volume_name) else {
            return Ok(false);
        };
        check_node_affinity(observed, &volume, node)?;
    }
    Ok(find::is_bound(&claim))
}

/// Returns an error if the volume is not accessible from the node.
fn check_node_affinity(
    observed: &Observed,
    volume: &PersistentVolume,
    node: &Node,
) -> Result<(), String> {
    if find::is_reachable(&observed.listers, volume, node) {
        return Ok(());
    }
    let volume = &volume.meta.name;
    let node = &node.meta.name;
    Err(format!(
        "pv \"{volume}\" node affinity doesn't match node \"{node}\": no matching NodeSelectorTerms"
    ))
}
