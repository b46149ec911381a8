//! The wire between a part and the server: it records writes, and injects latency and failures.

use crate::{
    FaultKind, Log, Outcome, Part,
    faults::ArmedFaults,
    record::{is_event, is_lease},
};
use bytes::Bytes;
use evenkeel_apiserver::{Body as Answer, Service as Server};
use evenkeel_runtime::{clock::Clock, tasks::Halt};
use futures::{future::BoxFuture, stream};
use http::{Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use std::{
    collections::VecDeque,
    error::Error,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

type BoxError = Box<dyn Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Shared state of all wires.
pub(crate) struct Network {
    pub(crate) server: Server,
    pub(crate) clock: Clock,
    pub(crate) log: Log,
    pub(crate) armed: ArmedFaults,
    /// Maximum latency of a request, and of its response.
    pub(crate) latency: Duration,
    /// Sender of requests to the world, such as to restart a part.
    pub(crate) calls: mpsc::UnboundedSender<WorldCall>,
    /// Number of latencies drawn so far.
    pub(crate) requests: AtomicU64,
}

/// Request of a wire to the world.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WorldCall {
    /// The part crashed and must be restarted.
    Restart(Part),
    /// The part is paused and must be resumed.
    Resume(Part),
    /// The part is disconnected and must be reconnected.
    Reconnect(Part),
}

/// Wire of a part between its start and its crash. Clones share it.
#[derive(Clone)]
pub(crate) struct Wire {
    shared: Arc<Network>,
    part: Part,
    /// Cancelled when the part crashes.
    crashed: CancellationToken,
    /// Pauses the part's tasks.
    pub(crate) halt: Halt,
    /// Whether requests and responses get through.
    connected: Arc<watch::Sender<bool>>,
    /// Cancelled to break the part's current watches.
    watches: Arc<Mutex<CancellationToken>>,
}

impl Wire {
    pub(crate) fn new(shared: Arc<Network>, part: Part) -> Self {
        let crashed = CancellationToken::new();
        let watches = Arc::new(Mutex::new(crashed.child_token()));
        let (halt, connected) = (Halt::default(), Arc::new(watch::Sender::new(true)));
        Self { shared, part, crashed, halt, connected, watches }
    }

    /// Connects or disconnects the part. Disconnecting breaks its watches.
    pub(crate) fn connect(&self, connected: bool) {
        self.connected.send_replace(connected);
        if !connected {
            self.break_watches();
        }
    }

    /// Returns at once if the wire is connected. Otherwise waits until it is connected again, and fails: only then
    /// does the client notice that its request is lost.
    async fn wait_connected(&self) -> Result<(), BoxError> {
        if *self.connected.borrow() {
            return Ok(());
        }
        let reconnected = async {
            // The sender cannot be dropped: this wire owns it.
            let _ = self.connected.subscribe().wait_for(|connected| *connected).await;
        };
        self.crashed.run_until_cancelled(reconnected).await;
        Err(wire_cut_error())
    }

    /// Drops all requests and responses from now on, as when the part has crashed.
    pub(crate) fn cut(&self) {
        self.crashed.cancel();
    }

    /// Returns a client on this wire.
    pub(crate) fn kube(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// Sends a request to the server and returns its response, with latency and faults.
    async fn handle(
        self,
        request: Request<kube::client::Body>,
    ) -> Result<Response<Body>, BoxError> {
        self.check_alive()?;
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        self.sleep_latency("out").await;
        self.wait_connected().await?;
        self.check_alive()?;
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        if is_write(&parts.method, &target) {
            self.write(Request::from_parts(parts, body), &target).await
        } else {
            self.read(Request::from_parts(parts, body), &target).await
        }
    }

    async fn read(
        &self,
        request: Request<Bytes>,
        target: &str,
    ) -> Result<Response<Body>, BoxError> {
        let response = self.serve(request).await;
        self.sleep_latency("back").await;
        self.wait_connected().await?;
        self.check_alive()?;
        let is_watch = target.contains("watch=1") || target.contains("watch=true");
        Ok(if is_watch { self.watch(response, target) } else { response.map(boxed) })
    }

    async fn write(
        &self,
        request: Request<Bytes>,
        target: &str,
    ) -> Result<Response<Body>, BoxError> {
        let is_counted = !is_lease(target) && !is_event(target);
        let fault = if is_counted { self.shared.armed.count_write(self.part) } else { None };
        let index = self.record(&request, target);
        let set_outcome = |outcome| self.shared.log.set_outcome(index, outcome);
        match fault {
            Some(FaultKind::CrashBefore) => {
                self.crash();
                set_outcome(Outcome::Lost);
                return Err(wire_cut_error());
            }
            Some(FaultKind::LoseRequest) => {
                set_outcome(Outcome::Lost);
                return Err(wire_cut_error());
            }
            Some(FaultKind::Panic) => {
                set_outcome(Outcome::Lost);
                panic!("planted at a write of {:?}", self.part);
            }
            Some(FaultKind::Refuse(code)) => {
                set_outcome(Outcome::Refused(code));
                return Ok(rejection(code));
            }
            Some(FaultKind::Cut) => {
                set_outcome(Outcome::Lost);
                self.connect(false);
                self.call(WorldCall::Reconnect(self.part));
                self.wait_connected().await?;
            }
            Some(FaultKind::Pause) => {
                set_outcome(Outcome::Lost);
                self.halt.halt();
                self.call(WorldCall::Resume(self.part));
                tokio::task::yield_now().await;
                set_outcome(Outcome::Open);
            }
            _ => {}
        }
        let response = self.serve(request).await;
        let code = response.status().as_u16();
        set_outcome(Outcome::Answered(code));
        match fault {
            Some(FaultKind::CrashAfter) => {
                set_outcome(Outcome::Unheard(code));
                self.crash();
                return Err(wire_cut_error());
            }
            Some(FaultKind::LoseAnswer) => {
                set_outcome(Outcome::Unheard(code));
                return Err(wire_cut_error());
            }
            Some(FaultKind::BreakWatches) => self.break_watches(),
            _ => {}
        }
        self.sleep_latency("back").await;
        if self.check_alive().is_err() || !*self.connected.borrow() {
            set_outcome(Outcome::Unheard(code));
        }
        self.wait_connected().await?;
        self.check_alive()?;
        Ok(response.map(boxed))
    }

    /// Appends a write to the log, and returns its index.
    fn record(&self, request: &Request<Bytes>, target: &str) -> usize {
        let agent = request.headers().get(header::USER_AGENT);
        let agent = agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let (method, body) = (request.method().clone(), request.body().clone());
        self.shared.log.record(self.shared.clock.now(), self.part, agent, method, target, body)
    }

    async fn serve(&self, request: Request<Bytes>) -> Response<Answer> {
        let mut server = self.shared.server.clone();
        let answer = tower::Service::call(&mut server, request.map(Full::new)).await;
        answer.unwrap_or_else(|never| match never {})
    }

    /// Sleeps for the latency of one direction, `out` or `back`, which the seed determines.
    async fn sleep_latency(&self, direction: &str) {
        let n = self.shared.requests.fetch_add(1, Ordering::Relaxed);
        if !self.shared.latency.is_zero() {
            let fraction = self.shared.clock.draw(&(direction, self.part, n));
            self.shared.clock.sleep(self.shared.latency.mul_f64(fraction)).await;
        }
    }

    fn check_alive(&self) -> Result<(), BoxError> {
        if self.crashed.is_cancelled() { Err(wire_cut_error()) } else { Ok(()) }
    }

    fn crash(&self) {
        self.cut();
        self.call(WorldCall::Restart(self.part));
    }

    /// Sends a request to the world.
    pub(crate) fn call(&self, call: WorldCall) {
        // The world drops the receiver when the run ends.
        let _ = self.shared.calls.send(call);
    }

    fn break_watches(&self) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.cancel();
        *watches = self.crashed.child_token();
    }

    /// Wraps the response of a watch: faults can break it, and its events may be delayed.
    fn watch(&self, response: Response<Answer>, target: &str) -> Response<Body> {
        if matches!(self.part, Part::User | Part::Observer) {
            return response.map(boxed);
        }
        let delay = if matches!(self.part, Part::Controllers | Part::Scheduler) {
            let path = target.split('?').next().unwrap_or_default();
            self.shared.armed.max_watch_delay().mul_f64(self.shared.clock.draw(&path))
        } else {
            Duration::ZERO
        };
        let broken = self.watches.lock().unwrap_or_else(PoisonError::into_inner).clone();
        response.map(|body| {
            let (clock, queue) = (self.shared.clock.clone(), VecDeque::new());
            delayed_body(DelayedWatch { body, delay, clock, queue, broken, ended: false })
        })
    }
}

impl tower::Service<Request<kube::client::Body>> for Wire {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(self.clone().handle(request))
    }
}

/// Returns whether a request changes objects. Reviews of authentication and authorization are POST requests but
/// change nothing.
fn is_write(method: &Method, target: &str) -> bool {
    let review_groups = ["/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/"];
    let is_review = review_groups.iter().any(|group| target.starts_with(group));
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) && !is_review
}

/// Returns the error of an unreachable server. It is not a reset connection, which clients may retry by themselves.
fn wire_cut_error() -> BoxError {
    io::Error::new(io::ErrorKind::NotConnected, "the wire was cut").into()
}

fn boxed(body: Answer) -> Body {
    body.map_err(Into::into).boxed_unsync()
}

/// Returns the response of a server that rejects a request.
fn rejection(code: u16) -> Response<Body> {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let reason = match code {
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let text = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "a simulated fault", "reason": reason, "code": code,
    });
    let body = Full::new(Bytes::from(text.to_string())).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Body of a watch response whose frames are delayed.
struct DelayedWatch {
    body: Answer,
    delay: Duration,
    clock: Clock,
    /// Delayed frames, each with the time when it is due.
    queue: VecDeque<(Instant, Frame<Bytes>)>,
    /// Cancelled when a fault breaks the watch.
    broken: CancellationToken,
    /// Whether the body has no more frames.
    ended: bool,
}

fn delayed_body(watch: DelayedWatch) -> Body {
    let frames = stream::unfold(watch, |mut watch| async move {
        let next = watch.next().await?;
        Some((next, watch))
    });
    StreamBody::new(frames).boxed_unsync()
}

impl DelayedWatch {
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        loop {
            if self.ended && self.queue.is_empty() {
                return None;
            }
            let due = self.queue.front().map(|(due, _)| *due);
            tokio::select! {
                biased;
                () = self.broken.cancelled() => {
                    self.queue.clear();
                    self.ended = true;
                    return Some(Err(wire_cut_error()));
                }
                () = tokio::time::sleep_until(due.unwrap_or_else(|| self.clock.instant())), if due.is_some() => {
                    return self.queue.pop_front().map(|(_, frame)| Ok(frame));
                }
                frame = self.body.frame(), if !self.ended => match frame {
                    Some(Ok(frame)) if self.delay.is_zero() => return Some(Ok(frame)),
                    Some(Ok(frame)) => self.queue.push_back((self.clock.instant() + self.delay, frame)),
                    Some(Err(timeout)) => {
                        self.ended = true;
                        return Some(Err(timeout.into()));
                    }
                    None => self.ended = true,
                },
            }
        }
    }
}
