//! Tests of a whole scheduler with a plugin that panics, for each extension point.

use evenkeel_runtime::{cache::Caches, client::Client, clock::Clock, tasks::Tasks};
use prometheus::Registry;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    SchedulerOptions,
    fixtures::{at, merge},
    framework::{
        Bind, BindResult, Change, CycleState, Filter, Permit, PermitResult, Plugin, PluginFuture,
        PostBind, PostFilter, PostFilterResult, PreBind, PreBindError, PreBindPreFlight,
        PreEnqueue, PreFilter, PreFilterResult, PreScore, PreScoreResult, Profile, QueueSort,
        QueueingHint, Reserve, Score, SortKey, Status, StatusResult,
    },
    nodes::{NodeRef, NodeTable},
    plugins::DefaultBinder,
    pod::PodInfo,
    schedule::{Cycle, FitError},
    scripted::{Answer, Script},
};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::client::ApiError;

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/pods";

/// Plugin that panics once for the pod `web`, in the call named `point`.
struct PanickingPlugin {
    name: &'static str,
    point: &'static str,
    has_panicked: AtomicBool,
    /// Whether its filter rejects `web`.
    rejects: AtomicBool,
    /// Uids of pods that hold a reservation.
    reserved: Mutex<BTreeSet<String>>,
}

impl PanickingPlugin {
    fn new(name: &'static str, point: &'static str) -> Arc<Self> {
        Arc::new(Self {
            name,
            point,
            has_panicked: AtomicBool::new(false),
            rejects: AtomicBool::new(matches!(point, "PostFilter" | "QueueingHint")),
            reserved: Mutex::default(),
        })
    }

    /// Panics on the first call of the plugin's point for the pod `web`.
    fn call(&self, point: &str, pod: &PodInfo) {
        if point == self.point && pod.uid() == "web" {
            let is_first_call = !self.has_panicked.swap(true, Ordering::SeqCst);
            assert!(!is_first_call, "deliberate");
        }
    }

    fn reserved(&self) -> Vec<String> {
        let reserved = self.reserved.lock().unwrap();
        reserved.iter().cloned().collect()
    }
}

impl Plugin for PanickingPlugin {
    fn name(&self) -> &'static str {
        self.name
    }
    fn queueing_hint(&self, pod: &PodInfo, _: &Change) -> QueueingHint {
        self.call("QueueingHint", pod);
        QueueingHint::Skip
    }
    fn as_queue_sort(&self) -> Option<&dyn QueueSort> {
        Some(self)
    }
    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueue> {
        Some(self)
    }
    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
    fn as_post_filter(&self) -> Option<&dyn PostFilter> {
        Some(self)
    }
    fn as_pre_score(&self) -> Option<&dyn PreScore> {
        Some(self)
    }
    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
    fn as_reserve(&self) -> Option<&dyn Reserve> {
        Some(self)
    }
    fn as_permit(&self) -> Option<&dyn Permit> {
        Some(self)
    }
    fn as_pre_bind(&self) -> Option<&dyn PreBind> {
        Some(self)
    }
    fn as_bind(&self) -> Option<&dyn Bind> {
        Some(self)
    }
    fn as_post_bind(&self) -> Option<&dyn PostBind> {
        Some(self)
    }
}

impl QueueSort for PanickingPlugin {
    fn sort_key(&self, pod: &PodInfo, _: Timestamp) -> SortKey {
        self.call("QueueSort", pod);
        [0; 2]
    }
}

impl PreEnqueue for PanickingPlugin {
    fn pre_enqueue(&self, pod: &PodInfo) -> StatusResult {
        self.call("PreEnqueue", pod);
        Ok(())
    }
}

impl PreFilter for PanickingPlugin {
    fn pre_filter(
        &self,
        _: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
    ) -> Result<PreFilterResult, Status> {
        self.call("PreFilter", pod);
        Ok(PreFilterResult::All)
    }
}

impl Filter for PanickingPlugin {
    fn filter(&self, _: &CycleState, pod: &PodInfo, _: NodeRef<'_>) -> StatusResult {
        self.call("Filter", pod);
        let rejects = pod.uid() == "web" && self.rejects.load(Ordering::SeqCst);
        if rejects { Err(Status::unschedulable("not now")) } else { Ok(()) }
    }
}

impl PostFilter for PanickingPlugin {
    fn post_filter<'a>(
        &'a self,
        cycle: &'a mut Cycle<'_>,
        _: &'a CycleState,
        _: &'a FitError,
    ) -> PluginFuture<'a, PostFilterResult> {
        Box::pin(async move {
            self.call("PostFilter", cycle.pod());
            PostFilterResult::default()
        })
    }
}

impl PreScore for PanickingPlugin {
    fn pre_score(
        &self,
        _: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
        _: &[NodeRef<'_>],
    ) -> PreScoreResult {
        self.call("PreScore", pod);
        PreScoreResult::All
    }
}

impl Score for PanickingPlugin {
    fn score(&self, _: &CycleState, pod: &PodInfo, _: NodeRef<'_>) -> i64 {
        self.call("Score", pod);
        0
    }
}

impl Reserve for PanickingPlugin {
    fn reserve(&self, _: &mut CycleState, pod: &PodInfo, _: &str) -> StatusResult {
        self.reserved.lock().unwrap().insert(pod.uid().to_owned());
        self.call("Reserve", pod);
        Ok(())
    }
    fn unreserve(&self, _: &mut CycleState, pod: &PodInfo, _: &str) {
        self.reserved.lock().unwrap().remove(pod.uid());
        self.call("Unreserve", pod);
    }
}

impl Permit for PanickingPlugin {
    fn permit(&self, _: &CycleState, pod: &PodInfo, _: &str) -> PermitResult {
        self.call("Permit", pod);
        let rejects = self.point == "Unreserve" && !self.has_panicked.load(Ordering::SeqCst);
        match rejects && pod.uid() == "web" {
            true => PermitResult::Reject(Status::error("refused")),
            false => PermitResult::Allow,
        }
    }
}

impl PreBind for PanickingPlugin {
    fn pre_bind_pre_flight(&self, pod: &PodInfo, _: &str) -> PreBindPreFlight {
        self.call("PreBindPreFlight", pod);
        PreBindPreFlight::Act { parallel: false }
    }
    fn pre_bind<'a>(
        &'a self,
        _: &'a Client,
        pod: &'a PodInfo,
        _: &'a str,
    ) -> PluginFuture<'a, Result<(), PreBindError>> {
        Box::pin(async move {
            self.call("PreBind", pod);
            Ok(())
        })
    }
}

impl Bind for PanickingPlugin {
    fn bind<'a>(
        &'a self,
        _: &'a Client,
        pod: &'a PodInfo,
        _: &'a str,
    ) -> PluginFuture<'a, Result<BindResult, ApiError>> {
        Box::pin(async move {
            self.call("Bind", pod);
            Ok(BindResult::Skip)
        })
    }
}

impl PostBind for PanickingPlugin {
    fn post_bind(&self, pod: &PodInfo, _: &str) {
        self.call("PostBind", pod);
    }
}

/// Returns metadata; the uid is the name.
fn meta(name: &str, namespace: &str) -> Value {
    json!({"name": name, "uid": name, "namespace": namespace, "resourceVersion": "1"})
}

/// Returns a list of objects.
fn list(items: &[Value]) -> Value {
    json!({"metadata": {"resourceVersion": "1"}, "items": items})
}

fn node(name: &str, labels: &Value) -> Value {
    let mut meta = meta(name, "");
    meta["labels"] = labels.clone();
    json!({"metadata": meta, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}})
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": meta(name, "shop"),
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "image": "i"}],
        },
        "status": {"phase": "Pending"},
    })
}

/// Returns a server with two nodes and the pod `web`. It sends its watchers an event when a pod is bound.
fn server() -> Script {
    let script_slot: Arc<Mutex<Option<Script>>> = Arc::default();
    let script_source = Arc::clone(&script_slot);
    let rule = move |request: &str, body: &Value| {
        let pod_path = request.strip_prefix("POST /api/v1/namespaces/shop/pods/");
        if let Some(name) = pod_path.and_then(|path| path.strip_suffix("/binding")) {
            let mut bound = pod(name);
            let node_name = &body["target"]["name"];
            merge(
                &mut bound,
                &json!({"metadata": {"resourceVersion": "9"}, "spec": {"nodeName": node_name}}),
            );
            let script = script_source.lock().unwrap().clone().unwrap();
            script.send_watch_event(PODS, "MODIFIED", &bound);
        }
        // Pod statuses and events: the scheduler ignores the response.
        Some(Answer::Body(201, json!({"metadata": meta("x", "shop")})))
    };
    let script = Script::default().with_rule(rule).with_lists([
        (NODES, list(&[node("a", &json!({})), node("b", &json!({}))])),
        (PODS, list(&[pod("web")])),
        ("/api/v1/namespaces", list(&[json!({"metadata": meta("shop", "")})])),
    ]);
    *script_slot.lock().unwrap() = Some(script.clone());
    script
}

/// The pods that were bound, and the messages of all events `FailedScheduling`.
#[derive(Debug, Default)]
struct Recorded {
    bound: Vec<String>,
    failed: Vec<String>,
}

impl Recorded {
    /// Collects bound pods and scheduling failures from the requests.
    fn collect(&mut self, script: &Script) {
        for (request, body) in script.take_requests() {
            if let Some(path) = request.strip_prefix("POST /api/v1/namespaces/shop/pods/") {
                self.bound.extend(path.strip_suffix("/binding").map(str::to_owned));
            } else if request.ends_with("/events") && body["reason"] == "FailedScheduling" {
                self.failed.push(body["note"].as_str().unwrap_or_default().to_owned());
            }
        }
    }
}

/// Runs a scheduler whose plugin panics at `point`, until `web` and a later pod are bound.
async fn run_with_panic_at(point: &'static str) -> Recorded {
    let (script, clock, tasks) = (server(), Clock::starting_at(at(0)), Tasks::new());
    let (witness, panicking) =
        (PanickingPlugin::new("Witness", ""), PanickingPlugin::new("Planted", point));
    let profile = Profile::new("default-scheduler")
        .with(witness.clone(), 1)
        .with(panicking.clone(), 1)
        .with(Arc::new(DefaultBinder), 0);
    let options = SchedulerOptions { profiles: vec![profile], ..SchedulerOptions::default() };
    let client = script.client(&clock);
    let caches = Caches::new(client.clone(), clock.clone(), &Registry::new());
    let (group, stop, timer) = (tasks.clone(), tasks.token(), clock.clone());
    tasks.spawn("scheduler", async move {
        let run = crate::run(client, caches.clone(), timer, Registry::new(), options, stop);
        let start = async {
            // Plugins request their caches before these are started.
            tokio::task::yield_now().await;
            caches.start(&group);
        };
        tokio::join!(run, start);
    });
    let wait = |seconds| clock.sleep(Duration::from_secs(seconds));
    let mut recorded = Recorded::default();
    wait(5).await;
    panicking.rejects.store(false, Ordering::SeqCst);
    let mut labelled = node("a", &json!({"x": "y"}));
    labelled["metadata"]["resourceVersion"] = "2".into();
    script.send_watch_event(NODES, "MODIFIED", &labelled);
    // The queue retries a pod that PreEnqueue rejected after five minutes.
    wait(400).await;
    assert!(panicking.has_panicked.load(Ordering::SeqCst), "{point}");
    script.send_watch_event(PODS, "ADDED", &pod("later"));
    wait(10).await;
    recorded.collect(&script);
    assert_eq!(recorded.bound, ["web", "later"], "{point}: {:?}", recorded.failed);
    for plugin in [&witness, &panicking] {
        assert_eq!(
            plugin.reserved(),
            ["later", "web"],
            "{point}: bound pods keep their reservations"
        );
    }
    assert_eq!(tasks.supervisor().failures(), []);
    tasks.shut_down(Duration::from_secs(1)).await;
    recorded
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_plugin_is_reported_and_the_pod_retried() {
    for (point, message) in [
        ("QueueSort", "running QueueSort plugin \"Planted\": panic: deliberate"),
        ("PreEnqueue", "running PreEnqueue plugin \"Planted\": panic: deliberate"),
        ("QueueingHint", "running QueueingHint of plugin \"Planted\": panic: deliberate"),
        ("PreFilter", "running PreFilter plugin \"Planted\": panic: deliberate"),
        ("Filter", "running \"Planted\" filter plugin: panic: deliberate"),
        (
            "PostFilter",
            "0/2 nodes are available: 2 not now. running PostFilter plugin \"Planted\": panic: deliberate",
        ),
        ("PreScore", "running PreScore plugin \"Planted\": panic: deliberate"),
        ("Score", "running Score plugin \"Planted\": panic: deliberate"),
        ("Reserve", "running Reserve plugin \"Planted\": panic: deliberate"),
        ("Permit", "running Permit plugin \"Planted\": panic: deliberate"),
        ("PreBindPreFlight", "running PreBindPreFlight plugin \"Planted\": panic: deliberate"),
        ("PreBind", "running PreBind plugin \"Planted\": panic: deliberate"),
        ("Bind", "running Bind plugin \"Planted\": panic: deliberate"),
        // The binding failed for another reason, which the event reports.
        ("Unreserve", "running Permit plugin \"Planted\": refused"),
    ] {
        let Recorded { failed, .. } = run_with_panic_at(point).await;
        assert!(failed.iter().any(|note| note == message), "{point}: {failed:?}");
    }
    // PostBind runs after the binding, so its panic fails no attempt.
    assert_eq!(run_with_panic_at("PostBind").await.failed, [""; 0]);
}
