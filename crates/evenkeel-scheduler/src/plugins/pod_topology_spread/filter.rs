//! Hard constraints: no domain may have more than `maxSkew` matching pods above the emptiest.

use std::sync::Arc;

use super::{
    PodTopologySpread, WhenUnsatisfiable,
    constraint::{Eligible, Wanted},
};
use crate::{
    framework::{CycleState, Filter, PreFilter, PreFilterResult, Status, StatusResult},
    nodes::{LabelColumn, NodeRef, NodeTable, Scope},
    plugins::per_domain::PerDomain,
    pod::PodInfo,
};

/// Stands for a domain without a node that counts.
const NO_DOMAIN: i64 = i64::MIN;

/// The pod's hard constraints.
#[derive(Clone)]
struct Hard(Vec<Constraint>);

/// A constraint, and how things are.
#[derive(Clone)]
struct Constraint {
    wanted: Arc<Wanted>,
    eligible: Arc<Eligible>,
    /// Matching pods in each domain that has a node that counts.
    pods: PerDomain,
    /// The fewest in any domain, after `minDomains`.
    fewest: i64,
    /// 1 if the pod itself matches.
    own: i64,
}

impl PreFilter for PodTopologySpread {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        let wanted = self.wanted(&pod.pod, WhenUnsatisfiable::DoNotSchedule);
        if wanted.is_empty() {
            return Ok(PreFilterResult::Skip);
        }
        let keys: Vec<_> = wanted.iter().map(|wanted| nodes.label(&wanted.topology_key)).collect();
        let constraints = wanted
            .into_iter()
            .zip(&keys)
            .map(|(wanted, key)| Constraint::of(wanted, key, pod, nodes, &keys));
        state.put(Hard(constraints.collect()));
        Ok(PreFilterResult::All)
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, other: &PodInfo, node: NodeRef<'_>) {
        if let Some(hard) = state.get_mut::<Hard>() {
            hard.shift(pod, other, node, 1);
        }
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        other: &PodInfo,
        node: NodeRef<'_>,
    ) {
        if let Some(hard) = state.get_mut::<Hard>() {
            hard.shift(pod, other, node, -1);
        }
    }
}

impl Hard {
    fn shift(&mut self, pod: &PodInfo, other: &PodInfo, node: NodeRef<'_>, by: i64) {
        let (pod, other, slot) = (&pod.pod.meta, &other.pod.meta, node.slot());
        let Self(constraints) = self;
        if other.namespace != pod.namespace
            || constraints.iter().any(|one| one.pods.at(slot).is_none())
        {
            return;
        }
        for one in constraints {
            if one.wanted.selector.matches(&other.labels)
                && one.eligible.has(slot)
                && let Some(count) = one.pods.at_mut(slot)
            {
                *count += by;
                one.find_fewest();
            }
        }
    }
}

impl Constraint {
    fn of(
        wanted: Wanted,
        key: &Arc<LabelColumn>,
        pod: &PodInfo,
        nodes: &NodeTable,
        keys: &[Arc<LabelColumn>],
    ) -> Self {
        let eligible = Eligible::of(&wanted, &pod.pod, nodes, keys);
        let mut pods = PerDomain::new(Arc::clone(key), NO_DOMAIN);
        if eligible.is_all() {
            for (count, nodes) in pods.figures_mut().iter_mut().zip(key.nodes_by_value()) {
                *count = if *nodes > 0 { 0 } else { NO_DOMAIN };
            }
        } else {
            for slot in nodes.slots().iter().copied().filter(|slot| eligible.has(*slot)) {
                pods.at_mut(slot).into_iter().for_each(|count| *count = 0);
            }
        }
        // An empty selector counts no pods, though the pod itself matches it.
        if !wanted.selector.is_everything() {
            let scope = Scope::within(&pod.pod.meta.namespace, wanted.selector.clone());
            let mut census = nodes.census();
            let scope = census.scope(scope);
            for class in census.members(scope).filter(|class| !class.is_deleting()) {
                for (slot, n) in class.nodes().iter().filter(|(slot, _)| eligible.has(*slot)) {
                    pods.at_mut(slot).into_iter().for_each(|count| *count += i64::from(n));
                }
            }
        }
        let own = i64::from(wanted.selector.matches(&pod.pod.meta.labels));
        let (wanted, eligible) = (Arc::new(wanted), Arc::new(eligible));
        let mut constraint = Self { wanted, eligible, pods, fewest: 0, own };
        constraint.find_fewest();
        constraint
    }

    fn find_fewest(&mut self) {
        let domains = || self.pods.figures().iter().copied().filter(|count| *count != NO_DOMAIN);
        let enough = match self.wanted.min_domains {
            ..=1 => true,
            least => domains().count() >= least as usize,
        };
        self.fewest = if enough { domains().min().unwrap_or(0) } else { 0 };
    }
}

impl Filter for PodTopologySpread {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let Some(Hard(constraints)) = state.get::<Hard>() else { return Ok(()) };
        for one in constraints {
            let Some(count) = one.pods.at(node.slot()) else {
                return Err(Status::unresolvable(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                ));
            };
            let count = if count == NO_DOMAIN { 0 } else { count };
            if count + one.own - one.fewest > i64::from(one.wanted.max_skew) {
                return Err(Status::unschedulable(
                    "node(s) didn't match pod topology spread constraints",
                ));
            }
        }
        Ok(())
    }
}
