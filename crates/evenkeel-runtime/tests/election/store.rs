//! The API server's objects: resource versions, preconditions, lists and watches.

use bytes::Bytes;
use futures::channel::mpsc;
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Objects by resource (`v1/configmaps`) and key (`namespace/name`), and the open watches.
#[derive(Default)]
pub(crate) struct Store {
    version: u64,
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    /// All events: version, resource, namespace, line of the watch.
    events: Vec<(u64, String, String, Bytes)>,
    watchers: Vec<Watcher>,
}

struct Watcher {
    process: usize,
    path: Path,
    sender: mpsc::UnboundedSender<Bytes>,
}

/// Response of the store.
pub(crate) enum Answer {
    /// Status code and body.
    Object(u16, Value),
    /// Lines of a watch.
    Watch(mpsc::UnboundedReceiver<Bytes>),
}

impl Answer {
    pub(crate) fn code(&self) -> u16 {
        if let Self::Object(code, _) = self { *code } else { 200 }
    }

    pub(crate) fn failure(code: u16, reason: &str) -> Self {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason});
        Self::Object(code, status)
    }
}

/// Parsed path of a request.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
}

impl Path {
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let root = match parts.next()? {
            "api" => parts.next()?.to_owned(),
            "apis" => format!("{}/{}", parts.next()?, parts.next()?),
            _ => return None,
        };
        let mut resource = parts.next()?;
        let mut namespace = "";
        if resource == "namespaces" {
            (namespace, resource) = (parts.next()?, parts.next()?);
        }
        let name = parts.next().map(str::to_owned);
        Some(Self { resource: format!("{root}/{resource}"), namespace: namespace.to_owned(), name })
    }

    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name.as_deref().unwrap_or_default())
    }
}

impl Store {
    /// Stores an object as another client would.
    pub(crate) fn put(&mut self, resource: &str, object: Value) -> Value {
        self.store(resource, object)
    }

    pub(crate) fn all(&self, resource: &str) -> impl Iterator<Item = &Value> {
        self.objects.get(resource).into_iter().flat_map(BTreeMap::values)
    }

    /// Ends the watches of a process.
    pub(crate) fn break_watches(&mut self, process: usize) {
        self.watchers.retain(|watcher| watcher.process != process);
    }

    /// Executes a request.
    pub(crate) fn answer(
        &mut self,
        process: usize,
        method: &Method,
        path: &Path,
        query: &str,
        body: Value,
    ) -> Answer {
        match (method, &path.name) {
            // Paged lists are enough here.
            (&Method::GET, None) if query.contains("sendInitialEvents") => {
                Answer::failure(422, "Invalid")
            }
            (&Method::GET, None) if query.contains("watch=") => self.watch(process, path, query),
            (&Method::GET, None) => self.list(path, query),
            (&Method::POST, None) => self.create(path, body),
            (method, Some(_)) => {
                let present = self.objects.get(&path.resource).and_then(|all| all.get(&path.key()));
                let Some(present) = present.cloned() else {
                    return Answer::failure(404, "NotFound");
                };
                match *method {
                    Method::GET => Answer::Object(200, present),
                    Method::PUT => self.update(path, body, &present),
                    Method::PATCH => {
                        let mut object = present;
                        json_patch::merge(&mut object, &body);
                        Answer::Object(200, self.store(&path.resource, object))
                    }
                    Method::DELETE => self.delete(path, &body, &present),
                    _ => Answer::failure(405, "MethodNotAllowed"),
                }
            }
            _ => Answer::failure(405, "MethodNotAllowed"),
        }
    }

    fn list(&self, path: &Path, query: &str) -> Answer {
        let selector = query.split('&').find_map(|pair| pair.strip_prefix("labelSelector="));
        let selector = selector.map(|text| text.replace("%2F", "/").replace("%3D", "="));
        let is_selected = |object: &Value| {
            selector.as_deref().and_then(|selector| selector.split_once('=')).is_none_or(
                |(label, value)| object["metadata"]["labels"][label].as_str() == Some(value),
            )
        };
        let items: Vec<&Value> = self
            .all(&path.resource)
            .filter(|object| {
                path.namespace.is_empty() || object["metadata"]["namespace"] == *path.namespace
            })
            .filter(|object| is_selected(object))
            .collect();
        let version = self.version.to_string();
        Answer::Object(
            200,
            json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}),
        )
    }

    fn watch(&mut self, process: usize, path: &Path, query: &str) -> Answer {
        let from =
            query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).unwrap_or("0");
        let from: u64 = from.parse().unwrap_or(0);
        let (sender, receiver) = mpsc::unbounded();
        let watcher = Watcher { process, path: path.clone(), sender };
        for (version, resource, namespace, line) in &self.events {
            if *version > from {
                watcher.send(resource, namespace, line);
            }
        }
        self.watchers.push(watcher);
        Answer::Watch(receiver)
    }

    fn create(&mut self, path: &Path, mut object: Value) -> Answer {
        object["metadata"]["namespace"] = path.namespace.clone().into();
        if self.objects.get(&path.resource).is_some_and(|all| all.contains_key(&key_of(&object))) {
            return Answer::failure(409, "AlreadyExists");
        }
        Answer::Object(201, self.store(&path.resource, object))
    }

    fn update(&mut self, path: &Path, object: Value, present: &Value) -> Answer {
        let version = &object["metadata"]["resourceVersion"];
        if !version.is_null() && *version != present["metadata"]["resourceVersion"] {
            return Answer::failure(409, "Conflict");
        }
        Answer::Object(200, self.store(&path.resource, object))
    }

    fn delete(&mut self, path: &Path, options: &Value, present: &Value) -> Answer {
        for field in ["uid", "resourceVersion"] {
            let expected = &options["preconditions"][field];
            if !expected.is_null() && *expected != present["metadata"][field] {
                return Answer::failure(409, "Conflict");
            }
        }
        let removed = self.objects.get_mut(&path.resource).and_then(|all| all.remove(&path.key()));
        if let Some(mut object) = removed {
            self.version += 1;
            object["metadata"]["resourceVersion"] = self.version.to_string().into();
            self.publish(&path.resource, "DELETED", &object);
        }
        Answer::Object(200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
    }

    fn store(&mut self, resource: &str, mut object: Value) -> Value {
        self.version += 1;
        let key = key_of(&object);
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = format!("uid-{}", self.version).into();
        }
        let old = self.objects.entry(resource.to_owned()).or_default().insert(key, object.clone());
        self.publish(resource, if old.is_some() { "MODIFIED" } else { "ADDED" }, &object);
        object
    }

    fn publish(&mut self, resource: &str, kind: &str, object: &Value) {
        // Nobody watches Leases.
        if resource.ends_with("leases") {
            return;
        }
        let line: Bytes = format!("{}\n", json!({"type": kind, "object": object})).into();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        for watcher in &self.watchers {
            watcher.send(resource, namespace, &line);
        }
        self.events.push((self.version, resource.to_owned(), namespace.to_owned(), line));
    }
}

impl Watcher {
    fn send(&self, resource: &str, namespace: &str, line: &Bytes) {
        let Path { resource: watched, namespace: within, .. } = &self.path;
        if watched == resource && (within.is_empty() || within == namespace) {
            // The client may have closed the watch.
            let _ = self.sender.unbounded_send(line.clone());
        }
    }
}

fn key_of(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}
