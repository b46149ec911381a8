//! API server with scripted responses, for tests of protocol errors and edge cases that a correct server never causes.
//! The feature `test-util` exposes it to other crates' tests.
#![allow(clippy::unwrap_used)]

use crate::{client::Client, clock::Clock};
use bytes::Bytes;
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

/// End of a response body.
#[derive(Debug, Clone, Copy)]
pub enum Tail {
    /// The body ends.
    End,
    /// The body stays open without further bytes.
    Hang,
    /// The connection is reset.
    Break,
    /// The body never ends: spaces follow.
    Endless,
}

/// A scripted response.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status code.
    pub code: u16,
    /// Headers besides `content-type: application/json`. A header of that name replaces it.
    pub headers: Vec<(&'static str, &'static str)>,
    /// Frames of the body.
    pub chunks: Vec<Vec<u8>>,
    /// Behavior after the last frame.
    pub tail: Tail,
}

impl Answer {
    /// Creates a response with this status code and a body in one frame.
    pub fn new(code: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { code, headers: Vec::new(), chunks: vec![body.into()], tail: Tail::End }
    }

    /// Adds a header.
    pub fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Sets the behavior after the last frame.
    pub fn tail(mut self, tail: Tail) -> Self {
        self.tail = tail;
        self
    }

    /// Creates a watch's response with one line for each event.
    pub fn events(events: &[serde_json::Value], tail: Tail) -> Self {
        let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
        Self::new(200, lines).tail(tail)
    }
}

/// Scripted responses, in order, and the received requests. After the last response, requests wait forever.
#[derive(Debug, Clone, Default)]
pub struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    /// Method and target of each received request.
    seen: Arc<Mutex<Vec<String>>>,
    headers: Arc<Mutex<Vec<http::HeaderMap>>>,
}

impl Script {
    /// Creates a server with these responses, in order.
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..Self::default() }
    }

    /// Returns a client of the server.
    pub fn client(&self, clock: &Clock) -> Client {
        Client::new(self.kube(), clock.clone())
    }

    /// Returns a `kube::Client` of the server.
    pub fn kube(&self) -> kube::Client {
        let script = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let script = script.clone();
            async move {
                script.seen.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
                script.headers.lock().unwrap().push(request.headers().clone());
                let next = script.answers.lock().unwrap().pop_front();
                match next {
                    Some(answer) => Ok::<_, Infallible>(respond(answer)),
                    None => std::future::pending().await,
                }
            }
        });
        kube::Client::new(service, "default")
    }

    /// Returns the method and target of each request so far.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns the headers of the request at this index.
    pub fn headers(&self, index: usize) -> http::HeaderMap {
        self.headers.lock().unwrap()[index].clone()
    }
}

type Chunks = stream::BoxStream<'static, Result<Frame<Bytes>, io::Error>>;

/// Converts a scripted response to an HTTP response that streams its chunks.
fn respond(answer: Answer) -> Response<StreamBody<Chunks>> {
    let chunks = stream::iter(answer.chunks.into_iter().map(|chunk| Ok(Frame::data(chunk.into()))));
    let chunks: Chunks = match answer.tail {
        Tail::End => chunks.boxed(),
        Tail::Hang => chunks.chain(stream::pending()).boxed(),
        Tail::Break => {
            let broken =
                stream::once(async { Err(io::Error::from(io::ErrorKind::ConnectionReset)) });
            chunks.chain(broken).boxed()
        }
        Tail::Endless => {
            let spaces = Bytes::from(vec![b' '; 64 << 10]);
            chunks.chain(stream::repeat_with(move || Ok(Frame::data(spaces.clone())))).boxed()
        }
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
