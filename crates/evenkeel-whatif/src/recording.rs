//! Recording of a simulated cluster: the input of reports.

use evenkeel_api::time::Timestamp;
use serde::{Serialize, Serializer};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Time without an event after which a cluster has settled.
pub(crate) const IDLE_PERIOD: Duration = Duration::from_mins(1);

/// Recording of a run, from the time of the change on.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Time of the change.
    pub start: Timestamp,
    /// Virtual time that was recorded.
    pub duration: Duration,
    /// Virtual time that the cluster had to settle before the change.
    pub settling: Duration,
    /// Nodes at the start, by name.
    pub nodes: BTreeMap<String, NodeRecord>,
    /// Pods at the start, by namespace and name.
    pub pods: BTreeMap<String, PodRecord>,
    /// Disruptions that each budget allowed at the start, by namespace and name.
    pub budgets: BTreeMap<String, i32>,
    /// Events, ordered by time. Events of one instant are ordered by object.
    pub happened: Vec<RecordedEvent>,
    /// Number of events that were not recorded, because the recording was full.
    pub unrecorded: u64,
    /// Number of executed writes by writer and kind.
    pub writes: BTreeMap<Write, u64>,
    /// Remarks on parts of the cluster that the simulation leaves out.
    pub remarks: Vec<String>,
}

/// CPU and memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Amounts {
    /// CPU in millicores.
    pub cpu_millis: i64,
    /// Memory in bytes.
    pub memory: i64,
}

impl Amounts {
    /// Adds other amounts.
    pub(crate) fn add(&mut self, other: Self) {
        self.cpu_millis = self.cpu_millis.saturating_add(other.cpu_millis);
        self.memory = self.memory.saturating_add(other.memory);
    }

    /// Subtracts other amounts.
    pub(crate) fn subtract(&mut self, other: Self) {
        self.cpu_millis = self.cpu_millis.saturating_sub(other.cpu_millis);
        self.memory = self.memory.saturating_sub(other.memory);
    }
}

/// Node at the start of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeRecord {
    /// Resources for pods.
    pub allocatable: Amounts,
    /// Whether its condition `Ready` is true.
    pub ready: bool,
}

/// Pod at the start of a recording, or when it was created.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PodRecord {
    /// Kind, namespace and name of the workload that owns it; empty for a pod without an owner.
    pub workload: String,
    /// Name of its node; empty while it has none.
    pub node: String,
    /// Resources that it requests.
    pub requests: Amounts,
    /// Whether its condition `Ready` is true.
    pub ready: bool,
    /// Whether it has succeeded or failed.
    pub ended: bool,
    /// The scheduler's message about an unschedulable pod; empty for other pods.
    pub unschedulable: String,
}

/// Writes a duration as a number of seconds.
pub(crate) fn seconds<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    duration.as_secs_f64().serialize(serializer)
}

/// Event of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordedEvent {
    /// Seconds since the start of the recording.
    #[serde(serialize_with = "seconds")]
    pub after: Duration,
    /// Kind of the object: `Pod`, `Node`, `PodDisruptionBudget`, or `Change` for a part of the change.
    pub kind: &'static str,
    /// Namespace and name of the object; the description of a part of the change.
    pub object: String,
    /// Kind of the event.
    #[serde(flatten)]
    pub what: EventKind,
}

/// Kind of an event, with its details.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum EventKind {
    /// The pod was created.
    Created {
        /// The pod at that time.
        pod: PodRecord,
    },
    /// The scheduler bound the pod to a node.
    Bound {
        /// Name of the node.
        node: String,
    },
    /// The scheduler found no node for the pod.
    Unschedulable {
        /// The scheduler's message.
        message: String,
    },
    /// The condition `Ready` of the pod or the node became true.
    Ready,
    /// The condition `Ready` of the pod or the node is no longer true.
    NotReady,
    /// The pod succeeded or failed.
    Ended {
        /// Phase of the pod.
        phase: String,
    },
    /// The pod is deleted because of a disruption: it was evicted or preempted, or its node was tainted or removed.
    Evicted {
        /// Reason of the condition `DisruptionTarget`, such as `EvictionByEvictionAPI`.
        reason: String,
    },
    /// The pod terminates for another reason.
    Deleted,
    /// The pod or the node no longer exists.
    Removed,
    /// The node registered.
    Added {
        /// Node at that time.
        node: NodeRecord,
    },
    /// The node accepts no new pods.
    Cordoned,
    /// The node accepts new pods again.
    Uncordoned,
    /// The number of disruptions that the budget allows changed.
    Allows {
        /// Number of pods that may be evicted.
        disruptions: i32,
    },
    /// The budget refused the eviction of a pod for the first time.
    Refused {
        /// Namespace and name of the pod.
        pod: String,
    },
    /// The change includes this part, which has not started yet.
    Planned,
    /// A part of the change started.
    Began,
    /// A part of the change is complete.
    Completed,
    /// A part of the change failed.
    Failed {
        /// Error of the API server.
        message: String,
    },
}

/// Sorts events by time, and events of one instant by object: first the change itself, then nodes, pods and budgets.
/// Pods that end or are removed come before other pods, because others may take their place. The events of one object
/// keep their order, and so do the events of the change.
pub(crate) fn sort(happened: &mut [RecordedEvent]) {
    let leaving: BTreeSet<(Duration, String)> = happened
        .iter()
        .filter(|event| matches!(event.what, EventKind::Removed | EventKind::Ended { .. }))
        .map(|event| (event.after, event.object.clone()))
        .collect();
    happened.sort_by_cached_key(|event| {
        let object = if event.kind == "Change" { String::new() } else { event.object.clone() };
        let stays = !leaving.contains(&(event.after, event.object.clone()));
        (event.after, event.kind, stays, object)
    });
}

/// Kind of a write: component, verb and resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Write {
    /// Component, such as `kube-scheduler` or `kube-controller-manager/replicaset-controller`.
    pub component: String,
    /// Verb, such as `create`, `patch` or `delete`.
    pub verb: &'static str,
    /// Resource with its subresource, such as `pods/status`.
    pub resource: String,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns an event of an object this many seconds after the start.
    pub(crate) fn event(
        seconds: u64,
        kind: &'static str,
        object: &str,
        what: EventKind,
    ) -> RecordedEvent {
        RecordedEvent { after: Duration::from_secs(seconds), kind, object: object.to_owned(), what }
    }

    #[test]
    fn events_of_one_instant_are_sorted_by_object() {
        let mut events = [
            event(2, "Pod", "a", EventKind::Ready),
            event(1, "Pod", "b", EventKind::Bound { node: "n".to_owned() }),
            event(1, "PodDisruptionBudget", "a", EventKind::Allows { disruptions: 0 }),
            event(1, "Pod", "c", EventKind::NotReady),
            event(1, "Change", "remove x", EventKind::Began),
            event(1, "Pod", "b", EventKind::Ready),
            event(1, "Change", "drain y", EventKind::Began),
            event(1, "Pod", "c", EventKind::Removed),
            event(1, "Node", "n", EventKind::Cordoned),
        ];
        sort(&mut events);
        let found = events
            .map(|event| format!("{} {}", event.object, serde_json::json!(event.what)["what"]));
        let expected = [
            r#"remove x "began""#,
            r#"drain y "began""#,
            r#"n "cordoned""#,
            r#"c "not_ready""#,
            r#"c "removed""#,
            r#"b "bound""#,
            r#"b "ready""#,
            r#"a "allows""#,
            r#"a "ready""#,
        ];
        assert_eq!(found, expected);
    }
}
