//! Printer of pods. Its Status column summarizes the pod's containers in one word.
//!
//! Upstream: `printPod`.

use super::cells::{Cells, NONE, PrintedObject, age, name, seconds_since, text_or};
use super::duration::human;
use evenkeel_apimachinery::value::{flag, get, int, list, text};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Summary of the statuses of containers. The strings are empty until a status sets them.
#[derive(Default)]
struct Summary {
    /// Number of restarts of all containers.
    restarts: i64,
    /// Time at which a container last terminated before a restart, in RFC 3339.
    last_restart: String,
    /// Number of ready containers.
    ready: usize,
    /// Number of containers and sidecars.
    total: usize,
    /// Text of the column Status.
    reason: String,
}

impl Summary {
    /// Adds the restarts of a container.
    fn add_restarts(&mut self, status: &Value) {
        self.restarts += int(status, "restartCount").unwrap_or_default();
        let finished = text(status, "lastState.terminated.finishedAt");
        // Texts of times in UTC have the same order as the times.
        if finished > self.last_restart.as_str() {
            self.last_restart = finished.to_owned();
        }
    }

    fn restarts_cell(&self, now: Timestamp) -> String {
        match seconds_since(&self.last_restart, now) {
            Some(seconds) if self.restarts != 0 => {
                format!("{} ({} ago)", self.restarts, human(seconds))
            }
            _ => self.restarts.to_string(),
        }
    }
}

/// Returns the reason of a terminated container, or else its signal, or else its exit code.
fn termination_text(terminated: &Value) -> String {
    let reason = text(terminated, "reason");
    if !reason.is_empty() {
        return reason.to_owned();
    }
    match int(terminated, "signal").filter(|signal| *signal != 0) {
        Some(signal) => format!("Signal:{signal}"),
        None => format!("ExitCode:{}", int(terminated, "exitCode").unwrap_or_default()),
    }
}

/// Returns whether the pod has a sidecar with this name.
fn has_sidecar(pod: &Value, container: &str) -> bool {
    list(pod, "spec.initContainers")
        .iter()
        .any(|init| text(init, "name") == container && text(init, "restartPolicy") == "Always")
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    list(pod, "status.conditions").iter().find(|condition| text(condition, "type") == kind)
}

/// Summarizes a pod. While a pod is initializing, only restarts of its init containers count. Later, only restarts of
/// sidecars and main containers count.
fn summarize(pod: &Value) -> Summary {
    let mut summary = Summary {
        reason: text_or(pod, "status.reason", text(pod, "status.phase")).to_owned(),
        ..Summary::default()
    };
    summary.total = list(pod, "spec.containers").len()
        + list(pod, "spec.initContainers")
            .iter()
            .filter(|init| text(init, "restartPolicy") == "Always")
            .count();
    if condition(pod, "PodScheduled")
        .is_some_and(|condition| text(condition, "reason") == "SchedulingGated")
    {
        "SchedulingGated".clone_into(&mut summary.reason);
    }
    let mut sidecars = Summary::default();
    let is_initializing = summarize_init_containers(pod, &mut summary, &mut sidecars);
    let is_initialized =
        condition(pod, "Initialized").is_some_and(|condition| text(condition, "status") == "True");
    if !is_initializing || is_initialized {
        summary.restarts = sidecars.restarts;
        summary.last_restart = sidecars.last_restart;
        summarize_main_containers(pod, &mut summary);
    }
    if get(pod, "metadata.deletionTimestamp").is_some() {
        if text(pod, "status.reason") == "NodeLost" {
            "Unknown".clone_into(&mut summary.reason);
        } else if !matches!(text(pod, "status.phase"), "Failed" | "Succeeded") {
            "Terminating".clone_into(&mut summary.reason);
        }
    }
    summary
}

/// Summarizes the init containers up to the first one that has not completed. Returns whether there is such a
/// container.
fn summarize_init_containers(pod: &Value, summary: &mut Summary, sidecars: &mut Summary) -> bool {
    let init_count = list(pod, "spec.initContainers").len();
    for (index, status) in list(pod, "status.initContainerStatuses").iter().enumerate() {
        let is_sidecar = has_sidecar(pod, text(status, "name"));
        summary.add_restarts(status);
        if is_sidecar {
            sidecars.add_restarts(status);
        }
        let terminated = get(status, "state.terminated");
        if terminated.is_some_and(|terminated| int(terminated, "exitCode").unwrap_or_default() == 0)
        {
            continue;
        }
        if is_sidecar && flag(status, "started") {
            summary.ready += usize::from(flag(status, "ready"));
            continue;
        }
        let waiting = text(status, "state.waiting.reason");
        summary.reason = match terminated {
            Some(terminated) => format!("Init:{}", termination_text(terminated)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => {
                format!("Init:{waiting}")
            }
            None => format!("Init:{index}/{init_count}"),
        };
        return true;
    }
    false
}

/// Summarizes the main containers. The reason is that of the first container that is waiting or terminated. A pod with
/// some completed and some running containers counts as running.
fn summarize_main_containers(pod: &Value, summary: &mut Summary) {
    let mut has_running = false;
    let mut failure = String::new();
    for status in list(pod, "status.containerStatuses").iter().rev() {
        summary.add_restarts(status);
        let waiting = text(status, "state.waiting.reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut summary.reason);
        } else if let Some(terminated) = get(status, "state.terminated") {
            summary.reason = termination_text(terminated);
            if int(terminated, "exitCode").unwrap_or_default() != 0 {
                failure.clone_from(&summary.reason);
            }
        } else if flag(status, "ready") && get(status, "state.running").is_some() {
            has_running = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" {
        let is_ready =
            condition(pod, "Ready").is_some_and(|condition| text(condition, "status") == "True");
        if has_running && is_ready {
            "Running".clone_into(&mut summary.reason);
        } else if !failure.is_empty() {
            summary.reason = failure;
        } else if has_running {
            "NotReady".clone_into(&mut summary.reason);
        }
    }
}

/// Formats the number of readiness gates that are true, and the number of all readiness gates.
fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "spec.readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let passed = gates.iter().filter(|gate| {
        condition(pod, text(gate, "conditionType"))
            .is_some_and(|found| text(found, "status") == "True")
    });
    format!("{}/{}", passed.count(), gates.len())
}

/// Returns the cells of a pod.
pub(super) fn pod(pod: &PrintedObject<'_>) -> Cells {
    let summary = summarize(pod);
    let ip = list(pod, "status.podIPs").first().map_or("", |ip| text(ip, "ip"));
    vec![
        json!(name(pod)),
        json!(format!("{}/{}", summary.ready, summary.total)),
        json!(summary.reason),
        json!(summary.restarts_cell(pod.now)),
        json!(age(pod)),
        json!(if ip.is_empty() { NONE } else { ip }),
        json!(text_or(pod, "spec.nodeName", NONE)),
        json!(text_or(pod, "status.nominatedNodeName", NONE)),
        json!(readiness_gates(pod)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts the columns Ready, Status and Restarts.
    #[track_caller]
    fn check(pod: &Value, ready: &str, reason: &str, restarts: &str) {
        let cells = super::pod(&PrintedObject { object: pod, now: Timestamp::UNIX_EPOCH });
        assert_eq!(
            (&cells[1], &cells[2], &cells[3]),
            (&json!(ready), &json!(reason), &json!(restarts))
        );
    }

    #[test]
    fn the_status_column_summarizes_the_containers() {
        let spec = json!({"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]});
        check(&json!({"spec": spec, "status": {"phase": "Pending"}}), "0/2", "Pending", "0");
        check(
            &json!({"spec": spec, "status": {"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3}]}}),
            "0/2",
            "Init:CrashLoopBackOff",
            "3",
        );
        check(
            &json!({"spec": spec, "status": {"phase": "Running", "containerStatuses": [
                {"name": "a", "ready": true, "state": {"running": {}}},
                {"name": "b", "state": {"terminated": {"exitCode": 2, "reason": "Error"}}}]}}),
            "1/2",
            "Error",
            "0",
        );
        check(
            &json!({"metadata": {"deletionTimestamp": "t"}, "spec": spec, "status": {"phase": "Running"}}),
            "0/2",
            "Terminating",
            "0",
        );
    }
}
