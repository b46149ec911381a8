//! Why a pod found no node, and how that is told.

use std::{collections::BTreeMap, fmt};

use super::{Rejected, Unfit};
use crate::framework::{Code, Reason};

const NO_NODES: &str = "no nodes available to schedule pods";

impl Unfit {
    /// The plugins that rejected or that left only some nodes, each once.
    pub fn plugins(&self) -> Vec<usize> {
        let mut plugins: Vec<usize> = self
            .all()
            .map(|rejected| rejected.plugin)
            .chain(self.only_by.iter().copied())
            .collect();
        plugins.sort_unstable();
        plugins.dedup();
        plugins
    }

    /// What went wrong, where something did: then the pod was not rejected at all.
    pub fn error(&self) -> Option<&str> {
        let wrong = |rejected: &&Rejected| rejected.why.code == Code::Error;
        let rejected = self.all().find(wrong)?;
        Some(rejected.why.reasons.first().map_or("", |reason| reason))
    }

    /// Why nobody need look for a way out, if that is so: there are no nodes, or something went wrong.
    pub(crate) fn hopeless(&self) -> Option<&str> {
        if self.n_nodes == 0 { Some(NO_NODES) } else { self.error() }
    }

    /// The message about the failed attempt, with what post-filters add to it.
    pub(crate) fn told_with(&self, added: &[String]) -> String {
        match added {
            [] => self.to_string(),
            added => format!("{self} {}", added.join(", ")),
        }
    }

    /// Every rejection that is known.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Rejected> {
        self.rejected.iter().chain(&self.overall)
    }

    /// Why this node was rejected; [`Code::UnschedulableAndUnresolvable`] for one that was not even looked at.
    pub(crate) fn code(&self, slot: crate::nodes::Slot) -> Code {
        match &self.overall {
            Some(overall) => overall.why.code,
            None => {
                let own = self.rejected.iter().find(|rejected| rejected.slot == slot);
                own.map_or(Code::UnschedulableAndUnresolvable, |rejected| rejected.why.code)
            }
        }
    }

    /// How often each reason was given.
    fn counts(&self) -> BTreeMap<&Reason, usize> {
        let mut counts = BTreeMap::new();
        for reason in self.rejected.iter().flat_map(|rejected| &rejected.why.reasons) {
            *counts.entry(reason).or_default() += 1;
        }
        counts
    }
}

impl fmt::Display for Unfit {
    /// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s).`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} nodes are available:", self.n_nodes)?;
        if let Some(overall) = &self.overall {
            let reasons: Vec<&str> = overall.why.reasons.iter().map(|reason| &**reason).collect();
            return write!(f, " {}.", reasons.join(", "));
        }
        let mut counts: Vec<String> =
            self.counts().into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let absent = self.n_nodes - self.rejected.len().min(self.n_nodes);
        if absent > 0 && !self.only_named.is_empty() {
            let by = self.only_named.join(" ");
            counts.push(format!("{absent} node(s) didn't satisfy plugin(s) [{by}]"));
        }
        if counts.is_empty() {
            return Ok(());
        }
        // As text, as upstream has it: `10 x` stands before `2 y`.
        counts.sort_unstable();
        write!(f, " {}.", counts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::Status;

    fn unfit(reasons: &[&'static str], n_nodes: usize) -> Unfit {
        let rejected = |(slot, reason): (u32, &&'static str)| Rejected {
            slot,
            plugin: 1,
            why: Status::unschedulable(*reason),
        };
        Unfit {
            n_nodes,
            overall: None,
            rejected: (0..).zip(reasons).map(rejected).collect(),
            only_by: Vec::new(),
            only_named: Vec::new(),
        }
    }

    #[test]
    fn reasons_are_counted_and_sorted_as_text() {
        let mut reasons = vec!["full"; 10];
        reasons.extend(["tainted", "tainted"]);
        assert_eq!(
            unfit(&reasons, 12).to_string(),
            "0/12 nodes are available: 10 full, 2 tainted."
        );
        assert_eq!(unfit(&[], 3).to_string(), "0/3 nodes are available:");
    }

    #[test]
    fn nodes_that_were_left_out_are_counted_too() {
        let mut unfit = unfit(&["full"], 5);
        unfit.only_by = vec![7];
        unfit.only_named = vec!["NodeAffinity"];
        assert_eq!(
            unfit.to_string(),
            "0/5 nodes are available: 1 full, 4 node(s) didn't satisfy plugin(s) [NodeAffinity]."
        );
        assert_eq!(unfit.plugins(), [1, 7]);
        assert_eq!(unfit.code(0), Code::Unschedulable);
        assert_eq!(unfit.code(3), Code::UnschedulableAndUnresolvable);
    }
}
