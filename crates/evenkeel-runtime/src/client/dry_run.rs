//! Dry run of a whole program: the client sends reads to the server, and records writes with a response of success.
//!
//! The client sends no write. An object that a dry run creates does not exist afterwards, so that writes that depend on
//! it are missing. Later writes to the same object are marked.

use super::{
    negotiation::JSON,
    options::{APPLY_CONTENT_TYPE, MERGE_CONTENT_TYPE},
};
use crate::introspect::{changes, differences, hide_secrets};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};
use tower::{BoxError, Service};

/// Reviews: resources whose POST changes nothing. A dry run sends them to the server.
const REVIEWS: [&str; 5] = [
    "tokenreviews",
    "subjectaccessreviews",
    "localsubjectaccessreviews",
    "selfsubjectaccessreviews",
    "selfsubjectrulesreviews",
];

/// Write that a dry run recorded and did not send.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRunWrite {
    /// Name of the controller that writes: the last segment of the user agent.
    pub by: String,
    /// One of `create`, `update`, `patch`, `delete`, `delete all`.
    pub verb: &'static str,
    /// Sub-resource, empty for the object itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// Plural and group, such as `deployments.apps` or `pods`.
    pub resource: String,
    /// Namespace, empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the object. It ends in `xxxxx` if the server would generate it, and is empty for `delete all`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Summary of the changed fields, such as `spec.replicas 3`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub changes: String,
    /// Number of requests for exactly this write.
    pub times: u32,
    /// Whether this dry run wrote the same object before. The real write may then differ.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub follows: bool,
}

impl std::fmt::Display for DryRunWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { verb, subresource, resource, namespace, name, changes, times, follows, .. } =
            self;
        let subresource_of =
            if subresource.is_empty() { String::new() } else { format!("{subresource} of ") };
        write!(f, "{verb} {subresource_of}{resource} ")?;
        match (namespace.is_empty(), name.is_empty()) {
            (true, _) => write!(f, "{name}")?,
            (false, true) => write!(f, "in {namespace}")?,
            (false, false) => write!(f, "{namespace}/{name}")?,
        }
        if *times > 1 {
            write!(f, " ({times} times)")?;
        }
        if !changes.is_empty() {
            write!(f, ": {changes}")?;
        }
        if *follows { write!(f, " [after a write above that was not made]") } else { Ok(()) }
    }
}

/// Writes that a dry run recorded. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct RecordedWrites {
    records: Arc<Mutex<Records>>,
    /// Whether each write is logged at its first request.
    logs: bool,
}

#[derive(Debug, Default)]
struct Records {
    writes: Vec<DryRunWrite>,
    /// Index in `writes` by the write's full content.
    known: HashMap<String, usize>,
    /// Number of Event objects that would have been written.
    events: usize,
    requests: u64,
}

impl RecordedWrites {
    /// Returns the writes in the order of their first request. Events are only counted.
    pub fn writes(&self) -> Vec<DryRunWrite> {
        self.lock().writes.clone()
    }

    /// Returns the number of Event objects that would have been written.
    pub fn events(&self) -> usize {
        self.lock().events
    }

    /// Returns the number of requests so far, including reads. It stops growing when the program is idle.
    pub fn requests(&self) -> u64 {
        self.lock().requests
    }

    /// Returns a client that sends only reads through `kube`, and whose writes are added to these.
    pub(crate) fn record_writes_of(&self, kube: kube::Client) -> kube::Client {
        kube::Client::new(DryRunService { inner: kube, recorded: self.clone() }, "default")
    }

    fn record(&self, mut write: DryRunWrite, body: &[u8]) {
        let mut records = self.lock();
        if write.resource.split('.').next() == Some("events") {
            records.events += 1;
            return;
        }
        // Maps without an order may write the same JSON differently.
        let body = serde_json::from_slice::<Value>(body)
            .map_or_else(|_| String::from_utf8_lossy(body).into_owned(), |body| body.to_string());
        let text = format!("{}{write}{body}", write.by);
        if let Some(index) = records.known.get(&text).copied() {
            records.writes[index].times += 1;
            return;
        }
        let is_same_object = |other: &DryRunWrite| {
            (&other.resource, &other.namespace, &other.name)
                == (&write.resource, &write.namespace, &write.name)
        };
        let has_generated_name = write.name.ends_with("xxxxx") && write.verb == "create";
        write.follows = !write.name.is_empty()
            && !has_generated_name
            && records.writes.iter().any(is_same_object);
        if self.logs {
            tracing::info!(by = write.by, "dry run: {write}");
        }
        let index = records.writes.len();
        records.known.insert(text, index);
        records.writes.push(write);
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a client that sends only reads through `kube`, and the record of its writes.
pub fn dry_run(kube: kube::Client) -> (kube::Client, RecordedWrites) {
    start(kube, false)
}

/// Like [`dry_run`], and logs each write at its first request.
pub(crate) fn logged_dry_run(kube: kube::Client) -> (kube::Client, RecordedWrites) {
    start(kube, true)
}

fn start(kube: kube::Client, logs: bool) -> (kube::Client, RecordedWrites) {
    let recorded = RecordedWrites { logs, ..RecordedWrites::default() };
    (recorded.record_writes_of(kube), recorded)
}

#[derive(Clone)]
struct DryRunService {
    inner: kube::Client,
    recorded: RecordedWrites,
}

impl Service<Request<Body>> for DryRunService {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            this.recorded.lock().requests += 1;
            let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
            if is_read || is_review(request.uri().path()) {
                return Ok(this.inner.send(request).await?);
            }
            this.record(request).await
        })
    }
}

fn is_review(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|last| REVIEWS.contains(&last))
}

impl DryRunService {
    /// Records a write, and returns a response as if the server had executed it.
    async fn record(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let body: Bytes = body.collect().await.map_err(BoxError::from)?.to_bytes();
        let path = parts.uri.path();
        let Some(info) = RequestInfo::parse(path) else {
            return Ok(forbidden(&format!("{} {path} is not done in a dry run", parts.method)));
        };
        let agent = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let by = agent.and_then(|agent| agent.rsplit('/').next()).unwrap_or_default().to_owned();
        let object: Value = evenkeel_api::json::from_slice(&body).unwrap_or_default();
        let without_secrets = |object: &Value| {
            let mut object = object.clone();
            if info.resource() == "secrets" {
                hide_secrets(&mut object);
            }
            object
        };
        let write = |verb, name: &str, changes: String| DryRunWrite {
            by,
            verb,
            subresource: info.subresource.to_owned(),
            resource: info.resource(),
            namespace: info.namespace.to_owned(),
            name: name.to_owned(),
            changes,
            times: 1,
            follows: false,
        };
        let (write, answer) = match parts.method {
            Method::POST => {
                let (name, created) = with_generated_name(object, info.name);
                (
                    write("create", &name, String::new()),
                    json_response(StatusCode::CREATED, &created),
                )
            }
            Method::PUT => {
                let before = self.read_live(&info.object_path()).await?;
                let changes = differences(
                    &without_secrets(&before),
                    &without_secrets(&object),
                    info.subresource,
                );
                let mut after = object;
                remove_resource_version(&mut after);
                (write("update", info.name, changes), json_response(StatusCode::OK, &after))
            }
            Method::PATCH => {
                let mut live = self.read_live(&info.object_path()).await?;
                let content_type = parts.headers.get(header::CONTENT_TYPE);
                let applies = content_type.is_some_and(|it| it == APPLY_CONTENT_TYPE);
                if live.is_null() && applies && info.subresource.is_empty() {
                    // An apply creates the object.
                    let (name, created) = with_generated_name(object, info.name);
                    let write = write("create", &name, String::new());
                    self.recorded.record(write, &body);
                    return Ok(json_response(StatusCode::CREATED, &created));
                }
                if live.is_null() {
                    return Ok(not_found(path));
                }
                remove_resource_version(&mut live);
                let changes = match object.get(info.subresource) {
                    Some(part) => changes(part),
                    None => changes(&without_secrets(&object)),
                };
                if applies || content_type.is_some_and(|it| it == MERGE_CONTENT_TYPE) {
                    // Of an apply, this is an estimate: lists with keys are replaced.
                    json_patch::merge(&mut live, &object);
                    remove_resource_version(&mut live);
                }
                (write("patch", info.name, changes), json_response(StatusCode::OK, &live))
            }
            _ if info.name.is_empty() => {
                let target = parts.uri.path_and_query().map_or(path, |target| target.as_str());
                let list = self.read_live(target).await?;
                let count = list["items"].as_array().map_or(0, Vec::len);
                if count == 0 {
                    return Ok(json_response(StatusCode::OK, &success_status()));
                }
                let s = if count == 1 { "" } else { "s" };
                let write = write("delete all", "", format!("{count} object{s}"));
                (write, json_response(StatusCode::OK, &success_status()))
            }
            _ => {
                if self.read_live(&info.object_path()).await?.is_null() {
                    return Ok(not_found(path));
                }
                (
                    write("delete", info.name, String::new()),
                    json_response(StatusCode::OK, &success_status()),
                )
            }
        };
        self.recorded.record(write, &body);
        Ok(answer)
    }

    /// Reads the live object or list. Returns `Null` if the server responds with an error.
    async fn read_live(&self, path: &str) -> Result<Value, BoxError> {
        let request = Request::get(path).header(header::ACCEPT, JSON).body(Body::empty())?;
        let answer = self.inner.send(request).await?;
        if !answer.status().is_success() {
            return Ok(Value::Null);
        }
        let body = answer.into_body().collect().await.map_err(BoxError::from)?.to_bytes();
        Ok(evenkeel_api::json::from_slice(&body).unwrap_or_default())
    }
}

/// Returns the name of the object that a POST of this body would create, and the object.
fn with_generated_name(mut object: Value, name: &str) -> (String, Value) {
    if !object.is_object() {
        object = json!({});
    }
    let metadata = &mut object["metadata"];
    let requested_name =
        metadata["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
    let prefix = metadata["generateName"].as_str().map(|prefix| format!("{prefix}xxxxx"));
    let name = requested_name.or(prefix).unwrap_or_else(|| name.to_owned());
    metadata["name"] = json!(name);
    remove_resource_version(&mut object);
    (name, object)
}

/// Removes the resourceVersion. Otherwise a controller would wait for its cache to show a version that never
/// arrives.
fn remove_resource_version(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
}

fn success_status() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200})
}

fn not_found(path: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
        "reason": "NotFound", "message": format!("{path} is not there"),
    });
    json_response(StatusCode::NOT_FOUND, &status)
}

fn forbidden(message: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403,
        "reason": "Forbidden", "message": message,
    });
    json_response(StatusCode::FORBIDDEN, &status)
}

fn json_response(code: StatusCode, value: &Value) -> Response<Body> {
    let mut answer = Response::new(Body::from(value.to_string().into_bytes()));
    *answer.status_mut() = code;
    let json = http::HeaderValue::from_static(JSON);
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}

/// Resource and name in the path of a request.
///
/// Upstream: `RequestInfoFactory.NewRequestInfo`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestInfo<'a> {
    root: &'a str,
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) namespace: &'a str,
    pub(super) plural: &'a str,
    pub(super) name: &'a str,
    pub(super) subresource: &'a str,
}

impl<'a> RequestInfo<'a> {
    pub(super) fn parse(path: &'a str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let root = parts.next()?;
        let group = match root {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let version = parts.next()?;
        let rest: Vec<&str> = parts.collect();
        // `namespaces/x/pods` is a request for pods. `namespaces/x` and its sub-resources are requests for
        // namespaces.
        let (namespace, rest) = match &rest[..] {
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", &rest[..]),
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let (plural, rest) = rest.split_first()?;
        let name = rest.first().copied().unwrap_or_default();
        let subresource = rest.get(1).copied().unwrap_or_default();
        Some(Self { root, group, version, namespace, plural, name, subresource })
    }

    fn resource(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.plural, self.group)
    }

    /// Returns the path of the object without a sub-resource.
    fn object_path(&self) -> String {
        let Self { root, group, version, namespace, plural, name, .. } = self;
        let group = if group.is_empty() { String::new() } else { format!("{group}/") };
        let scope =
            if namespace.is_empty() { String::new() } else { format!("namespaces/{namespace}/") };
        format!("/{root}/{group}{version}/{scope}{plural}/{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parsed_into_resource_namespace_name_and_subresource() {
        let table = [
            ("/api/v1/namespaces/ns/pods/p/status", ("pods", "ns", "p", "status")),
            ("/api/v1/namespaces/ns/pods", ("pods", "ns", "", "")),
            ("/api/v1/namespaces/ns/finalize", ("namespaces", "", "ns", "finalize")),
            ("/api/v1/namespaces/ns", ("namespaces", "", "ns", "")),
            ("/api/v1/nodes/n", ("nodes", "", "n", "")),
            ("/apis/apps/v1/namespaces/ns/deployments/web", ("deployments.apps", "ns", "web", "")),
        ];
        for (path, wanted) in table {
            let info = RequestInfo::parse(path).unwrap();
            let got = (&*info.resource(), info.namespace, info.name, info.subresource);
            assert_eq!(got, wanted, "{path}");
            assert!(path.starts_with(&info.object_path()) || info.name.is_empty(), "{path}");
        }
        assert_eq!(RequestInfo::parse("/metrics"), None);
        assert!(is_review("/apis/authentication.k8s.io/v1/tokenreviews"));
        assert!(!is_review("/api/v1/namespaces/ns/serviceaccounts/a/token"));
    }

    #[test]
    fn repeated_writes_are_counted_and_later_writes_are_marked() {
        let recorded = RecordedWrites::default();
        let write = |verb, changes: &str| DryRunWrite {
            by: "tester".into(),
            verb,
            subresource: String::new(),
            resource: "pods".into(),
            namespace: "ns".into(),
            name: "p".into(),
            changes: changes.into(),
            times: 1,
            follows: false,
        };
        recorded.record(write("patch", "a 1"), b"1");
        recorded.record(write("patch", "a 1"), b"1");
        recorded.record(write("delete", ""), b"");
        recorded.record(DryRunWrite { resource: "events".into(), ..write("create", "") }, b"");
        let lines: Vec<String> = recorded.writes().iter().map(ToString::to_string).collect();
        let wanted = [
            "patch pods ns/p (2 times): a 1",
            "delete pods ns/p [after a write above that was not made]",
        ];
        assert_eq!((&lines[..], recorded.events()), (&wanted.map(String::from)[..], 1));
    }

    #[test]
    fn a_generated_name_ends_in_xxxxx() {
        let (name, created) =
            with_generated_name(json!({"metadata": {"generateName": "web-"}}), "");
        assert_eq!((&*name, &created["metadata"]["name"]), ("web-xxxxx", &json!("web-xxxxx")));
    }
}
