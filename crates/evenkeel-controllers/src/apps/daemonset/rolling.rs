//! Rolling update of a DaemonSet, node by node. Upstream: `update.go`.

use super::{
    budget::{Budget, ROLLING_UPDATE},
    plan::Pass,
};
use evenkeel_api::views::Pod;
use evenkeel_runtime::plan::PlanError;
use std::sync::Arc;

/// Replaces pods of old revisions within the budget, once each node has its pods. Upstream: `rollingUpdate`.
pub(crate) fn roll_out(pass: &mut Pass<'_>) {
    if &*pass.observed.set.spec.update_strategy.type_ != ROLLING_UPDATE {
        return;
    }
    let desired = pass.desired();
    let budget = Budget::of(&pass.observed.set, desired);
    // A node without its pod counts as unavailable.
    let observed = pass.observed;
    for (name, node) in &observed.nodes {
        if observed.pod_template.fit(node).should_run {
            pass.by_node.entry(name).or_default();
        }
    }
    if budget.surge == 0 {
        replace(pass, budget);
    } else {
        pass.error = surge(pass, budget, desired).err();
    }
}

/// The new and the old pod of a node. With two new or two old pods, `of` fails; a later reconciliation
/// deletes one of them. Upstream: `findUpdatedPodsOnNode`.
#[derive(Debug, Clone, Copy)]
struct Pair<'a> {
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

impl<'a> Pair<'a> {
    fn of(pass: &Pass<'a>, pods: &[&'a Arc<Pod>]) -> Result<Self, ()> {
        let mut pair = Self { new: None, old: None };
        for pod in pods.iter().filter(|pod| !pod.meta.deleting()) {
            let entry = if pass.is_updated(pod) { &mut pair.new } else { &mut pair.old };
            if entry.replace(pod).is_some() {
                return Err(());
            }
        }
        Ok(pair)
    }
}

/// Without `maxSurge`: deletes unavailable old pods at once, and others within `maxUnavailable`. A later reconciliation
/// creates the new pods.
fn replace(pass: &mut Pass<'_>, budget: Budget) {
    let (mut unavailable, mut unavailable_old, mut available_old) = (0, Vec::new(), Vec::new());
    for pods in pass.by_node.values() {
        match Pair::of(pass, pods) {
            Ok(Pair { new: Some(new), old: None }) => {
                unavailable += usize::from(!pass.is_available(new));
            }
            Ok(Pair { new: None, old: Some(old) }) if pass.is_available(old) => {
                available_old.push(old);
            }
            Ok(Pair { new: None, old: Some(old) }) => {
                unavailable_old.push(old);
                unavailable += 1;
            }
            Ok(_) | Err(()) => unavailable += 1,
        }
    }
    let allowed = budget.unavailable.saturating_sub(unavailable);
    pass.pods_to_delete.extend(unavailable_old);
    pass.pods_to_delete.extend(available_old.into_iter().take(allowed));
}

/// With `maxSurge`: creates a new pod next to the old one, and deletes the old one when the new one is
/// available. Replacing an unavailable old pod does not use the budget. On nodes that no longer fit, deletes
/// available old pods only while more pods are available than desired.
///
/// # Errors
/// Fails if the cache lacks the node of an old pod. The rolling update then creates and deletes no pod.
fn surge(pass: &mut Pass<'_>, budget: Budget, desired: usize) -> Result<(), PlanError> {
    let (mut surging_nodes, mut available_nodes) = (0, 0);
    // Nodes to surge on: those with an unavailable old pod do not use the budget.
    let (mut free, mut candidates) = (Vec::new(), Vec::new());
    let (mut done, mut misplaced) = (Vec::new(), Vec::new());
    for (name, pods) in &pass.by_node {
        let Ok(pair) = Pair::of(pass, pods) else {
            surging_nodes += 1;
            continue;
        };
        let available = |pod: &Arc<Pod>| pass.is_available(pod);
        available_nodes += usize::from(pair.old.or(pair.new).is_some_and(available));
        let Some(old) = pair.old else { continue };
        let should_run = || match pass.observed.nodes.get(*name) {
            Some(node) => Ok(pass.observed.pod_template.fit(node).should_run),
            None => Err(PlanError::new(format!(
                "couldn't get node for nodeName {name:?}: node {name:?} not found"
            ))),
        };
        match pair.new {
            None if !available(old) && should_run()? => free.push(*name),
            None if !available(old) => done.push(old),
            None if should_run()? => candidates.push(*name),
            None => misplaced.push(old),
            Some(new) if available(new) => done.push(old),
            Some(_) => surging_nodes += 1,
        }
    }
    let spare = available_nodes.saturating_sub(desired);
    pass.pods_to_delete.extend(done);
    pass.pods_to_delete.extend(misplaced.into_iter().take(spare));
    pass.nodes_needing_pods.extend(free);
    pass.nodes_needing_pods
        .extend(candidates.into_iter().take(budget.surge.saturating_sub(surging_nodes)));
    Ok(())
}
