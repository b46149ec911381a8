//! Changes of a cluster, as the command line describes them.

use evenkeel_api::{
    duration,
    selector::{Selector, SelectorError},
    views::Node,
};
use evenkeel_scheduler::SchedulerOptions;
use serde_json::Value;
use std::{str::FromStr, time::Duration};

/// Label of a node's zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Simulation of a cluster: its change, and how it runs.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Seed of all random decisions.
    pub seed: u64,
    /// Options of the scheduler.
    pub scheduler: SchedulerOptions,
    /// Objects to apply, in order.
    pub apply: Vec<Value>,
    /// Nodes to add: their number, and the name of the node that they are like.
    pub add: Option<(u32, String)>,
    /// Nodes to drain, one after the other.
    pub drain: Vec<Nodes>,
    /// Nodes to remove once the others are drained.
    pub remove: Vec<Nodes>,
    /// Nodes that lose their connection.
    pub outage: Option<Outage>,
    /// Virtual time to run from the change on.
    pub duration: Duration,
    /// Virtual time that a pod of a Job runs.
    pub job_duration: Duration,
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
        }
    }
}

/// Outage of nodes, from the change on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// Nodes without a connection to the API server.
    pub nodes: Nodes,
    /// Length of the outage; `None` for the rest of the run.
    pub duration: Option<Duration>,
}

/// Choice of nodes, by name or by labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nodes {
    /// Node of this name.
    Name(String),
    /// Nodes whose labels match.
    Matching(Selector),
}

/// Error for an invalid choice of nodes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NodesError(#[from] SelectorError);

impl FromStr for Nodes {
    type Err = NodesError;

    /// Parses the name of a node, or a label selector. `zone` stands for the label of the zone.
    fn from_str(text: &str) -> Result<Self, NodesError> {
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

impl Nodes {
    /// Reports whether the choice includes a node.
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
/// The text is no duration above zero.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (days, rest) = match text.split_once('d') {
        Some((days, rest)) => {
            (days.parse::<u32>().map_err(|_| format!("invalid days in {text:?}"))?, rest)
        }
        None => (0, text),
    };
    let nanos = if rest.is_empty() && days > 0 { 0 } else { duration::nanoseconds(rest)? };
    let rest = u64::try_from(nanos).map_err(|_| format!("{text:?} is negative"))?;
    let total = Duration::from_hours(24 * u64::from(days)) + Duration::from_nanos(rest);
    if total.is_zero() { Err(format!("{text:?} is no time at all")) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let found = parse_duration(text).ok();
            assert_eq!(found, seconds.map(Duration::from_secs), "{text:?}");
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
    }
}
