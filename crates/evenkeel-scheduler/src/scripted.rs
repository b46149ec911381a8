//! An API server that answers from a script, to which connections break.

use evenkeel_runtime::{client::Client, clock::Clock};
use http::{Request, Response};
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
    Object(Value),
    /// A Status with this code.
    Refused(u16),
    /// The connection breaks.
    Lost,
    /// None for ever.
    Never,
}

/// Answers in order, and the requests seen; once they are used up, requests wait for ever. Lists are answered by themselves, and
/// nothing is ever said of changes.
#[derive(Clone)]
pub(crate) struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    lists: Arc<BTreeMap<&'static str, Value>>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Script {
    pub(crate) fn new(answers: Vec<Answer>) -> Self {
        let answers = Arc::new(Mutex::new(answers.into()));
        Self { answers, lists: Arc::default(), seen: Arc::default() }
    }

    /// The same with the lists at these paths.
    pub(crate) fn with_lists<const N: usize>(mut self, lists: [(&'static str, Value); N]) -> Self {
        self.lists = Arc::new(lists.into());
        self
    }

    pub(crate) fn client(&self, clock: &Clock) -> Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let next = script.next(&request);
            async move { respond(next).await }
        });
        Client::new(kube::Client::new(service, "default"), clock.clone())
    }

    /// Method and path of each request so far.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    fn next(&self, request: &Request<Body>) -> Answer {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        if let Some(list) = self.lists.get(path) {
            return match query {
                // Then it is asked for the list itself.
                query if query.contains("sendInitialEvents") => Answer::Refused(400),
                query if query.contains("watch=") => Answer::Never,
                _ => Answer::Object(list.clone()),
            };
        }
        self.seen.lock().unwrap().push(format!("{} {path}", request.method()));
        self.answers.lock().unwrap().pop_front().unwrap_or(Answer::Never)
    }
}

async fn respond(answer: Answer) -> io::Result<Response<Body>> {
    let (code, body) = match answer {
        Answer::Object(object) => (200, object),
        Answer::Refused(code) => (code, json!({ "kind": "Status", "code": code })),
        Answer::Lost => return Err(io::ErrorKind::NotConnected.into()),
        Answer::Never => std::future::pending().await,
    };
    let response = Response::builder().status(code).header("content-type", "application/json");
    Ok(response.body(Body::from(body.to_string().into_bytes())).unwrap())
}
