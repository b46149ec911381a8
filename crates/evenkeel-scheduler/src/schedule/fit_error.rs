//! FitError: reasons why no node is feasible for a pod, and the message of its event.

use std::{collections::BTreeMap, fmt};

use super::{FitError, NodeStatus};
use crate::framework::{Code, Reason};

/// Message of an attempt in a cluster without nodes. Upstream: `ErrNoNodesAvailable`.
const NO_NODES: &str = "no nodes available to schedule pods";

impl FitError {
    /// Returns the plugins that rejected the pod or restricted the nodes, each once.
    pub fn unschedulable_plugins(&self) -> Vec<usize> {
        let mut plugins: Vec<usize> = self
            .statuses()
            .map(|rejected| rejected.plugin)
            .chain(self.pre_filter_plugins.iter().copied())
            .collect();
        plugins.sort_unstable();
        plugins.dedup();
        plugins
    }

    /// Returns the message of a plugin that failed. The attempt then counts as an error, not as unschedulable.
    pub fn error_message(&self) -> Option<&str> {
        let is_error = |rejected: &&NodeStatus| rejected.status.code == Code::Error;
        let rejected = self.statuses().find(is_error)?;
        Some(rejected.status.reasons.first().map_or("", |reason| reason))
    }

    /// Returns the message of an attempt that runs no PostFilter plugins, because there are no nodes or a plugin
    /// failed. Returns `None` if the PostFilter plugins run.
    pub(crate) fn message_without_post_filter(&self) -> Option<&str> {
        if self.n_nodes == 0 { Some(NO_NODES) } else { self.error_message() }
    }

    /// Returns the message of the failed attempt, followed by the messages of PostFilter plugins.
    pub(crate) fn message_with(&self, post_filter_messages: &[String]) -> String {
        match post_filter_messages {
            [] => self.to_string(),
            messages => format!("{self} {}", messages.join(", ")),
        }
    }

    /// Returns the status of each rejected node, and the status of all nodes.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = &NodeStatus> {
        self.rejected.iter().chain(&self.overall)
    }

    /// Returns the code of a node, which is [`Code::UnschedulableAndUnresolvable`] if it was not evaluated.
    ///
    /// Upstream: `NodeToStatus.Get`.
    pub(crate) fn code_of(&self, slot: crate::nodes::Slot) -> Code {
        match &self.overall {
            Some(overall) => overall.status.code,
            None => {
                let status = self.rejected.iter().find(|rejected| rejected.slot == slot);
                status.map_or(Code::UnschedulableAndUnresolvable, |rejected| rejected.status.code)
            }
        }
    }

    /// Returns the number of nodes with each reason.
    fn count_reasons(&self) -> BTreeMap<&Reason, usize> {
        let mut counts = BTreeMap::new();
        for reason in self.rejected.iter().flat_map(|rejected| &rejected.status.reasons) {
            *counts.entry(reason).or_default() += 1;
        }
        counts
    }
}

impl fmt::Display for FitError {
    /// Formats for example `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s).`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} nodes are available:", self.n_nodes)?;
        if let Some(overall) = &self.overall {
            let reasons: Vec<&str> =
                overall.status.reasons.iter().map(|reason| &**reason).collect();
            return write!(f, " {}.", reasons.join(", "));
        }
        let mut counts: Vec<String> = self
            .count_reasons()
            .into_iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        let not_evaluated = self.n_nodes - self.rejected.len().min(self.n_nodes);
        if not_evaluated > 0 && !self.pre_filter_plugin_names.is_empty() {
            let plugins = self.pre_filter_plugin_names.join(" ");
            counts.push(format!("{not_evaluated} node(s) didn't satisfy plugin(s) [{plugins}]"));
        }
        if counts.is_empty() {
            return Ok(());
        }
        // Like upstream, sort the entries as strings: `10 x` precedes `2 y`.
        counts.sort_unstable();
        write!(f, " {}.", counts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::Status;

    fn fit_error(reasons: &[&'static str], n_nodes: usize) -> FitError {
        let rejected = |(slot, reason): (u32, &&'static str)| NodeStatus {
            slot,
            plugin: 1,
            status: Status::unschedulable(*reason),
        };
        FitError {
            n_nodes,
            overall: None,
            rejected: (0..).zip(reasons).map(rejected).collect(),
            pre_filter_plugins: Vec::new(),
            pre_filter_plugin_names: Vec::new(),
        }
    }

    #[test]
    fn the_message_counts_reasons_and_sorts_them_as_text() {
        let mut reasons = vec!["full"; 10];
        reasons.extend(["tainted", "tainted"]);
        assert_eq!(
            fit_error(&reasons, 12).to_string(),
            "0/12 nodes are available: 10 full, 2 tainted."
        );
        assert_eq!(fit_error(&[], 3).to_string(), "0/3 nodes are available:");
    }

    #[test]
    fn the_message_counts_nodes_that_were_not_evaluated() {
        let mut fit_error = fit_error(&["full"], 5);
        fit_error.pre_filter_plugins = vec![7];
        fit_error.pre_filter_plugin_names = vec!["NodeAffinity"];
        assert_eq!(
            fit_error.to_string(),
            "0/5 nodes are available: 1 full, 4 node(s) didn't satisfy plugin(s) [NodeAffinity]."
        );
        assert_eq!(fit_error.unschedulable_plugins(), [1, 7]);
        assert_eq!(fit_error.code_of(0), Code::Unschedulable);
        assert_eq!(fit_error.code_of(3), Code::UnschedulableAndUnresolvable);
    }
}
