//! Observed state of a Deployment.

use crate::{claim::Claims, pods};
use evenkeel_api::{
    Text, hash,
    views::{Deployment, Pod, ReplicaSet},
};
use std::{cmp::Ordering, collections::HashSet, sync::Arc};

/// A Deployment with its ReplicaSets.
#[derive(Debug)]
pub(crate) struct Observed {
    /// The Deployment to reconcile.
    pub(crate) deployment: Arc<Deployment>,
    /// ReplicaSets that the Deployment owns, adopts or releases.
    pub(crate) claims: Claims<ReplicaSet>,
    /// ReplicaSets of the Deployment, oldest first.
    pub(crate) sets: Vec<Arc<ReplicaSet>>,
    /// Index in `sets` of the set with the Deployment's template; the oldest of several. Upstream: `FindNewReplicaSet`.
    pub(crate) new: Option<usize>,
    /// Another ReplicaSet with the new set's name, if `new` is `None`: a hash collision.
    pub(crate) rival: Option<Arc<ReplicaSet>>,
    /// Uids of sets with pods that are not terminal; only for the strategy `Recreate`.
    pub(crate) running: HashSet<Text>,
    /// Whether the status has `terminatingReplicas`.
    pub(crate) counts_terminating: bool,
}

impl Observed {
    /// Classifies the cached ReplicaSets that the Deployment controls or that are orphans. `named` finds any
    /// ReplicaSet of the namespace by its name.
    pub(crate) fn new(
        deployment: Arc<Deployment>,
        candidates: impl IntoIterator<Item = Arc<ReplicaSet>>,
        named: impl FnOnce(&str) -> Option<Arc<ReplicaSet>>,
    ) -> Self {
        let selector = &deployment.spec.selector;
        let claims =
            Claims::by_labels(&deployment.meta, candidates, |labels| selector.matches(labels));
        let mut sets = claims.owned.clone();
        sets.sort_unstable_by(|a, b| by_age(a, b));
        let template = &deployment.spec.template;
        let new = sets.iter().position(|set| set.spec.template.equal_ignoring_hash(template));
        let rival = if new.is_none() { named(&new_name(&deployment)) } else { None };
        let running = HashSet::new();
        Self { deployment, claims, sets, new, rival, running, counts_terminating: true }
    }

    /// Records the sets with pods that are not terminal.
    pub(crate) fn with_pods<P: IntoIterator<Item = Arc<Pod>>>(
        mut self,
        pods_of: impl Fn(&ReplicaSet) -> P,
    ) -> Self {
        let runs =
            |set: &&Arc<ReplicaSet>| pods_of(set).into_iter().any(|pod| !pods::is_terminal(&pod));
        self.running = self.sets.iter().filter(runs).map(|set| set.meta.uid.clone()).collect();
        self
    }
}

/// Orders by creation time, then by name. Upstream: `ReplicaSetsByCreationTimestamp`.
pub(crate) fn by_age(a: &ReplicaSet, b: &ReplicaSet) -> Ordering {
    a.meta.creation.cmp(&b.meta.creation).then_with(|| a.meta.name.cmp(&b.meta.name))
}

/// Returns the hash of the template and the collision count. Upstream: `ComputeHash`.
pub(crate) fn template_hash(deployment: &Deployment) -> String {
    hash::template(&deployment.spec.template, deployment.status.collision_count)
}

/// Returns the name of the new ReplicaSet.
pub(crate) fn new_name(deployment: &Deployment) -> String {
    set_name(&deployment.meta.name, &template_hash(deployment))
}

/// Joins name and hash, and truncates the name to the maximum length. Upstream: `generateReplicaSetName`.
pub(crate) fn set_name(deployment: &str, hash: &str) -> String {
    const MAX_NAME_LENGTH: usize = 253;
    let mut end = deployment.len().min(MAX_NAME_LENGTH.saturating_sub(hash.len() + 1));
    while !deployment.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash}", &deployment[..end])
}
