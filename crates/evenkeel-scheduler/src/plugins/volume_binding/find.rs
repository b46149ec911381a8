//! Finds volumes for a pod on a node, without side effects.
//!
//! Upstream: `plugins/volumebinding/binder.go`.

use crate::{framework::Status, plugins::volumes::VolumeListers};
use evenkeel_api::{
    quantity::Quantity,
    views::{CsiStorageCapacity, Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass},
};
use evenkeel_component_helpers::storage::{csi_translation, ephemeral, volume};
use std::sync::Arc;

/// Reason to reject a node where an unbound claim gets neither an existing nor a new volume.
const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
/// Reason to reject a node from which a bound volume is not accessible.
const NODE_AFFINITY_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
/// Reason to reject a node where the driver has too little capacity for a new volume.
const NO_SPACE: &str = "node(s) did not have enough free storage";
/// Reason to reject a node for a claim whose bound volume does not exist.
const VOLUME_GONE: &str =
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// Result for one node. The error is the reason to reject this node. Other nodes may still be feasible.
type OnNode<T> = Result<T, &'static str>;

/// Claims that a pod uses.
///
/// Upstream: `PodVolumeClaims`.
#[derive(Debug, Default)]
pub(super) struct PodClaims {
    /// Volumes of the bound claims. `None` for a volume that does not exist.
    pub(super) bound: Vec<Option<Arc<PersistentVolume>>>,
    /// Unbound claims whose StorageClass delays the binding.
    pub(super) delayed: Vec<UnboundClaim>,
}

/// An unbound claim whose StorageClass delays the binding.
#[derive(Debug)]
pub(super) struct UnboundClaim {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    pub(super) class: Option<Arc<StorageClass>>,
    /// Node in the claim's annotation `selected-node`.
    pub(super) node: Option<Arc<str>>,
    /// Available volumes of the claim's class.
    pub(super) candidates: Vec<Arc<PersistentVolume>>,
}

/// Decision about a pod's unbound claims on one node.
///
/// Upstream: `PodVolumes`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PodVolumes {
    /// Volumes to bind to claims.
    ///
    /// Upstream: `StaticBindings`.
    pub(super) bindings: Vec<(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>)>,
    /// Claims to provision.
    ///
    /// Upstream: `DynamicProvisions`.
    pub(super) provisions: Vec<Provision>,
}

/// A claim to provision.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Provision {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    /// CSIStorageCapacity for the new volume, if the driver publishes capacities.
    pub(super) capacity: Option<Arc<CsiStorageCapacity>>,
}

impl PodVolumes {
    /// Returns whether there is nothing to bind and nothing to provision.
    pub(super) fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.provisions.is_empty()
    }
}

/// Returns whether the claim is fully bound.
///
/// Upstream: `isPVCFullyBound`.
pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    !claim.spec.volume_name.is_empty() && claim.meta.annotations.contains(volume::BIND_COMPLETED)
}

/// Returns the claim if the pod may use it.
///
/// # Errors
///
/// Fails if the claim does not exist, is lost or being deleted, or belongs to another pod.
pub(super) fn usable_claim(
    pod: &Pod,
    name: &str,
    ephemeral: bool,
    claim: Option<Arc<PersistentVolumeClaim>>,
) -> Result<Arc<PersistentVolumeClaim>, Status> {
    let Some(claim) = claim else {
        return Err(Status::unresolvable(if ephemeral {
            format!(
                "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
            )
        } else {
            format!("persistentvolumeclaim \"{name}\" not found")
        }));
    };
    if &*claim.status.phase == "Lost" {
        let volume = &claim.spec.volume_name;
        return Err(Status::unresolvable(format!(
            "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
        )));
    }
    if claim.meta.deleting() {
        return Err(Status::unresolvable(format!(
            "persistentvolumeclaim \"{name}\" is being deleted"
        )));
    }
    if ephemeral {
        ephemeral::made_for_pod(&claim, pod).map_err(Status::unresolvable)?;
    }
    Ok(claim)
}

/// Finds volumes for the pod on the node.
///
/// # Errors
///
/// Returns the status that rejects the node.
///
/// Upstream: `FindPodVolumes`.
pub(super) fn find_pod_volumes(
    listers: &dyn VolumeListers,
    claims: &PodClaims,
    node: &Node,
) -> Result<PodVolumes, Status> {
    let bound = check_bound_claims(listers, claims, node);
    let found = find_delayed_volumes(listers, claims, node)?;
    // Upstream reports the reasons in this order.
    let reasons = [
        bound.err().filter(|reason| *reason == NODE_AFFINITY_CONFLICT),
        found.as_ref().err().copied().filter(|reason| *reason == NO_VOLUME),
        found.as_ref().err().copied().filter(|reason| *reason == NO_SPACE),
        bound.err().filter(|reason| *reason == VOLUME_GONE),
    ];
    let mut reasons = reasons.into_iter().flatten();
    match (reasons.next(), found) {
        (None, Ok(found)) => Ok(found),
        (first, _) => {
            let mut rejection = Status::unresolvable(first.unwrap_or_default());
            rejection.reasons.extend(reasons.map(Into::into));
            Err(rejection)
        }
    }
}

/// Checks that the bound volumes exist and are accessible from the node.
///
/// # Errors
///
/// Returns the reason to reject the node.
///
/// Upstream: `checkBoundClaims`.
fn check_bound_claims(listers: &dyn VolumeListers, claims: &PodClaims, node: &Node) -> OnNode<()> {
    for volume in &claims.bound {
        let volume = volume.as_deref().ok_or(VOLUME_GONE)?;
        if !is_reachable(listers, volume, node) {
            return Err(NODE_AFFINITY_CONFLICT);
        }
    }
    Ok(())
}

/// Returns whether the volume is accessible from the node, taking CSI migration into account.
pub(super) fn is_reachable(
    listers: &dyn VolumeListers,
    volume: &PersistentVolume,
    node: &Node,
) -> bool {
    let drivers =
        csi_translation::plugin_of_volume(volume).and_then(|_| listers.csi_node(&node.meta.name));
    csi_translation::is_reachable(volume, node, drivers.as_deref())
}

/// Finds volumes for the claims with delayed binding, smallest claim first.
///
/// # Errors
///
/// Returns a status that rejects all nodes if a claim's class does not exist.
///
/// Upstream: `findMatchingVolumes`.
fn find_delayed_volumes(
    listers: &dyn VolumeListers,
    claims: &PodClaims,
    node: &Node,
) -> Result<OnNode<PodVolumes>, Status> {
    let mut found = PodVolumes::default();
    let mut to_provision = Vec::new();
    let mut unassigned: Vec<&UnboundClaim> = Vec::new();
    for unbound in &claims.delayed {
        match &unbound.node {
            Some(selected_node) if **selected_node != *node.meta.name => return Ok(Err(NO_VOLUME)),
            Some(_) => to_provision.push(unbound),
            None => unassigned.push(unbound),
        }
    }
    unassigned.sort_by_key(|unbound| volume::requested_storage(&unbound.claim));
    for unbound in unassigned {
        let free = unbound.candidates.iter().filter(|candidate| {
            found.bindings.iter().all(|(taken, _)| taken.meta.name != candidate.meta.name)
        });
        match volume::best_match(&unbound.claim, free, Some(node), true) {
            Some(volume) => found.bindings.push((Arc::clone(volume), Arc::clone(&unbound.claim))),
            None => to_provision.push(unbound),
        }
    }
    for unbound in to_provision {
        match check_volume_provision(listers, unbound, node)? {
            Ok(provision) => found.provisions.push(provision),
            Err(reason) => return Ok(Err(reason)),
        }
    }
    Ok(Ok(found))
}

/// Returns the provisioning of the claim on the node.
///
/// # Errors
///
/// Returns a status that rejects all nodes if the claim's class does not exist.
///
/// Upstream: `checkVolumeProvisions`.
fn check_volume_provision(
    listers: &dyn VolumeListers,
    unbound: &UnboundClaim,
    node: &Node,
) -> Result<OnNode<Provision>, Status> {
    let Some(class) = unbound.class.as_deref() else {
        let name = volume::class_of_claim(&unbound.claim);
        return Err(Status::error(format!("failed to find storage class \"{name}\"")));
    };
    let has_no_provisioner = matches!(&*class.provisioner, "" | volume::NO_PROVISIONER);
    if has_no_provisioner || !volume::allows_topology_of(class, node) {
        return Ok(Err(NO_VOLUME));
    }
    let capacity = capacity_for_claim(listers, &unbound.claim, class, node);
    Ok(capacity.map(|capacity| Provision { claim: Arc::clone(&unbound.claim), capacity }))
}

/// Returns the CSIStorageCapacity that has enough room for the claim, or `None` if the driver publishes none.
///
/// # Errors
///
/// Returns the reason to reject the node.
///
/// Upstream: `hasEnoughCapacity`.
fn capacity_for_claim(
    listers: &dyn VolumeListers,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: &Node,
) -> OnNode<Option<Arc<CsiStorageCapacity>>> {
    let Some(size) = claim.spec.resources.requests.get("storage") else { return Ok(None) };
    let driver = listers.driver(&class.provisioner);
    if driver.is_none_or(|driver| driver.spec.storage_capacity != Some(true)) {
        return Ok(None);
    }
    let has_access = |capacity: &CsiStorageCapacity| {
        capacity.node_topology.as_ref().is_some_and(|nodes| nodes.matches(&node.meta.labels))
    };
    let capacities = listers.capacities(&class.meta.name);
    let sufficient = capacities.into_iter().find(|capacity| {
        volume_size_limit(capacity).is_some_and(|limit| limit.value() >= size.value())
            && has_access(capacity)
    });
    sufficient.ok_or(NO_SPACE).map(Some)
}

/// Returns the maximum size of a new volume.
///
/// Upstream: `capacitySufficient`.
pub(super) fn volume_size_limit(capacity: &CsiStorageCapacity) -> Option<Quantity> {
    capacity.maximum_volume_size.or(capacity.capacity)
}
