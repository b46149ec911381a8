//! A minimal API server for controllers: objects with versions, lists, watches that can be held back, and requests that can be
//! made to fail. Its responses are intentionally simple; it validates nothing.

use bytes::Bytes;
use evenkeel_runtime::{client::Client, clock::Clock};
use futures::{StreamExt, channel::mpsc, future::BoxFuture};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;

type Answer = Response<BoxBody<Bytes, Infallible>>;

#[derive(Clone, Default)]
pub(crate) struct Server {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    version: u64,
    /// By collection (`apps/v1/replicasets`), then `namespace/name`.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    /// All events since the start: version, collection, line of the watch.
    events: Vec<(u64, String, Bytes)>,
    watchers: Vec<Watcher>,
    held: Vec<&'static str>,
    requests: Vec<RecordedRequest>,
    faults: Vec<Fault>,
    latency: Duration,
    generated: u32,
}

struct Watcher {
    collection: String,
    next: usize,
    sender: mpsc::UnboundedSender<Bytes>,
}

/// A request that was made.
#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Value,
    pub(crate) at: Instant,
}

/// How matching requests fail.
pub(crate) struct Fault {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) times: usize,
    /// Status code. 0 for no response.
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) cause: &'static str,
}

impl Server {
    pub(crate) fn new() -> Self {
        let server = Self::default();
        server.state.lock().unwrap().version = 100;
        server
    }

    pub(crate) fn kube(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            server.clone().handle(request)
        });
        kube::Client::new(service, "default")
    }

    pub(crate) fn client(&self, clock: &Clock) -> Client {
        Client::new(self.kube(), clock.clone())
    }

    /// Stores an object as another client would.
    pub(crate) fn put(&self, collection: &str, object: Value) {
        let mut state = self.state.lock().unwrap();
        state.store(collection, object);
        state.flush();
    }

    pub(crate) fn get(&self, collection: &str, key: &str) -> Option<Value> {
        self.state.lock().unwrap().objects.get(collection)?.get(key).cloned()
    }

    pub(crate) fn all(&self, collection: &str) -> Vec<Value> {
        self.state
            .lock()
            .unwrap()
            .objects
            .get(collection)
            .map(|all| all.values().cloned().collect())
            .unwrap_or_default()
    }

    /// Removes an object, and sends its watch event.
    pub(crate) fn remove(&self, collection: &str, key: &str) {
        let mut state = self.state.lock().unwrap();
        state.take(collection, key);
        state.flush();
    }

    /// Holds back the events of watches of this collection from now on.
    pub(crate) fn hold_watches(&self, collection: &'static str) {
        self.state.lock().unwrap().held.push(collection);
    }

    /// Sends all events that were held back.
    pub(crate) fn release_watches(&self) {
        let mut state = self.state.lock().unwrap();
        state.held.clear();
        state.flush();
    }

    pub(crate) fn fail(&self, fault: Fault) {
        self.state.lock().unwrap().faults.push(fault);
    }

    pub(crate) fn latency(&self, latency: Duration) {
        self.state.lock().unwrap().latency = latency;
    }

    /// Returns the requests so far with this method whose path contains `path`.
    pub(crate) fn seen(&self, method: &Method, path: &str) -> Vec<RecordedRequest> {
        let state = self.state.lock().unwrap();
        state
            .requests
            .iter()
            .filter(|seen| seen.method == *method && seen.path.contains(path))
            .cloned()
            .collect()
    }

    fn handle(
        self,
        request: Request<kube::client::Body>,
    ) -> BoxFuture<'static, Result<Answer, std::io::Error>> {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
            let (path, query) =
                (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default().to_owned());
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let seen =
                RecordedRequest { method: parts.method, path, body, at: Clock::system().instant() };
            let (latency, fault) = {
                let mut state = self.state.lock().unwrap();
                state.requests.push(seen.clone());
                (state.latency, state.fault(&seen))
            };
            let answer = match fault {
                Some(Some(answer)) => Ok(answer),
                Some(None) => Err(std::io::Error::other("connection reset")),
                None => Ok(self.state.lock().unwrap().answer(seen, &query)),
            };
            // The request is executed even if its client no longer waits for the response.
            if !latency.is_zero() {
                tokio::time::sleep(latency).await;
            }
            answer
        })
    }
}

impl State {
    /// Returns the fault of a request. `Some(None)` stands for no response.
    fn fault(&mut self, seen: &RecordedRequest) -> Option<Option<Answer>> {
        let fault = self.faults.iter_mut().find(|fault| {
            fault.times > 0 && fault.method == seen.method && seen.path.contains(fault.path)
        })?;
        fault.times -= 1;
        if fault.code == 0 {
            return Some(None);
        }
        let causes =
            if fault.cause.is_empty() { json!([]) } else { json!([{"reason": fault.cause}]) };
        Some(Some(status(fault.code, fault.reason, &causes)))
    }

    fn answer(&mut self, seen: RecordedRequest, query: &str) -> Answer {
        let Some(path) = Path::parse(&seen.path) else {
            return status(404, "NotFound", &json!([]));
        };
        let watch = query.contains("watch=true");
        match (&seen.method, &path.name) {
            // Lists are enough here.
            (&Method::GET, None) if query.contains("sendInitialEvents") => {
                status(422, "Invalid", &json!([]))
            }
            (&Method::GET, None) if watch => self.watch(&path, query),
            (&Method::GET, None) => self.list(&path),
            (&Method::GET, Some(_)) => self.read(&path),
            (&Method::POST, None) => self.create(&path, seen.body),
            (&Method::PUT, Some(_)) => self.update(&path, seen.body),
            (&Method::PATCH, Some(_)) => self.patch(&path, &seen.body),
            (&Method::DELETE, Some(_)) => self.delete(&path, &seen.body),
            (&Method::DELETE, None) => self.delete_all(&path),
            _ => status(405, "MethodNotAllowed", &json!([])),
        }
    }

    fn list(&self, path: &Path) -> Answer {
        let items: Vec<&Value> = self
            .objects
            .get(&path.collection)
            .map(|all| all.values().collect())
            .unwrap_or_default();
        let version = self.version.to_string();
        answer(
            200,
            &json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}),
        )
    }

    fn watch(&mut self, path: &Path, query: &str) -> Answer {
        let from =
            query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).unwrap_or("0");
        let from: u64 = from.parse().unwrap_or(0);
        let (sender, receiver) = mpsc::unbounded();
        let next = self
            .events
            .iter()
            .position(|(version, ..)| *version > from)
            .unwrap_or(self.events.len());
        self.watchers.push(Watcher { collection: path.collection.clone(), next, sender });
        self.flush();
        let frames = receiver.map(|line| Ok(Frame::data(line)));
        let mut response = Response::new(BodyExt::boxed(StreamBody::new(frames)));
        response
            .headers_mut()
            .insert("content-type", http::HeaderValue::from_static("application/json"));
        response
    }

    fn read(&self, path: &Path) -> Answer {
        match self.objects.get(&path.collection).and_then(|all| all.get(&path.key())) {
            Some(object) => answer(200, object),
            None => status(404, "NotFound", &json!([])),
        }
    }

    fn create(&mut self, path: &Path, mut object: Value) -> Answer {
        self.generated += 1;
        let n = self.generated;
        let meta = &mut object["metadata"];
        meta["namespace"] = path.namespace.clone().into();
        if meta["name"].is_null() {
            meta["name"] =
                format!("{}{n:05}", meta["generateName"].as_str().unwrap_or("x-")).into();
        }
        meta["uid"] = format!("uid-{n}").into();
        let key = key_of(&object);
        if self.objects.get(&path.collection).is_some_and(|all| all.contains_key(&key)) {
            return status(409, "AlreadyExists", &json!([]));
        }
        let stored = self.store(&path.collection, object);
        self.flush();
        answer(201, &stored)
    }

    fn update(&mut self, path: &Path, object: Value) -> Answer {
        let Some(present) = self.objects.get(&path.collection).and_then(|all| all.get(&path.key()))
        else {
            return status(404, "NotFound", &json!([]));
        };
        let version = &object["metadata"]["resourceVersion"];
        if !version.is_null() && *version != present["metadata"]["resourceVersion"] {
            return status(409, "Conflict", &json!([]));
        }
        let stored = self.store(&path.collection, object);
        self.flush();
        answer(200, &stored)
    }

    fn patch(&mut self, path: &Path, change: &Value) -> Answer {
        let Some(present) = self.objects.get(&path.collection).and_then(|all| all.get(&path.key()))
        else {
            return status(404, "NotFound", &json!([]));
        };
        let mut object = present.clone();
        json_patch::merge(&mut object, change);
        let stored = self.store(&path.collection, object);
        self.flush();
        answer(200, &stored)
    }

    fn delete(&mut self, path: &Path, options: &Value) -> Answer {
        let present = self.objects.get(&path.collection).and_then(|all| all.get(&path.key()));
        let (wanted, uid) = (
            &options["preconditions"]["uid"],
            present.map_or(&Value::Null, |present| &present["metadata"]["uid"]),
        );
        if !wanted.is_null() && !uid.is_null() && wanted != uid {
            let text = format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid})"
            );
            return answer(
                409,
                &json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": text}),
            );
        }
        if self.take(&path.collection, &path.key()).is_none() {
            return status(404, "NotFound", &json!([]));
        }
        self.flush();
        answer(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
    }

    fn delete_all(&mut self, path: &Path) -> Answer {
        let all: Vec<String> = self
            .objects
            .get(&path.collection)
            .into_iter()
            .flatten()
            .map(|(key, _)| key.clone())
            .collect();
        for key in all {
            self.take(&path.collection, &key);
        }
        self.flush();
        answer(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
    }

    fn store(&mut self, collection: &str, mut object: Value) -> Value {
        self.version += 1;
        let key = key_of(&object);
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = format!("uid-{key}").into();
        }
        let known =
            self.objects.entry(collection.to_owned()).or_default().insert(key, object.clone());
        self.tell(collection, if known.is_some() { "MODIFIED" } else { "ADDED" }, &object);
        object
    }

    fn take(&mut self, collection: &str, key: &str) -> Option<Value> {
        let mut object = self.objects.get_mut(collection)?.remove(key)?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.tell(collection, "DELETED", &object);
        Some(object)
    }

    fn tell(&mut self, collection: &str, what: &str, object: &Value) {
        let line = format!("{}\n", json!({"type": what, "object": object}));
        self.events.push((self.version, collection.to_owned(), line.into()));
    }

    fn flush(&mut self) {
        for watcher in &mut self.watchers {
            if self.held.contains(&&*watcher.collection) {
                continue;
            }
            for (_, collection, line) in &self.events[watcher.next..] {
                if *collection == watcher.collection {
                    // A closed watch receives nothing.
                    let _ = watcher.sender.unbounded_send(line.clone());
                }
            }
            watcher.next = self.events.len();
        }
    }
}

struct Path {
    collection: String,
    namespace: String,
    name: Option<String>,
}

impl Path {
    fn parse(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let root = match parts.next()? {
            "api" => parts.next()?.to_owned(),
            "apis" => format!("{}/{}", parts.next()?, parts.next()?),
            _ => return None,
        };
        let mut resource = parts.next()?;
        let mut namespace = "";
        if resource == "namespaces"
            && let (Some(name), Some(inner)) = (parts.next(), parts.next())
        {
            (namespace, resource) = (name, inner);
        }
        let name = parts.next().map(str::to_owned);
        Some(Self {
            collection: format!("{root}/{resource}"),
            namespace: namespace.to_owned(),
            name,
        })
    }

    fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name.as_deref().unwrap_or_default())
    }
}

fn key_of(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}

fn answer(code: u16, body: &Value) -> Answer {
    let body = http_body_util::Full::new(Bytes::from(body.to_string()));
    let mut response = Response::new(BodyExt::boxed(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
        .headers_mut()
        .insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

fn status(code: u16, reason: &str, causes: &Value) -> Answer {
    let message = format!("scripted {reason}");
    answer(
        code,
        &json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": message, "details": {"causes": causes},
        }),
    )
}
