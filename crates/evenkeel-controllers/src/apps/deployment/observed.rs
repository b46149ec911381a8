//! What a deployment's decision looks at.

use crate::{claim::Claims, pods};
use evenkeel_api::{
    Text, hash,
    views::{Deployment, Pod, ReplicaSet},
};
use std::{cmp::Ordering, collections::HashSet, sync::Arc};

/// What caches hold of a deployment.
#[derive(Debug)]
pub(crate) struct Observed {
    /// The deployment.
    pub(crate) deployment: Arc<Deployment>,
    /// Its ReplicaSets, and those that are to become so.
    pub(crate) claims: Claims<ReplicaSet>,
    /// Its ReplicaSets, oldest first.
    pub(crate) sets: Vec<Arc<ReplicaSet>>,
    /// Which of `sets` has the deployment's template: the oldest, if there are several.
    pub(crate) new: Option<usize>,
    /// The ReplicaSet of the name that a new one would get, where `new` is missing; usually none.
    pub(crate) rival: Option<Arc<ReplicaSet>>,
    /// Uids of the sets of which a pod has not ended; filled for deployments that wait for that.
    pub(crate) running: HashSet<Text>,
    /// Whether the status counts pods being deleted.
    pub(crate) counts_terminating: bool,
}

impl Observed {
    /// Sorts what caches hold: ReplicaSets that the deployment controls or nobody does, in any order. `named` finds any
    /// ReplicaSet of the namespace.
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

    /// Notes which sets have pods that have not ended.
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

/// Older sets first; of one age, by name.
pub(crate) fn by_age(a: &ReplicaSet, b: &ReplicaSet) -> Ordering {
    a.meta.creation.cmp(&b.meta.creation).then_with(|| a.meta.name.cmp(&b.meta.name))
}

/// The hash of the deployment's template, told from others' by the number of collisions so far.
pub(crate) fn template_hash(deployment: &Deployment) -> String {
    hash::template(&deployment.spec.template, deployment.status.collision_count)
}

/// The name of the ReplicaSet that a deployment's template gets.
pub(crate) fn new_name(deployment: &Deployment) -> String {
    set_name(&deployment.meta.name, &template_hash(deployment))
}

/// `deployment-hash`, cut so that it is no longer than names may be.
pub(crate) fn set_name(deployment: &str, hash: &str) -> String {
    const LONGEST: usize = 253;
    let mut end = deployment.len().min(LONGEST.saturating_sub(hash.len() + 1));
    while !deployment.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash}", &deployment[..end])
}
