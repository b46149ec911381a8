//! Hard constraints (`DoNotSchedule`): a domain may have at most `maxSkew` matching pods more than the minimum.
//!
//! Upstream: `plugins/podtopologyspread/filtering.go`.

use std::sync::Arc;

use super::{
    PodTopologySpread, WhenUnsatisfiable,
    constraint::{EligibleNodes, SpreadConstraint},
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
struct HardConstraints(Vec<HardConstraint>);

/// A hard constraint with its counts.
#[derive(Clone)]
struct HardConstraint {
    spec: Arc<SpreadConstraint>,
    eligible_nodes: Arc<EligibleNodes>,
    /// Number of matching pods in each domain, or [`NO_ELIGIBLE_NODE`].
    counts: PerDomain,
    /// Minimum of the counts over all domains, or 0 if there are fewer domains than `minDomains`.
    min_match: i64,
    /// 1 if the pod matches the constraint's selector itself, else 0.
    self_match: i64,
}

impl PreFilter for PodTopologySpread {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        let specs = self.constraints(&pod.pod, WhenUnsatisfiable::DoNotSchedule);
        if specs.is_empty() {
            return Ok(PreFilterResult::Skip);
        }
        let columns: Vec<Arc<LabelColumn>> =
            specs.iter().map(|spec| nodes.label(&spec.topology_key)).collect();
        let constraints = specs
            .into_iter()
            .zip(&columns)
            .map(|(spec, column)| HardConstraint::new(spec, column, pod, nodes, &columns));
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
    /// Adds `delta` to the counts of the constraints that match `other` on this node.
    fn update_with_pod(&mut self, pod: &PodInfo, other: &PodInfo, node: NodeRef<'_>, delta: i64) {
        let pod_meta = &pod.pod.meta;
        let other_meta = &other.pod.meta;
        let slot = node.slot();
        let Self(constraints) = self;
        // Like upstream, pods count only on nodes that have the topology keys of all constraints.
        let has_all_keys =
            constraints.iter().all(|constraint| constraint.counts.at(slot).is_some());
        if other_meta.namespace != pod_meta.namespace || !has_all_keys {
            return;
        }
        for constraint in constraints {
            if constraint.spec.selector.matches(&other_meta.labels)
                && constraint.eligible_nodes.contains(slot)
                && let Some(count) = constraint.counts.at_mut(slot)
            {
                *count += delta;
                constraint.update_min_match();
            }
        }
    }
}

impl HardConstraint {
    fn new(
        spec: SpreadConstraint,
        column: &Arc<LabelColumn>,
        pod: &PodInfo,
        nodes: &NodeTable,
        columns: &[Arc<LabelColumn>],
    ) -> Self {
        let eligible_nodes = EligibleNodes::find(&spec, &pod.pod, nodes, columns);
        let mut counts = PerDomain::new(Arc::clone(column), NO_ELIGIBLE_NODE);
        // A domain with an eligible node counts from 0.
        if eligible_nodes.are_all() {
            // `counts` and `node_counts` both have one entry for each domain, in the same order.
            for (count, n_nodes) in counts.values_mut().iter_mut().zip(column.node_counts()) {
                if *n_nodes > 0 {
                    *count = 0;
                }
            }
        } else {
            for slot in nodes.slots().iter().copied().filter(|slot| eligible_nodes.contains(*slot))
            {
                if let Some(count) = counts.at_mut(slot) {
                    *count = 0;
                }
            }
        }
        // Like upstream, an empty selector does not count existing pods, but it matches the pod itself.
        if !spec.selector.is_everything() {
            let scope = Scope::within(&pod.pod.meta.namespace, spec.selector.clone());
            let mut pod_index = nodes.pod_index();
            let scope_id = pod_index.find_or_add_scope(scope);
            // Pods of one class have the same labels, so the selector matches all of them.
            let matching_classes = pod_index.members(scope_id);
            for class in matching_classes.filter(|class| !class.is_deleting()) {
                for (slot, n_pods) in class.nodes().iter() {
                    if eligible_nodes.contains(slot)
                        && let Some(count) = counts.at_mut(slot)
                    {
                        *count += i64::from(n_pods);
                    }
                }
            }
        }
        let self_match = i64::from(spec.selector.matches(&pod.pod.meta.labels));
        let spec = Arc::new(spec);
        let eligible_nodes = Arc::new(eligible_nodes);
        let mut constraint = Self { spec, eligible_nodes, counts, min_match: 0, self_match };
        constraint.update_min_match();
        constraint
    }

    /// Updates the minimum of the counts.
    fn update_min_match(&mut self) {
        let counts =
            || self.counts.values().iter().copied().filter(|count| *count != NO_ELIGIBLE_NODE);
        let has_min_domains = match self.spec.min_domains {
            ..=1 => true,
            min_domains => counts().count() >= min_domains as usize,
        };
        self.min_match = if has_min_domains { counts().min().unwrap_or(0) } else { 0 };
    }
}

impl Filter for PodTopologySpread {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let Some(HardConstraints(constraints)) = state.get::<HardConstraints>() else {
            return Ok(());
        };
        for constraint in constraints {
            let Some(count) = constraint.counts.at(node.slot()) else {
                return Err(Status::unresolvable(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                ));
            };
            let count = if count == NO_ELIGIBLE_NODE { 0 } else { count };
            let skew = count + constraint.self_match - constraint.min_match;
            if skew > i64::from(constraint.spec.max_skew) {
                return Err(Status::unschedulable(
                    "node(s) didn't match pod topology spread constraints",
                ));
            }
        }
        Ok(())
    }
}
