//! Causes of an object's state that its own fields and events contain.
//!
//! | documented | function |
//! |---|---|
//! | phases, conditions and container states of pods | [`of_pod`] |
//! | conditions of other kinds | [`of_conditions`] |
//! | pods whose kubelets have not started them | [`of_binding`] |
//! | Services and budgets that select no pod | [`of_selected`], [`of_spec`] |
//! | deletion, grace periods and finalizers | [`of_deletion`] |
//! | pauses, suspensions, zero replicas, cordons, unbound claims, missing addresses | [`of_spec`] |
//! | events of type Warning | [`of_events`] |

use crate::{
    cause::{Cause, grouped},
    objects::{Objects, is_bound_and_not_started},
};
use evenkeel_api::time::{self, Timestamp};
use evenkeel_runtime::introspect::Subject;
use evenkeel_scheduler::DEFAULT_SCHEDULER;
use serde_json::Value;
use std::collections::BTreeSet;

/// Conditions that are a problem when they are not True.
const GOOD_CONDITIONS: [&str; 12] = [
    "Ready",
    "Available",
    "Progressing",
    "Established",
    "NamesAccepted",
    "ScalingActive",
    "AbleToScale",
    "DisruptionAllowed",
    "Accepted",
    "Programmed",
    "Valid",
    "Synced",
];

/// Conditions that are a problem when they are True.
const BAD_CONDITIONS: [&str; 14] = [
    "Failed",
    "FailureTarget",
    "ReplicaFailure",
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
    "NetworkUnavailable",
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionContentFailure",
    "NamespaceContentRemaining",
    "NamespaceFinalizersRemaining",
    "NonStructuralSchema",
    "Stalled",
    "Degraded",
];

/// Harmless reasons of waiting containers: every container has them before it starts.
const USUAL_WAITS: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Reason of conditions that only repeat the object's state. Another cause explains that state.
const TAUTOLOGY: &str = "(MinimumReplicasUnavailable)";

/// Annotation of simulated nodes that partitions them from the API server: `true`, or `until` and a time.
const SILENT: &str = "sim.evenkeel.dev/silent";

/// Maximum number of different warnings of one object.
const MAX_WARNINGS: usize = 3;

/// Returns the causes of several objects, the root first, each with its warnings. Children with the same cause are grouped.
pub fn of_objects(found: &Objects, now: Timestamp) -> Vec<Cause> {
    let causes = found.objects.iter().flat_map(|(subject, object)| {
        of_object(subject, object, found, now).into_iter().map(move |text| Cause {
            object: subject.clone(),
            others: 0,
            text,
        })
    });
    without_repetitions(grouped(causes))
}

/// Leaves out causes that repeat an earlier cause or only follow from another one: a quota's refusal appears as a condition of
/// the Deployment, as a condition of the ReplicaSet, and as a warning.
fn without_repetitions(causes: Vec<Cause>) -> Vec<Cause> {
    let is_known_better = causes.iter().any(|cause| !cause.text.contains(TAUTOLOGY));
    let mut messages: Vec<String> = Vec::new();
    let mut kept: Vec<Cause> = Vec::new();
    for cause in causes {
        if is_known_better && cause.text.contains(TAUTOLOGY) {
            continue;
        }
        if let Some(message) = message_of(&cause.text) {
            if messages.contains(&message) {
                continue;
            }
            messages.push(message);
        }
        kept.push(cause);
    }
    kept
}

/// Returns the message of a condition or a warning, to tell whether another one says the same. Names in quotes may differ:
/// each attempt has another pod.
fn message_of(cause: &str) -> Option<String> {
    let (head, message) = cause.split_once(": ")?;
    let is_condition = head.contains(" is True") || head.contains(" is False");
    if !is_condition && !head.starts_with("warning ") {
        return None;
    }
    let message = message.strip_prefix("Error creating: ").unwrap_or(message);
    let outside = message.split('"').step_by(2);
    Some(outside.collect::<Vec<_>>().join("\"\"").to_lowercase())
}

fn of_object(subject: &Subject, object: &Value, found: &Objects, now: Timestamp) -> Vec<String> {
    let mut causes = Vec::new();
    let is_core = subject.group.is_empty();
    match &*subject.kind {
        "Pod" if is_core => {
            causes.extend(of_pod_deletion(object, &found.nodes, now));
            causes.extend(of_pod(object, found.schedulers.as_deref()));
            causes.extend(of_binding(object, &found.nodes, now));
        }
        _ => {
            causes.extend(of_deletion(object, now));
            causes.extend(of_spec(&subject.kind, object));
            if subject.kind == "Service" && is_core {
                causes.extend(found.selected.as_deref().and_then(|pods| of_selected(object, pods)));
            }
            causes.extend(of_conditions(object));
        }
    }
    let warnings = of_events(object, &found.events);
    let known = causes.join("\n").to_lowercase();
    causes.extend(
        warnings
            .into_iter()
            .filter(|(_, message)| !contain_message(&known, message))
            .map(|(text, _)| text),
    );
    causes
}

/// Returns whether the causes (in lower case) already contain the message of a warning. That of a waiting container often does.
fn contain_message(causes: &str, message: &str) -> bool {
    let message = message.to_lowercase();
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    !message.is_empty() && causes.contains(message)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn items<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

/// Joins the parts that are not empty with `: `.
fn joined(parts: &[&str]) -> String {
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(": ")
}

/// Returns the deletion timestamp and the finalizers of an object; `None` if it is not being deleted.
fn deletion(object: &Value) -> Option<(&str, Vec<&str>)> {
    let metadata = &object["metadata"];
    let at = metadata["deletionTimestamp"].as_str()?;
    let finalizers = items(metadata, "finalizers").chain(items(&object["spec"], "finalizers"));
    Some((at, finalizers.filter_map(Value::as_str).collect()))
}

fn is_past(at: &str, now: Timestamp) -> bool {
    time::parse(at).is_ok_and(|at| at < now)
}

fn stays_for(finalizers: &[&str]) -> String {
    let names = finalizers.join(", ");
    format!("stays until the controllers of its finalizers remove them: {names}")
}

fn of_deletion(object: &Value, now: Timestamp) -> Option<String> {
    let (at, finalizers) = deletion(object)?;
    Some(match finalizers.as_slice() {
        [] if is_past(at, now) => format!("it is being deleted since {at}"),
        [] => format!("it is being deleted, at the latest at {at}"),
        names => format!("it is being deleted since {at}, and {}", stays_for(names)),
    })
}

/// Returns the cause for a pod that is being deleted: its grace period, its finalizers, or a kubelet that does not confirm
/// the deletion. The deletion timestamp of a pod is the end of its grace period. The kubelet stops the containers, and then
/// confirms the deletion.
fn of_pod_deletion(pod: &Value, nodes: &[Value], now: Timestamp) -> Option<String> {
    let (at, finalizers) = deletion(pod)?;
    let is_over = is_past(at, now);
    let head = format!(
        "it is being deleted: its grace period {} at {at}",
        if is_over { "ended" } else { "ends" }
    );
    if !finalizers.is_empty() {
        return Some(format!("{head}, and it {}", stays_for(&finalizers)));
    }
    let node = text(&pod["spec"], "nodeName");
    if !is_over || node.is_empty() {
        return Some(head);
    }
    let trouble =
        trouble_of(node, nodes, now).map_or(String::new(), |trouble| format!("; {trouble}"));
    Some(format!("{head}, and the kubelet of node {node} has not confirmed the deletion{trouble}"))
}

/// Returns why a pod with a node is not started: its kubelet has not reported it.
fn of_binding(pod: &Value, nodes: &[Value], now: Timestamp) -> Option<String> {
    // For a terminating pod, the cause of the deletion explains this.
    if !is_bound_and_not_started(pod) || deletion(pod).is_some() {
        return None;
    }
    let node = text(&pod["spec"], "nodeName");
    let mut conditions = items(&pod["status"], "conditions");
    let bound = conditions.find(|condition| text(condition, "type") == "PodScheduled");
    let since = match bound.map_or("", |condition| text(condition, "lastTransitionTime")) {
        "" => String::new(),
        at => format!(" since {at}"),
    };
    let trouble =
        trouble_of(node, nodes, now).map_or(String::new(), |trouble| format!("; {trouble}"));
    Some(format!(
        "it is bound to node {node}{since}, and the node's kubelet has not started it{trouble}"
    ))
}

/// Returns why the kubelet of a node may do nothing; `None` if the node was not read or no reason is known.
fn trouble_of(node: &str, nodes: &[Value], now: Timestamp) -> Option<String> {
    if nodes.iter().any(|known| known == node) {
        return Some("there is no such node".to_owned());
    }
    let known = nodes.iter().find(|known| text(&known["metadata"], "name") == node)?;
    let is_silent = match text(&known["metadata"]["annotations"], SILENT) {
        "true" => true,
        until => until.strip_prefix("until ").is_some_and(|end| !is_past(end, now)),
    };
    if is_silent {
        return Some(format!(
            "a fault cuts the node off (annotation {SILENT}); `evenkeel fault node/{node} --stop` ends it"
        ));
    }
    let mut conditions = items(&known["status"], "conditions");
    let ready = conditions.find(|condition| text(condition, "type") == "Ready");
    match ready.map_or("", |ready| text(ready, "status")) {
        "Unknown" => Some("the node is unreachable (its Ready condition is Unknown)".to_owned()),
        "False" => Some("the node is not ready (its Ready condition is False)".to_owned()),
        "" => Some("no kubelet has reported the node's Ready condition".to_owned()),
        _ => match ready.map_or("", |ready| text(ready, "lastHeartbeatTime")) {
            "" => None,
            at => Some(format!("the kubelet's last report of the node was at {at}")),
        },
    }
}

/// Returns why a Service leads nowhere: its selector matches no pod, or none that is ready.
fn of_selected(service: &Value, pods: &[Value]) -> Option<String> {
    let selector = service["spec"]["selector"].as_object()?;
    let labels =
        selector.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let labels = labels.collect::<Vec<_>>().join(",");
    let is_ready = |pod: &Value| {
        items(&pod["status"], "conditions").any(|condition| {
            text(condition, "type") == "Ready" && text(condition, "status") == "True"
        })
    };
    match pods.len() {
        0 => Some(format!("its selector {labels} matches no pod of the namespace")),
        _ if service["spec"]["publishNotReadyAddresses"] == true => None,
        _ if pods.iter().any(is_ready) => None,
        1 => Some(format!("the pod that its selector {labels} matches is not ready")),
        count => {
            Some(format!("none of the {count} pods that its selector {labels} matches is ready"))
        }
    }
}

fn of_pod(pod: &Value, schedulers: Option<&[String]>) -> Vec<String> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let mut causes = Vec::new();
    let gates: Vec<&str> = items(spec, "schedulingGates").map(|gate| text(gate, "name")).collect();
    if !gates.is_empty() {
        causes.push(format!(
            "it is not scheduled until its scheduling gates are removed: {}",
            gates.join(", ")
        ));
    } else if let Some(condition) = items(status, "conditions").find(|condition| {
        text(condition, "type") == "PodScheduled" && text(condition, "status") == "False"
    }) {
        causes.push(joined(&["it is not scheduled", text(condition, "message")]));
    } else if text(spec, "nodeName").is_empty() && text(status, "phase") == "Pending" {
        causes.push(of_missing_attempt(spec, schedulers));
    }
    if text(status, "phase") == "Failed" {
        causes.push(joined(&["it failed", text(status, "reason"), text(status, "message")]));
    }
    let containers =
        items(status, "initContainerStatuses").chain(items(status, "containerStatuses"));
    let is_over = matches!(text(status, "phase"), "Failed" | "Succeeded");
    causes.extend(containers.filter_map(|container| of_container(container, is_over)));
    if !is_over {
        causes.extend(of_readiness(pod));
    }
    causes
}

/// Returns why no scheduler has reported an attempt for a pod with this spec. `schedulers` are the profiles of
/// the manager process that reported; `None` if none reported.
fn of_missing_attempt(spec: &Value, schedulers: Option<&[String]>) -> String {
    const NONE: &str = "it is not scheduled: no scheduler has reported an attempt";
    let name = match text(spec, "schedulerName") {
        "" => DEFAULT_SCHEDULER,
        name => name,
    };
    match schedulers {
        Some([]) => format!("{NONE}, and evenkeel runs none"),
        Some(known) if !known.iter().any(|known| known == name) => format!(
            "{NONE}, and evenkeel runs no scheduler named {name:?} (spec.schedulerName); the names of its schedulers are {}",
            known.join(", ")
        ),
        _ => NONE.to_owned(),
    }
}

/// Returns why a pod is not ready whose containers are: a readiness gate, or a node that is unreachable.
fn of_readiness(pod: &Value) -> Option<String> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let condition = |type_: &str| {
        items(status, "conditions").find(|condition| text(condition, "type") == type_)
    };
    let ready = condition("Ready").filter(|ready| text(ready, "status") != "True")?;
    let mut containers = items(status, "containerStatuses").peekable();
    containers.peek()?;
    if containers.any(|container| container["ready"] != true) {
        return None;
    }
    let gates: Vec<String> = items(spec, "readinessGates")
        .map(|gate| text(gate, "conditionType"))
        .filter_map(|gate| match condition(gate).map_or("", |gate| text(gate, "status")) {
            "True" => None,
            "" => Some(format!("{gate} (not set)")),
            other => Some(format!("{gate} ({other})")),
        })
        .collect();
    let cause = of_condition(ready);
    Some(match gates.as_slice() {
        [] => cause,
        gates => format!("{cause}; readiness gates that are not True: {}", gates.join(", ")),
    })
}

fn of_container(status: &Value, pod_is_over: bool) -> Option<String> {
    let name = text(status, "name");
    let (state, last) = (&status["state"], &status["lastState"]["terminated"]);
    let ended = |terminated: &Value| {
        let code = terminated["exitCode"].as_i64().unwrap_or_default();
        let reason = match text(terminated, "reason") {
            "" | "Error" => String::new(),
            reason => format!(" ({reason})"),
        };
        format!("exit code {code}{reason}")
    };
    let restarts = match status["restartCount"].as_u64().unwrap_or_default() {
        0 => String::new(),
        _ if last.is_null() => String::new(),
        1 => format!("; it was restarted after {}", ended(last)),
        n => format!("; it was restarted {n} times, the last time after {}", ended(last)),
    };
    let waiting = &state["waiting"];
    if !waiting.is_null()
        && (!USUAL_WAITS.contains(&text(waiting, "reason")) || !restarts.is_empty())
    {
        let head = format!("container {name} waits");
        return Some(
            joined(&[&head, text(waiting, "reason"), text(waiting, "message")]) + &restarts,
        );
    }
    let terminated = &state["terminated"];
    if !terminated.is_null() && terminated["exitCode"].as_i64() != Some(0) {
        let head = format!("container {name} ended with {}", ended(terminated));
        return Some(joined(&[&head, text(terminated, "message")]) + &restarts);
    }
    if !state["running"].is_null() && !pod_is_over && status["ready"] == false {
        let started = if status["started"] == false { "has not started" } else { "is not ready" };
        return Some(format!("container {name} runs, and {started}{restarts}"));
    }
    None
}

fn of_spec(kind: &str, object: &Value) -> Vec<String> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut causes = Vec::new();
    if spec["paused"] == true {
        causes.push("it is paused (spec.paused)".to_owned());
    }
    if spec["suspend"] == true {
        causes.push("it is suspended (spec.suspend)".to_owned());
    }
    // An old ReplicaSet of a Deployment has no replicas by design.
    let is_owned = items(&object["metadata"], "ownerReferences").next().is_some();
    if spec["replicas"] == 0 && !is_owned {
        causes.push("no pod is desired (spec.replicas is 0)".to_owned());
    }
    match kind {
        "Node" => {
            if spec["unschedulable"] == true {
                causes.push(
                    "it is cordoned (spec.unschedulable): no pod is scheduled there".to_owned(),
                );
            }
            let repelling = items(spec, "taints").filter(|taint| {
                text(taint, "effect") != "PreferNoSchedule"
                    && text(taint, "key") != "node.kubernetes.io/unschedulable"
            });
            for taint in repelling {
                let value = match text(taint, "value") {
                    "" => String::new(),
                    value => format!("={value}"),
                };
                causes.push(format!(
                    "the taint {}{value}:{} keeps pods away that do not tolerate it",
                    text(taint, "key"),
                    text(taint, "effect")
                ));
            }
        }
        "PodDisruptionBudget"
            if status["expectedPods"] == 0 && !status["observedGeneration"].is_null() =>
        {
            causes.push("its selector matches no pod of the namespace".to_owned());
        }
        "PersistentVolumeClaim" if matches!(text(status, "phase"), "Pending" | "Lost") => {
            causes.push(format!("it is not bound to a volume ({})", text(status, "phase")));
        }
        "Service"
            if text(spec, "type") == "LoadBalancer"
                && items(&status["loadBalancer"], "ingress").next().is_none() =>
        {
            causes.push("its load balancer has no address yet".to_owned());
        }
        _ => {}
    }
    causes
}

fn of_conditions(object: &Value) -> Vec<String> {
    let is_problem = |condition: &&Value| {
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        (GOOD_CONDITIONS.contains(&kind) && status != "True")
            || (BAD_CONDITIONS.contains(&kind) && status == "True")
    };
    items(&object["status"], "conditions").filter(is_problem).map(of_condition).collect()
}

fn of_condition(condition: &Value) -> String {
    let reason = match text(condition, "reason") {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    let head = format!("{} is {}{reason}", text(condition, "type"), text(condition, "status"));
    joined(&[&head, text(condition, "message")])
}

/// Returns the latest warnings of an object, one for each reason. Each is a sentence, with the event's message that it
/// contains.
fn of_events<'a>(object: &Value, events: &'a [Value]) -> Vec<(String, &'a str)> {
    let uid = text(&object["metadata"], "uid");
    let time = |event: &Value| {
        let times = [
            text(event, "lastTimestamp"),
            text(event, "eventTime"),
            text(&event["metadata"], "creationTimestamp"),
        ];
        times.iter().find(|time| !time.is_empty()).copied().unwrap_or_default().to_owned()
    };
    let mut own: Vec<&'a Value> = events
        .iter()
        .filter(|event| !uid.is_empty() && text(&event["involvedObject"], "uid") == uid)
        .filter(|event| text(event, "type") == "Warning")
        .collect();
    own.sort_by_key(|event| std::cmp::Reverse(time(event)));
    let mut reasons = BTreeSet::new();
    // The pod's condition says the same as FailedScheduling.
    own.retain(|event| {
        let reason = text(event, "reason");
        reason != "FailedScheduling" && reasons.insert(reason.to_owned())
    });
    own.truncate(MAX_WARNINGS);
    own.into_iter()
        .map(|event: &'a Value| {
            let head = format!("warning {}", text(event, "reason"));
            let count = match event["count"].as_u64() {
                Some(n) if n > 1 => format!(" ({n} times)"),
                _ => String::new(),
            };
            let message = text(event, "message").trim_end();
            (joined(&[&(head + &count), message]), message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn now() -> Timestamp {
        "2026-01-01T00:01:00Z".parse().expect("a time")
    }

    fn of(kind: &str, object: &Value) -> Vec<String> {
        of_object(&Subject::new("", kind, "ns", "n"), object, &Objects::default(), now())
    }

    #[test]
    fn a_pod_whose_containers_are_ready_says_why_it_is_not() {
        let pod = |ready: bool, conditions: Value| {
            json!({
                "spec": {"nodeName": "n", "readinessGates": [{"conditionType": "a/b"}, {"conditionType": "c"}, {"conditionType": "d"}]},
                "status": {
                    "phase": "Running", "conditions": conditions,
                    "containerStatuses": [{"name": "c", "ready": ready, "started": true, "state": {"running": {}}}],
                },
            })
        };
        let not_ready = json!({"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "message": "m"});
        let gates = json!([
            not_ready, {"type": "c", "status": "False"}, {"type": "d", "status": "True"},
        ]);
        let all = json!([{"type": "Ready", "status": "False"}, {"type": "a/b", "status": "True"},
            {"type": "c", "status": "True"}, {"type": "d", "status": "True"}]);
        for (pod, want) in [
            (
                pod(true, gates.clone()),
                &[
                    "Ready is False (ReadinessGatesNotReady): m; readiness gates that are not True: a/b (not set), c (False)",
                ][..],
            ),
            (pod(true, all), &["Ready is False"]),
            (pod(true, json!([{"type": "Ready", "status": "True"}])), &[]),
            // The container says why.
            (pod(false, gates), &["container c runs, and is not ready"]),
        ] {
            assert_eq!(of("Pod", &pod), want, "{pod}");
        }
    }

    #[test]
    fn a_pods_deletion_has_a_grace_period_and_its_kubelets_confirmation() {
        let pod = |at: &str, finalizers: &[&str]| {
            json!({"metadata": {"deletionTimestamp": at, "finalizers": finalizers}, "spec": {"nodeName": "n"},
                "status": {"phase": "Running"}})
        };
        let node = |ready: &str| json!({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let (past, future) = ("2026-01-01T00:00:30Z", "2026-01-01T00:01:30Z");
        let overdue = "it is being deleted: its grace period ended at 2026-01-01T00:00:30Z, and the kubelet of node n has not \
            confirmed the deletion";
        for (pod, nodes, want) in [
            (
                pod(future, &[]),
                vec![node("True")],
                "it is being deleted: its grace period ends at 2026-01-01T00:01:30Z".to_owned(),
            ),
            (pod(past, &[]), vec![], overdue.to_owned()),
            (pod(past, &[]), vec![node("True")], overdue.to_owned()),
            (
                pod(past, &[]),
                vec![node("Unknown")],
                format!("{overdue}; the node is unreachable (its Ready condition is Unknown)"),
            ),
            (
                pod(past, &["a/b"]),
                vec![node("Unknown")],
                "it is being deleted: its grace period ended at 2026-01-01T00:00:30Z, and it stays until the controllers of its \
                 finalizers remove them: a/b"
                    .to_owned(),
            ),
        ] {
            let found = Objects { nodes, ..Objects::default() };
            let causes = of_object(&Subject::new("", "Pod", "ns", "p"), &pod, &found, now());
            assert_eq!(causes, [want], "{pod}");
        }
        for (at, want) in [
            (past, "it is being deleted since 2026-01-01T00:00:30Z"),
            (future, "it is being deleted, at the latest at 2026-01-01T00:01:30Z"),
        ] {
            assert_eq!(of("Job", &json!({"metadata": {"deletionTimestamp": at}})), [want]);
        }
    }

    #[test]
    fn a_pod_of_no_known_scheduler_says_so() {
        let none = "it is not scheduled: no scheduler has reported an attempt";
        let both = ["packed", "default-scheduler"].map(str::to_owned).to_vec();
        for (name, schedulers, want) in [
            ("nobody", None, none.to_owned()),
            ("packed", Some(both.clone()), none.to_owned()),
            ("", Some(both.clone()), none.to_owned()),
            ("packed", Some(Vec::new()), format!("{none}, and evenkeel runs none")),
            (
                "nobody",
                Some(both),
                format!(
                    "{none}, and evenkeel runs no scheduler named \"nobody\" (spec.schedulerName); \
                     the names of its schedulers are packed, default-scheduler"
                ),
            ),
        ] {
            let pod = json!({"spec": {"schedulerName": name}, "status": {"phase": "Pending"}});
            let objects = vec![(Subject::new("", "Pod", "ns", "p"), pod)];
            let found = Objects { objects, schedulers, ..Objects::default() };
            let texts: Vec<_> = of_objects(&found, now()).into_iter().map(|it| it.text).collect();
            assert_eq!(texts, [want]);
        }
    }

    #[test]
    fn a_pod_says_why_it_is_not_ready() {
        let waiting = |reason: &str, message: &str| {
            json!({"status": {"phase": "Pending", "containerStatuses": [
                {"name": "c", "restartCount": 0, "ready": false, "state": {"waiting": {"reason": reason, "message": message}}}]},
                "spec": {"nodeName": "n"}})
        };
        let terminated = json!({"exitCode": 3, "reason": "Error"});
        let crashed = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running", "containerStatuses": [
            {"name": "c", "restartCount": 2, "ready": false, "lastState": {"terminated": terminated},
             "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}}}]}});
        let failed = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Failed", "containerStatuses": [
            {"name": "c", "restartCount": 0, "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}});
        let unready = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running", "containerStatuses": [
            {"name": "c", "restartCount": 0, "ready": false, "started": true, "state": {"running": {}}}]}});
        let refused = json!({"status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}]}});
        let gated = json!({"spec": {"schedulingGates": [{"name": "a"}, {"name": "b"}]}, "status": {"phase": "Pending"}});
        for (pod, want) in [
            (waiting("ContainerCreating", ""), &[][..]),
            (waiting("ErrImagePull", "not found"), &["container c waits: ErrImagePull: not found"]),
            (
                crashed,
                &[
                    "container c waits: CrashLoopBackOff: back-off 20s; it was restarted 2 times, the last time after exit code 3",
                ],
            ),
            (failed, &["it failed", "container c ended with exit code 137 (OOMKilled)"]),
            (unready, &["container c runs, and is not ready"]),
            (refused, &["it is not scheduled: 0/3 nodes are available"]),
            (gated, &["it is not scheduled until its scheduling gates are removed: a, b"]),
            (
                json!({"status": {"phase": "Pending"}}),
                &["it is not scheduled: no scheduler has reported an attempt"],
            ),
            (json!({"spec": {"nodeName": "n"}, "status": {"phase": "Succeeded"}}), &[]),
        ] {
            assert_eq!(of("Pod", &pod), want, "{pod}");
        }
    }

    #[test]
    fn conditions_spec_and_deletion_are_causes() {
        let condition = |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status, "reason": "R", "message": "m"}]}});
        for (kind, object, want) in [
            ("Deployment", condition("Available", "True"), &[][..]),
            ("Deployment", condition("Available", "False"), &["Available is False (R): m"]),
            ("Node", condition("Ready", "Unknown"), &["Ready is Unknown (R): m"]),
            ("Node", condition("DiskPressure", "True"), &["DiskPressure is True (R): m"]),
            ("Node", condition("DiskPressure", "False"), &[]),
            ("Job", condition("Complete", "False"), &[]),
            ("Deployment", json!({"spec": {"paused": true}}), &["it is paused (spec.paused)"]),
            (
                "Deployment",
                json!({"spec": {"replicas": 0}}),
                &["no pod is desired (spec.replicas is 0)"],
            ),
            (
                "ReplicaSet",
                json!({"metadata": {"ownerReferences": [{}]}, "spec": {"replicas": 0}}),
                &[],
            ),
            (
                "Node",
                json!({"spec": {"unschedulable": true, "taints": [
                    {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
                    {"key": "gpu", "value": "yes", "effect": "NoExecute"},
                    {"key": "soft", "effect": "PreferNoSchedule"}]}}),
                &[
                    "it is cordoned (spec.unschedulable): no pod is scheduled there",
                    "the taint gpu=yes:NoExecute keeps pods away that do not tolerate it",
                ],
            ),
            (
                "PersistentVolumeClaim",
                json!({"status": {"phase": "Pending"}}),
                &["it is not bound to a volume (Pending)"],
            ),
            (
                "Service",
                json!({"spec": {"type": "LoadBalancer"}}),
                &["its load balancer has no address yet"],
            ),
            (
                "ConfigMap",
                json!({"metadata": {"deletionTimestamp": "T", "finalizers": ["a/b"]}}),
                &[
                    "it is being deleted since T, and stays until the controllers of its finalizers remove them: a/b",
                ],
            ),
        ] {
            assert_eq!(of(kind, &object), want, "{kind} {object}");
        }
    }

    #[test]
    fn the_latest_warning_of_each_reason_is_a_cause() {
        let event = |uid: &str, kind: &str, reason: &str, message: &str, at: &str, count: u64| {
            json!({"involvedObject": {"uid": uid}, "type": kind, "reason": reason, "message": message,
                "lastTimestamp": at, "count": count})
        };
        let events = [
            event("u", "Warning", "Failed", "old", "2026-01-01T00:00:01Z", 1),
            event("u", "Warning", "Failed", "new", "2026-01-01T00:00:02Z", 4),
            event("u", "Normal", "Pulled", "fine", "2026-01-01T00:00:03Z", 1),
            event("u", "Warning", "FailedScheduling", "known", "2026-01-01T00:00:04Z", 1),
            event("v", "Warning", "Failed", "another's", "2026-01-01T00:00:05Z", 1),
        ];
        let object = json!({"metadata": {"uid": "u"}});
        assert_eq!(
            of_events(&object, &events),
            [("warning Failed (4 times): new".to_owned(), "new")]
        );
        assert_eq!(of_events(&json!({}), &events), []);
        // The container says the same already.
        for (message, want) in [("error: ErrImagePull", 1), ("Image missing", 1), ("disk full", 2)]
        {
            let pod = json!({"metadata": {"uid": "u"}, "spec": {"nodeName": "n"}, "status": {"containerStatuses": [
                {"name": "c", "state": {"waiting": {"reason": "ErrImagePull", "message": "image missing"}}}]}});
            let event = event("u", "Warning", "Failed", message, "2026-01-01T00:00:01Z", 1);
            let found = Objects { events: vec![event], ..Objects::default() };
            let causes = of_object(&Subject::new("", "Pod", "ns", "n"), &pod, &found, now());
            assert_eq!(causes.len(), want, "{causes:?}");
        }
    }

    #[test]
    fn a_bound_pod_that_is_not_started_says_what_its_node_is() {
        let pod = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:57Z"}]}});
        let node = |annotation: &str, ready: &str| {
            json!({"metadata": {"name": "n", "annotations": {SILENT: annotation}}, "status": {"conditions": [
                {"type": "Ready", "status": ready, "lastHeartbeatTime": "2026-01-01T00:00:30Z"}]}})
        };
        let fault = "; a fault cuts the node off (annotation sim.evenkeel.dev/silent); `evenkeel fault node/n --stop` ends it";
        for (nodes, want) in [
            (vec![], ""),
            (vec![node("true", "True")], fault),
            (vec![node("until 2026-01-01T00:01:30Z", "Unknown")], fault),
            (
                vec![node("until 2026-01-01T00:00:50Z", "Unknown")],
                "; the node is unreachable (its Ready condition is Unknown)",
            ),
            (
                vec![node("false", "True")],
                "; the kubelet's last report of the node was at 2026-01-01T00:00:30Z",
            ),
            (
                vec![json!({"metadata": {"name": "n"}})],
                "; no kubelet has reported the node's Ready condition",
            ),
            (vec![json!("n")], "; there is no such node"),
        ] {
            let found = Objects { nodes, ..Objects::default() };
            let causes = of_object(&Subject::new("", "Pod", "ns", "p"), &pod, &found, now());
            let head = "it is bound to node n since 2026-01-01T00:00:57Z, and the node's kubelet has not started it";
            assert_eq!(causes, [format!("{head}{want}")]);
        }
        let mut started = pod;
        started["status"]["startTime"] = "2026-01-01T00:00:58Z".into();
        assert_eq!(of("Pod", &started), [""; 0]);
    }

    #[test]
    fn a_service_without_ready_pods_says_so() {
        let pod =
            |ready: &str| json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let service = json!({"spec": {"selector": {"app": "web", "tier": "front"}}});
        for (selected, want) in [
            (None, None),
            (Some(vec![]), Some("its selector app=web,tier=front matches no pod of the namespace")),
            (
                Some(vec![pod("False")]),
                Some("the pod that its selector app=web,tier=front matches is not ready"),
            ),
            (
                Some(vec![pod("False"), pod("Unknown")]),
                Some("none of the 2 pods that its selector app=web,tier=front matches is ready"),
            ),
            (Some(vec![pod("False"), pod("True")]), None),
        ] {
            let found = Objects { selected, ..Objects::default() };
            let causes =
                of_object(&Subject::new("", "Service", "ns", "s"), &service, &found, now());
            assert_eq!(causes.iter().map(String::as_str).next(), want);
        }
        let budget = json!({"status": {"expectedPods": 0, "observedGeneration": 1}});
        assert_eq!(
            of("PodDisruptionBudget", &budget),
            ["its selector matches no pod of the namespace"]
        );
    }

    #[test]
    fn a_refusal_is_a_cause_once_and_before_what_follows_from_it() {
        let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({"type": kind, "status": status, "reason": reason, "message": message});
        let refusal =
            |pod: &str| format!("pods \"{pod}\" is forbidden: exceeded quota: q, used: pods=2");
        let unavailable = condition(
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        );
        let failure =
            |pod: &str| condition("ReplicaFailure", "True", "FailedCreate", &refusal(pod));
        let root = Subject::new("apps", "Deployment", "ns", "web");
        let set = Subject::new("apps", "ReplicaSet", "ns", "web-1");
        let deployment =
            json!({"status": {"conditions": [unavailable.clone(), failure("web-1-a")]}});
        let replicas =
            json!({"metadata": {"uid": "u"}, "status": {"conditions": [failure("web-1-b")]}});
        let event = json!({"involvedObject": {"uid": "u"}, "type": "Warning", "reason": "FailedCreate",
            "message": format!("Error creating: {}", refusal("web-1-c"))});
        let found = Objects {
            objects: vec![(root.clone(), deployment), (set, replicas)],
            events: vec![event],
            ..Objects::default()
        };
        let lines: Vec<_> =
            of_objects(&found, now()).iter().map(|cause| cause.line(&root)).collect();
        assert_eq!(
            lines,
            [format!("ReplicaFailure is True (FailedCreate): {}", refusal("web-1-a"))]
        );
        let alone = json!({"status": {"conditions": [unavailable]}});
        let found = Objects { objects: vec![(root.clone(), alone)], ..Objects::default() };
        assert_eq!(of_objects(&found, now()).len(), 1, "nothing else says why");
    }

    #[test]
    fn children_with_the_same_cause_are_grouped() {
        let pod = |name: &str| {
            let status = json!({"status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "message": "no nodes"}]}});
            (Subject::new("", "Pod", "ns", name), status)
        };
        let root = (
            Subject::new("apps", "Deployment", "ns", "web"),
            json!({"status": {"conditions": [{"type": "Available", "status": "False"}]}}),
        );
        let objects = vec![root.clone(), pod("a"), pod("b"), pod("c")];
        let causes = of_objects(&Objects { objects, ..Objects::default() }, now());
        let lines: Vec<String> = causes.iter().map(|cause| cause.line(&root.0)).collect();
        assert_eq!(
            lines,
            ["Available is False", "Pod ns/a and 2 more: it is not scheduled: no nodes"]
        );
    }
}
