//! An API server that answers from a script, to which connections break.

use evenkeel_runtime::{client::Client, clock::Clock};
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Mutex},
};

/// One answer.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// An object, or a Status, with this code.
    Body(u16, Value),
    /// The connection breaks.
    Lost,
    /// None for ever.
    Never,
}

impl Answer {
    pub(crate) fn object(object: Value) -> Self {
        Self::Body(200, object)
    }

    /// A Status with this code.
    pub(crate) fn refused(code: u16) -> Self {
        Self::Body(code, json!({ "kind": "Status", "code": code }))
    }
}

impl From<(u16, Value)> for Answer {
    fn from((code, body): (u16, Value)) -> Self {
        Self::Body(code, body)
    }
}

/// Answers in order, and the requests seen; one that there is no answer to is a fault of the test. Lists are answered by
/// themselves, and nothing is ever said of changes.
#[derive(Clone, Default)]
pub(crate) struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    lists: Arc<BTreeMap<&'static str, Value>>,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Script {
    pub(crate) fn new(answers: impl IntoIterator<Item = impl Into<Answer>>) -> Self {
        let answers = answers.into_iter().map(Into::into).collect();
        Self { answers: Arc::new(Mutex::new(answers)), ..Self::default() }
    }

    /// The same with the lists at these paths.
    pub(crate) fn with_lists<const N: usize>(mut self, lists: [(&'static str, Value); N]) -> Self {
        self.lists = Arc::new(lists.into());
        self
    }

    pub(crate) fn client(&self, clock: &Clock) -> Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let script = script.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let next = script.next(&head.method, &head.uri, body);
                respond(next).await
            }
        });
        Client::new(kube::Client::new(service, "default"), clock.clone())
    }

    /// Requests as `METHOD path`, each with its body, since the last look.
    pub(crate) fn asked(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// The same without bodies.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.asked().into_iter().map(|(what, _)| what).collect()
    }

    fn next(&self, method: &Method, uri: &Uri, body: Value) -> Answer {
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        if let Some(list) = self.lists.get(path) {
            return match query {
                // Then it is asked for the list itself.
                query if query.contains("sendInitialEvents") => Answer::refused(400),
                query if query.contains("watch=") => Answer::Never,
                _ => Answer::object(list.clone()),
            };
        }
        let what = format!("{method} {path}");
        self.asked.lock().unwrap().push((what.clone(), body));
        let answer = self.answers.lock().unwrap().pop_front();
        answer.unwrap_or_else(|| panic!("no answer to {what}"))
    }
}

async fn respond(answer: Answer) -> io::Result<Response<Body>> {
    let (code, body) = match answer {
        Answer::Body(code, body) => (code, body),
        Answer::Lost => return Err(io::ErrorKind::NotConnected.into()),
        Answer::Never => std::future::pending().await,
    };
    let response = Response::builder().status(code).header("content-type", "application/json");
    Ok(response.body(Body::from(body.to_string().into_bytes())).unwrap())
}
