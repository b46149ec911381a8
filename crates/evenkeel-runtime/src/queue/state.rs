//! What waits, what is delayed and what is being worked on: plain data that is told the time.

use super::Priority;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    time::Duration,
};
use tokio::time::Instant;

pub(super) struct State<K> {
    waiting: HashMap<K, Waiting>,
    /// Order in which waiting keys are handed out.
    order: BTreeMap<(Reverse<Priority>, u64), K>,
    running: HashMap<K, Running>,
    delayed: HashMap<K, Delayed>,
    /// Order in which delayed keys become ready.
    timeline: BTreeSet<(Instant, u64)>,
    /// Keys of `timeline`, by sequence number.
    due: HashMap<u64, K>,
    sequence: u64,
    shut_down: bool,
}

struct Waiting {
    priority: Priority,
    sequence: u64,
    since: Instant,
}

struct Running {
    priority: Priority,
    since: Instant,
    /// Added meanwhile, with this priority.
    again: Option<(Priority, Instant)>,
}

struct Delayed {
    at: Instant,
    sequence: u64,
    priority: Priority,
}

/// Where a key is in a queue; nowhere when it is at rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// It could be handed out since this time.
    pub ready: Option<Instant>,
    /// It is being worked on since this time.
    pub running: Option<Instant>,
    /// It was added while being worked on, and runs again afterwards.
    pub again: bool,
    /// It becomes ready at this time.
    pub due: Option<Instant>,
}

/// What adding a key changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    /// It waited already, or the queue is shut down.
    Nothing,
    /// It will wait once the present work on it has ended.
    WaitsForItself,
    /// It waits, for whoever is free.
    Waits,
}

/// What a worker that asks for a key is told.
pub(super) enum Taken<K> {
    /// Work on this; it waited so long.
    Key { key: K, waited: Duration },
    /// Ask again when something was added, or at this time.
    Later(Option<Instant>),
    /// There will be no more.
    ShutDown,
}

/// What the end of work on a key means.
pub(super) struct Done {
    /// How long it was worked on; `None` when nobody had taken it.
    pub(super) worked: Option<Duration>,
    /// It waits again.
    pub(super) again: bool,
}

impl<K> Default for State<K> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            order: BTreeMap::new(),
            running: HashMap::new(),
            delayed: HashMap::new(),
            timeline: BTreeSet::new(),
            due: HashMap::new(),
            sequence: 0,
            shut_down: false,
        }
    }
}

/// Gives up the room that a burst took once it is over: at a start every object is a key, later few are.
fn give_back<K, V>(map: &mut HashMap<K, V>) {
    const KEPT: usize = 256;
    if map.is_empty() && map.capacity() > KEPT {
        *map = HashMap::new();
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// Adds `key` now, or marks it to run again when it is being worked on.
    pub(super) fn add(&mut self, key: K, priority: Priority, now: Instant) -> Added {
        if self.shut_down {
            return Added::Nothing;
        }
        let Some(running) = self.running.get_mut(&key) else {
            return if self.enqueue(key, priority, now) { Added::Waits } else { Added::Nothing };
        };
        match &mut running.again {
            Some((present, _)) => {
                *present = priority.max(*present);
                Added::Nothing
            }
            again => {
                *again = Some((priority, now));
                Added::WaitsForItself
            }
        }
    }

    fn enqueue(&mut self, key: K, priority: Priority, since: Instant) -> bool {
        match self.waiting.get_mut(&key) {
            None => {
                self.sequence += 1;
                let sequence = self.sequence;
                self.order.insert((Reverse(priority), sequence), key.clone());
                self.waiting.insert(key, Waiting { priority, sequence, since });
                true
            }
            Some(waiting) if waiting.priority < priority => {
                // Keeps its sequence number: among its new equals it goes by when it first came.
                self.order.remove(&(Reverse(waiting.priority), waiting.sequence));
                waiting.priority = priority;
                self.order.insert((Reverse(priority), waiting.sequence), key);
                false
            }
            Some(_) => false,
        }
    }

    /// Adds a key at a later time; an earlier time for the same key stays.
    pub(super) fn add_at(&mut self, key: K, at: Instant, priority: Option<Priority>) {
        if self.shut_down {
            return;
        }
        let priority = priority.unwrap_or_else(|| self.priority_of(&key));
        if let Some(present) = self.delayed.get_mut(&key) {
            present.priority = present.priority.max(priority);
            if at < present.at {
                self.timeline.remove(&(present.at, present.sequence));
                present.at = at;
                self.timeline.insert((at, present.sequence));
            }
            return;
        }
        self.sequence += 1;
        let sequence = self.sequence;
        self.timeline.insert((at, sequence));
        self.due.insert(sequence, key.clone());
        self.delayed.insert(key, Delayed { at, sequence, priority });
    }

    /// The priority a key is being worked on with.
    pub(super) fn priority_of(&self, key: &K) -> Priority {
        self.running.get(key).map_or(Priority::NORMAL, |running| running.priority)
    }

    /// Lets delayed keys wait whose time has come, and says what that changed.
    pub(super) fn promote(&mut self, now: Instant) -> Vec<Added> {
        let mut promoted = Vec::new();
        while let Some(&(at, sequence)) = self.timeline.first() {
            if at > now {
                break;
            }
            self.timeline.pop_first();
            let Some(key) = self.due.remove(&sequence) else { continue };
            let priority =
                self.delayed.remove(&key).map_or(Priority::NORMAL, |delayed| delayed.priority);
            promoted.push(self.add(key, priority, at));
        }
        give_back(&mut self.due);
        give_back(&mut self.delayed);
        promoted
    }

    /// Hands out the most urgent key.
    pub(super) fn take(&mut self, now: Instant) -> Taken<K> {
        let Some((_, key)) = self.order.pop_first() else {
            return if self.shut_down {
                Taken::ShutDown
            } else {
                Taken::Later(self.timeline.first().map(|(at, _)| *at))
            };
        };
        let (priority, since) =
            self.waiting.remove(&key).map_or((Priority::NORMAL, now), |w| (w.priority, w.since));
        give_back(&mut self.waiting);
        self.running.insert(key.clone(), Running { priority, since: now, again: None });
        Taken::Key { key, waited: now.saturating_duration_since(since) }
    }

    /// Work on `key` has ended; it waits again if it was added meanwhile.
    pub(super) fn done(&mut self, key: &K, now: Instant) -> Done {
        let Some((key, running)) = self.running.remove_entry(key) else {
            return Done { worked: None, again: false };
        };
        let worked = Some(now.saturating_duration_since(running.since));
        let again =
            running.again.is_some_and(|(priority, since)| self.enqueue(key, priority, since));
        Done { worked, again }
    }

    /// Whether keys are delayed, so that somebody has to watch the time.
    pub(super) fn has_delayed(&self) -> bool {
        !self.timeline.is_empty()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// Takes no key any more; how many that waited were dropped.
    pub(super) fn shut_down(&mut self, drop_waiting: bool) -> usize {
        self.shut_down = true;
        self.delayed.clear();
        self.timeline.clear();
        self.due.clear();
        if !drop_waiting {
            return 0;
        }
        let again = self.running.values_mut().filter_map(|running| running.again.take()).count();
        let dropped = self.waiting.len() + again;
        self.waiting.clear();
        self.order.clear();
        dropped
    }

    /// Where a key is.
    pub(super) fn place(&self, key: &K) -> Place {
        Place {
            ready: self.waiting.get(key).map(|waiting| waiting.since),
            running: self.running.get(key).map(|running| running.since),
            again: self.running.get(key).is_some_and(|running| running.again.is_some()),
            due: self.delayed.get(key).map(|delayed| delayed.at),
        }
    }

    /// The first keys of each state, at most so many of each: those worked on, ready ones, delayed ones.
    pub(super) fn first(&self, most: usize) -> Vec<K> {
        let mut running: Vec<(Instant, &K)> =
            self.running.iter().map(|(key, running)| (running.since, key)).collect();
        running.sort_by_key(|(since, _)| *since);
        let running = running.into_iter().map(|(_, key)| key).take(most);
        let ready = self.order.values().take(most);
        let delayed = self.timeline.iter().filter_map(|(_, at)| self.due.get(at)).take(most);
        let mut seen = std::collections::HashSet::new();
        running.chain(ready).chain(delayed).filter(|key| seen.insert(*key)).cloned().collect()
    }

    /// How many keys are ready, worked on, delayed.
    pub(super) fn counts(&self) -> [usize; 3] {
        [self.waiting.len(), self.running.len(), self.delayed.len()]
    }

    /// Seconds that each key has been worked on.
    pub(super) fn running_ages(&self, now: Instant) -> Vec<f64> {
        self.running
            .values()
            .map(|running| now.saturating_duration_since(running.since).as_secs_f64())
            .collect()
    }
}
