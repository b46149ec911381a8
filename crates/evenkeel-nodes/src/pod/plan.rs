//! Plan of a kubelet for one pod: advances its containers, and decides its status, its events and the time of the next
//! sync.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | pod phase | `phase` |
//! | container states `Waiting`, `Running`, `Terminated` | `step`, `status::state_json` |
//! | conditions `PodReadyToStartContainers`, `Initialized`, `ContainersReady`, `Ready` | `status::conditions`, `status::initialized`, `status::containers_ready` |
//! | `restartPolicy` of pod and container | `restart`, `facts::restarts_after` |
//! | CrashLoopBackOff: 10 s, doubled up to 300 s, reset after 10 minutes | `restart` |
//! | init containers run in order, each to completion | `advance_inits` |
//! | ephemeral containers start in a running pod, and are never restarted | `advance_all`, `observe::facts` |
//! | sidecar containers start before the others and stop after them | `advance_inits`, `finish` |
//! | `initialDelaySeconds` of startup and readiness probes; probes of type exec | `observe::first_probe_delay`, `plan/processes::probe` |
//! | `readinessGates` | `status::readiness_gates` |
//! | pull of an image that the node lacks | `pull` |
//! | ErrImagePull, ImagePullBackOff | `step`, `status::pull_error`, `status::pull_back_off` |
//! | `activeDeadlineSeconds`: reason `DeadlineExceeded` | `begin_stopping` |
//! | SIGTERM, grace period, SIGKILL (exit code 137) | `stop`, `stop_container`, `plan/processes::exit_after_signal` |
//! | sidecar containers get SIGTERM after the main containers, in reverse order | `signal_time` |
//! | the kubelet deletes the object when all containers have stopped | `plan` |
//! | the kubelet rejects a pod that does not fit: `OutOfcpu`, … | `facts::RejectionReason`, `admission::reject` |
//! | a restarted kubelet continues from the pod's status | `observe::recover_memory` |

mod processes;

use evenkeel_api::time::Timestamp;
use std::{sync::Arc, time::Duration};

pub(crate) use self::processes::NodeWrites;
use super::{
    facts::{Container, Facts, RestartPolicy},
    memory::{Ended, Group, Memory, Phase, Slot, State, StopReason, Stopping},
    status,
};
use evenkeel_shell::{Files, later};

/// First delay of CrashLoopBackOff. Each crash doubles the delay. Upstream: `pkg/kubelet/kubelet.go`.
pub(super) const INITIAL_CRASH_LOOP_BACKOFF: Duration = Duration::from_secs(10);
/// Maximum delay of CrashLoopBackOff.
pub(super) const MAX_CRASH_LOOP_BACKOFF: Duration = Duration::from_secs(300);
/// Time after the end of a backoff until the backoff is reset: a later crash restarts the container without delay.
const CRASH_LOOP_BACKOFF_RESET: Duration = Duration::from_secs(600);
/// Exit code of a container that SIGKILL ends.
const SIGKILL_EXIT_CODE: i32 = 137;
/// Minimum time from SIGTERM to SIGKILL of a sidecar that waited for other containers. Upstream:
/// `minimumGracePeriodInSeconds`.
const MINIMUM_GRACE_PERIOD: Duration = Duration::from_secs(2);
/// Time from the first failed pull to `ImagePullBackOff`, which lasts until the pod changes.
const IMAGE_BACKOFF_PERIOD: Duration = Duration::from_secs(10);

/// Maximum number of rounds in one sync. Containers advance again after a round in which their files changed.
const MAX_ROUNDS: usize = 4;

/// Result of one sync of a pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decision {
    /// Memory to keep once the writes of `patch` and `remove` have succeeded.
    pub(crate) memory: Memory,
    /// Strategic merge patch of the status, with the uid as precondition; `None` if nothing changes.
    pub(crate) patch: Option<String>,
    /// Whether to delete the object (grace period 0, with the uid as precondition).
    pub(crate) remove: bool,
    /// Time of the next sync even if the pod does not change; `None` if only changes cause it.
    pub(crate) wake: Option<Timestamp>,
    /// Events about the pod, in order.
    pub(crate) events: Vec<PodEvent>,
    /// Changes of the node's files, to keep once the writes have succeeded.
    pub(crate) node_writes: Vec<NodeWrites>,
    /// Images with the times when the node has them, to keep once the writes have succeeded.
    pub(crate) images: Vec<(String, Timestamp)>,
}

/// An event about the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodEvent {
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Reason of the events about invalid annotations.
pub(crate) const INVALID_SIMULATION: &str = "InvalidSimulation";

/// Makes all transitions that are due at `now`, and decides the writes. The result depends only on the arguments.
pub(crate) fn plan(facts: &Facts<'_>, memory: &Memory, now: Timestamp) -> Decision {
    let mut sync = PodSync {
        facts,
        memory: memory.clone(),
        node_files: Arc::clone(&facts.node_files),
        now,
        wake: None,
        events: Vec::new(),
        node_writes: Vec::new(),
        images: Vec::new(),
    };
    sync.memory.add_ephemerals(facts.ephemerals.len());
    sync.warn_of_annotation_errors();
    if sync.memory.removed {
        return Decision {
            memory: sync.memory,
            patch: None,
            remove: false,
            wake: None,
            events: sync.events,
            node_writes: Vec::new(),
            images: Vec::new(),
        };
    }
    let is_terminal = memory.written.phase.is_terminal();
    match &facts.rejection {
        Some(rejection) if !is_terminal => {
            sync.memory.rejected = true;
            sync.warn(rejection.reason.name(), rejection.message.clone());
        }
        Some(_) => {}
        None if sync.memory.rejected => {}
        None if is_terminal && !memory.is_running() => {}
        None => sync.advance(),
    }
    let phase = sync.phase();
    let patch = status::patch(facts, &mut sync.memory, phase, now);
    let remove = facts.deletion.is_some() && phase.is_terminal() && !sync.memory.is_running();
    Decision {
        memory: sync.memory,
        patch,
        remove,
        wake: if remove { None } else { sync.wake },
        events: sync.events,
        node_writes: sync.node_writes,
        images: sync.images,
    }
}

/// State of one sync of a pod.
struct PodSync<'a> {
    facts: &'a Facts<'a>,
    memory: Memory,
    /// The node's files, including the changes of this sync.
    node_files: Arc<Files>,
    now: Timestamp,
    wake: Option<Timestamp>,
    events: Vec<PodEvent>,
    node_writes: Vec<NodeWrites>,
    images: Vec<(String, Timestamp)>,
}

impl PodSync<'_> {
    /// Advances or stops the containers.
    fn advance(&mut self) {
        self.begin_stopping();
        if let Some(stopping) = self.memory.stopping {
            return self.stop(stopping);
        }
        // One container's writes may end another container that waits for them. A sandbox exists only if the volumes
        // were mounted.
        for _ in 0..MAX_ROUNDS {
            let before = self.memory.files.changes();
            if (self.facts.mounted || self.memory.sandbox) && self.advance_inits() {
                self.advance_all(Group::Main);
            }
            // Ephemeral containers start once the pod has its sandbox.
            if self.memory.sandbox {
                self.advance_all(Group::Ephemeral);
            }
            if self.memory.files.changes() == before {
                break;
            }
        }
        self.finish();
        self.probe();
        if let Some(stopping) = self.memory.stopping {
            self.stop(stopping);
        }
    }

    /// Begins to stop the containers if the pod is deleted or past its `activeDeadlineSeconds`.
    fn begin_stopping(&mut self) {
        let deleted = self.facts.deletion.is_some();
        if deleted
            && self.memory.stopping.is_none_or(|stopping| stopping.reason == StopReason::Finished)
        {
            self.memory.stopping = Some(Stopping { since: self.now, reason: StopReason::Deleted });
            self.record_normal_events("Killing", |container| {
                format!("Stopping container {}", container.name)
            });
        } else if let (Some(deadline), None) = (self.facts.deadline, self.memory.stopping) {
            let end = later(self.memory.start, deadline);
            if self.now >= end {
                self.memory.stopping =
                    Some(Stopping { since: self.now, reason: StopReason::Deadline });
                self.warn("DeadlineExceeded", status::DEADLINE_MESSAGE.to_owned());
            } else {
                self.wake_at(end);
            }
        }
    }

    /// Advances the init containers in order: each waits until those before it have completed or, as sidecars, have
    /// started. Returns whether the main containers may start.
    fn advance_inits(&mut self) -> bool {
        for index in 0..self.facts.inits.len() {
            let container = &self.facts.inits[index];
            self.advance_container(container, Group::Init, index);
            let slot = &self.memory.inits[index];
            let passed = if container.sidecar {
                slot.running().is_some() || slot.last.is_some()
            } else {
                slot.ended().is_some_and(|ended| ended.exit_code == 0)
            };
            if !passed {
                return false;
            }
        }
        true
    }

    /// Advances all containers of a group.
    fn advance_all(&mut self, group: Group) {
        let facts = self.facts;
        for (index, container) in facts.group(group).iter().enumerate() {
            self.advance_container(container, group, index);
        }
    }

    /// Advances one container through all transitions that are due.
    fn advance_container(&mut self, container: &Container<'_>, group: Group, index: usize) {
        let mut slot = std::mem::take(&mut self.memory.group_mut(group)[index]);
        while let Some(due) = self.step(container, group == Group::Init, &mut slot) {
            if due > self.now {
                self.wake_at(due);
                break;
            }
        }
        self.memory.group_mut(group)[index] = slot;
    }

    /// Makes the next transition of a container if it is due, and returns `now`. Otherwise returns the time of the next
    /// transition; `None` if none is due before the pod changes.
    fn step(
        &mut self,
        container: &Container<'_>,
        init: bool,
        slot: &mut Slot,
    ) -> Option<Timestamp> {
        let now = self.now;
        match slot.state {
            State::Waiting => {
                let pulled = self.pull(container);
                slot.state = State::Creating { until: later(pulled, container.script.start_delay) };
                Some(now)
            }
            State::Creating { until } | State::PullError { until } if now < until => Some(until),
            State::Creating { .. } | State::PullError { .. } | State::PullBackOff
                if container.script.pullable =>
            {
                self.begin(container, slot);
                Some(now)
            }
            State::Creating { .. } => {
                self.memory.sandbox = true;
                slot.state = State::PullError { until: later(now, IMAGE_BACKOFF_PERIOD) };
                self.warn("Failed", status::pull_error(container.image));
                Some(now)
            }
            State::PullError { .. } => {
                slot.state = State::PullBackOff;
                self.warn("BackOff", status::pull_back_off(container.image));
                None
            }
            State::PullBackOff => None,
            State::Running { since } => {
                // A restarted kubelet no longer has the image in its records.
                self.add_image(container, since);
                self.end_of_run(container, since, slot)
            }
            State::BackOff { until } if now < until => Some(until),
            State::BackOff { .. } => {
                slot.restarts += 1;
                self.begin(container, slot);
                Some(now)
            }
            State::Ended(ended) => self.restart(container, init, ended, slot),
        }
    }

    /// Returns when the node has the container's image. The node may have the image already, or another container may
    /// be pulling it.
    ///
    /// Upstream: `EnsureImageExists`.
    fn pull(&mut self, container: &Container<'_>) -> Timestamp {
        if !container.script.pullable {
            return self.now;
        }
        self.add_image(container, later(self.now, container.script.pull.duration()));
        let pulled = self.images.iter().find(|(image, _)| *image == container.image);
        let pulled = container.image_at.or(pulled.map(|(_, at)| *at));
        pulled.map_or(self.now, |at| at.max(self.now))
    }

    /// Records that the node has the container's image from `at` on, unless the image is recorded already.
    fn add_image(&mut self, container: &Container<'_>, at: Timestamp) {
        let is_known = self.images.iter().any(|(image, _)| *image == container.image);
        if container.image_at.is_none() && !is_known {
            self.images.push((container.image.to_owned(), at));
        }
    }

    /// Starts a run of the container.
    fn begin(&mut self, container: &Container<'_>, slot: &mut Slot) {
        self.memory.sandbox = true;
        slot.state = State::Running { since: self.now };
        self.begin_run(container, slot);
        if self.facts.normal_events {
            self.events.push(PodEvent {
                warning: false,
                reason: "Started",
                message: format!("Container started: {}", container.name),
            });
        }
    }

    /// Ends the run if that is due. Returns when the run ends; `None` if it does not end by itself. Wakes the sync
    /// when the container becomes ready.
    fn end_of_run(
        &mut self,
        container: &Container<'_>,
        since: Timestamp,
        slot: &mut Slot,
    ) -> Option<Timestamp> {
        let ready = later(since, container.script.ready_delay);
        if container.script.ready && self.now < ready {
            self.wake_at(ready);
        }
        let (end, exit_code) = self.exit_of_run(container, slot, since)?;
        if self.now < end {
            return Some(end);
        }
        slot.state = State::Ended(Ended {
            started: Some(since),
            finished: self.now,
            exit_code,
            killed: false,
        });
        Some(self.now)
    }

    /// Puts an ended container into backoff before its restart. Returns `None` if it does not restart.
    fn restart(
        &mut self,
        container: &Container<'_>,
        init: bool,
        ended: Ended,
        slot: &mut Slot,
    ) -> Option<Timestamp> {
        let restarts = match container.restart_policy {
            // An init container that succeeded never restarts.
            _ if init && !container.sidecar && ended.exit_code == 0 => false,
            policy => policy.restarts_after(ended.exit_code),
        };
        if !restarts {
            return None;
        }
        slot.last = Some(ended);
        let backoff =
            slot.backoff.filter(|(_, since)| later(*since, CRASH_LOOP_BACKOFF_RESET) >= self.now);
        let Some((delay, _)) = backoff else {
            slot.backoff = Some((INITIAL_CRASH_LOOP_BACKOFF, self.now));
            slot.state = State::BackOff { until: self.now };
            return Some(self.now);
        };
        let until = later(ended.finished, delay);
        slot.backoff = Some(((delay * 2).min(MAX_CRASH_LOOP_BACKOFF), until));
        slot.state = State::BackOff { until };
        self.warn("BackOff", status::back_off_message(self.facts, container.name));
        Some(self.now)
    }

    /// Begins to stop the pod when all main containers have completed or an init container has failed permanently.
    fn finish(&mut self) {
        let failed_init =
            self.facts.inits.iter().zip(&*self.memory.inits).any(|(container, slot)| {
                let failed = slot.ended().filter(|ended| ended.exit_code != 0);
                !container.sidecar
                    && container.restart_policy == RestartPolicy::Never
                    && failed.is_some()
            });
        let all_ended = !self.memory.mains.is_empty()
            && self.memory.mains.iter().all(|slot| slot.ended().is_some());
        if failed_init || all_ended {
            self.memory.stopping = Some(Stopping { since: self.now, reason: StopReason::Finished });
        }
    }

    /// Stops all containers: first the main containers, then the sidecars in reverse order. A running container ends
    /// when it exits, at the latest at the end of the grace period.
    fn stop(&mut self, stopping: Stopping) {
        let limit = match (stopping.reason, self.facts.deletion) {
            (StopReason::Deleted, Some(deadline)) => deadline,
            _ => later(stopping.since, self.facts.grace),
        };
        let limit = limit.max(stopping.since);
        let facts = self.facts;
        let mut containers: Vec<_> = self.container_indexes().collect();
        containers.reverse();
        for (group, index) in containers {
            let signal = self.signal_time(group, index, stopping, limit);
            let mut slot = std::mem::take(&mut self.memory.group_mut(group)[index]);
            self.stop_container(&facts.group(group)[index], &mut slot, stopping, signal, limit);
            self.memory.group_mut(group)[index] = slot;
        }
    }

    /// Returns when a container receives SIGTERM. A sidecar waits until the main containers and the next sidecar have
    /// ended, at most until `limit`; `None` while it waits.
    ///
    /// Upstream: `terminationOrdering`.
    fn signal_time(
        &self,
        group: Group,
        index: usize,
        stopping: Stopping,
        limit: Timestamp,
    ) -> Option<Timestamp> {
        let inits = self.facts.inits.iter().zip(&*self.memory.inits);
        let mut sidecars = inits.skip(index).filter(|(container, _)| container.sidecar);
        if group != Group::Init || !self.facts.inits[index].sidecar {
            return Some(stopping.since);
        }
        // The first of these sidecars is the container itself.
        let next = sidecars.nth(1).map(|(_, slot)| slot);
        let mut last_end = stopping.since;
        for slot in self.memory.mains.iter().chain(next) {
            if slot.running().is_some() {
                return (self.now >= limit).then_some(limit);
            }
            last_end = slot.ended().map_or(last_end, |ended| last_end.max(ended.finished));
        }
        Some(last_end.min(limit))
    }

    /// Ends one container if that is due at `now`, and otherwise wakes the sync at its end. Without a `signal`, it can
    /// only end by itself.
    fn stop_container(
        &mut self,
        container: &Container<'_>,
        slot: &mut Slot,
        stopping: Stopping,
        signal: Option<Timestamp>,
        limit: Timestamp,
    ) {
        match slot.state {
            State::Running { since } => {
                let Some(signal) = signal else {
                    if let Some(end) = self.end_of_run(container, since, slot)
                        && end > self.now
                    {
                        self.wake_at(end);
                    }
                    return self.wake_at(limit);
                };
                let (exit_time, code) = self.exit_after_signal(container, slot, since, signal);
                let limit = if signal > stopping.since {
                    limit.max(later(signal, MINIMUM_GRACE_PERIOD))
                } else {
                    limit
                };
                let end = exit_time.map_or(limit, |exit_time| exit_time.min(limit));
                if self.now < end {
                    return self.wake_at(end);
                }
                let killed = exit_time.is_none_or(|exit_time| exit_time > end);
                slot.state = State::Ended(Ended {
                    started: Some(since),
                    finished: self.now,
                    exit_code: if killed { SIGKILL_EXIT_CODE } else { code },
                    killed,
                });
                self.drop_later_writes(container, slot, since);
            }
            State::BackOff { .. } => {
                slot.state = slot.last.take().map_or(State::Waiting, State::Ended);
            }
            // The container never ran. Upstream reports `ContainerStatusUnknown` once the pod ends, except after a
            // failed init container.
            State::Waiting
            | State::Creating { .. }
            | State::PullError { .. }
            | State::PullBackOff
                if stopping.reason != StopReason::Finished =>
            {
                slot.state = State::Ended(Ended {
                    started: None,
                    finished: self.now,
                    exit_code: SIGKILL_EXIT_CODE,
                    killed: false,
                });
            }
            State::Waiting
            | State::Creating { .. }
            | State::PullError { .. }
            | State::PullBackOff
            | State::Ended(_) => {}
        }
    }

    /// Iterates over all containers: the group of each, and its index in the group.
    fn container_indexes(&self) -> impl Iterator<Item = (Group, usize)> + use<> {
        let groups = [Group::Init, Group::Main, Group::Ephemeral];
        let counts = groups.map(|group| (group, self.facts.group(group).len()));
        counts.into_iter().flat_map(|(group, count)| (0..count).map(move |index| (group, index)))
    }

    /// Returns a container with its slot.
    fn container_at(&self, group: Group, index: usize) -> (&Container<'_>, &Slot) {
        (&self.facts.group(group)[index], &self.memory.group(group)[index])
    }

    /// Returns the pod's phase. Upstream: `getPhase` (`pkg/kubelet/kubelet_pods.go`).
    fn phase(&self) -> Phase {
        let (memory, facts) = (&self.memory, self.facts);
        if memory.written.phase.is_terminal() {
            return memory.written.phase;
        }
        if facts.rejection.is_some() {
            return Phase::Failed;
        }
        let is_running = memory.is_running();
        match memory.stopping {
            Some(Stopping { reason: StopReason::Deadline, .. }) => return Phase::Failed,
            Some(_) if !is_running => {
                let succeeded =
                    |slot: &Slot| slot.ended().is_some_and(|ended| ended.exit_code == 0);
                return if memory.mains.iter().all(succeeded) {
                    Phase::Succeeded
                } else {
                    Phase::Failed
                };
            }
            _ => {}
        }
        let has_started = |slot: &Slot| {
            slot.last.is_some()
                || matches!(
                    slot.state,
                    State::Running { .. } | State::Ended(_) | State::BackOff { .. }
                )
        };
        if memory.mains.iter().all(has_started) { Phase::Running } else { Phase::Pending }
    }

    /// Records a warning for each annotation error, once until the errors change.
    fn warn_of_annotation_errors(&mut self) {
        let (hash, annotation_errors) = &self.facts.annotation_errors;
        if *hash != self.memory.reported_annotation_errors {
            self.memory.reported_annotation_errors = *hash;
            for message in annotation_errors {
                self.warn(INVALID_SIMULATION, message.clone());
            }
        }
    }

    /// Records a normal event for each running main container, unless normal events are off.
    fn record_normal_events(
        &mut self,
        reason: &'static str,
        message: impl Fn(&Container<'_>) -> String,
    ) {
        if self.facts.normal_events {
            let running = self
                .facts
                .mains
                .iter()
                .zip(&*self.memory.mains)
                .filter(|(_, slot)| slot.running().is_some());
            self.events.extend(running.map(|(container, _)| PodEvent {
                warning: false,
                reason,
                message: message(container),
            }));
        }
    }

    /// Records a warning event.
    fn warn(&mut self, reason: &'static str, message: String) {
        self.events.push(PodEvent { warning: true, reason, message });
    }

    /// Wakes the next sync at `time` at the latest.
    fn wake_at(&mut self, time: Timestamp) {
        self.wake = Some(self.wake.map_or(time, |wake| wake.min(time)));
    }
}
