//! Random clusters for tests: steps that change a node table, and the objects that the table then contains.

use evenkeel_api::{
    StrMap,
    views::{Node, Pod, PodAffinityTerm},
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

use crate::{
    fixtures::{info, merge, node},
    framework::{CycleState, Plugin, PreFilterResult, PreScoreResult},
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};

pub(super) const HOST: &str = "kubernetes.io/hostname";
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// A node table with its expected contents.
#[derive(Default)]
pub(super) struct RandomCluster {
    pub(super) table: NodeTable,
    pub(super) nodes: BTreeMap<String, Arc<Node>>,
    /// Pods with the names of their nodes, by uid.
    pub(super) pods: BTreeMap<String, (PodInfo, String)>,
    pub(super) namespaces: BTreeMap<String, StrMap>,
}

/// A change of the cluster.
#[derive(Debug)]
pub(super) struct Step {
    /// Number that selects the operation.
    operation: u8,
    pod: u8,
    node: u8,
    /// Number that selects fields of the pod, node or namespace.
    variant: u8,
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0_u8..10, 0_u8..8, 0_u8..5, any::<u8>());
    let step =
        step.prop_map(|(operation, pod, node, variant)| Step { operation, pod, node, variant });
    proptest::collection::vec(step, 0..60)
}

impl RandomCluster {
    /// Creates four nodes and applies steps. `numbered_pod` returns the fields of a pod by number.
    pub(super) fn after(steps: &[Step], numbered_pod: impl Fn(u8) -> Value) -> Self {
        let mut cluster = Self::default();
        (0..4).for_each(|n| cluster.set_node(n, n));
        cluster.apply(steps, numbered_pod);
        cluster
    }

    /// Applies more steps.
    pub(super) fn apply(&mut self, steps: &[Step], numbered_pod: impl Fn(u8) -> Value) {
        for Step { operation, pod, node, variant } in steps {
            match operation {
                0..=4 => self.place(*pod, *node, &numbered_pod(*variant)),
                5 => self.remove(*pod),
                6 => self.set_node(*node, *variant),
                7 => {
                    self.table.remove_node(&format!("n{node}"));
                    self.nodes.remove(&format!("n{node}"));
                }
                8 => self.set_namespace(["shop", "bank"][usize::from(*pod) % 2], *variant),
                _ => self.delete(*pod),
            }
        }
    }

    /// Sets a node whose labels and taints depend on `variant`.
    fn set_node(&mut self, n: u8, variant: u8) {
        let name = format!("n{n}");
        let mut labels = json!({ HOST: name });
        if !variant.is_multiple_of(5) {
            labels[ZONE] = json!(["a", "b", "c", ""][usize::from(variant) % 4]);
        }
        if variant.is_multiple_of(3) {
            labels["rack"] = json!(format!("r{}", variant % 2));
        }
        let mut spec = json!({});
        if variant % 8 == 7 {
            spec = json!({ "taints": [{ "key": "k", "effect": "NoSchedule" }] });
        }
        // The labels replace those that `fixtures::node` sets.
        let mut object = node(&name, &json!({ "spec": spec }));
        let labelled = node(&name, &json!({ "metadata": { "labels": labels } }));
        Arc::make_mut(&mut object).meta.labels = labelled.meta.labels.clone();
        self.table.set_node(Arc::clone(&object));
        self.nodes.insert(name, object);
    }

    fn place(&mut self, uid: u8, node_name: u8, pod: &Value) {
        let (uid, node_name) = (format!("p{uid}"), format!("n{node_name}"));
        let pod = info(&uid, pod);
        self.table.place(pod.clone(), &node_name);
        self.pods.insert(uid, (pod, node_name));
    }

    fn remove(&mut self, uid: u8) {
        let uid = format!("p{uid}");
        self.table.remove(&uid);
        self.pods.remove(&uid);
    }

    /// Marks the pod as terminating.
    fn delete(&mut self, uid: u8) {
        let uid = format!("p{uid}");
        let Some((pod, node_name)) = self.pods.get_mut(&uid) else { return };
        let mut deleted = (*pod.pod).clone();
        deleted.meta.deletion = Some(crate::fixtures::at(0));
        *pod = pod.updated(Arc::new(deleted));
        assert!(self.table.try_update(pod, node_name));
    }

    fn set_namespace(&mut self, name: &str, variant: u8) {
        let labels: StrMap = match variant % 3 {
            0 => StrMap::default(),
            n => [("team", ["red", "blue"][usize::from(n) - 1])].into_iter().collect(),
        };
        self.table.set_namespace(name, Some(&labels));
        self.namespaces.insert(name.to_owned(), labels);
    }

    /// Returns the pods whose node exists, with their nodes.
    pub(super) fn placed(&self) -> impl Iterator<Item = (&Pod, &Node)> {
        self.pods
            .values()
            .filter_map(|(pod, node_name)| Some((&*pod.pod, &**self.nodes.get(node_name)?)))
    }

    /// Returns whether a term of `owner` matches a pod, computed from the objects.
    pub(super) fn matches(&self, term: &PodAffinityTerm, owner: &Pod, pod: &Pod) -> bool {
        let no_labels = StrMap::default();
        let namespace_labels = self.namespaces.get(&*pod.meta.namespace).unwrap_or(&no_labels);
        let namespace_matches =
            if term.namespaces.is_empty() && term.namespace_selector.is_nothing() {
                pod.meta.namespace == owner.meta.namespace
            } else {
                term.namespaces.contains(&pod.meta.namespace)
                    || term.namespace_selector.matches(namespace_labels)
            };
        namespace_matches && term.label_selector.matches(&pod.meta.labels)
    }
}

/// Returns the plugin's reason to reject each node, or an empty string if the node is feasible.
pub(super) fn filter_results(
    plugin: &dyn Plugin,
    table: &NodeTable,
    pod: &PodInfo,
) -> BTreeMap<String, String> {
    let mut state = CycleState::default();
    let result = plugin.as_pre_filter().map(|plugin| plugin.pre_filter(&mut state, pod, table));
    if matches!(result, Some(Ok(PreFilterResult::Skip))) {
        return table.iter().map(|node| (node.name().to_string(), String::new())).collect();
    }
    filter_results_of_state(plugin, &state, pod, table)
}

/// Returns the results of [`filter_results`] for a prepared state.
pub(super) fn filter_results_of_state(
    plugin: &dyn Plugin,
    state: &CycleState,
    pod: &PodInfo,
    table: &NodeTable,
) -> BTreeMap<String, String> {
    let filter = plugin.as_filter().unwrap();
    let rejection = |node: NodeRef<'_>| match filter.filter(state, pod, node) {
        Err(status) => status.reasons.join(", "),
        Ok(()) => String::new(),
    };
    table.iter().map(|node| (node.name().to_string(), rejection(node))).collect()
}

/// Returns the normalized score of each node, or `None` if the plugin skips the pod.
pub(super) fn scores(
    plugin: &dyn Plugin,
    table: &NodeTable,
    pod: &PodInfo,
) -> Option<BTreeMap<String, i64>> {
    let mut state = CycleState::default();
    let nodes: Vec<NodeRef<'_>> = table.iter().collect();
    let names = || nodes.iter().map(|node| node.name().to_string());
    let result =
        plugin.as_pre_score().map(|plugin| plugin.pre_score(&mut state, pod, table, &nodes));
    match result {
        Some(PreScoreResult::Skip) => return None,
        Some(PreScoreResult::Same(score)) => {
            return Some(names().map(|name| (name, score)).collect());
        }
        Some(PreScoreResult::All) | None => {}
    }
    let plugin = plugin.as_score()?;
    let mut scores = Vec::new();
    plugin.score_all(&state, pod, &nodes, &mut scores);
    let single_scores = nodes.iter().map(|node| plugin.score(&state, pod, *node));
    assert_eq!(scores, single_scores.collect::<Vec<i64>>(), "score_all equals score");
    plugin.normalize_score(&state, &nodes, &mut scores);
    Some(names().zip(scores).collect())
}

/// Returns a pod whose namespace and labels depend on `n`, with `more` merged into it.
pub(super) fn pod_of(n: u8, more: &Value) -> Value {
    let namespace = ["shop", "bank"][usize::from(n) % 2];
    let app = ["web", "db", "cache"][usize::from(n / 2) % 3];
    let mut pod = json!({ "metadata": { "namespace": namespace, "labels": { "app": app } } });
    merge(&mut pod, more);
    pod
}
