//! State of a workqueue: waiting, running and delayed keys. Contains no I/O; callers pass the time.

use super::Priority;
use crate::fast_map::{FastMap, shrink_if_sparse};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    hash::Hash,
    time::Duration,
};
use tokio::time::Instant;

/// State of a queue.
pub(super) struct State<K> {
    waiting: FastMap<K, Waiting>,
    /// Waiting keys in the order of their processing.
    order: BTreeMap<(Reverse<Priority>, u64), K>,
    running: FastMap<K, Running>,
    delayed: FastMap<K, Delayed>,
    /// Due times of delayed keys, with their sequence numbers.
    timeline: BTreeSet<(Instant, u64)>,
    /// Keys of `timeline`, by sequence number.
    due: FastMap<u64, K>,
    /// Sequence number of the last added key.
    sequence: u64,
    shut_down: bool,
}

/// Key that waits for a worker.
struct Waiting {
    priority: Priority,
    sequence: u64,
    since: Instant,
}

/// Key that a worker processes.
struct Running {
    priority: Priority,
    since: Instant,
    /// Priority and time of an add during processing (client-go: dirty), if any.
    again: Option<(Priority, Instant)>,
}

/// Key that is added after a delay.
struct Delayed {
    at: Instant,
    sequence: u64,
    priority: Priority,
}

/// Status of a key in a queue. The default is the status of a key that is not in the queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyStatus {
    /// Time when the key started to wait for a worker.
    pub ready: Option<Instant>,
    /// Time when a worker started to process the key.
    pub running: Option<Instant>,
    /// Whether the key was added during its processing, and will be processed again.
    pub again: bool,
    /// Time when the key's delay ends.
    pub due: Option<Instant>,
}

/// Effect of adding a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    /// The key already waits, or the queue is shut down.
    Unchanged,
    /// The key is in process, and will wait again afterwards.
    Dirty,
    /// The key waits for a worker.
    Ready,
}

/// Result of a worker's request for a key.
pub(super) enum Taken<K> {
    /// The key to process, and the time that it waited.
    Key { key: K, waited: Duration },
    /// No key is ready: request again when a key is added, or at this time.
    Wait(Option<Instant>),
    /// The queue is shut down and empty.
    ShutDown,
}

/// Effect of marking a key as processed.
pub(super) struct Done {
    /// Processing time. `None` if no worker had taken the key.
    pub(super) worked: Option<Duration>,
    /// Whether the key waits again.
    pub(super) again: bool,
}

impl<K> Default for State<K> {
    fn default() -> Self {
        Self {
            waiting: FastMap::default(),
            order: BTreeMap::new(),
            running: FastMap::default(),
            delayed: FastMap::default(),
            timeline: BTreeSet::new(),
            due: FastMap::default(),
            sequence: 0,
            shut_down: false,
        }
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// Adds `key`, or marks it as dirty if it is in process.
    pub(super) fn add(&mut self, key: K, priority: Priority, now: Instant) -> Added {
        if self.shut_down {
            return Added::Unchanged;
        }
        let Some(running) = self.running.get_mut(&key) else {
            return if self.enqueue(key, priority, now) { Added::Ready } else { Added::Unchanged };
        };
        match &mut running.again {
            Some((again_priority, _)) => {
                *again_priority = priority.max(*again_priority);
                Added::Unchanged
            }
            again => {
                *again = Some((priority, now));
                Added::Dirty
            }
        }
    }

    /// Adds a key to the waiting keys, or raises its priority if it waits already. Returns whether it was added.
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
                // The key keeps its sequence number, because keys of equal priority are processed in order of arrival.
                self.order.remove(&(Reverse(waiting.priority), waiting.sequence));
                waiting.priority = priority;
                self.order.insert((Reverse(priority), waiting.sequence), key);
                false
            }
            Some(_) => false,
        }
    }

    /// Adds a key at a later time. If several times are requested for a key, the earliest applies.
    pub(super) fn add_at(&mut self, key: K, at: Instant, priority: Option<Priority>) {
        if self.shut_down {
            return;
        }
        let priority = priority.unwrap_or_else(|| self.priority_of(&key));
        if let Some(delayed) = self.delayed.get_mut(&key) {
            delayed.priority = delayed.priority.max(priority);
            if at < delayed.at {
                self.timeline.remove(&(delayed.at, delayed.sequence));
                delayed.at = at;
                self.timeline.insert((at, delayed.sequence));
            }
            return;
        }
        self.sequence += 1;
        let sequence = self.sequence;
        self.timeline.insert((at, sequence));
        self.due.insert(sequence, key.clone());
        self.delayed.insert(key, Delayed { at, sequence, priority });
    }

    /// Returns the priority with which a key is being processed.
    pub(super) fn priority_of(&self, key: &K) -> Priority {
        self.running.get(key).map_or(Priority::NORMAL, |running| running.priority)
    }

    /// Moves delayed keys that are due to the waiting keys, and returns the effects.
    pub(super) fn promote_due(&mut self, now: Instant) -> Vec<Added> {
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
        shrink_if_sparse(&mut self.due);
        shrink_if_sparse(&mut self.delayed);
        promoted
    }

    /// Takes the key with the highest priority.
    pub(super) fn take(&mut self, now: Instant) -> Taken<K> {
        let Some((_, key)) = self.order.pop_first() else {
            return if self.shut_down {
                Taken::ShutDown
            } else {
                Taken::Wait(self.timeline.first().map(|(at, _)| *at))
            };
        };
        let (priority, since) = match self.waiting.remove(&key) {
            Some(waiting) => (waiting.priority, waiting.since),
            None => (Priority::NORMAL, now),
        };
        shrink_if_sparse(&mut self.waiting);
        self.running.insert(key.clone(), Running { priority, since: now, again: None });
        Taken::Key { key, waited: now.saturating_duration_since(since) }
    }

    /// Marks `key` as processed. A dirty key waits again.
    pub(super) fn done(&mut self, key: &K, now: Instant) -> Done {
        let Some((key, running)) = self.running.remove_entry(key) else {
            return Done { worked: None, again: false };
        };
        let worked = Some(now.saturating_duration_since(running.since));
        let again =
            running.again.is_some_and(|(priority, since)| self.enqueue(key, priority, since));
        Done { worked, again }
    }

    /// Returns whether keys are delayed, so that a worker must wait for their time.
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

    /// Shuts the queue down, and returns the number of dropped keys.
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

    pub(super) fn key_status(&self, key: &K) -> KeyStatus {
        KeyStatus {
            ready: self.waiting.get(key).map(|waiting| waiting.since),
            running: self.running.get(key).map(|running| running.since),
            again: self.running.get(key).is_some_and(|running| running.again.is_some()),
            due: self.delayed.get(key).map(|delayed| delayed.at),
        }
    }

    /// Returns the first keys of each state, at most `max` of each: running, ready, delayed.
    pub(super) fn first(&self, max: usize) -> Vec<K> {
        let mut running: Vec<(Instant, &K)> =
            self.running.iter().map(|(key, running)| (running.since, key)).collect();
        running.sort_by_key(|(since, _)| *since);
        let running = running.into_iter().map(|(_, key)| key).take(max);
        let ready = self.order.values().take(max);
        let delayed =
            self.timeline.iter().filter_map(|(_, sequence)| self.due.get(sequence)).take(max);
        let mut seen = std::collections::HashSet::new();
        running.chain(ready).chain(delayed).filter(|key| seen.insert(*key)).cloned().collect()
    }

    /// Returns the numbers of ready, running and delayed keys.
    pub(super) fn counts(&self) -> [usize; 3] {
        [self.waiting.len(), self.running.len(), self.delayed.len()]
    }

    /// Returns the number of waiting keys by priority, also of those that wait for the end of their processing.
    pub(super) fn depths(&self) -> BTreeMap<Priority, usize> {
        let waiting = self.waiting.values().map(|waiting| waiting.priority);
        let again = self.running.values().filter_map(|running| running.again);
        let mut depths = BTreeMap::new();
        for priority in waiting.chain(again.map(|(priority, _)| priority)) {
            *depths.entry(priority).or_default() += 1;
        }
        depths
    }

    /// Returns the seconds since the start of each key in process.
    pub(super) fn running_ages(&self, now: Instant) -> Vec<f64> {
        self.running
            .values()
            .map(|running| now.saturating_duration_since(running.since).as_secs_f64())
            .collect()
    }
}
