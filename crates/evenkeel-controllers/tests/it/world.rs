//! A server, the controllers of workloads, and functions that act as the kubelets.

use evenkeel_api::{
    View,
    time::Timestamp,
    views::{Metadata, Pod},
};
use evenkeel_controllers::{
    needs::Gates,
    options::Options,
    wiring::descriptor::{Clients, ControllerContext, descriptors},
};
use evenkeel_runtime::{
    cache::Caches,
    client::{Client, List, ListOptions},
    clock::Clock,
    controller::Env,
    plan::PatchType,
    tasks::Tasks,
};
use evenkeel_test::TestServer;
use prometheus::Registry;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// Those of workloads.
const CONTROLLERS: [&str; 3] =
    ["deployment-controller", "replicaset-controller", "replicationcontroller-controller"];

/// All of it.
pub(crate) struct World {
    pub(crate) client: Client,
    server: TestServer,
    tasks: Tasks,
    clock: Clock,
}

impl World {
    /// Starts an empty cluster with the namespace `ns` and the controllers of workloads.
    pub(crate) async fn start() -> Self {
        Self::with(&CONTROLLERS).await
    }

    /// Starts an empty cluster with the namespace `ns` and these controllers, with the feature gates that they need.
    pub(crate) async fn with(controllers: &[&str]) -> Self {
        let clock = Clock::starting_at(Timestamp::constant(1_790_000_000, 0));
        let server = TestServer::builder()
            .enable_admission_plugin("ServiceAccount")
            .clock(clock.clone())
            .seed(7)
            .start()
            .await
            .unwrap();
        let client = Client::new(server.client(), clock.clone());
        let world = Self { client, server, tasks: Tasks::new(), clock };
        world
            .create(
                "/api/v1/namespaces",
                &json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": "ns" } }),
            )
            .await;
        let account = json!({ "kind": "ServiceAccount", "apiVersion": "v1", "metadata": { "name": "default" } });
        world.create("/api/v1/namespaces/ns/serviceaccounts", &account).await;
        world.run_controllers(controllers);
        world
    }

    fn run_controllers(&self, controllers: &[&str]) {
        let registry = Registry::new();
        let caches = Caches::new(self.client.clone(), self.clock.clone(), &registry);
        let env = Env::new(self.client.clone(), caches.clone(), self.clock.clone(), &registry);
        let client = self.client.clone();
        let clients: Clients = Arc::new(move |_| client.clone());
        let tasks = self.tasks.clone();
        let mut chosen = descriptors();
        chosen.retain(|descriptor| controllers.contains(&descriptor.name));
        let gates: Vec<&str> =
            chosen.iter().flat_map(|descriptor| descriptor.gates).copied().collect();
        let defaults = Gates::default();
        let gates = Gates::new(move |gate| defaults.enabled(gate) || gates.contains(&gate));
        let context = ControllerContext {
            gates,
            ..ControllerContext::new(env, clients, tasks, registry, Options::default())
        };
        for descriptor in &chosen {
            assert_eq!(context.start(descriptor).unwrap(), None);
        }
        caches.start(&self.tasks);
    }

    /// Sends the creation of an object.
    #[track_caller]
    pub(crate) fn create(&self, path: &str, object: &Value) -> impl Future<Output = Value> {
        self.ask("POST", path, "application/json", object)
    }

    /// Sends a merge patch of an object.
    pub(crate) fn merge(&self, path: &str, patch: &Value) -> impl Future<Output = Value> {
        self.ask("PATCH", path, "application/merge-patch+json", patch)
    }

    /// Deletes an object with these options.
    pub(crate) fn delete(&self, path: &str, options: &Value) -> impl Future<Output = Value> {
        self.ask("DELETE", path, "application/json", options)
    }

    /// Returns the object at this path, if it exists.
    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        let request = http::Request::get(path).body(Default::default()).unwrap();
        match self.client.raw(request).await {
            Ok(answer) => Some(serde_json::from_slice(answer.body()).unwrap()),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    fn ask(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: &Value,
    ) -> impl Future<Output = Value> {
        let request =
            http::Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.body(body.to_string().into()).unwrap();
        let client = self.client.clone();
        let what = format!("{method} {path}");
        async move {
            let answer =
                client.raw(request).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            serde_json::from_slice(answer.body()).unwrap()
        }
    }

    /// Returns all objects of a kind in `ns`.
    pub(crate) async fn list<V: View>(&self) -> Vec<V> {
        let list: List<V> = self.client.list("ns", &ListOptions::default()).await.unwrap();
        list.items
    }

    /// Returns the reasons and messages of all events in `ns`.
    pub(crate) async fn events(&self) -> Vec<String> {
        let request =
            http::Request::get("/api/v1/namespaces/ns/events").body(Default::default()).unwrap();
        let answer = self.client.raw(request).await.unwrap();
        let list: Value = serde_json::from_slice(answer.body()).unwrap();
        let text =
            |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let mut events: Vec<String> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| {
                format!(
                    "{} {}: {}",
                    text(event, "type"),
                    text(event, "reason"),
                    text(event, "message")
                )
            })
            .collect();
        events.sort();
        events
    }

    /// Makes every pod running and ready.
    pub(crate) async fn run_pods(&self) {
        for pod in self.list::<Pod>().await {
            if &*pod.status.phase != "Running" && !pod.meta.deleting() {
                let since = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                let ready =
                    json!({ "type": "Ready", "status": "True", "lastTransitionTime": since });
                let status = json!({ "status": { "phase": "Running", "conditions": [ready] } });
                let kind = Pod::kind();
                let patched = self.client.patch::<Metadata>(
                    &kind,
                    "ns",
                    &pod.meta.name,
                    "status",
                    PatchType::Merge,
                    status.to_string().into(),
                );
                // The pod may just have been deleted.
                drop(patched.await);
            }
        }
    }

    /// Runs pods, and waits until only their statuses have been written for a virtual minute.
    pub(crate) async fn settle(&self) {
        for _ in 0..100 {
            let before = self.server.server().revision();
            self.run_pods().await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            if self.server.server().revision() == before {
                return;
            }
        }
        panic!("it never settles");
    }
}
