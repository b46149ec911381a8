//! Scheduling queue: activeQ, backoffQ and unschedulablePods. Every decision receives the time as an argument. Only
//! [`plugin_calls`] reads a clock, to measure plugin calls for metrics.
//!
//! A popped pod is in flight until it is bound, requeued or deleted. In-flight events ([`in_flight_events`]) only matter
//! to pods that wait in Permit, because scheduling attempts do not overlap with the handling of cluster events. A pod
//! that fails after Permit is always retried.
//!
//! Upstream: `pkg/scheduler/backend/queue/scheduling_queue.go`.

mod backoff_policy;
mod event;
mod in_flight_events;
mod nominator;
mod plugin_calls;
mod plugin_set;
mod queueing_hint_map;
#[cfg(test)]
mod tests;

pub(crate) use backoff_policy::BackoffPolicy;
pub(crate) use event::{Event, EventLabel};
pub use nominator::Nominator;
pub(crate) use plugin_calls::{HintKey, PluginCall, PluginPanic};
pub(crate) use plugin_set::PluginSet;

use evenkeel_api::time::{Timestamp, saturating_add};
use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::{
    framework::{
        ActionType, Change, EventResource, ExtensionPoint, Profile, QueueingHint, SortKey,
        catch_plugin_panic,
    },
    pod::PodInfo,
    stopwatch::Stopwatch,
};
use in_flight_events::InFlightEvents;
use plugin_calls::PluginCalls;
use queueing_hint_map::QueueingHintMap;

/// Interval between checks for pods that have been unschedulable for too long.
const FLUSH_UNSCHEDULABLE_INTERVAL: Duration = Duration::from_secs(30);

/// One in this many runs of the PreEnqueue plugins records the duration of each plugin.
const PRE_ENQUEUE_SAMPLING_INTERVAL: u64 = 10;

/// Position of a pod in activeQ: its sort key, its order of entry, and its uid.
type ActivePosition = (SortKey, u64, Arc<str>);

/// Position of a pod in backoffQ: the second in which its backoff ends, its sort key, its order of entry, and its uid.
type BackoffPosition = (Timestamp, SortKey, u64, Arc<str>);

/// Queue of the pods to schedule.
///
/// Upstream: `PriorityQueue`.
pub(crate) struct SchedulingQueue {
    backoff_policy: BackoffPolicy,
    profiles: Arc<[Profile]>,
    queueing_hint_map: QueueingHintMap,
    /// All pods in the queue or in flight, by uid.
    pods: HashMap<Arc<str>, QueuedPodInfo>,
    /// activeQ, sorted by the key of the QueueSort plugin, then by the order of entry.
    active: BTreeSet<ActivePosition>,
    /// backoffQ, sorted by the second in which the backoff ends, then like activeQ.
    backoff: BTreeSet<BackoffPosition>,
    /// Like `backoff`, but for pods whose attempt ended with an error. They are never popped before their backoff ends.
    ///
    /// Upstream: `entityErrorBackoffQ`.
    error_backoff: BTreeSet<BackoffPosition>,
    /// unschedulablePods, grouped by the plugins that rejected them.
    unschedulable_pods: HashMap<UnschedulableGroup, HashSet<Arc<str>>>,
    /// Number of pods in unschedulablePods that no plugin gates.
    unschedulable_total: usize,
    /// Number of pods in unschedulablePods that a plugin gates.
    gated_total: usize,
    in_flight_events: InFlightEvents,
    nominator: Nominator,
    /// Number of pods that have entered activeQ or backoffQ.
    sequence: u64,
    /// When unschedulablePods was last checked for pods that have been unschedulable for too long.
    unschedulable_flushed_at: Option<Timestamp>,
    counts: QueueCounts,
    /// Recorded calls of plugins. A method that calls plugins takes the record out first, because the plugins and pods
    /// borrow the queue.
    plugin_calls: PluginCalls,
    /// Number of runs of the PreEnqueue plugins.
    pre_enqueue_runs: u64,
}

/// Error of a pod that a PreEnqueue plugin gates. The pod is now in unschedulablePods.
struct GatedPod;

/// Key of a group of unschedulable pods that the same cluster events may requeue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct UnschedulableGroup {
    /// Index of the pods' profile.
    profile: usize,
    rejectors: PluginSet,
    /// Index of the PreEnqueue plugin that gates the pod.
    gating_plugin: Option<usize>,
}

/// A pod in the queue or in flight.
///
/// Upstream: `QueuedPodInfo`.
#[derive(Debug)]
struct QueuedPodInfo {
    info: PodInfo,
    /// Index of the pod's profile.
    profile: usize,
    state: QueueState,
    /// When the pod was added, or when its last attempt failed. The pod's position in the queue and its backoff depend
    /// on this time.
    timestamp: Timestamp,
    /// When the pod first entered activeQ.
    ///
    /// Upstream: `InitialAttemptTimestamp`.
    initial_attempt: Option<Timestamp>,
    attempts: u32,
    /// Number of attempts in which plugins rejected the pod.
    unschedulable_count: u32,
    /// Number of attempts since the last rejection that ended with an error.
    consecutive_errors: u32,
    /// Plugins that rejected the pod in its last attempt, and the plugin that gates it. After an error, only the plugin
    /// that gates it, if any.
    rejectors: Rejectors,
    /// Index of the PreEnqueue plugin that gates the pod.
    gating_plugin: Option<usize>,
    /// When the queue last removed the pod from unschedulablePods because it had been there for too long.
    flushed_at: Option<Timestamp>,
    /// Whether the queue removed the pod from unschedulablePods for that reason since the pod's last attempt.
    flushed: bool,
}

/// Queue that contains a pod, with the pod's position in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueState {
    Active { key: SortKey, sequence: u64 },
    Backoff { until: Timestamp, key: SortKey, sequence: u64, after_error: bool },
    Unschedulable(UnschedulableGroup),
    InFlight,
}

/// A pod popped for a scheduling attempt.
#[derive(Debug, Clone)]
pub(crate) struct PoppedPod {
    pub(crate) uid: Arc<str>,
    pub(crate) info: PodInfo,
    pub(crate) profile: usize,
    pub(crate) attempts: u32,
    /// When the pod first entered activeQ.
    ///
    /// Upstream: `InitialAttemptTimestamp`.
    pub(crate) initial_attempt: Timestamp,
    /// Whether the pod left unschedulablePods because it had been there for too long, not because of an event.
    pub(crate) flushed: bool,
}

/// Plugins that rejected a pod in an attempt. Empty if the attempt ended with an error.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rejectors {
    /// Plugins that rejected the pod, whatever their code.
    pub(crate) unschedulable: PluginSet,
    /// Plugins that rejected the pod with [`Code::Pending`](crate::framework::Code::Pending). When the queueing hint of
    /// one of them is Queue, the pod skips its backoff.
    pub(crate) pending: PluginSet,
}

impl Rejectors {
    /// Returns the plugins that rejected the pod, whatever their code.
    pub(crate) fn union(self) -> PluginSet {
        self.unschedulable.union(self.pending)
    }

    /// Returns whether no plugin rejected the pod, because its attempt ended with an error.
    pub(crate) fn is_empty(self) -> bool {
        self.union().is_empty()
    }
}

/// Number of pods in each queue, by the `queue` label of `scheduler_pending_pods`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QueueLengths {
    pub(crate) active: usize,
    pub(crate) backoff: usize,
    pub(crate) unschedulable: usize,
    pub(crate) gated: usize,
}

/// Counts from which the metrics are updated.
#[derive(Debug, Default)]
struct QueueCounts {
    /// Since the last [`SchedulingQueue::take_incoming_pods`].
    incoming: IncomingPods,
    rejected: RejectedPods,
}

/// Number of pods that entered a queue, by the labels `queue` and `event`.
pub(crate) type IncomingPods = BTreeMap<(&'static str, EventLabel), u64>;

/// Number of queued pods that a plugin rejected, by profile and plugin index.
pub(crate) type RejectedPods = BTreeMap<(usize, usize), i64>;

/// Queue to which an event moves an unschedulable pod. If several strategies apply, the greatest one wins.
///
/// Upstream: `queueingStrategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum QueueingStrategy {
    /// The pod stays in unschedulablePods.
    Skip,
    /// The pod moves to backoffQ, or to activeQ if its backoff has ended.
    AfterBackoff,
    /// The pod moves to activeQ.
    Immediately,
}

impl SchedulingQueue {
    pub(crate) fn new(backoff_policy: BackoffPolicy, profiles: Arc<[Profile]>) -> Self {
        Self {
            backoff_policy,
            queueing_hint_map: QueueingHintMap::new(&profiles),
            profiles,
            pods: HashMap::new(),
            active: BTreeSet::new(),
            backoff: BTreeSet::new(),
            error_backoff: BTreeSet::new(),
            unschedulable_pods: HashMap::new(),
            unschedulable_total: 0,
            gated_total: 0,
            in_flight_events: InFlightEvents::default(),
            nominator: Nominator::default(),
            sequence: 0,
            unschedulable_flushed_at: None,
            counts: QueueCounts::default(),
            plugin_calls: PluginCalls::default(),
            pre_enqueue_runs: 0,
        }
    }

    /// Sets the stopwatch that measures the plugin calls ([`Self::take_plugin_calls`]).
    pub(crate) fn set_stopwatch(&mut self, stopwatch: Stopwatch) {
        self.plugin_calls.set_stopwatch(stopwatch);
    }

    /// Takes the plugin calls recorded since the last call.
    pub(crate) fn take_plugin_calls(&mut self) -> Vec<PluginCall> {
        self.plugin_calls.take_calls()
    }

    /// Takes the panics of plugins recorded since the last call.
    pub(crate) fn take_plugin_panics(&mut self) -> Vec<PluginPanic> {
        self.plugin_calls.take_panics()
    }

    /// Adds a new pod to activeQ, unless a PreEnqueue plugin gates it.
    ///
    /// Upstream: `PriorityQueue.Add`.
    pub(crate) fn add(&mut self, info: PodInfo, profile: usize, now: Timestamp) {
        let uid: Arc<str> = info.uid().into();
        self.remove(&uid);
        self.nominator.add_nominated_pod(&info, &info.pod.status.nominated_node_name);
        let entry = QueuedPodInfo {
            info,
            profile,
            state: QueueState::InFlight,
            timestamp: now,
            initial_attempt: None,
            attempts: 0,
            unschedulable_count: 0,
            consecutive_errors: 0,
            rejectors: Rejectors::default(),
            gating_plugin: None,
            flushed_at: None,
            flushed: false,
        };
        self.pods.insert(Arc::clone(&uid), entry);
        self.move_to_active_q(&uid, EventLabel::NEW_POD, now);
    }

    /// Updates a queued pod. `actions` are the action types of the change. An unschedulable pod is requeued if the
    /// queueing hint of a plugin that rejected it is Queue.
    ///
    /// Upstream: `PriorityQueue.Update`.
    pub(crate) fn update(&mut self, info: &PodInfo, actions: &[ActionType], now: Timestamp) {
        let Some((uid, entry)) = self.pods.get_key_value(info.uid()) else { return };
        let uid = Arc::clone(uid);
        let old = entry.info.clone();
        let state = entry.state;
        if self.in_flight_events.contains(&uid) {
            for action in actions {
                self.in_flight_events.record(&target_pod_event(&uid, *action, &old, info));
            }
        }
        if let Some(entry) = self.pods.get_mut(&uid) {
            entry.info = info.clone();
        }
        match state {
            // The attempt in progress sets the pod's nominated node.
            QueueState::InFlight => return,
            QueueState::Active { .. } | QueueState::Backoff { .. } => self.resort(&uid),
            QueueState::Unschedulable(_) => {
                for action in actions {
                    let event = target_pod_event(&uid, *action, &old, info);
                    let mut calls = std::mem::take(&mut self.plugin_calls);
                    let strategy = self.is_pod_worth_requeuing(&uid, &event, &mut calls);
                    self.plugin_calls = calls;
                    if strategy > QueueingStrategy::Skip
                        && self.requeue_pod_with_queueing_strategy(
                            &uid,
                            strategy,
                            event.label(),
                            now,
                        )
                    {
                        break;
                    }
                }
            }
        }
        self.nominator.update_nominated_pod(&old.pod, info);
    }

    /// Returns the latest version of the pod that the queue received.
    pub(crate) fn get(&self, uid: &str) -> Option<&PodInfo> {
        self.pods.get(uid).map(|entry| &entry.info)
    }

    /// Removes a pod that was deleted or bound.
    ///
    /// Upstream: `PriorityQueue.Delete`.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.in_flight_events.done(uid);
        self.nominator.delete_nominated_pod(uid);
        if let Some((uid, entry)) = self.pods.remove_entry(uid) {
            self.delete_from_queue(&uid, entry.state);
            if entry.state != QueueState::InFlight {
                self.count_rejectors(entry.profile, entry.rejectors.union(), -1);
            }
        }
    }

    /// Pops the next pod for an attempt. If activeQ is empty and the feature gate `SchedulerPopFromBackoffQ` is
    /// enabled, pops from backoffQ.
    ///
    /// Upstream: `PriorityQueue.Pop`.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<PoppedPod> {
        self.flush_backoff_q_completed(now);
        self.flush_unschedulable_pods_leftover(now);
        let uid = match self.active.first() {
            Some((.., uid)) => Arc::clone(uid),
            None => {
                if !self.backoff_policy.pop_from_backoff_q {
                    return None;
                }
                let (.., uid) = self.backoff.first()?;
                let uid = Arc::clone(uid);
                self.count_incoming("active", EventLabel::PopFromBackoffQ);
                uid
            }
        };
        self.set_state(&uid, QueueState::InFlight);
        self.in_flight_events.start(Arc::clone(&uid));
        let entry = self.pods.get_mut(&uid)?;
        entry.attempts += 1;
        let popped = PoppedPod {
            uid,
            info: entry.info.clone(),
            profile: entry.profile,
            attempts: entry.attempts,
            initial_attempt: *entry.initial_attempt.get_or_insert(now),
            flushed: entry.flushed,
        };
        let profile = entry.profile;
        let rejectors = entry.rejectors.union();
        self.count_rejectors(profile, rejectors, -1);
        Some(popped)
    }

    /// Requeues a popped pod after a failed attempt. Without `rejectors`, the attempt ended with an error and the pod
    /// moves to backoffQ.
    ///
    /// Upstream: `AddUnschedulablePodIfNotPresent`.
    pub(crate) fn add_unschedulable_pod(
        &mut self,
        uid: &str,
        rejectors: Rejectors,
        now: Timestamp,
    ) {
        let Some((uid, entry)) = self.pods.get_key_value(uid) else { return };
        if entry.state != QueueState::InFlight {
            return;
        }
        let uid = Arc::clone(uid);
        let Some(entry) = self.pods.get_mut(&uid) else { return };
        entry.timestamp = now;
        entry.flushed = false;
        entry.flushed_at = None;
        entry.rejectors = rejectors;
        if rejectors.is_empty() {
            entry.consecutive_errors += 1;
        } else {
            entry.unschedulable_count += 1;
            entry.consecutive_errors = 0;
        }
        let profile = entry.profile;
        self.count_rejectors(profile, rejectors.union(), 1);
        let mut calls = std::mem::take(&mut self.plugin_calls);
        let strategy = self.hint_for_in_flight_pod(&uid, &mut calls);
        self.plugin_calls = calls;
        self.in_flight_events.done(&uid);
        self.requeue_pod_with_queueing_strategy(
            &uid,
            strategy,
            EventLabel::ScheduleAttemptFailure,
            now,
        );
    }

    /// Stops recording in-flight events for the pod.
    ///
    /// Upstream: `PriorityQueue.Done`.
    pub(crate) fn done(&mut self, uid: &str) {
        self.in_flight_events.done(uid);
    }

    /// Moves unschedulable pods to activeQ or backoffQ on a cluster event: those that pass `pre_check` and that
    /// [`Self::is_pod_worth_requeuing`] does not skip.
    ///
    /// Upstream: `MoveAllToActiveOrBackoffQueue`, `moveAllToActiveOrBackoffQueue`,
    /// `moveEntitiesToActiveOrBackoffQueue`.
    pub(crate) fn move_all_to_active_or_backoff_queue(
        &mut self,
        event: &Event,
        now: Timestamp,
        pre_check: impl Fn(&PodInfo) -> bool,
    ) {
        let Event::Change { resource, action, .. } = event else { return };
        let mut moved: SmallVec<[(Arc<str>, QueueingStrategy); 8]> = SmallVec::new();
        let mut calls = std::mem::take(&mut self.plugin_calls);
        for (group, uids) in &self.unschedulable_pods {
            let registered = self.queueing_hint_map.plugins_for(group.profile, *resource, *action);
            let may_be_requeued = match group.gating_plugin {
                // A PreEnqueue plugin gates these pods, so only an event of this plugin can make them schedulable.
                Some(gate) => registered.contains(gate),
                None => {
                    // Extenders register no events, so any event may help a pod that an extender rejected.
                    group.rejectors.contains(PluginSet::EXTENDERS)
                        || !group.rejectors.intersection(registered).is_empty()
                }
            };
            if !may_be_requeued {
                continue;
            }
            for uid in uids {
                if !self.pods.get(uid).is_some_and(|entry| pre_check(&entry.info)) {
                    continue;
                }
                let strategy = self.is_pod_worth_requeuing(uid, event, &mut calls);
                if strategy > QueueingStrategy::Skip {
                    moved.push((Arc::clone(uid), strategy));
                }
            }
        }
        self.plugin_calls = calls;
        // Sorting makes the order the same in every run.
        moved.sort_unstable();
        for (uid, strategy) in moved {
            self.requeue_pod_with_queueing_strategy(&uid, strategy, event.label(), now);
        }
        if self.queueing_hint_map.has_event(*resource, *action) {
            self.in_flight_events.record(event);
        }
    }

    /// Moves a pod to activeQ immediately. A pod in flight is retried after its attempt fails.
    ///
    /// Upstream: `PriorityQueue.Activate`.
    pub(crate) fn activate(&mut self, uid: &str, now: Timestamp) {
        let Some((uid, entry)) = self.pods.get_key_value(uid) else { return };
        let uid = Arc::clone(uid);
        match entry.state {
            QueueState::Unschedulable(_) => {
                self.move_to_active_q(&uid, EventLabel::ForceActivate, now);
            }
            QueueState::Backoff { .. } => {
                self.add_to_active_q(&uid, EventLabel::ForceActivate, now);
            }
            QueueState::InFlight if self.in_flight_events.contains(&uid) => {
                self.in_flight_events.record(&Event::Activate(uid));
            }
            QueueState::Active { .. } | QueueState::InFlight => {}
        }
    }

    /// Returns the next time at which [`Self::pop`] may return a pod without a new event.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let has_unschedulable_pods = self.unschedulable_total + self.gated_total > 0;
        let unschedulable_flush = self
            .unschedulable_flushed_at
            .filter(|_| has_unschedulable_pods)
            .map(|flushed_at| saturating_add(flushed_at, FLUSH_UNSCHEDULABLE_INTERVAL));
        let first_in_backoff = self.backoff.first().into_iter().chain(self.error_backoff.first());
        first_in_backoff
            .map(|(until, ..)| saturating_add(*until, backoff_policy::BACKOFF_ORDERING_WINDOW))
            .chain(unschedulable_flush)
            .min()
    }

    /// Returns the number of pods in each queue.
    pub(crate) fn lengths(&self) -> QueueLengths {
        QueueLengths {
            active: self.active.len(),
            backoff: self.backoff.len() + self.error_backoff.len(),
            unschedulable: self.unschedulable_total,
            gated: self.gated_total,
        }
    }

    /// Returns the nominated pods.
    pub(crate) fn nominator(&self) -> &Nominator {
        &self.nominator
    }

    /// Returns the nominated pods as a mutable reference.
    pub(crate) fn nominator_mut(&mut self) -> &mut Nominator {
        &mut self.nominator
    }

    /// Takes the counts of pods that entered each queue since the last call.
    pub(crate) fn take_incoming_pods(&mut self) -> IncomingPods {
        std::mem::take(&mut self.counts.incoming)
    }

    /// Returns the numbers of queued pods that each plugin rejected.
    pub(crate) fn rejected_pods(&self) -> &RejectedPods {
        &self.counts.rejected
    }

    /// Returns the labels of the recorded in-flight events.
    pub(crate) fn in_flight_events(&self) -> impl Iterator<Item = EventLabel> + '_ {
        self.in_flight_events.events().map(Event::label)
    }

    /// Returns the number of pods in flight.
    pub(crate) fn n_in_flight(&self) -> usize {
        self.in_flight_events.n_pods()
    }

    /// Moves pods whose backoff has ended to activeQ.
    ///
    /// Upstream: `flushBackoffQCompleted`.
    fn flush_backoff_q_completed(&mut self, now: Timestamp) {
        let first_completed = |queue: &BTreeSet<BackoffPosition>| {
            let (until, .., uid) = queue.first()?;
            let is_completed = !backoff_policy::is_backing_off(*until, now);
            is_completed.then(|| Arc::clone(uid))
        };
        while let Some(uid) =
            first_completed(&self.backoff).or_else(|| first_completed(&self.error_backoff))
        {
            self.add_to_active_q(&uid, EventLabel::BackoffComplete, now);
        }
    }

    /// Requeues pods that have been unschedulable for longer than `pod_max_in_unschedulable_pods`. A call within 30 s
    /// of the last check does nothing.
    ///
    /// Upstream: `flushUnschedulableEntitiesLeftover`.
    fn flush_unschedulable_pods_leftover(&mut self, now: Timestamp) {
        let flushed_at = *self.unschedulable_flushed_at.get_or_insert(now);
        if now < saturating_add(flushed_at, FLUSH_UNSCHEDULABLE_INTERVAL) {
            return;
        }
        self.unschedulable_flushed_at = Some(now);
        let max_stay = self.backoff_policy.pod_max_in_unschedulable_pods;
        let is_overdue = |uid: &&Arc<str>| {
            let Some(entry) = self.pods.get(*uid) else { return false };
            let unschedulable_since =
                entry.timestamp.max(entry.flushed_at.unwrap_or(entry.timestamp));
            saturating_add(unschedulable_since, max_stay) < now
        };
        let mut uids: Vec<Arc<str>> =
            self.unschedulable_pods.values().flatten().filter(is_overdue).cloned().collect();
        uids.sort_unstable();
        for uid in uids {
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.flushed = true;
                entry.flushed_at = Some(now);
            }
            self.requeue_pod_with_queueing_strategy(
                &uid,
                QueueingStrategy::AfterBackoff,
                EventLabel::UnschedulableTimeout,
                now,
            );
        }
    }

    /// Returns the greatest strategy with which the events during a failed attempt move its pod.
    ///
    /// Upstream: `determineSchedulingHintForInFlightPod`.
    fn hint_for_in_flight_pod(&self, uid: &str, calls: &mut PluginCalls) -> QueueingStrategy {
        let Some(entry) = self.pods.get(uid) else { return QueueingStrategy::Skip };
        if entry.rejectors.is_empty() {
            return QueueingStrategy::AfterBackoff;
        }
        let mut best = QueueingStrategy::Skip;
        for event in self.in_flight_events.since_pop_of(uid) {
            best = best.max(self.is_pod_worth_requeuing(uid, event, calls));
            // Stop at the greatest possible strategy. Only a pending plugin allows `Immediately`.
            if best == QueueingStrategy::Immediately
                || (best == QueueingStrategy::AfterBackoff && entry.rejectors.pending.is_empty())
            {
                break;
            }
        }
        best
    }

    /// Returns the strategy with which an event moves an unschedulable pod; [`QueueingStrategy::Skip`] if it does not
    /// move it. An event moves a pod in these cases:
    ///
    /// - the queueing hint of a plugin that rejected the pod and registered for the event is Queue;
    /// - an extender rejected the pod;
    /// - there were no nodes, and the event is registered for that case;
    /// - the attempt ended with an error.
    ///
    /// Upstream: `isPodWorthRequeuing`, which also returns a strategy.
    fn is_pod_worth_requeuing(
        &self,
        uid: &str,
        event: &Event,
        calls: &mut PluginCalls,
    ) -> QueueingStrategy {
        let Some(entry) = self.pods.get(uid) else { return QueueingStrategy::Skip };
        let rejectors = entry.rejectors.union();
        if rejectors.is_empty() {
            // The attempt ended with an error, so no plugin can tell which events help.
            return QueueingStrategy::AfterBackoff;
        }
        let (resource, action, change) = match event {
            Event::Activate(target) if **target == *uid => return QueueingStrategy::AfterBackoff,
            Event::Change { target: Some(target), .. } if **target != *uid => {
                return QueueingStrategy::Skip;
            }
            Event::Activate(_) => return QueueingStrategy::Skip,
            Event::Change { resource, action, change, .. } => (*resource, *action, change),
        };
        let registered = self.queueing_hint_map.plugins_for(entry.profile, resource, action);
        let mut best = QueueingStrategy::Skip;
        if rejectors.contains(PluginSet::EXTENDERS) {
            best = QueueingStrategy::AfterBackoff;
        }
        for plugin in rejectors.intersection(registered).iter() {
            // No plugin rejected the pod when there were no nodes, so there is no queueing hint to call.
            if plugin != PluginSet::NO_NODES
                && self.queueing_hint(entry, plugin, event.label(), change, calls)
                    == QueueingHint::Skip
            {
                continue;
            }
            if entry.rejectors.pending.contains(plugin) {
                return QueueingStrategy::Immediately;
            }
            best = QueueingStrategy::AfterBackoff;
            // Only the hint of a pending plugin could change the strategy to `Immediately`.
            if entry.rejectors.pending.is_empty() {
                return best;
            }
        }
        best
    }

    /// Calls a plugin's queueing hint and records its duration.
    ///
    /// Upstream: `QueueingHintFn`, called by `isPodWorthRequeuing`.
    fn queueing_hint(
        &self,
        entry: &QueuedPodInfo,
        plugin: usize,
        event: EventLabel,
        change: &Change,
        calls: &mut PluginCalls,
    ) -> QueueingHint {
        let profile = entry.profile;
        let began_at = calls.now();
        let plugin_impl = self.profiles[profile].plugin(plugin);
        let hint = catch_plugin_panic(|| plugin_impl.queueing_hint(&entry.info, change));
        // A panic counts as an error, which upstream treats as Queue.
        let hint = hint.unwrap_or_else(|panic| {
            let call = "running QueueingHint of plugin";
            calls.record_panic(profile, &entry.info, call, plugin_impl.name(), &panic);
            QueueingHint::Queue
        });
        calls.record_hint(HintKey { profile, plugin, event, hint }, began_at);
        hint
    }

    /// Moves a pod according to `strategy`. Returns whether it entered activeQ or backoffQ.
    ///
    /// Upstream: `requeueEntityWithQueueingStrategy`.
    fn requeue_pod_with_queueing_strategy(
        &mut self,
        uid: &str,
        strategy: QueueingStrategy,
        label: EventLabel,
        now: Timestamp,
    ) -> bool {
        let Some(entry) = self.pods.get(uid) else { return false };
        if strategy == QueueingStrategy::Skip {
            self.add_to_unschedulable_pods(uid, label);
            return false;
        }
        let until = self.backoff_policy.backoff_expiration(
            entry.timestamp,
            entry.unschedulable_count,
            entry.consecutive_errors,
        );
        match until {
            Some(until)
                if strategy == QueueingStrategy::AfterBackoff
                    && backoff_policy::is_backing_off(until, now) =>
            {
                self.move_to_backoff_q(uid, until, label)
            }
            _ => self.move_to_active_q(uid, label, now),
        }
    }

    /// Moves a pod to backoffQ until `until`, unless a PreEnqueue plugin gates it. Returns whether it moved.
    ///
    /// Upstream: `moveToBackoffQ`.
    fn move_to_backoff_q(&mut self, uid: &str, until: Timestamp, label: EventLabel) -> bool {
        if self.run_pre_enqueue_plugins(uid, label).is_err() {
            return false;
        }
        let Some(key) = self.sort_key(uid) else { return false };
        let Some(entry) = self.pods.get(uid) else { return false };
        let after_error = entry.rejectors.is_empty();
        self.sequence += 1;
        self.count_incoming("backoff", label);
        self.set_state(
            uid,
            QueueState::Backoff { until, key, sequence: self.sequence, after_error },
        );
        true
    }

    /// Moves a pod to activeQ, unless a PreEnqueue plugin gates it. Returns whether it moved.
    ///
    /// Upstream: `moveToActiveQ`.
    fn move_to_active_q(&mut self, uid: &str, label: EventLabel, now: Timestamp) -> bool {
        self.run_pre_enqueue_plugins(uid, label).is_ok() && self.add_to_active_q(uid, label, now)
    }

    /// Moves a pod to activeQ without running the PreEnqueue plugins. They ran just before, or when the pod entered
    /// backoffQ. Returns whether it moved.
    fn add_to_active_q(&mut self, uid: &str, label: EventLabel, now: Timestamp) -> bool {
        let Some(entry) = self.pods.get_mut(uid) else { return false };
        entry.initial_attempt.get_or_insert(now);
        let Some(key) = self.sort_key(uid) else { return false };
        self.sequence += 1;
        self.count_incoming("active", label);
        self.set_state(uid, QueueState::Active { key, sequence: self.sequence });
        true
    }

    /// Runs the PreEnqueue plugins. Moves the pod to unschedulablePods if one of them gates it.
    ///
    /// Upstream: `runPreEnqueuePlugins`.
    fn run_pre_enqueue_plugins(&mut self, uid: &str, label: EventLabel) -> Result<(), GatedPod> {
        let gating_plugin = self.find_gating_plugin(uid);
        let Some(entry) = self.pods.get_mut(uid) else { return Ok(()) };
        entry.gating_plugin = gating_plugin;
        let Some(gating_plugin) = gating_plugin else { return Ok(()) };
        // The gate prevents the attempt that the flush would have caused. A later attempt has another cause.
        entry.flushed = false;
        let is_new_rejector = !entry.rejectors.union().contains(gating_plugin);
        entry.rejectors.unschedulable.insert(gating_plugin);
        let profile = entry.profile;
        if is_new_rejector {
            self.count_rejectors(profile, [gating_plugin].into_iter().collect(), 1);
        }
        self.add_to_unschedulable_pods(uid, label);
        Err(GatedPod)
    }

    /// Calls the PreEnqueue plugins until one gates the pod, and returns that plugin. Starts with the plugin that gated
    /// the pod last, because it is the most likely one.
    fn find_gating_plugin(&mut self, uid: &str) -> Option<usize> {
        let entry = self.pods.get(uid)?;
        let profile = entry.profile;
        let last_gating_plugin = entry.gating_plugin;
        let is_sampled = self.pre_enqueue_runs.is_multiple_of(PRE_ENQUEUE_SAMPLING_INTERVAL);
        self.pre_enqueue_runs += 1;
        let mut calls = std::mem::take(&mut self.plugin_calls);
        let run_began_at = calls.now();
        let mut gates_pod = |index: usize| {
            let plugin = self.profiles[profile].plugin(index);
            let (name, Some(plugin)) = (plugin.name(), plugin.as_pre_enqueue()) else {
                return false;
            };
            let began_at = calls.now().filter(|_| is_sampled);
            let status = catch_plugin_panic(|| plugin.pre_enqueue(&entry.info));
            // A panic counts as an error, which gates the pod, as in upstream.
            let status = status.unwrap_or_else(|panic| {
                let call = "running PreEnqueue plugin";
                calls.record_panic(profile, &entry.info, call, name, &panic);
                Err(panic)
            });
            calls.record_pre_enqueue(profile, index, status.as_ref().err(), began_at);
            status.is_err()
        };
        let others = self.profiles[profile]
            .at(ExtensionPoint::PreEnqueue)
            .map(|(index, _)| index)
            .filter(|index| Some(*index) != last_gating_plugin);
        let gating_plugin =
            last_gating_plugin.into_iter().chain(others).find(|index| gates_pod(*index));
        calls.record_all_pre_enqueue(profile, run_began_at);
        self.plugin_calls = calls;
        gating_plugin
    }

    /// Moves a pod to unschedulablePods.
    fn add_to_unschedulable_pods(&mut self, uid: &str, label: EventLabel) {
        let Some(entry) = self.pods.get(uid) else { return };
        let group = UnschedulableGroup {
            profile: entry.profile,
            rejectors: entry.rejectors.union(),
            gating_plugin: entry.gating_plugin,
        };
        if !matches!(entry.state, QueueState::Unschedulable(_)) {
            self.count_incoming("unschedulable", label);
        }
        self.set_state(uid, QueueState::Unschedulable(group));
    }

    /// Moves a pod to its new position in its queue if its sort key changed.
    fn resort(&mut self, uid: &str) {
        let Some(new_key) = self.sort_key(uid) else { return };
        let Some(entry) = self.pods.get(uid) else { return };
        let state = match entry.state {
            QueueState::Active { key, sequence } if key != new_key => {
                QueueState::Active { key: new_key, sequence }
            }
            QueueState::Backoff { until, key, sequence, after_error } if key != new_key => {
                QueueState::Backoff { until, key: new_key, sequence, after_error }
            }
            _ => return,
        };
        self.set_state(uid, state);
    }

    /// Returns the pod's sort key. If its QueueSort plugin panics, returns the key of the default plugin.
    fn sort_key(&mut self, uid: &str) -> Option<SortKey> {
        let entry = self.pods.get(uid)?;
        let profile = &self.profiles[entry.profile];
        let key = profile.sort_key(&entry.info, entry.timestamp);
        Some(key.unwrap_or_else(|panic| {
            let (plugin, call) = (profile.plugin(panic.plugin).name(), "running QueueSort plugin");
            self.plugin_calls.record_panic(entry.profile, &entry.info, call, plugin, &panic.status);
            panic.default_key
        }))
    }

    /// Counts a pod that the event `label` moved to `queue`.
    fn count_incoming(&mut self, queue: &'static str, label: EventLabel) {
        *self.counts.incoming.entry((queue, label)).or_default() += 1;
    }

    /// Adds `delta` to the number of queued pods that each of these plugins rejected.
    fn count_rejectors(&mut self, profile: usize, plugins: PluginSet, delta: i64) {
        // Numbers from `PluginSet::MAX` on, such as `EXTENDERS`, represent no plugin.
        for plugin in plugins.iter().filter(|plugin| *plugin < PluginSet::MAX) {
            *self.counts.rejected.entry((profile, plugin)).or_default() += delta;
        }
    }

    /// Moves a pod from its current queue to `state`.
    fn set_state(&mut self, uid: &str, state: QueueState) {
        let Some((uid, entry)) = self.pods.get_key_value(uid) else { return };
        let uid = Arc::clone(uid);
        let old_state = entry.state;
        self.delete_from_queue(&uid, old_state);
        match state {
            QueueState::Active { key, sequence } => {
                self.active.insert((key, sequence, Arc::clone(&uid)));
            }
            QueueState::Backoff { until, key, sequence, after_error } => {
                let queue = self.backoff_queue_mut(after_error);
                queue.insert((until, key, sequence, Arc::clone(&uid)));
            }
            QueueState::Unschedulable(group) => {
                self.unschedulable_pods.entry(group).or_default().insert(Arc::clone(&uid));
                *self.total_of_group_mut(group) += 1;
            }
            QueueState::InFlight => {}
        }
        if let Some(entry) = self.pods.get_mut(&uid) {
            entry.state = state;
        }
    }

    /// Removes a pod from the queue that contains it.
    fn delete_from_queue(&mut self, uid: &Arc<str>, state: QueueState) {
        match state {
            QueueState::Active { key, sequence } => {
                self.active.remove(&(key, sequence, Arc::clone(uid)));
            }
            QueueState::Backoff { until, key, sequence, after_error } => {
                let queue = self.backoff_queue_mut(after_error);
                queue.remove(&(until, key, sequence, Arc::clone(uid)));
            }
            QueueState::Unschedulable(group) => {
                if let Some(uids) = self.unschedulable_pods.get_mut(&group) {
                    uids.remove(uid);
                    if uids.is_empty() {
                        self.unschedulable_pods.remove(&group);
                    }
                }
                *self.total_of_group_mut(group) -= 1;
            }
            QueueState::InFlight => {}
        }
    }

    /// Returns the part of backoffQ for pods whose attempt ended with an error, or that for the other pods.
    fn backoff_queue_mut(&mut self, after_error: bool) -> &mut BTreeSet<BackoffPosition> {
        if after_error { &mut self.error_backoff } else { &mut self.backoff }
    }

    /// Returns the count of gated or of unschedulable pods that includes the pods of this group.
    fn total_of_group_mut(&mut self, group: UnschedulableGroup) -> &mut usize {
        if group.gating_plugin.is_some() {
            &mut self.gated_total
        } else {
            &mut self.unschedulable_total
        }
    }
}

/// Returns the event for an update of a queued pod. It may requeue only this pod.
fn target_pod_event(uid: &Arc<str>, action: ActionType, old: &PodInfo, new: &PodInfo) -> Event {
    Event::Change {
        resource: EventResource::TargetPod,
        action,
        change: Change::TargetPodUpdate { old: old.clone(), new: new.clone() },
        target: Some(Arc::clone(uid)),
    }
}
