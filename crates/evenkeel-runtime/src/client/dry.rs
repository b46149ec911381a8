//! A connection that reads and does not write: what would be written is noted, and answered as if it had been.
//!
//! Nothing of a write leaves the program. Objects that would have come of one are not there afterwards, so that what
//! stands on them is not seen; a write to an object that was written before is marked.

use super::wire::JSON;
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

/// Questions that are asked by POST and change nothing.
const QUESTIONS: [&str; 5] = [
    "tokenreviews",
    "subjectaccessreviews",
    "localsubjectaccessreviews",
    "selfsubjectaccessreviews",
    "selfsubjectrulesreviews",
];

/// A write that was not made.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unwritten {
    /// Who would have written: the end of the user agent.
    pub by: String,
    /// `create`, `update`, `patch`, `delete`, `delete all`.
    pub verb: &'static str,
    /// Sub-resource, empty for the object itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// `deployments.apps`, `pods`.
    pub resource: String,
    /// Namespace, empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name; with `xxxxx` where the server makes it up, empty for `delete all`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What would change, in short.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub changes: String,
    /// How often just this was asked for.
    pub times: u32,
    /// An earlier write to the same object was not made either, so that this one may come out otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub follows: bool,
}

impl std::fmt::Display for Unwritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { verb, subresource, resource, namespace, name, changes, times, follows, .. } =
            self;
        let of = if subresource.is_empty() { String::new() } else { format!("{subresource} of ") };
        write!(f, "{verb} {of}{resource} ")?;
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

/// What was not written; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    writes: Vec<Unwritten>,
    /// Where the write of this text is.
    known: HashMap<String, usize>,
    /// Events that would have been told.
    events: usize,
    requests: u64,
}

impl Ledger {
    /// The writes, in the order in which they were first asked for; events are only counted.
    pub fn writes(&self) -> Vec<Unwritten> {
        self.lock().writes.clone()
    }

    /// How many events would have been told.
    pub fn events(&self) -> usize {
        self.lock().events
    }

    /// How many requests there were, reads included: it stands still when nobody asks for anything.
    pub fn requests(&self) -> u64 {
        self.lock().requests
    }

    fn note(&self, mut write: Unwritten, body: &[u8]) {
        let mut noted = self.lock();
        if write.resource.split('.').next() == Some("events") {
            noted.events += 1;
            return;
        }
        let text = format!("{}{write}{}", write.by, String::from_utf8_lossy(body));
        if let Some(at) = noted.known.get(&text).copied() {
            noted.writes[at].times += 1;
            return;
        }
        let same = |other: &Unwritten| {
            (&other.resource, &other.namespace, &other.name)
                == (&write.resource, &write.namespace, &write.name)
        };
        let made_up = write.name.ends_with("xxxxx") && write.verb == "create";
        write.follows = !write.name.is_empty() && !made_up && noted.writes.iter().any(same);
        let at = noted.writes.len();
        noted.known.insert(text, at);
        noted.writes.push(write);
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection over `kube` that only reads, and what it was asked to write.
pub fn dry_run(kube: kube::Client) -> (kube::Client, Ledger) {
    let ledger = Ledger::default();
    let dry = Dry { inner: kube, ledger: ledger.clone() };
    (kube::Client::new(dry, "default"), ledger)
}

#[derive(Clone)]
struct Dry {
    inner: kube::Client,
    ledger: Ledger,
}

impl Service<Request<Body>> for Dry {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            this.ledger.lock().requests += 1;
            let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
            if reads || is_question(request.uri().path()) {
                return Ok(this.inner.send(request).await?);
            }
            this.note(request).await
        })
    }
}

fn is_question(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|last| QUESTIONS.contains(&last))
}

impl Dry {
    async fn note(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let body: Bytes = body.collect().await.map_err(BoxError::from)?.to_bytes();
        let path = parts.uri.path();
        let Some(place) = Place::of(path) else {
            return Ok(refused(&format!("{} {path} is not done in a dry run", parts.method)));
        };
        let agent = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let by = agent.and_then(|agent| agent.rsplit('/').next()).unwrap_or_default().to_owned();
        let object: Value = evenkeel_api::json::from_slice(&body).unwrap_or_default();
        let shown = |object: &Value| {
            let mut shown = object.clone();
            if place.resource() == "secrets" {
                hide_secrets(&mut shown);
            }
            shown
        };
        let write = |verb, name: &str, changes: String| Unwritten {
            by,
            verb,
            subresource: place.subresource.to_owned(),
            resource: place.resource(),
            namespace: place.namespace.to_owned(),
            name: name.to_owned(),
            changes,
            times: 1,
            follows: false,
        };
        let (write, answer) = match parts.method {
            Method::POST => {
                let (name, made) = created(object, place.name);
                (write("create", &name, String::new()), json_answer(StatusCode::CREATED, &made))
            }
            Method::PUT => {
                let before = self.live(&place.object_path()).await?;
                let changes = differences(&shown(&before), &shown(&object), place.subresource);
                let mut after = object;
                forget_version(&mut after);
                (write("update", place.name, changes), json_answer(StatusCode::OK, &after))
            }
            Method::PATCH => {
                let mut live = self.live(&place.object_path()).await?;
                if live.is_null() {
                    return Ok(missing(path));
                }
                forget_version(&mut live);
                let changes = match object.get(place.subresource) {
                    Some(part) => changes(part),
                    None => changes(&shown(&object)),
                };
                (write("patch", place.name, changes), json_answer(StatusCode::OK, &live))
            }
            _ if place.name.is_empty() => {
                let list =
                    self.live(parts.uri.path_and_query().map_or(path, |all| all.as_str())).await?;
                let n = list["items"].as_array().map_or(0, Vec::len);
                if n == 0 {
                    return Ok(json_answer(StatusCode::OK, &success()));
                }
                let write = write("delete all", "", format!("{n} objects"));
                (write, json_answer(StatusCode::OK, &success()))
            }
            _ => {
                if self.live(&place.object_path()).await?.is_null() {
                    return Ok(missing(path));
                }
                (
                    write("delete", place.name, String::new()),
                    json_answer(StatusCode::OK, &success()),
                )
            }
        };
        self.ledger.note(write, &body);
        Ok(answer)
    }

    /// The object as it is; `Null` where there is none.
    async fn live(&self, path: &str) -> Result<Value, BoxError> {
        let request = Request::get(path).header(header::ACCEPT, JSON).body(Body::empty())?;
        let answer = self.inner.send(request).await?;
        if !answer.status().is_success() {
            return Ok(Value::Null);
        }
        let body = answer.into_body().collect().await.map_err(BoxError::from)?.to_bytes();
        Ok(evenkeel_api::json::from_slice(&body).unwrap_or_default())
    }
}

/// What is made of a body that is posted, and its name.
fn created(mut object: Value, name: &str) -> (String, Value) {
    if !object.is_object() {
        object = json!({});
    }
    let metadata = &mut object["metadata"];
    let given = metadata["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
    let prefix = metadata["generateName"].as_str().map(|prefix| format!("{prefix}xxxxx"));
    let name = given.or(prefix).unwrap_or_else(|| name.to_owned());
    metadata["name"] = json!(name);
    forget_version(&mut object);
    (name, object)
}

/// Nobody is to wait until a cache shows a version that will never be.
fn forget_version(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200})
}

fn missing(path: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
        "reason": "NotFound", "message": format!("{path} is not there"),
    });
    json_answer(StatusCode::NOT_FOUND, &status)
}

fn refused(message: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403,
        "reason": "Forbidden", "message": message,
    });
    json_answer(StatusCode::FORBIDDEN, &status)
}

fn json_answer(code: StatusCode, value: &Value) -> Response<Body> {
    let mut answer = Response::new(Body::from(value.to_string().into_bytes()));
    *answer.status_mut() = code;
    let json = http::HeaderValue::from_static(JSON);
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    root: &'a str,
    group: &'a str,
    version: &'a str,
    namespace: &'a str,
    plural: &'a str,
    name: &'a str,
    subresource: &'a str,
}

impl<'a> Place<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let root = parts.next()?;
        let group = match root {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let version = parts.next()?;
        let rest: Vec<&str> = parts.collect();
        // `namespaces/x/pods` is of pods; `namespaces/x` and its sub-resources are of namespaces.
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

    /// Path of the object itself.
    fn object_path(&self) -> String {
        let Self { root, group, version, namespace, plural, name, .. } = self;
        let group = if group.is_empty() { String::new() } else { format!("{group}/") };
        let place =
            if namespace.is_empty() { String::new() } else { format!("namespaces/{namespace}/") };
        format!("/{root}/{group}{version}/{place}{plural}/{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        let table = [
            ("/api/v1/namespaces/ns/pods/p/status", ("pods", "ns", "p", "status")),
            ("/api/v1/namespaces/ns/pods", ("pods", "ns", "", "")),
            ("/api/v1/namespaces/ns/finalize", ("namespaces", "", "ns", "finalize")),
            ("/api/v1/namespaces/ns", ("namespaces", "", "ns", "")),
            ("/api/v1/nodes/n", ("nodes", "", "n", "")),
            ("/apis/apps/v1/namespaces/ns/deployments/web", ("deployments.apps", "ns", "web", "")),
        ];
        for (path, wanted) in table {
            let place = Place::of(path).unwrap();
            let got = (&*place.resource(), place.namespace, place.name, place.subresource);
            assert_eq!(got, wanted, "{path}");
            assert!(path.starts_with(&place.object_path()) || place.name.is_empty(), "{path}");
        }
        assert_eq!(Place::of("/metrics"), None);
        assert!(is_question("/apis/authentication.k8s.io/v1/tokenreviews"));
        assert!(!is_question("/api/v1/namespaces/ns/serviceaccounts/a/token"));
    }

    #[test]
    fn what_is_asked_again_is_counted_and_what_follows_is_marked() {
        let ledger = Ledger::default();
        let write = |verb, changes: &str| Unwritten {
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
        ledger.note(write("patch", "a 1"), b"1");
        ledger.note(write("patch", "a 1"), b"1");
        ledger.note(write("delete", ""), b"");
        ledger.note(Unwritten { resource: "events".into(), ..write("create", "") }, b"");
        let lines: Vec<String> = ledger.writes().iter().map(ToString::to_string).collect();
        let wanted = [
            "patch pods ns/p (2 times): a 1",
            "delete pods ns/p [after a write above that was not made]",
        ];
        assert_eq!((&lines[..], ledger.events()), (&wanted.map(String::from)[..], 1));
    }

    #[test]
    fn made_up_names_are_shown_as_such() {
        let (name, made) = created(json!({"metadata": {"generateName": "web-"}}), "");
        assert_eq!((&*name, &made["metadata"]["name"]), ("web-xxxxx", &json!("web-xxxxx")));
    }
}
