//! Runs a scenario repeatedly, with a different fault each time, and compares each run with one without faults.
//!
//! A scenario arms its faults itself, so that it can let the world settle before. From then on, each time that the world
//! settles, and at the end, its objects must be those of the run without faults, as [`EndState`] compares them. After a
//! single fault that cannot lead to more, no part may create or delete more.

use crate::{Options, World, part, simulate, world::simulate_compared};
pub use evenkeel_test::explore::KINDS;
use evenkeel_test::{
    explore::{Changes, EndState, max_runs, sample_faults},
    simulation::{Exit, Fault, FaultKind, Faults, Part, Write, each_write as each_write_of},
};
use std::collections::{BTreeMap, BTreeSet};

/// Seed and faults of a run, which its drop prints if the run panicked.
struct PanicReport(String);

impl Drop for PanicReport {
    #[expect(clippy::print_stderr, reason = "a failed test must say how to repeat it")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the run with {}", self.0);
        }
    }
}

/// What a run led to.
struct Observed {
    states: Vec<EndState>,
    changes: Changes,
    /// Number of writes of each part, without leases and events.
    writes: BTreeMap<Part, u64>,
}

/// A scenario, and what it leads to without faults.
pub struct Compared<'a, S> {
    options: &'a Options,
    scenario: &'a S,
    without_fault: Observed,
}

impl<'a, S: AsyncFn(&mut World, Faults)> Compared<'a, S> {
    /// Runs the scenario without faults.
    pub fn new(options: &'a Options, scenario: &'a S) -> Self {
        let without_fault = run(options, Faults::default(), None, scenario);
        Self { options, scenario, without_fault }
    }

    /// Returns the number of a part's writes without faults, from when the scenario arms them.
    pub fn writes(&self, part: Part) -> u64 {
        self.without_fault.writes.get(&part).copied().unwrap_or_default()
    }

    /// Runs the scenario once with this seed and these faults. Returns the number of writes of each part, without leases
    /// and events.
    pub fn run(&self, seed: u64, faults: Faults) -> BTreeMap<Part, u64> {
        let _report = PanicReport(format!("seed {seed}, {faults:?}"));
        let options = Options { seed, ..self.options.clone() };
        let single = match faults.at_writes[..] {
            // A repeated request creates another object where the server generates the name, as upstream's controllers
            // let it do.
            [Fault { kind: FaultKind::Repeat, .. }] => None,
            [fault] if faults.max_watch_delay.is_zero() => Some(fault.kind),
            _ => None,
        };
        let without_fault = options.uncompared.is_none().then_some(&self.without_fault);
        let observed = run(&options, faults, without_fault, self.scenario);
        if let (Some(kind), Some(without_fault)) = (single, without_fault) {
            let excess = observed.changes.excess(&without_fault.changes, kind);
            assert!(excess.is_empty(), "{}", excess.join("\n"));
        }
        observed.writes
    }

    /// Runs the scenario this many times, or as often as the environment variable `EVENKEEL_RUNS` says, with a fault of each of
    /// `kinds` before one occurs twice. They hit as many writes of `part` as they can.
    pub fn sample(&self, part: Part, kinds: &[FaultKind], runs: usize) {
        for fault in sample_faults(part, self.writes(part), kinds, max_runs(runs)) {
            self.run(self.options.seed, Faults { at_writes: vec![fault], ..Faults::default() });
        }
    }
}

/// Runs `scenario` once per write of `part` and injects a fault of this kind at that write, until a run has fewer
/// writes. Returns the number of runs.
pub fn each_write(
    options: &Options,
    part: Part,
    kind: FaultKind,
    scenario: &impl AsyncFn(&mut World, Faults),
) -> u64 {
    let compared = Compared::new(options, scenario);
    each_write_of(part, kind, |faults| {
        compared.run(options.seed, faults).get(&part).copied().unwrap_or_default()
    })
}

/// Runs `scenario` with a fault of each kind that hits any program, at writes of `part`: see [`Compared::sample`].
pub fn each_kind(options: &Options, part: Part, scenario: &impl AsyncFn(&mut World, Faults)) {
    Compared::new(options, scenario).sample(part, &KINDS, KINDS.len());
}

/// Runs `scenario` once with these faults. Without any, there is nothing to compare the run with.
pub fn with_faults(options: &Options, faults: Faults, scenario: &impl AsyncFn(&mut World, Faults)) {
    if faults.at_writes.is_empty() && faults.max_watch_delay.is_zero() {
        let _report = PanicReport(format!("seed {}, without faults", options.seed));
        run(options, faults, None, scenario);
    } else {
        Compared::new(options, scenario).run(options.seed, faults);
    }
}

/// Runs `scenario` once without faults. Returns the last part of the user agent of each writer.
pub fn writers(options: &Options, scenario: &impl AsyncFn(&mut World, Faults)) -> BTreeSet<String> {
    simulate(options.clone(), async |world| {
        scenario(world, Faults::default()).await;
        let agent = |write: &Write| write.actor.rsplit('/').next().map(str::to_owned);
        world.log().since(0).iter().filter_map(agent).collect()
    })
}

fn run(
    options: &Options,
    faults: Faults,
    without_fault: Option<&Observed>,
    scenario: &impl AsyncFn(&mut World, Faults),
) -> Observed {
    let states = without_fault.map(|observed| observed.states.clone());
    simulate_compared(options.clone(), states, async |world| {
        scenario(world, faults).await;
        assert_eq!(world.failures(), [], "long-lived tasks run on");
        // A replica ends when it loses its lease.
        let ended = |exit: &&Exit| exit.part.name() != part::REPLICA.name();
        let ended: Vec<&Exit> = world.exits().iter().filter(ended).collect();
        assert!(ended.is_empty(), "parts ended by themselves: {ended:?}");
        let (states, changes) = world.observed().await;
        let writes = options.parts.iter().map(|part| (*part, world.writes(*part))).collect();
        Observed { states, changes, writes }
    })
}
