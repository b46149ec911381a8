//! The pods that wait for a node: which is next, which backs off, which waits for a change. Pure: time comes in.
//!
//! A pod popped from the active queue is in flight until it is bound, comes back, or is removed. Attempts do not overlap
//! with changes being taken in, so that only for a pod that waits for permission to be bound must be remembered what happened
//! meanwhile ([`flights`]); what fails after that is tried again whatever happens.

mod event;
mod flights;
mod interests;
mod nominated;
mod plugin_set;
#[cfg(test)]
mod tests;
mod waits;

pub(crate) use event::{Event, Label};
pub use nominated::Nominated;
pub(crate) use plugin_set::PluginSet;
pub(crate) use waits::Waits;

use evenkeel_api::time::Timestamp;
use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

use crate::{
    framework::{Action, Change, Hint, Point, Profile, Resource, SortKey},
    metrics::{Asked, Metrics},
    pod::PodInfo,
};
use flights::Flights;
use interests::Interests;
use waits::later;

/// Leftovers are looked for so often.
const LEFTOVER_CHECK: Duration = Duration::from_secs(30);

pub(crate) struct SchedulingQueue {
    waits: Waits,
    profiles: Arc<[Profile]>,
    interests: Interests,
    pods: HashMap<Arc<str>, Entry>,
    active: BTreeSet<(SortKey, u64, Arc<str>)>,
    /// By the second in which the back-off ends, then as in the active queue.
    backoff: BTreeSet<(Timestamp, SortKey, u64, Arc<str>)>,
    /// The same for pods with which something went wrong; they are never tried early.
    failed: BTreeSet<(Timestamp, SortKey, u64, Arc<str>)>,
    /// Pods that wait for a change, by what rejected them.
    parked: HashMap<Group, HashSet<Arc<str>>>,
    n_unschedulable: usize,
    n_gated: usize,
    flights: Flights,
    nominated: Nominated,
    sequence: u64,
    leftovers_checked: Option<Timestamp>,
    tally: Tally,
    /// Where it is noted how long plugins take, if anywhere.
    metrics: Option<Metrics>,
}

/// Why a pod is parked. All pods of a group are asked about the same changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Group {
    profile: usize,
    rejectors: PluginSet,
    /// The plugin that does not even let it into a queue.
    gate: Option<usize>,
}

#[derive(Debug)]
struct Entry {
    info: PodInfo,
    profile: usize,
    place: Place,
    /// When it came, or came back from its last attempt; its turn and its back-off count from here.
    queued: Timestamp,
    /// When it could first be tried.
    first: Option<Timestamp>,
    attempts: u32,
    unschedulable: u32,
    errors: u32,
    /// Plugins that rejected it last.
    rejectors: PluginSet,
    /// Those among them that wait for something and want it tried at once when that comes.
    pending: PluginSet,
    gate: Option<usize>,
    /// When it was last taken from among the parked only because so much time had passed.
    flushed_at: Option<Timestamp>,
    flushed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Active { key: SortKey, sequence: u64 },
    Backoff { until: Timestamp, key: SortKey, sequence: u64, failed: bool },
    Parked(Group),
    InFlight,
}

/// A pod whose turn it is.
#[derive(Debug, Clone)]
pub(crate) struct Popped {
    pub(crate) uid: Arc<str>,
    pub(crate) info: PodInfo,
    pub(crate) profile: usize,
    pub(crate) attempts: u32,
    /// When it could first be tried.
    pub(crate) first: Timestamp,
    /// It is tried only because it waited for so long.
    pub(crate) flushed: bool,
}

/// How many pods wait, by `queue` label of upstream's `pending_pods`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) active: usize,
    pub(crate) backoff: usize,
    pub(crate) unschedulable: usize,
    pub(crate) gated: usize,
}

/// What metrics are made of.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Pods that came into a queue, by queue and reason, since this was last taken.
    pub(crate) incoming: BTreeMap<(&'static str, Label), u64>,
    /// How many waiting pods each plugin of each profile rejected.
    pub(crate) rejected: BTreeMap<(usize, usize), i64>,
}

/// Where a change takes a pod. Later ones win.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strategy {
    Skip,
    AfterBackoff,
    Immediately,
}

impl SchedulingQueue {
    pub(crate) fn new(waits: Waits, profiles: Arc<[Profile]>) -> Self {
        Self {
            waits,
            interests: Interests::new(&profiles),
            profiles,
            pods: HashMap::new(),
            active: BTreeSet::new(),
            backoff: BTreeSet::new(),
            failed: BTreeSet::new(),
            parked: HashMap::new(),
            n_unschedulable: 0,
            n_gated: 0,
            flights: Flights::default(),
            nominated: Nominated::default(),
            sequence: 0,
            leftovers_checked: None,
            tally: Tally::default(),
            metrics: None,
        }
    }

    /// Has plugins timed.
    pub(crate) fn measure(&mut self, metrics: Metrics) {
        self.metrics = Some(metrics);
    }

    /// Where that is noted, if anywhere.
    pub(crate) fn metrics(&self) -> Option<&Metrics> {
        self.metrics.as_ref()
    }

    /// A new pod. Plugins may hold it back.
    pub(crate) fn add(&mut self, info: PodInfo, profile: usize, now: Timestamp) {
        let uid: Arc<str> = info.uid().into();
        self.remove(&uid);
        self.nominated.set(&info, &info.pod.status.nominated_node_name);
        let entry = Entry {
            info,
            profile,
            place: Place::InFlight,
            queued: now,
            first: None,
            attempts: 0,
            unschedulable: 0,
            errors: 0,
            rejectors: PluginSet::default(),
            pending: PluginSet::default(),
            gate: None,
            flushed_at: None,
            flushed: false,
        };
        self.pods.insert(Arc::clone(&uid), entry);
        self.activate(&uid, Label::NEW_POD, true, now);
    }

    /// A newer version of a pod that is known here; `actions` is what changed about it.
    pub(crate) fn update(&mut self, info: &PodInfo, actions: &[Action], now: Timestamp) {
        let Some((uid, entry)) = self.pods.get_key_value(info.uid()) else { return };
        let uid = Arc::clone(uid);
        let old = entry.info.clone();
        let place = entry.place;
        if self.flights.contains(&uid) {
            for action in actions {
                self.flights.record(&own_update(&uid, *action, &old, info));
            }
        }
        if let Some(entry) = self.pods.get_mut(&uid) {
            entry.info = info.clone();
        }
        match place {
            // While it is on its way its nomination is the attempt's business.
            Place::InFlight => return,
            Place::Active { .. } | Place::Backoff { .. } => self.resort(&uid),
            Place::Parked(_) => {
                for action in actions {
                    let event = own_update(&uid, *action, &old, info);
                    let strategy = self.worth(&uid, &event);
                    if strategy > Strategy::Skip && self.requeue(&uid, strategy, event.label(), now)
                    {
                        break;
                    }
                }
            }
        }
        self.nominated.update(&old.pod, info);
    }

    /// The version of a pod that is known.
    pub(crate) fn get(&self, uid: &str) -> Option<&PodInfo> {
        self.pods.get(uid).map(|entry| &entry.info)
    }

    /// Forgets a pod: deleted, bound, or no longer ours.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.flights.done(uid);
        self.nominated.remove(uid);
        if let Some((uid, entry)) = self.pods.remove_entry(uid) {
            self.leave(&uid, entry.place);
            if entry.place != Place::InFlight {
                self.count_rejectors(entry.profile, entry.rejectors.union(entry.pending), -1);
            }
        }
    }

    /// The next pod to try. When none is active, one that backs off from being unschedulable may be tried early.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<Popped> {
        self.flush(now);
        let uid = match self.active.first() {
            Some((.., uid)) => Arc::clone(uid),
            None => {
                let early = self.backoff.first().filter(|_| self.waits.pops_early)?;
                let uid = Arc::clone(&early.3);
                self.came("active", Label::PopFromBackoffQ);
                uid
            }
        };
        self.settle(&uid, Place::InFlight);
        self.flights.start(Arc::clone(&uid));
        let entry = self.pods.get_mut(&uid)?;
        entry.attempts += 1;
        let popped = Popped {
            uid,
            info: entry.info.clone(),
            profile: entry.profile,
            attempts: entry.attempts,
            first: *entry.first.get_or_insert(now),
            flushed: entry.flushed,
        };
        let (profile, rejectors) = (entry.profile, entry.rejectors.union(entry.pending));
        self.count_rejectors(profile, rejectors, -1);
        Some(popped)
    }

    /// A popped pod comes back. Without `rejectors` something went wrong, and it is tried again whatever happens.
    pub(crate) fn returned(
        &mut self,
        uid: &str,
        rejectors: PluginSet,
        pending: PluginSet,
        now: Timestamp,
    ) {
        let Some((uid, entry)) = self.pods.get_key_value(uid) else { return };
        if entry.place != Place::InFlight {
            return;
        }
        let uid = Arc::clone(uid);
        let rejected = rejectors.union(pending);
        let Some(entry) = self.pods.get_mut(&uid) else { return };
        entry.queued = now;
        entry.flushed = false;
        entry.flushed_at = None;
        entry.rejectors = rejectors;
        entry.pending = pending;
        if rejected.is_empty() {
            entry.errors += 1;
        } else {
            entry.unschedulable += 1;
            entry.errors = 0;
        }
        let profile = entry.profile;
        self.count_rejectors(profile, rejected, 1);
        let strategy = self.replay(&uid);
        self.flights.done(&uid);
        self.requeue(&uid, strategy, Label::ScheduleAttemptFailure, now);
    }

    /// Whatever happens from now on cannot matter to the popped pod any more.
    pub(crate) fn done(&mut self, uid: &str) {
        self.flights.done(uid);
    }

    /// Lets pods try again for which a plugin that rejected them finds the event worth it, among those that `only` picks.
    pub(crate) fn happened(
        &mut self,
        event: &Event,
        now: Timestamp,
        only: impl Fn(&PodInfo) -> bool,
    ) {
        let Event::Change { resource, action, .. } = event else { return };
        let mut moved: SmallVec<[(Arc<str>, Strategy); 8]> = SmallVec::new();
        for (group, uids) in &self.parked {
            let asked = self.interests.of(group.profile, *resource, *action);
            let concerned = match group.gate {
                Some(gate) => asked.contains(gate),
                None => {
                    group.rejectors.contains(PluginSet::EXTENDERS)
                        || !group.rejectors.both(asked).is_empty()
                }
            };
            if !concerned {
                continue;
            }
            for uid in uids {
                let picked = self.pods.get(uid).is_some_and(|entry| only(&entry.info));
                let strategy = if picked { self.worth(uid, event) } else { Strategy::Skip };
                if strategy > Strategy::Skip {
                    moved.push((Arc::clone(uid), strategy));
                }
            }
        }
        // Equal histories give equal orders.
        moved.sort_unstable();
        for (uid, strategy) in moved {
            self.requeue(&uid, strategy, event.label(), now);
        }
        if self.interests.any(*resource, *action) {
            self.flights.record(event);
        }
    }

    /// Has pods tried without waiting for anything; those on their way when they come back.
    pub(crate) fn force(&mut self, uid: &str, now: Timestamp) {
        let Some((uid, entry)) = self.pods.get_key_value(uid) else { return };
        let uid = Arc::clone(uid);
        match entry.place {
            Place::Parked(_) => {
                self.activate(&uid, Label::ForceActivate, true, now);
            }
            Place::Backoff { .. } => {
                self.activate(&uid, Label::ForceActivate, false, now);
            }
            Place::InFlight if self.flights.contains(&uid) => {
                self.flights.record(&Event::Activate(uid));
            }
            Place::Active { .. } | Place::InFlight => {}
        }
    }

    /// When [`Self::pop`] may have something new even if nothing happens.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let waiting = self.n_unschedulable + self.n_gated > 0;
        let leftovers =
            self.leftovers_checked.filter(|_| waiting).map(|at| later(at, LEFTOVER_CHECK));
        let backoff = self.backoff.first().into_iter().chain(self.failed.first());
        backoff.map(|(until, ..)| later(*until, waits::WINDOW)).chain(leftovers).min()
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            active: self.active.len(),
            backoff: self.backoff.len() + self.failed.len(),
            unschedulable: self.n_unschedulable,
            gated: self.n_gated,
        }
    }

    /// Pods that were named nodes.
    pub(crate) fn nominated(&self) -> &Nominated {
        &self.nominated
    }

    /// The same, to be changed.
    pub(crate) fn nominated_mut(&mut self) -> &mut Nominated {
        &mut self.nominated
    }

    /// What happened since this was last asked for; how many pods each plugin holds back stays.
    pub(crate) fn take_incoming(&mut self) -> BTreeMap<(&'static str, Label), u64> {
        std::mem::take(&mut self.tally.incoming)
    }

    /// How many waiting pods each plugin of each profile rejected.
    pub(crate) fn rejected(&self) -> &BTreeMap<(usize, usize), i64> {
        &self.tally.rejected
    }

    /// What is remembered for pods on their way, and how many those are.
    pub(crate) fn in_flight(&self) -> (impl Iterator<Item = Label> + '_, usize) {
        (self.flights.events().map(Event::label), self.flights.len())
    }

    /// Moves what has backed off long enough, and what was left over for too long.
    fn flush(&mut self, now: Timestamp) {
        let over = |first: Option<&(Timestamp, SortKey, u64, Arc<str>)>| {
            first
                .filter(|(until, ..)| !waits::backing_off(*until, now))
                .map(|(.., uid)| Arc::clone(uid))
        };
        while let Some(uid) = over(self.backoff.first()).or_else(|| over(self.failed.first())) {
            self.activate(&uid, Label::BackoffComplete, false, now);
        }
        let checked = *self.leftovers_checked.get_or_insert(now);
        if now < later(checked, LEFTOVER_CHECK) {
            return;
        }
        self.leftovers_checked = Some(now);
        let limit = self.waits.max_unschedulable;
        let old = |uid: &&Arc<str>| {
            let entry = self.pods.get(*uid);
            entry
                .is_some_and(|e| later(e.queued.max(e.flushed_at.unwrap_or(e.queued)), limit) < now)
        };
        let mut uids: Vec<Arc<str>> = self.parked.values().flatten().filter(old).cloned().collect();
        uids.sort_unstable();
        for uid in uids {
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.flushed = true;
                entry.flushed_at = Some(now);
            }
            self.requeue(&uid, Strategy::AfterBackoff, Label::UnschedulableTimeout, now);
        }
    }

    /// What became worth it while the pod was on its way.
    fn replay(&self, uid: &str) -> Strategy {
        let Some(entry) = self.pods.get(uid) else { return Strategy::Skip };
        if entry.rejectors.union(entry.pending).is_empty() {
            return Strategy::AfterBackoff;
        }
        let mut best = Strategy::Skip;
        for event in self.flights.since(uid) {
            best = best.max(self.worth(uid, event));
            if best == Strategy::Immediately
                || (best == Strategy::AfterBackoff && entry.pending.is_empty())
            {
                break;
            }
        }
        best
    }

    /// What those plugins that rejected the pod and registered for the event say of it.
    fn worth(&self, uid: &str, event: &Event) -> Strategy {
        let Some(entry) = self.pods.get(uid) else { return Strategy::Skip };
        let rejectors = entry.rejectors.union(entry.pending);
        let (resource, action, change) = match event {
            _ if rejectors.is_empty() => return Strategy::AfterBackoff,
            Event::Activate(target) if **target == *uid => return Strategy::AfterBackoff,
            Event::Change { only: Some(only), .. } if **only != *uid => return Strategy::Skip,
            Event::Activate(_) => return Strategy::Skip,
            Event::Change { resource, action, change, .. } => (*resource, *action, change),
        };
        let asked = self.interests.of(entry.profile, resource, action);
        let mut best = Strategy::Skip;
        if rejectors.contains(PluginSet::EXTENDERS) {
            best = Strategy::AfterBackoff;
        }
        for plugin in rejectors.both(asked).iter() {
            if plugin != PluginSet::NO_NODES
                && self.hint(entry, plugin, event.label(), change) == Hint::Skip
            {
                continue;
            }
            if entry.pending.contains(plugin) {
                return Strategy::Immediately;
            }
            best = Strategy::AfterBackoff;
            if entry.pending.is_empty() {
                return best;
            }
        }
        best
    }

    /// What a plugin says of a change.
    fn hint(&self, entry: &Entry, plugin: usize, event: Label, change: &Change) -> Hint {
        let profile = entry.profile;
        let asked = self.profiles[profile].plugin(plugin);
        let Some(metrics) = &self.metrics else { return asked.hint(&entry.info, change) };
        let began = Instant::now();
        let hint = asked.hint(&entry.info, change);
        let asked_for = Asked { profile, plugin, event, hint };
        metrics.hints().took(asked_for, asked.name(), began.elapsed());
        hint
    }

    /// Puts a pod where `strategy` says; whether it is no longer parked.
    fn requeue(&mut self, uid: &str, strategy: Strategy, label: Label, now: Timestamp) -> bool {
        let Some(entry) = self.pods.get(uid) else { return false };
        if strategy == Strategy::Skip {
            self.park(uid, label);
            return false;
        }
        let until = self.waits.until(entry.queued, entry.unschedulable, entry.errors);
        match until
            .filter(|until| strategy == Strategy::AfterBackoff && waits::backing_off(*until, now))
        {
            Some(until) => self.back_off(uid, until, label),
            None => self.activate(uid, label, true, now),
        }
    }

    fn back_off(&mut self, uid: &str, until: Timestamp, label: Label) -> bool {
        if self.gated(uid, label) {
            return false;
        }
        let Some(entry) = self.pods.get(uid) else { return false };
        let (key, failed) = (self.key(entry), entry.rejectors.union(entry.pending).is_empty());
        self.sequence += 1;
        self.came("backoff", label);
        self.settle(uid, Place::Backoff { until, key, sequence: self.sequence, failed });
        true
    }

    /// Into the active queue, if no plugin holds the pod back (which is not asked again of one that backed off).
    fn activate(&mut self, uid: &str, label: Label, ask: bool, now: Timestamp) -> bool {
        if ask && self.gated(uid, label) {
            return false;
        }
        let Some(entry) = self.pods.get_mut(uid) else { return false };
        entry.first.get_or_insert(now);
        let Some(entry) = self.pods.get(uid) else { return false };
        let key = self.key(entry);
        self.sequence += 1;
        self.came("active", label);
        self.settle(uid, Place::Active { key, sequence: self.sequence });
        true
    }

    /// Asks whether a plugin holds the pod back, first the one that did last; then it is parked.
    fn gated(&mut self, uid: &str, label: Label) -> bool {
        let Some(entry) = self.pods.get(uid) else { return false };
        let (profile, last) = (entry.profile, entry.gate);
        // One time in ten, plugins are timed one by one.
        let timed = self.metrics.as_ref().filter(|_| self.sequence.is_multiple_of(10));
        let closed = |n: &usize| {
            let plugin = self.profiles[profile].plugin(*n);
            let Some(asked) = plugin.as_pre_enqueue() else { return false };
            let timed = timed.map(|metrics| (metrics, Instant::now()));
            let answer = asked.pre_enqueue(&entry.info);
            if let Some((metrics, began)) = timed {
                let status = answer.as_ref().err().map_or("Success", |why| why.severity.as_str());
                let point = Point::PreEnqueue.as_str();
                metrics.plugin_ran(plugin.name(), point, status, began.elapsed());
            }
            answer.is_err()
        };
        let began = Instant::now();
        let others = self.profiles[profile].at(Point::PreEnqueue).map(|(n, _)| n);
        let gate = last.into_iter().chain(others.filter(|n| Some(*n) != last)).find(closed);
        if let Some(metrics) = &self.metrics {
            // Upstream's label is this one also where a plugin holds the pod back.
            let (point, name) = (Point::PreEnqueue.as_str(), self.profiles[profile].name());
            metrics.ran(point, "Success", name, began.elapsed());
        }
        let Some(entry) = self.pods.get_mut(uid) else { return false };
        entry.gate = gate;
        let Some(gate) = gate else { return false };
        // It was never tried, so that when it is, that is not because of the time that passed.
        entry.flushed = false;
        let new = !entry.rejectors.union(entry.pending).contains(gate);
        entry.rejectors.insert(gate);
        if new {
            self.count_rejectors(profile, [gate].into_iter().collect(), 1);
        }
        self.park(uid, label);
        true
    }

    fn park(&mut self, uid: &str, label: Label) {
        let Some(entry) = self.pods.get(uid) else { return };
        let group = Group {
            profile: entry.profile,
            rejectors: entry.rejectors.union(entry.pending),
            gate: entry.gate,
        };
        if !matches!(entry.place, Place::Parked(_)) {
            self.came("unschedulable", label);
        }
        self.settle(uid, Place::Parked(group));
    }

    /// A waiting pod's place in the order may have changed.
    fn resort(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        let new = self.key(entry);
        let place = match entry.place {
            Place::Active { key, sequence } if key != new => Place::Active { key: new, sequence },
            Place::Backoff { until, key, sequence, failed } if key != new => {
                Place::Backoff { until, key: new, sequence, failed }
            }
            _ => return,
        };
        self.settle(uid, place);
    }

    fn key(&self, entry: &Entry) -> SortKey {
        self.profiles[entry.profile].sort_key(&entry.info, entry.queued)
    }

    fn came(&mut self, queue: &'static str, label: Label) {
        *self.tally.incoming.entry((queue, label)).or_default() += 1;
    }

    fn count_rejectors(&mut self, profile: usize, plugins: PluginSet, by: i64) {
        for plugin in plugins.iter().filter(|plugin| *plugin < PluginSet::MAX) {
            *self.tally.rejected.entry((profile, plugin)).or_default() += by;
        }
    }

    /// Moves a pod from where it is to `place`.
    fn settle(&mut self, uid: &str, place: Place) {
        let Some((uid, entry)) = self.pods.get_key_value(uid) else { return };
        let (uid, before) = (Arc::clone(uid), entry.place);
        self.leave(&uid, before);
        match place {
            Place::Active { key, sequence } => {
                self.active.insert((key, sequence, Arc::clone(&uid)));
            }
            Place::Backoff { until, key, sequence, failed } => {
                let queue = if failed { &mut self.failed } else { &mut self.backoff };
                queue.insert((until, key, sequence, Arc::clone(&uid)));
            }
            Place::Parked(group) => {
                self.parked.entry(group).or_default().insert(Arc::clone(&uid));
                *self.parked_count(group) += 1;
            }
            Place::InFlight => {}
        }
        if let Some(entry) = self.pods.get_mut(&uid) {
            entry.place = place;
        }
    }

    fn leave(&mut self, uid: &Arc<str>, place: Place) {
        match place {
            Place::Active { key, sequence } => {
                self.active.remove(&(key, sequence, Arc::clone(uid)));
            }
            Place::Backoff { until, key, sequence, failed } => {
                let queue = if failed { &mut self.failed } else { &mut self.backoff };
                queue.remove(&(until, key, sequence, Arc::clone(uid)));
            }
            Place::Parked(group) => {
                if let Some(uids) = self.parked.get_mut(&group) {
                    uids.remove(uid);
                    if uids.is_empty() {
                        self.parked.remove(&group);
                    }
                }
                *self.parked_count(group) -= 1;
            }
            Place::InFlight => {}
        }
    }

    fn parked_count(&mut self, group: Group) -> &mut usize {
        if group.gate.is_some() { &mut self.n_gated } else { &mut self.n_unschedulable }
    }
}

fn own_update(uid: &Arc<str>, action: Action, old: &PodInfo, new: &PodInfo) -> Event {
    Event::Change {
        resource: Resource::TargetPod,
        action,
        change: Change::OwnUpdate { old: old.clone(), new: new.clone() },
        only: Some(Arc::clone(uid)),
    }
}
