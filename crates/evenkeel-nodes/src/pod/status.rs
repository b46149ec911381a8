//! Status of a pod, as a strategic merge patch with the fields that changed since the last write.

pub(crate) use evenkeel_api::time::seconds;
use evenkeel_api::{
    time::Timestamp,
    views::{ContainerStatus, PodStatus},
};
use evenkeel_shell::later;
use serde_json::{Map, Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{
    facts::{Container, Facts},
    memory::{
        Condition, ConditionType, Ended, Group, Memory, Phase, Slot, State, StopReason, Stopping,
    },
};

/// Message of a pod that exceeded `activeDeadlineSeconds`.
pub(crate) const DEADLINE_MESSAGE: &str =
    "Pod was active on the node longer than the specified deadline";

/// Returns the patch that updates the API server's status to `memory`; `None` if nothing changed. Records the patched
/// fields in `memory.written`.
pub(crate) fn patch(
    facts: &Facts<'_>,
    memory: &mut Memory,
    phase: Phase,
    now: Timestamp,
) -> Option<String> {
    let mut status = Map::new();
    if !memory.rejected {
        add_container_changes(facts, memory, phase, now, &mut status);
    }
    let is_running = memory.is_running();
    let written = &mut memory.written;
    // As in upstream, the written phase is not terminal while containers run and hold resources.
    let is_delayed = phase.is_terminal() && is_running;
    if written.phase != phase && !is_delayed {
        written.phase = phase;
        status.insert("phase".into(), phase.as_str().into());
        if let Some((reason, message)) = reason(facts, memory.stopping, phase) {
            status.insert("reason".into(), reason.into());
            status.insert("message".into(), message.into());
        }
    }
    if !written.start {
        written.start = true;
        status.insert("startTime".into(), seconds(memory.start).into());
        status.insert("hostIP".into(), facts.host_ip.to_string().into());
        status.insert("hostIPs".into(), json!([{ "ip": facts.host_ip.to_string() }]));
        if phase == Phase::Pending {
            status.insert("phase".into(), phase.as_str().into());
        }
    }
    if memory.sandbox && !written.address {
        written.address = true;
        status.insert("podIP".into(), memory.ip.to_string().into());
        status.insert("podIPs".into(), json!([{ "ip": memory.ip.to_string() }]));
    }
    if written.generation != facts.generation {
        written.generation = facts.generation;
        status.insert("observedGeneration".into(), facts.generation.into());
    }
    if status.is_empty() {
        return None;
    }
    Some(json!({ "metadata": { "uid": facts.uid }, "status": status }).to_string())
}

/// Marks the container statuses as written, after `memory` was recovered from the object's status. A container that has
/// become ready, or unready, since that was written is written again.
pub(crate) fn assume_written(
    facts: &Facts<'_>,
    memory: &mut Memory,
    stored: &PodStatus,
    now: Timestamp,
) {
    let hash = |group, stored: &[ContainerStatus]| {
        let mut statuses =
            container_statuses(facts, facts.group(group), memory.group(group), group, now);
        for status in &mut statuses {
            if let Some(found) = stored.iter().find(|found| status["name"] == *found.name) {
                status["ready"] = found.ready.into();
            }
        }
        hash_statuses(&statuses)
    };
    let inits = hash(Group::Init, &stored.init_container_statuses);
    let mains = hash(Group::Main, &stored.container_statuses);
    let ephemerals = hash(Group::Ephemeral, &stored.ephemeral_container_statuses);
    (memory.written.inits, memory.written.mains) = (inits, mains);
    memory.written.ephemerals = ephemerals;
}

/// Adds the changed conditions and container statuses to `status`.
fn add_container_changes(
    facts: &Facts<'_>,
    memory: &mut Memory,
    phase: Phase,
    now: Timestamp,
    status: &mut Map<String, Value>,
) {
    let changed = conditions(facts, memory, phase, now);
    if !changed.is_empty() {
        status.insert("conditions".into(), changed.into());
    }
    for (group, key) in [
        (Group::Init, "initContainerStatuses"),
        (Group::Main, "containerStatuses"),
        (Group::Ephemeral, "ephemeralContainerStatuses"),
    ] {
        let (specs, slots) = (facts.group(group), memory.group(group));
        let statuses = container_statuses(facts, specs, slots, group, now);
        let hash = hash_statuses(&statuses);
        let written = match group {
            Group::Init => &mut memory.written.inits,
            Group::Main => &mut memory.written.mains,
            Group::Ephemeral => &mut memory.written.ephemerals,
        };
        if *written != hash {
            *written = hash;
            status.insert(key.into(), statuses.into());
        }
    }
}

/// Returns reason and message of the pod's status.
fn reason(facts: &Facts<'_>, stopping: Option<Stopping>, phase: Phase) -> Option<(String, String)> {
    match (&facts.rejection, stopping) {
        (Some(rejection), _) => Some((
            rejection.reason.name().to_owned(),
            format!("Pod was rejected: {}", rejection.message),
        )),
        (None, Some(Stopping { reason: StopReason::Deadline, .. })) if phase == Phase::Failed => {
            Some(("DeadlineExceeded".into(), DEADLINE_MESSAGE.into()))
        }
        _ => None,
    }
}

/// Returns the changed conditions, each with all fields.
fn conditions(facts: &Facts<'_>, memory: &mut Memory, phase: Phase, now: Timestamp) -> Vec<Value> {
    let mut changed = Vec::new();
    for (index, kind) in ConditionType::ALL.into_iter().enumerate() {
        let (status, reason, message) = condition(kind, facts, memory, phase, now);
        let old = memory.written.conditions[index].take();
        let since = old.as_ref().filter(|old| old.status == status).map_or(now, |old| old.since);
        let new = Condition {
            status,
            reason: reason.into(),
            message: message.into(),
            since,
            generation: facts.generation,
        };
        if old.as_ref() != Some(&new) {
            changed.push(condition_json(kind, &new, old.as_ref()));
        }
        memory.written.conditions[index] = Some(new);
    }
    changed
}

/// Returns a condition with all fields. A field that `old` has and `new` lacks is null.
fn condition_json(kind: ConditionType, new: &Condition, old: Option<&Condition>) -> Value {
    let mut fields = Map::new();
    fields.insert("type".into(), kind.as_str().into());
    fields.insert("status".into(), if new.status { "True" } else { "False" }.into());
    fields.insert("lastProbeTime".into(), Value::Null);
    fields.insert("lastTransitionTime".into(), seconds(new.since).into());
    if new.generation != 0 {
        fields.insert("observedGeneration".into(), new.generation.into());
    }
    // A strategic merge patch keeps a field that it omits and removes a field that is null.
    for (key, value, before) in [
        ("reason", &new.reason, old.map(|old| &old.reason)),
        ("message", &new.message, old.map(|old| &old.message)),
    ] {
        if !value.is_empty() {
            fields.insert(key.into(), (**value).into());
        } else if before.is_some_and(|text| !text.is_empty()) {
            fields.insert(key.into(), Value::Null);
        }
    }
    Value::Object(fields)
}

/// Returns status, reason and message of one condition. Upstream: `pkg/kubelet/status/generate.go`.
fn condition(
    kind: ConditionType,
    facts: &Facts<'_>,
    memory: &Memory,
    phase: Phase,
    now: Timestamp,
) -> (bool, &'static str, String) {
    match kind {
        ConditionType::ReadyToStartContainers
            if memory.sandbox && (!phase.is_terminal() || memory.is_running()) =>
        {
            (true, "", String::new())
        }
        ConditionType::ReadyToStartContainers => {
            (false, "PodSandboxNotReady", "no pod sandbox exists".into())
        }
        ConditionType::Initialized => initialized(facts, memory, phase),
        ConditionType::ContainersReady => containers_ready(facts, memory, phase, now),
        ConditionType::Ready => match containers_ready(facts, memory, phase, now) {
            (true, ..) => readiness_gates(facts),
            unready => unready,
        },
    }
}

/// Returns status, reason and message of the condition `Initialized`.
fn initialized(facts: &Facts<'_>, memory: &Memory, phase: Phase) -> (bool, &'static str, String) {
    if phase == Phase::Succeeded {
        return (true, "PodCompleted", String::new());
    }
    let started = |slot: &Slot| {
        slot.last.is_some() || matches!(slot.state, State::Running { .. } | State::Ended(_))
    };
    if memory.mains.iter().any(started) {
        return (true, "", String::new());
    }
    let pairs = facts.inits.iter().zip(&*memory.inits);
    let incomplete: Vec<&str> = pairs
        .filter(|(container, slot)| !has_passed(container, slot))
        .map(|(container, _)| container.name)
        .collect();
    if incomplete.is_empty() {
        return (true, "", String::new());
    }
    (
        false,
        "ContainersNotInitialized",
        format!("containers with incomplete status: [{}]", incomplete.join(" ")),
    )
}

/// Returns whether an init container lets the next container start: it has succeeded or, as a sidecar, runs.
fn has_passed(container: &Container<'_>, slot: &Slot) -> bool {
    if container.sidecar {
        slot.running().is_some()
    } else {
        slot.ended().is_some_and(|ended| ended.exit_code == 0)
    }
}

/// Returns status, reason and message of the condition `ContainersReady`.
fn containers_ready(
    facts: &Facts<'_>,
    memory: &Memory,
    phase: Phase,
    now: Timestamp,
) -> (bool, &'static str, String) {
    match phase {
        Phase::Succeeded => return (false, "PodCompleted", String::new()),
        Phase::Failed => return (false, "PodFailed", String::new()),
        Phase::Pending | Phase::Running => {}
    }
    let sidecars =
        facts.inits.iter().zip(&*memory.inits).filter(|(container, _)| container.sidecar);
    let pairs = sidecars.chain(facts.mains.iter().zip(&*memory.mains));
    let unready: Vec<&str> = pairs
        .filter(|(container, slot)| !is_ready(container, slot, now))
        .map(|(container, _)| container.name)
        .collect();
    if unready.is_empty() {
        return (true, "", String::new());
    }
    (
        false,
        "ContainersNotReady",
        format!("containers with unready status: [{}]", unready.join(" ")),
    )
}

/// Returns status, reason and message of the condition `Ready` of a pod whose containers are ready.
fn readiness_gates(facts: &Facts<'_>) -> (bool, &'static str, String) {
    let unmet: Vec<String> = facts
        .gates
        .iter()
        .filter_map(|(gate, status)| match status {
            None => Some(format!(
                "corresponding condition of pod readiness gate {gate:?} does not exist."
            )),
            Some("True") => None,
            Some(other) => Some(format!(
                "the status of pod readiness gate {gate:?} is not \"True\", but {other}"
            )),
        })
        .collect();
    if unmet.is_empty() {
        (true, "", String::new())
    } else {
        (false, "ReadinessGatesNotReady", unmet.join(", "))
    }
}

/// Returns whether the container runs and its readiness probe succeeds.
fn is_ready(container: &Container<'_>, slot: &Slot, now: Timestamp) -> bool {
    let script = &container.script;
    let since = slot.running().filter(|_| script.ready && !slot.unready);
    since.is_some_and(|since| now >= later(since, script.ready_delay))
}

/// Returns the statuses of a group of containers.
fn container_statuses(
    facts: &Facts<'_>,
    specs: &[Container<'_>],
    slots: &[Slot],
    group: Group,
    now: Timestamp,
) -> Vec<Value> {
    let ready = |container: &Container<'_>, slot: &Slot| {
        match group {
            Group::Init if !container.sidecar => has_passed(container, slot),
            Group::Init | Group::Main => is_ready(container, slot, now),
            // An ephemeral container does not count for the pod's readiness.
            Group::Ephemeral => false,
        }
    };
    specs
        .iter()
        .zip(slots)
        .map(|(container, slot)| container_status(facts, container, slot, ready(container, slot)))
        .collect()
}

/// Returns a hash of container statuses; 0 without statuses.
fn hash_statuses(statuses: &[Value]) -> u64 {
    if statuses.is_empty() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    for status in statuses {
        status.to_string().hash(&mut hasher);
    }
    hasher.finish().max(1)
}

fn container_status(
    facts: &Facts<'_>,
    container: &Container<'_>,
    slot: &Slot,
    ready: bool,
) -> Value {
    let mut fields = Map::new();
    let id_of_run = |run: u32| container_id(facts.uid, container.name, run);
    let id = id_of_run(slot.restarts);
    let has_run = match slot.state {
        State::Running { .. } => true,
        State::Ended(ended) => ended.started.is_some(),
        _ => false,
    };
    let pulled = has_run || slot.last.is_some();
    if pulled {
        fields.insert("containerID".into(), id.clone().into());
    }
    fields.insert("image".into(), container.image.into());
    fields.insert(
        "imageID".into(),
        if pulled { image_id(container.image) } else { String::new() }.into(),
    );
    // During the backoff, the restart is not counted yet, so the last run has the current number.
    let last_id = if matches!(slot.state, State::BackOff { .. }) {
        id.clone()
    } else {
        id_of_run(slot.restarts.saturating_sub(1))
    };
    let last = slot
        .last
        .map_or_else(|| json!({}), |last| json!({ "terminated": ended_json(last, &last_id) }));
    fields.insert("lastState".into(), last);
    fields.insert("name".into(), container.name.into());
    fields.insert("ready".into(), ready.into());
    fields.insert("restartCount".into(), slot.restarts.into());
    fields.insert("started".into(), slot.running().is_some().into());
    fields.insert("state".into(), state_json(facts, container, slot, &id));
    Value::Object(fields)
}

/// Returns the state of a container; `id` is the container ID of its run.
fn state_json(facts: &Facts<'_>, container: &Container<'_>, slot: &Slot, id: &str) -> Value {
    let waiting = |reason: &str, message: String| json!({ "waiting": { "reason": reason, "message": message } });
    match slot.state {
        State::Waiting | State::Creating { .. } => {
            let reason =
                if facts.inits.is_empty() { "ContainerCreating" } else { "PodInitializing" };
            json!({ "waiting": { "reason": reason } })
        }
        State::PullError { .. } => waiting("ErrImagePull", pull_error(container.image)),
        State::PullBackOff => waiting("ImagePullBackOff", pull_back_off(container.image)),
        State::BackOff { until } => {
            let wait = slot.last.map_or(0, |last| until.as_second() - last.finished.as_second());
            let pod = format!("{}_{}({})", facts.name, facts.namespace, facts.uid);
            let message = format!(
                "back-off {} restarting failed container={} pod={pod}",
                go_seconds(wait),
                container.name
            );
            waiting("CrashLoopBackOff", message)
        }
        State::Running { since } => json!({ "running": { "startedAt": seconds(since) } }),
        State::Ended(ended) => json!({ "terminated": ended_json(ended, id) }),
    }
}

/// Returns the state `terminated` of a run with this container ID.
fn ended_json(ended: Ended, id: &str) -> Value {
    let Some(started) = ended.started else {
        return json!({
            "exitCode": ended.exit_code,
            "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was terminated",
            "startedAt": null,
            "finishedAt": null,
        });
    };
    json!({
        "containerID": id,
        "exitCode": ended.exit_code,
        "reason": if ended.exit_code == 0 { "Completed" } else { "Error" },
        "startedAt": seconds(started),
        "finishedAt": seconds(ended.finished),
    })
}

/// Returns the message of a failed image pull.
pub(crate) fn pull_error(image: &str) -> String {
    format!("failed to pull image {image:?}: the simulation says that it cannot be pulled")
}

/// Returns the message of an image pull in backoff.
pub(crate) fn pull_back_off(image: &str) -> String {
    format!("Back-off pulling image {image:?}")
}

/// Returns the event message for a container in CrashLoopBackOff.
pub(crate) fn back_off_message(facts: &Facts<'_>, container: &str) -> String {
    let (name, namespace, uid) = (facts.name, facts.namespace, facts.uid);
    format!("Back-off restarting failed container {container} in pod {name}_{namespace}({uid})")
}

/// Formats seconds below one hour as a Go duration.
fn go_seconds(seconds: i64) -> String {
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    if minutes == 0 { format!("{seconds}s") } else { format!("{minutes}m{seconds}s") }
}

/// Returns the container ID of a run. It depends only on the arguments.
fn container_id(uid: &str, container: &str, run: u32) -> String {
    format!("sim://{}", digest(&(uid, container, run)))
}

/// Returns the image ID. It depends only on the image's name.
fn image_id(image: &str) -> String {
    format!("{image}@sha256:{}", digest(&image))
}

/// Returns a digest of 64 hexadecimal digits; it is not cryptographic.
fn digest(value: &impl Hash) -> String {
    (0_u8..4)
        .map(|part| {
            let mut hasher = DefaultHasher::new();
            part.hash(&mut hasher);
            value.hash(&mut hasher);
            format!("{:016x}", hasher.finish())
        })
        .collect()
}
