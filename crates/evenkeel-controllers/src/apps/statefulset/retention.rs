//! What becomes of claims when their set shrinks or goes: an owner for those that are to go with it.

use super::identity;
use crate::wire;
use evenkeel_api::{
    Meta, OwnerReference, View,
    views::{PersistentVolumeClaim, Pod, StatefulSet},
};
use evenkeel_runtime::plan::Target;

/// The set's policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Claims go with the set.
    pub(crate) when_deleted: bool,
    /// Claims go with the pods that a smaller set does without.
    pub(crate) when_scaled: bool,
}

impl Policy {
    /// What is not `Delete` is `Retain`.
    pub(crate) fn of(set: &StatefulSet) -> Self {
        let policy = set.spec.persistent_volume_claim_retention_policy.as_deref();
        Self {
            when_deleted: policy.is_some_and(|policy| &*policy.when_deleted == "Delete"),
            when_scaled: policy.is_some_and(|policy| &*policy.when_scaled == "Delete"),
        }
    }

    fn retains_all(self) -> bool {
        !self.when_deleted && !self.when_scaled
    }
}

/// A claim's set, and the pod of its number. A pod that is not there yet has no uid.
#[derive(Debug, Clone)]
pub(crate) struct Owners<'a> {
    set: &'a StatefulSet,
    of_set: Target,
    of_pod: Target,
    condemned: bool,
}

impl<'a> Owners<'a> {
    /// Those of the claims of the pod of this number.
    pub(crate) fn new(set: &'a StatefulSet, ordinal: i32, pod: Option<&Pod>) -> Self {
        let name = identity::pod_name(set, ordinal);
        let uid = pod.map_or("", |pod| &pod.meta.uid);
        Self {
            set,
            of_set: wire::target(set),
            of_pod: Target::new(Pod::kind(), &set.meta.namespace, &name, uid),
            condemned: identity::place(set, ordinal).is_none(),
        }
    }

    /// Whether the claim still belongs to an earlier pod of this name, and will go with it.
    pub(crate) fn is_stale(&self, claim: &PersistentVolumeClaim) -> bool {
        Policy::of(self.set).when_scaled && has_stale(&claim.meta, &self.of_pod)
    }

    /// Whether somebody else controls the claim, which the policy does not provide for.
    pub(crate) fn conflict(&self, claim: &PersistentVolumeClaim) -> bool {
        !Policy::of(self.set).retains_all()
            && claim.meta.owners.iter().any(|owner| {
                match [&self.of_set, &self.of_pod].into_iter().find(|of| means(owner, of)) {
                    Some(of) => *owner.uid != *of.uid,
                    None => owner.controller,
                }
            })
    }

    /// The owners that the claim should have, if it has others. One that an earlier set or pod of the name owns is left to
    /// the garbage collector.
    pub(crate) fn corrected(&self, claim: &PersistentVolumeClaim) -> Option<Vec<OwnerReference>> {
        let owners = &claim.meta.owners;
        if has_stale(&claim.meta, &self.of_set) || has_stale(&claim.meta, &self.of_pod) {
            return None;
        }
        let owns = |of: &Target| owners.iter().any(|owner| *owner.uid == *of.uid);
        let conflict = self.conflict(claim);
        let policy = Policy::of(self.set);
        let set_owns = policy.when_deleted && !(policy.when_scaled && self.condemned) && !conflict;
        let pod_owns = policy.when_scaled && self.condemned && !conflict;
        let ours = |owner: &&OwnerReference| {
            *owner.uid == *self.of_set.uid || *owner.uid == *self.of_pod.uid
        };
        let all_control = conflict || owners.iter().filter(ours).all(|owner| owner.controller);
        if owns(&self.of_set) == set_owns && owns(&self.of_pod) == pod_owns && all_control {
            return None;
        }
        let mut corrected: Vec<OwnerReference> = owners
            .iter()
            .filter(|owner| !means(owner, &self.of_set) && !means(owner, &self.of_pod))
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

/// Whether the reference is to an object of this kind and name, whatever its uid.
fn means(owner: &OwnerReference, of: &Target) -> bool {
    *owner.api_version == *of.kind.api_version()
        && *owner.kind == *of.kind.kind
        && *owner.name == *of.name
}

fn has_stale(claim: &Meta, of: &Target) -> bool {
    claim.owners.iter().find(|owner| means(owner, of)).is_some_and(|owner| *owner.uid != *of.uid)
}
