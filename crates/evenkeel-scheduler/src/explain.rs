//! Why a pod goes where it goes: for each node which plugin refuses it and why, or what each plugin thinks of it. Nothing is
//! written.

use crate::{
    SchedulerOptions,
    framework::{Candidate, CycleState, MAX_NODE_SCORE, Point, PreScoreResult, Profile},
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
    run::Prepared,
    schedule::{Cycle, Rejected, Unfit, View},
};
use evenkeel_api::{Text, views::Pod};
use evenkeel_runtime::{cache::Caches, client::Client, clock::Clock};
use serde::Serialize;
use std::sync::Arc;

/// What there is to say of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// Which scheduler it is for.
    pub scheduler: String,
    /// Why no node had to be looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overall: Option<Refusal>,
    /// Each node, best first, those that refuse last; nodes alike in the order of their names.
    pub nodes: Vec<NodeExplained>,
    /// The message of the event `FailedScheduling`, where there is no node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Where there is no node, what the scheduler would have leave one: it takes any of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<Eviction>,
}

/// Pods that would be evicted to make room on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Eviction {
    /// The node.
    pub node: Arc<str>,
    /// The pods, as `namespace/name`, the most important first.
    pub pods: Vec<String>,
    /// How many of them a PodDisruptionBudget does not let go.
    pub violations: usize,
}

impl From<Candidate> for Eviction {
    fn from(Candidate { node, pods, num_pdb_violations: violations }: Candidate) -> Self {
        let name = |pod: &Arc<Pod>| format!("{}/{}", pod.meta.namespace, pod.meta.name);
        Self { node, pods: pods.iter().map(name).collect(), violations }
    }
}

/// What there is to say of a node for a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeExplained {
    /// Its name.
    pub node: Arc<str>,
    /// Who refuses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
    /// Each plugin's score, weighted, where it is not refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<(&'static str, i64)>,
    /// Their sum.
    pub total: i64,
}

/// Who refuses, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The plugin.
    pub plugin: &'static str,
    /// Its reasons, in its words.
    pub reasons: Vec<String>,
}

impl Explained {
    /// The nodes that will do, in the order of their names.
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

    /// Says why there is no node, and what would make room on one.
    fn no_node(&mut self, cycle: &mut Cycle<'_>, state: &CycleState, unfit: &Unfit) {
        if let Some(hopeless) = unfit.hopeless() {
            self.message = Some(hopeless.to_owned());
            return;
        }
        let plugins: Vec<_> = cycle.profile().at(Point::PostFilter).collect();
        let mut messages = Vec::new();
        for (_, plugin) in plugins {
            let Some(plugin) = plugin.as_post_filter() else { continue };
            let preview = plugin.preview(cycle, state, unfit);
            messages.extend(Some(preview.message).filter(|message| !message.is_empty()));
            self.evictions.extend(preview.victims.into_iter().map(Eviction::from));
            if preview.done || !self.evictions.is_empty() {
                break;
            }
        }
        self.message = Some(unfit.told_with(&messages));
    }

    /// The nodes with the best score, of which the scheduler takes any.
    pub fn best(&self) -> Vec<&str> {
        let fit = || self.nodes.iter().filter(|node| node.refused.is_none());
        let top = fit().map(|node| node.total).max().unwrap_or_default();
        fit().filter(|node| node.total == top).map(|node| &*node.node).collect()
    }
}

/// A scheduler that only looks.
pub struct Looker {
    prepared: Prepared,
    caches: Caches,
}

impl Looker {
    /// Asks for the caches that it looks at; they are started by their owner. To be called inside a tokio runtime.
    pub fn new(client: Client, caches: Caches, clock: Clock, options: &SchedulerOptions) -> Self {
        let registry = prometheus::Registry::new();
        let prepared = Prepared::new(client, caches.clone(), clock, &registry, options);
        Self { prepared, caches }
    }

    /// Waits until the caches are filled.
    pub async fn ready(&mut self) {
        self.caches.synced().await;
        self.prepared.catch_up();
    }

    /// What there is to say of a pod that the cluster has: as if it had no node yet, where it has one. `None` where there is
    /// no such pod, or none of the schedulers is its.
    pub fn explain(&mut self, namespace: &str, name: &str) -> Option<Explained> {
        let pod = self.caches.of::<Pod>().get(namespace, name)?;
        self.explain_pod(&pod)
    }

    /// The pods that wait for a node, those of the highest priority first.
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

    /// Looks from now on as if a copy of a pod, known by this uid, were on a node.
    pub fn place(&mut self, pod: &Pod, uid: &str, node: &str) {
        let mut placed = pod.clone();
        placed.meta.uid = uid.into();
        placed.spec.node_name = node.into();
        self.prepared.see(&Arc::new(placed));
    }

    /// The same of a pod that need not be there.
    pub fn explain_pod(&mut self, pod: &Arc<Pod>) -> Option<Explained> {
        self.prepared.catch_up();
        if pod.spec.node_name.is_empty() {
            return self.look(&PodInfo::new(Arc::clone(pod)));
        }
        self.prepared.forget(&pod.meta.uid);
        let mut free = Pod::clone(pod);
        free.spec.node_name = Text::new();
        let explained = self.look(&PodInfo::new(Arc::new(free)));
        self.prepared.see(pod);
        explained
    }

    fn look(&mut self, pod: &PodInfo) -> Option<Explained> {
        let (profile, view) = self.prepared.sight(&pod.pod)?;
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
    if let Err(rejected) = cycle.pre_filter(&mut state) {
        explained.overall = Some(refusal(profile, &rejected));
        let unfit = cycle.unfit(Some(rejected), Vec::new());
        explained.no_node(&mut cycle, &state, &unfit);
        return explained;
    }
    let (mut feasible, mut refused) = (Vec::new(), Vec::new());
    for n in 0..cycle.nodes().len() {
        let node = cycle.nodes().nth(n);
        let (slot, name) = (node.slot(), Arc::clone(node.name()));
        if !cycle.is_left(&name) {
            continue;
        }
        match cycle.ask(&state, slot) {
            Ok(()) => feasible.push(slot),
            Err((plugin, why)) => {
                let rejected = Rejected { slot, plugin, why };
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
        let unfit = cycle.unfit(None, refused);
        explained.no_node(&mut cycle, &state, &unfit);
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

fn refusal(profile: &Profile, rejected: &Rejected) -> Refusal {
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
            let worth = score.clamp(&0, &MAX_NODE_SCORE) * profile.weight(n);
            node.scores.push((profile.plugin(n).name(), worth));
            node.total += worth;
        }
    };
    let mut done = Vec::new();
    for (n, plugin) in profile.at(Point::PreScore) {
        let Some(plugin) = plugin.as_pre_score() else { continue };
        match plugin.pre_score(state, pod, nodes, feasible) {
            PreScoreResult::All => continue,
            PreScoreResult::Skip => {}
            PreScoreResult::Same(score) => add(n, &vec![score; feasible.len()]),
        }
        done.push(n);
    }
    for (n, plugin) in profile.at(Point::Score).filter(|(n, _)| !done.contains(n)) {
        let Some(plugin) = plugin.as_score() else { continue };
        let mut own = Vec::with_capacity(feasible.len());
        plugin.score_all(state, pod, feasible, &mut own);
        plugin.normalize_score(state, feasible, &mut own);
        add(n, &own);
    }
    all
}
