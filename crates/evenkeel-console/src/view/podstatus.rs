//! Status of a pod in one word, as in kubectl's column STATUS, and its tone.
//!
//! Upstream: `printPod`. The embedded API server prints the same word in its tables.

use super::Chip;
use evenkeel_api::{
    condition,
    time::Timestamp,
    views::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod},
};

/// Words of pods that need attention, because they do not become ready by waiting.
const BAD: [&str; 14] = [
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "DeadlineExceeded",
    "ErrImageNeverPull",
    "ErrImagePull",
    "Error",
    "Evicted",
    "Failed",
    "ImagePullBackOff",
    "InvalidImageName",
    "OOMKilled",
    "RunContainerError",
    "StartError",
];

/// Summary of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodStatus {
    /// Word in kubectl's column STATUS, such as `Running` or `Init:CrashLoopBackOff`.
    pub(crate) word: String,
    /// Number of ready containers.
    pub(crate) ready: usize,
    /// Number of containers and sidecars.
    pub(crate) total: usize,
    /// Number of restarts of all containers.
    pub(crate) restarts: i64,
    /// Last time at which a container terminated before a restart.
    pub(crate) last_restart: Option<Timestamp>,
}

impl PodStatus {
    /// Returns the class in the style sheet: `good` only if all containers are ready, `quiet` for a completed pod.
    pub(crate) fn tone(&self) -> &'static str {
        match tone_of(&self.word) {
            "good" if self.ready < self.total => "warn",
            tone => tone,
        }
    }

    /// Returns whether the pod is neither ready nor completed.
    pub(crate) fn is_not_ready(&self) -> bool {
        !matches!(self.tone(), "good" | "quiet")
    }

    /// Returns the word with its tone.
    pub(crate) fn chip(&self) -> Chip {
        Chip::new(&*self.word, self.tone())
    }

    /// Returns the summary of a pod.
    pub(crate) fn of(pod: &Pod) -> Self {
        let status = &pod.status;
        let word = if status.reason.is_empty() { &status.phase } else { &status.reason };
        let sidecars =
            pod.spec.init_containers.iter().filter(|init| is_always(&init.restart_policy));
        let mut summary = Self {
            word: word.to_string(),
            ready: 0,
            total: pod.spec.containers.len() + sidecars.count(),
            restarts: 0,
            last_restart: None,
        };
        let scheduled = condition::find(&status.conditions, "PodScheduled");
        if scheduled.is_some_and(|scheduled| &*scheduled.reason == "SchedulingGated") {
            "SchedulingGated".clone_into(&mut summary.word);
        }
        let initializing = summary.add_init_containers(pod);
        if !initializing || condition::is_true(&status.conditions, "Initialized") {
            // The restarts of completed init containers no longer count.
            (summary.restarts, summary.last_restart) = (0, None);
            let of_sidecars =
                status.init_container_statuses.iter().filter(|init| is_sidecar(pod, &init.name));
            of_sidecars.for_each(|sidecar| summary.add_restarts(sidecar));
            summary.add_containers(pod);
        }
        if pod.meta.deleting() {
            if &*status.reason == "NodeLost" {
                "Unknown".clone_into(&mut summary.word);
            } else if !matches!(&*status.phase, "Failed" | "Succeeded") {
                "Terminating".clone_into(&mut summary.word);
            }
        }
        summary
    }

    fn add_restarts(&mut self, status: &ContainerStatus) {
        self.restarts += i64::from(status.restart_count);
        let last = status.last_state.terminated.as_ref().and_then(|last| last.finished_at);
        self.last_restart = self.last_restart.max(last);
    }

    /// Adds the init containers up to the first one that has not completed. Returns whether there is such a container.
    fn add_init_containers(&mut self, pod: &Pod) -> bool {
        let total = pod.spec.init_containers.len();
        for (index, status) in pod.status.init_container_statuses.iter().enumerate() {
            self.add_restarts(status);
            let ContainerState { waiting, terminated, .. } = &status.state;
            if terminated.as_ref().is_some_and(|terminated| terminated.exit_code == 0) {
                continue;
            }
            if is_sidecar(pod, &status.name) && status.started == Some(true) {
                self.ready += usize::from(status.ready);
                continue;
            }
            let waiting = waiting.as_ref().map_or("", |waiting| &*waiting.reason);
            self.word = match terminated {
                Some(terminated) => format!("Init:{}", termination(terminated)),
                None if !matches!(waiting, "" | "PodInitializing") => format!("Init:{waiting}"),
                None => format!("Init:{index}/{total}"),
            };
            return true;
        }
        false
    }

    /// Adds the containers. The word is that of the first one that waits or has terminated.
    fn add_containers(&mut self, pod: &Pod) {
        let (mut is_running, mut failure) = (false, String::new());
        for status in pod.status.container_statuses.iter().rev() {
            self.add_restarts(status);
            let waiting = status.state.waiting.as_ref().map_or("", |waiting| &*waiting.reason);
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.word);
            } else if let Some(terminated) = &status.state.terminated {
                self.word = termination(terminated);
                if terminated.exit_code != 0 {
                    failure.clone_from(&self.word);
                }
            } else if status.ready && status.state.running.is_some() {
                is_running = true;
                self.ready += 1;
            }
        }
        if self.word == "Completed" {
            if is_running && condition::is_true(&pod.status.conditions, "Ready") {
                "Running".clone_into(&mut self.word);
            } else if !failure.is_empty() {
                self.word = failure;
            } else if is_running {
                "NotReady".clone_into(&mut self.word);
            }
        }
    }
}

/// Returns the tone of a word of the column STATUS.
pub(crate) fn tone_of(word: &str) -> &'static str {
    let word = word.strip_prefix("Init:").unwrap_or(word);
    let exited = word.starts_with("ExitCode:") || word.starts_with("Signal:");
    match word {
        "Running" => "good",
        "Completed" | "Succeeded" => "quiet",
        bad if exited || BAD.contains(&bad) => "bad",
        _ => "warn",
    }
}

fn is_always(restart_policy: &str) -> bool {
    restart_policy == "Always"
}

fn is_sidecar(pod: &Pod, name: &str) -> bool {
    let mut inits = pod.spec.init_containers.iter();
    inits.any(|init| &*init.name == name && is_always(&init.restart_policy))
}

/// Returns the reason of a terminated container, or else its signal, or else its exit code.
fn termination(terminated: &ContainerStateTerminated) -> String {
    match (&*terminated.reason, terminated.signal) {
        ("", 0) => format!("ExitCode:{}", terminated.exit_code),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::decoded;
    use serde_json::{Value, json};

    #[test]
    fn words_are_those_of_kubectl_and_have_tones() {
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        let exited =
            |code: i64, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason}});
        let running = || json!({"running": {}});
        let pod = |states: &[(Value, bool)]| {
            let names = ["a", "b"];
            let statuses: Vec<Value> = states
                .iter()
                .zip(names)
                .map(|((state, ready), name)| json!({"name": name, "state": state, "ready": ready, "restartCount": 2}))
                .collect();
            let containers: Vec<Value> =
                names.iter().take(states.len()).map(|name| json!({"name": name})).collect();
            json!({
                "metadata": {"name": "p"}, "spec": {"containers": containers},
                "status": {"phase": "Running", "containerStatuses": statuses},
            })
        };
        let with = |mut pod: Value, part: &str, field: &str, value: Value| {
            pod[part][field] = value;
            pod
        };
        let init = |state: Value| {
            let pod = with(pod(&[]), "spec", "initContainers", json!([{"name": "i"}]));
            with(pod, "status", "initContainerStatuses", json!([{"name": "i", "state": state}]))
        };
        let table = [
            (pod(&[(running(), true)]), "Running", "good"),
            (pod(&[(running(), true), (running(), false)]), "Running", "warn"),
            (pod(&[(waiting("CrashLoopBackOff"), false)]), "CrashLoopBackOff", "bad"),
            (pod(&[(running(), true), (waiting("ErrImagePull"), false)]), "ErrImagePull", "bad"),
            (pod(&[(waiting("ImagePullBackOff"), false)]), "ImagePullBackOff", "bad"),
            (
                pod(&[(waiting("CreateContainerConfigError"), false)]),
                "CreateContainerConfigError",
                "bad",
            ),
            (pod(&[(waiting("ContainerCreating"), false)]), "ContainerCreating", "warn"),
            (pod(&[(exited(1, "Error"), false)]), "Error", "bad"),
            (pod(&[(exited(137, "OOMKilled"), false)]), "OOMKilled", "bad"),
            (pod(&[(exited(3, ""), false)]), "ExitCode:3", "bad"),
            (pod(&[(exited(0, "Completed"), false)]), "Completed", "quiet"),
            (pod(&[(exited(0, "Completed"), false), (exited(1, "Error"), false)]), "Error", "bad"),
            (pod(&[(running(), true), (exited(0, "Completed"), false)]), "NotReady", "warn"),
            (with(pod(&[]), "status", "phase", json!("Pending")), "Pending", "warn"),
            (with(pod(&[]), "status", "phase", json!("Unknown")), "Unknown", "warn"),
            (with(pod(&[]), "status", "reason", json!("Evicted")), "Evicted", "bad"),
            (init(running()), "Init:0/1", "warn"),
            (init(waiting("CrashLoopBackOff")), "Init:CrashLoopBackOff", "bad"),
            (init(exited(2, "")), "Init:ExitCode:2", "bad"),
            (
                with(
                    pod(&[(running(), true)]),
                    "metadata",
                    "deletionTimestamp",
                    json!("2026-01-01T00:00:00Z"),
                ),
                "Terminating",
                "warn",
            ),
        ];
        for (object, word, tone) in table {
            let status = PodStatus::of(&decoded::<Pod>(&object));
            assert_eq!((&*status.word, status.tone()), (word, tone), "{object}");
        }
    }

    #[test]
    fn ready_containers_and_restarts_are_counted() {
        let last = json!({"terminated": {"finishedAt": "2026-01-01T00:00:00Z"}});
        let pod = json!({
            "spec": {
                "containers": [{"name": "a"}],
                "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}],
            },
            "status": {
                "phase": "Running",
                "initContainerStatuses": [
                    {"name": "s", "ready": true, "started": true, "state": {"running": {}}, "restartCount": 1, "lastState": last},
                    {"name": "i", "state": {"terminated": {"exitCode": 0}}, "restartCount": 5},
                ],
                "containerStatuses": [{"name": "a", "state": {"running": {}}, "ready": false, "restartCount": 3}],
            },
        });
        let status = PodStatus::of(&decoded::<Pod>(&pod));
        assert_eq!((status.ready, status.total, status.restarts), (1, 2, 4));
        assert_eq!(status.last_restart, "2026-01-01T00:00:00Z".parse().ok());
        assert!(status.is_not_ready() && status.chip().tone == "warn");
    }
}
