//! Tests of a whole scheduler with a pod whose device has binding conditions.

use evenkeel_runtime::{cache::Caches, clock::Clock, tasks::Tasks};
use prometheus::Registry;
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{
    super::tests::{DRIVER, object},
    NotReady, check_readiness,
};
use crate::{
    SchedulerOptions,
    fixtures::{at, merge, series},
    framework::Profile,
    metrics::DeviceWaitResult,
    plugins::{DefaultBinder, DynamicResources},
    scripted::{Answer, Script},
};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/resourceclaims";
const PATCH_CLAIM: &str = "PATCH /apis/resource.k8s.io/v1/namespaces/shop/resourceclaims/c";
const PODS: &str = "/api/v1/pods";
const WAIT_DURATIONS: &str = "scheduler_dra_bindingconditions_wait_duration_seconds";
const ALLOCATIONS: &str = "scheduler_dra_bindingconditions_allocations_total";

/// The claim in the API server.
#[derive(Clone)]
struct Claim(Arc<Mutex<Value>>);

impl Claim {
    fn current(&self) -> Value {
        self.0.lock().unwrap().clone()
    }

    /// Merges a change into the claim and returns the result.
    fn merge_change(&self, change: &Value) -> Value {
        let mut claim = self.0.lock().unwrap();
        let version: u64 = claim["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let expected_version = &change["metadata"]["resourceVersion"];
        assert!(
            expected_version.is_null() || *expected_version == claim["metadata"]["resourceVersion"],
            "{change}"
        );
        match change["status"]["reservedFor"].as_array().map(Vec::as_slice) {
            Some([user]) if user["$patch"] == "delete" => {
                let users = claim["status"]["reservedFor"].as_array_mut().unwrap();
                users.retain(|other| other["uid"] != user["uid"]);
            }
            _ => merge(&mut claim, change),
        }
        claim["metadata"]["resourceVersion"] = json!((version + 1).to_string());
        claim.clone()
    }
}

/// A scheduler with the node `n`, whose device `d` has binding conditions, and the pod `web`, which claims the device.
struct Fixture {
    script: Script,
    claim: Claim,
    registry: Registry,
    clock: Clock,
    tasks: Tasks,
    /// Writes that the test has not taken yet.
    writes: Vec<(String, Value)>,
    events: Vec<Value>,
}

fn list(items: &[Value]) -> Value {
    json!({"metadata": {"resourceVersion": "1"}, "items": items})
}

fn meta(name: &str, namespace: &str) -> Value {
    json!({"name": name, "uid": name, "namespace": namespace, "resourceVersion": "1"})
}

fn pod() -> Value {
    json!({
        "metadata": meta("web", "shop"),
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
        },
        "status": {"phase": "Pending"},
    })
}

/// Returns the slice of the node `n` with the device `d`, which has binding conditions, and `e`, which has none.
fn slice() -> Value {
    let devices = [
        json!({
            "name": "d",
            "bindingConditions": ["attached"],
            "bindingFailureConditions": ["broken", "lost"],
        }),
        json!({"name": "e"}),
    ];
    json!({
        "metadata": meta("s", ""),
        "spec": {
            "driver": DRIVER, "nodeName": "n", "devices": devices,
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        },
    })
}

impl Fixture {
    /// Creates the fixture, with `more` merged into the claim.
    fn new(more: &Value) -> Self {
        let request =
            json!({"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "All"}});
        let mut claim = json!({
            "metadata": meta("c", "shop"), "spec": {"devices": {"requests": [request]}}, "status": {},
        });
        merge(&mut claim, more);
        let initial_claim = claim.clone();
        let claim = Claim(Arc::new(Mutex::new(claim)));
        let script_slot: Arc<Mutex<Option<Script>>> = Arc::default();
        let (claim_in_rule, script_source) = (claim.clone(), Arc::clone(&script_slot));
        let rule = move |request: &str, body: &Value| {
            let send_update = |path: &str, object: &Value| {
                let script = script_source.lock().unwrap().clone().unwrap();
                script.send_watch_event(path, "MODIFIED", object);
            };
            if request.starts_with(PATCH_CLAIM) {
                let updated = claim_in_rule.merge_change(body);
                send_update(CLAIMS, &updated);
                return Some(Answer::object(updated));
            }
            if request == "POST /api/v1/namespaces/shop/pods/web/binding" {
                let mut bound = pod();
                merge(
                    &mut bound,
                    &json!({"metadata": {"resourceVersion": "9"}, "spec": {"nodeName": "n"}}),
                );
                send_update(PODS, &bound);
            }
            // Pod statuses and events: the scheduler ignores the response.
            Some(Answer::Body(201, json!({"metadata": meta("x", "shop")})))
        };
        let node = json!({
            "metadata": meta("n", ""), "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
        });
        let script = Script::default().with_rule(rule).with_lists([
            ("/api/v1/nodes", list(&[node])),
            (PODS, list(&[pod()])),
            ("/api/v1/namespaces", list(&[json!({"metadata": meta("shop", "")})])),
            (CLAIMS, list(&[initial_claim])),
            ("/apis/resource.k8s.io/v1/resourceslices", list(&[slice()])),
            (
                "/apis/resource.k8s.io/v1/deviceclasses",
                list(&[json!({"metadata": meta("any", "")})]),
            ),
            ("/apis/resource.k8s.io/v1/devicetaintrules", list(&[])),
        ]);
        *script_slot.lock().unwrap() = Some(script.clone());
        Self {
            script,
            claim,
            registry: Registry::new(),
            clock: Clock::starting_at(at(0)),
            tasks: Tasks::new(),
            writes: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Starts the scheduler.
    fn start(&self) {
        let client = self.script.client(&self.clock);
        let caches = Caches::new(client.clone(), self.clock.clone(), &self.registry);
        let profile = Profile::new("default-scheduler")
            .with(Arc::new(DynamicResources::default()), 1)
            .with(Arc::new(DefaultBinder), 0);
        let options = SchedulerOptions {
            profiles: vec![profile],
            max_bindings: 1,
            ..SchedulerOptions::default()
        };
        let (clock, registry) = (self.clock.clone(), self.registry.clone());
        let (tasks, stop) = (self.tasks.clone(), self.tasks.token());
        self.tasks.spawn("scheduler", async move {
            let run = crate::run(client, caches.clone(), clock, registry, options, stop);
            let start = async {
                // Plugins request their caches before these are started.
                tokio::task::yield_now().await;
                caches.start(&tasks);
            };
            tokio::join!(run, start);
        });
    }

    /// Returns the writes up to the first one whose path ends with `path_end`, without events, and the seconds since
    /// the start.
    async fn writes_until(&mut self, path_end: &str) -> (i64, Vec<(String, Value)>) {
        for _ in 0..200_000 {
            self.collect_requests();
            if let Some(last) =
                self.writes.iter().position(|(request, _)| request.ends_with(path_end))
            {
                return (self.seconds(), self.writes.drain(..=last).collect());
            }
            self.clock.sleep(Duration::from_millis(10)).await;
        }
        panic!("no {path_end}: {:#?}", self.writes);
    }

    fn collect_requests(&mut self) {
        for (request, body) in self.script.take_requests() {
            if request.ends_with("/events") {
                self.events.push(body);
            } else {
                self.writes.push((request, body));
            }
        }
    }

    fn seconds(&self) -> i64 {
        self.clock.now().as_second() - at(0).as_second()
    }

    /// Reports a condition of the device `d`, as its driver does.
    fn report_condition(&self, condition_type: &str, reason: &str) {
        let condition = json!({"type": condition_type, "status": "True", "reason": reason, "message": "so it is"});
        let device =
            json!({"driver": DRIVER, "pool": "p", "device": "d", "conditions": [condition]});
        let updated = self.claim.merge_change(&json!({"status": {"devices": [device]}}));
        self.script.send_watch_event(CLAIMS, "MODIFIED", &updated);
    }

    /// Returns the counted waits by result, and the counted devices with binding conditions.
    fn metrics(&self) -> [Vec<(String, u64)>; 2] {
        [WAIT_DURATIONS, ALLOCATIONS].map(|name| series(&self.registry, name))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.tasks.token().cancel();
    }
}

/// Counts of two devices of one driver, one with binding conditions, after this number of waits.
fn expected_metrics(result: &str, waits: u64) -> [(String, u64); 2] {
    let labels = format!("{DRIVER} default-scheduler {result}");
    [(labels.clone(), 2 * waits), (labels, waits)]
}

/// Returns the last patch of the claim's status among these writes.
fn last_status(writes: &[(String, Value)]) -> &Value {
    let status = format!("{PATCH_CLAIM}/status");
    &writes.iter().rfind(|(request, _)| *request == status).unwrap().1["status"]
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_once_its_device_is_ready() {
    let mut fixture = Fixture::new(&json!({}));
    fixture.start();
    let (_, writes) = fixture.writes_until("/resourceclaims/c/status").await;
    let allocation = &last_status(&writes)["allocation"];
    assert_eq!(allocation["devices"]["results"][0]["bindingConditions"], json!(["attached"]));
    fixture.clock.sleep(Duration::from_secs(300)).await;
    fixture.collect_requests();
    assert!(fixture.writes.is_empty(), "the pod waits: {:?}", fixture.writes);
    let pending = fixture.events.iter().find(|event| event["reason"] == "BindingConditionsPending");
    let note = &pending.unwrap()["note"];
    assert_eq!(*note, "waiting for binding conditions for device on node n");
    // First the driver reports an unrelated condition.
    fixture.report_condition("warm", "Sun");
    fixture.clock.sleep(Duration::from_secs(1)).await;
    fixture.report_condition("attached", "Plugged");
    let (seconds, writes) = fixture.writes_until("/binding").await;
    assert_eq!((seconds, writes.len()), (301, 1), "the pod is bound at once: {writes:?}");
    fixture.clock.sleep(Duration::from_secs(1)).await;
    let [waits, allocations] = expected_metrics("success", 1);
    assert_eq!(fixture.metrics(), [[waits], [allocations]]);
}

#[tokio::test(start_paused = true)]
async fn other_pods_do_not_wait_for_the_device() {
    let mut fixture = Fixture::new(&json!({}));
    fixture.start();
    fixture.writes_until("/resourceclaims/c/status").await;
    fixture.clock.sleep(Duration::from_secs(30)).await;
    for name in ["first", "second"] {
        let mut other = pod();
        merge(&mut other, &json!({"metadata": meta(name, "shop"), "spec": {"resourceClaims": []}}));
        other["metadata"]["resourceVersion"] = json!("20");
        fixture.script.send_watch_event(PODS, "ADDED", &other);
        let (seconds, _) = fixture.writes_until(&format!("/{name}/binding")).await;
        assert_eq!(seconds, 30, "{name}");
    }
}

/// Checks that the scheduler deallocates the device for this reason and allocates it again, and that the second wait
/// succeeds.
async fn check_deallocation_and_retry(fixture: &mut Fixture, result: &str, message: &str) {
    let (_, mut writes) = fixture.writes_until("/resourceclaims/c/status").await;
    let users = &last_status(&writes)["reservedFor"];
    assert_eq!(users[0]["$patch"], "delete", "first the reservation is removed: {writes:?}");
    writes.extend(fixture.writes_until("/resourceclaims/c/status").await.1);
    let deallocated = json!({"allocation": null, "reservedFor": null, "devices": null});
    assert_eq!(*last_status(&writes), deallocated, "{writes:?}");
    writes.retain(|(request, _)| request.ends_with("/pods/web/status"));
    let is_written = |text: &str| writes.iter().any(|(_, body)| body.to_string().contains(text));
    assert!(is_written(message), "{writes:?}");
    assert!(is_written("SchedulerError"), "{writes:?}");
    // The freed device is allocated again.
    let (_, writes) = fixture.writes_until("/resourceclaims/c/status").await;
    assert!(last_status(&writes)["allocation"]["devices"].is_object(), "{writes:?}");
    fixture.report_condition("attached", "Plugged");
    fixture.writes_until("/binding").await;
    fixture.clock.sleep(Duration::from_secs(1)).await;
    let ([waits, allocations], [successful_wait, successful_allocation]) =
        (expected_metrics(result, 1), expected_metrics("success", 1));
    let mut expected = [vec![waits, successful_wait], vec![allocations, successful_allocation]];
    expected.iter_mut().for_each(|series| series.sort());
    assert_eq!(fixture.metrics(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_failed_device_is_deallocated_and_the_pod_retried() {
    let mut fixture = Fixture::new(&json!({}));
    fixture.start();
    fixture.writes_until("/resourceclaims/c/status").await;
    fixture.clock.sleep(Duration::from_secs(30)).await;
    fixture.report_condition("lost", "Unplugged");
    let message = r#"running PreBind plugin \"DynamicResources\": device binding failed: claim=c, reason=Unplugged, message=\"so it is\""#;
    check_deallocation_and_retry(&mut fixture, "failure", message).await;
    assert!((30..40).contains(&fixture.seconds()), "{}", fixture.seconds());
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_not_ready_before_the_timeout_is_deallocated() {
    let mut fixture = Fixture::new(&json!({}));
    fixture.start();
    fixture.writes_until("/resourceclaims/c/status").await;
    check_deallocation_and_retry(
        &mut fixture,
        "timeout",
        "device binding timeout: context deadline exceeded",
    )
    .await;
    assert!((600..610).contains(&fixture.seconds()), "{}", fixture.seconds());
}

/// A new leader continues the wait until its original deadline.
#[tokio::test(start_paused = true)]
async fn a_new_leader_keeps_the_deadline() {
    let device = json!({
        "request": "r", "driver": DRIVER, "pool": "p", "device": "d", "bindingConditions": ["attached"],
    });
    let device_without_conditions =
        json!({"request": "r", "driver": DRIVER, "pool": "p", "device": "e"});
    let allocation = json!({
        "devices": {"results": [device, device_without_conditions]},
        "allocationTimestamp": evenkeel_api::time::seconds(at(-400)),
    });
    let user = json!({"resource": "pods", "name": "web", "uid": "web"});
    let mut fixture = Fixture::new(&json!({
        "metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]},
        "status": {"allocation": allocation, "reservedFor": [user]},
    }));
    fixture.start();
    check_deallocation_and_retry(&mut fixture, "timeout", "device binding timeout: claim=c").await;
    assert!((200..210).contains(&fixture.seconds()), "{}", fixture.seconds());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_claim_ends_the_wait_for_its_devices() {
    let mut fixture = Fixture::new(&json!({}));
    fixture.start();
    fixture.writes_until("/resourceclaims/c/status").await;
    fixture.clock.sleep(Duration::from_secs(5)).await;
    fixture.script.send_watch_event(CLAIMS, "DELETED", &fixture.claim.current());
    let (seconds, writes) = fixture.writes_until("/pods/web/status").await;
    let text = writes.last().unwrap().1.to_string();
    assert!(text.contains(r#"resourceclaims.resource.k8s.io \"shop/c\" not found"#), "{text}");
    assert_eq!(seconds, 5);
    // The claim no longer exists, so its devices are not counted.
    assert_eq!(fixture.metrics(), [vec![], vec![]]);
}

#[test]
fn the_first_claim_that_is_not_ready_determines_the_next_check() {
    let device = json!({
        "request": "r", "driver": DRIVER, "pool": "p", "device": "d", "bindingConditions": ["attached"],
    });
    let allocated_since = |since: Option<i64>| {
        let mut allocation = json!({"devices": {"results": [device]}});
        if let Some(since) = since {
            allocation["allocationTimestamp"] = json!(evenkeel_api::time::seconds(at(since)));
        }
        Ok(object("c", &json!({"status": {"allocation": allocation}})))
    };
    let without_devices =
        || Ok(object("p", &json!({"status": {"allocation": {"devices": {"results": []}}}})));
    let timed_out = |reason: &str| {
        Err(NotReady {
            result: DeviceWaitResult::TimedOut,
            message: format!("device binding timeout: {reason}"),
        })
    };
    let (timeout, deadline, margin) = (Duration::from_secs(600), at(600), Duration::from_millis(1));
    for (claims, now, expected) in [
        (vec![], 0, Ok(None)),
        (vec![without_devices()], 999, Ok(None)),
        (vec![without_devices(), allocated_since(Some(-300))], 0, Ok(Some(at(300) + margin))),
        (vec![allocated_since(None)], 0, Ok(Some(deadline))),
        (vec![allocated_since(Some(-600))], 1, timed_out("claim=c")),
        (vec![allocated_since(None)], 600, timed_out("context deadline exceeded")),
        (
            vec![Err("gone".to_owned())],
            0,
            Err(NotReady { result: DeviceWaitResult::Error, message: "gone".to_owned() }),
        ),
    ] {
        assert_eq!(check_readiness(claims, timeout, deadline, at(now)), expected, "at {now}");
    }
}
