//! Reports of a controller: its queue, the reasons why a key waits, and the next actions for it.

use super::{reconcile::Explanation, run::Shared, track::MissingWrite};
use crate::{
    introspect::{
        ControllerReport, Description, Fact, Inspect, KeyState, LISTED, ObjectReport, QueueState,
        Subject, format_duration,
    },
    plan::Key,
    queue::KeyStatus,
    sharding::Shards,
    tasks::catch_call_panic,
};
use evenkeel_api::time::{Timestamp, seconds};
use std::sync::atomic::Ordering;
use tokio::time::Instant;

/// Maximum number of passes in a report.
const MAX_PASSES: usize = 20;

impl Inspect for Shared {
    fn name(&self) -> &str {
        &self.name
    }

    fn report(&self) -> ControllerReport {
        let snapshot = self.queue.snapshot(LISTED);
        let now = Moment::of(self);
        let keys =
            snapshot.keys.into_iter().map(|(status, key)| self.key_state(&key, status, &now));
        ControllerReport {
            name: self.name.to_string(),
            cluster: self.cluster.to_string(),
            kind: kind_with_group(&self.root),
            workers: self.workers,
            queue: QueueState {
                ready: snapshot.ready,
                in_flight: snapshot.running,
                delayed: snapshot.delayed,
                backing_off: snapshot.failing,
                waiting_for_cache: self.barrier.n_waiting(),
                keys: keys.collect(),
            },
            caches: self.caches.list().iter().map(|cache| cache.state()).collect(),
            passes: self.history.passes(MAX_PASSES),
            errors: self.history.errors(),
            facts: self.shards().map(shard_fact).into_iter().collect(),
        }
    }

    fn object(&self, subject: &Subject) -> Option<ObjectReport> {
        if !subject.is_a(&self.root) || subject.namespace.is_empty() == self.root.namespaced {
            return None;
        }
        let (key, now) = (subject.key(), Moment::of(self));
        // A planner that panics in its passes also panics here. The report shows the panic.
        let explanation = catch_call_panic(|| self.reconcile.explain(&key, now.time));
        let explanation = explanation.unwrap_or_else(|panic| {
            let mut description = Description::new();
            description.waits(format!("planning panics: {panic}"));
            Some(Explanation { description, ..Explanation::default() })
        });
        let status = self.queue.key_status(&key);
        let state = self.key_state(&key, status, &now);
        let exists = explanation.is_some();
        let Explanation { description, mut would, actions_unknown, requeue } =
            explanation.unwrap_or_default();
        let exists = exists && !(actions_unknown && self.is_missing(&key));
        let last = self.history.last(&key);
        // The actions of an async function are unknown. A key that was never queued is not the function's concern.
        if actions_unknown && status != KeyStatus::default() {
            would.push("not known before it is done".to_owned());
        } else if actions_unknown && last.is_none() {
            return None;
        }
        let mut waits = self.waits(&key, status, state.failures, &now);
        if status.due.is_none()
            && let Some(time) = requeue
        {
            waits.push(format!("looks again in {} even if nothing changes", format_duration(time)));
        }
        waits.extend(description.waits);
        waits.extend(state.because.as_ref().map(|cause| format!("is queued because {cause}")));
        Some(ObjectReport {
            controller: self.name.to_string(),
            cluster: self.cluster.to_string(),
            object: Subject::at(&self.root, &key),
            exists,
            sees: description.facts,
            would,
            waits,
            queue: self.started.load(Ordering::Relaxed).then_some(state),
            last,
            children: description.children,
        })
    }
}

impl Shared {
    /// Returns whether the controller has a cache of the kind that it reconciles, without an object of this key.
    fn is_missing(&self, key: &Key) -> bool {
        // The first cache decides: caches of later watches may hold only a selection.
        let is_missing = self.caches.find_map(|cache| {
            let is_root = cache.scope().kind == self.root;
            is_root.then(|| cache.get(&key.namespace, &key.name).is_none())
        });
        is_missing.unwrap_or(false)
    }

    fn key_state(&self, key: &Key, status: KeyStatus, now: &Moment) -> KeyState {
        KeyState {
            key: key.to_string(),
            ready_since: status.ready.map(|at| now.wall_time(at)),
            in_flight_since: status.running.map(|at| now.wall_time(at)),
            delayed_until: status.due.map(|at| now.wall_time(at)),
            failures: self.failures.of(key, &self.queue),
            because: self.causes.as_ref().and_then(|causes| Some(causes.get(key)?.to_string())),
        }
    }

    /// Returns the reasons in the queue and the caches why a key is not being reconciled now.
    fn waits(&self, key: &Key, status: KeyStatus, failures: u32, now: &Moment) -> Vec<String> {
        let mut waits = Vec::new();
        let caches = self.caches.list();
        for cache in caches.iter().map(|cache| cache.state()).filter(|cache| !cache.synced) {
            let why = cache.trouble.map(|trouble| format!(": {trouble}")).unwrap_or_default();
            waits.push(format!("the cache of {} is not filled yet{why}", cache.resource));
        }
        match self.barrier.missing_write(key) {
            Some((MissingWrite::Version(watch, version), seen)) => waits.push(format!(
                "waits for the cache of {} to reach version {version}, its own write's (it is at {seen})",
                watch.kind.kind
            )),
            Some((MissingWrite::Deletion(object), _)) => waits.push(format!(
                "waits for the cache to show that {} {} is gone, which it deleted",
                object.kind.kind,
                Key { namespace: object.namespace, name: object.name }
            )),
            None => {}
        }
        // A program that only observes has no workers, so its queue has no meaning.
        let started = self.started.load(Ordering::Relaxed);
        let status = if started { status } else { KeyStatus::default() };
        if let Some(due) = status.due {
            let remaining = format_duration(due.saturating_duration_since(now.instant));
            let at = seconds(now.wall_time(due));
            waits.push(if failures > 0 {
                let s = if failures == 1 { "" } else { "s" };
                format!(
                    "back-off: comes again in {remaining} (at {at}), after {failures} failure{s}"
                )
            } else {
                format!("comes again in {remaining} (at {at})")
            });
        }
        if let Some(since) = status.running {
            let time = format_duration(now.instant.saturating_duration_since(since));
            waits.push(format!("is being worked on, for {time}"));
        }
        if let Some(since) = status.ready {
            let time = format_duration(now.instant.saturating_duration_since(since));
            waits.push(format!("waits for a free worker, for {time}"));
        }
        waits
    }
}

/// Returns the shards that this process holds.
fn shard_fact(shards: &Shards) -> Fact {
    let held: Vec<String> = shards.held().iter().map(u32::to_string).collect();
    let value = format!("{} of {}: {}", held.len(), shards.count(), held.join(", "));
    Fact { what: "shards held".to_owned(), value }
}

fn kind_with_group(kind: &evenkeel_api::Kind) -> String {
    let dot = if kind.group.is_empty() { "" } else { "." };
    format!("{}{dot}{}", kind.kind, kind.group)
}

/// The current time on the monotonic clock, which timers use, and on the wall clock, which reports show.
struct Moment {
    time: Timestamp,
    instant: Instant,
}

impl Moment {
    fn of(shared: &Shared) -> Self {
        Self { time: shared.clock.now(), instant: shared.clock.instant() }
    }

    /// Returns the wall-clock time of an instant.
    fn wall_time(&self, instant: Instant) -> Timestamp {
        let ago = self.instant.saturating_duration_since(instant);
        let ahead = instant.saturating_duration_since(self.instant);
        let wall_time = self.time.checked_sub(ago).and_then(|time| time.checked_add(ahead));
        wall_time.unwrap_or(self.time)
    }
}
