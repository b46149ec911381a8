//! Runs of an exploration: seeds, and faults at writes.

use crate::simulation::{Fault, FaultKind, Part};
use std::{
    collections::BTreeMap,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
};

/// Part whose writes faults hit; replicas count as one.
pub(super) const OPERATOR: Part = Part::new("operator");

/// Faults of any program without leader election.
pub const KINDS: [FaultKind; 13] = [
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

/// Name of a run without a fault.
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

/// Formats the fault for [`parse_fault`].
pub(super) struct FaultText(pub(super) Option<Fault>);

impl fmt::Display for FaultText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Fault { at, kind, .. }) => write!(f, "{kind}@{at}"),
            None => f.write_str(NO_FAULT),
        }
    }
}

/// Reads a fault, such as `crash-after@7`, or `none`. Returns `None` for any other string.
pub(super) fn parse_fault(text: &str) -> Option<Option<Fault>> {
    if text == NO_FAULT {
        return Some(None);
    }
    let (kind, at) = text.split_once('@')?;
    let (kind, at) = (kind.parse().ok()?, at.parse().ok()?);
    Some(Some(Fault { part: OPERATOR, at, kind }))
}

/// Returns at most `max_runs` runs with a fault: each kind once, then each kind a second time, and so on. Writes that fewer
/// runs hit come first, so that all are hit before a write is hit again. A larger sample contains the smaller one. `writes` has
/// the number of the operator's writes by seed.
pub(super) fn sample(writes: &[(u64, u64)], kinds: &[FaultKind], max_runs: usize) -> Vec<RunId> {
    let mut by_kind: Vec<Vec<(u64, u64)>> =
        kinds.iter().map(|kind| shuffled(writes, *kind)).collect();
    // Most writes of one number are the same write in all seeds.
    let (mut of_number, mut of_write) = (BTreeMap::new(), BTreeMap::new());
    let mut runs = Vec::new();
    while runs.len() < max_runs && by_kind.iter().any(|left| !left.is_empty()) {
        for (kind, left) in kinds.iter().zip(&mut by_kind) {
            let hits = |(seed, at): &(u64, u64)| {
                let of_number = of_number.get(at).copied().unwrap_or(0_usize);
                (of_number, of_write.get(&(*seed, *at)).copied().unwrap_or(0_usize))
            };
            let Some(next) = (0..left.len()).min_by_key(|next| hits(&left[*next])) else {
                continue;
            };
            let (seed, at) = left.remove(next);
            *of_number.entry(at).or_default() += 1;
            *of_write.entry((seed, at)).or_default() += 1;
            runs.push(RunId::with_fault(seed, *kind, at));
        }
    }
    runs.truncate(max_runs);
    runs
}

/// Returns at most `max_runs` faults at the first `writes` writes of a part: each kind once before one occurs twice, and each
/// write before one is hit twice. A larger sample contains the smaller one.
pub fn sample_faults(part: Part, writes: u64, kinds: &[FaultKind], max_runs: usize) -> Vec<Fault> {
    let runs = sample(&[(0, writes)], kinds, max_runs);
    runs.into_iter().filter_map(|run| Some(Fault { part, ..run.fault? })).collect()
}

/// Returns all writes, as seed and number, in an order that only the kind decides on.
fn shuffled(writes: &[(u64, u64)], kind: FaultKind) -> Vec<(u64, u64)> {
    let all = writes.iter().flat_map(|(seed, n)| (1..=*n).map(|at| (*seed, at)));
    let mut all: Vec<(u64, u64)> = all.collect();
    all.sort_by_cached_key(|run| {
        // `DefaultHasher::new` has fixed keys, unlike the hasher of a map.
        let mut hasher = DefaultHasher::new();
        (run, kind.to_string()).hash(&mut hasher);
        hasher.finish()
    });
    all
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
    fn a_sample_has_every_kind_before_one_twice_and_every_write() {
        let kinds: Vec<FaultKind> = KINDS.into_iter().chain(LEASE_KINDS).collect();
        let writes = [(0, 12), (1, 14)];
        let number = |run: &RunId| run.fault.map_or(0, |fault| fault.at);
        for rounds in 1..=5 {
            let runs = sample(&writes, &kinds, rounds * kinds.len());
            for kind in &kinds {
                let is_of_kind = |run: &&RunId| run.fault.is_some_and(|fault| fault.kind == *kind);
                assert_eq!(runs.iter().filter(is_of_kind).count(), rounds, "{kind}");
            }
            let mut hits: Vec<usize> =
                (1..=12).map(|at| runs.iter().filter(|run| number(run) == at).count()).collect();
            hits.sort_unstable();
            assert!(hits[0] >= rounds, "each write is hit as often as each kind: {hits:?}");
        }
        // Fewer runs than kinds hit as many writes as there are runs.
        let mut few: Vec<u64> = sample(&writes, &kinds, 9).iter().map(number).collect();
        few.sort_unstable();
        few.dedup();
        assert_eq!(few.len(), 9, "{few:?}");
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
