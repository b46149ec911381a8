//! Faults of a run, as plain values.

use crate::Part;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Kind of fault at one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
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
    /// Kind of fault.
    pub what: What,
}

/// All faults of a run; none by default.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Faults of single writes.
    pub at_writes: Vec<Fault>,
    /// Maximum delay of watch events to the controllers and the scheduler. Each watch draws its delay when it
    /// begins, and keeps the order of events.
    pub stale: Duration,
}

impl Faults {
    /// Returns one fault at the `at`-th write of the controllers.
    pub fn one(at: u64, what: What) -> Self {
        let fault = Fault { part: Part::Controllers, at, what };
        Self { at_writes: vec![fault], ..Self::default() }
    }

    /// Draws `n` faults of `kinds` from the seed. Each hits one of the first `span` writes of a part. Watch events
    /// are delayed by up to `stale`.
    pub fn drawn(seed: u64, n: u64, span: u64, kinds: &[What], stale: Duration) -> Self {
        let draw = |i: u64, label: &str| {
            // `DefaultHasher::new` has fixed keys, unlike the hasher of a map.
            let mut hasher = DefaultHasher::new();
            (seed, i, label).hash(&mut hasher);
            hasher.finish()
        };
        // The controllers are drawn twice as often as the other parts.
        let parts = [Part::Controllers, Part::Controllers, Part::Scheduler, Part::Nodes];
        let one = |i| Fault {
            part: parts[(draw(i, "part") % 4) as usize],
            at: draw(i, "at") % span.max(1) + 1,
            what: kinds[(draw(i, "what") % kinds.len() as u64) as usize],
        };
        Self { at_writes: (0..n).map(one).collect(), stale }
    }
}

/// Armed faults, and the number of writes of each part.
#[derive(Debug, Default)]
pub(crate) struct Armed(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    writes: Vec<(Part, u64)>,
}

impl Armed {
    /// Arms these faults and resets the counts of writes.
    pub(crate) fn arm(&self, faults: Faults) {
        *self.lock() = State { faults, writes: Vec::new() };
    }

    /// Counts a write. Returns the fault that hits it, if any.
    pub(crate) fn write(&self, part: Part) -> Option<What> {
        let mut state = self.lock();
        let at = match state.writes.iter_mut().find(|(of, _)| *of == part) {
            Some((_, n)) => {
                *n += 1;
                *n
            }
            None => {
                state.writes.push((part, 1));
                1
            }
        };
        let hit = |fault: &&Fault| fault.part == part && fault.at == at;
        state.faults.at_writes.iter().find(hit).map(|fault| fault.what)
    }

    /// Returns the number of writes of this part since faults were armed, without leases and events.
    pub(crate) fn writes(&self, part: Part) -> u64 {
        self.lock().writes.iter().find(|(of, _)| *of == part).map_or(0, |(_, n)| *n)
    }

    /// Returns the maximum delay of watch events.
    pub(crate) fn stale(&self) -> Duration {
        self.lock().faults.stale
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
