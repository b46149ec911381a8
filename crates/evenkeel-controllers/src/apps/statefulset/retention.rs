//! `persistentVolumeClaimRetentionPolicy` (KEP-1847): owner references of claims. The garbage collector deletes a
//! claim with its owner.

use super::identity;
use crate::wire;
use evenkeel_api::{
    Meta, OwnerReference, View,
    views::{PersistentVolumeClaim, Pod, StatefulSet},
};
use evenkeel_runtime::plan::Target;

/// Value of a retention policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retention {
    Retain,
    Delete,
}

impl Retention {
    /// Parses a policy. Any value but `Delete` counts as `Retain`.
    fn of(value: &str) -> Self {
        if value == "Delete" { Self::Delete } else { Self::Retain }
    }
}

/// Retention policy of a StatefulSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Policy {
    /// For all claims, when the set is deleted.
    when_deleted: Retention,
    /// For claims of condemned pods, when the set is scaled down.
    when_scaled: Retention,
}

/// Owner that a policy assigns to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AssignedOwner {
    Nobody,
    Set,
    Pod,
}

impl Policy {
    fn of(set: &StatefulSet) -> Self {
        let policy = set.spec.persistent_volume_claim_retention_policy.as_deref();
        Self {
            when_deleted: Retention::of(policy.map_or("", |policy| &policy.when_deleted)),
            when_scaled: Retention::of(policy.map_or("", |policy| &policy.when_scaled)),
        }
    }

    /// Returns whether claims are retained both after scaling and after the deletion of the StatefulSet.
    fn retains_all(self) -> bool {
        self.when_deleted == Retention::Retain && self.when_scaled == Retention::Retain
    }

    /// Returns the owner of a replica's claim. Upstream: `updateClaimOwnerRefForSetAndPod`.
    fn owner_for_replica(self) -> AssignedOwner {
        match self.when_deleted {
            Retention::Retain => AssignedOwner::Nobody,
            Retention::Delete => AssignedOwner::Set,
        }
    }

    /// Returns the owner of a condemned pod's claim. Upstream: `updateClaimOwnerRefForSetAndPod`.
    fn owner_for_condemned(self) -> AssignedOwner {
        match self.when_scaled {
            Retention::Retain => self.owner_for_replica(),
            Retention::Delete => AssignedOwner::Pod,
        }
    }
}

/// The two objects that may own the claims of an ordinal.
#[derive(Debug, Clone)]
pub(crate) struct PossibleOwners<'a> {
    set: &'a StatefulSet,
    set_target: Target,
    /// The ordinal's pod; without uid if it does not exist.
    pod_target: Target,
    is_condemned: bool,
}

impl<'a> PossibleOwners<'a> {
    /// Returns the possible owners of the claims of this ordinal.
    pub(crate) fn new(set: &'a StatefulSet, ordinal: i32, pod: Option<&Pod>) -> Self {
        let name = identity::pod_name(set, ordinal);
        let uid = pod.map_or("", |pod| &pod.meta.uid);
        Self {
            set,
            set_target: wire::target(set),
            pod_target: Target::new(Pod::kind(), &set.meta.namespace, &name, uid),
            is_condemned: identity::position(set, ordinal).is_none(),
        }
    }

    /// Returns whether an earlier pod of the same name owns the claim. The garbage collector deletes such a claim with
    /// that pod. Upstream: `isClaimOwnerUpToDate`, `hasStaleOwnerRef`.
    pub(crate) fn is_stale(&self, claim: &PersistentVolumeClaim) -> bool {
        Policy::of(self.set).when_scaled == Retention::Delete
            && has_stale_reference(&claim.meta, &self.pod_target)
    }

    /// Returns whether another controller owns the claim, in conflict with the policy. Upstream:
    /// `hasUnexpectedController`.
    pub(crate) fn has_conflict(&self, claim: &PersistentVolumeClaim) -> bool {
        !Policy::of(self.set).retains_all()
            && claim.meta.owners.iter().any(|owner| self.is_conflicting(owner))
    }

    /// Returns whether the reference is to an earlier set or pod of the same name, or to another controller.
    fn is_conflicting(&self, owner: &OwnerReference) -> bool {
        if refers_to(owner, &self.set_target) {
            *owner.uid != *self.set_target.uid
        } else if refers_to(owner, &self.pod_target) {
            *owner.uid != *self.pod_target.uid
        } else {
            owner.controller
        }
    }

    /// Returns the corrected owner references, or `None` if they need no change. Leaves references to an earlier set or
    /// pod of the same name to the garbage collector.
    pub(crate) fn corrected_references(
        &self,
        claim: &PersistentVolumeClaim,
    ) -> Option<Vec<OwnerReference>> {
        let owners = &claim.meta.owners;
        if has_stale_reference(&claim.meta, &self.set_target)
            || has_stale_reference(&claim.meta, &self.pod_target)
        {
            return None;
        }
        let has_conflict = self.has_conflict(claim);
        let assigned = if has_conflict { AssignedOwner::Nobody } else { self.assigned_owner() };
        let set_should_own = assigned == AssignedOwner::Set;
        let pod_should_own = assigned == AssignedOwner::Pod;
        let owns = |target: &Target| owners.iter().any(|owner| *owner.uid == *target.uid);
        let is_set_or_pod = |owner: &&OwnerReference| {
            *owner.uid == *self.set_target.uid || *owner.uid == *self.pod_target.uid
        };
        let all_control =
            has_conflict || owners.iter().filter(is_set_or_pod).all(|owner| owner.controller);
        if owns(&self.set_target) == set_should_own
            && owns(&self.pod_target) == pod_should_own
            && all_control
        {
            return None;
        }
        let is_other = |owner: &&OwnerReference| {
            !refers_to(owner, &self.set_target) && !refers_to(owner, &self.pod_target)
        };
        let mut corrected: Vec<OwnerReference> = owners.iter().filter(is_other).cloned().collect();
        if set_should_own {
            corrected.push(wire::controller_reference(&self.set_target));
        }
        if pod_should_own && !self.pod_target.uid.is_empty() {
            corrected.push(wire::controller_reference(&self.pod_target));
        }
        (corrected[..] != owners[..]).then_some(corrected)
    }

    /// Returns the owner that the retention policy assigns to the claim.
    fn assigned_owner(&self) -> AssignedOwner {
        let policy = Policy::of(self.set);
        if self.is_condemned { policy.owner_for_condemned() } else { policy.owner_for_replica() }
    }
}

/// Returns whether the reference has the kind and name of the target, whatever its uid.
fn refers_to(owner: &OwnerReference, target: &Target) -> bool {
    *owner.api_version == *target.kind.api_version()
        && *owner.kind == *target.kind.kind
        && *owner.name == *target.name
}

/// Returns whether the claim refers to an earlier object with the target's name.
fn has_stale_reference(claim: &Meta, target: &Target) -> bool {
    let reference = claim.owners.iter().find(|owner| refers_to(owner, target));
    reference.is_some_and(|owner| *owner.uid != *target.uid)
}
