//! Planned failures: nodes that lose their connection to the API server some time after the cluster is ready.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};
use std::time::Duration;

/// Nodes that become unreachable at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Failure {
    /// Nodes that lose their connection to the API server: names of nodes, or of node groups, which stand for all nodes of
    /// the group. Their kubelets renew no lease and report nothing.
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
    crate::durations::parse(&text).map_err(D::Error::custom)
}

fn optional_duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

/// Time in which a node has no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outage {
    /// Name of the node.
    pub(crate) node: String,
    /// Start, counted from when the cluster is ready.
    pub(crate) start: Duration,
    /// End, counted from when the cluster is ready. `None` if the connection does not return.
    pub(crate) end: Option<Duration>,
}

/// Returns the outages, ordered by start. Failures of a node that overlap or follow each other without a gap are one outage.
/// `nodes` are the nodes of the cluster, which are named GROUP-0, GROUP-1, ….
///
/// # Errors
/// Fails if a failure names neither a node nor a group.
pub(crate) fn outages(failures: &[Failure], nodes: &[&str]) -> Result<Vec<Outage>, String> {
    let mut planned = Vec::new();
    for (position, failure) in failures.iter().enumerate() {
        for name in &failure.unreachable_nodes {
            let named = nodes_named(name, nodes);
            if named.is_empty() {
                return Err(format!(
                    "failures[{position}].unreachableNodes: no node or node group is named {name:?}; nodes: {}",
                    nodes.join(", ")
                ));
            }
            let start = failure.after;
            let end = failure.length.map(|length| start.saturating_add(length));
            planned.extend(named.into_iter().map(|node| Outage {
                node: node.to_owned(),
                start,
                end,
            }));
        }
    }
    planned.sort_by(|a, b| (a.start, &a.node).cmp(&(b.start, &b.node)));
    let mut outages: Vec<Outage> = Vec::new();
    for outage in planned {
        // Outages are sorted and merged, so the node's last outage also ends last.
        let last = outages.iter_mut().rev().find(|last| last.node == outage.node);
        match last {
            Some(last) if last.end.is_none_or(|end| outage.start <= end) => {
                last.end = last.end.zip(outage.end).map(|(one, two)| one.max(two));
            }
            _ => outages.push(outage),
        }
    }
    Ok(outages)
}

/// Returns the node of this name, or the nodes of the group.
fn nodes_named<'a>(name: &str, nodes: &[&'a str]) -> Vec<&'a str> {
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

    /// Node, and seconds of start and end.
    type Planned = (&'static str, u64, Option<u64>);

    const NODES: [&str; 4] = ["a-0", "a-1", "a-b-0", "b-0"];

    fn failure(nodes: &[&str], after: u64, length: Option<u64>) -> Failure {
        Failure {
            unreachable_nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            after: Duration::from_secs(after),
            length: length.map(Duration::from_secs),
        }
    }

    #[test]
    fn failures_are_outages_in_order_of_time() {
        let table: [(Vec<Failure>, &[Planned]); 6] = [
            (Vec::new(), &[]),
            (vec![failure(&["a"], 5, Some(10))], &[("a-0", 5, Some(15)), ("a-1", 5, Some(15))]),
            (vec![failure(&["b-0"], 0, None)], &[("b-0", 0, None)]),
            // The node reconnects when the last of its failures ends.
            (
                vec![failure(&["a-0"], 3, Some(4)), failure(&["a-0", "b"], 1, Some(4))],
                &[("a-0", 1, Some(7)), ("b-0", 1, Some(5))],
            ),
            (
                vec![
                    failure(&["b"], 1, Some(9)),
                    failure(&["b"], 2, Some(1)),
                    failure(&["b"], 10, None),
                ],
                &[("b-0", 1, None)],
            ),
            (
                vec![failure(&["b"], 1, Some(2)), failure(&["b"], 4, Some(1))],
                &[("b-0", 1, Some(3)), ("b-0", 4, Some(5))],
            ),
        ];
        for (failures, want) in table {
            let outages = outages(&failures, &NODES).expect("valid");
            let got: Vec<_> = outages
                .iter()
                .map(|it| (&*it.node, it.start.as_secs(), it.end.map(|end| end.as_secs())))
                .collect();
            assert_eq!(got, want, "{failures:?}");
        }
    }

    #[test]
    fn a_failure_of_nothing_is_refused() {
        let error = outages(&[failure(&["c"], 0, None)], &NODES).expect_err("no node");
        assert!(
            error.starts_with("failures[0].unreachableNodes: no node or node group is named \"c\""),
            "{error}"
        );
        assert!(error.ends_with("; nodes: a-0, a-1, a-b-0, b-0"), "{error}");
    }

    #[test]
    fn times_are_read_as_durations() {
        let read: Failure =
            serde_saphyr::from_str("{unreachableNodes: [a], after: 1m30s, for: 2s}").expect("read");
        assert_eq!(read, failure(&["a"], 90, Some(2)));
        assert!(serde_saphyr::from_str::<Failure>("{unreachableNodes: [a], after: soon}").is_err());
    }
}
