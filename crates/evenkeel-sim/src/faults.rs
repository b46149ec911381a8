//! Faults of a run, as plain values.

use crate::Part;
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Kind of fault at one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The part crashes before the write leaves it, and restarts.
    CrashBefore,
    /// The server executes the write, but the part crashes before the response arrives, and restarts.
    CrashAfter,
    /// The server rejects the write with this status code.
    Refuse(u16),
    /// The connection breaks before the write reaches the server.
    LoseRequest,
    /// The server executes the write, but the connection breaks before the response arrives.
    LoseAnswer,
    /// The server executes the write, and all watches of the part break.
    BreakWatches,
    /// The part is paused for a minute, just before the write leaves it.
    Pause,
    /// The task that writes panics before the write leaves the part.
    Panic,
    /// The part is disconnected from the server for a minute. The write is lost.
    Cut,
}

/// A fault that occurs once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Part whose write the fault hits.
    pub part: Part,
    /// Number of the part's write that the fault hits, counted from 1 without leases and events.
    pub at: u64,
    /// Kind of the fault.
    pub kind: FaultKind,
}

/// All faults of a run; none by default.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Faults of single writes.
    pub at_writes: Vec<Fault>,
    /// Maximum delay of watch events to the controllers and the scheduler. Each watch draws its delay when it
    /// begins, and keeps the order of events.
    pub max_watch_delay: Duration,
}

impl Faults {
    /// Returns one fault at the `at`-th write of the controllers.
    pub fn single(at: u64, kind: FaultKind) -> Self {
        let fault = Fault { part: Part::Controllers, at, kind };
        Self { at_writes: vec![fault], ..Self::default() }
    }

    /// Draws `n` faults of `kinds` from the seed. Each hits one of the first `span` writes of a part. Watch events
    /// are delayed by up to `max_watch_delay`.
    pub fn random(
        seed: u64,
        n: u64,
        span: u64,
        kinds: &[FaultKind],
        max_watch_delay: Duration,
    ) -> Self {
        let draw = |i: u64, label: &str| {
            // `DefaultHasher::new` has fixed keys, unlike the hasher of a map.
            let mut hasher = DefaultHasher::new();
            (seed, i, label).hash(&mut hasher);
            hasher.finish()
        };
        // The controllers are drawn twice as often as the other parts.
        let parts = [Part::Controllers, Part::Controllers, Part::Scheduler, Part::Nodes];
        let random_fault = |i| Fault {
            part: parts[(draw(i, "part") % 4) as usize],
            at: draw(i, "at") % span.max(1) + 1,
            kind: kinds[(draw(i, "what") % kinds.len() as u64) as usize],
        };
        Self { at_writes: (0..n).map(random_fault).collect(), max_watch_delay }
    }
}

/// Armed faults, and the number of writes of each part.
#[derive(Debug, Default)]
pub(crate) struct ArmedFaults(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    /// Number of writes since the faults were armed, by part.
    writes: BTreeMap<Part, u64>,
}

impl ArmedFaults {
    /// Arms these faults and resets the counts of writes.
    pub(crate) fn arm(&self, faults: Faults) {
        *self.lock() = State { faults, writes: BTreeMap::new() };
    }

    /// Counts a write. Returns the fault that hits it, if any.
    pub(crate) fn count_write(&self, part: Part) -> Option<FaultKind> {
        let mut state = self.lock();
        let count = state.writes.entry(part).or_default();
        *count += 1;
        let at = *count;
        let is_hit = |fault: &&Fault| fault.part == part && fault.at == at;
        state.faults.at_writes.iter().find(is_hit).map(|fault| fault.kind)
    }

    /// Returns the number of writes of this part since faults were armed, without leases and events.
    pub(crate) fn writes(&self, part: Part) -> u64 {
        self.lock().writes.get(&part).copied().unwrap_or_default()
    }

    /// Returns the maximum delay of watch events.
    pub(crate) fn max_watch_delay(&self) -> Duration {
        self.lock().faults.max_watch_delay
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
