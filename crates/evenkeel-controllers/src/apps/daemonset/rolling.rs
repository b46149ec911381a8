//! Pods of old revisions give way, node by node.

use super::{
    budget::{Budget, ROLLING_UPDATE},
    plan::Pass,
};
use evenkeel_api::views::Pod;
use std::sync::Arc;

/// Replaces what the budget allows, when each node has the pods that it should have.
pub(crate) fn roll_out(pass: &mut Pass<'_>) {
    if &*pass.observed.set.spec.update_strategy.type_ != ROLLING_UPDATE {
        return;
    }
    let desired = pass.desired();
    let budget = Budget::of(&pass.observed.set, desired);
    // Where there should be a pod and is none, none is available.
    let observed = pass.observed;
    for (name, node) in &observed.nodes {
        if observed.pod_template.fit(node).should_run {
            pass.by_node.entry(name).or_default();
        }
    }
    if budget.surge == 0 {
        replace(pass, budget);
    } else {
        surge(pass, budget, desired);
    }
}

/// The pod of the set's template and the other on one node; `Err` where there are several of a sort, which the next pass
/// sorts out.
#[derive(Debug, Clone, Copy)]
struct Pair<'a> {
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

impl<'a> Pair<'a> {
    fn of(pass: &Pass<'a>, pods: &[&'a Arc<Pod>]) -> Result<Self, ()> {
        let mut pair = Self { new: None, old: None };
        for pod in pods.iter().filter(|pod| !pod.meta.deleting()) {
            let place = if pass.is_updated(pod) { &mut pair.new } else { &mut pair.old };
            if place.replace(pod).is_some() {
                return Err(());
            }
        }
        Ok(pair)
    }
}

/// Without surge: old pods are deleted, those that are not available at once, others as far as the budget goes. The next
/// pass makes new ones in their place.
fn replace(pass: &mut Pass<'_>, budget: Budget) {
    let (mut n_unavailable, mut free, mut candidates) = (0, Vec::new(), Vec::new());
    for pods in pass.by_node.values() {
        match Pair::of(pass, pods) {
            Ok(Pair { new: Some(new), old: None }) => {
                n_unavailable += usize::from(!pass.is_available(new));
            }
            Ok(Pair { new: None, old: Some(old) }) if pass.is_available(old) => {
                candidates.push(old);
            }
            Ok(Pair { new: None, old: Some(old) }) => {
                free.push(old);
                n_unavailable += 1;
            }
            Ok(_) | Err(()) => n_unavailable += 1,
        }
    }
    let left = budget.unavailable.saturating_sub(n_unavailable);
    pass.pods_to_delete.extend(free);
    pass.pods_to_delete.extend(candidates.into_iter().take(left));
}

/// With surge: a new pod is made beside an old one, which goes when the new one is available. Where the old one is not
/// available that costs nothing. On nodes that should have none any more the old one goes when enough others are available.
fn surge(pass: &mut Pass<'_>, budget: Budget, desired: usize) {
    let (mut n_surge, mut n_available) = (0, 0);
    let (mut free, mut candidates) = (Vec::new(), Vec::new());
    let (mut done, mut misplaced) = (Vec::new(), Vec::new());
    for (name, pods) in &pass.by_node {
        let Ok(pair) = Pair::of(pass, pods) else {
            n_surge += 1;
            continue;
        };
        let available = |pod: &Arc<Pod>| pass.is_available(pod);
        n_available += usize::from(pair.old.or(pair.new).is_some_and(available));
        let Some(old) = pair.old else { continue };
        let should_run = pass
            .observed
            .nodes
            .get(*name)
            .is_some_and(|node| pass.observed.pod_template.fit(node).should_run);
        match pair.new {
            None if !available(old) && should_run => free.push(*name),
            None if !available(old) => done.push(old),
            None if should_run => candidates.push(*name),
            None => misplaced.push(old),
            Some(new) if available(new) => done.push(old),
            Some(_) => n_surge += 1,
        }
    }
    let spare = n_available.saturating_sub(desired);
    pass.pods_to_delete.extend(done);
    pass.pods_to_delete.extend(misplaced.into_iter().take(spare));
    pass.nodes_needing_pods.extend(free);
    pass.nodes_needing_pods
        .extend(candidates.into_iter().take(budget.surge.saturating_sub(n_surge)));
}
