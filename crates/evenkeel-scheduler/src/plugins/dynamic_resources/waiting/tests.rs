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
const CLAIM: &str = "PATCH /apis/resource.k8s.io/v1/namespaces/shop/resourceclaims/c";
const PODS: &str = "/api/v1/pods";
const WAITS: &str = "scheduler_dra_bindingconditions_wait_duration_seconds";
const ALLOCATIONS: &str = "scheduler_dra_bindingconditions_allocations_total";

/// The claim in the API server.
#[derive(Clone)]
struct Claim(Arc<Mutex<Value>>);

impl Claim {
    fn now(&self) -> Value {
        self.0.lock().unwrap().clone()
    }

    /// Merges a change into the claim and returns the result.
    fn change(&self, change: &Value) -> Value {
        let mut claim = self.0.lock().unwrap();
        let version: u64 = claim["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let known = &change["metadata"]["resourceVersion"];
        assert!(known.is_null() || *known == claim["metadata"]["resourceVersion"], "{change}");
        match change["status"]["reservedFor"].as_array().map(Vec::as_slice) {
            Some([one]) if one["$patch"] == "delete" => {
                let users = claim["status"]["reservedFor"].as_array_mut().unwrap();
                users.retain(|user| user["uid"] != one["uid"]);
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
    written: Vec<(String, Value)>,
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

/// Slice of the node `n` with the device `d`, which has binding conditions, and `e`, which has none.
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
        let listed = claim.clone();
        let claim = Claim(Arc::new(Mutex::new(claim)));
        let watched: Arc<Mutex<Option<Script>>> = Arc::default();
        let (kept, script_source) = (claim.clone(), Arc::clone(&watched));
        let rule = move |what: &str, body: &Value| {
            let send_update = |path: &str, object: &Value| {
                let script = script_source.lock().unwrap().clone().unwrap();
                script.send_watch_event(path, "MODIFIED", object);
            };
            if what.starts_with(CLAIM) {
                let now = kept.change(body);
                send_update(CLAIMS, &now);
                return Some(Answer::object(now));
            }
            if what == "POST /api/v1/namespaces/shop/pods/web/binding" {
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
            (CLAIMS, list(&[listed])),
            ("/apis/resource.k8s.io/v1/resourceslices", list(&[slice()])),
            (
                "/apis/resource.k8s.io/v1/deviceclasses",
                list(&[json!({"metadata": meta("any", "")})]),
            ),
            ("/apis/resource.k8s.io/v1/devicetaintrules", list(&[])),
        ]);
        *watched.lock().unwrap() = Some(script.clone());
        Self {
            script,
            claim,
            registry: Registry::new(),
            clock: Clock::starting_at(at(0)),
            tasks: Tasks::new(),
            written: Vec::new(),
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

    /// Returns the writes up to the first one whose path ends with `end`, without events, and the seconds since the
    /// start.
    async fn writes_until(&mut self, end: &str) -> (i64, Vec<(String, Value)>) {
        for _ in 0..200_000 {
            self.collect_requests();
            if let Some(last) = self.written.iter().position(|(what, _)| what.ends_with(end)) {
                return (self.seconds(), self.written.drain(..=last).collect());
            }
            self.clock.sleep(Duration::from_millis(10)).await;
        }
        panic!("no {end}: {:#?}", self.written);
    }

    fn collect_requests(&mut self) {
        for (what, body) in self.script.requests() {
            if what.ends_with("/events") {
                self.events.push(body);
            } else {
                self.written.push((what, body));
            }
        }
    }

    fn seconds(&self) -> i64 {
        self.clock.now().as_second() - at(0).as_second()
    }

    /// Reports a condition of the device `d`, as its driver does.
    fn report(&self, condition: &str, reason: &str) {
        let condition =
            json!({"type": condition, "status": "True", "reason": reason, "message": "so it is"});
        let device =
            json!({"driver": DRIVER, "pool": "p", "device": "d", "conditions": [condition]});
        let now = self.claim.change(&json!({"status": {"devices": [device]}}));
        self.script.send_watch_event(CLAIMS, "MODIFIED", &now);
    }

    /// Returns the counted waits by result, and the counted devices with binding conditions.
    fn counted(&self) -> [Vec<(String, u64)>; 2] {
        [WAITS, ALLOCATIONS].map(|name| series(&self.registry, name))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.tasks.token().cancel();
    }
}

/// Counts of two devices of one driver, one with binding conditions, after this number of waits.
fn count(result: &str, waits: u64) -> [(String, u64); 2] {
    let labels = format!("{DRIVER} default-scheduler {result}");
    [(labels.clone(), 2 * waits), (labels, waits)]
}

/// The last patch of the claim's status among these writes.
fn last_status(written: &[(String, Value)]) -> &Value {
    let status = format!("{CLAIM}/status");
    &written.iter().rfind(|(what, _)| *what == status).unwrap().1["status"]
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_once_its_device_is_ready() {
    let mut fixture = Fixture::new(&json!({}));
    fixture.start();
    let (_, written) = fixture.writes_until("/resourceclaims/c/status").await;
    let allocation = &last_status(&written)["allocation"];
    assert_eq!(allocation["devices"]["results"][0]["bindingConditions"], json!(["attached"]));
    fixture.clock.sleep(Duration::from_secs(300)).await;
    fixture.collect_requests();
    assert!(fixture.written.is_empty(), "the pod waits: {:?}", fixture.written);
    let pending = fixture.events.iter().find(|note| note["reason"] == "BindingConditionsPending");
    let note = &pending.unwrap()["note"];
    assert_eq!(*note, "waiting for binding conditions for device on node n");
    // First the driver reports an unrelated condition.
    fixture.report("warm", "Sun");
    fixture.clock.sleep(Duration::from_secs(1)).await;
    fixture.report("attached", "Plugged");
    let (seconds, written) = fixture.writes_until("/binding").await;
    assert_eq!((seconds, written.len()), (301, 1), "the pod is bound at once: {written:?}");
    fixture.clock.sleep(Duration::from_secs(1)).await;
    let [waits, allocations] = count("success", 1);
    assert_eq!(fixture.counted(), [[waits], [allocations]]);
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
async fn deallocated_and_retried(fixture: &mut Fixture, result: &str, why: &str) {
    let (_, mut written) = fixture.writes_until("/resourceclaims/c/status").await;
    let users = &last_status(&written)["reservedFor"];
    assert_eq!(users[0]["$patch"], "delete", "first the reservation is removed: {written:?}");
    written.extend(fixture.writes_until("/resourceclaims/c/status").await.1);
    let given_up = json!({"allocation": null, "reservedFor": null, "devices": null});
    assert_eq!(*last_status(&written), given_up, "{written:?}");
    written.retain(|(what, _)| what.ends_with("/pods/web/status"));
    let is_written = |text: &str| written.iter().any(|(_, body)| body.to_string().contains(text));
    assert!(is_written(why), "{written:?}");
    assert!(is_written("SchedulerError"), "{written:?}");
    // The freed device is allocated again.
    let (_, written) = fixture.writes_until("/resourceclaims/c/status").await;
    assert!(last_status(&written)["allocation"]["devices"].is_object(), "{written:?}");
    fixture.report("attached", "Plugged");
    fixture.writes_until("/binding").await;
    fixture.clock.sleep(Duration::from_secs(1)).await;
    let ([waits, allocations], [successful_wait, successful_allocation]) =
        (count(result, 1), count("success", 1));
    let mut want = [vec![waits, successful_wait], vec![allocations, successful_allocation]];
    want.iter_mut().for_each(|series| series.sort());
    assert_eq!(fixture.counted(), want);
}

#[tokio::test(start_paused = true)]
async fn a_failed_device_is_deallocated_and_the_pod_retried() {
    let mut fixture = Fixture::new(&json!({}));
    fixture.start();
    fixture.writes_until("/resourceclaims/c/status").await;
    fixture.clock.sleep(Duration::from_secs(30)).await;
    fixture.report("lost", "Unplugged");
    let why = r#"running PreBind plugin \"DynamicResources\": device binding failed: claim=c, reason=Unplugged, message=\"so it is\""#;
    deallocated_and_retried(&mut fixture, "failure", why).await;
    assert!((30..40).contains(&fixture.seconds()), "{}", fixture.seconds());
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_not_ready_before_the_timeout_is_deallocated() {
    let mut fixture = Fixture::new(&json!({}));
    fixture.start();
    fixture.writes_until("/resourceclaims/c/status").await;
    deallocated_and_retried(
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
    let plain = json!({"request": "r", "driver": DRIVER, "pool": "p", "device": "e"});
    let allocation = json!({
        "devices": {"results": [device, plain]},
        "allocationTimestamp": evenkeel_api::time::seconds(at(-400)),
    });
    let user = json!({"resource": "pods", "name": "web", "uid": "web"});
    let mut fixture = Fixture::new(&json!({
        "metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]},
        "status": {"allocation": allocation, "reservedFor": [user]},
    }));
    fixture.start();
    deallocated_and_retried(&mut fixture, "timeout", "device binding timeout: claim=c").await;
    assert!((200..210).contains(&fixture.seconds()), "{}", fixture.seconds());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_claim_ends_the_wait_for_its_devices() {
    let mut fixture = Fixture::new(&json!({}));
    fixture.start();
    fixture.writes_until("/resourceclaims/c/status").await;
    fixture.clock.sleep(Duration::from_secs(5)).await;
    fixture.script.send_watch_event(CLAIMS, "DELETED", &fixture.claim.now());
    let (seconds, written) = fixture.writes_until("/pods/web/status").await;
    let text = written.last().unwrap().1.to_string();
    assert!(text.contains(r#"resourceclaims.resource.k8s.io \"shop/c\" not found"#), "{text}");
    assert_eq!(seconds, 5);
    // The claim no longer exists, so its devices are not counted.
    assert_eq!(fixture.counted(), [vec![], vec![]]);
}

#[test]
fn the_first_claim_that_is_not_ready_determines_the_next_check() {
    let device = json!({
        "request": "r", "driver": DRIVER, "pool": "p", "device": "d", "bindingConditions": ["attached"],
    });
    let allocated = |since: Option<i64>| {
        let mut allocation = json!({"devices": {"results": [device]}});
        if let Some(since) = since {
            allocation["allocationTimestamp"] = json!(evenkeel_api::time::seconds(at(since)));
        }
        Ok(object("c", &json!({"status": {"allocation": allocation}})))
    };
    let plain =
        || Ok(object("p", &json!({"status": {"allocation": {"devices": {"results": []}}}})));
    let late = |why: &str| {
        Err(NotReady {
            result: DeviceWaitResult::TimedOut,
            why: format!("device binding timeout: {why}"),
        })
    };
    let (timeout, end, soon) = (Duration::from_secs(600), at(600), Duration::from_millis(1));
    for (claims, now, want) in [
        (vec![], 0, Ok(None)),
        (vec![plain()], 999, Ok(None)),
        (vec![plain(), allocated(Some(-300))], 0, Ok(Some(at(300) + soon))),
        (vec![allocated(None)], 0, Ok(Some(end))),
        (vec![allocated(Some(-600))], 1, late("claim=c")),
        (vec![allocated(None)], 600, late("context deadline exceeded")),
        (
            vec![Err("gone".to_owned())],
            0,
            Err(NotReady { result: DeviceWaitResult::Error, why: "gone".to_owned() }),
        ),
    ] {
        assert_eq!(check_readiness(claims, timeout, end, at(now)), want, "at {now}");
    }
}
