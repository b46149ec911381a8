//! What an object itself says of its state: the answer to "why?" that its status and its events contain.
//!
//! | documented | function |
//! |---|---|
//! | phases, conditions and container states of pods | [`of_pod`] |
//! | conditions of other kinds | [`of_conditions`] |
//! | deletion and finalizers | [`of_deletion`] |
//! | pauses, suspensions, zero replicas, cordons, unbound claims, missing addresses | [`of_spec`] |
//! | events of type Warning | [`of_events`] |

use crate::cause::{Cause, grouped};
use evenkeel_runtime::introspect::Subject;
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

/// Reasons of containers that wait as every container does before it starts.
const USUAL_WAITS: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Maximum number of different warnings of one object.
const MAX_WARNINGS: usize = 3;

/// Returns the causes of several objects, the root first, each with its warnings from `events`. Children with the same cause
/// are grouped.
pub fn of_objects(objects: &[(Subject, Value)], events: &[Value]) -> Vec<Cause> {
    let causes = objects.iter().flat_map(|(subject, object)| {
        of_object(subject, object, events).into_iter().map(move |text| Cause {
            object: subject.clone(),
            others: 0,
            text,
        })
    });
    grouped(causes)
}

fn of_object(subject: &Subject, object: &Value, events: &[Value]) -> Vec<String> {
    let mut causes = of_deletion(object);
    let is_core = subject.group.is_empty();
    match &*subject.kind {
        "Pod" if is_core => causes.extend(of_pod(object)),
        _ => {
            causes.extend(of_spec(&subject.kind, object));
            causes.extend(of_conditions(object));
        }
    }
    let warnings = of_events(object, events);
    let known = causes.join("\n").to_lowercase();
    causes.extend(
        warnings
            .into_iter()
            .filter(|(_, message)| !says_the_same(&known, message))
            .map(|(text, _)| text),
    );
    causes
}

/// Returns whether the causes (in lower case) contain the message of a warning already, as those of a container that waits
/// do.
fn says_the_same(causes: &str, message: &str) -> bool {
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

/// Joins what is not empty with `: `.
fn joined(parts: &[&str]) -> String {
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(": ")
}

fn of_deletion(object: &Value) -> Vec<String> {
    let metadata = &object["metadata"];
    let since = text(metadata, "deletionTimestamp");
    if since.is_empty() {
        return Vec::new();
    }
    let finalizers: Vec<&str> = items(metadata, "finalizers")
        .chain(items(&object["spec"], "finalizers"))
        .filter_map(Value::as_str)
        .collect();
    vec![match finalizers.as_slice() {
        [] => format!("it is being deleted, at the latest at {since}"),
        names => format!(
            "it is being deleted since {since}, and stays until the controllers of its finalizers remove them: {}",
            names.join(", ")
        ),
    }]
}

fn of_pod(pod: &Value) -> Vec<String> {
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
        causes.push("it is not scheduled: no scheduler has reported an attempt".to_owned());
    }
    if text(status, "phase") == "Failed" {
        causes.push(joined(&["it failed", text(status, "reason"), text(status, "message")]));
    }
    let containers =
        items(status, "initContainerStatuses").chain(items(status, "containerStatuses"));
    let is_over = matches!(text(status, "phase"), "Failed" | "Succeeded");
    causes.extend(containers.filter_map(|container| of_container(container, is_over)));
    causes
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
    // An old ReplicaSet of a Deployment has no replicas, which is as it should be.
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
    items(&object["status"], "conditions")
        .filter(is_problem)
        .map(|condition| {
            let reason = match text(condition, "reason") {
                "" => String::new(),
                reason => format!(" ({reason})"),
            };
            let head =
                format!("{} is {}{reason}", text(condition, "type"), text(condition, "status"));
            joined(&[&head, text(condition, "message")])
        })
        .collect()
}

/// Returns the latest warnings of an object, one for each reason: the sentence, and the event's message in it.
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

    fn of(kind: &str, object: &Value) -> Vec<String> {
        of_object(&Subject::new("", kind, "ns", "n"), object, &[])
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
            let causes = of_object(&Subject::new("", "Pod", "ns", "n"), &pod, &[event]);
            assert_eq!(causes.len(), want, "{causes:?}");
        }
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
        let causes = of_objects(&[root.clone(), pod("a"), pod("b"), pod("c")], &[]);
        let lines: Vec<String> = causes.iter().map(|cause| cause.line(&root.0)).collect();
        assert_eq!(
            lines,
            ["Available is False", "Pod ns/a and 2 more: it is not scheduled: no nodes"]
        );
    }
}
