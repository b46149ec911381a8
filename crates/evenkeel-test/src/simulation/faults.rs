//! Faults of a run, as plain values.

use super::Part;
use std::{
    collections::BTreeMap,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    str::FromStr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Kind of fault at one write. Its string is `crash-before`, `refuse-409` and so on.
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
    /// The server executes the write. The part receives later watch events only after ten seconds: its caches are stale.
    HoldWatches,
    /// The server executes the write, and the part's requests for leases are lost for a minute: it stops leading.
    LoseLease,
    /// The server executes the write twice, and the part gets the second response: a proxy repeated the request after it
    /// lost the first response.
    Repeat,
    /// The server executes the write, and the part crashes as with [`FaultKind::CrashAfter`]. For half a minute after its
    /// restart, the part receives no watch events, and lists that accept any state (`resourceVersion=0`) lack the write.
    StaleRestart,
    /// The server executes the write, and all watches of the part break. They cannot resume for ten seconds, and their resource
    /// versions have then expired (410): the part lists again, and misses the intermediate states.
    WatchGap,
}

/// Kinds of fault without a status code, and their names.
const TEXTS: [(&str, FaultKind); 13] = [
    ("crash-before", FaultKind::CrashBefore),
    ("crash-after", FaultKind::CrashAfter),
    ("lose-request", FaultKind::LoseRequest),
    ("lose-answer", FaultKind::LoseAnswer),
    ("break-watches", FaultKind::BreakWatches),
    ("pause", FaultKind::Pause),
    ("panic", FaultKind::Panic),
    ("cut", FaultKind::Cut),
    ("hold-watches", FaultKind::HoldWatches),
    ("lose-lease", FaultKind::LoseLease),
    ("repeat", FaultKind::Repeat),
    ("stale-restart", FaultKind::StaleRestart),
    ("watch-gap", FaultKind::WatchGap),
];

/// Prefix of the status code that refuses a write.
const REFUSE: &str = "refuse-";

/// Error of reading a [`FaultKind`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no fault {0:?}")]
pub struct InvalidFault(pub String);

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Refuse(code) = self {
            return write!(f, "{REFUSE}{code}");
        }
        let text = TEXTS.iter().find(|(_, kind)| kind == self).map_or("", |(text, _)| text);
        f.write_str(text)
    }
}

impl FromStr for FaultKind {
    type Err = InvalidFault;

    fn from_str(text: &str) -> Result<Self, InvalidFault> {
        let refused = text.strip_prefix(REFUSE).and_then(|code| code.parse().ok());
        let known = || TEXTS.iter().find(|(known, _)| *known == text).map(|(_, kind)| *kind);
        refused.map(Self::Refuse).or_else(known).ok_or_else(|| InvalidFault(text.to_owned()))
    }
}

/// A fault that occurs once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Part whose write the fault hits. Replicas share one part.
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
    /// Maximum delay of watch events to the parts that [`PartOptions::delayed`](super::PartOptions) names. Each watch draws
    /// its delay when it begins, and keeps the order of events.
    pub max_watch_delay: Duration,
}

impl Faults {
    /// Returns one fault at the `at`-th write of a part.
    pub fn single(part: Part, at: u64, kind: FaultKind) -> Self {
        let fault = Fault { part, at, kind };
        Self { at_writes: vec![fault], ..Self::default() }
    }

    /// Draws `n` faults of `kinds` from the seed. Each hits one of the first `span` writes of one of `parts`. Watch
    /// events are delayed by up to `max_watch_delay`.
    pub fn random(
        seed: u64,
        parts: &[Part],
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
        let random_fault = |i| Fault {
            part: parts[(draw(i, "part") % parts.len() as u64) as usize],
            at: draw(i, "at") % span.max(1) + 1,
            kind: kinds[(draw(i, "what") % kinds.len() as u64) as usize],
        };
        Self { at_writes: (0..n).map(random_fault).collect(), max_watch_delay }
    }
}

/// Armed faults, and the number of writes of each part.
#[derive(Debug, Default)]
pub(super) struct ArmedFaults(Mutex<State>);

/// Armed faults, and the writes since then.
#[derive(Debug, Default)]
struct State {
    faults: Faults,
    /// Number of writes since the faults were armed, by part.
    writes: BTreeMap<Part, u64>,
}

impl ArmedFaults {
    /// Arms these faults and resets the counts of writes.
    pub(super) fn arm(&self, faults: Faults) {
        *self.lock() = State { faults, writes: BTreeMap::new() };
    }

    /// Counts a write. Returns the fault that hits it, if any.
    pub(super) fn count_write(&self, part: Part) -> Option<FaultKind> {
        let mut state = self.lock();
        let count = state.writes.entry(part).or_default();
        *count += 1;
        let at = *count;
        let is_hit = |fault: &&Fault| fault.part == part && fault.at == at;
        state.faults.at_writes.iter().find(is_hit).map(|fault| fault.kind)
    }

    /// Returns the number of writes of this part since faults were armed, without leases and events.
    pub(super) fn writes(&self, part: Part) -> u64 {
        self.lock().writes.get(&part).copied().unwrap_or_default()
    }

    /// Returns the maximum delay of watch events.
    pub(super) fn max_watch_delay(&self) -> Duration {
        self.lock().faults.max_watch_delay
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_as_they_are_written() {
        for kind in TEXTS.iter().map(|(_, kind)| *kind).chain([FaultKind::Refuse(409)]) {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!("crash".parse::<FaultKind>(), Err(InvalidFault("crash".to_owned())));
        assert_eq!("refuse-".parse::<FaultKind>(), Err(InvalidFault("refuse-".to_owned())));
    }
}
