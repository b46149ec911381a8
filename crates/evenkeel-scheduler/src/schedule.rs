//! One attempt to find a node for a pod. Pure: equal tables, pods and seeds give equal outcomes.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    framework::{
        CycleState, MAX_NODE_SCORE, Point, PreFiltered, PreScored, Profile, Reason, Rejection,
        Severity,
    },
    nodes::{NodeRef, NodeTable, Slot},
    pod::PodInfo,
};

/// What an attempt looks at.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The plugins.
    pub profile: &'a Profile,
    /// The nodes.
    pub nodes: &'a NodeTable,
    /// Position in the order of nodes at which to begin; it moves on from attempt to attempt.
    pub start: usize,
}

/// How an attempt ended.
#[derive(Debug)]
pub struct Outcome {
    /// The node, or why there is none.
    pub choice: Result<Choice, Unfit>,
    /// How many nodes were looked at.
    pub evaluated: usize,
    /// Where the next attempt should begin.
    pub next_start: usize,
}

/// A node was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Its name.
    pub node: Arc<str>,
    /// How many nodes would have done.
    pub feasible: usize,
}

/// No node was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// How many nodes there are.
    pub n_nodes: usize,
    /// Why, where no node had to be looked at to know.
    pub overall: Option<Rejected>,
    /// Why each node was rejected.
    pub rejected: Vec<Rejected>,
}

/// Why one node (or all of them) was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Which node; meaningless in [`Unfit::overall`].
    pub slot: Slot,
    /// By which plugin of the profile.
    pub plugin: usize,
    /// Why.
    pub why: Rejection,
}

/// Nodes that are enough for a choice (`numFeasibleNodesToFind` in `pkg/scheduler/schedule_one.go`): all up to 100; then a share
/// that falls from 50 % to 5 % as the cluster grows, unless one is set.
pub fn enough_nodes(n_nodes: usize, percentage: u32) -> usize {
    const LEAST: usize = 100;
    if n_nodes < LEAST || percentage >= 100 {
        return n_nodes;
    }
    let percentage = match percentage {
        0 => 50_usize.saturating_sub(n_nodes / 125).max(5),
        set => set as usize,
    };
    (n_nodes * percentage / 100).max(LEAST)
}

/// Finds a node for `pod`; ties are broken by `seed`.
pub fn schedule(view: View<'_>, pod: &PodInfo, seed: u64, state: &mut CycleState) -> Outcome {
    let View { profile, nodes, start } = view;
    let unfit = |overall, rejected| Unfit { n_nodes: nodes.len(), overall, rejected };
    let none = |unfit| Outcome { choice: Err(unfit), evaluated: 0, next_start: start };
    let plan = match pre_filter(profile, nodes, pod, state) {
        Ok(plan) => plan,
        Err(rejected) => return none(unfit(Some(rejected), Vec::new())),
    };
    let found = filter(view, pod, state, &plan);
    let next_start = if nodes.is_empty() { 0 } else { (start + found.evaluated) % nodes.len() };
    let outcome = |choice| Outcome { choice, evaluated: found.evaluated, next_start };
    let feasible = &found.feasible;
    match feasible.as_slice() {
        [] => outcome(Err(unfit(None, found.rejected))),
        [only] => outcome(Ok(Choice { node: Arc::clone(only.name()), feasible: 1 })),
        several => {
            let scores = score(profile, nodes, pod, state, several);
            let node = best(several, &scores, seed);
            outcome(Ok(Choice { node: Arc::clone(node.name()), feasible: several.len() }))
        }
    }
}

/// What is left after the pre-filters.
pub(crate) struct FilterPlan {
    pub(crate) filters: Vec<usize>,
    pub(crate) only: Option<Vec<Arc<str>>>,
}

pub(crate) fn pre_filter(
    profile: &Profile,
    nodes: &NodeTable,
    pod: &PodInfo,
    state: &mut CycleState,
) -> Result<FilterPlan, Rejected> {
    let (mut skipped, mut only) = (Vec::new(), None::<Vec<Arc<str>>>);
    for (n, plugin) in profile.at(Point::PreFilter) {
        let Some(plugin) = plugin.as_pre_filter() else { continue };
        match plugin.pre_filter(state, pod, nodes) {
            Ok(PreFiltered::All) => {}
            Ok(PreFiltered::Skip) => skipped.push(n),
            Ok(PreFiltered::Only(names)) => match &mut only {
                None => only = Some(names),
                Some(left) => left.retain(|name| names.contains(name)),
            },
            Err(why) => return Err(Rejected { slot: 0, plugin: n, why }),
        }
        if only.as_ref().is_some_and(Vec::is_empty) {
            let why = Rejection::unresolvable("node(s) didn't satisfy plugin(s) simultaneously");
            return Err(Rejected { slot: 0, plugin: n, why });
        }
    }
    let filters =
        profile.at(Point::Filter).map(|(n, _)| n).filter(|n| !skipped.contains(n)).collect();
    Ok(FilterPlan { filters, only })
}

struct Found<'a> {
    feasible: Vec<NodeRef<'a>>,
    rejected: Vec<Rejected>,
    evaluated: usize,
}

fn filter<'a>(view: View<'a>, pod: &PodInfo, state: &CycleState, plan: &FilterPlan) -> Found<'a> {
    let View { profile, nodes, start } = view;
    let mut found = Found { feasible: Vec::new(), rejected: Vec::new(), evaluated: 0 };
    let ask = |node: NodeRef<'a>, found: &mut Found<'a>| {
        found.evaluated += 1;
        match rejected_by(profile, pod, state, plan, node) {
            None => found.feasible.push(node),
            Some(rejected) => found.rejected.push(rejected),
        }
    };
    if let Some(only) = &plan.only {
        for node in only.iter().filter_map(|name| nodes.get(name)) {
            ask(node, &mut found);
        }
        return found;
    }
    let enough = if profile.at(Point::Score).next().is_none() {
        1
    } else {
        enough_nodes(nodes.len(), profile.percentage())
    };
    for n in 0..nodes.len() {
        ask(nodes.nth((start + n) % nodes.len()), &mut found);
        if found.feasible.len() >= enough {
            break;
        }
    }
    found
}

pub(crate) fn rejected_by(
    profile: &Profile,
    pod: &PodInfo,
    state: &CycleState,
    plan: &FilterPlan,
    node: NodeRef<'_>,
) -> Option<Rejected> {
    plan.filters.iter().find_map(|n| {
        let why = profile.plugin(*n).as_filter()?.filter(state, pod, node).err()?;
        Some(Rejected { slot: node.slot(), plugin: *n, why })
    })
}

fn score(
    profile: &Profile,
    nodes: &NodeTable,
    pod: &PodInfo,
    state: &mut CycleState,
    feasible: &[NodeRef<'_>],
) -> Vec<i64> {
    let mut done = Vec::new();
    let mut same = 0;
    for (n, plugin) in profile.at(Point::PreScore) {
        let Some(plugin) = plugin.as_pre_score() else { continue };
        match plugin.pre_score(state, pod, nodes, feasible) {
            PreScored::All => continue,
            PreScored::Skip => {}
            PreScored::Same(score) => same += score.clamp(0, MAX_NODE_SCORE) * profile.weight(n),
        }
        done.push(n);
    }
    let mut total = vec![same; feasible.len()];
    let mut own = Vec::with_capacity(feasible.len());
    for (n, plugin) in profile.at(Point::Score).filter(|(n, _)| !done.contains(n)) {
        let Some(plugin) = plugin.as_score() else { continue };
        own.clear();
        plugin.score_all(state, pod, feasible, &mut own);
        plugin.normalise(state, feasible, &mut own);
        for (sum, score) in total.iter_mut().zip(&own) {
            *sum += score.clamp(&0, &MAX_NODE_SCORE) * profile.weight(n);
        }
    }
    total
}

/// One of the nodes with the best score.
fn best<'a>(nodes: &[NodeRef<'a>], scores: &[i64], seed: u64) -> NodeRef<'a> {
    let top = scores.iter().copied().max().unwrap_or(0);
    let n_ties = scores.iter().filter(|score| **score == top).count().max(1);
    let lucky = (mix(seed) % n_ties as u64) as usize;
    let at = scores
        .iter()
        .enumerate()
        .filter(|(_, score)| **score == top)
        .nth(lucky)
        .map_or(0, |(at, _)| at);
    nodes[at]
}

/// Spreads a seed over all bits (`splitmix64`).
fn mix(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

impl Unfit {
    /// The plugins that rejected, each once.
    pub fn plugins(&self) -> Vec<usize> {
        let mut plugins: Vec<usize> =
            self.rejected.iter().chain(&self.overall).map(|rejected| rejected.plugin).collect();
        plugins.sort_unstable();
        plugins.dedup();
        plugins
    }

    /// Whether something went wrong rather than being full.
    pub fn is_error(&self) -> bool {
        self.rejected
            .iter()
            .chain(&self.overall)
            .any(|rejected| rejected.why.severity == Severity::Error)
    }
}

impl std::fmt::Display for Unfit {
    /// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s).`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "0/{} nodes are available:", self.n_nodes)?;
        if let Some(overall) = &self.overall {
            let reasons: Vec<&str> = overall.why.reasons.iter().map(|reason| &**reason).collect();
            return write!(f, " {}.", reasons.join(", "));
        }
        let mut counts: BTreeMap<&Reason, usize> = BTreeMap::new();
        for reason in self.rejected.iter().flat_map(|rejected| &rejected.why.reasons) {
            *counts.entry(reason).or_default() += 1;
        }
        let mut counts: Vec<String> =
            counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        if counts.is_empty() {
            return Ok(());
        }
        counts.sort_unstable();
        write!(f, " {}.", counts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_nodes_as_upstream_counts_them() {
        for (nodes, percentage, want) in [
            (10, 0, 10),
            (99, 0, 99),
            (100, 0, 100),
            (1000, 0, 420),
            (5000, 0, 500),
            (6000, 0, 300),
            (15_000, 0, 750),
            (1000, 40, 400),
            (1000, 1, 100),
            (1000, 100, 1000),
        ] {
            assert_eq!(enough_nodes(nodes, percentage), want, "{nodes} nodes, {percentage} %");
        }
    }
}
