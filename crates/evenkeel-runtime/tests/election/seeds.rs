//! Seeds of a simulation, each in its own runtime.

use std::collections::BTreeMap;

/// Seeds of one simulation.
pub(crate) struct Seeds {
    /// Part of the names of environment variables: `EVENKEEL_<name>_RUNS` is the number of runs, and `EVENKEEL_<name>_SEED` is
    /// a single seed to repeat.
    pub(crate) name: &'static str,
    /// Runs by default.
    pub(crate) runs: u64,
    /// Seeds that once failed.
    pub(crate) known: &'static [u64],
}

/// Result of one run.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Violated invariants, up to a limit.
    pub(crate) violations: Vec<String>,
    /// Number of occurrences of each kind of step.
    pub(crate) counts: BTreeMap<String, u64>,
    /// Hash of the requests that the server executed, to compare two runs of a seed.
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
pub(crate) fn run_all(
    seeds: &Seeds,
    simulation: impl AsyncFn(u64) -> Run,
) -> BTreeMap<String, u64> {
    let &Seeds { name, runs, known } = seeds;
    let seeds: Vec<u64> = match number(&format!("EVENKEEL_{name}_SEED")) {
        Some(seed) => vec![seed],
        None => {
            let runs = number(&format!("EVENKEEL_{name}_RUNS")).unwrap_or(runs);
            (0..runs).chain(known.iter().copied()).collect()
        }
    };
    let (mut counts, mut failed, n) = (BTreeMap::new(), Vec::new(), seeds.len());
    for seed in seeds {
        let run = run_one(seed, &simulation);
        for (what, count) in run.counts {
            *counts.entry(what).or_default() += count;
        }
        if !run.violations.is_empty() {
            println!("EVENKEEL_{name}_SEED={seed}: {:#?}", run.violations);
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

/// Returns the first seed below `runs` in which `simulation` violates an invariant.
pub(crate) fn first_failure(runs: u64, simulation: impl AsyncFn(u64) -> Run) -> Option<u64> {
    (0..runs).find(|seed| !run_one(*seed, &simulation).violations.is_empty())
}
