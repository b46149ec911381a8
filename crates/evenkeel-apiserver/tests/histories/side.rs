//! One server in a history: its responses so far, and its watches.

use std::collections::BTreeMap;

use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::generate::{Body, END, History, STALE, Step, UID, VERSION};
use crate::parity::compare::mask;
use crate::parity::servers::{Answer, Connection, Oracle, Sent, Stream};

/// A server, as a history observes it.
pub(crate) struct Side {
    connection: Connection,
    collection: String,
    /// An empty object, for updates of an object that does not exist.
    skeleton: Value,
    /// All states of each object in the server's responses.
    objects: BTreeMap<String, Vec<Value>>,
    /// Token of the last page.
    token: String,
    /// Numbers of versions and UIDs, in the order of their first occurrence.
    seen: BTreeMap<String, usize>,
    watches: Vec<Stream>,
}

impl Side {
    /// Begins a history: watches a namespace of its own.
    pub(crate) async fn begin(oracle: &Oracle, history: &History, namespace: &str) -> Self {
        let mut connection = oracle.connect().await;
        connection.make_namespace(namespace).await;
        let collection = history.kind.collection(namespace);
        let mut watches = Vec::new();
        for query in &history.watches {
            let request = Request::builder()
                .uri(format!("{collection}?watch=true&timeoutSeconds=60&{query}"))
                .header("host", "localhost")
                .header("authorization", "Bearer admin")
                .body(Full::default())
                .expect("a request");
            watches.push(oracle.stream(request).await);
        }
        Self {
            connection,
            collection,
            skeleton: json!({"apiVersion": history.kind.api_version, "kind": history.kind.kind}),
            objects: BTreeMap::new(),
            token: String::new(),
            seen: BTreeMap::new(),
            watches,
        }
    }

    /// Takes a step, and returns the response without values that always differ.
    pub(crate) async fn take(&mut self, step: &Step) -> Answer {
        let sent = self.sent(step);
        let mut answer = self.connection.ask(&sent).await;
        self.note(step, &answer);
        self.number(&mut answer.body);
        answer
    }

    /// Returns the request of a step. Resource versions and tokens in it are those of this server.
    fn sent(&self, step: &Step) -> Sent {
        let mut path = self.collection.clone();
        for part in [step.name, step.subresource].into_iter().filter(|part| !part.is_empty()) {
            path = format!("{path}/{part}");
        }
        let mut query = step.query.clone();
        let states = self.objects.get(step.name).map_or(&[][..], Vec::as_slice);
        let last = states.last().cloned().unwrap_or_default();
        let body = match &step.body {
            Body::Whole(value) => {
                let mut value = value.clone();
                fill(&mut value, states);
                value
            }
            Body::Changed(change) => {
                let mut object = last;
                if object.is_null() {
                    object = self.skeleton.clone();
                    object["metadata"] = json!({"name": step.name});
                }
                let version = change["metadata"]["resourceVersion"].clone();
                crate::kinds::merge(&mut object, change);
                object["metadata"]["resourceVersion"] = version;
                if object["metadata"]["resourceVersion"].is_null() {
                    object["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
                }
                fill(&mut object, states);
                object
            }
            Body::NextPage => {
                query = format!("{query}&continue={}", self.token);
                Value::Null
            }
        };
        let separator = if query.is_empty() { "" } else { "?" };
        Sent {
            method: step.method.clone(),
            path: format!("{path}{separator}{query}"),
            media: step.media,
            body,
        }
    }

    /// Records the states of objects in a response.
    fn note(&mut self, step: &Step, answer: &Answer) {
        let body = &answer.body;
        if body["metadata"]["continue"].is_string() || matches!(step.verb, "page" | "next page") {
            let token = body["metadata"]["continue"].as_str();
            self.token = token.unwrap_or_default().to_owned();
        }
        let is_dry = step.query.contains("dryRun")
            || matches!(&step.body, Body::Whole(body) if body.get("dryRun").is_some());
        let name = body["metadata"]["name"].as_str();
        if let Some(name) =
            name.filter(|_| answer.code < 300 && body["kind"] != "Status" && !is_dry)
        {
            self.objects.entry(name.to_owned()).or_default().push(body.clone());
        }
    }

    /// Replaces versions and UIDs by their numbers.
    fn number(&mut self, body: &mut Value) {
        let is_list = body.get("items").is_some();
        if let Some(metadata) = body.get_mut("metadata").filter(|_| is_list) {
            // Other histories write at the same time.
            metadata["resourceVersion"] = "a list's".into();
            if metadata["continue"].as_str().is_some_and(|token| !token.is_empty()) {
                metadata["continue"] = "a token".into();
            }
        }
        self.number_all("", body);
        mask("", body);
    }

    fn number_all(&mut self, name: &str, value: &mut Value) {
        match value {
            Value::Array(items) => {
                if name == "managedFields" {
                    // Their order depends on the second of each write.
                    items.sort_by_key(|entry| {
                        ["manager", "operation", "subresource"]
                            .map(|field| entry[field].to_string())
                    });
                }
                items.iter_mut().for_each(|item| self.number_all(name, item));
            }
            Value::Object(fields) => {
                fields.iter_mut().for_each(|(name, value)| self.number_all(name, value));
            }
            Value::String(text) if matches!(name, "uid" | "resourceVersion") => {
                let next = self.seen.len();
                let number = *self.seen.entry(text.clone()).or_insert(next);
                // A string here would be masked.
                *value = json!([name, number]);
            }
            Value::String(text) if name == "message" => {
                let words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                let words = words.map(|word| {
                    let end = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len();
                    match self.seen.get(&word[..end]) {
                        Some(number) => format!("<{number}>{}", &word[end..]),
                        None => word.to_owned(),
                    }
                });
                *text = words.collect();
            }
            _ => {}
        }
    }

    /// Reads the events of each watch up to the object that ends the history.
    pub(crate) async fn events(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        for mut stream in std::mem::take(&mut self.watches) {
            let mut events = Vec::new();
            while let Some(event) = stream.next().await {
                let is_end = event["object"]["metadata"]["name"] == END || event["type"] == "ERROR";
                events.push(event);
                if is_end {
                    break;
                }
            }
            let mut events = Value::Array(events);
            self.number_all("", &mut events);
            mask("", &mut events);
            all.push(events);
        }
        all
    }
}

/// Replaces placeholders by a server's UIDs and versions.
fn fill(value: &mut Value, states: &[Value]) {
    let of = |state: Option<&Value>, field: &str| match state {
        Some(state) => state["metadata"][field].clone(),
        None => "none".into(),
    };
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, states)),
        Value::Object(fields) => fields.iter_mut().for_each(|(_, value)| fill(value, states)),
        Value::String(text) => match text.as_str() {
            UID => *value = of(states.last(), "uid"),
            VERSION => *value = of(states.last(), "resourceVersion"),
            STALE => *value = of(states.iter().rev().nth(1).or(states.last()), "resourceVersion"),
            _ => {}
        },
        _ => {}
    }
}
