//! A cluster as somebody wrote it down (`kubectl get nodes,pods,… -o yaml`): read, and answered from as a server that never
//! changes would.

mod stored;
#[cfg(test)]
mod tests;
mod workloads;

pub use workloads::Workload;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, Response, header};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::client::Body;
use serde_json::{Value, json};
use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

/// Why a text is no dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// It is neither YAML nor JSON.
    #[error("{0}")]
    Text(String),
    /// Something in it is no object.
    #[error("object {0} has no {1}")]
    Object(usize, &'static str),
}

/// Objects by the path under which a server lists them.
#[derive(Debug, Clone, Default)]
pub struct Dump {
    objects: BTreeMap<String, Vec<Value>>,
    n_objects: usize,
}

impl Dump {
    /// Adds what a text has: objects and lists of them, JSON or YAML, in one document or several.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn add(&mut self, text: &str) -> Result<(), DumpError> {
        let documents: Vec<Value> = match serde_json::from_str(text) {
            Ok(one) => vec![one],
            Err(_) => serde_saphyr::from_multiple(text)
                .map_err(|error| DumpError::Text(error.to_string()))?,
        };
        documents
            .into_iter()
            .filter(|document| !document.is_null())
            .try_for_each(|one| self.take(one, None))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.n_objects
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.n_objects == 0
    }

    fn take(&mut self, mut object: Value, of: Option<(String, String)>) -> Result<(), DumpError> {
        let n = self.n_objects + 1;
        let text = |field: &str| object.get(field).and_then(Value::as_str).map(str::to_owned);
        let (version, kind) = match (text("apiVersion"), text("kind"), of) {
            (Some(version), Some(kind), _) | (_, _, Some((version, kind))) => (version, kind),
            (None, ..) => return Err(DumpError::Object(n, "apiVersion")),
            (_, None, _) => return Err(DumpError::Object(n, "kind")),
        };
        if let Some(Value::Array(items)) = object.get_mut("items").map(Value::take) {
            // `List`, or `PodList`, whose items need not say what they are.
            let of = kind.strip_suffix("List").filter(|kind| !kind.is_empty());
            let of = of.map(|kind| (version.clone(), kind.to_owned()));
            return items.into_iter().try_for_each(|item| self.take(item, of.clone()));
        }
        if object.pointer("/metadata/name").is_none() {
            return Err(DumpError::Object(n, "metadata.name"));
        }
        let root = if version.contains('/') { "/apis" } else { "/api" };
        let place = format!("{root}/{version}/{}", plural(&kind));
        object["apiVersion"] = version.into();
        object["kind"] = (*kind).into();
        match &*kind {
            "Pod" => stored::pod(&mut object),
            kind if workloads::is_workload(kind) => stored::metadata(&mut object),
            _ => {}
        }
        self.objects.entry(place).or_default().push(object);
        self.n_objects = n;
        Ok(())
    }

    /// Adds the pods that workloads (Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs) still lack, as their controllers
    /// would make them, and gives pods the priorities of their classes. What of the workloads' pods is there is not made again.
    pub fn complete(&mut self) -> Vec<Workload> {
        let workloads = workloads::add_lacking(&mut self.objects);
        let classes = self.objects.get("/apis/scheduling.k8s.io/v1/priorityclasses").cloned();
        for pod in self.objects.get_mut("/api/v1/pods").into_iter().flatten() {
            stored::priority(pod, classes.as_deref().unwrap_or_default());
        }
        workloads
    }

    /// A connection to a server that has these objects, and refuses whatever is no list of them.
    pub fn connection(self) -> kube::Client {
        let objects = Arc::new(self.objects);
        let service = tower::service_fn(move |request: Request<Body>| {
            let objects = Arc::clone(&objects);
            async move { Ok::<_, Infallible>(answer(&objects, &request)) }
        });
        kube::Client::new(service, "default")
    }
}

/// The resource of a kind, as English has it; upstream's kinds all follow.
fn plural(kind: &str) -> String {
    let lower = kind.to_ascii_lowercase();
    match lower.as_bytes() {
        [.., b's' | b'x'] => lower + "es",
        [stem @ .., b'y'] => format!("{}ies", String::from_utf8_lossy(stem)),
        _ => lower + "s",
    }
}

type Chunks = stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

fn answer(
    objects: &BTreeMap<String, Vec<Value>>,
    request: &Request<Body>,
) -> Response<StreamBody<Chunks>> {
    let query = request.uri().query().unwrap_or_default();
    let items = objects.get(request.uri().path()).map(Vec::as_slice).unwrap_or_default();
    if request.method() != http::Method::GET {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 405,
            "reason": "MethodNotAllowed", "message": "a dump is not written to"});
        return response(405, status.to_string(), false);
    }
    if !query.contains("watch=true") {
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
        return response(200, list.to_string(), false);
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
    response(200, events, true)
}

/// A body that ends, or a watch in which nothing happens any more.
fn response(code: u16, body: String, open: bool) -> Response<StreamBody<Chunks>> {
    let first = stream::once(std::future::ready(Ok(Frame::data(Bytes::from(body)))));
    let body: Chunks = if open { first.chain(stream::pending()).boxed() } else { first.boxed() };
    let mut response = Response::new(StreamBody::new(body));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
