//! Required terms: those of the pod itself, and the anti-affinity terms of existing pods.
//!
//! Upstream: `plugins/interpodaffinity/filtering.go`.

use smallvec::SmallVec;

use super::{InterPodAffinity, by_label};
use crate::{
    framework::{CycleState, Filter, PreFilter, PreFilterResult, Status, StatusResult},
    nodes::{NodeRef, NodeTable, RuleKind, Scope, ScopeId, Slot, terms},
    plugins::per_domain::PerDomain,
    pod::PodInfo,
};

/// Numbers of matching pods by topology domain.
///
/// Upstream: `preFilterState`.
#[derive(Clone)]
struct AffinityState {
    /// For each required affinity term, the number of pods that match all of these terms.
    ///
    /// Upstream: `clusterWideAffinityCounts`.
    near: Vec<PerDomain>,
    /// Sum of the counts over all terms.
    near_total: i64,
    /// Whether the pod matches its own affinity terms, so that it may be the first of its group.
    may_be_first: bool,
    /// For each required anti-affinity term, the number of matching pods.
    ///
    /// Upstream: `clusterWideAntiAffinityCounts`.
    away: Vec<PerDomain>,
    /// By topology key, the number of existing pods' required anti-affinity terms that match this
    /// pod.
    ///
    /// Upstream: `existingClusterWideAntiAffinityCounts`.
    refused: Vec<PerDomain>,
}

impl PreFilter for InterPodAffinity {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        let neighbours = AffinityState::of(pod, nodes);
        let idle = neighbours.near.is_empty()
            && neighbours.away.is_empty()
            && neighbours.refused.iter().all(|refused| refused.figures().iter().all(|n| *n == 0));
        if idle {
            return Ok(PreFilterResult::Skip);
        }
        state.put(neighbours);
        Ok(PreFilterResult::All)
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, other: &PodInfo, node: NodeRef<'_>) {
        if let Some(neighbours) = state.get_mut::<AffinityState>() {
            neighbours.update_with_pod(pod, other, node, 1);
        }
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        other: &PodInfo,
        node: NodeRef<'_>,
    ) {
        if let Some(neighbours) = state.get_mut::<AffinityState>() {
            neighbours.update_with_pod(pod, other, node, -1);
        }
    }
}

impl AffinityState {
    fn of(pod: &PodInfo, nodes: &NodeTable) -> Self {
        let mut pod_index = nodes.pod_index();
        let class = pod_index.class(&pod.pod);
        let mut refused = Vec::new();
        for (rule, holders) in pod_index.rules_about(class) {
            if rule.kind == RuleKind::AntiAffinity {
                by_label(&mut refused, &rule.key, nodes).add(holders, 1);
            }
        }
        let rules = pod_index.get(class).map_or(&[][..], |class| class.rules());
        let domains = |kind| {
            let rules = rules.iter().filter(move |rule| rule.kind == kind);
            rules.map(|rule| (rule.scope, PerDomain::new(nodes.label(&rule.key), 0)))
        };
        let (near_scopes, mut near): (SmallVec<[ScopeId; 4]>, Vec<PerDomain>) =
            domains(RuleKind::Affinity).unzip();
        let mut near_total = 0;
        for class in pod_index.members_of_all(&near_scopes) {
            near_total += near.iter_mut().map(|near| near.add(class.nodes(), 1)).sum::<i64>();
        }
        let away = domains(RuleKind::AntiAffinity).map(|(scope, mut away)| {
            pod_index.members(scope).for_each(|class| {
                away.add(class.nodes(), 1);
            });
            away
        });
        let away = away.collect();
        let may_be_first = pod_index.is_in_all(class, &near_scopes);
        Self { near, near_total, may_be_first, away, refused }
    }

    fn update_with_pod(&mut self, pod: &PodInfo, other: &PodInfo, node: NodeRef<'_>, by: i64) {
        let (slot, nodes) = (node.slot(), node.table());
        let pod_index = nodes.pod_index();
        for (_, term) in terms(&other.pod).filter(|(kind, _)| *kind == RuleKind::AntiAffinity) {
            if pod_index.matches_pod(&Scope::of_term(term, &other.pod), &pod.pod) {
                let refused = by_label(&mut self.refused, &term.topology_key, nodes);
                refused.at_mut(slot).into_iter().for_each(|count| *count += by);
            }
        }
        let own = |wanted| terms(&pod.pod).filter(move |(kind, _)| *kind == wanted);
        let means = |term| pod_index.matches_pod(&Scope::of_term(term, &pod.pod), &other.pod);
        if !self.near.is_empty() && own(RuleKind::Affinity).all(|(_, term)| means(term)) {
            for count in self.near.iter_mut().filter_map(|near| near.at_mut(slot)) {
                *count += by;
                self.near_total += by;
            }
        }
        for ((_, term), away) in own(RuleKind::AntiAffinity).zip(&mut self.away) {
            if means(term) {
                away.at_mut(slot).into_iter().for_each(|count| *count += by);
            }
        }
    }

    /// Reports whether the node satisfies the pod's affinity. It also does if the pod is the first
    /// of its group.
    ///
    /// Upstream: `nodeTopologyMatchesAffinity`, `satisfiesSelfAffinityCheck`.
    fn satisfies_affinity(&self, slot: Slot) -> bool {
        let mut all = true;
        for near in &self.near {
            match near.at(slot) {
                None => return false,
                Some(count) => all &= count > 0,
            }
        }
        all || (self.near_total == 0 && self.may_be_first)
    }
}

impl Filter for InterPodAffinity {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let Some(neighbours) = state.get::<AffinityState>() else { return Ok(()) };
        let slot = node.slot();
        let some = |one: &PerDomain| one.at(slot).is_some_and(|count| count > 0);
        if !neighbours.satisfies_affinity(slot) {
            return Err(Status::unresolvable("node(s) didn't match pod affinity rules"));
        }
        if neighbours.away.iter().any(some) {
            return Err(Status::unschedulable("node(s) didn't match pod anti-affinity rules"));
        }
        if neighbours.refused.iter().any(some) {
            return Err(Status::unschedulable(
                "node(s) didn't satisfy existing pods anti-affinity rules",
            ));
        }
        Ok(())
    }
}
