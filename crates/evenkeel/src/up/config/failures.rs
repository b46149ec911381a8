//! Failures that a cluster has by plan: nodes that lose their connection some time after the cluster is ready.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};
use std::{collections::BTreeSet, time::Duration};

/// A failure of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Failure {
    /// Nodes that lose their connection to the API server: names of nodes, or of groups for all nodes of these. Their
    /// kubelets renew no lease and report nothing.
    pub(crate) unreachable_nodes: Vec<String>,
    /// Time from when the cluster is ready until the failure, such as `30s`. Default: 0.
    #[serde(default, deserialize_with = "duration")]
    #[schemars(with = "String")]
    pub(crate) after: Duration,
    /// Time until the connection is back. Default: it does not come back.
    #[serde(default, rename = "for", deserialize_with = "optional_duration")]
    #[schemars(with = "Option<String>")]
    pub(crate) length: Option<Duration>,
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    evenkeel_component::flags::duration::parse(&text).map_err(D::Error::custom)
}

fn optional_duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

/// A change of nodes' connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// Time since the cluster is ready.
    pub(crate) at: Duration,
    /// Nodes that lose their connection.
    pub(crate) lost: Vec<String>,
    /// Nodes whose connection is back.
    pub(crate) restored: Vec<String>,
}

/// Returns what happens when, in order of time. A node of several failures is back when the last of them ends. `nodes` are
/// the nodes of the cluster, which are named GROUP-0, GROUP-1, ….
///
/// # Errors
/// When a failure names nothing that exists.
pub(crate) fn steps(failures: &[Failure], nodes: &[&str]) -> Result<Vec<Step>, String> {
    let mut spans = Vec::new();
    for (position, failure) in failures.iter().enumerate() {
        for name in &failure.unreachable_nodes {
            let named = named(name, nodes);
            if named.is_empty() {
                return Err(format!(
                    "failures[{position}].unreachableNodes: there is neither a node nor a group of nodes {name:?}; the nodes are {}",
                    nodes.join(", ")
                ));
            }
            let end = failure.length.map(|length| failure.after.saturating_add(length));
            spans.extend(named.into_iter().map(|node| (node, failure.after, end)));
        }
    }
    let times: BTreeSet<Duration> =
        spans.iter().flat_map(|(_, start, end)| [Some(*start), *end]).flatten().collect();
    let mut before: BTreeSet<&str> = BTreeSet::new();
    let mut steps = Vec::new();
    for at in times {
        let now: BTreeSet<&str> = spans
            .iter()
            .filter(|(_, start, end)| *start <= at && end.is_none_or(|end| at < end))
            .map(|(node, ..)| *node)
            .collect();
        let texts =
            |names: &mut dyn Iterator<Item = &&str>| names.map(|name| (*name).to_owned()).collect();
        let lost: Vec<String> = texts(&mut now.difference(&before));
        let restored: Vec<String> = texts(&mut before.difference(&now));
        if !lost.is_empty() || !restored.is_empty() {
            steps.push(Step { at, lost, restored });
        }
        before = now;
    }
    Ok(steps)
}

/// Returns the node of this name, or the nodes of the group.
fn named<'a>(name: &str, nodes: &[&'a str]) -> Vec<&'a str> {
    let is_of_group = |node: &str| {
        node.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')).is_some_and(|index| {
            !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    nodes.iter().copied().filter(|node| *node == name || is_of_group(node)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds, nodes that are lost, and nodes that are back.
    type Change = (u64, &'static [&'static str], &'static [&'static str]);

    const NODES: [&str; 4] = ["a-0", "a-1", "a-b-0", "b-0"];

    fn failure(nodes: &[&str], after: u64, length: Option<u64>) -> Failure {
        Failure {
            unreachable_nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            after: Duration::from_secs(after),
            length: length.map(Duration::from_secs),
        }
    }

    #[test]
    fn failures_are_steps_in_time() {
        let table: [(Vec<Failure>, &[Change]); 4] = [
            (Vec::new(), &[]),
            (
                vec![failure(&["a"], 5, Some(10))],
                &[(5, &["a-0", "a-1"], &[]), (15, &[], &["a-0", "a-1"])],
            ),
            (vec![failure(&["b-0"], 0, None)], &[(0, &["b-0"], &[])]),
            // The node is back when the last of its failures ends.
            (
                vec![failure(&["a-0", "b"], 1, Some(4)), failure(&["a-0"], 3, Some(4))],
                &[(1, &["a-0", "b-0"], &[]), (5, &[], &["b-0"]), (7, &[], &["a-0"])],
            ),
        ];
        for (failures, want) in table {
            let steps = steps(&failures, &NODES).expect("valid");
            let got: Vec<_> = steps
                .iter()
                .map(|step| (step.at.as_secs(), step.lost.clone(), step.restored.clone()))
                .collect();
            let texts =
                |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            let want: Vec<_> =
                want.iter().map(|(at, lost, back)| (*at, texts(lost), texts(back))).collect();
            assert_eq!(got, want, "{failures:?}");
        }
    }

    #[test]
    fn a_failure_of_nothing_is_refused() {
        let error = steps(&[failure(&["c"], 0, None)], &NODES).expect_err("no node");
        assert!(
            error.starts_with("failures[0].unreachableNodes: there is neither a node nor a group"),
            "{error}"
        );
        assert!(error.ends_with("the nodes are a-0, a-1, a-b-0, b-0"), "{error}");
    }

    #[test]
    fn times_are_read_as_durations() {
        let read: Failure =
            serde_saphyr::from_str("{unreachableNodes: [a], after: 1m30s, for: 2s}").expect("read");
        assert_eq!(read, failure(&["a"], 90, Some(2)));
        assert!(serde_saphyr::from_str::<Failure>("{unreachableNodes: [a], after: soon}").is_err());
    }
}
