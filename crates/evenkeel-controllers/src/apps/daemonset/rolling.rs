//! Rolling update of a DaemonSet, node by node. Upstream: `update.go`.

use super::{
    limits::{ROLLING_UPDATE, RolloutLimits},
    observed::Observed,
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
        delete_old_pods(sync, limits);
    } else {
        sync.error = surge(sync, limits, desired).err();
    }
}

/// The new and the old pod of a node: the pod of the update revision, and the pod of an older one.
#[derive(Debug, Clone, Copy)]
struct OldAndNewPod<'a> {
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

impl<'a> OldAndNewPod<'a> {
    /// Finds the new and the old pod among a node's pods, without terminating pods. Returns `None` if the node has two
    /// new or two old pods; a later reconciliation deletes one of them. Upstream: `findUpdatedPodsOnNode`.
    fn find(sync: &DaemonSetSync<'a>, pods: &[&'a Arc<Pod>]) -> Option<Self> {
        let mut pair = Self { new: None, old: None };
        for pod in pods.iter().filter(|pod| !pod.meta.deleting()) {
            let pod_of_revision = if sync.is_updated(pod) { &mut pair.new } else { &mut pair.old };
            if pod_of_revision.replace(pod).is_some() {
                return None;
            }
        }
        Some(pair)
    }
}

/// Rolls out without `maxSurge`: deletes unavailable old pods immediately, and others within `maxUnavailable`. A later
/// reconciliation creates the new pods.
fn delete_old_pods(sync: &mut DaemonSetSync<'_>, limits: RolloutLimits) {
    let mut unavailable_nodes = 0;
    let mut unavailable_old = Vec::new();
    let mut available_old = Vec::new();
    for pods in sync.by_node.values() {
        match OldAndNewPod::find(sync, pods) {
            Some(OldAndNewPod { new: Some(new), old: None }) => {
                unavailable_nodes += usize::from(!sync.is_available(new));
            }
            Some(OldAndNewPod { new: None, old: Some(old) }) if sync.is_available(old) => {
                available_old.push(old);
            }
            Some(OldAndNewPod { new: None, old: Some(old) }) => {
                unavailable_old.push(old);
                unavailable_nodes += 1;
            }
            Some(_) | None => unavailable_nodes += 1,
        }
    }
    let may_become_unavailable = limits.max_unavailable.saturating_sub(unavailable_nodes);
    sync.pods_to_delete.extend(unavailable_old);
    sync.pods_to_delete.extend(available_old.into_iter().take(may_become_unavailable));
}

/// Rolls out with `maxSurge`: creates a new pod next to the old one, and deletes the old pod when the new one is
/// available.
///
/// - If the old pod of a node is unavailable, creates the new pod even if `maxSurge` is used up. Until that pod is
///   available, it counts against `maxSurge` like all other new pods.
/// - If a node no longer fits, deletes its available old pod only while more pods are available than desired.
///
/// # Errors
/// Fails if the cache lacks the node of an old pod. The rolling update then creates and deletes no pod.
fn surge(
    sync: &mut DaemonSetSync<'_>,
    limits: RolloutLimits,
    desired: usize,
) -> Result<(), PlanError> {
    // Nodes that count against `maxSurge`: they have an old pod and an unavailable new one, or surplus pods.
    let mut surging_nodes = 0;
    let mut available_nodes = 0;
    // Nodes that get a new pod: all allowed nodes, and as many candidates as `maxSurge` permits.
    let mut allowed_nodes = Vec::new();
    let mut candidate_nodes = Vec::new();
    // Old pods to delete: all replaced pods, and misplaced pods only while more pods are available than desired.
    let mut replaced_pods = Vec::new();
    let mut misplaced_pods = Vec::new();
    for (name, pods) in &sync.by_node {
        let Some(pair) = OldAndNewPod::find(sync, pods) else {
            surging_nodes += 1;
            continue;
        };
        let is_available = |pod: &Arc<Pod>| sync.is_available(pod);
        available_nodes += usize::from(pair.old.or(pair.new).is_some_and(is_available));
        let Some(old) = pair.old else { continue };
        if let Some(new) = pair.new {
            if is_available(new) {
                replaced_pods.push(old);
            } else {
                surging_nodes += 1;
            }
            continue;
        }
        match (is_available(old), should_run(sync.observed, name)?) {
            (false, true) => allowed_nodes.push(*name),
            (false, false) => replaced_pods.push(old),
            (true, true) => candidate_nodes.push(*name),
            (true, false) => misplaced_pods.push(old),
        }
    }
    let surplus_nodes = available_nodes.saturating_sub(desired);
    sync.pods_to_delete.extend(replaced_pods);
    sync.pods_to_delete.extend(misplaced_pods.into_iter().take(surplus_nodes));
    let may_surge = limits.max_surge.saturating_sub(surging_nodes);
    sync.nodes_needing_pods.extend(allowed_nodes);
    sync.nodes_needing_pods.extend(candidate_nodes.into_iter().take(may_surge));
    Ok(())
}

/// Returns whether the node should run a pod. Fails if the cache lacks the node.
fn should_run(observed: &Observed, node_name: &str) -> Result<bool, PlanError> {
    let Some(node) = observed.nodes.get(node_name) else {
        return Err(PlanError::new(format!(
            "couldn't get node for nodeName {node_name:?}: node {node_name:?} not found"
        )));
    };
    Ok(observed.pod_template.fit(node).should_run)
}
