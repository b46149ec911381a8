//! Claims that the ephemeral volume controller creates for ephemeral volumes. Scheduler and kubelet wait for them.
//!
//! Upstream: `k8s.io/component-helpers/storage/ephemeral`.

use evenkeel_api::views::{PersistentVolumeClaim, Pod, Volume};

/// Returns the name of the claim for a pod's ephemeral volume.
///
/// Upstream: `VolumeClaimName`.
pub fn claim_name(pod: &Pod, volume: &Volume) -> String {
    format!("{}-{}", pod.meta.name, volume.name)
}

/// Checks that this pod owns an ephemeral volume's claim.
///
/// Upstream: `VolumeIsForPod`.
///
/// # Errors
/// Returns the error message if the pod does not own the claim.
pub fn made_for_pod(claim: &PersistentVolumeClaim, pod: &Pod) -> Result<(), String> {
    if claim.meta.namespace == pod.meta.namespace && claim.meta.is_controlled_by(&pod.meta.uid) {
        return Ok(());
    }
    Err(format!(
        "PVC {}/{} was not created for pod {}/{} (pod is not owner)",
        claim.meta.namespace, claim.meta.name, pod.meta.namespace, pod.meta.name
    ))
}
