//! The connection line between one controller manager and the server: it records the writes, and can be cut.

use bytes::Bytes;
use evenkeel_apiserver::{Body, Service};
use evenkeel_runtime::{
    clock::Clock,
    tasks::{Tasks, watch},
};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};
use tokio::{net::TcpListener, time::Instant};

/// Writes over all lines, in the order in which they reached the server.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Vec<Written>>>);

/// A write, by the number of its line.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) line: usize,
    pub(crate) at: Instant,
    pub(crate) what: String,
}

impl Record {
    /// Returns the writes without those of leases and events.
    pub(crate) fn work(&self) -> Vec<Written> {
        let aside = |what: &str| what.contains("/leases") || what.contains("/events");
        self.all().into_iter().filter(|written| !aside(&written.what)).collect()
    }

    /// Returns the line over which the lease was last written.
    pub(crate) fn leader(&self) -> Option<usize> {
        let mut leases = self.all().into_iter().filter(|written| written.what.contains("/leases"));
        leases.next_back().map(|written| written.line)
    }

    fn all(&self) -> Vec<Written> {
        self.0.lock().expect("nobody panicked").clone()
    }

    fn add(&self, line: usize, what: String) {
        self.0.lock().expect("nobody panicked").push(Written {
            line,
            at: Clock::system().instant(),
            what,
        });
    }
}

/// One line.
#[derive(Clone)]
pub(crate) struct Line {
    number: usize,
    server: Service,
    record: Record,
    dead: Arc<watch::Sender<bool>>,
}

impl Line {
    /// Starts a line to `server`. Also returns the URL of its other end.
    pub(crate) async fn start(
        number: usize,
        server: Service,
        record: &Record,
        tasks: &Tasks,
    ) -> (Self, String) {
        let dead = Arc::new(watch::Sender::new(false));
        let line = Self { number, server, record: record.clone(), dead };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (accepting, connections) = (line.clone(), tasks.clone());
        tasks.spawn_until_cancelled("line", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let line = accepting.clone();
                connections.spawn_until_cancelled("connection", async move {
                    let answer = service_fn(move |request| line.clone().answer(request));
                    let server = auto::Builder::new(TokioExecutor::new());
                    // A process that is killed breaks its connections.
                    let _ = server.serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
        (line, url)
    }

    /// Drops all data in both directions from now on, without notifying either side.
    pub(crate) fn cut(&self) {
        self.dead.send_replace(true);
    }

    async fn answer(mut self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return std::future::pending().await };
        self.or_nothing().await;
        let what = format!("{} {}", parts.method, parts.uri.path());
        let writes = !matches!(parts.method, Method::GET | Method::HEAD);
        let lease = what.contains("/leases");
        if writes && !lease {
            self.record.add(self.number, what.clone());
        }
        let request = Request::from_parts(parts, Full::<Bytes>::new(body.to_bytes()));
        let answer = tower::Service::call(&mut self.server, request).await?;
        if writes && lease && answer.status().is_success() {
            self.record.add(self.number, what);
        }
        self.or_nothing().await;
        Ok(answer)
    }

    async fn or_nothing(&self) {
        if *self.dead.borrow() {
            std::future::pending::<()>().await;
        }
    }
}
