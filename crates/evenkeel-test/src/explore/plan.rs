//! Runs of an exploration: seeds, and faults at writes.

use crate::simulation::{Fault, FaultKind, Part};
use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
};

/// Part whose writes faults hit; replicas count as one.
pub(super) const OPERATOR: Part = Part::new("operator");

/// Faults of any operator.
pub(super) const KINDS: [FaultKind; 13] = [
    FaultKind::CrashBefore,
    FaultKind::CrashAfter,
    FaultKind::StaleRestart,
    FaultKind::LoseRequest,
    FaultKind::LoseAnswer,
    FaultKind::Repeat,
    FaultKind::Refuse(409),
    FaultKind::Refuse(429),
    FaultKind::Refuse(500),
    FaultKind::HoldWatches,
    FaultKind::BreakWatches,
    FaultKind::WatchGap,
    FaultKind::Cut,
];

/// Further faults of an operator with leader election.
pub(super) const LEASE_KINDS: [FaultKind; 2] = [FaultKind::LoseLease, FaultKind::Pause];

/// Text of a run without a fault.
const NO_FAULT: &str = "none";

/// Identity of a run, which reproduces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunId {
    pub(super) seed: u64,
    pub(super) fault: Option<Fault>,
}

impl RunId {
    /// Returns the run without a fault.
    pub(super) fn without_fault(seed: u64) -> Self {
        Self { seed, fault: None }
    }

    /// Returns the run with a fault at the operator's write of this number.
    pub(super) fn with_fault(seed: u64, kind: FaultKind, at: u64) -> Self {
        Self { seed, fault: Some(Fault { part: OPERATOR, at, kind }) }
    }
}

/// Writes the fault as [`parse_fault`] reads it.
pub(super) struct FaultText(pub(super) Option<Fault>);

impl fmt::Display for FaultText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Fault { at, kind, .. }) => write!(f, "{kind}@{at}"),
            None => f.write_str(NO_FAULT),
        }
    }
}

/// Reads a fault, such as `crash-after@7`, or `none`. Returns `None` for any other text.
pub(super) fn parse_fault(text: &str) -> Option<Option<Fault>> {
    if text == NO_FAULT {
        return Some(None);
    }
    let (kind, at) = text.split_once('@')?;
    let (kind, at) = (kind.parse().ok()?, at.parse().ok()?);
    Some(Some(Fault { part: OPERATOR, at, kind }))
}

/// Returns at most `max_runs` runs with a fault: each kind has an equal share of them, and each write the same chance. More
/// runs contain all of fewer runs. `writes` has the number of the operator's writes by seed.
pub(super) fn sample(writes: &[(u64, u64)], kinds: &[FaultKind], max_runs: usize) -> Vec<RunId> {
    let shuffled = |kind: &FaultKind| {
        let all = writes.iter().flat_map(|(seed, n)| (1..=*n).map(|at| (*seed, at)));
        let mut all: Vec<(u64, u64)> = all.collect();
        all.sort_by_cached_key(|run| {
            // `DefaultHasher::new` has fixed keys, unlike the hasher of a map.
            let mut hasher = DefaultHasher::new();
            (run, kind.to_string()).hash(&mut hasher);
            hasher.finish()
        });
        all
    };
    let by_kind: Vec<Vec<(u64, u64)>> = kinds.iter().map(shuffled).collect();
    let longest = by_kind.iter().map(Vec::len).max().unwrap_or_default();
    let of_round = |round: usize| {
        let runs = kinds.iter().zip(&by_kind);
        runs.filter_map(move |(kind, runs)| {
            runs.get(round).map(|(seed, at)| RunId::with_fault(*seed, *kind, *at))
        })
    };
    (0..longest).flat_map(of_round).take(max_runs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_each_kind_equally_often_and_no_run_twice() {
        let kinds = [FaultKind::CrashAfter, FaultKind::Refuse(409)];
        let some = sample(&[(0, 40), (1, 60)], &kinds, 50);
        assert_eq!(some.len(), 50);
        for kind in kinds {
            let of_kind = |run: &&RunId| run.fault.is_some_and(|fault| fault.kind == kind);
            let mut writes: Vec<u64> =
                some.iter().filter(of_kind).filter_map(|run| Some(run.fault?.at)).collect();
            assert_eq!(writes.len(), 25);
            writes.sort_unstable();
            assert!(writes[0] <= 10 && writes[24] > 40, "spread: {writes:?}");
        }
        let all = sample(&[(0, 40), (1, 60)], &kinds, 1000);
        assert_eq!(all.len(), 200);
        assert_eq!(all[..50], some[..], "more runs contain fewer");
        for (n, run) in all.iter().enumerate() {
            assert!(!all[..n].contains(run), "{run:?}");
        }
        assert_eq!(sample(&[(0, 0)], &kinds, 9), []);
    }

    #[test]
    fn faults_are_read_as_they_are_written() {
        for run in [RunId::without_fault(0), RunId::with_fault(0, FaultKind::Refuse(409), 7)] {
            assert_eq!(parse_fault(&FaultText(run.fault).to_string()), Some(run.fault));
        }
        assert_eq!(parse_fault("crash-after"), None);
        assert_eq!(parse_fault("crash-after@x"), None);
    }
}
