//! Nodes on which a DaemonSet creates and deletes pods. Upstream: `manage` in `daemon_controller.go`.
//!
//! Each node that fits the template has one pod. Once all have theirs, the rolling update replaces pods of
//! old revisions ([`super::rolling`]).
//!
//! | documented rule | implemented in |
//! |---|---|
//! | which nodes: `nodeSelector`, `affinity`, `nodeName`, taints and `tolerations` | `pod_template::fit` |
//! | `tolerations` that each pod gets, its node affinity | `pod_template::new`, `pod_template::pod_json` |
//! | one pod on a node, the oldest | `sync_node`, `retain_oldest` |
//! | failed and succeeded pods, `FailedDaemonPod` | `delete_terminal_pods`, `backoff::Backoff` |
//! | `updateStrategy.type`: `RollingUpdate`, `OnDelete` | `rolling::roll_out` |
//! | `rollingUpdate.maxUnavailable`, `rollingUpdate.maxSurge` | `limits::RolloutLimits`, `rolling::delete_old_pods`, `rolling::surge` |
//! | `minReadySeconds` | `is_available` |
//! | `revisionHistoryLimit` | `status::deletions_beyond_history_limit` |
//! | label `controller-revision-hash`, ControllerRevisions | `construct_history` |
//! | `status.numberMisscheduled`, `status.desiredNumberScheduled` and others | `status::new_status` |
//! | an empty `selector` (`SelectingAll`) | `decide` |

use super::{
    backoff::{Backoff, BackoffKey},
    limits,
    observed::{Observed, revision_hash},
    pod_template::is_updated,
    rolling,
};
use crate::{
    apps::revisions,
    pods::{self, REVISION_LABEL, revision_of},
    wire,
};
use evenkeel_api::{
    View,
    time::Timestamp,
    views::{ControllerRevision, Node, Pod},
};
use evenkeel_runtime::plan::{
    Action, Create, Delete, EventRecord, OnError, Patch, PatchType, Plan, PlanError, Target,
};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Maximum number of pods created, and of pods deleted, in one reconciliation. Upstream: `BurstReplicas`.
const BURST_REPLICAS: usize = 250;

/// Decides the actions, and returns the backoff keys of deleted failed pods.
pub(crate) fn plan(
    observed: &Observed,
    backoff: &Backoff,
    now: Timestamp,
) -> (Plan, Vec<BackoffKey>) {
    let sync = DaemonSetSync::decide(observed, backoff, now);
    let DaemonSetSync { actions, requeue, error, deleted_failed_pods, .. } = sync;
    (Plan { actions, requeue, error }, deleted_failed_pods)
}

/// State of one reconciliation.
pub(crate) struct DaemonSetSync<'a> {
    /// The observed state.
    pub(crate) observed: &'a Observed,
    /// The current time.
    pub(crate) now: Timestamp,
    /// The DaemonSet, as the object of events and owner references.
    pub(crate) target: Target,
    /// Pods by node.
    pub(crate) by_node: BTreeMap<&'a str, Vec<&'a Arc<Pod>>>,
    /// Names of the nodes that get a pod. Upstream: `nodesNeedingDaemonPods`.
    pub(crate) nodes_needing_pods: Vec<&'a str>,
    /// Pods to delete. Upstream: `podsToDelete`.
    pub(crate) pods_to_delete: Vec<&'a Arc<Pod>>,
    /// Error with which the reconciliation ends after its actions.
    pub(crate) error: Option<PlanError>,
    actions: Vec<Action>,
    requeue: Option<Duration>,
    deleted_failed_pods: Vec<BackoffKey>,
}

impl<'a> DaemonSetSync<'a> {
    /// Decides all actions of a reconciliation.
    fn decide(observed: &'a Observed, backoff: &Backoff, now: Timestamp) -> Self {
        let mut sync = Self::begin(observed, now);
        let selector = &observed.set.spec.selector;
        if selector.is_everything() {
            let text = "This daemon set is selecting all pods. A non-empty selector is required.";
            sync.actions
                .push(EventRecord::warning(sync.target.clone(), "SelectingAll", text).into());
            return sync;
        }
        if selector.error().is_some() || observed.set.meta.deleting() {
            return sync;
        }
        sync.actions.extend(observed.revisions.actions(&sync.target));
        sync.actions.extend(observed.pods.actions(&sync.target));
        // Adopt first. A later reconciliation changes or deletes the adopted objects.
        if observed.revisions.n_to_adopt + observed.pods.n_to_adopt > 0 {
            return sync;
        }
        sync.construct_history();
        for node in observed.nodes.values() {
            sync.sync_node(node, backoff);
        }
        sync.delete_pods_of_missing_nodes();
        if sync.nodes_needing_pods.is_empty() && sync.pods_to_delete.is_empty() {
            rolling::roll_out(&mut sync);
        }
        sync.create_and_delete();
        sync
    }

    /// Returns the state before any decision, with the pods grouped by node. Upstream: `getNodesToDaemonPods`.
    pub(crate) fn begin(observed: &'a Observed, now: Timestamp) -> Self {
        Self {
            observed,
            now,
            target: wire::target(&*observed.set),
            by_node: observed.pods_by_node(),
            nodes_needing_pods: Vec::new(),
            pods_to_delete: Vec::new(),
            error: None,
            actions: Vec::new(),
            requeue: None,
            deleted_failed_pods: Vec::new(),
        }
    }

    /// Ensures that each revision has a hash label, and that the template has one revision, the newest. Upstream:
    /// `constructHistory`.
    fn construct_history(&mut self) {
        let observed = self.observed;
        let history = &self.observed.history;
        let set = &*observed.set;
        for revision in history.old.iter().chain(&history.duplicates) {
            self.rewrite_revision(revision, revision.revision);
        }
        if let Some(draft) = history.draft.clone().filter(|draft| draft.existing.is_none()) {
            let labels = &set.spec.template.labels;
            let create =
                draft.create(&self.target, &set.meta, labels, REVISION_LABEL, history.next_number);
            self.actions.push(create.into());
        }
        let Some(current) = &history.current else { return };
        self.rewrite_revision(current, current.revision.max(history.next_number));
        if history.duplicates.is_empty() {
            return;
        }
        let hash = revision_hash(current);
        for pod in observed.pods.owned.iter().filter(|pod| revision_of(pod) != hash) {
            let body = json!({ "metadata": { "labels": { REVISION_LABEL: hash } } });
            let patch = Patch::new(wire::target(&**pod), PatchType::Merge, body.to_string());
            self.actions.push(Patch { on_error: OnError::Abort, ..patch }.into());
        }
        self.actions.extend(history.duplicates.iter().map(|revision| {
            let delete = Delete::new(wire::target(&**revision));
            Delete { on_error: OnError::Abort, ..delete }.into()
        }));
    }

    /// Adds the hash label to a revision that lacks it, and sets its number.
    fn rewrite_revision(&mut self, revision: &ControllerRevision, number: i64) {
        let mut changes = json!({});
        if !revision.meta.labels.contains(REVISION_LABEL) {
            changes["metadata"]["labels"][REVISION_LABEL] = revision_hash(revision).into();
        }
        if revision.revision != number {
            changes["revision"] = number.into();
        }
        if changes != json!({}) {
            self.actions.push(revisions::rewrite(revision, &changes).into());
        }
    }

    /// Decides about the pods of one node. Upstream: `podsShouldBeOnNode`.
    fn sync_node(&mut self, node: &'a Arc<Node>, backoff: &Backoff) {
        let fit = self.observed.pod_template.fit(node);
        let name = &*node.meta.name;
        let Some(pods) = self.by_node.get(name).cloned() else {
            if fit.should_run {
                self.nodes_needing_pods.push(name);
            }
            return;
        };
        if fit.should_continue_running {
            let running = self.delete_terminal_pods(name, pods, backoff);
            self.retain_oldest(name, &running, fit.should_run);
        } else {
            self.pods_to_delete.extend(pods.into_iter().filter(|pod| !pod.meta.deleting()));
        }
    }

    /// Deletes the node's terminal pods, failed ones with backoff. Returns the pods that are neither terminal nor
    /// terminating. Upstream: `podsShouldBeOnNode`.
    fn delete_terminal_pods(
        &mut self,
        node: &str,
        pods: Vec<&'a Arc<Pod>>,
        backoff: &Backoff,
    ) -> Vec<&'a Arc<Pod>> {
        let set = &self.observed.set;
        let mut running_pods = Vec::new();
        for pod in pods.into_iter().filter(|pod| !pod.meta.deleting()) {
            let pod_on_node = || format!("{}/{} on node {node}", pod.meta.namespace, pod.meta.name);
            let event = match &*pod.status.phase {
                "Failed" => {
                    let key = BackoffKey {
                        set: set.meta.uid.clone(),
                        observed_generation: set.status.observed_generation,
                        node: node.into(),
                    };
                    if let Some(remaining) = backoff.remaining(&key, self.now) {
                        // Reconcile when the first of the backoffs ends.
                        let earliest = self.requeue.map_or(remaining, |other| other.min(remaining));
                        self.requeue = Some(earliest);
                        continue;
                    }
                    self.deleted_failed_pods.push(key);
                    let text =
                        format!("Found failed daemon pod {}, will try to kill it", pod_on_node());
                    EventRecord::warning(self.target.clone(), "FailedDaemonPod", text)
                }
                "Succeeded" => {
                    let text = format!(
                        "Found succeeded daemon pod {}, will try to delete it",
                        pod_on_node()
                    );
                    EventRecord::normal(self.target.clone(), "SucceededDaemonPod", text)
                }
                _ => {
                    running_pods.push(pod);
                    continue;
                }
            };
            self.actions.push(event.into());
            self.pods_to_delete.push(pod);
        }
        running_pods
    }

    /// Deletes all pods but the oldest. With `maxSurge`, keeps the oldest pod of the current revision and the oldest
    /// of the others. Upstream: `podsShouldBeOnNode`.
    fn retain_oldest(&mut self, node: &'a str, running: &[&'a Arc<Pod>], should_run: bool) {
        if !limits::allows_surge(&self.observed.set) {
            self.pods_to_delete.extend(running.iter().skip(1));
            return;
        }
        match running {
            [] if should_run => self.nodes_needing_pods.push(node),
            [] | [_] => {}
            _ => self.retain_oldest_new_and_old(running),
        }
    }

    /// Keeps the oldest pod of the current revision and the oldest of the others. Of these two, deletes the old pod
    /// if it is not ready or if the new one is available.
    fn retain_oldest_new_and_old(&mut self, running: &[&'a Arc<Pod>]) {
        let hash = self.observed.history.current_hash();
        let mut oldest_new = None;
        let mut oldest_old = None;
        for pod in running {
            let oldest = if revision_of(pod) == hash { &mut oldest_new } else { &mut oldest_old };
            if oldest.is_some() {
                self.pods_to_delete.push(pod);
            } else {
                *oldest = Some(*pod);
            }
        }
        if let (Some(new), Some(old)) = (oldest_new, oldest_old)
            && (!pods::is_ready(old) || self.is_available(new))
        {
            self.pods_to_delete.push(old);
        }
    }

    /// Deletes pending pods whose node is missing: they can never be scheduled. Upstream:
    /// `getUnscheduledPodsWithoutNode`.
    fn delete_pods_of_missing_nodes(&mut self) {
        let nodes = &self.observed.nodes;
        let without_node = self.by_node.iter().filter(|(node, _)| !nodes.contains_key(**node));
        let pods = without_node.flat_map(|(_, pods)| pods.iter().copied());
        let unscheduled = pods.filter(|pod| pod.spec.node_name.is_empty() && !pod.meta.deleting());
        self.pods_to_delete.extend(unscheduled);
    }

    /// Plans the creations and deletions of pods. Upstream: `syncNodes`.
    fn create_and_delete(&mut self) {
        let observed = self.observed;
        let target = &self.target;
        let set = &*observed.set;
        let owner = wire::controller_reference(target);
        for (index, node) in self.nodes_needing_pods.iter().take(BURST_REPLICAS).enumerate() {
            let hash = observed.history.current_hash();
            let body = observed.pod_template.pod_json(set, node, hash, &owner);
            self.actions.push(
                Create {
                    // Create the revision before the first pod.
                    waits_for_earlier_creates: index == 0,
                    done: Some(EventRecord::normal(
                        target.clone(),
                        "SuccessfulCreate",
                        "Created pod: {name}",
                    )),
                    failed: Some(EventRecord::warning(
                        target.clone(),
                        "FailedCreate",
                        "Error creating: {error}",
                    )),
                    ..Create::new(Pod::kind(), &set.meta.namespace, body)
                }
                .into(),
            );
        }
        for pod in self.pods_to_delete.iter().take(BURST_REPLICAS) {
            let done = format!("Deleted pod: {}", pod.meta.name);
            self.actions.push(
                Delete {
                    done: Some(EventRecord::normal(target.clone(), "SuccessfulDelete", done)),
                    failed: Some(EventRecord::warning(
                        target.clone(),
                        "FailedDelete",
                        "Error deleting: {error}",
                    )),
                    ..Delete::new(wire::target(&***pod))
                }
                .into(),
            );
        }
    }

    /// Returns whether the pod has been ready for `minReadySeconds`.
    pub(crate) fn is_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, self.observed.set.spec.min_ready_seconds, self.now)
    }

    /// Returns whether the pod has the current template.
    pub(crate) fn is_updated(&self, pod: &Pod) -> bool {
        is_updated(&self.observed.set, pod, self.observed.history.current_hash())
    }

    /// Returns the number of nodes that should run a pod.
    pub(crate) fn desired(&self) -> usize {
        let template = &self.observed.pod_template;
        self.observed.nodes.values().filter(|node| template.fit(node).should_run).count()
    }
}
