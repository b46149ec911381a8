//! Result of an exploration.

use super::plan::{FaultText, RunId};
use crate::simulation::Fault;
use std::{fmt, thread};

/// Environment variable with the only seed to run.
pub(super) const SEED_VARIABLE: &str = "EVENKEEL_SEED";

/// Environment variable with the only fault to inject, such as `crash-after@7`.
pub(super) const FAULT_VARIABLE: &str = "EVENKEEL_FAULT";

/// Exploration in which no run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explored {
    /// Number of runs, including those without a fault.
    pub runs: usize,
    /// Number of kinds of faults among the runs.
    pub kinds: usize,
    /// Number of the operator's writes in the first run, without leases and events.
    pub writes: u64,
    /// Hash of all write requests of all runs. It is reproducible if the operator is deterministic: its writes depend only on
    /// its reads and the time.
    pub digest: u64,
}

/// Run that failed. Its message describes the failure, and how to repeat the run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    /// Seed of the run.
    pub seed: u64,
    /// Fault of the run; `None` if the operator fails without one.
    pub fault: Option<Fault>,
    /// Phase in which the run failed, such as `teardown`.
    pub phase: &'static str,
    /// Message of the failure.
    pub reason: String,
    /// The write that the fault hit.
    pub hit: Option<String>,
    /// The last requests, one per line.
    pub requests: String,
}

impl Failure {
    /// Returns the identity of the run.
    pub(super) fn id(&self) -> RunId {
        RunId { seed: self.seed, fault: self.fault }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, fault, phase, reason, hit, requests } = self;
        let text = FaultText(*fault);
        match fault {
            Some(fault) => {
                writeln!(f, "the operator fails after {} at its write {}", fault.kind, fault.at)?;
            }
            None => writeln!(f, "the operator fails without a fault")?,
        }
        if let Some(hit) = hit {
            writeln!(f, "write: {}", hit.trim_start())?;
        }
        writeln!(f, "phase: {phase}\n{reason}\nlast requests:\n{requests}")?;
        let test = thread::current().name().unwrap_or_default().to_owned();
        write!(f, "repeat: {SEED_VARIABLE}={seed} {FAULT_VARIABLE}={text} cargo test {test}")
    }
}
