//! Recorder of a simulated cluster: watches its caches, and records events.

use crate::recording::{Amounts, EventKind, NodeRecord, PodRecord, RecordedEvent, Write};
use evenkeel_api::{
    Meta,
    condition::{self, FALSE, TRUE},
    template::HASH_LABEL,
    time::Timestamp,
    views::{Node, Pod, PodDisruptionBudget},
};
use evenkeel_component_helpers::resource::pod_requests;
use evenkeel_runtime::{
    cache::{CacheEvent, Caches},
    clock::Clock,
};
use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Maximum number of recorded events. It bounds the memory of long runs of large clusters.
const MAX_EVENTS: usize = 2_000_000;

/// Recorder of a run. Clones share the recording.
#[derive(Clone)]
pub(crate) struct Recorder {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

/// Events and writes since the start of the recording.
#[derive(Default)]
struct State {
    /// Start of the recording; `None` while the cluster settles.
    start: Option<Timestamp>,
    /// Time of the last event that is not about a Job's pod.
    last_change: Option<Timestamp>,
    happened: Vec<RecordedEvent>,
    unrecorded: u64,
    writes: BTreeMap<Write, u64>,
}

/// Result of a recording.
pub(crate) struct Recorded {
    pub(crate) happened: Vec<RecordedEvent>,
    pub(crate) unrecorded: u64,
    pub(crate) writes: BTreeMap<Write, u64>,
}

impl Recorder {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self { clock: clock.clone(), state: Arc::default() }
    }

    /// Records every change of pods, nodes and budgets in these caches.
    pub(crate) fn subscribe(&self, caches: &Caches) {
        let recorder = self.clone();
        caches.of::<Pod>().subscribe(move |event| {
            let job = is_of_job(event.object());
            for what in pod_events(event) {
                recorder.record("Pod", full_name(&event.object().meta), what, job);
            }
        });
        let recorder = self.clone();
        caches.of::<Node>().subscribe(move |event| {
            for what in node_events(event) {
                recorder.record("Node", event.object().meta.name.to_string(), what, false);
            }
        });
        let recorder = self.clone();
        caches.of::<PodDisruptionBudget>().subscribe(move |event| {
            if let Some(what) = budget_event(event) {
                let name = full_name(&event.object().meta);
                recorder.record("PodDisruptionBudget", name, what, false);
            }
        });
    }

    /// Starts the recording: drops earlier events and writes.
    pub(crate) fn begin(&self) -> Timestamp {
        let now = self.clock.now();
        *self.lock() = State { start: Some(now), ..State::default() };
        now
    }

    /// Returns the time since the last event, or since this time if there was none.
    pub(crate) fn quiet_since(&self, start: Timestamp) -> Duration {
        let last = self.lock().last_change.unwrap_or(start);
        self.clock.now().duration_since(last).unsigned_abs()
    }

    /// Records an event about a part of the change.
    pub(crate) fn record_change(&self, description: &str, what: EventKind) {
        self.record("Change", description.to_owned(), what, false);
    }

    /// Records that a budget refused the eviction of a pod.
    pub(crate) fn record_refusal(&self, budget: String, pod: String) {
        self.record("PodDisruptionBudget", budget, EventKind::Refused { pod }, false);
    }

    /// Counts an executed write.
    pub(crate) fn count(&self, write: Write) {
        let mut state = self.lock();
        if state.start.is_some() {
            *state.writes.entry(write).or_default() += 1;
        }
    }

    /// Ends the recording, and returns it.
    pub(crate) fn take(&self) -> Recorded {
        let State { happened, unrecorded, writes, .. } = mem::take(&mut *self.lock());
        Recorded { happened, unrecorded, writes }
    }

    fn record(&self, kind: &'static str, object: String, what: EventKind, job: bool) {
        let now = self.clock.now();
        let mut state = self.lock();
        if !job {
            state.last_change = Some(now);
        }
        let Some(start) = state.start else { return };
        if state.happened.len() >= MAX_EVENTS {
            state.unrecorded += 1;
            return;
        }
        let after = now.duration_since(start).unsigned_abs();
        state.happened.push(RecordedEvent { after, kind, object, what });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns namespace and name of an object, or its name if it is cluster-scoped.
pub(crate) fn full_name(meta: &Meta) -> String {
    if meta.namespace.is_empty() {
        meta.name.to_string()
    } else {
        format!("{}/{}", meta.namespace, meta.name)
    }
}

/// Returns the record of a pod.
pub(crate) fn pod_record(pod: &Pod) -> PodRecord {
    let mut requests = Amounts::default();
    for (name, amount) in pod_requests(pod, &[]) {
        match name {
            "cpu" => requests.cpu_millis = amount.milli_value(),
            "memory" => requests.memory = amount.value(),
            _ => {}
        }
    }
    PodRecord {
        workload: workload(pod),
        node: pod.spec.node_name.to_string(),
        requests,
        ready: is_ready(pod),
        ended: has_ended(pod),
        unschedulable: unschedulable(pod).to_owned(),
    }
}

/// Returns the record of a node.
pub(crate) fn node_record(node: &Node) -> NodeRecord {
    let mut allocatable = Amounts::default();
    for (name, amount) in node.status.allocatable.iter() {
        match name {
            "cpu" => allocatable.cpu_millis = amount.milli_value(),
            "memory" => allocatable.memory = amount.value(),
            _ => {}
        }
    }
    NodeRecord { allocatable, ready: is_node_ready(node) }
}

/// Returns kind, namespace and name of the workload that owns a pod: for a ReplicaSet of a Deployment, the Deployment.
fn workload(pod: &Pod) -> String {
    let Some(owner) = pod.meta.controller() else { return String::new() };
    let hash = pod.meta.labels.get(HASH_LABEL).filter(|_| &*owner.kind == "ReplicaSet");
    let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'));
    let (kind, name) = match deployment {
        Some(name) => ("Deployment", name),
        None => (&*owner.kind, &*owner.name),
    };
    format!("{kind} {}/{name}", pod.meta.namespace)
}

fn is_of_job(pod: &Pod) -> bool {
    pod.meta.controller().is_some_and(|owner| &*owner.kind == "Job")
}

fn is_ready(pod: &Pod) -> bool {
    condition::is_true(&pod.status.conditions, "Ready")
}

/// Returns the reason of a condition if it is true.
fn has_condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a str> {
    let found = condition::find(&pod.status.conditions, kind)?;
    (&*found.status == TRUE).then_some(&*found.reason)
}

fn has_ended(pod: &Pod) -> bool {
    matches!(&*pod.status.phase, "Succeeded" | "Failed")
}

/// Returns the scheduler's message about an unschedulable pod; empty for other pods.
fn unschedulable(pod: &Pod) -> &str {
    let found = condition::find(&pod.status.conditions, "PodScheduled");
    let found = found.filter(|found| &*found.status == FALSE && pod.spec.node_name.is_empty());
    found.map_or("", |found| &found.message)
}

fn is_node_ready(node: &Node) -> bool {
    condition::is_true(&node.status.conditions, "Ready")
}

/// Returns the events that a cache event of a pod stands for.
fn pod_events(event: &CacheEvent<Pod>) -> Vec<EventKind> {
    let mut events = Vec::new();
    match event {
        CacheEvent::Added { object, .. } => {
            events.push(EventKind::Created { pod: pod_record(object) });
        }
        CacheEvent::Updated { old, new } => {
            if old.spec.node_name.is_empty() && !new.spec.node_name.is_empty() {
                events.push(EventKind::Bound { node: new.spec.node_name.to_string() });
            }
            let message = unschedulable(new);
            if !message.is_empty() && message != unschedulable(old) {
                events.push(EventKind::Unschedulable { message: message.to_owned() });
            }
            if new.meta.deleting() && !old.meta.deleting() {
                events.push(deletion_event(new));
            }
            match (is_ready(old), is_ready(new)) {
                (false, true) => events.push(EventKind::Ready),
                (true, false) => events.push(EventKind::NotReady),
                _ => {}
            }
            if has_ended(new) && !has_ended(old) {
                events.push(EventKind::Ended { phase: new.status.phase.to_string() });
            }
        }
        CacheEvent::Deleted(object) => {
            if !object.meta.deleting() {
                events.push(deletion_event(object));
            }
            events.push(EventKind::Removed);
        }
    }
    events
}

/// Returns the event of a pod's deletion: evicted or deleted.
fn deletion_event(pod: &Pod) -> EventKind {
    match has_condition(pod, "DisruptionTarget") {
        Some(reason) => EventKind::Evicted { reason: reason.to_owned() },
        None => EventKind::Deleted,
    }
}

/// Returns the events that a cache event of a node stands for.
fn node_events(event: &CacheEvent<Node>) -> Vec<EventKind> {
    match event {
        CacheEvent::Added { object, .. } => vec![EventKind::Added { node: node_record(object) }],
        CacheEvent::Updated { old, new } => {
            let ready = match (is_node_ready(old), is_node_ready(new)) {
                (false, true) => Some(EventKind::Ready),
                (true, false) => Some(EventKind::NotReady),
                _ => None,
            };
            let cordon = match (old.spec.unschedulable, new.spec.unschedulable) {
                (false, true) => Some(EventKind::Cordoned),
                (true, false) => Some(EventKind::Uncordoned),
                _ => None,
            };
            ready.into_iter().chain(cordon).collect()
        }
        CacheEvent::Deleted(_) => vec![EventKind::Removed],
    }
}

/// Returns the event that a cache event of a budget stands for; `None` if the allowed disruptions are unchanged.
fn budget_event(event: &CacheEvent<PodDisruptionBudget>) -> Option<EventKind> {
    let disruptions = event.object().status.disruptions_allowed;
    match event {
        CacheEvent::Added { .. } => Some(EventKind::Allows { disruptions }),
        CacheEvent::Updated { old, .. } => (old.status.disruptions_allowed != disruptions)
            .then_some(EventKind::Allows { disruptions }),
        CacheEvent::Deleted(_) => Some(EventKind::Removed),
    }
}
