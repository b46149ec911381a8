//! Schedulers side by side in one process, on the same nodes, in virtual time.

use evenkeel::schedulers::{SchedulerConfig, Schedulers};
use evenkeel_plane::{NodeOptions, Plane, PlaneOptions};
use evenkeel_runtime::{client::Client, clock::Clock};
use evenkeel_test::TestServer;
use http::Request;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

/// Maximum number of reads until a condition must hold, one each virtual second.
const MAX_READS: usize = 120;

/// Server with the schedulers `packed` and `spread`, which score nodes only by their utilization.
struct Cluster {
    client: Client,
    plane: Option<Plane>,
    server: TestServer,
}

impl Cluster {
    async fn new() -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
        let server = TestServer::builder().clock(clock.clone()).seed(1).start().await;
        let server = server.expect("a server in memory");
        let client = Client::builder(server.client(), clock).qps(-1.0).user_agent("test").build();
        Self { client, plane: None, server }
    }

    /// Starts the components with this many nodes, of 8 CPUs each.
    async fn start(&mut self, nodes: u32) {
        let scored_by = |strategy: &str, name: &str| {
            let config = json!({"profiles": [{
                "schedulerName": name,
                "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}},
                "pluginConfig": [{"name": "NodeResourcesFit", "args": {
                    "scoringStrategy": {"type": strategy, "resources": [{"name": "cpu", "weight": 1}]},
                }}],
            }]});
            let config = config.as_object().expect("an object").clone();
            SchedulerConfig { place: name.to_owned(), config }
        };
        let schedulers = Schedulers {
            configs: vec![
                scored_by("MostAllocated", "packed"),
                scored_by("LeastAllocated", "spread"),
            ],
            ..Schedulers::default()
        };
        let mut all = schedulers.options().expect("valid").into_iter();
        let mut options = PlaneOptions::all(0).of_server(self.server.server());
        options.nodes.nodes = NodeOptions::several(nodes, "node-", &[]);
        options.scheduler = all.next();
        let (kube, clock) = (self.server.client(), self.server.clock());
        let plane = Plane::start_with_schedulers(&kube, clock, options, all.collect());
        let plane = plane.expect("every controller starts");
        plane.synced().await;
        self.plane = Some(plane);
    }

    fn plane(&self) -> &Plane {
        self.plane.as_ref().expect("started")
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.client.raw(request.body(body.into()).expect("a request")).await;
        serde_json::from_slice(answer.unwrap_or_else(|error| panic!("{path}: {error}")).body())
            .expect("JSON")
    }

    async fn pods(&self) -> Vec<Value> {
        let list = self.ask("GET", PODS, &Value::Null).await;
        list["items"].as_array().expect("a list").clone()
    }

    /// Reads the pods until a condition holds.
    async fn until(&self, what: &str, is_met: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let mut pods = Vec::new();
        for _ in 0..MAX_READS {
            pods = self.pods().await;
            if is_met(&pods) {
                return pods;
            }
            self.client.clock().sleep(Duration::from_secs(1)).await;
        }
        panic!("{what}: {pods:#?}")
    }
}

fn spec(scheduler: &str, cpu: u32) -> Value {
    json!({
        "schedulerName": scheduler,
        "containers": [{"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}}],
    })
}

fn pod(name: &str, scheduler: &str, cpu: u32) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": scheduler}}, "spec": spec(scheduler, cpu)})
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn of<'a>(pods: &'a [Value], scheduler: &str) -> Vec<&'a Value> {
    pods.iter().filter(|pod| text(pod, "/spec/schedulerName") == scheduler).collect()
}

/// Returns the numbers of a scheduler's pods on the nodes.
fn loads(pods: &[Value], scheduler: &str) -> BTreeMap<String, usize> {
    let mut loads = BTreeMap::new();
    for pod in of(pods, scheduler) {
        *loads.entry(text(pod, "/spec/nodeName").to_owned()).or_default() += 1;
    }
    loads
}

#[tokio::test(start_paused = true)]
async fn each_schedules_its_own_pods_by_its_own_profile() {
    let mut cluster = Cluster::new().await;
    cluster.start(3).await;
    let are_running = |scheduler: &'static str| {
        move |pods: &[Value]| {
            of(pods, scheduler).iter().all(|pod| text(pod, "/status/phase") == "Running")
        }
    };
    for scheduler in ["packed", "spread"] {
        for number in 0..6 {
            cluster.ask("POST", PODS, &pod(&format!("{scheduler}-{number}"), scheduler, 1)).await;
        }
        cluster.until(scheduler, are_running(scheduler)).await;
    }
    let pods = cluster.pods().await;
    let (packed, spread) = (loads(&pods, "packed"), loads(&pods, "spread"));
    assert_eq!(packed.values().copied().collect::<Vec<_>>(), [6], "on one node: {packed:?}");
    assert_eq!(spread.values().copied().collect::<Vec<_>>(), [3, 3], "{spread:?}");
    let (full, _) = packed.first_key_value().expect("one");
    assert!(!spread.contains_key(full), "the other scheduler's pods count: {spread:?}");

    cluster.ask("POST", PODS, &pod("lost", "nobody", 1)).await;
    cluster.client.clock().sleep(Duration::from_secs(600)).await;
    let pods = cluster.pods().await;
    let lost = of(&pods, "nobody")[0];
    assert_eq!(
        (&lost["spec"]["nodeName"], &lost["status"]["conditions"]),
        (&Value::Null, &Value::Null)
    );

    let events =
        cluster.ask("GET", "/apis/events.k8s.io/v1/namespaces/default/events", &Value::Null).await;
    for event in events["items"].as_array().expect("a list") {
        if event["reason"] == "Scheduled" {
            let scheduler = text(event, "/regarding/name").split('-').next().unwrap_or_default();
            assert_eq!(text(event, "/reportingController"), scheduler);
            assert_eq!(text(event, "/reportingInstance"), format!("{scheduler}-evenkeel"));
        }
    }
    let mut scheduled = BTreeMap::new();
    for registry in cluster.plane().scheduler_registries() {
        for family in registry.gather() {
            if family.name() == "scheduler_schedule_attempts_total" {
                for metric in family.get_metric() {
                    let label = |name: &str| {
                        let mut labels = metric.get_label().iter();
                        let found = labels.find(|label| label.name() == name);
                        found.map_or_else(String::new, |label| label.value().to_owned())
                    };
                    let key = (label("scheduler"), label("profile"), label("result"));
                    scheduled.insert(key, metric.get_counter().get_value());
                }
            }
        }
    }
    for name in ["packed", "spread"] {
        let key = (name.to_owned(), name.to_owned(), "scheduled".to_owned());
        assert_eq!(scheduled.get(&key), Some(&6.0), "{scheduled:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_refused_by_the_kubelet_and_the_workload_waits_for_room() {
    let mut cluster = Cluster::new().await;
    // Both pods exist before any scheduler starts, so that both schedulers see an empty node.
    for scheduler in ["packed", "spread"] {
        let labels = json!({"app": scheduler});
        let set = json!({"metadata": {"name": scheduler}, "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec(scheduler, 5)},
        }});
        cluster.ask("POST", SETS, &set).await;
        cluster.ask("POST", PODS, &pod(scheduler, scheduler, 5)).await;
    }
    cluster.start(1).await;
    let is_refused = |pod: &&Value| text(pod, "/status/reason") == "OutOfcpu";
    let is_unschedulable = |pod: &Value| {
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|it| it["type"] == "PodScheduled" && it["reason"] == "Unschedulable")
    };
    let pods = cluster
        .until("one pod runs, and the other one is replaced and waits", |pods| {
            pods.iter().any(|pod| text(pod, "/status/phase") == "Running")
                && pods.iter().any(&is_unschedulable)
        })
        .await;
    let refused: Vec<_> = pods.iter().filter(is_refused).collect();
    let [refused] = refused.as_slice() else { panic!("one pod is refused: {pods:#?}") };
    assert_eq!(
        (text(refused, "/status/phase"), text(refused, "/spec/nodeName")),
        ("Failed", "node-0")
    );
    let loser = text(refused, "/spec/schedulerName");
    let winner = if loser == "packed" { "spread" } else { "packed" };
    assert_eq!(of(&pods, winner).len(), 1);
    assert_eq!(of(&pods, loser).len(), 2, "its controller replaced it");
    // The state does not change: each scheduler sees the other one's pod.
    cluster.client.clock().sleep(Duration::from_secs(600)).await;
    let pods = cluster.pods().await;
    assert_eq!(pods.iter().filter(is_refused).count(), 1);

    cluster
        .ask("DELETE", &format!("{SETS}/{winner}?propagationPolicy=Background"), &Value::Null)
        .await;
    cluster
        .until("the other pod takes the room", |pods| {
            of(pods, loser).iter().any(|pod| text(pod, "/status/phase") == "Running")
        })
        .await;
}
