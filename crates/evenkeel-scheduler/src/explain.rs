//! Dry run of one scheduling attempt, without writes. For each node it reports the scores, or the plugin that rejects
//! the node and its reasons.

use crate::{
    SchedulerOptions,
    framework::{
        Candidate, CycleState, ExtensionPoint, MAX_NODE_SCORE, PluginRejection, PostFilterPlan,
        PreScoreResult, Profile,
    },
    nodes::{NodeRef, NodeTable},
    plugins::default_preemption,
    pod::PodInfo,
    run::StandbyScheduler,
    schedule::{Cycle, FitError, NodeStatus, View},
};
use evenkeel_api::{Text, views::Pod};
use evenkeel_runtime::{cache::Caches, client::Client, clock::Clock, tasks::Supervisor};
use serde::Serialize;
use std::sync::Arc;

/// Result of the dry run for a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// `schedulerName` of the pod's profile.
    pub scheduler: String,
    /// The rejection by a PreFilter plugin, which applies to every node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overall: Option<Refusal>,
    /// The nodes that PreFilter plugins leave, highest score first, rejected ones last. Nodes with equal scores are
    /// sorted by name.
    pub nodes: Vec<NodeExplained>,
    /// Message of the event `FailedScheduling`, if no node is feasible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The equally good candidates for preemption, if no node is feasible.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<Eviction>,
}

/// Victims of a preemption on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Eviction {
    /// Name of the node.
    pub node: Arc<str>,
    /// Victims as `namespace/name`, most important first.
    pub pods: Vec<String>,
    /// Number of victims whose eviction violates a PodDisruptionBudget.
    pub violations: usize,
}

impl From<Candidate> for Eviction {
    fn from(Candidate { node, pods, num_pdb_violations: violations }: Candidate) -> Self {
        let name = |pod: &Arc<Pod>| format!("{}/{}", pod.meta.namespace, pod.meta.name);
        Self { node, pods: pods.iter().map(name).collect(), violations }
    }
}

/// Result of the dry run for one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeExplained {
    /// Name of the node.
    pub node: Arc<str>,
    /// The rejection of the node by a plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
    /// Weighted scores by plugin, if the node is feasible.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<(&'static str, i64)>,
    /// Sum of the weighted scores; 0 for a rejected node.
    pub total: i64,
}

/// Rejection of the pod by a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Name of the plugin.
    pub plugin: &'static str,
    /// Reasons as the plugin states them.
    pub reasons: Vec<String>,
}

impl Explained {
    /// Returns the names of the feasible nodes, sorted.
    pub fn feasible(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .nodes
            .iter()
            .filter(|node| node.refused.is_none())
            .map(|node| &*node.node)
            .collect();
        names.sort_unstable();
        names
    }

    /// Sets the message and the candidates for preemption of a pod that fits no node.
    fn set_fit_error(&mut self, cycle: &mut Cycle<'_>, state: &CycleState, fit_error: &FitError) {
        if let Some(message) = fit_error.message_without_post_filter() {
            self.message = Some(message.to_owned());
            return;
        }
        let plugins: Vec<_> = cycle.profile().at(ExtensionPoint::PostFilter).collect();
        let mut messages = Vec::new();
        for (_, plugin) in plugins {
            let Some(plugin) = plugin.as_post_filter() else { continue };
            let PostFilterPlan { result, candidates } = plugin.plan(cycle, state, fit_error);
            let best_candidates = default_preemption::equally_good_candidates(candidates);
            self.evictions.extend(best_candidates.into_iter().map(Eviction::from));
            if !result.message.is_empty() {
                messages.push(result.message);
            }
            if result.done {
                break;
            }
        }
        self.message = Some(fit_error.message_with(&messages));
    }

    /// Returns the nodes with the highest score. The scheduler selects one of them.
    pub fn best(&self) -> Vec<&str> {
        let feasible = || self.nodes.iter().filter(|node| node.refused.is_none());
        let highest = feasible().map(|node| node.total).max().unwrap_or_default();
        feasible().filter(|node| node.total == highest).map(|node| &*node.node).collect()
    }
}

/// A scheduler that makes only dry runs.
pub struct Looker {
    standby: StandbyScheduler,
    caches: Caches,
}

impl Looker {
    /// Creates the caches. The caller starts them. Must be called inside a tokio runtime.
    pub fn new(client: Client, caches: Caches, clock: Clock, options: &SchedulerOptions) -> Self {
        let registry = prometheus::Registry::new();
        let standby = StandbyScheduler::new(
            client,
            caches.clone(),
            clock,
            &registry,
            options,
            &Supervisor::default(),
        );
        Self { standby, caches }
    }

    /// Waits until the caches are synced, and handles their events.
    pub async fn ready(&mut self) {
        self.caches.synced().await;
        self.standby.catch_up();
    }

    /// Explains a pod of the cluster as if it were unscheduled. Returns `None` if the pod does not exist or no profile
    /// is responsible for it.
    pub fn explain(&mut self, namespace: &str, name: &str) -> Option<Explained> {
        let pod = self.caches.of::<Pod>().get(namespace, name)?;
        self.explain_pod(&pod)
    }

    /// Returns the unscheduled pods, highest priority first.
    pub fn pending(&self) -> Vec<Arc<Pod>> {
        let mut pods = self.caches.of::<Pod>().list();
        pods.retain(|pod| {
            let has_finished = matches!(&*pod.status.phase, "Succeeded" | "Failed");
            pod.spec.node_name.is_empty() && !has_finished && !pod.meta.deleting()
        });
        pods.sort_by_key(|pod| {
            let name = (pod.meta.namespace.clone(), pod.meta.name.clone());
            (-i64::from(pod.spec.priority.unwrap_or_default()), pod.meta.creation, name)
        });
        pods
    }

    /// Adds a copy of a pod with this uid to a node, for later dry runs.
    pub fn place(&mut self, pod: &Pod, uid: &str, node: &str) {
        let mut placed = pod.clone();
        placed.meta.uid = uid.into();
        placed.spec.node_name = node.into();
        self.standby.add_pod(&Arc::new(placed));
    }

    /// Explains a pod that need not exist in the cluster. Returns `None` if no profile is responsible for it.
    pub fn explain_pod(&mut self, pod: &Arc<Pod>) -> Option<Explained> {
        self.standby.catch_up();
        if pod.spec.node_name.is_empty() {
            return self.explain_unscheduled(&PodInfo::new(Arc::clone(pod)));
        }
        self.standby.delete_pod(&pod.meta.uid);
        let mut unassigned = Pod::clone(pod);
        unassigned.spec.node_name = Text::new();
        let explained = self.explain_unscheduled(&PodInfo::new(Arc::new(unassigned)));
        self.standby.add_pod(pod);
        explained
    }

    /// Explains how the scheduler would schedule a pod. `None` if no profile is responsible for it.
    fn explain_unscheduled(&mut self, pod: &PodInfo) -> Option<Explained> {
        let (profile, view) = self.standby.view_for(&pod.pod)?;
        Some(explain(&profile, view, pod))
    }
}

/// Filters all nodes and scores the feasible ones. Unlike an attempt, it does not stop after enough feasible nodes.
fn explain(profile: &Profile, view: View<'_>, pod: &PodInfo) -> Explained {
    let mut state = CycleState::default();
    let mut explained = Explained {
        scheduler: profile.name().to_owned(),
        overall: None,
        nodes: Vec::new(),
        message: None,
        evictions: Vec::new(),
    };
    let seed = 0;
    let no_extenders = &[];
    let mut cycle = Cycle::new(view, pod, seed, no_extenders);
    if let Err(rejected) = cycle.run_pre_filter_plugins(&mut state) {
        explained.overall = Some(refusal(profile, &rejected));
        let fit_error = cycle.fit_error(Some(rejected), Vec::new());
        explained.set_fit_error(&mut cycle, &state, &fit_error);
        return explained;
    }
    let mut feasible = Vec::new();
    let mut rejected_nodes = Vec::new();
    for index in 0..cycle.nodes().len() {
        let node = cycle.nodes().nth(index);
        let slot = node.slot();
        let name = Arc::clone(node.name());
        if !cycle.passes_pre_filter(&name) {
            continue;
        }
        match cycle.run_filter_plugins_with_nominated_pods(&state, slot) {
            Ok(()) => feasible.push(slot),
            Err(PluginRejection { plugin, status }) => {
                let rejected = NodeStatus { slot, plugin, status };
                explained.nodes.push(NodeExplained {
                    node: name,
                    refused: Some(refusal(profile, &rejected)),
                    scores: Vec::new(),
                    total: 0,
                });
                rejected_nodes.push(rejected);
            }
        }
    }
    if feasible.is_empty() {
        let fit_error = cycle.fit_error(None, rejected_nodes);
        explained.set_fit_error(&mut cycle, &state, &fit_error);
    }
    let nodes = cycle.nodes();
    let feasible: Vec<NodeRef<'_>> = feasible.into_iter().map(|slot| nodes.at(slot)).collect();
    explained.nodes.extend(score_nodes(profile, nodes, pod, &mut state, &feasible));
    explained.nodes.sort_by(|a, b| {
        let rank = |node: &NodeExplained| (node.refused.is_some(), -node.total);
        rank(a).cmp(&rank(b)).then_with(|| a.node.cmp(&b.node))
    });
    explained
}

/// Converts a rejection for the report.
fn refusal(profile: &Profile, rejected: &NodeStatus) -> Refusal {
    Refusal {
        plugin: profile.plugin(rejected.plugin).name(),
        reasons: rejected.status.reasons.iter().map(ToString::to_string).collect(),
    }
}

/// Returns the feasible nodes with the weighted score of each plugin.
fn score_nodes(
    profile: &Profile,
    nodes: &NodeTable,
    pod: &PodInfo,
    state: &mut CycleState,
    feasible: &[NodeRef<'_>],
) -> Vec<NodeExplained> {
    let mut explained: Vec<NodeExplained> = feasible
        .iter()
        .map(|node| NodeExplained {
            node: Arc::clone(node.name()),
            refused: None,
            scores: Vec::new(),
            total: 0,
        })
        .collect();
    let mut add_scores = |index: usize, scores: &[i64]| {
        for (node, score) in explained.iter_mut().zip(scores) {
            let weighted = score.clamp(&0, &MAX_NODE_SCORE) * profile.weight(index);
            node.scores.push((profile.plugin(index).name(), weighted));
            node.total += weighted;
        }
    };
    let mut without_score_call = Vec::new();
    let scores = |index| profile.at(ExtensionPoint::Score).any(|(scoring, _)| scoring == index);
    for (index, plugin) in profile.at(ExtensionPoint::PreScore) {
        let Some(plugin) = plugin.as_pre_score() else { continue };
        match plugin.pre_score(state, pod, nodes, feasible) {
            PreScoreResult::All => continue,
            PreScoreResult::Skip => {}
            // A profile may enable the PreScore of a plugin without its Score.
            PreScoreResult::Same(score) if scores(index) => {
                add_scores(index, &vec![score; feasible.len()]);
            }
            PreScoreResult::Same(_) => {}
        }
        without_score_call.push(index);
    }
    for (index, plugin) in profile.at(ExtensionPoint::Score) {
        if without_score_call.contains(&index) {
            continue;
        }
        let Some(plugin) = plugin.as_score() else { continue };
        let mut plugin_scores = Vec::with_capacity(feasible.len());
        plugin.score_all(state, pod, feasible, &mut plugin_scores);
        plugin.normalize_score(state, feasible, &mut plugin_scores);
        add_scores(index, &plugin_scores);
    }
    explained
}
