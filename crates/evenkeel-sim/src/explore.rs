//! Runs a scenario repeatedly, with a different fault each time.

use crate::{Options, World, part, simulate};
use evenkeel_test::simulation::{Exit, FaultKind, Faults, Part, each_write as each_write_of};
use std::collections::BTreeMap;

/// Description of a run, which its drop prints if the run panicked.
struct PanicReport(String);

impl Drop for PanicReport {
    #[expect(clippy::print_stderr, reason = "a failed test must say how to repeat it")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the run with {}", self.0);
        }
    }
}

/// Runs `scenario` once per write of `part` and injects a fault of this kind at that write, until a run has fewer
/// writes. The scenario arms the faults itself, so that it can let the world settle without faults first. Returns the number of
/// runs.
pub fn each_write(
    options: &Options,
    part: Part,
    kind: FaultKind,
    scenario: &impl AsyncFn(&mut World, Faults),
) -> u64 {
    each_write_of(part, kind, |faults| {
        with_faults(options, faults, scenario).get(&part).copied().unwrap_or_default()
    })
}

/// Runs `scenario` once with these faults. Returns the number of writes of each part, without leases and events.
pub fn with_faults(
    options: &Options,
    faults: Faults,
    scenario: &impl AsyncFn(&mut World, Faults),
) -> BTreeMap<Part, u64> {
    let _report = PanicReport(format!("seed {}, {faults:?}", options.seed));
    simulate(options.clone(), async |world| {
        scenario(world, faults).await;
        assert_eq!(world.failures(), [], "long-lived tasks run on");
        // A replica ends when it loses its lease.
        let ended = |exit: &&Exit| exit.part.name() != part::REPLICA.name();
        let ended: Vec<&Exit> = world.exits().iter().filter(ended).collect();
        assert!(ended.is_empty(), "parts ended by themselves: {ended:?}");
        options.parts.iter().map(|part| (*part, world.writes(*part))).collect()
    })
}
