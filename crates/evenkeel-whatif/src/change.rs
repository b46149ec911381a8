//! Scenarios: changes of a cluster, with the selection of its nodes.

use crate::cluster::nodes_in;
use evenkeel_api::{
    duration,
    selector::{Selector, SelectorError},
    views::Node,
};
use evenkeel_scheduler::SchedulerOptions;
use serde_json::Value;
use std::{fmt, str::FromStr, time::Duration};

/// Label of a node's zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Maximum number of nodes that an error names.
const MAX_NAMED: usize = 10;

/// Scenario of a simulation: the change, and the settings of the run.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Seed of all random decisions.
    pub seed: u64,
    /// Options of the scheduler.
    pub scheduler: SchedulerOptions,
    /// Objects to apply, in order.
    pub apply: Vec<Value>,
    /// Nodes to add: their number, and the name of the node that is their model.
    pub add: Option<(u32, String)>,
    /// Nodes to drain, one after the other.
    pub drain: Vec<Nodes>,
    /// Nodes to remove without a drain, after the others are drained.
    pub remove: Vec<Nodes>,
    /// Nodes that lose their connection.
    pub outage: Option<Outage>,
    /// Virtual time to run after the change.
    pub duration: Duration,
    /// Virtual time that a pod of a Job runs.
    pub job_duration: Duration,
    /// Whether to ignore the annotations and Behaviors that steer the simulation. Default: no.
    pub ignore_behaviors: bool,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            seed: 0,
            scheduler: SchedulerOptions::default(),
            apply: Vec::new(),
            add: None,
            drain: Vec::new(),
            remove: Vec::new(),
            outage: None,
            duration: Duration::from_hours(1),
            job_duration: Duration::from_mins(1),
            ignore_behaviors: false,
        }
    }
}

/// Error: a part of a change selects no node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part}: there is no {choice}; {known}")]
pub struct NoSuchNode {
    /// Part of the change: `drain`, `remove`, `outage` or `add like`.
    part: &'static str,
    choice: String,
    /// Names of existing nodes.
    known: String,
}

impl Scenario {
    /// Checks that each selection matches one of these nodes of the cluster, or one that the change applies.
    ///
    /// # Errors
    /// Returns the first selection that matches no node.
    pub(crate) fn check(&self, nodes: &[Node]) -> Result<(), NoSuchNode> {
        let applied = nodes_in(&self.apply);
        let like = self.add.as_ref().map(|(_, like)| Nodes::Name(like.clone()));
        let choices = (self.drain.iter().map(|nodes| ("drain", nodes)))
            .chain(self.remove.iter().map(|nodes| ("remove", nodes)))
            .chain(self.outage.iter().map(|outage| ("outage", &outage.nodes)))
            .chain(like.iter().map(|nodes| ("add like", nodes)));
        for (part, choice) in choices {
            if !nodes.iter().chain(&applied).any(|node| choice.includes(node)) {
                let (choice, known) = (choice.to_string(), existing_names(nodes, &applied));
                return Err(NoSuchNode { part, choice, known });
            }
        }
        Ok(())
    }
}

/// Returns the names of nodes for an error.
fn existing_names(nodes: &[Node], applied: &[Node]) -> String {
    let mut names: Vec<&str> = nodes.iter().chain(applied).map(|node| &*node.meta.name).collect();
    names.sort_unstable();
    names.dedup();
    let more = match names.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.truncate(MAX_NAMED);
    format!("the nodes are {}{more}", names.join(", "))
}

/// Outage of nodes that starts with the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// Nodes without a connection to the API server.
    pub nodes: Nodes,
    /// Length of the outage; `None` for the rest of the run.
    pub duration: Option<Duration>,
}

/// Selection of nodes by name or by labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nodes {
    /// Node of this name.
    Name(String),
    /// Nodes whose labels match.
    Matching(Selector),
}

/// Error: the selection of nodes is invalid.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NodesError(#[from] SelectorError);

impl FromStr for Nodes {
    type Err = NodesError;

    /// Parses the name of a node (`node-1` or `node/node-1`), a zone (`zone/a`), or a label selector, in which `zone` stands
    /// for the label of the zone.
    fn from_str(text: &str) -> Result<Self, NodesError> {
        if let Some(name) = text.strip_prefix("node/") {
            return Ok(Self::Name(name.to_owned()));
        }
        if let Some(zone) = text.strip_prefix("zone/") {
            return Ok(Self::Matching(Selector::parse(&format!("{ZONE_LABEL}={zone}"))?));
        }
        if !text.contains(['=', '!', ',', ' ', '(']) {
            return Ok(Self::Name(text.to_owned()));
        }
        let terms = text.split(',').map(|term| {
            let rest = term.trim_start().strip_prefix("zone");
            match rest.filter(|rest| rest.starts_with(['=', '!', ' '])) {
                Some(rest) => format!("{ZONE_LABEL}{rest}"),
                None => term.to_owned(),
            }
        });
        Ok(Self::Matching(Selector::parse(&terms.collect::<Vec<_>>().join(","))?))
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "node {name:?}"),
            Self::Matching(selector) => write!(f, "node with the labels {selector}"),
        }
    }
}

impl Nodes {
    /// Returns whether the selection includes a node.
    pub fn includes(&self, node: &Node) -> bool {
        match self {
            Self::Name(name) => *node.meta.name == **name,
            Self::Matching(selector) => selector.matches(&node.meta.labels),
        }
    }
}

/// Parses a duration such as `90s`, `2h30m` or `7d`.
///
/// # Errors
/// Fails if the string is not a duration above zero.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    duration_above_zero(text)
        .map_err(|reason| format!("{reason}; write one such as 90s, 2h30m or 7d"))
}

fn duration_above_zero(text: &str) -> Result<Duration, String> {
    let (days, rest) = match text.split_once('d') {
        Some((days, rest)) => {
            (days.parse::<u32>().map_err(|_| format!("invalid days in {text:?}"))?, rest)
        }
        None => (0, text),
    };
    let nanos = if rest.is_empty() && days > 0 { 0 } else { duration::nanoseconds(rest)? };
    let rest = u64::try_from(nanos).map_err(|_| format!("{text:?} is negative"))?;
    let total = Duration::from_hours(24 * u64::from(days)) + Duration::from_nanos(rest);
    if total.is_zero() { Err(format!("{text:?} is not above zero")) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_may_have_days() {
        for (text, seconds) in [
            ("90s", Some(90)),
            ("7d", Some(604_800)),
            ("1d12h", Some(129_600)),
            ("2h30m", Some(9000)),
            ("0s", None),
            ("0d", None),
            ("-1h", None),
            ("d", None),
            ("", None),
            ("soon", None),
        ] {
            let found = parse_duration(text);
            if let Err(error) = &found {
                assert!(error.ends_with("; write one such as 90s, 2h30m or 7d"), "{error}");
            }
            assert_eq!(found.ok(), seconds.map(Duration::from_secs), "{text:?}");
        }
    }

    #[test]
    fn nodes_are_chosen_by_name_or_labels() {
        let mut node = Node::default();
        node.meta.name = "a".into();
        node.meta.labels = [(ZONE_LABEL, "z1"), ("pool", "blue")].into_iter().collect();
        for (text, expected) in [
            ("a", true),
            ("b", false),
            ("node/a", true),
            ("node/b", false),
            ("zone/z1", true),
            ("zone/z2", false),
            ("zone=z1", true),
            ("zone=z2", false),
            ("zone==z1", true),
            ("zone!=z1", false),
            ("zone in (z1,z2)", true),
            ("pool=blue, zone notin (z1)", false),
            ("zone=z1,pool=green", false),
            ("pool in (blue,green)", true),
            ("!pool", false),
        ] {
            let nodes: Nodes = text.parse().unwrap();
            assert_eq!(nodes.includes(&node), expected, "{text}");
        }
        assert!("a=b=c".parse::<Nodes>().is_err());
        assert!("zone/a b".parse::<Nodes>().is_err());
    }

    #[test]
    fn a_choice_without_nodes_is_an_error_that_names_nodes() {
        let node =
            |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let objects: Vec<_> = (0..12).map(|number| node(&format!("n{number:02}"))).collect();
        let cluster = nodes_in(&objects);
        let choice = |text: &str| vec![text.parse::<Nodes>().unwrap()];
        let base = || Scenario { apply: vec![node("new")], ..Scenario::default() };
        let nodes = "the nodes are n00, n01, n02, n03, n04, n05, n06, n07, n08, n09 and 3 more";
        for (scenario, expected) in [
            (Scenario { drain: choice("n11"), ..base() }, None),
            (Scenario { drain: choice("new"), remove: choice("new"), ..base() }, None),
            (Scenario { drain: choice("n12"), ..base() }, Some("drain: there is no node \"n12\"")),
            (
                Scenario { remove: choice("n1,n2"), ..base() },
                Some("remove: there is no node with the labels n1,n2"),
            ),
            (
                Scenario {
                    outage: Some(Outage { nodes: choice("zone/z").remove(0), duration: None }),
                    ..base()
                },
                Some("outage: there is no node with the labels topology.kubernetes.io/zone=z"),
            ),
            (
                Scenario { add: Some((1, "x".to_owned())), ..base() },
                Some("add like: there is no node \"x\""),
            ),
        ] {
            let error = scenario.check(&cluster).err().map(|error| error.to_string());
            assert_eq!(error, expected.map(|found| format!("{found}; {nodes}")));
        }
    }
}
