//! InterPodAffinity: schedules pods to the topology domains of other pods, or away from them.
//!
//! The plugin matches the terms against equivalence classes of pods (`nodes/pod_index`), not against single pods.
//!
//! Upstream: `plugins/interpodaffinity`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `podAffinity`, `podAntiAffinity`: `requiredDuringSchedulingIgnoredDuringExecution` | `filter::AffinityState` |
//! | the first pod of a group with affinity to itself | `filter::satisfies_affinity` |
//! | anti-affinity of existing pods is symmetric | `filter::AffinityState` |
//! | `preferredDuringSchedulingIgnoredDuringExecution`, its `weight` | `score::TopologyScores` |
//! | `namespaces`, `namespaceSelector` of a term | `../../nodes/pod_index/scope.rs` |
//! | `hardPodAffinityWeight`, `ignorePreferredTermsOfExistingPods` | `Args` |

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

/// The InterPodAffinity plugin.
#[derive(Debug, Clone, Default)]
pub struct InterPodAffinity {
    args: Args,
}

/// Arguments of [`InterPodAffinity`].
///
/// Upstream: `InterPodAffinityArgs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// Weight in the score of required affinity terms of existing pods, from 0 to 100. Default: 1.
    pub hard_pod_affinity_weight: i32,
    /// Whether to ignore preferred terms of existing pods if the pod itself has none. Default: false.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for Args {
    fn default() -> Self {
        Self { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

impl InterPodAffinity {
    /// Returns the plugin with these arguments.
    pub fn new(args: Args) -> Self {
        Self { args }
    }
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        let pod_actions = &[ActionType::Add, ActionType::UpdatePodLabel, ActionType::Delete];
        vec![
            ClusterEvent::new(EventResource::AssignedPod, pod_actions),
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

/// Returns the counts for this topology key. Adds empty counts on the first call for a key.
fn counts_of_key<'a>(
    counts: &'a mut Vec<PerDomain>,
    topology_key: &str,
    nodes: &NodeTable,
) -> &'a mut PerDomain {
    let index = counts.iter().position(|counts| counts.column().key() == topology_key);
    let index = index.unwrap_or_else(|| {
        counts.push(PerDomain::new(nodes.label(topology_key), 0));
        counts.len() - 1
    });
    &mut counts[index]
}
