//! Pods that the garbage collector deletes. Upstream: `gc_controller.go`.

use crate::{
    disruption::{DisruptionReason, mark_failed},
    wire,
};
use evenkeel_api::{
    Text, View,
    time::{SignedDuration, Timestamp},
    views::{Node, Pod},
};
use evenkeel_component_helpers::scheduling::corev1::OUT_OF_SERVICE_TAINT;
use evenkeel_runtime::{
    client::Metadata,
    plan::{Delete, Failure, LiveRead, OnError, Outcome, Patch, Plan, Steps},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Period of the collection. Upstream: `gcCheckPeriod`.
const GC_CHECK_PERIOD: Duration = Duration::from_secs(20);

/// Time for which a node must be missing before its pods are deleted. Upstream: `quarantineTime`.
const QUARANTINE_TIME: SignedDuration = SignedDuration::from_secs(40);

/// Condition of pods whose node no longer exists.
const ORPHANED_CONDITION: DisruptionReason = DisruptionReason {
    reason: "DeletionByPodGC",
    message: "PodGC: node no longer exists",
    has_generation: true,
};

/// Pods that may have to be deleted. Most pods of a cluster run on a node, and are not among these.
#[derive(Default)]
pub(super) struct Observed {
    /// Terminated pods, if they are more than the threshold.
    pub(super) terminated: Vec<Arc<Pod>>,
    /// Pods with a deletion timestamp.
    pub(super) terminating: Vec<Arc<Pod>>,
    /// Pods that are bound to a node that does not exist.
    pub(super) orphaned: Vec<Arc<Pod>>,
    /// Nodes of the pods with a deletion timestamp.
    pub(super) nodes: Vec<Arc<Node>>,
}

/// Keys of the index that finds the observed pods.
pub(super) const TERMINATED: &str = "terminated";
pub(super) const TERMINATING: &str = "terminating";

/// Calls back with the keys under which the pod is observed, whatever its node.
pub(super) fn keys(pod: &Pod, key: &mut dyn FnMut(&str)) {
    if !matches!(&*pod.status.phase, "Pending" | "Running" | "Unknown") {
        key(TERMINATED);
    }
    if pod.meta.deleting() {
        key(TERMINATING);
    }
}

/// Pod to delete, with the reason.
struct PodToDelete {
    pod: Arc<Pod>,
    /// Label `reason` in metrics.
    reason: &'static str,
    /// Patch of the status that precedes the deletion.
    condition_patch: Option<Patch>,
}

/// A deletion. Its error, if any, may also be the error of the status patch before it.
pub(super) struct Deletion<'a> {
    pub(super) pod: Arc<Pod>,
    /// Label `reason` in metrics.
    pub(super) reason: &'static str,
    pub(super) error: Option<&'a Failure>,
}

/// State between two reconciliations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Memory {
    quarantine: Quarantine,
    /// Nodes whose quarantine has passed. A live read must confirm that they are missing.
    pub(super) presumed_deleted_nodes: Vec<Text>,
}

impl Memory {
    /// Returns the memory of a collection at this time.
    pub(super) fn updated(&self, observed: &Observed, now: Timestamp) -> Self {
        let mut quarantine = self.quarantine.clone();
        Self { presumed_deleted_nodes: quarantine.update(observed, now), quarantine }
    }
}

/// Missing nodes to which pods are bound, each with the time since which it has been missing. Upstream: `nodeQueue`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Quarantine(BTreeMap<Text, Timestamp>);

impl Quarantine {
    /// Updates the missing nodes, and returns those whose quarantine has passed. Upstream: `gcOrphaned`.
    fn update(&mut self, observed: &Observed, now: Timestamp) -> Vec<Text> {
        let missing: BTreeSet<&str> =
            observed.orphaned.iter().map(|pod| &*pod.spec.node_name).collect();
        self.0.retain(|name, _| missing.contains(&**name));
        for name in missing {
            self.0.entry(name.into()).or_insert(now);
        }
        let has_passed = |since: Timestamp| now.duration_since(since) >= QUARANTINE_TIME;
        let passed = self.0.iter().filter(|(_, since)| has_passed(**since));
        passed.map(|(name, _)| name.clone()).collect()
    }
}

/// Deletes pods, and requeues after the period. Upstream: `gc`.
pub(super) fn plan(
    observed: &Observed,
    memory: &Memory,
    threshold: i64,
    now: Timestamp,
    steps: &mut Steps<'_>,
) -> Result<Plan, Plan> {
    collect_garbage(observed, memory, threshold, now, steps)?;
    Ok(Plan { requeue: Some(GC_CHECK_PERIOD), ..Plan::nothing() })
}

/// Confirms missing nodes, marks their pods as failed, and deletes the pods. A failure for one pod does not block the
/// others.
pub(super) fn collect_garbage<'a>(
    observed: &Observed,
    memory: &Memory,
    threshold: i64,
    now: Timestamp,
    steps: &mut Steps<'a>,
) -> Result<Vec<Deletion<'a>>, Plan> {
    let deleted_nodes = discover_deleted_nodes(&memory.presumed_deleted_nodes, steps)?;
    let pods = pods_to_delete(observed, &deleted_nodes, threshold, now);
    let patches = pods.iter().filter_map(|pod| pod.condition_patch.clone());
    let patches = patches.map(|patch| Patch { on_error: OnError::Ignore, ..patch }.into());
    let mut patch_outcomes = steps.all(Plan::of(patches.collect()))?.iter();
    let mut deletions: Vec<Deletion<'a>> = pods
        .into_iter()
        .map(|PodToDelete { pod, reason, condition_patch }| {
            let error = condition_patch.and_then(|_| patch_outcomes.next()?.error.as_ref());
            Deletion { pod, reason, error }
        })
        .collect();
    // A pod whose status patch failed is not deleted.
    let deletes = deletions.iter().filter(|deletion| deletion.error.is_none()).map(|deletion| {
        let delete = Delete::new(wire::target(&*deletion.pod));
        Delete { grace_seconds: Some(0), on_error: OnError::Ignore, ..delete }.into()
    });
    let delete_outcomes = steps.all(Plan::of(deletes.collect()))?;
    let requested = deletions.iter_mut().filter(|deletion| deletion.error.is_none());
    for (deletion, outcome) in requested.zip(delete_outcomes) {
        deletion.error = outcome.error.as_ref();
    }
    Ok(deletions)
}

/// Returns the nodes that are confirmed missing by a live read. Upstream: `discoverDeletedNodes`.
fn discover_deleted_nodes(
    presumed_deleted: &[Text],
    steps: &mut Steps<'_>,
) -> Result<BTreeSet<Text>, Plan> {
    let reads = presumed_deleted.iter().map(|name| {
        let read = LiveRead::get::<Metadata>(&Node::kind(), "", name);
        LiveRead { on_error: OnError::Ignore, ..read }.into()
    });
    let outcomes = steps.all(Plan::of(reads.collect()))?;
    let is_gone = |outcome: &Outcome| outcome.error.as_ref().is_some_and(Failure::is_not_found);
    let deleted = presumed_deleted.iter().zip(outcomes).filter(|(_, outcome)| is_gone(outcome));
    Ok(deleted.map(|(name, _)| name.clone()).collect())
}

/// Returns the distinct pods to delete in upstream's order. Upstream: `gcTerminated`, `gcTerminating`, `gcOrphaned`,
/// `gcUnscheduledTerminating`.
fn pods_to_delete(
    observed: &Observed,
    deleted_nodes: &BTreeSet<Text>,
    threshold: i64,
    now: Timestamp,
) -> Vec<PodToDelete> {
    let nodes: BTreeMap<&str, &Node> =
        observed.nodes.iter().map(|node| (&*node.meta.name, &**node)).collect();
    let mut added_uids = BTreeSet::new();
    let mut selected = Vec::new();
    let mut add = |pod: &Arc<Pod>, reason: &'static str, disruption: Option<DisruptionReason>| {
        if !added_uids.insert(pod.meta.uid.clone()) {
            return;
        }
        let condition_patch = mark_failed(pod, disruption, now);
        selected.push(PodToDelete { pod: pod.clone(), reason, condition_patch });
    };
    for pod in terminated_beyond_threshold(&observed.terminated, threshold) {
        add(pod, "terminated", None);
    }
    let stuck = observed
        .terminating
        .iter()
        .filter(|pod| nodes.get(&*pod.spec.node_name).is_some_and(|node| is_out_of_service(node)));
    for pod in sort_by_eviction_and_creation(stuck.collect()) {
        add(pod, "out-of-service", None);
    }
    for pod in observed.orphaned.iter().filter(|pod| deleted_nodes.contains(&pod.spec.node_name)) {
        add(pod, "orphaned", Some(ORPHANED_CONDITION));
    }
    for pod in observed.terminating.iter().filter(|pod| pod.spec.node_name.is_empty()) {
        add(pod, "unscheduled", None);
    }
    selected
}

/// Returns the terminated pods beyond the threshold: evicted pods first, then the oldest. Upstream: `gcTerminated`.
fn terminated_beyond_threshold(terminated: &[Arc<Pod>], threshold: i64) -> Vec<&Arc<Pod>> {
    let Ok(threshold) = usize::try_from(threshold) else { return Vec::new() };
    if threshold == 0 || terminated.len() <= threshold {
        return Vec::new();
    }
    let mut excess = sort_by_eviction_and_creation(terminated.iter().collect());
    excess.truncate(terminated.len() - threshold);
    excess
}

/// Sorts pods: evicted pods first, then by creation time, then by name. Upstream: `byEvictionAndCreationTimestamp`.
fn sort_by_eviction_and_creation(mut pods: Vec<&Arc<Pod>>) -> Vec<&Arc<Pod>> {
    let evicted = |pod: &Pod| &*pod.status.phase == "Failed" && &*pod.status.reason == "Evicted";
    pods.sort_by(|a, b| {
        let key = |pod: &Pod| (!evicted(pod), pod.meta.creation);
        key(a).cmp(&key(b)).then_with(|| a.meta.name.cmp(&b.meta.name))
    });
    pods
}

/// Returns whether the node is not ready and has the taint `out-of-service`.
fn is_out_of_service(node: &Node) -> bool {
    let ready = node.status.conditions.iter().find(|condition| &*condition.type_ == "Ready");
    ready.is_none_or(|ready| &*ready.status != "True")
        && node.spec.taints.iter().any(|taint| &*taint.key == OUT_OF_SERVICE_TAINT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, meta, pod};
    use evenkeel_api::views::{NodeCondition, Taint};
    use evenkeel_runtime::plan::{Action, Outcomes, lint};
    use proptest::prelude::*;

    /// Returns a pod on a node, with this phase.
    fn pod_on(name: &str, node: &str, phase: &str) -> Pod {
        let mut pod = pod(name, None);
        pod.spec.node_name = node.into();
        pod.status.phase = phase.into();
        pod
    }

    fn deleting(mut pod: Pod) -> Pod {
        pod.meta.deletion = Some(T0);
        pod
    }

    /// Returns a node with this status of `Ready`, and taints with these keys.
    fn node(name: &str, ready: &str, taints: &[&str]) -> Arc<Node> {
        let mut node = Node { meta: meta(name), ..Node::default() };
        node.status.conditions = Box::new([NodeCondition {
            type_: "Ready".into(),
            status: ready.into(),
            ..NodeCondition::default()
        }]);
        let taint = |key: &&str| Taint { key: (*key).into(), ..Taint::default() };
        node.spec.taints = taints.iter().map(taint).collect();
        Arc::new(node)
    }

    fn observed(pods: Vec<Pod>, nodes: Vec<Arc<Node>>) -> Observed {
        let mut observed = Observed { nodes, ..Observed::default() };
        for pod in pods.into_iter().map(Arc::new) {
            keys(&pod, &mut |key| match key {
                TERMINATED => observed.terminated.push(Arc::clone(&pod)),
                _ => observed.terminating.push(Arc::clone(&pod)),
            });
            let name = &pod.spec.node_name;
            if !name.is_empty() && observed.nodes.iter().all(|node| node.meta.name != *name) {
                observed.orphaned.push(pod);
            }
        }
        observed
    }

    /// Returns names and reasons of the deleted pods.
    fn deleted(
        observed: &Observed,
        deleted_nodes: &[&str],
        threshold: i64,
    ) -> Vec<(String, &'static str)> {
        let deleted_nodes = deleted_nodes.iter().map(|name| (*name).into()).collect();
        let selected = pods_to_delete(observed, &deleted_nodes, threshold, T0);
        selected.iter().map(|entry| (entry.pod.meta.name.to_string(), entry.reason)).collect()
    }

    #[test]
    fn evicted_and_oldest_terminated_pods_are_deleted_first() {
        let mut pods = vec![
            pod_on("c", "n", "Succeeded"),
            pod_on("b", "n", "Failed"),
            pod_on("r", "n", "Running"),
        ];
        let mut old = pod_on("o", "n", "Succeeded");
        old.meta.creation = Some(at(-5));
        let mut evicted = pod_on("e", "n", "Failed");
        evicted.status.reason = "Evicted".into();
        pods.extend([old, evicted]);
        let observed = observed(pods, vec![node("n", "True", &[])]);
        let names = |threshold| {
            deleted(&observed, &[], threshold).into_iter().map(|(name, _)| name).collect::<String>()
        };
        assert_eq!(names(4), "");
        assert_eq!(names(3), "e");
        assert_eq!(names(1), "eob");
        assert_eq!(names(0), "");
        assert_eq!(names(-1), "");
    }

    #[test]
    fn orphaned_out_of_service_and_unscheduled_pods_are_deleted() {
        let nodes = vec![
            node("well", "True", &[OUT_OF_SERVICE_TAINT]),
            node("down", "Unknown", &[]),
            node("out", "False", &[OUT_OF_SERVICE_TAINT]),
        ];
        let pods = vec![
            deleting(pod_on("a", "well", "Running")),
            deleting(pod_on("b", "down", "Running")),
            deleting(pod_on("c", "out", "Running")),
            pod_on("d", "out", "Running"),
            pod_on("e", "lost", "Running"),
            pod_on("f", "", "Pending"),
            deleting(pod_on("g", "", "Pending")),
            deleting(pod_on("h", "lost", "Succeeded")),
        ];
        let want =
            [("c", "out-of-service"), ("e", "orphaned"), ("h", "orphaned"), ("g", "unscheduled")];
        let want: Vec<_> = want.map(|(name, reason)| (name.to_owned(), reason)).into();
        assert_eq!(deleted(&observed(pods, nodes), &["lost"], 100), want);
    }

    #[test]
    fn unfinished_pod_is_marked_failed_before_deletion() {
        let observed = observed(
            vec![pod_on("a", "lost", "Running"), pod_on("b", "lost", "Failed")],
            Vec::new(),
        );
        let selected = pods_to_delete(&observed, &BTreeSet::from(["lost".into()]), 0, T0);
        let patch = selected[0].condition_patch.as_ref().expect("a patch");
        let body: serde_json::Value = serde_json::from_slice(&patch.body).expect("JSON");
        assert_eq!(body["status"]["phase"], "Failed");
        assert_eq!(body["status"]["conditions"][0]["reason"], "DeletionByPodGC");
        assert!(selected[1].condition_patch.is_none());
    }

    /// Returns the next step after these outcomes, as text.
    fn next(observed: &Observed, memory: &Memory, outcomes: &[Outcome]) -> Option<String> {
        let outcomes = Outcomes(outcomes.to_vec());
        let plan = Steps::next(&outcomes, |steps| plan(observed, memory, 0, T0, steps))?;
        assert!(lint(&plan).is_empty());
        let summaries = plan.actions.iter().map(|action| match action {
            Action::Read(read) => format!("read {}", read.path()),
            Action::Patch(patch) => format!("mark {}", patch.target.name),
            Action::Delete(delete) => {
                assert_eq!(delete.grace_seconds, Some(0));
                format!("delete {}", delete.target.name)
            }
            other => panic!("{other:?}"),
        });
        let summaries: Vec<String> = summaries.collect();
        let requeue = plan.requeue.map(|after| format!("again after {} s", after.as_secs()));
        Some(summaries.into_iter().chain(requeue).collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn missing_node_is_confirmed_before_its_pods_are_deleted() {
        let observed = observed(
            vec![
                pod_on("a", "m", "Running"),
                pod_on("b", "n", "Running"),
                pod_on("c", "n", "Failed"),
            ],
            Vec::new(),
        );
        let memory =
            Memory { presumed_deleted_nodes: vec!["m".into(), "n".into()], ..Memory::default() };
        let (done, failed) =
            (Outcome::success, |code| Outcome::failure(Failure { code, ..Failure::local("no") }));
        // Outcomes of the steps so far, and the next step. The previous pass missed both nodes.
        let table: [(&[Outcome], Option<&str>); 8] = [
            (&[], Some("read /api/v1/nodes/m, read /api/v1/nodes/n")),
            (&[done(), failed(500)], Some("again after 20 s")),
            (&[failed(404), done()], Some("mark a")),
            (&[done(), failed(404)], Some("mark b")),
            (&[done(), failed(404), done()], Some("delete b, delete c")),
            (&[done(), failed(404), failed(500)], Some("delete c")),
            (&[done(), failed(404), failed(500), done()], Some("again after 20 s")),
            (&[failed(404), failed(404)], Some("mark a, mark b")),
        ];
        for (number, (outcomes, want)) in table.iter().enumerate() {
            assert_eq!(next(&observed, &memory, outcomes).as_deref(), *want, "{number}");
        }
        let none_missed = Memory::default();
        assert_eq!(next(&observed, &none_missed, &[]).as_deref(), Some("again after 20 s"));
    }

    #[test]
    fn failure_is_reported_for_its_pod() {
        let observed = observed(
            vec![
                pod_on("a", "n", "Running"),
                pod_on("b", "n", "Running"),
                pod_on("c", "n", "Failed"),
            ],
            Vec::new(),
        );
        let memory = Memory { presumed_deleted_nodes: vec!["n".into()], ..Memory::default() };
        let failed = |code, text: &str| Outcome::failure(Failure { code, ..Failure::local(text) });
        let done = Outcome::success;
        let outcomes = Outcomes(vec![
            failed(404, ""),
            done(),
            failed(500, "mark"),
            done(),
            failed(500, "delete"),
        ]);
        let deletions =
            collect_garbage(&observed, &memory, 0, T0, &mut Steps::of(&outcomes)).expect("the end");
        let all = deletions.iter().map(|deletion| {
            (&*deletion.pod.meta.name, deletion.error.map(|error| &*error.message))
        });
        let want = [("a", None), ("b", Some("mark")), ("c", Some("delete"))];
        assert_eq!(all.collect::<Vec<_>>(), want);
    }

    #[test]
    fn node_is_quarantined_for_40_seconds() {
        let mut quarantine = Quarantine::default();
        let missing = observed(vec![pod_on("a", "n", "Running")], Vec::new());
        let back = observed(vec![pod_on("a", "n", "Running")], vec![node("n", "True", &[])]);
        assert!(quarantine.update(&missing, at(0)).is_empty());
        assert!(quarantine.update(&missing, at(39)).is_empty());
        assert_eq!(quarantine.update(&missing, at(40)), ["n".into()]);
        assert!(quarantine.update(&back, at(41)).is_empty());
        assert!(quarantine.update(&missing, at(42)).is_empty(), "the quarantine starts again");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn terminated_pod_threshold_remains(ended in 0usize..30, running in 0usize..10, threshold in 1i64..30) {
            let done = (0..ended).map(|n| pod_on(&format!("e{n}"), "n", "Succeeded"));
            let busy = (0..running).map(|n| pod_on(&format!("r{n}"), "n", "Running"));
            let observed = observed(done.chain(busy).collect(), vec![node("n", "True", &[])]);
            let deleted = deleted(&observed, &[], threshold);
            prop_assert_eq!(deleted.len(), ended.saturating_sub(usize::try_from(threshold).unwrap()));
            prop_assert!(deleted.iter().all(|(name, _)| name.starts_with('e')));
        }
    }
}
