//! The pods that wait for a node: which is next, which backs off, which waits for a change. Pure: time comes in.
//!
//! A pod popped from the active queue is in flight until it is bound, comes back, or is removed. Attempts do not overlap
//! with changes being taken in, so that no change can fall between an attempt and the pod's return.

#[cfg(test)]
mod tests;

use evenkeel_api::time::Timestamp;
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::{cmp::Reverse, collections::BTreeSet, sync::Arc, time::Duration};

use crate::{framework::Hint, pod::PodInfo};

/// Leftovers are looked for so often.
const LEFTOVER_CHECK: Duration = Duration::from_secs(30);

/// How pods wait.
#[derive(Debug, Clone)]
pub(crate) struct Waits {
    pub(crate) initial_backoff: Duration,
    pub(crate) max_backoff: Duration,
    pub(crate) max_unschedulable: Duration,
}

#[derive(Debug)]
pub(crate) struct SchedulingQueue {
    waits: Waits,
    pods: HashMap<Arc<str>, Entry>,
    /// Highest priority first, then longest in the queue.
    active: BTreeSet<(Reverse<i32>, Timestamp, u64, Arc<str>)>,
    backoff: BTreeSet<(Timestamp, u64, Arc<str>)>,
    n_unschedulable: usize,
    n_gated: usize,
    sequence: u64,
    leftovers_checked: Option<Timestamp>,
}

#[derive(Debug)]
struct Entry {
    info: PodInfo,
    profile: usize,
    place: Place,
    /// When it came back from its last attempt; back-off counts from here.
    since: Timestamp,
    first: Timestamp,
    attempts: u32,
    unschedulable: u32,
    errors: u32,
    /// Plugins that rejected it last; none: any change may help.
    rejectors: SmallVec<[usize; 2]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Active { priority: i32, since: Timestamp, sequence: u64 },
    Backoff { until: Timestamp, sequence: u64 },
    Unschedulable,
    Gated,
    InFlight,
}

/// A pod whose turn it is.
#[derive(Debug, Clone)]
pub(crate) struct Popped {
    pub(crate) uid: Arc<str>,
    pub(crate) info: PodInfo,
    pub(crate) profile: usize,
    pub(crate) attempts: u32,
    /// When it first entered the queue.
    pub(crate) first: Timestamp,
}

/// How many pods wait, by `queue` label of upstream's `pending_pods`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) active: usize,
    pub(crate) backoff: usize,
    pub(crate) unschedulable: usize,
    pub(crate) gated: usize,
}

impl SchedulingQueue {
    pub(crate) fn new(waits: Waits) -> Self {
        Self {
            waits,
            pods: HashMap::new(),
            active: BTreeSet::new(),
            backoff: BTreeSet::new(),
            n_unschedulable: 0,
            n_gated: 0,
            sequence: 0,
            leftovers_checked: None,
        }
    }

    /// A new pod; `gate` is the plugin that holds it back, if one does.
    pub(crate) fn add(
        &mut self,
        info: PodInfo,
        profile: usize,
        gate: Option<usize>,
        now: Timestamp,
    ) {
        let uid: Arc<str> = info.uid().into();
        self.remove(&uid);
        let entry = Entry {
            info,
            profile,
            place: Place::InFlight,
            since: now,
            first: now,
            attempts: 0,
            unschedulable: 0,
            errors: 0,
            rejectors: gate.into_iter().collect(),
        };
        self.pods.insert(Arc::clone(&uid), entry);
        match gate {
            Some(_) => self.settle(&uid, Place::Gated),
            None => self.activate(&uid, now),
        }
    }

    /// A newer version of a pod that waits; whether there is one.
    pub(crate) fn update(&mut self, info: &PodInfo) -> bool {
        let Some(entry) = self.pods.get_mut(info.uid()) else { return false };
        entry.info = info.clone();
        true
    }

    /// The version of a waiting pod that is known.
    pub(crate) fn get(&self, uid: &str) -> Option<&PodInfo> {
        self.pods.get(uid).map(|entry| &entry.info)
    }

    /// Forgets a pod: deleted, bound, or no longer ours.
    pub(crate) fn remove(&mut self, uid: &str) {
        if let Some((uid, entry)) = self.pods.remove_entry(uid) {
            self.leave(&uid, entry.place);
        }
    }

    /// The next pod to try. When none is active, one that backs off from being unschedulable is tried early.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<Popped> {
        self.flush(now);
        let uid = match self.active.first() {
            Some((.., uid)) => Arc::clone(uid),
            None => {
                let early = |(.., uid): &&(Timestamp, u64, Arc<str>)| {
                    self.pods.get(uid).is_some_and(|e| e.errors == 0)
                };
                Arc::clone(&self.backoff.iter().find(early)?.2)
            }
        };
        self.settle(&uid, Place::InFlight);
        let entry = self.pods.get_mut(&uid)?;
        entry.attempts += 1;
        let (info, profile, attempts, first) =
            (entry.info.clone(), entry.profile, entry.attempts, entry.first);
        Some(Popped { uid, info, profile, attempts, first })
    }

    /// A popped pod found no node; `rejectors` are the plugins that said so.
    pub(crate) fn unschedulable(&mut self, uid: &str, rejectors: Vec<usize>, now: Timestamp) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        entry.since = now;
        entry.unschedulable += 1;
        entry.errors = 0;
        entry.rejectors = rejectors.into();
        self.settle(uid, Place::Unschedulable);
    }

    /// Something went wrong with a popped pod: it backs off and is tried again whatever happens.
    pub(crate) fn failed(&mut self, uid: &str, now: Timestamp) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        entry.since = now;
        entry.errors += 1;
        entry.rejectors.clear();
        self.requeue(uid, now);
    }

    /// Lets pods try again for which `hint` finds a change worth it; it is asked with the pod, its profile and each plugin that rejected it.
    pub(crate) fn moved(
        &mut self,
        now: Timestamp,
        mut hint: impl FnMut(&PodInfo, usize, usize) -> Hint,
    ) {
        if self.n_unschedulable == 0 {
            return;
        }
        let worth = |(uid, entry): (&Arc<str>, &Entry)| {
            let asked = entry.place == Place::Unschedulable
                && (entry.rejectors.is_empty()
                    || entry
                        .rejectors
                        .iter()
                        .any(|plugin| hint(&entry.info, entry.profile, *plugin) == Hint::Queue));
            asked.then(|| Arc::clone(uid))
        };
        let mut uids: Vec<Arc<str>> = self.pods.iter().filter_map(worth).collect();
        // Equal histories give equal orders.
        uids.sort_unstable();
        for uid in uids {
            self.requeue(&uid, now);
        }
    }

    /// A waiting pod itself changed: `gate` holds it back or no longer does; otherwise `hint` is asked as in [`Self::moved`].
    pub(crate) fn changed_itself(
        &mut self,
        uid: &str,
        gate: Option<usize>,
        now: Timestamp,
        mut hint: impl FnMut(&PodInfo, usize, usize) -> Hint,
    ) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        match (entry.place, gate) {
            (Place::Gated, Some(_)) | (Place::InFlight, _) => {}
            (_, Some(gate)) => {
                entry.rejectors = [gate].into_iter().collect();
                self.settle(uid, Place::Gated);
            }
            (Place::Gated, None) => {
                entry.rejectors.clear();
                self.activate(uid, now);
            }
            (Place::Unschedulable, None) => {
                let rejectors = &entry.rejectors;
                if rejectors.is_empty()
                    || rejectors.iter().any(|p| hint(&entry.info, entry.profile, *p) == Hint::Queue)
                {
                    self.requeue(uid, now);
                }
            }
            (Place::Active { priority, .. }, None) if priority != entry.info.priority() => {
                self.activate(uid, now);
            }
            (Place::Active { .. } | Place::Backoff { .. }, None) => {}
        }
    }

    /// When [`Self::pop`] may have something new even if nothing happens.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let leftovers = self
            .leftovers_checked
            .filter(|_| self.n_unschedulable > 0)
            .map(|at| later(at, LEFTOVER_CHECK));
        self.backoff.first().map(|(until, ..)| *until).into_iter().chain(leftovers).min()
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            active: self.active.len(),
            backoff: self.backoff.len(),
            unschedulable: self.n_unschedulable,
            gated: self.n_gated,
        }
    }

    /// Moves what has backed off long enough, and what was left over for too long.
    fn flush(&mut self, now: Timestamp) {
        while let Some((.., uid)) = self.backoff.first().filter(|(until, ..)| *until <= now) {
            let uid = Arc::clone(uid);
            self.activate(&uid, now);
        }
        let checked = *self.leftovers_checked.get_or_insert(now);
        if now < later(checked, LEFTOVER_CHECK) {
            return;
        }
        self.leftovers_checked = Some(now);
        let limit = self.waits.max_unschedulable;
        let old = |(uid, entry): (&Arc<str>, &Entry)| {
            let left = entry.place == Place::Unschedulable && later(entry.since, limit) <= now;
            left.then(|| Arc::clone(uid))
        };
        let mut uids: Vec<Arc<str>> = self.pods.iter().filter_map(old).collect();
        uids.sort_unstable();
        for uid in uids {
            self.requeue(&uid, now);
        }
    }

    /// Into the back-off queue, or straight into the active one when the back-off is over.
    fn requeue(&mut self, uid: &str, now: Timestamp) {
        let Some(entry) = self.pods.get(uid) else { return };
        let until = later(entry.since, self.backoff_of(entry));
        if until <= now {
            return self.activate(uid, now);
        }
        self.sequence += 1;
        self.settle(uid, Place::Backoff { until, sequence: self.sequence });
    }

    fn backoff_of(&self, entry: &Entry) -> Duration {
        let count = if entry.errors > 0 { entry.errors } else { entry.unschedulable };
        if count == 0 {
            return Duration::ZERO;
        }
        let doubled = self.waits.initial_backoff.saturating_mul(1_u32 << (count - 1).min(20));
        doubled.min(self.waits.max_backoff)
    }

    fn activate(&mut self, uid: &str, now: Timestamp) {
        let Some(entry) = self.pods.get(uid) else { return };
        let priority = entry.info.priority();
        self.sequence += 1;
        self.settle(uid, Place::Active { priority, since: now, sequence: self.sequence });
    }

    /// Moves a pod from where it is to `place`.
    fn settle(&mut self, uid: &str, place: Place) {
        let Some((uid, entry)) = self.pods.get_key_value(uid) else { return };
        let (uid, before) = (Arc::clone(uid), entry.place);
        self.leave(&uid, before);
        match place {
            Place::Active { priority, since, sequence } => {
                self.active.insert((Reverse(priority), since, sequence, Arc::clone(&uid)));
            }
            Place::Backoff { until, sequence } => {
                self.backoff.insert((until, sequence, Arc::clone(&uid)));
            }
            Place::Unschedulable => self.n_unschedulable += 1,
            Place::Gated => self.n_gated += 1,
            Place::InFlight => {}
        }
        if let Some(entry) = self.pods.get_mut(&uid) {
            entry.place = place;
        }
    }

    fn leave(&mut self, uid: &Arc<str>, place: Place) {
        match place {
            Place::Active { priority, since, sequence } => {
                self.active.remove(&(Reverse(priority), since, sequence, Arc::clone(uid)));
            }
            Place::Backoff { until, sequence } => {
                self.backoff.remove(&(until, sequence, Arc::clone(uid)));
            }
            Place::Unschedulable => self.n_unschedulable -= 1,
            Place::Gated => self.n_gated -= 1,
            Place::InFlight => {}
        }
    }
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}
