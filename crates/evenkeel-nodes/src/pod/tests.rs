//! Lives of pods step by step: each test has a pod, a time, and what the kubelet wrote.

use evenkeel_api::{
    Encoding, View,
    time::Timestamp,
    views::{Pod, PodCommand},
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use super::{
    facts::{Refusal, Refused},
    memory::{Memory, Phase},
    observe,
    plan::{Decision, PodEvent, plan},
};
use crate::Delays;
use evenkeel_shell::{Files, Processes, later};

/// A pod with its kubelet, and a model of the API server that merges each patch into the status.
struct World {
    object: Value,
    memory: Option<Memory>,
    now: Timestamp,
    wake: Option<Timestamp>,
    writes: usize,
    events: Vec<PodEvent>,
    removed: bool,
    refusal: Option<Refusal>,
    processes: Processes,
    node_files: Arc<Files>,
}

const HOST: Ipv4Addr = Ipv4Addr::new(172, 18, 0, 2);
const POD: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 1);

impl World {
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
            processes: Processes::read(&process, ("node-1", HOST), |_| None),
            node_files: Arc::default(),
            object,
            memory: None,
            now,
            wake: None,
            writes,
            events: Vec::new(),
            removed,
            refusal: None,
        }
    }

    /// Syncs the pod once; returns whether the kubelet wrote.
    fn sync(&mut self) -> bool {
        let pod = Pod::decode(self.object.to_string().as_bytes(), Encoding::Json).unwrap();
        let delays = Delays { start: Duration::from_secs(1), ..Delays::default() };
        let mut facts = observe::facts(&pod, HOST, &delays, false)
            .with_processes(&self.processes, Arc::clone(&self.node_files));
        facts.refused = self.refusal.clone();
        let memory = match self.memory.take() {
            Some(memory) => memory,
            None => observe::recover_memory(&pod, &facts, POD, self.now),
        };
        let Decision { memory, patch, remove, wake, events, node_writes } =
            plan(&facts, &memory, self.now);
        for write in node_writes {
            let writes: Vec<_> = write.writes.iter().collect();
            Arc::make_mut(&mut self.node_files).replace(&write.by, write.start, &writes);
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

    fn delete(&mut self, grace: u64) {
        let deadline = later(self.now, Duration::from_secs(grace));
        self.object["metadata"]["deletionTimestamp"] = deadline.to_string().into();
        self.object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    }

    fn phase(&self) -> &str {
        self.object["status"]["phase"].as_str().unwrap()
    }

    fn condition(&self, kind: &str) -> &Value {
        let conditions = self.object["status"]["conditions"].as_array().unwrap();
        conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
    }

    fn container(&self, n: usize) -> &Value {
        &self.object["status"]["containerStatuses"][n]
    }

    fn init(&self, n: usize) -> &Value {
        &self.object["status"]["initContainerStatuses"][n]
    }
}

/// Merges as much of a strategic merge patch as the tests need: conditions by type, null removes, the rest
/// replaces.
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

fn merge_condition(old: &mut Vec<Value>, new: &Value) {
    match old.iter_mut().find(|old| old["type"] == new["type"]) {
        Some(old) => merge(old.as_object_mut().unwrap(), new.as_object().unwrap()),
        None => old.push(new.clone()),
    }
}

/// Returns a pod with one container that runs this script.
fn scripted(script: &str) -> Value {
    json!({ "containers": [shell("c", script)], "volumes": [
        { "name": "data", "emptyDir": {} }, { "name": "node", "hostPath": { "path": "/var/x" } },
    ] })
}

fn shell(name: &str, script: &str) -> Value {
    json!({
        "name": name, "image": "busybox", "command": ["/bin/sh", "-c", script], "volumeMounts": [
            { "name": "data", "mountPath": "/data" }, { "name": "node", "mountPath": "/node" },
        ],
    })
}

fn one_container() -> Value {
    json!({ "containers": [{ "name": "c", "image": "nginx" }] })
}

#[test]
fn ephemeral_container_runs_once_beside_the_others() {
    let mut world = World::new(one_container(), json!({}));
    world.run(5);
    world.object["spec"]["ephemeralContainers"] = json!([
        { "name": "d", "image": "busybox", "command": ["sh", "-c", "sleep 10; exit 2"] },
        { "name": "forever", "image": "busybox", "stdin": true, "tty": true },
    ]);
    let text = world.object.to_string();
    let process = PodCommand::decode(text.as_bytes(), Encoding::Json).unwrap();
    world.processes = Processes::read(&process, ("node-1", HOST), |_| None);
    world.run(5);
    let status =
        |world: &World, n: usize| world.object["status"]["ephemeralContainerStatuses"][n].clone();
    assert!(status(&world, 0)["state"]["running"].is_object());
    assert_eq!(status(&world, 0)["ready"], false);
    world.run(600);
    assert_eq!(status(&world, 0)["state"]["terminated"]["exitCode"], 2);
    assert_eq!(status(&world, 0)["restartCount"], 0);
    assert!(status(&world, 1)["state"]["running"].is_object());
    assert_eq!((world.phase(), &world.condition("Ready")["status"]), ("Running", &json!("True")));
    // A kubelet that starts anew takes them up from the status.
    let (writes, before) = (world.writes, world.object["status"].clone());
    world.memory = None;
    world.run(60);
    assert_eq!((world.writes, &world.object["status"]), (writes, &before));
    world.delete(30);
    world.run(60);
    assert!(status(&world, 1)["state"]["terminated"].is_object());
    assert!(world.removed);
}

#[test]
fn pod_becomes_ready_in_two_writes() {
    let mut world = World::new(one_container(), json!({}));
    world.sync();
    assert_eq!(world.phase(), "Pending");
    assert_eq!(world.container(0)["state"]["waiting"]["reason"], "ContainerCreating");
    assert_eq!(world.condition("Initialized")["status"], "True");
    assert_eq!(world.condition("ContainersReady")["reason"], "ContainersNotReady");
    assert_eq!(world.condition("Ready")["message"], "containers with unready status: [c]");
    assert_eq!(world.condition("PodReadyToStartContainers")["status"], "False");
    assert_eq!(world.object["status"]["hostIP"], "172.18.0.2");
    assert_eq!(world.object["status"]["observedGeneration"], 1);
    world.run(5);
    assert_eq!(world.phase(), "Running");
    assert_eq!(world.condition("Ready")["status"], "True");
    assert_eq!(world.condition("Ready").get("reason"), None, "the reason is removed");
    assert_eq!(world.condition("Ready")["observedGeneration"], 1);
    assert_eq!(world.object["status"]["podIP"], "10.128.0.1");
    assert_eq!(world.object["status"]["podIPs"][0]["ip"], "10.128.0.1");
    assert!(world.container(0)["state"]["running"]["startedAt"].is_string());
    assert_eq!(world.condition("PodScheduled")["status"], "True");
    assert_eq!((world.writes, world.wake), (2, None));
    assert!(!world.sync(), "an unchanged pod is not written");
}

#[test]
fn restarted_kubelet_recovers_its_state() {
    for (annotations, seconds) in
        [(json!({}), 5), (json!({ "sim.evenkeel.dev/crash-after": "1s" }), 6)]
    {
        let mut world = World::new(one_container(), annotations);
        world.run(seconds);
        world.memory = None;
        assert!(!world.sync(), "{}", world.object);
    }
}

#[test]
fn ready_delay_and_readiness_annotations() {
    let mut world = World::new(one_container(), json!({ "sim.evenkeel.dev/ready-delay": "10s" }));
    world.run(5);
    assert_eq!((world.phase(), &world.condition("Ready")["status"]), ("Running", &json!("False")));
    world.run(10);
    assert_eq!(world.condition("Ready")["status"], "True");
    world.object["metadata"]["annotations"] = json!({ "sim.evenkeel.dev/readiness": "never" });
    world.run(1);
    assert_eq!(world.condition("Ready")["status"], "False");
    assert_eq!(world.container(0)["ready"], false);
    world.object["metadata"]["annotations"] = json!({ "sim.evenkeel.dev/readiness": "perhaps" });
    world.run(1);
    assert_eq!(world.condition("Ready")["status"], "True");
    assert_eq!(world.events.len(), 1, "{:?}", world.events);
    world.run(1);
    assert_eq!(world.events.len(), 1, "recorded once");
}

#[test]
fn initial_delay_seconds_delays_readiness() {
    let probed = |probes: Value, annotations: Value| {
        let mut spec = one_container();
        for (kind, probe) in probes.as_object().unwrap() {
            spec["containers"][0][kind] = probe.clone();
        }
        let mut world = World::new(spec, annotations);
        let mut ready = || {
            world.run(10);
            world.condition("Ready")["status"] == "True"
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
    let mut world = World::new(spec, json!({}));
    world.run(5);
    assert_eq!(world.condition("ContainersReady")["status"], "True");
    assert_eq!(world.condition("Ready")["reason"], "ReadinessGatesNotReady");
    let conditions = world.object["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(json!({ "type": "example.com/fed", "status": "True" }));
    world.run(1);
    assert_eq!(world.condition("Ready")["status"], "True");
}

#[test]
fn restart_policy_and_exit_code() {
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
        let mut world = World::new(spec, annotations);
        world.run(20);
        assert_eq!(world.phase(), phase, "{policy} {code}");
        assert_eq!(
            world.container(0)["restartCount"],
            restarts,
            "{policy} {code}: {}",
            world.container(0)
        );
        if phase != "Running" {
            assert_eq!(
                world.container(0)["state"]["terminated"]["exitCode"],
                code.parse::<i32>().unwrap()
            );
            assert_eq!(
                world.condition("Ready")["reason"],
                if code == "0" { "PodCompleted" } else { "PodFailed" }
            );
            assert_eq!(world.wake, None);
        }
    }
}

#[test]
fn crash_loop_back_off() {
    let mut world = World::new(one_container(), json!({ "sim.evenkeel.dev/crash-after": "0" }));
    let start = world.now;
    let mut restarts = Vec::new();
    for _ in 0..4000 {
        world.sync();
        let count = world.container(0)["restartCount"].as_i64().unwrap_or(0);
        if restarts.last().is_none_or(|(_, last)| *last != count) {
            restarts.push((world.now.as_second() - start.as_second(), count));
        }
        let Some(wake) = world.wake.filter(|wake| wake.as_second() - start.as_second() < 1300)
        else {
            break;
        };
        world.now = wake;
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
    let waiting = &world.container(0)["state"]["waiting"];
    assert_eq!(waiting["reason"], "CrashLoopBackOff");
    assert_eq!(waiting["message"], "back-off 5m0s restarting failed container=c pod=web_shop(u1)");
    assert_eq!(world.container(0)["lastState"]["terminated"]["exitCode"], 1);
    assert_eq!(world.phase(), "Running");
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
    let mut world =
        World::new(spec, json!({ "sim.evenkeel.dev/run-time": "first=2s,second=2s,c=2s" }));
    world.run(2);
    assert_eq!(world.container(0)["state"]["waiting"]["reason"], "PodInitializing");
    assert_eq!(
        world.condition("Initialized")["message"],
        "containers with incomplete status: [first side second]"
    );
    world.run(3);
    assert!(world.init(0)["state"]["terminated"].is_object());
    assert!(world.init(1)["state"]["running"].is_object());
    assert_eq!((world.phase(), &world.init(2)["started"]), ("Pending", &json!(true)));
    world.run(3);
    assert_eq!(world.phase(), "Running");
    assert_eq!(world.condition("Initialized")["status"], "True");
    assert_eq!(world.condition("Ready")["status"], "True");
    world.run(10);
    assert_eq!(world.phase(), "Succeeded");
    assert!(world.init(1)["state"]["terminated"].is_object(), "the sidecar is stopped last");
}

#[test]
fn failed_init_container_by_restart_policy() {
    for (policy, phase) in [("Never", "Failed"), ("Always", "Pending")] {
        let spec = json!({
            "restartPolicy": policy,
            "initContainers": [{ "name": "i", "image": "a" }],
            "containers": [{ "name": "c", "image": "nginx" }],
        });
        let mut world = World::new(spec, json!({ "sim.evenkeel.dev/exit-code": "i=1" }));
        world.run(20);
        assert_eq!(world.phase(), phase, "{policy}");
        assert_eq!(world.container(0)["state"]["waiting"]["reason"], "PodInitializing");
    }
}

#[test]
fn image_tags_that_fail_to_pull() {
    for (image, annotations, phase) in [
        ("nginx:404", json!({}), "Pending"),
        ("nginx:non-existent", json!({}), "Pending"),
        ("localhost:5000/web:404", json!({}), "Pending"),
        ("localhost:404/web", json!({}), "Running"),
        ("web:v404", json!({}), "Running"),
        ("nginx:404", json!({ "sim.evenkeel.dev/image-pull": "ok" }), "Running"),
    ] {
        let mut world =
            World::new(json!({ "containers": [{ "name": "c", "image": image }] }), annotations);
        world.run(2);
        assert_eq!(world.phase(), phase, "{image}");
    }
}

#[test]
fn image_pull_back_off_keeps_the_pod_pending() {
    let mut world = World::new(one_container(), json!({ "sim.evenkeel.dev/image-pull": "fail" }));
    world.run(2);
    assert_eq!(world.container(0)["state"]["waiting"]["reason"], "ErrImagePull");
    world.run(100);
    assert_eq!(world.container(0)["state"]["waiting"]["reason"], "ImagePullBackOff");
    assert_eq!((world.phase(), world.wake), ("Pending", None));
    world.object["metadata"]["annotations"] = json!({});
    world.run(1);
    assert_eq!(world.phase(), "Running");
}

#[test]
fn termination_time_is_bounded_by_the_grace_period() {
    for (annotation, grace, ended_after, code) in
        [("0", 30, 0, 0), ("5s", 30, 5, 0), ("60s", 30, 30, 137), ("5s", 0, 0, 137)]
    {
        let mut world =
            World::new(one_container(), json!({ "sim.evenkeel.dev/termination-time": annotation }));
        world.run(5);
        world.delete(grace);
        world.sync();
        assert_eq!(world.removed, ended_after == 0, "{annotation} {grace}");
        let begin = world.now;
        world.run(40);
        assert!(world.removed, "{annotation} {grace}");
        let ended = &world.container(0)["state"]["terminated"];
        assert_eq!(ended["exitCode"], code, "{annotation} {grace}");
        let finished: Timestamp = ended["finishedAt"].as_str().unwrap().parse().unwrap();
        assert_eq!(finished.as_second() - begin.as_second(), ended_after, "{annotation} {grace}");
        assert_eq!(world.phase(), if code == 0 { "Succeeded" } else { "Failed" });
    }
}

#[test]
fn pod_deleted_before_start_fails_and_is_removed() {
    let mut world = World::new(one_container(), json!({}));
    world.sync();
    world.delete(30);
    world.sync();
    assert!(world.removed);
    assert_eq!(
        (world.phase(), &world.container(0)["state"]["terminated"]["exitCode"]),
        ("Failed", &json!(137))
    );
}

#[test]
fn active_deadline_seconds_fails_the_pod_after_its_containers_stop() {
    let mut spec = one_container();
    spec["activeDeadlineSeconds"] = 10.into();
    let mut world = World::new(spec, json!({ "sim.evenkeel.dev/termination-time": "5s" }));
    world.run(9);
    assert_eq!(world.phase(), "Running");
    world.run(2);
    assert_eq!((world.phase(), &world.object["status"]["reason"]), ("Running", &Value::Null));
    assert!(world.container(0)["state"]["running"].is_object());
    world.run(10);
    assert_eq!(
        (world.phase(), &world.object["status"]["reason"]),
        ("Failed", &json!("DeadlineExceeded"))
    );
    assert!(world.container(0)["state"]["terminated"].is_object());
    assert_eq!(world.wake, None);
}

#[test]
fn rejected_pod_fails_with_the_reason() {
    let mut world = World::new(one_container(), json!({}));
    world.refusal = Some(Refusal { reason: Refused::Cpu, message: "no cpu".into() });
    world.sync();
    world.refusal = None;
    world.run(10);
    assert_eq!((world.phase(), &world.object["status"]["reason"]), ("Failed", &json!("OutOfcpu")));
    assert_eq!(world.object["status"]["message"], "Pod was rejected: no cpu");
    assert_eq!((world.writes, world.events.len()), (1, 1));
    world.delete(0);
    world.sync();
    assert!(world.removed);
}

#[test]
fn shorter_grace_period_ends_the_pod_sooner() {
    let mut world =
        World::new(one_container(), json!({ "sim.evenkeel.dev/termination-time": "1h" }));
    world.run(5);
    world.delete(600);
    world.run(5);
    assert!(!world.removed);
    world.delete(1);
    world.run(2);
    assert!(world.removed);
}

#[test]
fn command_determines_the_exit_unless_annotated() {
    for (script, annotations, phase, code) in [
        ("sleep 3; exit 7", json!({}), "Failed", 7),
        ("exit 0", json!({}), "Succeeded", 0),
        ("exit 7", json!({ "sim.evenkeel.dev/run-time": "1s" }), "Succeeded", 0),
        ("exit 7", json!({ "sim.evenkeel.dev/exit-code": "3" }), "Failed", 3),
        ("sleep infinity", json!({ "sim.evenkeel.dev/crash-after": "1s" }), "Failed", 1),
    ] {
        let mut spec = scripted(script);
        spec["restartPolicy"] = "Never".into();
        let mut world = World::new(spec, annotations);
        world.run(10);
        assert_eq!(world.phase(), phase, "{script}");
        assert_eq!(world.container(0)["state"]["terminated"]["exitCode"], code, "{script}");
    }
    for script in ["sleep infinity", "frobnicate --all"] {
        let mut world = World::new(scripted(script), json!({}));
        world.run(3600);
        assert_eq!((world.phase(), world.writes, world.wake), ("Running", 2, None), "{script}");
        world.memory = None;
        assert!(!world.sync(), "a restarted kubelet writes nothing");
    }
}

#[test]
fn volume_files_outlive_containers_and_node_files_pods() {
    let once = |folder: &str| {
        format!("if [[ -r {folder}/x ]]; then exit 0; else touch {folder}/x; exit 1; fi")
    };
    for (folder, phase) in [("/data", "Succeeded"), ("/node", "Succeeded"), ("/tmp", "Running")] {
        let mut spec = scripted(&once(folder));
        spec["restartPolicy"] = "OnFailure".into();
        let mut world = World::new(spec, json!({}));
        world.run(5);
        assert_eq!(world.phase(), phase, "{folder}");
        assert_eq!(world.container(0)["restartCount"], 1, "{folder}");
    }
    let mut spec = scripted(&once("/node"));
    spec["restartPolicy"] = "Never".into();
    let mut first = World::new(spec.clone(), json!({}));
    first.run(5);
    spec["containers"][0]["name"] = "d".into(); // another run
    let mut second = World::new(spec, json!({}));
    second.node_files = first.node_files;
    second.run(5);
    assert_eq!(
        (&*first.object["status"]["phase"].to_string(), second.phase()),
        ("\"Failed\"", "Succeeded")
    );
}

#[test]
fn containers_of_a_pod_share_volume_files() {
    let mut spec = scripted("until [ -f /data/go ]; do sleep 1; done; exit 0");
    spec["restartPolicy"] = "Never".into();
    spec["containers"]
        .as_array_mut()
        .unwrap()
        .push(shell("late", "sleep 20; touch /data/go; sleep 5; exit 3"));
    let mut world = World::new(spec, json!({}));
    world.run(15);
    assert_eq!(world.phase(), "Running");
    world.run(60);
    assert_eq!(world.phase(), "Failed");
    let ended = |n: usize| {
        let ended = &world.container(n)["state"]["terminated"];
        let at = |key: &str| ended[key].as_str().unwrap().parse::<Timestamp>().unwrap().as_second();
        (at("finishedAt") - at("startedAt"), ended["exitCode"].as_i64().unwrap())
    };
    assert_eq!((ended(0), ended(1)), ((20, 0), (25, 3)));
}

#[test]
fn command_handles_the_signal_or_is_killed() {
    let handler = "trap 'sleep 5; exit 143' TERM; while true; do sleep 1; done";
    for (script, grace, after, code) in [
        (handler, 30, 5, 143),
        (handler, 2, 2, 137),
        ("sleep infinity", 10, 10, 137),
        ("sleep 15; exit 4", 30, 5, 4),
        ("frobnicate", 30, 0, 0),
    ] {
        let mut world = World::new(scripted(script), json!({}));
        world.run(11);
        world.delete(grace);
        let asked = world.now;
        world.run(60);
        assert!(world.removed, "{script}");
        let ended = &world.container(0)["state"]["terminated"];
        let finished: Timestamp = ended["finishedAt"].as_str().unwrap().parse().unwrap();
        assert_eq!(
            (finished.as_second() - asked.as_second(), &ended["exitCode"]),
            (after, &json!(code)),
            "{script} {grace}"
        );
    }
}

#[test]
fn exec_probe_reads_the_container_files() {
    for command in [json!(["cat", "/data/up"]), json!(["sh", "-c", "test -f /data/up"])] {
        let mut spec = scripted("sleep 30; touch /data/up; sleep 30; rm /data/up; sleep infinity");
        spec["containers"][0]["readinessProbe"] = json!({ "exec": { "command": command } });
        let mut world = World::new(spec, json!({}));
        let mut seen = Vec::new();
        for _ in 0..9 {
            world.run(10);
            seen.push(world.condition("Ready")["status"] == "True");
        }
        assert_eq!(seen, [false, false, false, true, true, true, false, false, false]);
        assert_eq!((world.writes, world.phase()), (4, "Running"));
        world.object["metadata"]["annotations"] = json!({ "sim.evenkeel.dev/readiness": "always" });
        world.run(1);
        assert_eq!(world.condition("Ready")["status"], "True");
    }
}

#[test]
fn init_containers_write_files_for_containers() {
    let mut spec = scripted("exit $(cat /data/code)");
    spec["restartPolicy"] = "Never".into();
    spec["initContainers"] = json!([shell("i", "sleep 4; echo 9 > /data/code")]);
    let mut world = World::new(spec, json!({}));
    world.run(4);
    assert_eq!(world.phase(), "Pending");
    world.run(10);
    assert_eq!(world.container(0)["state"]["terminated"]["exitCode"], 9);
}

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
    fn every_pod_settles_and_is_removed_when_deleted(
        annotations in arbitrary_annotations(),
        policy in proptest::sample::select(&["Always", "OnFailure", "Never"][..]),
        n_inits in 0_usize..3,
        deadline in proptest::option::of(0_u64..20),
        ran in 0_u64..100,
        grace in 0_u64..40,
    ) {
        let inits = [json!({ "name": "i", "image": "i" }), json!({ "name": "s", "image": "s", "restartPolicy": "Always" })];
        let mut spec = json!({
            "restartPolicy": policy, "initContainers": inits[..n_inits],
            "containers": [{ "name": "a", "image": "a" }, { "name": "b", "image": "b" }],
        });
        if let Some(deadline) = deadline {
            spec["activeDeadlineSeconds"] = deadline.into();
        }
        let mut world = World::new(spec, annotations);
        world.run(ran);
        // A second sync at the same time changes nothing.
        prop_assert!(!world.sync());
        // A kubelet that takes over writes nothing either, unless a transition just came due.
        let terminal = Phase::parse(world.phase()).terminal();
        if terminal {
            let writes = world.writes;
            let due = world.wake;
            world.run(3600);
            prop_assert!(due.is_some() || world.writes == writes, "a finished pod is not written");
        }
        world.delete(grace);
        world.run(grace + 1);
        prop_assert!(world.removed, "{}", world.object);
        prop_assert!(Phase::parse(world.phase()).terminal());
        prop_assert_eq!(world.wake, None);
    }
}
