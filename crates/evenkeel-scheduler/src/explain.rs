//! Dry run of one scheduling attempt: reports for each node its scores, or the plugin that rejects it and why. It
//! writes nothing.

use crate::{
    SchedulerOptions,
    framework::{
        Candidate, CycleState, ExtensionPoint, MAX_NODE_SCORE, PostFilterPlan, PreScoreResult,
        Profile,
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
    /// All nodes, highest score first, rejected ones last. Equal nodes are sorted by name.
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

    /// Sets the message and the candidates for preemption.
    fn no_node(&mut self, cycle: &mut Cycle<'_>, state: &CycleState, fit_error: &FitError) {
        if let Some(without_post_filter) = fit_error.without_post_filter() {
            self.message = Some(without_post_filter.to_owned());
            return;
        }
        let plugins: Vec<_> = cycle.profile().at(ExtensionPoint::PostFilter).collect();
        let mut messages = Vec::new();
        for (_, plugin) in plugins {
            let Some(plugin) = plugin.as_post_filter() else { continue };
            let PostFilterPlan { result, candidates } = plugin.plan(cycle, state, fit_error);
            let best = default_preemption::equally_good_candidates(candidates);
            self.evictions.extend(best.into_iter().map(Eviction::from));
            messages.extend(Some(result.message).filter(|message| !message.is_empty()));
            if result.done {
                break;
            }
        }
        self.message = Some(fit_error.message_with(&messages));
    }

    /// Returns the nodes with the highest score; the scheduler selects one of them.
    pub fn best(&self) -> Vec<&str> {
        let fit = || self.nodes.iter().filter(|node| node.refused.is_none());
        let top = fit().map(|node| node.total).max().unwrap_or_default();
        fit().filter(|node| node.total == top).map(|node| &*node.node).collect()
    }
}

/// A scheduler that makes only dry runs.
pub struct Looker {
    prepared: StandbyScheduler,
    caches: Caches,
}

impl Looker {
    /// Creates the caches; the caller starts them. Must be called inside a tokio runtime.
    pub fn new(client: Client, caches: Caches, clock: Clock, options: &SchedulerOptions) -> Self {
        let registry = prometheus::Registry::new();
        let prepared = StandbyScheduler::new(
            client,
            caches.clone(),
            clock,
            &registry,
            options,
            &Supervisor::default(),
        );
        Self { prepared, caches }
    }

    /// Waits until the caches are synced.
    pub async fn ready(&mut self) {
        self.caches.synced().await;
        self.prepared.catch_up();
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
            let ended = matches!(&*pod.status.phase, "Succeeded" | "Failed");
            pod.spec.node_name.is_empty() && !ended && !pod.meta.deleting()
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
        self.prepared.add_pod(&Arc::new(placed));
    }

    /// Explains a pod that need not exist in the cluster. Returns `None` if no profile is responsible for it.
    pub fn explain_pod(&mut self, pod: &Arc<Pod>) -> Option<Explained> {
        self.prepared.catch_up();
        if pod.spec.node_name.is_empty() {
            return self.look(&PodInfo::new(Arc::clone(pod)));
        }
        self.prepared.delete_pod(&pod.meta.uid);
        let mut free = Pod::clone(pod);
        free.spec.node_name = Text::new();
        let explained = self.look(&PodInfo::new(Arc::new(free)));
        self.prepared.add_pod(pod);
        explained
    }

    fn look(&mut self, pod: &PodInfo) -> Option<Explained> {
        let (profile, view) = self.prepared.view_for(&pod.pod)?;
        Some(explain(&profile, view, pod))
    }
}

fn explain(profile: &Profile, view: View<'_>, pod: &PodInfo) -> Explained {
    let mut state = CycleState::default();
    let mut explained = Explained {
        scheduler: profile.name().to_owned(),
        overall: None,
        nodes: Vec::new(),
        message: None,
        evictions: Vec::new(),
    };
    let mut cycle = Cycle::new(view, pod, 0, &[]);
    if let Err(rejected) = cycle.run_pre_filter_plugins(&mut state) {
        explained.overall = Some(refusal(profile, &rejected));
        let fit_error = cycle.fit_error(Some(rejected), Vec::new());
        explained.no_node(&mut cycle, &state, &fit_error);
        return explained;
    }
    let (mut feasible, mut refused) = (Vec::new(), Vec::new());
    for n in 0..cycle.nodes().len() {
        let node = cycle.nodes().nth(n);
        let (slot, name) = (node.slot(), Arc::clone(node.name()));
        if !cycle.passes_pre_filter(&name) {
            continue;
        }
        match cycle.run_filter_plugins_with_nominated_pods(&state, slot) {
            Ok(()) => feasible.push(slot),
            Err((plugin, why)) => {
                let rejected = NodeStatus { slot, plugin, why };
                let refused_by = Some(refusal(profile, &rejected));
                explained.nodes.push(NodeExplained {
                    node: name,
                    refused: refused_by,
                    scores: Vec::new(),
                    total: 0,
                });
                refused.push(rejected);
            }
        }
    }
    if feasible.is_empty() {
        let fit_error = cycle.fit_error(None, refused);
        explained.no_node(&mut cycle, &state, &fit_error);
    }
    let nodes = cycle.nodes();
    let feasible: Vec<NodeRef<'_>> = feasible.into_iter().map(|slot| nodes.at(slot)).collect();
    explained.nodes.extend(scored(profile, nodes, pod, &mut state, &feasible));
    explained.nodes.sort_by(|one, other| {
        let rank = |node: &NodeExplained| (node.refused.is_some(), -node.total);
        rank(one).cmp(&rank(other)).then_with(|| one.node.cmp(&other.node))
    });
    explained
}

fn refusal(profile: &Profile, rejected: &NodeStatus) -> Refusal {
    Refusal {
        plugin: profile.plugin(rejected.plugin).name(),
        reasons: rejected.why.reasons.iter().map(ToString::to_string).collect(),
    }
}

fn scored(
    profile: &Profile,
    nodes: &NodeTable,
    pod: &PodInfo,
    state: &mut CycleState,
    feasible: &[NodeRef<'_>],
) -> Vec<NodeExplained> {
    let mut all: Vec<NodeExplained> = feasible
        .iter()
        .map(|node| NodeExplained {
            node: Arc::clone(node.name()),
            refused: None,
            scores: Vec::new(),
            total: 0,
        })
        .collect();
    let mut add = |n: usize, scores: &[i64]| {
        for (node, score) in all.iter_mut().zip(scores) {
            let weighted = score.clamp(&0, &MAX_NODE_SCORE) * profile.weight(n);
            node.scores.push((profile.plugin(n).name(), weighted));
            node.total += weighted;
        }
    };
    let mut done = Vec::new();
    for (n, plugin) in profile.at(ExtensionPoint::PreScore) {
        let Some(plugin) = plugin.as_pre_score() else { continue };
        match plugin.pre_score(state, pod, nodes, feasible) {
            PreScoreResult::All => continue,
            PreScoreResult::Skip => {}
            PreScoreResult::Same(score) => add(n, &vec![score; feasible.len()]),
        }
        done.push(n);
    }
    for (n, plugin) in profile.at(ExtensionPoint::Score).filter(|(n, _)| !done.contains(n)) {
        let Some(plugin) = plugin.as_score() else { continue };
        let mut of_plugin = Vec::with_capacity(feasible.len());
        plugin.score_all(state, pod, feasible, &mut of_plugin);
        plugin.normalize_score(state, feasible, &mut of_plugin);
        add(n, &of_plugin);
    }
    all
}
