//! An API server that returns scripted responses, for tests.

use bytes::Bytes;
use evenkeel_runtime::{client::Client, clock::Clock};
use futures::{StreamExt as _, stream};
use http::{Request, Response, header};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::client::Body;
use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    sync::{Arc, Mutex},
};
use tower::service_fn;

/// What comes after a body's bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tail {
    End,
    Hang,
}

/// A scripted response.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) chunks: Vec<Vec<u8>>,
    pub(crate) tail: Tail,
}

impl Answer {
    pub(crate) fn new(code: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { code, headers: Vec::new(), chunks: vec![body.into()], tail: Tail::End }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) fn tail(mut self, tail: Tail) -> Self {
        self.tail = tail;
        self
    }

    /// A watch's events, one line each.
    pub(crate) fn events(events: &[serde_json::Value], tail: Tail) -> Self {
        let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
        Self::new(200, lines).tail(tail)
    }
}

/// Answers in order, and the requests seen; once they are used up, requests wait for ever.
#[derive(Clone, Default)]
pub(crate) struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Script {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..Self::default() }
    }

    pub(crate) fn client(&self, clock: &Clock) -> Client {
        Client::new(self.kube(), clock.clone())
    }

    /// A `kube::Client` on the script.
    pub(crate) fn kube(&self) -> kube::Client {
        let script = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let script = script.clone();
            async move {
                script.seen.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
                let next = script.answers.lock().unwrap().pop_front();
                match next {
                    Some(answer) => Ok::<_, Infallible>(respond(answer)),
                    None => std::future::pending().await,
                }
            }
        });
        kube::Client::new(service, "default")
    }

    /// Method and target of each request so far.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

type Chunks = stream::BoxStream<'static, Result<Frame<Bytes>, io::Error>>;

fn respond(answer: Answer) -> Response<StreamBody<Chunks>> {
    let chunks = stream::iter(answer.chunks.into_iter().map(|chunk| Ok(Frame::data(chunk.into()))));
    let chunks: Chunks = match answer.tail {
        Tail::End => chunks.boxed(),
        Tail::Hang => chunks.chain(stream::pending()).boxed(),
    };
    let mut response =
        Response::builder().status(answer.code).header(header::CONTENT_TYPE, "application/json");
    for (name, value) in answer.headers {
        if name == "content-type" {
            response.headers_mut().unwrap().remove(name);
        }
        response = response.header(name, value);
    }
    response.body(StreamBody::new(chunks)).unwrap()
}
