//! Runs a scenario repeatedly, with a different fault each time, and compares each run with one without faults.
//!
//! A scenario arms its faults itself, so that it can let the world settle before. From then on, each time that the world
//! settles, and at the end, its objects must be those of the run without faults, as [`EndState`] compares them. After a
//! single fault that cannot lead to more, no part may create or delete more.

use crate::{Options, World, part, world::simulate_compared};
pub use evenkeel_test::explore::KINDS;
use evenkeel_test::{
    explore::{Changes, EndState, max_runs, sample_faults},
    simulation::{Exit, Fault, FaultKind, Faults, Part, Write},
};
use std::{
    any::type_name,
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// Maximum number of writes of which [`each_write`] hits every one. Of more writes, it hits a sample.
const EACH: usize = 5;

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

/// Result of a run.
#[derive(Debug)]
struct Observed {
    states: Vec<EndState>,
    changes: Changes,
    /// Number of writes of each part, without leases and events.
    writes: BTreeMap<Part, u64>,
    /// The last part of the user agent of each writer, from the start of the world.
    writers: BTreeSet<String>,
}

/// Runs without faults by scenario and options, which the tests of this process share.
static WITHOUT_FAULT: Mutex<BTreeMap<String, Arc<OnceLock<Arc<Observed>>>>> =
    Mutex::new(BTreeMap::new());

/// Runs the scenario without faults, unless another test has done it.
fn without_fault<S: AsyncFn(&mut World, Faults)>(options: &Options, scenario: &S) -> Arc<Observed> {
    let observe = || {
        let _report = PanicReport(format!("seed {}, without faults", options.seed));
        Arc::new(run(options, Faults::default(), None, scenario))
    };
    let name = type_name::<S>();
    // A closure depends on what it captures, and a cloud on more than its options.
    if name.contains("{{closure}}") || options.parts.contains(&part::CLOUD) {
        return observe();
    }
    let shared = {
        let mut all = WITHOUT_FAULT.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(format!("{name} {options:?}")).or_default())
    };
    Arc::clone(shared.get_or_init(observe))
}

/// A scenario, and its result without faults.
pub struct Compared<'a, S> {
    options: &'a Options,
    scenario: &'a S,
    without_fault: OnceCell<Arc<Observed>>,
}

impl<'a, S: AsyncFn(&mut World, Faults)> Compared<'a, S> {
    /// Compares runs of the scenario with the one without faults.
    pub fn new(options: &'a Options, scenario: &'a S) -> Self {
        Self { options, scenario, without_fault: OnceCell::new() }
    }

    fn without_fault(&self) -> &Observed {
        self.without_fault.get_or_init(|| without_fault(self.options, self.scenario))
    }

    /// Returns the number of a part's writes without faults, from when the scenario arms them.
    pub fn writes(&self, part: Part) -> u64 {
        self.without_fault().writes.get(&part).copied().unwrap_or_default()
    }

    /// Runs the scenario once with these faults.
    pub fn run(&self, faults: Faults) {
        let options = self.options;
        let _report = PanicReport(format!("seed {}, {faults:?}", options.seed));
        let single = match faults.at_writes[..] {
            // A repeated request creates another object where the server generates the name, as upstream's controllers
            // let it do.
            [Fault { kind: FaultKind::Repeat, .. }] => None,
            [fault] if faults.max_watch_delay.is_zero() => Some(fault.kind),
            _ => None,
        };
        let without_fault = options.uncompared.is_none().then(|| self.without_fault());
        let observed = run(options, faults, without_fault, self.scenario);
        if let (Some(kind), Some(without_fault)) = (single, without_fault) {
            let excess = observed.changes.excess(&without_fault.changes, kind);
            assert!(excess.is_empty(), "{}", excess.join("\n"));
        }
    }

    /// Runs the scenario this many times, or as often as the environment variable `EVENKEEL_RUNS` says, with a fault of each of
    /// `kinds` before one occurs twice. They hit as many writes of `part` as they can.
    pub fn sample(&self, part: Part, kinds: &[FaultKind], runs: usize) {
        for fault in sample_faults(part, self.writes(part), kinds, max_runs(runs)) {
            self.run(Faults { at_writes: vec![fault], ..Faults::default() });
        }
    }
}

/// Runs `scenario` once per write of `part` that it has without faults, and injects a fault of this kind at that write. Of more
/// than [`EACH`] writes, or than the environment variable `EVENKEEL_RUNS` says, a sample is hit. Returns the number of writes.
pub fn each_write(
    options: &Options,
    part: Part,
    kind: FaultKind,
    scenario: &impl AsyncFn(&mut World, Faults),
) -> u64 {
    let compared = Compared::new(options, scenario);
    compared.sample(part, &[kind], EACH);
    // Until its fault, a run equals the run without faults, so it has no further writes to hit.
    compared.writes(part)
}

/// Runs `scenario` with a fault of each kind that hits any program, at writes of `part`: see [`Compared::sample`].
pub fn each_kind(options: &Options, part: Part, scenario: &impl AsyncFn(&mut World, Faults)) {
    Compared::new(options, scenario).sample(part, &KINDS, KINDS.len());
}

/// Runs `scenario` once with these faults, and compares it with a run without faults. If `faults` has none, only runs the
/// scenario without faults.
pub fn with_faults(options: &Options, faults: Faults, scenario: &impl AsyncFn(&mut World, Faults)) {
    let compared = Compared::new(options, scenario);
    if faults.at_writes.is_empty() && faults.max_watch_delay.is_zero() {
        compared.without_fault();
    } else {
        compared.run(faults);
    }
}

/// Runs `scenario` once without faults. Returns the last part of the user agent of each writer.
pub fn writers(options: &Options, scenario: &impl AsyncFn(&mut World, Faults)) -> BTreeSet<String> {
    without_fault(options, scenario).writers.clone()
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
        let agent = |write: &Write| write.actor.rsplit('/').next().map(str::to_owned);
        let writers = world.log().since(0).iter().filter_map(agent).collect();
        Observed { states, changes, writes, writers }
    })
}
