//! Pods that the garbage collector deletes. Upstream: `gc_controller.go`.

use crate::{
    disruption::{DisruptionReason, mark_failed},
    pods::is_terminal,
    wire,
};
use evenkeel_api::{
    Text, View,
    time::{SignedDuration, Timestamp},
    views::{Node, Pod},
};
use evenkeel_runtime::{
    client::Metadata,
    plan::{Delete, Failure, LiveRead, OnError, Patch, Plan, Steps},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Period of the collection. Upstream: `gcCheckPeriod`.
const PERIOD: Duration = Duration::from_secs(20);

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Time for which a node must be missing before its pods are deleted. Upstream: `quarantineTime`.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

const ORPHANED: DisruptionReason =
    DisruptionReason { reason: "DeletionByPodGC", message: "PodGC: node no longer exists" };

/// All pods and nodes.
pub(super) struct Observed {
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) nodes: Vec<Arc<Node>>,
}

/// A pod to delete.
struct Doomed {
    pod: Arc<Pod>,
    /// Label `reason` in metrics.
    reason: &'static str,
    /// Patch of the status that precedes the deletion.
    condition_patch: Option<Patch>,
}

/// A deletion, and its error or the error of the status patch before it, if any.
pub(super) struct Deletion<'a> {
    pub(super) pod: Arc<Pod>,
    /// Label `reason` in metrics.
    pub(super) reason: &'static str,
    pub(super) error: Option<&'a Failure>,
}

/// State between two passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Memory {
    quarantine: Quarantine,
    /// Nodes whose quarantine has passed; a live read must confirm that they are missing.
    pub(super) missed: Vec<Text>,
}

impl Memory {
    /// Returns the memory of a collection at this time.
    pub(super) fn updated(&self, observed: &Observed, now: Timestamp) -> Self {
        let mut quarantine = self.quarantine.clone();
        Self { missed: quarantine.missed(observed, now), quarantine }
    }
}

/// Missing nodes to which pods are bound, each with the time since which it is missing. Upstream: `nodeQueue`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Quarantine(BTreeMap<Text, Timestamp>);

impl Quarantine {
    /// Updates the missing nodes, and returns those whose quarantine has passed. Upstream: `gcOrphaned`.
    fn missed(&mut self, observed: &Observed, now: Timestamp) -> Vec<Text> {
        let existing: BTreeSet<&str> = observed.nodes.iter().map(|node| &*node.meta.name).collect();
        let assigned = observed.pods.iter().map(|pod| &*pod.spec.node_name);
        let missing: BTreeSet<&str> =
            assigned.filter(|name| !name.is_empty() && !existing.contains(name)).collect();
        self.0.retain(|name, _| missing.contains(&**name));
        for name in missing {
            self.0.entry(name.into()).or_insert(now);
        }
        let long = self.0.iter().filter(|(_, since)| now.duration_since(**since) >= QUARANTINE);
        long.map(|(name, _)| name.clone()).collect()
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
    collect(observed, memory, threshold, now, steps)?;
    Ok(Plan { requeue: Some(PERIOD), ..Plan::nothing() })
}

/// Confirms missing nodes, marks their pods as failed, and deletes the pods. A failure for one pod does not block the
/// others.
pub(super) fn collect<'a>(
    observed: &Observed,
    memory: &Memory,
    threshold: i64,
    now: Timestamp,
    steps: &mut Steps<'a>,
) -> Result<Vec<Deletion<'a>>, Plan> {
    let lost = discover_deleted_nodes(&memory.missed, steps)?;
    let doomed = doomed(observed, &lost, threshold, now);
    let marks = doomed.iter().filter_map(|doomed| doomed.condition_patch.clone());
    let marks =
        marks.map(|condition_patch| Patch { on_error: OnError::Ignore, ..condition_patch }.into());
    let mut marked = steps.all(Plan::of(marks.collect()))?.iter();
    let mut deletions: Vec<Deletion<'a>> = doomed
        .into_iter()
        .map(|Doomed { pod, reason, condition_patch }| {
            let error = condition_patch.and_then(|_| marked.next()?.error.as_ref());
            Deletion { pod, reason, error }
        })
        .collect();
    let marked = || deletions.iter().filter(|deletion| deletion.error.is_none());
    let deletes = marked().map(|deletion| {
        let delete = Delete::new(wire::target(&*deletion.pod));
        Delete { grace_seconds: Some(0), on_error: OnError::Ignore, ..delete }.into()
    });
    let deleted = steps.all(Plan::of(deletes.collect()))?;
    let marked = deletions.iter_mut().filter(|deletion| deletion.error.is_none());
    for (deletion, outcome) in marked.zip(deleted) {
        deletion.error = outcome.error.as_ref();
    }
    Ok(deletions)
}

/// Returns the nodes that are confirmed missing by a live read. Upstream: `discoverDeletedNodes`.
fn discover_deleted_nodes(missed: &[Text], steps: &mut Steps<'_>) -> Result<BTreeSet<Text>, Plan> {
    let reads = missed.iter().map(|name| {
        let read = LiveRead::get::<Metadata>(&Node::kind(), "", name);
        LiveRead { on_error: OnError::Ignore, ..read }.into()
    });
    let read = steps.all(Plan::of(reads.collect()))?;
    let is_gone = |error: &Failure| error.is_not_found();
    let lost = missed.iter().zip(read).filter(|(_, read)| read.error.as_ref().is_some_and(is_gone));
    Ok(lost.map(|(name, _)| name.clone()).collect())
}

/// Returns the pods to delete, each once, in upstream's order. Upstream: `gcTerminated`, `gcTerminating`, `gcOrphaned`,
/// `gcUnscheduledTerminating`.
fn doomed(
    observed: &Observed,
    lost: &BTreeSet<Text>,
    threshold: i64,
    now: Timestamp,
) -> Vec<Doomed> {
    let nodes: BTreeMap<&str, &Node> =
        observed.nodes.iter().map(|node| (&*node.meta.name, &**node)).collect();
    let mut taken = BTreeSet::new();
    let mut doomed = Vec::new();
    let mut take = |pod: &Arc<Pod>, reason: &'static str, why: Option<DisruptionReason>| {
        if !taken.insert(pod.meta.uid.clone()) {
            return;
        }
        let condition_patch = mark_failed(pod, why.filter(|_| !is_terminal(pod)), now);
        doomed.push(Doomed { pod: pod.clone(), reason, condition_patch });
    };
    for pod in superfluous(&observed.pods, threshold) {
        take(pod, "terminated", None);
    }
    let stuck = observed.pods.iter().filter(|pod| {
        let node = nodes.get(&*pod.spec.node_name);
        pod.meta.deleting() && node.is_some_and(|node| is_out_of_service(node))
    });
    for pod in in_order(stuck.collect()) {
        take(pod, "out-of-service", None);
    }
    for pod in observed.pods.iter().filter(|pod| lost.contains(&pod.spec.node_name)) {
        take(pod, "orphaned", Some(ORPHANED));
    }
    for pod in observed.pods.iter().filter(|p| p.meta.deleting() && p.spec.node_name.is_empty()) {
        take(pod, "unscheduled", None);
    }
    doomed
}

/// Returns the terminated pods beyond the threshold: evicted pods first, then the oldest. Upstream: `gcTerminated`.
fn superfluous(pods: &[Arc<Pod>], threshold: i64) -> Vec<&Arc<Pod>> {
    let Ok(threshold) = usize::try_from(threshold) else { return Vec::new() };
    let has_ended =
        |pod: &&Arc<Pod>| !matches!(&*pod.status.phase, "Pending" | "Running" | "Unknown");
    let ended: Vec<&Arc<Pod>> = pods.iter().filter(has_ended).collect();
    if threshold == 0 || ended.len() <= threshold {
        return Vec::new();
    }
    let excess_count = ended.len() - threshold;
    let mut ended = in_order(ended);
    ended.truncate(excess_count);
    ended
}

/// Sorts pods: evicted pods first, then by creation time, then by name. Upstream: `byEvictionAndCreationTimestamp`.
fn in_order(mut pods: Vec<&Arc<Pod>>) -> Vec<&Arc<Pod>> {
    let evicted = |pod: &Pod| &*pod.status.phase == "Failed" && &*pod.status.reason == "Evicted";
    pods.sort_by(|a, b| {
        let key = |pod: &Pod| (!evicted(pod), pod.meta.creation);
        key(a).cmp(&key(b)).then_with(|| a.meta.name.cmp(&b.meta.name))
    });
    pods
}

fn is_out_of_service(node: &Node) -> bool {
    let ready = node.status.conditions.iter().find(|condition| &*condition.type_ == "Ready");
    ready.is_none_or(|ready| &*ready.status != "True")
        && node.spec.taints.iter().any(|taint| &*taint.key == OUT_OF_SERVICE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, meta, pod};
    use evenkeel_api::views::{NodeCondition, Taint};
    use evenkeel_runtime::plan::{Action, Outcome, Outcomes, lint};
    use proptest::prelude::*;

    /// Returns a pod on a node, with this phase.
    fn on(name: &str, node: &str, phase: &str) -> Pod {
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
        Observed { pods: pods.into_iter().map(Arc::new).collect(), nodes }
    }

    /// Returns names and reasons of the deleted pods.
    fn deleted(observed: &Observed, lost: &[&str], threshold: i64) -> Vec<(String, &'static str)> {
        let lost = lost.iter().map(|name| (*name).into()).collect();
        let doomed = doomed(observed, &lost, threshold, T0);
        doomed.iter().map(|doomed| (doomed.pod.meta.name.to_string(), doomed.reason)).collect()
    }

    #[test]
    fn evicted_and_oldest_terminated_pods_are_deleted_first() {
        let mut pods =
            vec![on("c", "n", "Succeeded"), on("b", "n", "Failed"), on("r", "n", "Running")];
        let mut old = on("o", "n", "Succeeded");
        old.meta.creation = Some(at(-5));
        let mut evicted = on("e", "n", "Failed");
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
            node("well", "True", &[OUT_OF_SERVICE]),
            node("down", "Unknown", &[]),
            node("out", "False", &[OUT_OF_SERVICE]),
        ];
        let pods = vec![
            deleting(on("a", "well", "Running")),
            deleting(on("b", "down", "Running")),
            deleting(on("c", "out", "Running")),
            on("d", "out", "Running"),
            on("e", "lost", "Running"),
            on("f", "", "Pending"),
            deleting(on("g", "", "Pending")),
            deleting(on("h", "lost", "Succeeded")),
        ];
        let want =
            [("c", "out-of-service"), ("e", "orphaned"), ("h", "orphaned"), ("g", "unscheduled")];
        let want: Vec<_> = want.map(|(name, reason)| (name.to_owned(), reason)).into();
        assert_eq!(deleted(&observed(pods, nodes), &["lost"], 100), want);
    }

    #[test]
    fn unfinished_pod_is_marked_failed_before_deletion() {
        let observed =
            observed(vec![on("a", "lost", "Running"), on("b", "lost", "Failed")], Vec::new());
        let doomed = doomed(&observed, &BTreeSet::from(["lost".into()]), 0, T0);
        let patch = doomed[0].condition_patch.as_ref().expect("a patch");
        let body: serde_json::Value = serde_json::from_slice(&patch.body).expect("JSON");
        assert_eq!(body["status"]["phase"], "Failed");
        assert_eq!(body["status"]["conditions"][0]["reason"], "DeletionByPodGC");
        assert!(doomed[1].condition_patch.is_none());
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
            vec![on("a", "m", "Running"), on("b", "n", "Running"), on("c", "n", "Failed")],
            Vec::new(),
        );
        let memory = Memory { missed: vec!["m".into(), "n".into()], ..Memory::default() };
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
            vec![on("a", "n", "Running"), on("b", "n", "Running"), on("c", "n", "Failed")],
            Vec::new(),
        );
        let memory = Memory { missed: vec!["n".into()], ..Memory::default() };
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
            collect(&observed, &memory, 0, T0, &mut Steps::of(&outcomes)).expect("the end");
        let all = deletions.iter().map(|deletion| {
            (&*deletion.pod.meta.name, deletion.error.map(|error| &*error.message))
        });
        let want = [("a", None), ("b", Some("mark")), ("c", Some("delete"))];
        assert_eq!(all.collect::<Vec<_>>(), want);
    }

    #[test]
    fn node_is_quarantined_for_40_seconds() {
        let mut quarantine = Quarantine::default();
        let lost = observed(vec![on("a", "n", "Running")], Vec::new());
        let back = observed(vec![on("a", "n", "Running")], vec![node("n", "True", &[])]);
        assert!(quarantine.missed(&lost, at(0)).is_empty());
        assert!(quarantine.missed(&lost, at(39)).is_empty());
        assert_eq!(quarantine.missed(&lost, at(40)), ["n".into()]);
        assert!(quarantine.missed(&back, at(41)).is_empty());
        assert!(quarantine.missed(&lost, at(42)).is_empty(), "the quarantine starts again");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn terminated_pod_threshold_remains(ended in 0usize..30, running in 0usize..10, threshold in 1i64..30) {
            let done = (0..ended).map(|n| on(&format!("e{n}"), "n", "Succeeded"));
            let busy = (0..running).map(|n| on(&format!("r{n}"), "n", "Running"));
            let observed = observed(done.chain(busy).collect(), vec![node("n", "True", &[])]);
            let deleted = deleted(&observed, &[], threshold);
            prop_assert_eq!(deleted.len(), ended.saturating_sub(usize::try_from(threshold).unwrap()));
            prop_assert!(deleted.iter().all(|(name, _)| name.starts_with('e')));
        }
    }
}
