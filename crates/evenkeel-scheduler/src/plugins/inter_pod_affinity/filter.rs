//! Filter by required terms: those of the pod itself, and the anti-affinity terms of existing pods.
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
    affinity: Vec<PerDomain>,
    /// Sum of the counts over all terms.
    affinity_total: i64,
    /// Whether the pod matches its own affinity terms, so that it may be the first of its group.
    may_be_first: bool,
    /// For each required anti-affinity term, the number of matching pods.
    ///
    /// Upstream: `clusterWideAntiAffinityCounts`.
    anti_affinity: Vec<PerDomain>,
    /// By topology key, the number of required anti-affinity terms of existing pods that match this pod.
    ///
    /// Upstream: `existingClusterWideAntiAffinityCounts`.
    existing_anti_affinity: Vec<PerDomain>,
}

impl PreFilter for InterPodAffinity {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        let counts = AffinityState::for_pod(pod, nodes);
        let no_terms = counts.affinity.is_empty()
            && counts.anti_affinity.is_empty()
            && counts
                .existing_anti_affinity
                .iter()
                .all(|terms| terms.values().iter().all(|n| *n == 0));
        if no_terms {
            return Ok(PreFilterResult::Skip);
        }
        state.put(counts);
        Ok(PreFilterResult::All)
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, other: &PodInfo, node: NodeRef<'_>) {
        if let Some(counts) = state.get_mut::<AffinityState>() {
            counts.update_with_pod(pod, other, node, 1);
        }
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        other: &PodInfo,
        node: NodeRef<'_>,
    ) {
        if let Some(counts) = state.get_mut::<AffinityState>() {
            counts.update_with_pod(pod, other, node, -1);
        }
    }
}

impl AffinityState {
    fn for_pod(pod: &PodInfo, nodes: &NodeTable) -> Self {
        let mut pod_index = nodes.pod_index();
        let class = pod_index.class(&pod.pod);
        let mut existing_anti_affinity = Vec::new();
        for (rule, holders) in pod_index.rules_about(class) {
            if rule.kind == RuleKind::AntiAffinity {
                by_label(&mut existing_anti_affinity, &rule.key, nodes).add(holders, 1);
            }
        }
        let rules = pod_index.get(class).map_or(&[][..], |class| class.rules());
        let domains = |kind| {
            let rules = rules.iter().filter(move |rule| rule.kind == kind);
            rules.map(|rule| (rule.scope, PerDomain::new(nodes.label(&rule.key), 0)))
        };
        let (affinity_scopes, mut affinity): (SmallVec<[ScopeId; 4]>, Vec<PerDomain>) =
            domains(RuleKind::Affinity).unzip();
        let mut affinity_total = 0;
        for class in pod_index.members_of_all(&affinity_scopes) {
            affinity_total +=
                affinity.iter_mut().map(|affinity| affinity.add(class.nodes(), 1)).sum::<i64>();
        }
        let anti_affinity = domains(RuleKind::AntiAffinity).map(|(scope, mut anti_affinity)| {
            pod_index.members(scope).for_each(|class| {
                anti_affinity.add(class.nodes(), 1);
            });
            anti_affinity
        });
        let anti_affinity = anti_affinity.collect();
        let may_be_first = pod_index.is_in_all(class, &affinity_scopes);
        Self { affinity, affinity_total, may_be_first, anti_affinity, existing_anti_affinity }
    }

    /// Adds `by` to the counts that `other` on this node contributes to.
    fn update_with_pod(&mut self, pod: &PodInfo, other: &PodInfo, node: NodeRef<'_>, by: i64) {
        let (slot, nodes) = (node.slot(), node.table());
        let pod_index = nodes.pod_index();
        for (_, term) in terms(&other.pod).filter(|(kind, _)| *kind == RuleKind::AntiAffinity) {
            if pod_index.matches_pod(&Scope::of_term(term, &other.pod), &pod.pod) {
                let existing_anti_affinity =
                    by_label(&mut self.existing_anti_affinity, &term.topology_key, nodes);
                existing_anti_affinity.at_mut(slot).into_iter().for_each(|count| *count += by);
            }
        }
        let own_terms = |wanted| terms(&pod.pod).filter(move |(kind, _)| *kind == wanted);
        let matches = |term| pod_index.matches_pod(&Scope::of_term(term, &pod.pod), &other.pod);
        if !self.affinity.is_empty() && own_terms(RuleKind::Affinity).all(|(_, term)| matches(term))
        {
            for count in self.affinity.iter_mut().filter_map(|affinity| affinity.at_mut(slot)) {
                *count += by;
                self.affinity_total += by;
            }
        }
        for ((_, term), anti_affinity) in
            own_terms(RuleKind::AntiAffinity).zip(&mut self.anti_affinity)
        {
            if matches(term) {
                anti_affinity.at_mut(slot).into_iter().for_each(|count| *count += by);
            }
        }
    }

    /// Reports whether the node satisfies the pod's affinity. Every node with the topology keys satisfies the affinity
    /// of the first pod of a group.
    ///
    /// Upstream: `nodeTopologyMatchesAffinity`, `satisfiesSelfAffinityCheck`.
    fn satisfies_affinity(&self, slot: Slot) -> bool {
        let mut all = true;
        for affinity in &self.affinity {
            match affinity.at(slot) {
                None => return false,
                Some(count) => all &= count > 0,
            }
        }
        all || (self.affinity_total == 0 && self.may_be_first)
    }
}

impl Filter for InterPodAffinity {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> StatusResult {
        let Some(counts) = state.get::<AffinityState>() else { return Ok(()) };
        let slot = node.slot();
        let has_pods = |counts: &PerDomain| counts.at(slot).is_some_and(|count| count > 0);
        if !counts.satisfies_affinity(slot) {
            return Err(Status::unresolvable("node(s) didn't match pod affinity rules"));
        }
        if counts.anti_affinity.iter().any(has_pods) {
            return Err(Status::unschedulable("node(s) didn't match pod anti-affinity rules"));
        }
        if counts.existing_anti_affinity.iter().any(has_pods) {
            return Err(Status::unschedulable(
                "node(s) didn't satisfy existing pods anti-affinity rules",
            ));
        }
        Ok(())
    }
}
