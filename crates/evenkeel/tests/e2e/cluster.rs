//! Input of a test case: a cluster of one of the backends, and namespaces in it.

use base64::prelude::*;
use bytes::Bytes;
use evenkeel_apiserver::Server;
use evenkeel_cloud::ip_pool::IpPool;
use evenkeel_runtime::{
    client::{ApiError, Client},
    clock::Clock,
    introspect::Introspection,
};
use http::Request;
use prometheus::Registry;
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// Timeout of each wait of a case.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Intervals of waiting, which differ between real and virtual time.
pub(crate) struct Intervals {
    /// Time between two checks of a condition.
    pub(crate) poll: Duration,
    /// Time for which a condition must hold.
    pub(crate) hold: Duration,
}

/// A cluster with our controllers, scheduler and nodes.
pub(crate) struct Cluster {
    client: Client,
    clock: Clock,
    intervals: Intervals,
    namespaces: AtomicU32,
    past: Option<Past>,
    inside: Option<Inside>,
    cloud: Option<Arc<IpPool>>,
}

/// Access to the store that bypasses the API server's checks.
enum Past {
    Etcd(Client),
    Embedded(Server),
}

/// Access to the internals of controllers that serve only this case.
pub(crate) struct Inside {
    /// State of each controller.
    pub(crate) introspection: Introspection,
    /// Metrics of the controllers.
    pub(crate) registry: Registry,
}

impl Cluster {
    /// Returns a cluster that is reached through this client.
    pub(crate) fn new(client: Client, clock: Clock, intervals: Intervals) -> Self {
        let namespaces = AtomicU32::new(1);
        Self { client, clock, intervals, namespaces, past: None, inside: None, cloud: None }
    }

    /// Returns the cluster with the etcd of its API server.
    pub(crate) fn with_etcd(self, etcd: Client) -> Self {
        Self { past: Some(Past::Etcd(etcd)), ..self }
    }

    /// Returns the cluster with this cloud provider.
    pub(crate) fn with_cloud(self, cloud: Arc<IpPool>) -> Self {
        Self { cloud: Some(cloud), ..self }
    }

    /// Returns the cloud of the cluster's nodes and load balancers.
    pub(crate) fn cloud(&self) -> &IpPool {
        self.cloud.as_ref().expect("a cluster with a cloud")
    }

    /// Returns the cluster with its embedded server, and the internals of its controllers.
    pub(crate) fn embedded(self, server: Server, inside: Inside) -> Self {
        Self { past: Some(Past::Embedded(server)), inside: Some(inside), ..self }
    }

    /// Returns the cluster with its embedded server.
    pub(crate) fn with_server(self, server: Server) -> Self {
        Self { past: Some(Past::Embedded(server)), ..self }
    }

    /// Returns the embedded server.
    pub(crate) fn server(&self) -> &Server {
        match self.past.as_ref() {
            Some(Past::Embedded(server)) => server,
            _ => panic!("the server is not in this process"),
        }
    }

    /// Returns the internals of the controllers, if they serve only this case.
    pub(crate) fn inside(&self) -> Option<&Inside> {
        self.inside.as_ref()
    }

    /// Writes an object to the store without the API server's checks. `key` is the key in etcd, such as
    /// `deployments/default/web` or `example.com/widgets/default/one`.
    pub(crate) async fn store(&self, key: &str, object: &Value) {
        let etcd = match self.past.as_ref().expect("a way past the API server") {
            Past::Etcd(etcd) => etcd,
            Past::Embedded(server) => {
                let mut parts = key.split('/').skip_while(|part| part.contains('.'));
                let resource = match parts.next().unwrap_or_default() {
                    "controllers" => "replicationcontrollers",
                    "minions" => "nodes",
                    "services" => "services",
                    other => other,
                };
                let version = object["apiVersion"].as_str().expect("an apiVersion");
                server.put_unchecked(version, resource, object).await.expect("stored");
                return;
            }
        };
        let [key, value] = [format!("/registry/{key}"), object.to_string()]
            .map(|text| BASE64_STANDARD.encode(text));
        let request = Request::post("/v3/kv/put")
            .header("content-type", "application/json")
            .body(json!({"key": key, "value": value}).to_string().into())
            .expect("a request");
        etcd.raw(request).await.expect("etcd takes it");
    }

    /// Creates a namespace for a case, and waits until it is ready for pods.
    pub(crate) async fn namespace(&self, prefix: &str) -> Namespace<'_> {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{number}");
        self.create("namespaces", json!({"metadata": {"name": name}})).await;
        let namespace = Namespace { cluster: self, name };
        namespace.until("serviceaccounts/default", |account| !account.is_null()).await;
        namespace
    }

    /// Waits for a duration on the clock of the backend: in virtual time on the embedded server.
    pub(crate) async fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration).await;
    }

    /// Waits long enough for unwanted effects to become visible.
    pub(crate) async fn watch_a_while(&self) {
        self.sleep(self.intervals.hold).await;
    }

    /// Returns the number of requests that the node lifecycle controller sends in that time about one unready node whose status
    /// cannot be written. As upstream, it makes five attempts every five seconds, and each attempt reads the node and its
    /// lease.
    pub(crate) fn node_health_requests(&self) -> u64 {
        self.intervals.hold.as_secs() / 5 * 5 * 3
    }

    /// Returns the controllers' clock.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the client of kube-rs, for watches.
    pub(crate) fn kube(&self) -> &kube::Client {
        self.client.unfenced_kube()
    }

    /// Sends one request. `path` is a full path, or a cluster-scoped resource.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Value,
    ) -> Result<Value, ApiError> {
        let media =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let bytes = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = Request::builder()
            .method(method)
            .uri(absolute(path))
            .header("content-type", media)
            .header("accept", "application/json")
            .body(bytes)
            .expect("a request");
        let answer = self.client.raw(request).await?;
        Ok(serde_json::from_slice(answer.body()).unwrap_or(Value::Null))
    }

    /// Returns a list as the table that `kubectl get` requests.
    pub(crate) async fn table(&self, path: &str) -> Value {
        let request = Request::get(absolute(path))
            .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Bytes::new())
            .expect("a request");
        let answer = self.client.raw(request).await.unwrap_or_else(|e| panic!("GET {path}: {e}"));
        serde_json::from_slice(answer.body()).expect("a table")
    }

    /// Returns an object or a list; `Null` if it does not exist.
    pub(crate) async fn get(&self, path: &str) -> Value {
        match self.ask("GET", path, Value::Null).await {
            Ok(value) => value,
            Err(error) if error.is_not_found() => Value::Null,
            Err(error) => panic!("GET {path}: {error}"),
        }
    }

    /// Creates an object.
    pub(crate) async fn create(&self, path: &str, object: Value) -> Value {
        done("POST", path, self.ask("POST", path, object).await)
    }

    /// Changes an object by a merge patch.
    pub(crate) async fn patch(&self, path: &str, change: Value) -> Value {
        done("PATCH", path, self.ask("PATCH", path, change).await)
    }

    /// Deletes an object; `policy` is `Background`, `Foreground` or `Orphan`.
    pub(crate) async fn delete(&self, path: &str, policy: &str) -> Value {
        done("DELETE", path, self.ask("DELETE", path, json!({"propagationPolicy": policy})).await)
    }

    /// Waits until the object or list at `path` meets a condition, and returns it.
    pub(crate) async fn until(&self, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let deadline = self.clock.now() + WAIT_TIMEOUT;
        loop {
            let value = self.get(path).await;
            if is_so(&value) {
                return value;
            }
            assert!(
                self.clock.now() < deadline,
                "{path} did not become as wanted; it is {value:#}"
            );
            self.sleep(self.intervals.poll).await;
        }
    }
}

/// A namespace of a case.
pub(crate) struct Namespace<'a> {
    cluster: &'a Cluster,
    /// Name of the namespace.
    pub(crate) name: String,
}

impl Namespace<'_> {
    /// Returns the cluster of the namespace.
    pub(crate) fn cluster(&self) -> &Cluster {
        self.cluster
    }

    /// Returns the path of `resource`, `resource/name`, … in this namespace.
    pub(crate) fn path(&self, path: &str) -> String {
        let resource = path.split(['/', '?']).next().unwrap_or_default();
        format!("{}/namespaces/{}/{path}", group(resource), self.name)
    }

    /// Fails as [`Cluster::ask`] does.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Value,
    ) -> Result<Value, ApiError> {
        self.cluster.ask(method, &self.path(path), body).await
    }

    /// Fails as [`Cluster::get`] does.
    pub(crate) async fn get(&self, path: &str) -> Value {
        self.cluster.get(&self.path(path)).await
    }

    /// Returns the items of the list from [`Namespace::get`].
    pub(crate) async fn list(&self, path: &str) -> Vec<Value> {
        items(&self.get(path).await).to_vec()
    }

    /// Fails as [`Cluster::create`] does.
    pub(crate) async fn create(&self, path: &str, object: Value) -> Value {
        self.cluster.create(&self.path(path), object).await
    }

    /// Fails as [`Cluster::patch`] does.
    pub(crate) async fn patch(&self, path: &str, change: Value) -> Value {
        self.cluster.patch(&self.path(path), change).await
    }

    /// Fails as [`Cluster::delete`] does.
    pub(crate) async fn delete(&self, path: &str, policy: &str) -> Value {
        self.cluster.delete(&self.path(path), policy).await
    }

    /// Fails as [`Cluster::until`] does.
    pub(crate) async fn until(&self, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        self.cluster.until(&self.path(path), is_so).await
    }

    /// Waits until no object exists at `path`.
    pub(crate) async fn until_gone(&self, path: &str) {
        self.until(path, Value::is_null).await;
    }

    /// Waits until a list is empty.
    pub(crate) async fn until_none(&self, path: &str) {
        self.until(path, |list| items(list).is_empty()).await;
    }
}

/// Returns the items of a list.
pub(crate) fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns an object's name.
pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns the condition of this type; `Null` if there is none.
pub(crate) fn condition<'a>(object: &'a Value, which: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().find(|condition| condition["type"] == which).unwrap_or(&Value::Null)
}

fn done(method: &str, path: &str, answer: Result<Value, ApiError>) -> Value {
    answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    format!("{}/{path}", group(path.split(['/', '?']).next().unwrap_or_default()))
}

/// Returns the path of the API group that serves a resource.
fn group(resource: &str) -> &'static str {
    match resource {
        "controllerrevisions" | "daemonsets" | "deployments" | "replicasets" | "statefulsets" => {
            "/apis/apps/v1"
        }
        "certificatesigningrequests" | "clustertrustbundles" => "/apis/certificates.k8s.io/v1",
        "clusterroles" => "/apis/rbac.authorization.k8s.io/v1",
        "cronjobs" | "jobs" => "/apis/batch/v1",
        "horizontalpodautoscalers" => "/apis/autoscaling/v2",
        "poddisruptionbudgets" => "/apis/policy/v1",
        "customresourcedefinitions" => "/apis/apiextensions.k8s.io/v1",
        "gizmos" | "widgets" => "/apis/e2e.evenkeel.dev/v1",
        "gadgets" => "/apis/quota.evenkeel.dev/v1",
        "endpointslices" => "/apis/discovery.k8s.io/v1",
        "ipaddresses" | "servicecidrs" => "/apis/networking.k8s.io/v1",
        "deviceclasses" | "resourceclaims" | "resourceclaimtemplates" | "resourceslices" => {
            "/apis/resource.k8s.io/v1"
        }
        _ => "/api/v1",
    }
}
