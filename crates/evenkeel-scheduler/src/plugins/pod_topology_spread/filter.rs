//! Hard constraints (`DoNotSchedule`): a domain may have at most `maxSkew` matching pods more than the minimum.
//!
//! Upstream: `plugins/podtopologyspread/filtering.go`.

use std::sync::Arc;

use super::{
    PodTopologySpread, WhenUnsatisfiable,
    constraint::{Eligible, SpreadConstraint},
};
use crate::{
    framework::{CycleState, Filter, PreFilter, PreFilterResult, Status, StatusResult},
    nodes::{LabelColumn, NodeRef, NodeTable, Scope},
    plugins::per_domain::PerDomain,
    pod::PodInfo,
};

/// Count of a domain that has no eligible node.
const NO_ELIGIBLE_NODE: i64 = i64::MIN;

/// The pod's hard constraints.
#[derive(Clone)]
struct HardConstraints(Vec<Constraint>);

/// A hard constraint with its counts.
#[derive(Clone)]
struct Constraint {
    spread: Arc<SpreadConstraint>,
    eligible: Arc<Eligible>,
    /// Number of matching pods in each domain that has an eligible node.
    pods: PerDomain,
    /// Minimum of the counts over all domains; 0 if there are fewer than `minDomains`.
    fewest: i64,
    /// 1 if the pod matches its own selector, else 0.
    self_match: i64,
}

impl PreFilter for PodTopologySpread {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        let spread = self.constraints(&pod.pod, WhenUnsatisfiable::DoNotSchedule);
        if spread.is_empty() {
            return Ok(PreFilterResult::Skip);
        }
        let keys: Vec<_> = spread.iter().map(|spread| nodes.label(&spread.topology_key)).collect();
        let constraints = spread
            .into_iter()
            .zip(&keys)
            .map(|(spread, key)| Constraint::new(spread, key, pod, nodes, &keys));
        state.put(HardConstraints(constraints.collect()));
        Ok(PreFilterResult::All)
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, other: &PodInfo, node: NodeRef<'_>) {
        if let Some(hard) = state.get_mut::<HardConstraints>() {
            hard.update_with_pod(pod, other, node, 1);
        }
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        other: &PodInfo,
        node: NodeRef<'_>,
    ) {
        if let Some(hard) = state.get_mut::<HardConstraints>() {
            hard.update_with_pod(pod, other, node, -1);
        }
    }
}

impl HardConstraints {
    /// Adds `by` to the counts of the constraints that match `other` on this node.
    fn update_with_pod(&mut self, pod: &PodInfo, other: &PodInfo, node: NodeRef<'_>, by: i64) {
        let (pod, other, slot) = (&pod.pod.meta, &other.pod.meta, node.slot());
        let Self(constraints) = self;
        if other.namespace != pod.namespace
            || constraints.iter().any(|constraint| constraint.pods.at(slot).is_none())
        {
            return;
        }
        for constraint in constraints {
            if constraint.spread.selector.matches(&other.labels)
                && constraint.eligible.has(slot)
                && let Some(count) = constraint.pods.at_mut(slot)
            {
                *count += by;
                constraint.find_min_match();
            }
        }
    }
}

impl Constraint {
    fn new(
        spread: SpreadConstraint,
        key: &Arc<LabelColumn>,
        pod: &PodInfo,
        nodes: &NodeTable,
        keys: &[Arc<LabelColumn>],
    ) -> Self {
        let eligible = Eligible::find(&spread, &pod.pod, nodes, keys);
        let mut pods = PerDomain::new(Arc::clone(key), NO_ELIGIBLE_NODE);
        if eligible.is_all() {
            for (count, nodes) in pods.values_mut().iter_mut().zip(key.nodes_by_value()) {
                *count = if *nodes > 0 { 0 } else { NO_ELIGIBLE_NODE };
            }
        } else {
            for slot in nodes.slots().iter().copied().filter(|slot| eligible.has(*slot)) {
                pods.at_mut(slot).into_iter().for_each(|count| *count = 0);
            }
        }
        // As upstream, an empty selector does not count existing pods, but it matches the pod itself.
        if !spread.selector.is_everything() {
            let scope = Scope::within(&pod.pod.meta.namespace, spread.selector.clone());
            let mut pod_index = nodes.pod_index();
            let scope = pod_index.scope(scope);
            for class in pod_index.members(scope).filter(|class| !class.is_deleting()) {
                for (slot, matching) in class.nodes().iter().filter(|(slot, _)| eligible.has(*slot))
                {
                    pods.at_mut(slot).into_iter().for_each(|count| *count += i64::from(matching));
                }
            }
        }
        let self_match = i64::from(spread.selector.matches(&pod.pod.meta.labels));
        let (spread, eligible) = (Arc::new(spread), Arc::new(eligible));
        let mut constraint = Self { spread, eligible, pods, fewest: 0, self_match };
        constraint.find_min_match();
        constraint
    }

    /// Updates the minimum of the counts.
    fn find_min_match(&mut self) {
        let domains =
            || self.pods.values().iter().copied().filter(|count| *count != NO_ELIGIBLE_NODE);
        let enough = match self.spread.min_domains {
            ..=1 => true,
            min_domains => domains().count() >= min_domains as usize,
        };
        self.fewest = if enough { domains().min().unwrap_or(0) } else { 0 };
    }
}

impl Filter for PodTopologySpread {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let Some(HardConstraints(constraints)) = state.get::<HardConstraints>() else {
            return Ok(());
        };
        for constraint in constraints {
            let Some(count) = constraint.pods.at(node.slot()) else {
                return Err(Status::unresolvable(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                ));
            };
            let count = if count == NO_ELIGIBLE_NODE { 0 } else { count };
            if count + constraint.self_match - constraint.fewest
                > i64::from(constraint.spread.max_skew)
            {
                return Err(Status::unschedulable(
                    "node(s) didn't match pod topology spread constraints",
                ));
            }
        }
        Ok(())
    }
}
