//! Seeds of a simulation, each in a runtime of its own.

use std::collections::BTreeMap;

/// Runs of each simulation by default.
const RUNS: u64 = 300;

/// Seeds in which a leader that was paused acquired again what another one had acquired and released.
const KNOWN_SEEDS: [u64; 2] = [848, 7265];

/// Result of one run.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Invariants that did not hold, at most some of them.
    pub(crate) violations: Vec<String>,
    /// How often each kind of step occurred.
    pub(crate) counts: BTreeMap<String, u64>,
    /// What the server executed, to compare two runs of a seed.
    pub(crate) history: u64,
}

/// Runs `simulation` in a new runtime with paused time.
pub(crate) fn run_one(seed: u64, simulation: &impl AsyncFn(u64) -> Run) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(simulation(seed))
}

#[expect(clippy::disallowed_methods, reason = "the environment requests longer runs")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs all seeds. Returns the sums of the counts.
#[expect(clippy::print_stdout, reason = "the report is for whoever runs the test")]
pub(crate) fn run_all(simulation: impl AsyncFn(u64) -> Run) -> BTreeMap<String, u64> {
    let seeds: Vec<u64> = match number("EVENKEEL_ELECTION_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("EVENKEEL_ELECTION_RUNS").unwrap_or(RUNS)).chain(KNOWN_SEEDS).collect(),
    };
    let (mut counts, mut failed, n) = (BTreeMap::new(), Vec::new(), seeds.len());
    for seed in seeds {
        let run = run_one(seed, &simulation);
        for (what, count) in run.counts {
            *counts.entry(what).or_default() += count;
        }
        if !run.violations.is_empty() {
            println!("EVENKEEL_ELECTION_SEED={seed}: {:#?}", run.violations);
            failed.push(seed);
        }
    }
    println!("{n} runs: {counts:?}");
    assert!(failed.is_empty(), "{} of {n} runs failed: {failed:?}", failed.len());
    counts
}

/// Counts the seeds below `runs` in which `simulation` violates an invariant.
pub(crate) fn count_failures(runs: u64, simulation: impl AsyncFn(u64) -> Run) -> u64 {
    (0..runs).filter(|seed| !run_one(*seed, &simulation).violations.is_empty()).count() as u64
}
