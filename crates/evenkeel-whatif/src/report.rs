//! Report of a recording: a pure function.
//!
//! | question | implemented in |
//! |---|---|
//! | when had the cluster settled | `settled_after` |
//! | which pods were evicted, and why | `Fold::pod`, [`Eviction`] |
//! | which pods wait for a node, since when, and why | `Fold::pending` |
//! | which workloads had fewer ready pods than before, and how long | `Fold::change_ready`, [`Shortage`] |
//! | which budgets allowed no disruption, and how long | `Fold::budget`, [`BudgetReport`] |
//! | how full were the nodes | `Fold::add_requests`, [`NodeReport`] |
//! | where are the pods now | `Fold::placements` |
//! | who wrote how much | [`WriteCount`] |

mod charts;
mod fold;

pub use self::charts::{BudgetSpans, Charts, ReadyPods, charts};
use self::fold::Fold;
use crate::{
    format::counted,
    recording::{Amounts, IDLE_PERIOD, RecordedEvent, Recording, seconds},
};
use serde::Serialize;
use std::time::Duration;

/// Effects of a change on a cluster.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Time of the change on the cluster's clock.
    pub start: String,
    /// Seconds of the recording.
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Seconds until the last event; `None` if the last minute had an event. Jobs do not count.
    #[serde(serialize_with = "optional_seconds")]
    pub settled_after: Option<Duration>,
    /// Parts of the change.
    pub parts: Vec<Part>,
    /// Evicted pods, by time.
    pub evicted: Vec<Eviction>,
    /// Pods without a node at the end.
    pub pending: Vec<Pending>,
    /// Workloads that had fewer ready pods than before the change.
    pub shortages: Vec<Shortage>,
    /// Budgets that allowed no disruption, or refused one.
    pub budgets: Vec<BudgetReport>,
    /// Nodes, by name.
    pub nodes: Vec<NodeReport>,
    /// Number of running pods of each workload on each node at the end.
    pub placements: Vec<Placement>,
    /// Executed writes by component and kind, the most frequent first. Renewals of Leases are left out.
    pub writes: Vec<WriteCount>,
    /// Remarks on parts of the cluster that the simulation leaves out.
    pub remarks: Vec<String>,
    /// All events, by time.
    pub timeline: Vec<RecordedEvent>,
}

/// Part of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Description, such as `drain node-1`.
    pub description: String,
    /// Seconds until the part started; the duration of the recording if it did not start.
    #[serde(serialize_with = "seconds")]
    pub began: Duration,
    /// Whether the part started. If a budget blocks a drain, later parts do not start.
    pub started: bool,
    /// Seconds until the part was complete; `None` if it did not complete.
    #[serde(serialize_with = "optional_seconds")]
    pub completed: Option<Duration>,
    /// Error with which it failed; empty if it did not fail.
    pub error: String,
    /// Reasons why an incomplete drain waits: budgets that refuse evictions, or pods that terminate. Empty for none.
    pub waits: String,
}

/// Pod that was evicted, preempted, or lost its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Eviction {
    /// Namespace and name of the pod.
    pub pod: String,
    /// Workload that owns the pod; empty for a pod without an owner, which is not replaced.
    pub workload: String,
    /// Node of the pod.
    pub node: String,
    /// Reason of the condition `DisruptionTarget`.
    pub reason: String,
    /// Seconds until the eviction.
    #[serde(serialize_with = "seconds")]
    pub after: Duration,
}

/// Pod without a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// Namespace and name of the pod.
    pub pod: String,
    /// Workload that owns the pod; empty for a pod without an owner.
    pub workload: String,
    /// Seconds until the pod was created; zero for a pod that was pending before the change.
    #[serde(serialize_with = "seconds")]
    pub since: Duration,
    /// Whether it was pending before the change.
    pub before: bool,
    /// The scheduler's message; empty if the scheduler has not tried.
    pub message: String,
}

/// Workload that had fewer ready pods than before the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shortage {
    /// Kind, namespace and name of the workload.
    pub workload: String,
    /// Number of ready pods before the change.
    pub before: usize,
    /// Lowest number of ready pods.
    pub lowest: usize,
    /// Number of ready pods at the end.
    pub end: usize,
    /// Seconds with fewer ready pods than before the change.
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
}

/// Budget that allowed no disruption, or refused one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BudgetReport {
    /// Namespace and name of the budget.
    pub budget: String,
    /// Seconds without an allowed disruption.
    #[serde(serialize_with = "seconds")]
    pub exhausted: Duration,
    /// Whether it allowed no disruption before the change.
    pub before: bool,
    /// Number of allowed disruptions at the end.
    pub allows: i32,
    /// Pods whose eviction it refused at least once.
    pub refused: Vec<String>,
}

/// Requests and pods of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeReport {
    /// Name of the node.
    pub node: String,
    /// Resources for pods.
    pub allocatable: Amounts,
    /// Peak of the requests, of each resource separately.
    pub peak: Amounts,
    /// Requests at the end.
    pub end: Amounts,
    /// Peak of the number of pods.
    pub peak_pods: usize,
    /// Seconds without the condition `Ready`.
    #[serde(serialize_with = "seconds")]
    pub not_ready: Duration,
    /// Whether it was removed.
    pub removed: bool,
}

/// Running pods of a workload on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Kind, namespace and name of the workload; those of the pod if it has no owner.
    pub workload: String,
    /// Name of the node.
    pub node: String,
    /// Number of pods.
    pub pods: usize,
}

/// Number of writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WriteCount {
    /// Component that wrote.
    pub component: String,
    /// Verb of the requests.
    pub verb: &'static str,
    /// Resource with its subresource.
    pub resource: String,
    /// Number of executed requests.
    pub count: u64,
}

/// Returns the report of a recording.
pub fn report(recording: &Recording) -> Report {
    let fold = Fold::after(recording);
    let mut writes: Vec<WriteCount> = recording
        .writes
        .iter()
        .map(|(write, count)| WriteCount {
            component: write.component.clone(),
            verb: write.verb,
            resource: write.resource.clone(),
            count: *count,
        })
        .collect();
    writes.sort_by_key(|write| std::cmp::Reverse(write.count));
    let mut remarks = recording.remarks.clone();
    if recording.unrecorded > 0 {
        let events =
            counted(usize::try_from(recording.unrecorded).unwrap_or(usize::MAX), "later event");
        remarks.push(format!("{events} found no room in the recording"));
    }
    Report {
        start: recording.start.to_string(),
        duration: recording.duration,
        settled_after: settled_after(recording, &fold),
        pending: fold.pending(),
        placements: fold.placements(),
        shortages: fold.shortages(recording.duration),
        budgets: fold.budgets(recording.duration),
        nodes: fold.nodes(recording.duration),
        parts: fold.parts(recording.duration),
        evicted: fold.evicted,
        writes,
        remarks,
        timeline: recording.happened.clone(),
    }
}

impl Report {
    /// Returns whether the report has no effects.
    pub(crate) fn is_empty(&self) -> bool {
        self.timeline.is_empty() && self.writes.is_empty()
    }

    /// Returns the parts of the change that failed, each with its error.
    pub fn failed(&self) -> impl Iterator<Item = (&str, &str)> {
        let failed = self.parts.iter().filter(|part| !part.error.is_empty());
        failed.map(|part| (&*part.description, &*part.error))
    }
}

impl Part {
    /// Returns the outcome of the part, in words.
    pub(crate) fn outcome(&self) -> String {
        match (self.completed, &*self.error, &*self.waits) {
            (None, "", _) if !self.started => "not begun at the end".to_owned(),
            (Some(end), ..) => {
                format!("done after {}", crate::format::time(end.saturating_sub(self.began)))
            }
            (None, "", "") => "not done at the end".to_owned(),
            (None, "", waits) => format!("not done at the end: {waits}"),
            (None, error, _) => error.to_owned(),
        }
    }
}

/// Returns the time of the last event that is not about a Job's pod.
fn settled_after(recording: &Recording, fold: &Fold<'_>) -> Option<Duration> {
    let counts = |event: &&RecordedEvent| event.kind != "Pod" || !fold.is_of_job(&event.object);
    let last = recording.happened.iter().rev().find(counts);
    let last = last.map_or(Duration::ZERO, |event| event.after);
    (recording.duration.saturating_sub(last) >= IDLE_PERIOD || last.is_zero()).then_some(last)
}

fn optional_seconds<S: serde::Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
}

#[cfg(test)]
mod tests;
