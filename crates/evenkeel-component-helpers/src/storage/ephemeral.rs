//! Claims of ephemeral volumes, which the ephemeral volume controller creates and scheduler and kubelet wait for.
//!
//! Upstream: `k8s.io/component-helpers/storage/ephemeral`.

use evenkeel_api::views::{PersistentVolumeClaim, Pod, Volume};

/// Returns the name of the claim for a pod's ephemeral volume.
///
/// Upstream: `VolumeClaimName`.
pub fn claim_name(pod: &Pod, volume: &Volume) -> String {
    format!("{}-{}", pod.meta.name, volume.name)
}

/// Checks that an ephemeral volume's claim is owned by this pod.
///
/// Upstream: `VolumeIsForPod`.
///
/// # Errors
/// An error text when it is not.
pub fn made_for_pod(claim: &PersistentVolumeClaim, pod: &Pod) -> Result<(), String> {
    if claim.meta.namespace == pod.meta.namespace && claim.meta.controlled_by(&pod.meta.uid) {
        return Ok(());
    }
    Err(format!(
        "PVC {}/{} was not created for pod {}/{} (pod is not owner)",
        claim.meta.namespace, claim.meta.name, pod.meta.namespace, pod.meta.name
    ))
}
