//! The network between the processes and the API server. A sent request arrives independently of its sender, even if the sender
//! pauses or ends.

use crate::store::{Answer, Path, Store};
use bytes::Bytes;
use evenkeel_runtime::{clock::Clock, tasks::Tasks};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use serde_json::Value;
use std::{
    convert::Infallible,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep},
};

type Body = BoxBody<Bytes, Infallible>;

/// Latency of one direction without disturbance.
const MAX_LATENCY: Duration = Duration::from_millis(40);

/// Maximum latency of a late request. It exceeds all durations of a lease.
const MAX_LATE: Duration = Duration::from_secs(60);

/// Leases of both simulations.
pub(crate) const LEASES: &str = "coordination.k8s.io/v1/leases";

/// Lease duration in seconds of the server's clock. Processes measure it with their own clocks.
pub(crate) const LEASE_SECONDS: i64 = 15;

/// One request, as the input of a check.
pub(crate) struct Sent {
    /// Number of the process, unique in the run.
    pub(crate) process: usize,
    pub(crate) method: Method,
    pub(crate) path: Path,
    pub(crate) body: Value,
    pub(crate) at: Instant,
}

/// Checks of a run, which see each request when it is sent and when the server has executed it.
pub(crate) trait Check: Send {
    fn sent(&mut self, request: &Sent);
    fn served(&mut self, request: &Sent, code: u16);
}

/// State of the link of one process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Condition {
    /// Whether nothing gets through.
    pub(crate) cut: bool,
    /// Probability that a request is lost before the server.
    pub(crate) lose_request: f64,
    /// Probability that the server executes a request, but its response is lost.
    pub(crate) lose_answer: f64,
    /// Probability that the server responds with an error.
    pub(crate) refuse: f64,
    /// Probability that a request arrives up to [`MAX_LATE`] late.
    pub(crate) late: f64,
    /// Maximum additional latency of each direction.
    pub(crate) slow: Duration,
}

/// Network and server of a run.
pub(crate) struct Network {
    pub(crate) store: Mutex<Store>,
    pub(crate) clock: Clock,
    pub(crate) check: Mutex<Box<dyn Check>>,
    rng: Mutex<SmallRng>,
    deliveries: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
    /// Time at which the last disturbed request reached the server.
    late: Mutex<Instant>,
    /// Number of requests that were sent.
    pub(crate) requests: AtomicU64,
}

impl Network {
    pub(crate) fn new(seed: u64, clock: Clock, tasks: &Tasks, check: Box<dyn Check>) -> Arc<Self> {
        let (deliveries, mut queue) = mpsc::unbounded_channel::<BoxFuture<'static, ()>>();
        tasks.spawn_until_cancelled("network", async move {
            let mut flying = FuturesUnordered::new();
            loop {
                tokio::select! {
                    biased;
                    Some(delivery) = queue.recv() => flying.push(delivery),
                    Some(()) = flying.next(), if !flying.is_empty() => {}
                    else => return,
                }
            }
        });
        let late = Mutex::new(clock.instant());
        let rng = Mutex::new(SmallRng::seed_from_u64(seed ^ 0x5eed));
        let (store, requests) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { store, clock, check: Mutex::new(check), rng, deliveries, late, requests })
    }

    /// Returns the time at which the last disturbed request reached the server.
    pub(crate) fn last_late(&self) -> Instant {
        *self.late.lock().unwrap()
    }

    fn draw(&self) -> f64 {
        self.rng.lock().unwrap().random()
    }

    fn chance(&self, probability: f64) -> bool {
        probability > 0.0 && self.draw() < probability
    }
}

/// Link of one process. Clones share it.
#[derive(Clone)]
pub(crate) struct Link {
    net: Arc<Network>,
    process: usize,
    condition: Arc<Mutex<Condition>>,
    /// Lease duration that this process writes, in seconds of its clock.
    written_seconds: i64,
    /// Lease duration that this process reads, in seconds of its clock.
    read_seconds: i64,
}

impl Link {
    pub(crate) fn new(
        net: &Arc<Network>,
        process: usize,
        written_seconds: i64,
        read_seconds: i64,
    ) -> Self {
        let (net, condition) = (Arc::clone(net), Arc::default());
        Self { net, process, condition, written_seconds, read_seconds }
    }

    pub(crate) fn kube(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    pub(crate) fn set(&self, condition: Condition) {
        *self.condition.lock().unwrap() = condition;
        if condition.cut {
            self.net.store.lock().unwrap().break_watches(self.process);
        }
    }

    async fn exchange(
        self,
        request: Request<kube::client::Body>,
    ) -> Result<Response<Body>, io::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let path = Path::parse(parts.uri.path()).ok_or_else(|| io::Error::other("no such path"))?;
        let mut body: Value = serde_json::from_slice(&body).unwrap_or_default();
        self.rewrite_seconds(&path, &mut body, self.written_seconds, LEASE_SECONDS);
        let (net, process) = (Arc::clone(&self.net), self.process);
        let sent = Sent { process, method: parts.method, path, body, at: net.clock.instant() };
        net.requests.fetch_add(1, Ordering::Relaxed);
        net.check.lock().unwrap().sent(&sent);
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let (sender, answer) = oneshot::channel();
        // The network ends after all processes.
        let _ = net.deliveries.send(self.deliver(sent, query, sender).boxed());
        let answer = answer
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::ConnectionReset, "connection reset"))?;
        Ok(response(answer))
    }

    /// Delivers a request to the server, and its response back.
    async fn deliver(self, sent: Sent, query: String, sender: oneshot::Sender<Answer>) {
        let net = Arc::clone(&self.net);
        let before = *self.condition.lock().unwrap();
        let late =
            if net.chance(before.late) { MAX_LATE.mul_f64(net.draw()) } else { Duration::ZERO };
        sleep((MAX_LATENCY + before.slow).mul_f64(net.draw()) + late).await;
        if self.condition.lock().unwrap().cut || net.chance(before.lose_request) {
            return self.lose(sender).await;
        }
        if !late.is_zero() || !before.slow.is_zero() {
            *net.late.lock().unwrap() = net.clock.instant();
        }
        let mut answer = if net.chance(before.refuse) {
            Answer::failure(500, "InternalError")
        } else {
            let (method, body) = (&sent.method, sent.body.clone());
            let mut store = net.store.lock().unwrap();
            let answer = store.answer(self.process, method, &sent.path, &query, body);
            drop(store);
            net.check.lock().unwrap().served(&sent, answer.code());
            answer
        };
        if let Answer::Object(_, body) = &mut answer {
            self.rewrite_seconds(&sent.path, body, LEASE_SECONDS, self.read_seconds);
        }
        sleep((MAX_LATENCY + before.slow).mul_f64(net.draw())).await;
        if self.condition.lock().unwrap().cut || net.chance(before.lose_answer) {
            return self.lose(sender).await;
        }
        // The client may have given up.
        let _ = sender.send(answer);
    }

    /// Loses a request. The client notices that after some time.
    async fn lose(&self, sender: oneshot::Sender<Answer>) {
        if self.net.chance(0.5) {
            sleep(Duration::from_secs(15)).await;
        }
        drop(sender);
    }

    /// Converts a lease duration between the clocks of process and server.
    fn rewrite_seconds(&self, path: &Path, body: &mut Value, from: i64, to: i64) {
        if path.resource != LEASES || from == to {
            return;
        }
        let lists = body["items"].as_array_mut();
        let objects = match lists {
            Some(items) => items.iter_mut().collect(),
            None => vec![body],
        };
        for object in objects {
            if object["spec"]["leaseDurationSeconds"] == from {
                object["spec"]["leaseDurationSeconds"] = to.into();
            }
        }
    }
}

impl tower::Service<Request<kube::client::Body>> for Link {
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(self.clone().exchange(request))
    }
}

fn response(answer: Answer) -> Response<Body> {
    let (code, body) = match answer {
        Answer::Object(code, body) => {
            (code, BodyExt::boxed(Full::new(Bytes::from(body.to_string()))))
        }
        Answer::Watch(lines) => {
            let frames = lines.map(|line| Ok(Frame::data(line)));
            (200, BodyExt::boxed(StreamBody::new(frames)))
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", json);
    response
}
