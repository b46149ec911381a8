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
    /// Any value but `Delete` counts as `Retain`.
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

/// Owner that the policy assigns to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
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

    fn retains_all(self) -> bool {
        self.when_deleted == Retention::Retain && self.when_scaled == Retention::Retain
    }

    /// Returns the owner of a claim, for a replica or a condemned pod. Upstream: `updateClaimOwnerRefForSetAndPod`.
    fn owner(self, condemned: bool) -> Owner {
        use Owner::{Nobody, Pod, Set};
        use Retention::{Delete, Retain};
        let [in_range, beyond] = match (self.when_deleted, self.when_scaled) {
            (Retain, Retain) => [Nobody, Nobody],
            (Delete, Retain) => [Set, Set],
            (Retain, Delete) => [Nobody, Pod],
            (Delete, Delete) => [Set, Pod],
        };
        if condemned { beyond } else { in_range }
    }
}

/// The set and the pod of a claim, as owners. A pod that does not exist has no uid.
#[derive(Debug, Clone)]
pub(crate) struct Owners<'a> {
    set: &'a StatefulSet,
    of_set: Target,
    of_pod: Target,
    condemned: bool,
}

impl<'a> Owners<'a> {
    /// Returns the owners of the claims of this ordinal.
    pub(crate) fn new(set: &'a StatefulSet, ordinal: i32, pod: Option<&Pod>) -> Self {
        let name = identity::pod_name(set, ordinal);
        let uid = pod.map_or("", |pod| &pod.meta.uid);
        Self {
            set,
            of_set: wire::target(set),
            of_pod: Target::new(Pod::kind(), &set.meta.namespace, &name, uid),
            condemned: identity::position(set, ordinal).is_none(),
        }
    }

    /// Whether an earlier pod of the same name owns the claim. The garbage collector deletes such a claim with that
    /// pod.
    /// Upstream: `isClaimOwnerUpToDate`, `hasStaleOwnerRef`.
    pub(crate) fn is_stale(&self, claim: &PersistentVolumeClaim) -> bool {
        Policy::of(self.set).when_scaled == Retention::Delete
            && has_stale_reference(&claim.meta, &self.of_pod)
    }

    /// Whether another controller owns the claim, in conflict with the policy. Upstream: `hasUnexpectedController`.
    pub(crate) fn conflict(&self, claim: &PersistentVolumeClaim) -> bool {
        !Policy::of(self.set).retains_all()
            && claim.meta.owners.iter().any(|owner| {
                match [&self.of_set, &self.of_pod].into_iter().find(|of| refers_to(owner, of)) {
                    Some(of) => *owner.uid != *of.uid,
                    None => owner.controller,
                }
            })
    }

    /// Returns the corrected owner references; `None` if they need no change. Leaves references to an earlier set or
    /// pod of the same name to the garbage collector.
    pub(crate) fn corrected(&self, claim: &PersistentVolumeClaim) -> Option<Vec<OwnerReference>> {
        let owners = &claim.meta.owners;
        if has_stale_reference(&claim.meta, &self.of_set)
            || has_stale_reference(&claim.meta, &self.of_pod)
        {
            return None;
        }
        let owns = |of: &Target| owners.iter().any(|owner| *owner.uid == *of.uid);
        let conflict = self.conflict(claim);
        let owner = match conflict {
            true => Owner::Nobody,
            false => Policy::of(self.set).owner(self.condemned),
        };
        let (set_owns, pod_owns) = (owner == Owner::Set, owner == Owner::Pod);
        let ours = |owner: &&OwnerReference| {
            *owner.uid == *self.of_set.uid || *owner.uid == *self.of_pod.uid
        };
        let all_control = conflict || owners.iter().filter(ours).all(|owner| owner.controller);
        if owns(&self.of_set) == set_owns && owns(&self.of_pod) == pod_owns && all_control {
            return None;
        }
        let mut corrected: Vec<OwnerReference> = owners
            .iter()
            .filter(|owner| !refers_to(owner, &self.of_set) && !refers_to(owner, &self.of_pod))
            .cloned()
            .collect();
        for (of, owns) in [(&self.of_set, set_owns), (&self.of_pod, pod_owns)] {
            if owns && !of.uid.is_empty() {
                corrected.push(wire::controller_reference(of));
            }
        }
        (corrected[..] != owners[..]).then_some(corrected)
    }
}

/// Whether the reference has the kind and name of the target, whatever its uid.
fn refers_to(owner: &OwnerReference, of: &Target) -> bool {
    *owner.api_version == *of.kind.api_version()
        && *owner.kind == *of.kind.kind
        && *owner.name == *of.name
}

/// Whether the claim refers to an earlier object with the target's name.
fn has_stale_reference(claim: &Meta, of: &Target) -> bool {
    claim
        .owners
        .iter()
        .find(|owner| refers_to(owner, of))
        .is_some_and(|owner| *owner.uid != *of.uid)
}
