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
    /// Index in `sets` of the new set: the oldest that has the Deployment's template. Upstream: `FindNewReplicaSet`.
    pub(crate) new_index: Option<usize>,
    /// If there is no new set: an existing ReplicaSet with the name that the new set would get.
    pub(crate) rival: Option<Arc<ReplicaSet>>,
    /// Uids of sets with pods that are not terminal. Only for the strategy `Recreate`.
    pub(crate) running_sets: HashSet<Text>,
    /// Whether the status has `terminatingReplicas`.
    pub(crate) counts_terminating: bool,
}

impl Observed {
    /// Classifies the cached ReplicaSets that the Deployment controls or that are orphans. `get_set` finds any
    /// ReplicaSet of the namespace by its name.
    pub(crate) fn new(
        deployment: Arc<Deployment>,
        candidates: impl IntoIterator<Item = Arc<ReplicaSet>>,
        get_set: impl FnOnce(&str) -> Option<Arc<ReplicaSet>>,
    ) -> Self {
        let selector = &deployment.spec.selector;
        // With a selector that cannot be evaluated, the Deployment keeps its sets, and adopts none.
        let claims = if selector.error().is_some() {
            Claims::default()
        } else {
            Claims::by_labels(&deployment.meta, candidates, |labels| selector.matches(labels))
        };
        let mut sets = claims.owned.clone();
        sets.sort_unstable_by(|a, b| by_age(a, b));
        let template = &deployment.spec.template;
        let new_index = sets.iter().position(|set| set.spec.template.equal_ignoring_hash(template));
        let rival = if new_index.is_none() { get_set(&new_set_name(&deployment)) } else { None };
        Self {
            deployment,
            claims,
            sets,
            new_index,
            rival,
            running_sets: HashSet::new(),
            counts_terminating: true,
        }
    }

    /// Records the sets with pods that are not terminal.
    pub(crate) fn with_pods<P: IntoIterator<Item = Arc<Pod>>>(
        mut self,
        pods_of: impl Fn(&ReplicaSet) -> P,
    ) -> Self {
        for set in &self.sets {
            if pods_of(set).into_iter().any(|pod| !pods::is_terminal(&pod)) {
                self.running_sets.insert(set.meta.uid.clone());
            }
        }
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

/// Returns the name that the new ReplicaSet gets.
pub(crate) fn new_set_name(deployment: &Deployment) -> String {
    generate_set_name(&deployment.meta.name, &template_hash(deployment))
}

/// Joins name and hash. Truncates the name so that both have the maximum length. Upstream: `generateReplicaSetName`.
pub(crate) fn generate_set_name(deployment_name: &str, hash: &str) -> String {
    const MAX_NAME_LENGTH: usize = 253;
    let max_prefix_length = MAX_NAME_LENGTH.saturating_sub(hash.len() + 1);
    let end = deployment_name.floor_char_boundary(max_prefix_length);
    format!("{}-{hash}", &deployment_name[..end])
}
