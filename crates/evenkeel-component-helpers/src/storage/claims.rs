//! Claims of a pod: those that its volumes name, and those that are created for its ephemeral volumes.

use super::ephemeral;
use evenkeel_api::views::{Pod, Volume};

/// Volume of a pod that is backed by a PersistentVolumeClaim.
#[derive(Debug, Clone, Copy)]
pub struct ClaimUse<'a> {
    /// The pod's volume.
    pub volume: &'a Volume,
    /// Whether the volume is ephemeral. The claim of an ephemeral volume is created for this pod.
    pub is_ephemeral: bool,
}

impl ClaimUse<'_> {
    /// Returns the claim's name, in the pod's namespace.
    pub fn claim_name(&self, pod: &Pod) -> String {
        match &self.volume.source.persistent_volume_claim {
            Some(source) => source.claim_name.to_string(),
            None => ephemeral::claim_name(pod, self.volume),
        }
    }
}

/// Returns the pod's volumes that are backed by a PersistentVolumeClaim.
pub fn of_pod(pod: &Pod) -> impl Iterator<Item = ClaimUse<'_>> {
    pod.spec.volumes.iter().filter_map(|volume| {
        if volume.source.persistent_volume_claim.is_some() {
            return Some(ClaimUse { volume, is_ephemeral: false });
        }
        let is_ephemeral = volume.source.ephemeral.is_some();
        is_ephemeral.then_some(ClaimUse { volume, is_ephemeral })
    })
}

/// Returns the index key of a claim: `namespace/name`.
pub fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Index function of pods by claim: calls `index` with the [`key`] of each claim of the pod.
pub fn keys_of_pod(pod: &Pod, index: &mut dyn FnMut(&str)) {
    for claim_use in of_pod(pod) {
        index(&key(&pod.meta.namespace, &claim_use.claim_name(pod)));
    }
}
