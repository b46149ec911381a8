//! InterPodAffinity: pods that must or would rather run near certain others, or away from them.
//!
//! What is near is said by a node label: nodes with the same value. Who is where is known to the table by classes of pods
//! (`nodes/census`), so that neither the pod's own terms nor those of the pods that are there are compared with pods one by one.
//! Upstream: `plugins/interpodaffinity`.

mod filter;
mod hint;
mod score;
#[cfg(test)]
mod tests;

use crate::{
    framework::{
        ActionType, Change, ClusterEvent, EventResource, Filter, Plugin, PreFilter, PreScore,
        QueueingHint, Score,
    },
    nodes::NodeTable,
    plugins::per_domain::PerDomain,
    pod::PodInfo,
};

/// Judges pods' affinities to other pods, and those pods' to them.
#[derive(Debug, Clone, Default)]
pub struct InterPodAffinity {
    args: Args,
}

/// Arguments of [`InterPodAffinity`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// What a required term of a pod that is there counts for in the score, 0 to 100.
    pub hard_pod_affinity_weight: i32,
    /// A pod without preferences of its own is scored without those of the pods that are there.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for Args {
    fn default() -> Self {
        Self { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

impl InterPodAffinity {
    /// With arguments.
    pub fn new(args: Args) -> Self {
        Self { args }
    }
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        let of_pods = &[ActionType::Add, ActionType::UpdatePodLabel, ActionType::Delete];
        vec![
            ClusterEvent::new(EventResource::AssignedPod, of_pods),
            ClusterEvent::new(EventResource::TargetPod, &[ActionType::UpdatePodLabel]),
            ClusterEvent::new(EventResource::Node, &[ActionType::Add, ActionType::UpdateNodeLabel]),
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        hint::hint(&pod.pod, change)
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
    fn as_pre_score(&self) -> Option<&dyn PreScore> {
        Some(self)
    }
    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
}

/// The figures by this label, made if there are none yet.
fn by_label<'a>(all: &'a mut Vec<PerDomain>, key: &str, nodes: &NodeTable) -> &'a mut PerDomain {
    let at = all.iter().position(|one| one.column().key() == key).unwrap_or_else(|| {
        all.push(PerDomain::new(nodes.label(key), 0));
        all.len() - 1
    });
    &mut all[at]
}
