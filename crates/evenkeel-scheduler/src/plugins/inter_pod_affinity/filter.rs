//! Filter by required terms: those of the pod itself, and the anti-affinity terms of existing pods.
//!
//! Upstream: `plugins/interpodaffinity/filtering.go`.

use smallvec::SmallVec;

use super::{InterPodAffinity, counts_of_key};
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
        let has_no_existing_anti_affinity = || {
            let mut values = counts.existing_anti_affinity.iter().flat_map(PerDomain::values);
            values.all(|count| *count == 0)
        };
        if counts.affinity.is_empty()
            && counts.anti_affinity.is_empty()
            && has_no_existing_anti_affinity()
        {
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
    /// Counts the existing pods that matter to the pod's required terms, and those whose anti-affinity selects the pod.
    fn for_pod(pod: &PodInfo, nodes: &NodeTable) -> Self {
        let mut pod_index = nodes.pod_index();
        let class = pod_index.find_or_add_class(&pod.pod);
        let mut existing_anti_affinity = Vec::new();
        for (rule, holders) in pod_index.rules_that_select(class) {
            if rule.kind == RuleKind::AntiAffinity {
                counts_of_key(&mut existing_anti_affinity, &rule.topology_key, nodes)
                    .add(holders, 1);
            }
        }
        let rules = pod_index.get(class).map_or(&[][..], |class| class.rules());
        let scopes_with_counts = |kind| {
            let rules = rules.iter().filter(move |rule| rule.kind == kind);
            rules.map(|rule| (rule.scope, PerDomain::new(nodes.label(&rule.topology_key), 0)))
        };
        let (affinity_scopes, mut affinity): (SmallVec<[ScopeId; 4]>, Vec<PerDomain>) =
            scopes_with_counts(RuleKind::Affinity).unzip();
        let mut affinity_total = 0;
        for class in pod_index.members_of_all(&affinity_scopes) {
            for counts in &mut affinity {
                affinity_total += counts.add(class.nodes(), 1);
            }
        }
        let mut anti_affinity = Vec::new();
        for (scope, mut counts) in scopes_with_counts(RuleKind::AntiAffinity) {
            for class in pod_index.members(scope) {
                counts.add(class.nodes(), 1);
            }
            anti_affinity.push(counts);
        }
        let may_be_first = pod_index.is_member_of_all(class, &affinity_scopes);
        Self { affinity, affinity_total, may_be_first, anti_affinity, existing_anti_affinity }
    }

    /// Adds `delta` to the counts that `other` on this node contributes to.
    fn update_with_pod(&mut self, pod: &PodInfo, other: &PodInfo, node: NodeRef<'_>, delta: i64) {
        let slot = node.slot();
        let nodes = node.table();
        let pod_index = nodes.pod_index();
        for (_, term) in terms(&other.pod).filter(|(kind, _)| *kind == RuleKind::AntiAffinity) {
            if pod_index.matches_pod(&Scope::of_term(term, &other.pod), &pod.pod) {
                let counts =
                    counts_of_key(&mut self.existing_anti_affinity, &term.topology_key, nodes);
                if let Some(count) = counts.at_mut(slot) {
                    *count += delta;
                }
            }
        }
        let pod_terms = |wanted| terms(&pod.pod).filter(move |(kind, _)| *kind == wanted);
        let matches = |term| pod_index.matches_pod(&Scope::of_term(term, &pod.pod), &other.pod);
        if !self.affinity.is_empty() && pod_terms(RuleKind::Affinity).all(|(_, term)| matches(term))
        {
            for count in self.affinity.iter_mut().filter_map(|counts| counts.at_mut(slot)) {
                *count += delta;
                self.affinity_total += delta;
            }
        }
        for ((_, term), counts) in pod_terms(RuleKind::AntiAffinity).zip(&mut self.anti_affinity) {
            if matches(term)
                && let Some(count) = counts.at_mut(slot)
            {
                *count += delta;
            }
        }
    }

    /// Returns whether the node satisfies the pod's affinity. For the first pod of a group with affinity to itself,
    /// every node with the topology keys does.
    ///
    /// Upstream: `nodeTopologyMatchesAffinity`, `satisfiesSelfAffinityCheck`.
    fn satisfies_affinity(&self, slot: Slot) -> bool {
        let mut every_domain_has_pods = true;
        for counts in &self.affinity {
            match counts.at(slot) {
                None => return false,
                Some(count) => every_domain_has_pods &= count > 0,
            }
        }
        every_domain_has_pods || (self.affinity_total == 0 && self.may_be_first)
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
