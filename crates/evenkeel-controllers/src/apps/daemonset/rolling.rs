//! Rolling update of a DaemonSet, node by node. Upstream: `update.go`.

use super::{
    limits::{ROLLING_UPDATE, RolloutLimits},
    plan::DaemonSetSync,
};
use evenkeel_api::views::Pod;
use evenkeel_runtime::plan::PlanError;
use std::sync::Arc;

/// Replaces pods of old revisions within `maxUnavailable` or `maxSurge`, once each node has its pods. Upstream:
/// `rollingUpdate`.
pub(crate) fn roll_out(sync: &mut DaemonSetSync<'_>) {
    if &*sync.observed.set.spec.update_strategy.type_ != ROLLING_UPDATE {
        return;
    }
    let desired = sync.desired();
    let limits = RolloutLimits::resolve(&sync.observed.set, desired);
    // A node without its pod counts as unavailable.
    let observed = sync.observed;
    for (name, node) in &observed.nodes {
        if observed.pod_template.fit(node).should_run {
            sync.by_node.entry(name).or_default();
        }
    }
    if limits.max_surge == 0 {
        replace(sync, limits);
    } else {
        sync.error = surge(sync, limits, desired).err();
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
    fn of(sync: &DaemonSetSync<'a>, pods: &[&'a Arc<Pod>]) -> Result<Self, ()> {
        let mut pair = Self { new: None, old: None };
        for pod in pods.iter().filter(|pod| !pod.meta.deleting()) {
            let entry = if sync.is_updated(pod) { &mut pair.new } else { &mut pair.old };
            if entry.replace(pod).is_some() {
                return Err(());
            }
        }
        Ok(pair)
    }
}

/// Without `maxSurge`: deletes unavailable old pods at once, and others within `maxUnavailable`. A later reconciliation
/// creates the new pods.
fn replace(sync: &mut DaemonSetSync<'_>, limits: RolloutLimits) {
    let (mut unavailable, mut unavailable_old, mut available_old) = (0, Vec::new(), Vec::new());
    for pods in sync.by_node.values() {
        match Pair::of(sync, pods) {
            Ok(Pair { new: Some(new), old: None }) => {
                unavailable += usize::from(!sync.is_available(new));
            }
            Ok(Pair { new: None, old: Some(old) }) if sync.is_available(old) => {
                available_old.push(old);
            }
            Ok(Pair { new: None, old: Some(old) }) => {
                unavailable_old.push(old);
                unavailable += 1;
            }
            Ok(_) | Err(()) => unavailable += 1,
        }
    }
    let allowed = limits.max_unavailable.saturating_sub(unavailable);
    sync.pods_to_delete.extend(unavailable_old);
    sync.pods_to_delete.extend(available_old.into_iter().take(allowed));
}

/// With `maxSurge`: creates a new pod next to the old one, and deletes the old one when the new one is
/// available. Replacing an unavailable old pod does not count. On nodes that no longer fit, deletes
/// available old pods only while more pods are available than desired.
///
/// # Errors
/// Fails if the cache lacks the node of an old pod. The rolling update then creates and deletes no pod.
fn surge(
    sync: &mut DaemonSetSync<'_>,
    limits: RolloutLimits,
    desired: usize,
) -> Result<(), PlanError> {
    let (mut surging_nodes, mut available_nodes) = (0, 0);
    // Nodes to surge on: those with an unavailable old pod do not count.
    let (mut free, mut candidates) = (Vec::new(), Vec::new());
    let (mut done, mut misplaced) = (Vec::new(), Vec::new());
    for (name, pods) in &sync.by_node {
        let Ok(pair) = Pair::of(sync, pods) else {
            surging_nodes += 1;
            continue;
        };
        let available = |pod: &Arc<Pod>| sync.is_available(pod);
        available_nodes += usize::from(pair.old.or(pair.new).is_some_and(available));
        let Some(old) = pair.old else { continue };
        let should_run = || match sync.observed.nodes.get(*name) {
            Some(node) => Ok(sync.observed.pod_template.fit(node).should_run),
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
    sync.pods_to_delete.extend(done);
    sync.pods_to_delete.extend(misplaced.into_iter().take(spare));
    sync.nodes_needing_pods.extend(free);
    sync.nodes_needing_pods
        .extend(candidates.into_iter().take(limits.max_surge.saturating_sub(surging_nodes)));
    Ok(())
}
