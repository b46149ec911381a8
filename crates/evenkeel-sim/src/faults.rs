//! Faults of a run, as a list of values.

use crate::Part;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// A fault of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The part dies before the write is on its way, and starts anew.
    CrashBefore,
    /// The write is done, but the part dies before it hears of it, and starts anew.
    CrashAfter,
    /// The server refuses the write with this code.
    Refuse(u16),
    /// The connection breaks before the write reaches the server.
    LoseRequest,
    /// The write is done, but the connection breaks before the answer is there.
    LoseAnswer,
    /// The write is done, and all of the part's watches break.
    BreakWatches,
    /// The part stands still for a minute, from just before the write leaves it.
    Pause,
    /// The task that writes panics before the write is on its way.
    Panic,
    /// Nothing reaches the part or leaves it for a minute, the write included.
    Cut,
}

/// A fault that happens once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The part whose write it hits.
    pub part: Part,
    /// At which of the part's writes, leases and events aside; the first is 1.
    pub at: u64,
    /// The fault that is injected.
    pub what: What,
}

/// All faults of a run; none by default.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Faults of single writes.
    pub at_writes: Vec<Fault>,
    /// Watch events reach the controllers and the scheduler up to so much late, each watch by its own measure but in order; that is
    /// settled when the watch begins.
    pub stale: Duration,
}

impl Faults {
    /// One thing that happens at the `at`-th write of the controllers.
    pub fn one(at: u64, what: What) -> Self {
        let fault = Fault { part: Part::Controllers, at, what };
        Self { at_writes: vec![fault], ..Self::default() }
    }

    /// `n` things of `kinds` that the seed chooses, at the first `span` writes of any part, with events up to `stale` late.
    pub fn drawn(seed: u64, n: u64, span: u64, kinds: &[What], stale: Duration) -> Self {
        let draw = |i: u64, label: &str| {
            // Its keys are fixed, unlike those of a map's hasher.
            let mut hasher = DefaultHasher::new();
            (seed, i, label).hash(&mut hasher);
            hasher.finish()
        };
        let parts = [Part::Controllers, Part::Controllers, Part::Scheduler, Part::Nodes];
        let one = |i| Fault {
            part: parts[(draw(i, "part") % 4) as usize],
            at: draw(i, "at") % span.max(1) + 1,
            what: kinds[(draw(i, "what") % kinds.len() as u64) as usize],
        };
        Self { at_writes: (0..n).map(one).collect(), stale }
    }
}

/// The faults that are still to come, and how far each part is.
#[derive(Debug, Default)]
pub(crate) struct Armed(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    writes: Vec<(Part, u64)>,
}

impl Armed {
    /// Starts to count anew with these faults.
    pub(crate) fn arm(&self, faults: Faults) {
        *self.lock() = State { faults, writes: Vec::new() };
    }

    /// Counts a write; what happens to it.
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

    /// How many writes this part has made since it was armed, leases and events aside.
    pub(crate) fn writes(&self, part: Part) -> u64 {
        self.lock().writes.iter().find(|(of, _)| *of == part).map_or(0, |(_, n)| *n)
    }

    /// How late watch events may be.
    pub(crate) fn stale(&self) -> Duration {
        self.lock().faults.stale
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
