//! Nodes and plugins for a pod: rejections with their reasons, scores, and the victims of a preemption.

use super::Link;
use crate::route::ObjectPath;
use askama::Template;
use evenkeel_api::{
    View as _,
    views::{Node, Pod},
};
use evenkeel_scheduler::explain::{Eviction, Explained, NodeExplained, Refusal};
use std::collections::BTreeMap;

/// Maximum number of nodes in the table.
const MAX_NODES: usize = 500;
/// Maximum number of candidates for a preemption.
const MAX_EVICTIONS: usize = 50;
/// Maximum number of listed victims of a candidate.
const MAX_VICTIMS: usize = 20;
/// Highest weighted score that has the darkest shade.
const FULL_SCORE: i64 = 100;

/// A plugin's result for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The plugin rejects the node.
    Refuses,
    /// Weighted score of the node, and its class in the style sheet.
    Score(i64, &'static str),
    /// No result: an earlier plugin rejects the node, or the plugin neither filters nor scores it.
    None,
}

/// A node in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeRow {
    /// Name, with the node's page.
    pub(crate) link: Link,
    /// Sum of scores. `None` for a rejected node.
    pub(crate) total: Option<i64>,
    /// Whether the node has the highest score, so that the scheduler may choose it.
    pub(crate) is_best: bool,
    /// Plugin that rejects the node, and its reasons. Empty for others.
    pub(crate) why: String,
    /// Answers in the order of the plugins.
    pub(crate) answers: Vec<Answer>,
}

/// Nodes that one plugin rejects for the same reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefusalRow {
    /// Name of the plugin.
    pub(crate) plugin: String,
    /// Reasons as the plugin states them.
    pub(crate) reasons: String,
    /// Number of nodes.
    pub(crate) nodes: usize,
}

/// Candidate of a preemption: a node that is feasible once its victims are evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EvictionRow {
    /// Name, with the node's page.
    pub(crate) node: Link,
    /// Pods that a preemption would evict.
    pub(crate) pods: Vec<Link>,
    /// Number of further pods.
    pub(crate) more: usize,
    /// Number of evictions against a disruption budget.
    pub(crate) violations: usize,
}

/// Page of a pod's scheduling.
#[derive(Debug, Clone, Template)]
#[template(path = "scheduling.html")]
pub(crate) struct SchedulingPage {
    /// The pod, with its page.
    pub(crate) pod: Link,
    /// Name of its scheduler.
    pub(crate) scheduler: String,
    /// Node of the pod. Empty while it is pending.
    pub(crate) node: String,
    /// Outcome in one sentence.
    pub(crate) outcome: String,
    /// Whether a node is feasible.
    pub(crate) feasible: bool,
    /// Message of the event `FailedScheduling`. Empty if a node is feasible.
    pub(crate) message: String,
    /// Plugins that reject nodes, with the number of nodes.
    pub(crate) refusals: Vec<RefusalRow>,
    /// Plugins that reject or score nodes.
    pub(crate) plugins: Vec<String>,
    /// Nodes: feasible ones first.
    pub(crate) nodes: Vec<NodeRow>,
    /// Number of nodes that are not listed.
    pub(crate) more: usize,
    /// Candidates for a preemption.
    pub(crate) evictions: Vec<EvictionRow>,
}

fn node_link(name: &str) -> Link {
    Link::new(name, ObjectPath::of(&Node::kind(), "", name).href())
}

fn pod_link(namespace: &str, name: &str) -> Link {
    Link::new(format!("{namespace}/{name}"), ObjectPath::of(&Pod::kind(), namespace, name).href())
}

/// Returns the page of a pod. `node` is the pod's node, or empty.
pub(crate) fn scheduling(
    namespace: &str,
    name: &str,
    node: &str,
    explained: &Explained,
) -> SchedulingPage {
    let feasible = explained.feasible().len();
    let refused = explained.nodes.len() - feasible;
    let best = explained.best();
    let outcome = match (&explained.overall, feasible) {
        (Some(refusal), _) => format!("{} refuses the pod on every node.", refusal.plugin),
        (None, 0) => format!("No node is feasible: {refused} refused."),
        (None, _) => match best.as_slice() {
            [node] => format!(
                "{feasible} of {} nodes are feasible; {node} scores highest.",
                feasible + refused
            ),
            nodes => format!(
                "{feasible} of {} nodes are feasible; {} of them score highest.",
                feasible + refused,
                nodes.len()
            ),
        },
    };
    let plugins = plugins(&explained.nodes);
    let rows = explained.nodes.iter().take(MAX_NODES);
    let rows = rows.map(|node| node_row(node, &plugins, best.contains(&&*node.node)));
    SchedulingPage {
        pod: pod_link(namespace, name),
        scheduler: explained.scheduler.clone(),
        node: node.to_owned(),
        outcome,
        feasible: feasible > 0,
        message: explained.message.clone().unwrap_or_default(),
        refusals: refusals(explained),
        nodes: rows.collect(),
        plugins: plugins.into_iter().map(str::to_owned).collect(),
        more: explained.nodes.len().saturating_sub(MAX_NODES),
        evictions: explained.evictions.iter().take(MAX_EVICTIONS).map(eviction).collect(),
    }
}

/// Returns the plugins that reject a node, then those with a score other than 0, each in the order of their first results.
fn plugins(nodes: &[NodeExplained]) -> Vec<&'static str> {
    let mut plugins: Vec<&'static str> = Vec::new();
    let refusing = nodes.iter().filter_map(|node| Some(node.refused.as_ref()?.plugin));
    let scoring = nodes.iter().flat_map(|node| &node.scores).filter(|(_, score)| *score != 0);
    for plugin in refusing.chain(scoring.map(|(plugin, _)| *plugin)) {
        if !plugins.contains(&plugin) {
            plugins.push(plugin);
        }
    }
    plugins
}

fn node_row(node: &NodeExplained, plugins: &[&'static str], is_best: bool) -> NodeRow {
    let answer = |plugin: &&'static str| match &node.refused {
        Some(refusal) if refusal.plugin == *plugin => Answer::Refuses,
        Some(_) => Answer::None,
        None => match node.scores.iter().find(|(scorer, _)| scorer == plugin) {
            Some((_, score)) => Answer::Score(*score, shade(*score)),
            None => Answer::None,
        },
    };
    NodeRow {
        link: node_link(&node.node),
        total: node.refused.is_none().then_some(node.total),
        is_best: is_best && node.refused.is_none(),
        why: node.refused.as_ref().map(sentence).unwrap_or_default(),
        answers: plugins.iter().map(answer).collect(),
    }
}

/// Returns the class of a score's shade.
fn shade(score: i64) -> &'static str {
    const SHADES: [&str; 5] = ["s1", "s2", "s3", "s4", "s5"];
    let index = (score.clamp(0, FULL_SCORE) * 4 / FULL_SCORE).unsigned_abs();
    SHADES[usize::try_from(index).unwrap_or_default().min(4)]
}

fn sentence(refusal: &Refusal) -> String {
    format!("{}: {}", refusal.plugin, refusal.reasons.join(", "))
}

/// Returns the number of nodes by plugin and reasons, the most first.
fn refusals(explained: &Explained) -> Vec<RefusalRow> {
    let mut counts: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for refusal in explained.nodes.iter().filter_map(|node| node.refused.as_ref()) {
        *counts.entry((refusal.plugin, refusal.reasons.join(", "))).or_default() += 1;
    }
    let row = |((plugin, reasons), nodes): ((&str, String), usize)| RefusalRow {
        plugin: plugin.to_owned(),
        reasons,
        nodes,
    };
    let mut rows: Vec<RefusalRow> = counts.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.nodes.cmp(&a.nodes).then_with(|| a.plugin.cmp(&b.plugin)));
    if let Some(overall) = &explained.overall {
        let (plugin, reasons) = (overall.plugin.to_owned(), overall.reasons.join(", "));
        rows.insert(0, RefusalRow { plugin, reasons, nodes: 0 });
    }
    rows
}

fn eviction(eviction: &Eviction) -> EvictionRow {
    let pods = eviction.pods.iter().take(MAX_VICTIMS).map(|pod| {
        let (namespace, name) = pod.split_once('/').unwrap_or(("", pod));
        pod_link(namespace, name)
    });
    EvictionRow {
        node: node_link(&eviction.node),
        pods: pods.collect(),
        more: eviction.pods.len().saturating_sub(MAX_VICTIMS),
        violations: eviction.violations,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(node: &str, plugin: &'static str, reason: &str) -> NodeExplained {
        NodeExplained {
            node: node.into(),
            refused: Some(Refusal { plugin, reasons: vec![reason.to_owned()] }),
            scores: Vec::new(),
            total: 0,
        }
    }

    fn fits(node: &str, scores: &[(&'static str, i64)]) -> NodeExplained {
        let total = scores.iter().map(|(_, score)| score).sum();
        NodeExplained { node: node.into(), refused: None, scores: scores.to_vec(), total }
    }

    fn explained(nodes: Vec<NodeExplained>) -> Explained {
        Explained {
            scheduler: "default-scheduler".to_owned(),
            overall: None,
            nodes,
            message: None,
            evictions: Vec::new(),
        }
    }

    #[test]
    fn the_table_has_a_column_for_each_plugin_that_answers() {
        let nodes = vec![
            fits("a", &[("NodeResourcesFit", 90), ("ImageLocality", 0)]),
            fits("b", &[("NodeResourcesFit", 10), ("ImageLocality", 0)]),
            refused("c", "TaintToleration", "node(s) had untolerated taint {a: b}"),
        ];
        let page = scheduling("shop", "web", "", &explained(nodes));
        assert_eq!(page.plugins, ["TaintToleration", "NodeResourcesFit"]);
        let rows: Vec<_> = page.nodes.iter().map(|r| (&*r.link.text, r.total, r.is_best)).collect();
        assert_eq!(rows, [("a", Some(90), true), ("b", Some(10), false), ("c", None, false)]);
        assert_eq!(page.nodes[0].answers, [Answer::None, Answer::Score(90, "s4")]);
        assert_eq!(page.nodes[2].answers, [Answer::Refuses, Answer::None]);
        assert_eq!(page.outcome, "2 of 3 nodes are feasible; a scores highest.");
    }

    #[test]
    fn a_pending_pod_names_who_refuses_and_whom_a_preemption_would_evict() {
        let nodes =
            (0..600).map(|n| refused(&format!("n{n}"), "NodeResourcesFit", "Insufficient cpu"));
        let mut explained = explained(nodes.collect());
        explained.message = Some("0/600 nodes are available: <b>".to_owned());
        explained.evictions =
            vec![Eviction { node: "n1".into(), pods: vec!["shop/low".to_owned()], violations: 1 }];
        let page = scheduling("shop", "web", "", &explained);
        assert_eq!((page.nodes.len(), page.more), (MAX_NODES, 100));
        assert_eq!(page.refusals.len(), 1);
        assert_eq!(page.refusals[0].nodes, 600);
        assert_eq!(page.nodes[0].why, "NodeResourcesFit: Insufficient cpu");
        let html = page.render().expect("rendered");
        assert!(html.contains("&#60;b&#62;") && !html.contains("<b>"), "{html}");
        assert!(html.contains("/object/core/v1/pods/shop/low"), "{html}");
    }

    #[test]
    fn a_refusal_of_the_pod_itself_has_no_nodes() {
        let mut explained = explained(Vec::new());
        let reasons = vec!["persistentvolumeclaim \"data\" not found".to_owned()];
        explained.overall = Some(Refusal { plugin: "VolumeBinding", reasons });
        let page = scheduling("shop", "web", "", &explained);
        assert_eq!(page.outcome, "VolumeBinding refuses the pod on every node.");
        assert_eq!(page.refusals[0].plugin, "VolumeBinding");
    }
}
