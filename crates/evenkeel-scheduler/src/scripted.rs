//! Scripted API server for tests. Its connections can break.

use bytes::Bytes;
use evenkeel_runtime::{client::Client, clock::Clock};
use futures::{StreamExt as _, channel::mpsc};
use http::{Method, Request, Response, Uri};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    io,
    sync::{Arc, Mutex},
};

/// Scripted response to one request.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// An object or Status with this HTTP status code.
    Body(u16, Value),
    /// A broken connection instead of a response.
    Lost,
    /// No response at all.
    Never,
    /// A watch of this path.
    Watch(String),
}

impl Answer {
    pub(crate) fn object(object: Value) -> Self {
        Self::Body(200, object)
    }

    /// Returns a Status with this HTTP code.
    pub(crate) fn status(code: u16) -> Self {
        Self::Body(code, json!({ "kind": "Status", "code": code }))
    }
}

impl From<(u16, Value)> for Answer {
    fn from((code, body): (u16, Value)) -> Self {
        Self::Body(code, body)
    }
}

/// Function that returns the response to a request, given as `METHOD path` and its body.
type Rule = dyn Fn(&str, &Value) -> Option<Answer> + Send + Sync;

/// Scripted responses, in order or by a rule, and the recorded requests. An unexpected request fails the test. Lists
/// and watches have their own responses.
#[derive(Clone, Default)]
pub(crate) struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    rule: Option<Arc<Rule>>,
    watches: Arc<Mutex<BTreeMap<String, mpsc::UnboundedSender<Bytes>>>>,
    lists: Arc<BTreeMap<&'static str, Value>>,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Script {
    pub(crate) fn new(answers: impl IntoIterator<Item = impl Into<Answer>>) -> Self {
        let answers = answers.into_iter().map(Into::into).collect();
        Self { answers: Arc::new(Mutex::new(answers)), ..Self::default() }
    }

    /// Adds the responses to list requests of these paths.
    pub(crate) fn with_lists<const N: usize>(mut self, lists: [(&'static str, Value); N]) -> Self {
        self.lists = Arc::new(lists.into());
        self
    }

    /// Adds a rule that takes precedence over the scripted responses.
    pub(crate) fn with_rule(
        mut self,
        rule: impl Fn(&str, &Value) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        self.rule = Some(Arc::new(rule));
        self
    }

    /// Sends a watch event to the watchers of a path.
    pub(crate) fn send_watch_event(&self, path: &str, event_type: &str, object: &Value) {
        let line = format!("{}\n", json!({ "type": event_type, "object": object }));
        let watches = self.watches.lock().unwrap();
        let watch = watches.get(path).unwrap_or_else(|| panic!("nobody watches {path}"));
        watch.unbounded_send(line.into()).unwrap();
    }

    /// Returns a client of this server.
    pub(crate) fn client(&self, clock: &Clock) -> Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let script = script.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let answer = script.next_answer(&head.method, &head.uri, body);
                script.respond(answer).await
            }
        });
        Client::new(kube::Client::new(service, "default"), clock.clone())
    }

    /// Takes the recorded requests, as `METHOD path` with the body.
    pub(crate) fn take_requests(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    /// Takes the recorded requests as `METHOD path`.
    pub(crate) fn take_calls(&self) -> Vec<String> {
        self.take_requests().into_iter().map(|(request, _)| request).collect()
    }

    /// Records a request, and returns the response to it.
    fn next_answer(&self, method: &Method, uri: &Uri, body: Value) -> Answer {
        let path = uri.path();
        let query = uri.query().unwrap_or_default();
        if let Some(list) = self.lists.get(path) {
            return match query {
                // The client then falls back to a list request.
                query if query.contains("sendInitialEvents") => Answer::status(400),
                query if query.contains("watch=") => Answer::Watch(path.to_owned()),
                _ => Answer::object(list.clone()),
            };
        }
        let request = format!("{method} {path}");
        let answer_by_rule = self.rule.as_ref().and_then(|rule| rule(&request, &body));
        self.requests.lock().unwrap().push((request.clone(), body));
        if let Some(answer) = answer_by_rule {
            return answer;
        }
        let answer = self.answers.lock().unwrap().pop_front();
        answer.unwrap_or_else(|| panic!("no answer to {request}"))
    }

    /// Builds the HTTP response.
    async fn respond(
        &self,
        answer: Answer,
    ) -> io::Result<Response<UnsyncBoxBody<Bytes, Infallible>>> {
        let response = Response::builder().header("content-type", "application/json");
        let (code, body) = match answer {
            Answer::Body(code, body) => (code, Full::from(body.to_string()).boxed_unsync()),
            Answer::Lost => return Err(io::ErrorKind::NotConnected.into()),
            Answer::Never => std::future::pending().await,
            Answer::Watch(path) => {
                let (sender, lines) = mpsc::unbounded();
                self.watches.lock().unwrap().insert(path, sender);
                let lines = lines.map(|line| Ok::<_, Infallible>(Frame::data(line)));
                (200, StreamBody::new(lines).boxed_unsync())
            }
        };
        Ok(response.status(code).body(body).unwrap())
    }
}
