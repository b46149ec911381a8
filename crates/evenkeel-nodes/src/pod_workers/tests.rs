//! Tests of the pod workers with a scripted API server, whose writes can fail.

use super::*;
use bytes::Bytes;
use evenkeel_runtime::tasks::Tasks;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use serde_json::{Value, json};
use std::{collections::BTreeMap, convert::Infallible};

/// API server that lists fixed objects, refuses some writes, and records all of them.
#[derive(Clone, Default)]
struct TestServer {
    lists: Arc<BTreeMap<&'static str, Vec<Value>>>,
    /// Methods of the next writes to fail.
    failing: Arc<Mutex<Vec<Method>>>,
    writes: Arc<Mutex<Vec<String>>>,
    /// Path whose reads fail, and the code of these responses.
    failing_read: Arc<Mutex<Option<(&'static str, u16)>>>,
}

impl TestServer {
    /// Returns the response to a request: its code and body; `None` for a watch, which never reports an event.
    fn answer(&self, request: &Request<Body>) -> Option<(u16, Value)> {
        let (method, uri) = (request.method(), request.uri());
        let query = uri.query().unwrap_or_default();
        if method == Method::GET {
            let failing_read =
                self.failing_read.lock().unwrap().filter(|(path, _)| *path == uri.path());
            if let Some((_, code)) = failing_read {
                return Some((code, status(code)));
            }
            let items = self.lists.get(uri.path()).cloned().unwrap_or_default();
            return match query {
                // The client then falls back to a list request.
                query if query.contains("sendInitialEvents") => Some((400, status(400))),
                query if query.contains("watch=") => None,
                _ => Some((200, json!({ "metadata": { "resourceVersion": "7" }, "items": items }))),
            };
        }
        let name = if uri.path().ends_with("/events") { "event" } else { "pod" };
        self.writes.lock().unwrap().push(format!("{method} {name}"));
        let mut failing = self.failing.lock().unwrap();
        let fails = failing.iter().position(|failing| failing == method);
        let object =
            json!({ "kind": "Pod", "metadata": { "name": "web", "resourceVersion": "9" } });
        Some(match fails.map(|index| failing.remove(index)) {
            Some(_) => (500, status(500)),
            None => (200, object),
        })
    }

    /// Takes the recorded writes.
    fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.writes.lock().unwrap())
    }

    /// Makes the next write of each of these methods fail.
    fn fail(&self, methods: &[Method]) {
        self.failing.lock().unwrap().extend_from_slice(methods);
    }

    fn client(&self, clock: &Clock) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = server.answer(&request);
            let code = answer.as_ref().map_or(200, |(code, _)| *code);
            let body: UnsyncBoxBody<Bytes, Infallible> = match answer {
                Some((_, body)) => Full::from(body.to_string()).boxed_unsync(),
                None => {
                    let events = futures::stream::pending::<Result<Frame<Bytes>, Infallible>>();
                    BodyExt::boxed_unsync(StreamBody::new(events))
                }
            };
            let response = Response::builder()
                .status(code)
                .header("content-type", "application/json")
                .body(body)
                .unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        Client::new(kube::Client::new(service, "default"), clock.clone())
    }
}

fn status(code: u16) -> Value {
    json!({ "kind": "Status", "code": code })
}

/// Pod workers of the node `node-0`, whose caches hold the objects of a server.
struct TestWorkers {
    pod_workers: Arc<PodWorkers>,
    server: TestServer,
    key: Key,
}

impl TestWorkers {
    async fn new(lists: impl IntoIterator<Item = (&'static str, Vec<Value>)>) -> Self {
        let clock = Clock::starting_at(Timestamp::from_second(1_800_000_000).unwrap());
        let lists = Arc::new(lists.into_iter().collect());
        let server = TestServer { lists, ..TestServer::default() };
        let (client, tasks) = (server.client(&clock), Tasks::new());
        let recorder = EventRecorder::new(client.clone(), "kubelet", clock.clone());
        recorder.start(&tasks);
        let options = NodesOptions { normal_events: true, ..NodesOptions::default() };
        let caches = Caches::new(client.clone(), clock.clone(), &prometheus::Registry::new());
        let queue = Queue::unnamed(&clock);
        let pod_workers =
            PodWorkers::new(client, clock, recorder, options, &caches, (None, None), queue);
        caches.start(&tasks);
        settle().await;
        assert!(caches.has_synced());
        let key = Key { namespace: "shop".into(), name: "web".into() };
        Self { pod_workers, server, key }
    }

    /// Syncs the pod once, and returns whether that succeeded, and the writes.
    async fn sync(&self) -> (bool, Vec<String>) {
        let succeeded = self.pod_workers.sync_pod(&self.key).await.is_ok();
        settle().await;
        (succeeded, self.server.writes())
    }

    fn addresses(&self) -> usize {
        self.pod_workers.lock().addresses.count()
    }
}

/// Lets all tasks run for a second of the paused clock.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// Returns the pod `web` on `node-0`, with `more` added to its metadata, spec and status.
fn pod(more: &Value) -> Value {
    let mut pod = json!({
        "metadata": { "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "5" },
        "spec": { "nodeName": "node-0", "containers": [{ "name": "c", "image": "nginx" }] },
        "status": { "phase": "Pending" },
    });
    for part in ["metadata", "spec", "status"] {
        for (key, value) in more[part].as_object().into_iter().flatten() {
            pod[part][key] = value.clone();
        }
    }
    pod
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_is_repeated_without_events_and_status_writes() {
    let started = "2027-01-15T07:59:00Z";
    let running = json!({
        "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z", "deletionGracePeriodSeconds": 0 },
        "status": {
            "phase": "Running", "startTime": started, "podIP": "10.128.0.1",
            "containerStatuses": [
                { "name": "c", "image": "nginx", "state": { "running": { "startedAt": started } } },
            ],
        },
    });
    let workers = TestWorkers::new([("/api/v1/pods", vec![pod(&running)])]).await;
    workers.server.fail(&[Method::DELETE]);
    let (succeeded, mut writes) = workers.sync().await;
    writes.sort();
    assert_eq!(
        (succeeded, &writes[..]),
        (false, &["DELETE pod", "PATCH pod", "POST event"].map(str::to_owned)[..])
    );
    assert_eq!(workers.sync().await, (true, vec!["DELETE pod".to_owned()]));
    assert_eq!(workers.sync().await, (true, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_status_is_not_written_holds_no_address() {
    let workers = TestWorkers::new([("/api/v1/pods", vec![pod(&json!({}))])]).await;
    for _ in 0..3 {
        workers.server.fail(&[Method::PATCH]);
        assert_eq!(workers.sync().await, (false, vec!["PATCH pod".to_owned()]));
        assert_eq!(workers.addresses(), 0);
    }
    assert_eq!(workers.sync().await, (true, vec!["PATCH pod".to_owned()]));
    assert_eq!(workers.addresses(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_of_two_pods_that_arrive_together_is_admitted() {
    let sized = |name: &str, cpu: u32| {
        pod(&json!({
            "metadata": { "name": name, "uid": name },
            "spec": { "containers": [
                { "name": "c", "image": "nginx", "resources": { "requests": { "cpu": cpu } } },
            ] },
        }))
    };
    // The node has 8 CPUs. The watch reports nothing, so the cache never shows the statuses that the workers write.
    let pods = vec![sized("a", 5), sized("b", 5), sized("c", 3)];
    let workers = TestWorkers::new([("/api/v1/pods", pods)]).await;
    let key = |name: &str| Key { namespace: "shop".into(), name: name.into() };
    let [a, b, c] = ["a", "b", "c"].map(key);
    let (first, second) =
        tokio::join!(workers.pod_workers.sync_pod(&a), workers.pod_workers.sync_pod(&b));
    let third = workers.pod_workers.sync_pod(&c).await;
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
    let state = workers.pod_workers.lock();
    let rejected = [&a, &b, &c].map(|key| state.synced_pods[key].memory.rejected);
    assert_eq!(rejected, [false, true, false], "a rejected pod takes no room");
    assert!(state.admissions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn volumes_are_mountable_if_attached_or_if_their_driver_needs_no_attachment() {
    let used = json!({ "spec": { "volumes": [
        { "name": "v", "persistentVolumeClaim": { "claimName": "data" } },
    ] } });
    let meta = |name: &str| json!({ "name": name, "uid": name, "resourceVersion": "1" });
    let mut claim = json!({ "metadata": meta("data"), "spec": { "volumeName": "pv" }, "status": { "phase": "Bound" } });
    claim["metadata"]["namespace"] = "shop".into();
    let volume = json!({ "metadata": meta("pv"), "spec": { "csi": { "driver": "d", "volumeHandle": "h" } } });
    let driver =
        |attach: bool| json!({ "metadata": meta("d"), "spec": { "attachRequired": attach } });
    let attached = json!({ "metadata": meta("node-0"), "status": { "volumesAttached": [
        { "name": "kubernetes.io/csi/d^h", "devicePath": "" },
    ] } });
    for (volumes, drivers, nodes, mountable, attachable) in [
        (vec![], vec![driver(false)], vec![], false, 0),
        (vec![volume.clone()], vec![driver(false)], vec![], true, 0),
        (vec![volume.clone()], vec![driver(true)], vec![], false, 1),
        (vec![volume.clone()], vec![], vec![], false, 1),
        (vec![volume.clone()], vec![driver(true)], vec![attached.clone()], true, 1),
        (vec![volume], vec![], vec![attached], true, 1),
    ] {
        let case = format!("{volumes:?} {drivers:?} {nodes:?}");
        let workers = TestWorkers::new([
            ("/api/v1/pods", vec![pod(&used)]),
            ("/api/v1/nodes", nodes),
            ("/api/v1/persistentvolumeclaims", vec![claim.clone()]),
            ("/api/v1/persistentvolumes", volumes),
            ("/apis/storage.k8s.io/v1/csidrivers", drivers),
        ])
        .await;
        let pod = workers.pod_workers.pods.get("shop", "web").unwrap();
        let volumes = &workers.pod_workers.volumes;
        assert_eq!(
            (volumes.are_mountable(&pod), volumes.attachable_volumes(&pod).len()),
            (mountable, attachable),
            "{case}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn kubelets_begin_once_they_know_nodes_and_behaviors() {
    const BEHAVIORS: &str = "/apis/sim.evenkeel.dev/v1alpha1/behaviors";
    let started = "2027-01-15T07:59:00Z";
    let terminating = json!({
        "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z", "deletionGracePeriodSeconds": 0 },
        "status": {
            "phase": "Running", "startTime": started, "podIP": "10.128.0.1",
            "containerStatuses": [
                { "name": "c", "image": "nginx", "state": { "running": { "startedAt": started } } },
            ],
        },
    });
    for (path, code, waits) in [
        ("/api/v1/nodes", 500, true),
        ("/api/v1/namespaces", 500, true),
        (BEHAVIORS, 500, true),
        (BEHAVIORS, 404, false),
        (BEHAVIORS, 403, false),
    ] {
        let clock = Clock::starting_at(Timestamp::from_second(1_800_000_000).unwrap());
        let lists = [("/api/v1/pods", vec![pod(&terminating)])].into_iter().collect();
        let server = TestServer { lists: Arc::new(lists), ..TestServer::default() };
        *server.failing_read.lock().unwrap() = Some((path, code));
        let (client, tasks) = (server.client(&clock), Tasks::new());
        let options = NodesOptions { behaviors: true, ..NodesOptions::default() };
        let caches = Caches::new(client.clone(), clock.clone(), &prometheus::Registry::new());
        let run = crate::run(client, caches.clone(), clock, options, tasks.token());
        tasks.spawn("nodes", run);
        settle().await;
        caches.start(&tasks);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let has_written = |writes: Vec<String>| {
            ["POST pod", "DELETE pod"].map(|write| writes.iter().any(|written| written == write))
        };
        assert_eq!(has_written(server.writes()), [!waits; 2], "{path} {code}");
        if waits {
            *server.failing_read.lock().unwrap() = None;
            tokio::time::sleep(Duration::from_secs(120)).await;
            assert_eq!(has_written(server.writes()), [true; 2], "{path} {code}");
        }
    }
}
