//! PodTopologySpread: spreads pods over topology domains. Hard constraints (`DoNotSchedule`) reject nodes. Soft
//! constraints (`ScheduleAnyway`) affect only the scores.
//!
//! The plugin counts pods by equivalence class (`nodes/pod_index`).
//!
//! Upstream: `plugins/podtopologyspread`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `topologySpreadConstraints`: `topologyKey`, `labelSelector`, `maxSkew` | `constraint::SpreadConstraint` |
//! | `whenUnsatisfiable: DoNotSchedule` | `filter::HardConstraints` |
//! | `whenUnsatisfiable: ScheduleAnyway` | `score::SoftConstraints` |
//! | `minDomains` | `filter::update_min_match` |
//! | `nodeAffinityPolicy`, `nodeTaintsPolicy` | `constraint::EligibleNodes` |
//! | `matchLabelKeys` | `constraint::with_match_label_keys` |
//! | cluster-level default constraints (`defaultingType`, `defaultConstraints`) | `args::Args`, `defaults::Owners` |

mod args;
mod constraint;
mod defaults;
mod filter;
mod hint;
mod score;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

pub use args::{Args, DefaultConstraint, DefaultingType, WhenUnsatisfiable};
use constraint::SpreadConstraint;
use defaults::Owners;
use evenkeel_api::views::Pod;

use crate::{
    framework::{
        ActionType, Change, ClusterEvent, EventResource, Filter, Handle, Plugin, PreFilter,
        PreScore, QueueingHint, Score,
    },
    pod::PodInfo,
};

/// The PodTopologySpread plugin.
#[derive(Default)]
pub struct PodTopologySpread {
    args: Args,
    /// Owners of pods, from which the selectors of default constraints come. Set by [`Plugin::connect`].
    owners: OnceLock<Owners>,
}

impl PodTopologySpread {
    /// Returns the plugin with these arguments.
    pub fn new(args: Args) -> Self {
        Self { args, owners: OnceLock::new() }
    }

    /// Returns the pod's constraints with this `whenUnsatisfiable`, or the default constraints if
    /// the pod defines none.
    fn constraints(
        &self,
        pod: &Pod,
        when_unsatisfiable: WhenUnsatisfiable,
    ) -> Vec<SpreadConstraint> {
        let constraints = &pod.spec.topology_spread_constraints;
        if !constraints.is_empty() {
            return constraints
                .iter()
                .filter(|constraint| *constraint.when_unsatisfiable == *when_unsatisfiable.as_str())
                .map(|constraint| SpreadConstraint::for_pod(constraint, pod, &self.args))
                .collect();
        }
        let defaults = self.args.effective_defaults().iter();
        let mut defaults =
            defaults.filter(|default| default.when_unsatisfiable == when_unsatisfiable).peekable();
        if defaults.peek().is_none() {
            return Vec::new();
        }
        let Some(selector) = self.owners.get().and_then(|owners| owners.selector(pod)) else {
            return Vec::new();
        };
        defaults.map(|default| SpreadConstraint::from_default(default, selector.clone())).collect()
    }
}

impl std::fmt::Debug for PodTopologySpread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodTopologySpread").field("args", &self.args).finish_non_exhaustive()
    }
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
    }

    fn connect(&self, handle: &Handle) {
        if !self.args.effective_defaults().is_empty() {
            self.owners.get_or_init(|| Owners::new(&handle.caches));
        }
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        use ActionType::{Add, Delete, UpdateNodeLabel, UpdateNodeTaint, UpdatePodLabel};
        vec![
            ClusterEvent::new(EventResource::AssignedPod, &[Add, UpdatePodLabel, Delete]),
            ClusterEvent::new(
                EventResource::TargetPod,
                &[ActionType::UpdatePodToleration, UpdatePodLabel],
            ),
            ClusterEvent::new(
                EventResource::Node,
                &[Add, Delete, UpdateNodeLabel, UpdateNodeTaint],
            ),
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, change: &Change) -> QueueingHint {
        hint::hint(&pod.pod, &self.constraints(&pod.pod, WhenUnsatisfiable::DoNotSchedule), change)
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
