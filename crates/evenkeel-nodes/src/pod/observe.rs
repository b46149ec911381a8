//! Observes a pod. Its facts come from the cached object. The memory of a pod that this process has not synced comes
//! from the pod's status.

use evenkeel_api::{
    time::Timestamp,
    views::{Container as ViewContainer, ContainerStateTerminated, ContainerStatus, Pod},
};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    net::Ipv4Addr,
    sync::Arc,
    time::Duration,
};

use super::plan::{INITIAL_CRASH_LOOP_BACKOFF, MAX_CRASH_LOOP_BACKOFF};
use super::{
    facts::{Container, Facts, RestartPolicy},
    memory::{Condition, ConditionType, Ended, Memory, Phase, Slot, State},
    status,
};
use crate::{
    Delays,
    annotations::PREFIX,
    behaviors::{self, Behavior},
    behaviour,
};
use evenkeel_shell::later;

/// Returns the facts of `pod` on the node with the address `host_ip`. The caller must replace the two default facts
/// that the volumes can be mounted, and that the node admits the pod. `behaviors` select the pod, and are sorted by
/// precedence.
pub(crate) fn facts<'a>(
    pod: &'a Pod,
    host_ip: Ipv4Addr,
    delays: &Delays,
    behaviors: &[Arc<Behavior>],
    normal_events: bool,
) -> Facts<'a> {
    let spec = &pod.spec;
    let is_of_job = pod.meta.controller().is_some_and(|owner| &*owner.kind == "Job");
    let run_time = if is_of_job { delays.job } else { None };
    let container_facts = |container: &'a ViewContainer, init: bool| {
        let sidecar = init && &*container.restart_policy == "Always";
        let container_run_time = if sidecar {
            None
        } else if init {
            Some(delays.init)
        } else if evenkeel_shell::entrypoint_is_pause(&container.image) {
            None
        } else {
            run_time
        };
        let restart_policy = if container.restart_policy.is_empty() {
            &spec.restart_policy
        } else {
            &container.restart_policy
        };
        let mut script = behaviour::defaults(delays, container_run_time);
        script.ready_delay = script.ready_delay.max(first_probe_delay(container));
        script.pullable = behaviour::is_pullable(&container.image);
        let script = behaviors::apply(behaviors, pod, &container.name, script);
        Container {
            name: &container.name,
            image: &container.image,
            image_at: None,
            sidecar,
            restart_policy: RestartPolicy::parse(restart_policy),
            script: behaviour::read(&pod.meta.annotations, &container.name, script),
            process: None,
        }
    };
    Facts {
        namespace: &pod.meta.namespace,
        name: &pod.meta.name,
        uid: &pod.meta.uid,
        generation: pod.meta.generation,
        deletion: pod.meta.deletion,
        deadline: spec.active_deadline_seconds.map(seconds),
        grace: seconds(
            pod.meta.deletion_grace_seconds.or(spec.termination_grace_period_seconds).unwrap_or(30),
        ),
        host_ip,
        inits: spec.init_containers.iter().map(|spec| container_facts(spec, true)).collect(),
        mains: spec.containers.iter().map(|spec| container_facts(spec, false)).collect(),
        ephemerals: spec
            .ephemeral_containers
            .iter()
            .map(|ephemeral| {
                let common = &ephemeral.common;
                let mut script = behaviour::defaults(delays, None);
                script.pullable = behaviour::is_pullable(&common.image);
                let script = behaviors::apply(behaviors, pod, &common.name, script);
                Container {
                    name: &common.name,
                    image: &common.image,
                    image_at: None,
                    sidecar: false,
                    restart_policy: RestartPolicy::Never,
                    script: behaviour::read(&pod.meta.annotations, &common.name, script),
                    process: None,
                }
            })
            .collect(),
        gates: spec
            .readiness_gates
            .iter()
            .map(|gate| (&*gate.condition_type, condition(pod, &gate.condition_type)))
            .collect(),
        mounted: true,
        rejection: None,
        annotation_errors: annotation_errors(pod),
        normal_events,
        node_files: Arc::default(),
        exits: Vec::new(),
    }
}

/// Returns the time from a container's start to its first readiness probe, which also waits for the startup probe.
fn first_probe_delay(container: &ViewContainer) -> Duration {
    let probes = [&container.startup_probe, &container.readiness_probe];
    let delays = probes.into_iter().flatten().map(|probe| probe.initial_delay_seconds);
    seconds(delays.max().unwrap_or_default().into())
}

/// Returns the status of the pod's condition of this type.
fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a str> {
    pod.status
        .conditions
        .iter()
        .find(|condition| &*condition.type_ == kind)
        .map(|condition| &*condition.status)
}

/// Returns a duration of this many seconds; zero for a negative number.
fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}

/// Returns the errors in the pod's simulation annotations, with their hash (0 without errors).
fn annotation_errors(pod: &Pod) -> (u64, Vec<String>) {
    let annotations = &pod.meta.annotations;
    if !annotations.iter().any(|(key, _)| key.starts_with(PREFIX)) {
        return (0, Vec::new());
    }
    let spec = &pod.spec;
    let containers = spec.init_containers.iter().chain(&*spec.containers);
    let ephemerals = spec.ephemeral_containers.iter().map(|ephemeral| &*ephemeral.common.name);
    let names: Vec<&str> = containers.map(|container| &*container.name).chain(ephemerals).collect();
    let errors = behaviour::annotation_errors(annotations, &names);
    if errors.is_empty() {
        return (0, errors);
    }
    let mut hasher = DefaultHasher::new();
    errors.hash(&mut hasher);
    (hasher.finish().max(1), errors)
}

/// Returns the memory of a pod that this process has not synced, recovered from the pod's status.
pub(crate) fn recover_memory(pod: &Pod, facts: &Facts<'_>, ip: Ipv4Addr, now: Timestamp) -> Memory {
    let mut memory = Memory::fresh(facts.inits.len(), facts.mains.len(), ip, now);
    memory.add_ephemerals(facts.ephemerals.len());
    let status = &pod.status;
    memory.written.phase = Phase::parse(&status.phase);
    memory.rejected = memory.written.phase.is_terminal() && status.container_statuses.is_empty();
    let Some(start) = status.start_time else { return memory };
    memory.start = start;
    memory.written.start = true;
    memory.written.generation = status.observed_generation;
    memory.written.address = !status.pod_ip.is_empty();
    memory.sandbox = memory.written.address;
    recover_slots(&mut memory.inits, &facts.inits, &status.init_container_statuses, now);
    recover_slots(&mut memory.mains, &facts.mains, &status.container_statuses, now);
    let ephemerals = &status.ephemeral_container_statuses;
    recover_slots(&mut memory.ephemerals, &facts.ephemerals, ephemerals, now);
    for (kind, slot) in ConditionType::ALL.into_iter().zip(&mut memory.written.conditions) {
        *slot =
            status.conditions.iter().find(|found| &*found.type_ == kind.as_str()).map(|found| {
                Condition {
                    status: &*found.status == "True",
                    reason: found.reason.clone(),
                    message: found.message.clone(),
                    since: found.last_transition_time.unwrap_or(start),
                    generation: found.observed_generation,
                }
            });
    }
    if !status.container_statuses.is_empty() {
        status::assume_written(facts, &mut memory, status, now);
    }
    memory
}

/// Updates the memory of written conditions if another writer has changed their status, so that the next sync writes
/// them again.
pub(crate) fn notice_changes(pod: &Pod, memory: &mut Memory) {
    if pod.meta.version() <= memory.version {
        return;
    }
    for (kind, slot) in ConditionType::ALL.into_iter().zip(&mut memory.written.conditions) {
        let (Some(written), Some(found)) = (slot.as_mut(), condition(pod, kind.as_str())) else {
            continue;
        };
        written.status = found == "True";
    }
}

/// Recovers the state of each container that has a status.
fn recover_slots(
    slots: &mut [Slot],
    specs: &[Container<'_>],
    statuses: &[ContainerStatus],
    now: Timestamp,
) {
    for (slot, spec) in slots.iter_mut().zip(specs) {
        let Some(found) = statuses.iter().find(|status| &*status.name == spec.name) else {
            continue;
        };
        slot.restarts = u32::try_from(found.restart_count).unwrap_or(0);
        slot.last = found.last_state.terminated.as_deref().map(|ended| recover_ended(ended, now));
        let state = &found.state;
        slot.state = if let Some(running) = &state.running {
            State::Running { since: running.started_at.unwrap_or(now) }
        } else if let Some(ended) = &state.terminated {
            State::Ended(recover_ended(ended, now))
        } else {
            match (state.waiting.as_deref().map(|waiting| &*waiting.reason), slot.last) {
                (Some("CrashLoopBackOff"), Some(last)) => {
                    // The status lacks the end of the backoff. Assume that all crashes followed each other.
                    let n_doublings = slot.restarts.saturating_sub(1).min(5);
                    let delay = INITIAL_CRASH_LOOP_BACKOFF.saturating_mul(1 << n_doublings);
                    State::BackOff {
                        until: later(last.finished, delay.min(MAX_CRASH_LOOP_BACKOFF)),
                    }
                }
                (Some("ImagePullBackOff"), _) => State::PullBackOff,
                (Some("ErrImagePull"), _) => State::PullError { until: now },
                _ => State::Waiting,
            }
        };
        if let State::BackOff { until } = slot.state {
            let started = slot.last.map_or(until, |last| last.finished);
            let delay = Duration::try_from(until.duration_since(started)).unwrap_or_default();
            let next_delay = delay.saturating_mul(2).min(MAX_CRASH_LOOP_BACKOFF);
            slot.backoff = Some((next_delay, until));
        }
    }
}

/// Recovers the end of a run; a missing end time is now.
fn recover_ended(ended: &ContainerStateTerminated, now: Timestamp) -> Ended {
    Ended {
        started: ended.started_at,
        finished: ended.finished_at.unwrap_or(now),
        exit_code: ended.exit_code,
        killed: false,
    }
}
