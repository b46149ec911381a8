//! Tests of a pod's lifecycle: the kubelet syncs a pod at chosen times, and the tests check the status that it writes.

use evenkeel_api::{
    Encoding, View,
    time::Timestamp,
    views::{Pod, PodCommand},
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
    time::Duration,
};

use super::{
    facts::{Rejection, RejectionReason},
    memory::{Memory, Phase},
    observe,
    plan::{Decision, PodEvent, plan},
};
use crate::{
    Delays,
    behaviors::{Behavior, parse_spec},
};
use evenkeel_shell::{Files, NodeFields, Processes, later};

/// A pod with its kubelet, and a fake API server that merges each patch into the status.
struct TestPod {
    /// The Pod object in the API server.
    object: Value,
    /// Memory of the kubelet; `None` after its restart.
    memory: Option<Memory>,
    now: Timestamp,
    /// Time of the next sync even if nothing changes.
    wake: Option<Timestamp>,
    /// Number of status writes.
    writes: usize,
    events: Vec<PodEvent>,
    /// Whether the kubelet has deleted the object.
    removed: bool,
    rejection: Option<Rejection>,
    processes: Processes,
    node_files: Arc<Files>,
    /// Images of the node, with the times of their availability.
    images: BTreeMap<String, Timestamp>,
    /// Behaviors that select the pod, by precedence.
    behaviors: Vec<Arc<Behavior>>,
}

/// Address of the node.
const HOST: Ipv4Addr = Ipv4Addr::new(172, 18, 0, 2);
const NODE: NodeFields<'static> = NodeFields { name: "node-1", host_ip: HOST };
/// Address of the pod.
const POD: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 1);

impl TestPod {
    /// Creates a Pending pod `web` that the scheduler has bound.
    #[expect(clippy::needless_pass_by_value, reason = "tests build both on the spot")]
    fn new(spec: Value, annotations: Value) -> Self {
        let object = json!({
            "metadata": { "name": "web", "namespace": "shop", "uid": "u1", "generation": 1, "annotations": annotations },
            "spec": spec,
            "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "True" }] },
        });
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let (writes, removed) = (0, false);
        let process = PodCommand::decode(object.to_string().as_bytes(), Encoding::Json).unwrap();
        Self {
            processes: Processes::read(&process, NODE, |_| None),
            node_files: Arc::default(),
            images: BTreeMap::new(),
            object,
            memory: None,
            now,
            wake: None,
            writes,
            events: Vec::new(),
            removed,
            rejection: None,
            behaviors: Vec::new(),
        }
    }

    /// Syncs the pod once. Returns whether the kubelet wrote the status.
    fn sync(&mut self) -> bool {
        let pod = Pod::decode(self.object.to_string().as_bytes(), Encoding::Json).unwrap();
        let delays = Delays { start: Duration::from_secs(1), ..Delays::default() };
        let mut facts = observe::facts(&pod, HOST, &delays, &self.behaviors, false)
            .with_processes(&self.processes, Arc::clone(&self.node_files))
            .with_images(|image| self.images.get(image).copied());
        facts.rejection = self.rejection.clone();
        let memory = match self.memory.take() {
            Some(memory) => memory,
            None => observe::recover_memory(&pod, &facts, POD, self.now),
        };
        let Decision { memory, patch, remove, wake, events, node_writes, images } =
            plan(&facts, &memory, self.now);
        for write in node_writes {
            let writes: Vec<_> = write.writes.iter().collect();
            Arc::make_mut(&mut self.node_files).replace(&write.by, write.start, &writes);
        }
        for (image, at) in images {
            let known = self.images.insert(image, at);
            assert_eq!(known, None, "an image is recorded once");
        }
        self.memory = Some(memory);
        self.wake = wake;
        self.events.extend(events);
        self.removed |= remove;
        let Some(patch) = patch else { return false };
        self.writes += 1;
        let patch: Value = serde_json::from_str(&patch).unwrap();
        assert_eq!(patch["metadata"]["uid"], "u1");
        merge(self.object["status"].as_object_mut().unwrap(), patch["status"].as_object().unwrap());
        true
    }

    /// Syncs now and at each wake-up until `seconds` have passed.
    fn run(&mut self, seconds: u64) {
        let end = later(self.now, Duration::from_secs(seconds));
        self.sync();
        while let Some(wake) = self.wake.filter(|wake| *wake <= end) {
            assert!(wake > self.now, "the wake time must be in the future");
            self.now = wake;
            self.sync();
        }
        self.now = end;
    }

    /// Deletes the pod as a client does, with this grace period in seconds.
    fn delete(&mut self, grace: u64) {
        let deadline = later(self.now, Duration::from_secs(grace));
        self.object["metadata"]["deletionTimestamp"] = deadline.to_string().into();
        self.object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    }

    fn phase(&self) -> &str {
        self.object["status"]["phase"].as_str().unwrap()
    }

    /// Returns the condition of this type; null if the pod has no such condition.
    fn condition(&self, kind: &str) -> &Value {
        let conditions = self.object["status"]["conditions"].as_array().unwrap();
        conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
    }

    /// Returns the status of a main container.
    fn container(&self, index: usize) -> &Value {
        &self.object["status"]["containerStatuses"][index]
    }

    /// Returns the status of an init container.
    fn init(&self, index: usize) -> &Value {
        &self.object["status"]["initContainerStatuses"][index]
    }
}

/// Applies the subset of strategic merge patches that the tests need. Conditions are merged by type, a null removes a
/// field, and any other value replaces the field.
fn merge(into: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        let conditions =
            into.get_mut(key).filter(|_| key == "conditions").and_then(Value::as_array_mut);
        match (conditions, value) {
            (Some(old), Value::Array(new)) => new.iter().for_each(|new| merge_condition(old, new)),
            (_, Value::Null) => drop(into.remove(key)),
            _ => drop(into.insert(key.clone(), value.clone())),
        }
    }
}

/// Merges a condition into the one of the same type, or appends it.
fn merge_condition(old: &mut Vec<Value>, new: &Value) {
    match old.iter_mut().find(|old| old["type"] == new["type"]) {
        Some(old) => merge(old.as_object_mut().unwrap(), new.as_object().unwrap()),
        None => old.push(new.clone()),
    }
}

/// Returns the spec of a pod with one container that runs this script. It mounts an emptyDir and a hostPath.
fn scripted(script: &str) -> Value {
    json!({ "containers": [shell("c", script)], "volumes": [
        { "name": "data", "emptyDir": {} }, { "name": "node", "hostPath": { "path": "/var/x" } },
    ] })
}

/// Returns a container that runs this script, with the emptyDir at /data and the hostPath at /node.
fn shell(name: &str, script: &str) -> Value {
    json!({
        "name": name, "image": "busybox", "command": ["/bin/sh", "-c", script], "volumeMounts": [
            { "name": "data", "mountPath": "/data" }, { "name": "node", "mountPath": "/node" },
        ],
    })
}

/// Returns the spec of a pod with one container that does not end.
fn one_container() -> Value {
    json!({ "containers": [{ "name": "c", "image": "nginx" }] })
}

#[test]
fn ephemeral_container_starts_in_a_running_pod_and_is_not_restarted() {
    let mut pod = TestPod::new(one_container(), json!({}));
    pod.run(5);
    pod.object["spec"]["ephemeralContainers"] = json!([
        { "name": "d", "image": "busybox", "command": ["sh", "-c", "sleep 10; exit 2"] },
        { "name": "forever", "image": "busybox", "stdin": true, "tty": true },
    ]);
    let text = pod.object.to_string();
    let process = PodCommand::decode(text.as_bytes(), Encoding::Json).unwrap();
    pod.processes = Processes::read(&process, NODE, |_| None);
    pod.run(5);
    let status =
        |pod: &TestPod, n: usize| pod.object["status"]["ephemeralContainerStatuses"][n].clone();
    assert!(status(&pod, 0)["state"]["running"].is_object());
    assert_eq!(status(&pod, 0)["ready"], false);
    pod.object["metadata"]["annotations"] = json!({ "sim.evenkeel.dev/exit-code": "forever=3" });
    pod.run(600);
    assert_eq!(pod.events, [], "annotations may name ephemeral containers");
    assert_eq!(status(&pod, 0)["state"]["terminated"]["exitCode"], 2);
    assert_eq!(status(&pod, 0)["restartCount"], 0);
    assert!(status(&pod, 1)["state"]["running"].is_object());
    assert_eq!((pod.phase(), &pod.condition("Ready")["status"]), ("Running", &json!("True")));
    // A restarted kubelet recovers them from the status.
    let (writes, before) = (pod.writes, pod.object["status"].clone());
    pod.memory = None;
    pod.run(60);
    assert_eq!((pod.writes, &pod.object["status"]), (writes, &before));
    pod.delete(30);
    pod.run(60);
    assert!(status(&pod, 1)["state"]["terminated"].is_object());
    assert!(pod.removed);
}

#[test]
fn containers_crash_once_at_a_time_or_until_a_time() {
    // The test begins at 08:00:00, and the container runs from 08:00:01.
    for (crash, restarts, runs) in [
        ("at 2027-01-15T08:00:10Z", 1, true),
        ("at 2027-01-15T08:00:00Z", 0, true),
        // At 08:00:02, and after back-offs of 0, 10 and 20 s.
        ("until 2027-01-15T08:00:30Z", 3, true),
        ("c=true", 4, false),
        ("other=true", 0, true),
    ] {
        let mut pod = TestPod::new(one_container(), json!({ "sim.evenkeel.dev/crash": crash }));
        pod.run(120);
        assert_eq!(pod.container(0)["restartCount"], restarts, "{crash}");
        assert_eq!(pod.container(0)["state"]["running"].is_object(), runs, "{crash}");
        if restarts > 0 {
            let exit = &pod.container(0)["lastState"]["terminated"]["exitCode"];
            assert_eq!(exit, &json!(1), "{crash}");
        }
    }
}

#[test]
fn a_crash_at_a_time_is_not_repeated_after_a_restart() {
    let crash = json!({ "sim.evenkeel.dev/crash": "at 2027-01-15T08:00:10.95Z" });
    // Statuses have whole seconds: the second run begins 8 ms before a whole second, or as much after it.
    for start_delay in ["42ms", "58ms"] {
        let mut pod = TestPod::new(one_container(), crash.clone());
        pod.object["metadata"]["annotations"]["sim.evenkeel.dev/start-delay"] = start_delay.into();
        pod.run(60);
        assert_eq!(pod.container(0)["restartCount"], 1, "{start_delay}");
        pod.memory = None;
        pod.run(60);
        assert_eq!(pod.container(0)["restartCount"], 1, "{start_delay}");
    }
}

#[test]
fn pod_becomes_ready_in_two_writes() {
    let mut pod = TestPod::new(one_container(), json!({}));
    pod.sync();
    assert_eq!(pod.phase(), "Pending");
    assert_eq!(pod.container(0)["state"]["waiting"]["reason"], "ContainerCreating");
    assert_eq!(pod.condition("Initialized")["status"], "True");
    assert_eq!(pod.condition("ContainersReady")["reason"], "ContainersNotReady");
    assert_eq!(pod.condition("Ready")["message"], "containers with unready status: [c]");
    assert_eq!(pod.condition("PodReadyToStartContainers")["status"], "False");
    assert_eq!(pod.object["status"]["hostIP"], "172.18.0.2");
    assert_eq!(pod.object["status"]["observedGeneration"], 1);
    pod.run(5);
    assert_eq!(pod.phase(), "Running");
    assert_eq!(pod.condition("Ready")["status"], "True");
    assert_eq!(pod.condition("Ready").get("reason"), None, "the reason is removed");
    assert_eq!(pod.condition("Ready")["observedGeneration"], 1);
    assert_eq!(pod.object["status"]["podIP"], "10.128.0.1");
    assert_eq!(pod.object["status"]["podIPs"][0]["ip"], "10.128.0.1");
    assert!(pod.container(0)["state"]["running"]["startedAt"].is_string());
    assert_eq!(pod.condition("PodScheduled")["status"], "True");
    assert_eq!((pod.writes, pod.wake), (2, None));
    assert!(!pod.sync(), "an unchanged pod is not written");
}

#[test]
fn restarted_kubelet_recovers_its_memory_and_writes_nothing() {
    for (annotations, seconds) in
        [(json!({}), 5), (json!({ "sim.evenkeel.dev/crash-after": "1s" }), 6)]
    {
        let mut pod = TestPod::new(one_container(), annotations);
        pod.run(seconds);
        pod.memory = None;
        assert!(!pod.sync(), "{}", pod.object);
    }
}

#[test]
fn restarted_kubelet_writes_that_a_container_became_ready_meanwhile() {
    let mut pod = TestPod::new(one_container(), json!({ "sim.evenkeel.dev/ready-delay": "10s" }));
    pod.run(5);
    assert_eq!(pod.container(0)["ready"], false);
    pod.memory = None;
    pod.now = later(pod.now, Duration::from_secs(20));
    assert!(pod.sync());
    assert_eq!(pod.container(0)["ready"], true);
    assert_eq!(pod.condition("Ready")["status"], "True");
}

#[test]
fn annotations_set_when_and_whether_a_pod_becomes_ready() {
    let mut pod = TestPod::new(one_container(), json!({ "sim.evenkeel.dev/ready-delay": "10s" }));
    pod.run(5);
    assert_eq!((pod.phase(), &pod.condition("Ready")["status"]), ("Running", &json!("False")));
    pod.run(10);
    assert_eq!(pod.condition("Ready")["status"], "True");
    pod.object["metadata"]["annotations"] = json!({ "sim.evenkeel.dev/readiness": "never" });
    pod.run(1);
    assert_eq!(pod.condition("Ready")["status"], "False");
    assert_eq!(pod.container(0)["ready"], false);
    pod.object["metadata"]["annotations"] = json!({ "sim.evenkeel.dev/readiness": "perhaps" });
    pod.run(1);
    assert_eq!(pod.condition("Ready")["status"], "True");
    assert_eq!(pod.events.len(), 1, "{:?}", pod.events);
    pod.run(1);
    assert_eq!(pod.events.len(), 1, "the invalid annotation is reported once");
}

#[test]
fn initial_delay_seconds_delays_readiness() {
    let probed = |probes: Value, annotations: Value| {
        let mut spec = one_container();
        for (kind, probe) in probes.as_object().unwrap() {
            spec["containers"][0][kind] = probe.clone();
        }
        let mut pod = TestPod::new(spec, annotations);
        let mut ready = || {
            pod.run(10);
            pod.condition("Ready")["status"] == "True"
        };
        [ready(), ready(), ready(), ready()]
    };
    let after = |seconds: i32| json!({"httpGet": {"port": 80}, "initialDelaySeconds": seconds});
    assert_eq!(probed(json!({"readinessProbe": after(15)}), json!({})), [false, true, true, true]);
    let both = json!({"readinessProbe": after(15), "startupProbe": after(25)});
    assert_eq!(probed(both, json!({})), [false, false, true, true]);
    let annotations = json!({ "sim.evenkeel.dev/ready-delay": "35s" });
    assert_eq!(
        probed(json!({"readinessProbe": after(15)}), annotations),
        [false, false, false, true]
    );
    assert_eq!(probed(json!({"livenessProbe": after(35)}), json!({})), [true; 4]);
}

#[test]
fn readiness_gates_delay_ready() {
    let mut spec = one_container();
    spec["readinessGates"] = json!([{ "conditionType": "example.com/fed" }]);
    let mut pod = TestPod::new(spec, json!({}));
    pod.run(5);
    assert_eq!(pod.condition("ContainersReady")["status"], "True");
    assert_eq!(pod.condition("Ready")["reason"], "ReadinessGatesNotReady");
    let conditions = pod.object["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(json!({ "type": "example.com/fed", "status": "True" }));
    pod.run(1);
    assert_eq!(pod.condition("Ready")["status"], "True");
}

#[test]
fn restart_policy_and_exit_code_decide_phase_and_restarts() {
    for (policy, code, phase, restarts) in [
        ("Never", "0", "Succeeded", 0),
        ("Never", "3", "Failed", 0),
        ("OnFailure", "0", "Succeeded", 0),
        ("OnFailure", "3", "Running", 2),
        ("Always", "0", "Running", 2),
    ] {
        let mut spec = one_container();
        spec["restartPolicy"] = policy.into();
        let annotations =
            json!({ "sim.evenkeel.dev/run-time": "2s", "sim.evenkeel.dev/exit-code": code });
        let mut pod = TestPod::new(spec, annotations);
        pod.run(20);
        assert_eq!(pod.phase(), phase, "{policy} {code}");
        assert_eq!(
            pod.container(0)["restartCount"],
            restarts,
            "{policy} {code}: {}",
            pod.container(0)
        );
        if phase != "Running" {
            assert_eq!(
                pod.container(0)["state"]["terminated"]["exitCode"],
                code.parse::<i32>().unwrap()
            );
            assert_eq!(
                pod.condition("Ready")["reason"],
                if code == "0" { "PodCompleted" } else { "PodFailed" }
            );
            assert_eq!(pod.wake, None);
        }
    }
}

#[test]
fn crash_loop_back_off_doubles_up_to_five_minutes() {
    let mut pod = TestPod::new(one_container(), json!({ "sim.evenkeel.dev/crash-after": "0" }));
    let start = pod.now;
    // Seconds since the start, and the restart count from then on.
    let mut restarts = Vec::new();
    for _ in 0..4000 {
        pod.sync();
        let count = pod.container(0)["restartCount"].as_i64().unwrap_or(0);
        if restarts.last().is_none_or(|(_, last)| *last != count) {
            restarts.push((pod.now.as_second() - start.as_second(), count));
        }
        let Some(wake) = pod.wake.filter(|wake| wake.as_second() - start.as_second() < 1300) else {
            break;
        };
        pod.now = wake;
    }
    assert_eq!(
        restarts,
        [
            (0, 0),
            (1, 1),
            (11, 2),
            (31, 3),
            (71, 4),
            (151, 5),
            (311, 6),
            (611, 7),
            (911, 8),
            (1211, 9)
        ]
    );
    let waiting = &pod.container(0)["state"]["waiting"];
    assert_eq!(waiting["reason"], "CrashLoopBackOff");
    assert_eq!(waiting["message"], "back-off 5m0s restarting failed container=c pod=web_shop(u1)");
    assert_eq!(pod.container(0)["lastState"]["terminated"]["exitCode"], 1);
    assert_eq!(pod.phase(), "Running");
}

#[test]
fn init_containers_run_in_order_and_sidecars_keep_running() {
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [
            { "name": "first", "image": "a" },
            { "name": "side", "image": "b", "restartPolicy": "Always" },
            { "name": "second", "image": "c" },
        ],
        "containers": [{ "name": "c", "image": "nginx" }],
    });
    let mut pod =
        TestPod::new(spec, json!({ "sim.evenkeel.dev/run-time": "first=2s,second=2s,c=2s" }));
    pod.run(2);
    assert_eq!(pod.container(0)["state"]["waiting"]["reason"], "PodInitializing");
    assert_eq!(
        pod.condition("Initialized")["message"],
        "containers with incomplete status: [first side second]"
    );
    pod.run(3);
    assert!(pod.init(0)["state"]["terminated"].is_object());
    assert!(pod.init(1)["state"]["running"].is_object());
    assert_eq!((pod.phase(), &pod.init(2)["started"]), ("Pending", &json!(true)));
    pod.run(3);
    assert_eq!(pod.phase(), "Running");
    assert_eq!(pod.condition("Initialized")["status"], "True");
    assert_eq!(pod.condition("Ready")["status"], "True");
    pod.run(10);
    assert_eq!(pod.phase(), "Succeeded");
    assert!(pod.init(1)["state"]["terminated"].is_object(), "the sidecar is stopped last");
}

#[test]
fn failed_init_container_fails_the_pod_only_without_restarts() {
    for (policy, phase) in [("Never", "Failed"), ("Always", "Pending")] {
        let spec = json!({
            "restartPolicy": policy,
            "initContainers": [{ "name": "i", "image": "a" }],
            "containers": [{ "name": "c", "image": "nginx" }],
        });
        let mut pod = TestPod::new(spec, json!({ "sim.evenkeel.dev/exit-code": "i=1" }));
        pod.run(20);
        assert_eq!(pod.phase(), phase, "{policy}");
        assert_eq!(pod.container(0)["state"]["waiting"]["reason"], "PodInitializing");
    }
}

#[test]
fn images_with_reserved_tags_fail_to_pull() {
    for (image, annotations, phase) in [
        ("nginx:404", json!({}), "Pending"),
        ("nginx:non-existent", json!({}), "Pending"),
        ("localhost:5000/web:404", json!({}), "Pending"),
        ("localhost:404/web", json!({}), "Running"),
        ("web:v404", json!({}), "Running"),
        ("nginx:404", json!({ "sim.evenkeel.dev/image-pull": "ok" }), "Running"),
    ] {
        let mut pod =
            TestPod::new(json!({ "containers": [{ "name": "c", "image": image }] }), annotations);
        pod.run(2);
        assert_eq!(pod.phase(), phase, "{image}");
    }
}

#[test]
fn a_node_pulls_an_image_once() {
    let annotations = json!({
        "sim.evenkeel.dev/image-size": "600Mi", "sim.evenkeel.dev/image-pull-rate": "60Mi",
    });
    let spec = json!({
        "initContainers": [{ "name": "i", "image": "tools" }],
        "containers": [{ "name": "a", "image": "app" }, { "name": "b", "image": "app" }],
    });
    let mut first = TestPod::new(spec, annotations.clone());
    // 10 s for each of the images, and 1 s for each of the containers, the main ones at the same time.
    first.run(21);
    assert_eq!(first.phase(), "Pending");
    first.run(1);
    assert_eq!(first.phase(), "Running");
    let images: Vec<&str> = first.images.keys().map(String::as_str).collect();
    assert_eq!(images, ["app", "tools"]);

    let mut second = TestPod::new(one_container(), annotations.clone());
    second.object["spec"]["containers"][0]["image"] = "app".into();
    second.images = first.images.clone();
    second.now = first.now;
    second.run(1);
    assert_eq!(second.phase(), "Running", "the node has the image");

    // While another pod pulls it, a pod waits for that pull.
    let mut third = TestPod::new(one_container(), annotations);
    third.object["spec"]["containers"][0]["image"] = "app".into();
    third.images = BTreeMap::from([("app".to_owned(), later(third.now, Duration::from_secs(4)))]);
    third.run(4);
    assert_eq!(third.phase(), "Pending");
    third.run(1);
    assert_eq!(third.phase(), "Running");
}

#[test]
fn the_images_of_running_containers_are_on_the_node() {
    let mut pod = TestPod::new(one_container(), json!({}));
    pod.run(2);
    (pod.memory, pod.images) = (None, BTreeMap::new());
    pod.sync();
    assert_eq!(pod.images.len(), 1, "after a restart of the kubelet");
}

#[test]
fn image_pull_back_off_keeps_the_pod_pending() {
    let mut pod = TestPod::new(one_container(), json!({ "sim.evenkeel.dev/image-pull": "fail" }));
    pod.run(2);
    assert_eq!(pod.container(0)["state"]["waiting"]["reason"], "ErrImagePull");
    pod.run(100);
    assert_eq!(pod.container(0)["state"]["waiting"]["reason"], "ImagePullBackOff");
    assert_eq!((pod.phase(), pod.wake), ("Pending", None));
    pod.object["metadata"]["annotations"] = json!({});
    pod.run(1);
    assert_eq!(pod.phase(), "Running");
}

#[test]
fn termination_time_is_bounded_by_the_grace_period() {
    for (termination_time, grace, ended_after, code) in
        [("0", 30, 0, 0), ("5s", 30, 5, 0), ("60s", 30, 30, 137), ("5s", 0, 0, 137)]
    {
        let mut pod = TestPod::new(
            one_container(),
            json!({ "sim.evenkeel.dev/termination-time": termination_time }),
        );
        pod.run(5);
        pod.delete(grace);
        pod.sync();
        assert_eq!(pod.removed, ended_after == 0, "{termination_time} {grace}");
        let deleted_at = pod.now;
        pod.run(40);
        assert!(pod.removed, "{termination_time} {grace}");
        let ended = &pod.container(0)["state"]["terminated"];
        assert_eq!(ended["exitCode"], code, "{termination_time} {grace}");
        let finished: Timestamp = ended["finishedAt"].as_str().unwrap().parse().unwrap();
        assert_eq!(
            finished.as_second() - deleted_at.as_second(),
            ended_after,
            "{termination_time} {grace}"
        );
        assert_eq!(pod.phase(), if code == 0 { "Succeeded" } else { "Failed" });
    }
}

#[test]
fn pod_deleted_before_start_fails_and_is_removed() {
    let mut pod = TestPod::new(one_container(), json!({}));
    pod.sync();
    pod.delete(30);
    pod.sync();
    assert!(pod.removed);
    assert_eq!(
        (pod.phase(), &pod.container(0)["state"]["terminated"]["exitCode"]),
        ("Failed", &json!(137))
    );
}

#[test]
fn active_deadline_seconds_fails_the_pod_after_its_containers_stop() {
    let mut spec = one_container();
    spec["activeDeadlineSeconds"] = 10.into();
    let mut pod = TestPod::new(spec, json!({ "sim.evenkeel.dev/termination-time": "5s" }));
    pod.run(9);
    assert_eq!(pod.phase(), "Running");
    pod.run(2);
    assert_eq!((pod.phase(), &pod.object["status"]["reason"]), ("Running", &Value::Null));
    assert!(pod.container(0)["state"]["running"].is_object());
    pod.run(10);
    assert_eq!(
        (pod.phase(), &pod.object["status"]["reason"]),
        ("Failed", &json!("DeadlineExceeded"))
    );
    assert!(pod.container(0)["state"]["terminated"].is_object());
    assert_eq!(pod.wake, None);
}

#[test]
fn rejected_pod_fails_with_the_reason_in_one_write() {
    let mut pod = TestPod::new(one_container(), json!({}));
    pod.rejection = Some(Rejection { reason: RejectionReason::Cpu, message: "no cpu".into() });
    pod.sync();
    pod.rejection = None;
    pod.run(10);
    assert_eq!((pod.phase(), &pod.object["status"]["reason"]), ("Failed", &json!("OutOfcpu")));
    assert_eq!(pod.object["status"]["message"], "Pod was rejected: no cpu");
    assert_eq!((pod.writes, pod.events.len()), (1, 1));
    pod.delete(0);
    pod.sync();
    assert!(pod.removed);
}

#[test]
fn shorter_grace_period_ends_the_pod_sooner() {
    let mut pod =
        TestPod::new(one_container(), json!({ "sim.evenkeel.dev/termination-time": "1h" }));
    pod.run(5);
    pod.delete(600);
    pod.run(5);
    assert!(!pod.removed);
    pod.delete(1);
    pod.run(2);
    assert!(pod.removed);
}

#[test]
fn command_determines_the_exit_unless_annotations_override_it() {
    for (script, annotations, phase, code) in [
        ("sleep 3; exit 7", json!({}), "Failed", 7),
        ("exit 0", json!({}), "Succeeded", 0),
        ("exit 7", json!({ "sim.evenkeel.dev/run-time": "1s" }), "Succeeded", 0),
        ("exit 7", json!({ "sim.evenkeel.dev/exit-code": "3" }), "Failed", 3),
        ("sleep infinity", json!({ "sim.evenkeel.dev/crash-after": "1s" }), "Failed", 1),
    ] {
        let mut spec = scripted(script);
        spec["restartPolicy"] = "Never".into();
        let mut pod = TestPod::new(spec, annotations);
        pod.run(10);
        assert_eq!(pod.phase(), phase, "{script}");
        assert_eq!(pod.container(0)["state"]["terminated"]["exitCode"], code, "{script}");
    }
    for script in ["sleep infinity", "frobnicate --all"] {
        let mut pod = TestPod::new(scripted(script), json!({}));
        pod.run(3600);
        assert_eq!((pod.phase(), pod.writes, pod.wake), ("Running", 2, None), "{script}");
        pod.memory = None;
        assert!(!pod.sync(), "a restarted kubelet writes nothing");
    }
}

#[test]
fn with_a_failure_rate_the_exit_code_is_that_of_the_runs_that_fail() {
    for (behavior, annotations, script, codes) in [
        (json!({ "failureRate": "50%", "exitCode": 42, "runTime": "1s" }), json!({}), "", [0, 42]),
        (json!({ "failureRate": "50%", "exitCode": 42 }), json!({}), "exit 0", [0, 42]),
        (json!({ "failureRate": "50%", "exitCode": 42 }), json!({}), "exit 5", [5, 42]),
        (json!({ "failureRate": "50%", "runTime": "1s" }), json!({}), "", [0, 1]),
        (
            json!({ "failureRate": "50%", "runTime": "1s" }),
            json!({ "sim.evenkeel.dev/exit-code": "3" }),
            "",
            [0, 3],
        ),
    ] {
        let found: BTreeSet<i64> = (0..20)
            .map(|index| {
                let mut spec = if script.is_empty() { one_container() } else { scripted(script) };
                spec["restartPolicy"] = "Never".into();
                let mut pod = TestPod::new(spec, annotations.clone());
                pod.object["metadata"]["name"] = format!("web-{index}").into();
                pod.behaviors = vec![Arc::new(parse_spec("b", &behavior).unwrap())];
                pod.run(10);
                pod.container(0)["state"]["terminated"]["exitCode"].as_i64().unwrap()
            })
            .collect();
        assert_eq!(found, BTreeSet::from(codes), "{behavior} {annotations} {script}");
    }
}

#[test]
fn emptydir_files_outlive_the_container_and_hostpath_files_the_pod() {
    // The script fails in its first run, and succeeds in later runs that find its file.
    let fails_once = |folder: &str| {
        format!("if [[ -r {folder}/x ]]; then exit 0; else touch {folder}/x; exit 1; fi")
    };
    for (folder, phase) in [("/data", "Succeeded"), ("/node", "Succeeded"), ("/tmp", "Running")] {
        let mut spec = scripted(&fails_once(folder));
        spec["restartPolicy"] = "OnFailure".into();
        let mut pod = TestPod::new(spec, json!({}));
        pod.run(5);
        assert_eq!(pod.phase(), phase, "{folder}");
        assert_eq!(pod.container(0)["restartCount"], 1, "{folder}");
    }
    let mut spec = scripted(&fails_once("/node"));
    spec["restartPolicy"] = "Never".into();
    let mut first = TestPod::new(spec.clone(), json!({}));
    first.run(5);
    spec["containers"][0]["name"] = "d".into(); // The run gets another ID.
    let mut second = TestPod::new(spec, json!({}));
    second.node_files = first.node_files;
    second.run(5);
    assert_eq!(
        (&*first.object["status"]["phase"].to_string(), second.phase()),
        ("\"Failed\"", "Succeeded")
    );
}

#[test]
fn a_container_sees_files_that_another_writes_to_a_shared_volume() {
    let mut spec = scripted("until [ -f /data/go ]; do sleep 1; done; exit 0");
    spec["restartPolicy"] = "Never".into();
    spec["containers"]
        .as_array_mut()
        .unwrap()
        .push(shell("late", "sleep 20; touch /data/go; sleep 5; exit 3"));
    let mut pod = TestPod::new(spec, json!({}));
    pod.run(15);
    assert_eq!(pod.phase(), "Running");
    pod.run(60);
    assert_eq!(pod.phase(), "Failed");
    // Run time in seconds, and exit code.
    let ended = |index: usize| {
        let ended = &pod.container(index)["state"]["terminated"];
        let time =
            |key: &str| ended[key].as_str().unwrap().parse::<Timestamp>().unwrap().as_second();
        (time("finishedAt") - time("startedAt"), ended["exitCode"].as_i64().unwrap())
    };
    assert_eq!((ended(0), ended(1)), ((20, 0), (25, 3)));
}

#[test]
fn command_handles_sigterm_or_is_killed_after_the_grace_period() {
    let handler = "trap 'sleep 5; exit 143' TERM; while true; do sleep 1; done";
    for (script, grace, after, code) in [
        (handler, 30, 5, 143),
        (handler, 2, 2, 137),
        ("sleep infinity", 10, 10, 137),
        ("sleep 15; exit 4", 30, 5, 4),
        ("frobnicate", 30, 0, 0),
    ] {
        let mut pod = TestPod::new(scripted(script), json!({}));
        pod.run(11);
        pod.delete(grace);
        let deleted_at = pod.now;
        pod.run(60);
        assert!(pod.removed, "{script}");
        let ended = &pod.container(0)["state"]["terminated"];
        let finished: Timestamp = ended["finishedAt"].as_str().unwrap().parse().unwrap();
        assert_eq!(
            (finished.as_second() - deleted_at.as_second(), &ended["exitCode"]),
            (after, &json!(code)),
            "{script} {grace}"
        );
    }
}

#[test]
fn sidecars_are_stopped_after_the_main_containers_in_reverse_order() {
    let stubborn = "sleep infinity";
    let exits_after =
        |seconds: u32| format!("trap 'sleep {seconds}; exit 0' TERM; while true; do sleep 1; done");
    // Scripts of the sidecars `one` and `two` and of the main container; grace period; seconds from the deletion to
    // the end of each, and exit codes.
    for (one, two, main, grace, ends) in [
        (&*exits_after(1), &*exits_after(2), &*exits_after(4), 30, [(7, 0), (6, 0), (4, 0)]),
        // A sidecar that waits may end by itself, here 15 s after the pod began.
        (&exits_after(1), "sleep 13; exit 3", &exits_after(4), 30, [(5, 0), (3, 3), (4, 0)]),
        // At the end of the grace period, all that still wait get SIGTERM, and SIGKILL 2 s later.
        (&exits_after(1), stubborn, stubborn, 10, [(11, 0), (12, 137), (10, 137)]),
        (stubborn, &exits_after(1), &exits_after(4), 10, [(10, 137), (5, 0), (4, 0)]),
        (stubborn, stubborn, stubborn, 0, [(0, 137), (0, 137), (0, 137)]),
    ] {
        let mut spec = scripted(main);
        spec["initContainers"] = json!([shell("one", one), shell("two", two)]);
        for sidecar in spec["initContainers"].as_array_mut().unwrap() {
            sidecar["restartPolicy"] = "Always".into();
        }
        let mut pod = TestPod::new(spec, json!({}));
        pod.run(12);
        assert_eq!(pod.phase(), "Running");
        pod.delete(grace);
        let deleted_at = pod.now;
        pod.run(60);
        assert!(pod.removed, "{grace} {main}");
        let found = [pod.init(0), pod.init(1), pod.container(0)].map(|status| {
            let ended = &status["state"]["terminated"];
            let finished: Timestamp = ended["finishedAt"].as_str().unwrap().parse().unwrap();
            (finished.as_second() - deleted_at.as_second(), ended["exitCode"].as_i64().unwrap())
        });
        assert_eq!(found, ends, "{grace} {one} / {two} / {main}");
    }
}

#[test]
fn exec_readiness_probe_follows_the_containers_files() {
    for command in [json!(["cat", "/data/up"]), json!(["sh", "-c", "test -f /data/up"])] {
        let mut spec = scripted("sleep 30; touch /data/up; sleep 30; rm /data/up; sleep infinity");
        spec["containers"][0]["readinessProbe"] = json!({ "exec": { "command": command } });
        let mut pod = TestPod::new(spec, json!({}));
        let mut ready = Vec::new();
        for _ in 0..9 {
            pod.run(10);
            ready.push(pod.condition("Ready")["status"] == "True");
        }
        assert_eq!(ready, [false, false, false, true, true, true, false, false, false]);
        assert_eq!((pod.writes, pod.phase()), (4, "Running"));
        pod.object["metadata"]["annotations"] = json!({ "sim.evenkeel.dev/readiness": "always" });
        pod.run(1);
        assert_eq!(pod.condition("Ready")["status"], "True");
    }
}

#[test]
fn main_container_reads_what_an_init_container_wrote() {
    let mut spec = scripted("exit $(cat /data/code)");
    spec["restartPolicy"] = "Never".into();
    spec["initContainers"] = json!([shell("i", "sleep 4; echo 9 > /data/code")]);
    let mut pod = TestPod::new(spec, json!({}));
    pod.run(4);
    assert_eq!(pod.phase(), "Pending");
    pod.run(10);
    assert_eq!(pod.container(0)["state"]["terminated"]["exitCode"], 9);
}

/// Generates up to four simulation annotations, some of them invalid.
fn arbitrary_annotations() -> impl Strategy<Value = Value> {
    let value = |text: &'static [&'static str]| proptest::sample::select(text);
    let entry = prop_oneof![
        (Just("run-time"), value(&["0", "1s", "forever", "a=2s", "x"])),
        (Just("exit-code"), value(&["0", "1", "i=1", "s=2"])),
        (Just("crash-limit"), value(&["0", "1", "3"])),
        (Just("start-delay"), value(&["0", "3s"])),
        (Just("ready-delay"), value(&["0", "4s"])),
        (Just("readiness"), value(&["always", "never"])),
        (Just("termination-time"), value(&["0", "3s", "1h"])),
        (Just("image-pull"), value(&["ok", "fail", "s=fail"])),
        (Just("image-pull-time"), value(&["0", "7s", "a=20s"])),
    ];
    proptest::collection::vec(entry, 0..5).prop_map(|entries| {
        Value::Object(
            entries
                .into_iter()
                .map(|(key, value)| (format!("sim.evenkeel.dev/{key}"), value.into()))
                .collect(),
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_deleted_pod_is_removed_within_its_grace_period(
        annotations in arbitrary_annotations(),
        policy in proptest::sample::select(&["Always", "OnFailure", "Never"][..]),
        init_count in 0_usize..3,
        deadline in proptest::option::of(0_u64..20),
        run_seconds in 0_u64..100,
        grace in 0_u64..40,
    ) {
        let inits = [json!({ "name": "i", "image": "i" }), json!({ "name": "s", "image": "s", "restartPolicy": "Always" })];
        let mut spec = json!({
            "restartPolicy": policy, "initContainers": inits[..init_count],
            "containers": [{ "name": "a", "image": "a" }, { "name": "b", "image": "b" }],
        });
        if let Some(deadline) = deadline {
            spec["activeDeadlineSeconds"] = deadline.into();
        }
        let mut pod = TestPod::new(spec, annotations);
        pod.run(run_seconds);
        // A second sync at the same time changes nothing.
        prop_assert!(!pod.sync());
        // A pod in a terminal phase is not written again, unless a transition was due.
        if Phase::parse(pod.phase()).is_terminal() {
            let writes = pod.writes;
            let due = pod.wake;
            pod.run(3600);
            prop_assert!(due.is_some() || pod.writes == writes, "a finished pod is not written");
        }
        pod.delete(grace);
        // A sidecar that receives SIGTERM at the end of the grace period has 2 s left.
        pod.run(grace + 3);
        prop_assert!(pod.removed, "{}", pod.object);
        prop_assert!(Phase::parse(pod.phase()).is_terminal());
        prop_assert_eq!(pod.wake, None);
    }
}
