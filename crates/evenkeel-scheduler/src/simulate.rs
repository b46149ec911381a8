//! Simulated cluster from a dump (`kubectl get nodes,pods,… -o yaml`), served by a read-only API server.

mod defaults;
#[cfg(test)]
mod tests;
mod workloads;

pub use workloads::Workload;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::{Request, Response, header};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::client::Body;
use serde_json::{Value, json};
use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

/// Failure to read a dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The manifest is neither YAML nor JSON.
    #[error("{0}")]
    InvalidText(String),
    /// The object with this number lacks a field.
    #[error(
        "object {0} has no {1}: each has apiVersion, kind and metadata.name, such as `apiVersion: v1`"
    )]
    MissingField(usize, &'static str),
}

/// `apiVersion` and `kind` of an object.
#[derive(Clone)]
struct ObjectType {
    version: String,
    kind: String,
}

/// Objects of a dump, by their list path.
#[derive(Debug, Clone, Default)]
pub struct Dump {
    objects: BTreeMap<String, Vec<Value>>,
    object_count: usize,
}

impl Dump {
    /// Adds the objects and lists in a manifest, which is JSON or one or more YAML documents.
    ///
    /// # Errors
    /// Fails as [`read_objects`] does.
    pub fn add(&mut self, text: &str) -> Result<(), DumpError> {
        for object in read_objects(text)? {
            self.add_object(object);
        }
        Ok(())
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.object_count
    }

    /// Returns whether the dump has no objects.
    pub fn is_empty(&self) -> bool {
        self.object_count == 0
    }

    fn add_object(&mut self, mut object: Value) {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let root = if version.contains('/') { "/apis" } else { "/api" };
        let list_path = format!("{root}/{version}/{}", plural(&kind));
        match &*kind {
            "Pod" => defaults::set_pod_defaults(&mut object),
            kind if workloads::is_workload(kind) => defaults::set_metadata_defaults(&mut object),
            _ => {}
        }
        self.objects.entry(list_path).or_default().push(object);
        self.object_count += 1;
    }

    /// Adds missing pods of workloads (Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs), as their controllers
    /// would, and sets priorities from PriorityClasses. Returns the workloads whose pods were missing.
    pub fn complete(&mut self) -> Vec<Workload> {
        let workloads = workloads::add_missing(&mut self.objects);
        let classes = self.objects.get("/apis/scheduling.k8s.io/v1/priorityclasses").cloned();
        for pod in self.objects.get_mut("/api/v1/pods").into_iter().flatten() {
            defaults::set_priority(pod, classes.as_deref().unwrap_or_default());
        }
        workloads
    }

    /// Returns a client of an API server that serves the dump and rejects writes.
    pub fn connection(self) -> kube::Client {
        let objects = Arc::new(self.objects);
        let service = tower::service_fn(move |request: Request<Body>| {
            let objects = Arc::clone(&objects);
            async move { Ok::<_, Infallible>(serve(&objects, &request)) }
        });
        kube::Client::new(service, "default")
    }
}

/// Returns the objects in a manifest, which is JSON or one or more YAML documents. Lists are replaced by their items, and every
/// object has `apiVersion` and `kind`.
///
/// # Errors
/// Fails if the manifest is not valid, or an object has no `apiVersion`, `kind` or `metadata.name`.
pub fn read_objects(text: &str) -> Result<Vec<Value>, DumpError> {
    let documents: Vec<Value> = match serde_json::from_str(text) {
        Ok(document) => vec![document],
        Err(_) => serde_saphyr::from_multiple(text)
            .map_err(|error| DumpError::InvalidText(error.to_string()))?,
    };
    let mut objects = Vec::new();
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        flatten(document, None, &mut objects)?;
    }
    Ok(objects)
}

/// Appends an object, or the items of a list. An object without `apiVersion` or `kind` is of `default_type`.
fn flatten(
    mut object: Value,
    default_type: Option<ObjectType>,
    objects: &mut Vec<Value>,
) -> Result<(), DumpError> {
    let number = objects.len() + 1;
    let text = |path: &str| {
        let text = object.pointer(path).and_then(Value::as_str);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let is_named = text("/metadata/name").is_some();
    let ObjectType { version, kind } = match (text("/apiVersion"), text("/kind"), default_type) {
        (Some(version), Some(kind), _) => ObjectType { version, kind },
        (_, _, Some(default_type)) => default_type,
        (None, ..) => return Err(DumpError::MissingField(number, "apiVersion")),
        (_, None, _) => return Err(DumpError::MissingField(number, "kind")),
    };
    // Custom resources may have a field of that name, too.
    let item_kind = kind.strip_suffix("List");
    if let (Some(item_kind), Some(Value::Array(items))) = (item_kind, object.get_mut("items")) {
        // Items of a typed list such as `PodList` may omit their kind.
        let item_type = (!item_kind.is_empty())
            .then(|| ObjectType { version: version.clone(), kind: item_kind.to_owned() });
        let items = std::mem::take(items);
        return items.into_iter().try_for_each(|item| flatten(item, item_type.clone(), objects));
    }
    if !is_named {
        return Err(DumpError::MissingField(number, "metadata.name"));
    }
    object["apiVersion"] = version.into();
    object["kind"] = kind.into();
    objects.push(object);
    Ok(())
}

/// Returns the plural resource name for a kind.
fn plural(kind: &str) -> String {
    let lower = kind.to_ascii_lowercase();
    match lower.as_bytes() {
        [.., b's' | b'x'] => lower + "es",
        [stem @ .., b'y'] => format!("{}ies", String::from_utf8_lossy(stem)),
        _ => lower + "s",
    }
}

/// Chunks of a response body.
type Chunks = stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

/// Answers a list or watch request, and rejects writes.
fn serve(
    objects: &BTreeMap<String, Vec<Value>>,
    request: &Request<Body>,
) -> Response<StreamBody<Chunks>> {
    let query = request.uri().query().unwrap_or_default();
    let items = objects.get(request.uri().path()).map(Vec::as_slice).unwrap_or_default();
    if request.method() != http::Method::GET {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 405,
            "reason": "MethodNotAllowed", "message": "a dump is not written to"});
        return complete_response(405, status.to_string());
    }
    if !query.contains("watch=true") {
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
        return complete_response(200, list.to_string());
    }
    let event =
        |kind: &str, object: &Value| format!("{}\n", json!({"type": kind, "object": object}));
    let mut events = String::new();
    if query.contains("sendInitialEvents=true") {
        events.extend(items.iter().map(|item| event("ADDED", item)));
        let end = json!({"kind": "Bookmark", "apiVersion": "v1", "metadata":
            {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}});
        events.push_str(&event("BOOKMARK", &end));
    }
    open_response(events)
}

/// Returns a response with this body.
fn complete_response(code: u16, body: String) -> Response<StreamBody<Chunks>> {
    response(code, chunk(body).boxed())
}

/// Returns a response whose body starts with these events and never ends.
fn open_response(events: String) -> Response<StreamBody<Chunks>> {
    response(200, chunk(events).chain(stream::pending()).boxed())
}

/// Returns a body of one chunk.
fn chunk(text: String) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
    stream::once(std::future::ready(Ok(Frame::data(Bytes::from(text)))))
}

/// Returns a JSON response.
fn response(code: u16, body: Chunks) -> Response<StreamBody<Chunks>> {
    let mut response = Response::new(StreamBody::new(body));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
