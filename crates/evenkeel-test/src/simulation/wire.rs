//! The wire between a part and the server: it records writes, and injects latency and failures.

use super::{
    FaultKind, Outcome, Part,
    network::{HELD, Network, OUTAGE, STALE, WorldCall},
    record::{is_event, is_lease},
    stale::{Read, StaleReads},
    watches::{DelayedWatch, delayed_body},
};
use crate::BoxError;
use bytes::Bytes;
use evenkeel_apiserver::{Body as Answer, Service as Server};
use evenkeel_runtime::tasks::{Halt, watch};
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use serde::Deserialize;
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(super) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Treatment of a part's watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watches {
    /// They are as the server's.
    Untouched,
    /// Faults break and hold them.
    Breakable,
    /// Faults also delay them.
    Delayed,
}

/// Wire of a part between its start and its crash. Clones share it.
#[derive(Clone)]
pub(super) struct Wire {
    shared: Arc<Network>,
    server: Server,
    part: Part,
    /// Part whose writes are counted together with those of this part.
    counted_as: Part,
    watch_mode: Watches,
    /// Cancelled when the part crashes.
    crashed: CancellationToken,
    /// Pauses the part's tasks.
    pub(super) halt: Halt,
    /// Whether requests and responses are delivered.
    connected: Arc<watch::Sender<bool>>,
    /// Cancelled to break the part's current watches.
    watches: Arc<Mutex<CancellationToken>>,
    /// End of the time for which events of watches are held back.
    held_until: Arc<Mutex<Option<Instant>>>,
    /// End of the time for which requests for leases are lost.
    leases_lost_until: Arc<Mutex<Option<Instant>>>,
    /// Stale reads, and reads that are refused because they would be current.
    stale: Arc<Mutex<StaleReads>>,
}

impl Wire {
    pub(super) fn new(
        shared: Arc<Network>,
        part: Part,
        counted_as: Part,
        watch_mode: Watches,
    ) -> Self {
        let crashed = CancellationToken::new();
        let watches = Arc::new(Mutex::new(crashed.child_token()));
        let (halt, connected) = (Halt::default(), Arc::new(watch::Sender::new(true)));
        let (held_until, leases_lost_until, stale) =
            (Arc::default(), Arc::default(), Arc::default());
        let server = shared.server.service();
        Self {
            shared,
            server,
            part,
            counted_as,
            watch_mode,
            crashed,
            halt,
            connected,
            watches,
            held_until,
            leases_lost_until,
            stale,
        }
    }

    /// Lets the part's reads be stale for a while, as after a restart: see [`FaultKind::StaleRestart`].
    pub(super) fn begin_stale(&self, revision: u64) {
        self.start(&self.held_until, STALE);
        self.stale_reads().begin(revision, self.shared.clock.instant() + STALE);
    }

    fn stale_reads(&self) -> MutexGuard<'_, StaleReads> {
        self.stale.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects or disconnects the part. Disconnecting breaks its watches.
    pub(super) fn connect(&self, connected: bool) {
        self.connected.send_replace(connected);
        if !connected {
            self.break_watches();
        }
    }

    /// Returns immediately if the wire is connected. Otherwise, waits until it is connected again and then fails, because only
    /// then does the client notice the lost request.
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

    /// Drops all requests and responses from now on, as after a crash of the part.
    pub(super) fn cut(&self) {
        self.crashed.cancel();
    }

    /// Returns whether the part has crashed.
    pub(super) fn is_cut(&self) -> bool {
        self.crashed.is_cancelled()
    }

    /// Returns a client on this wire.
    pub(super) fn kube(&self) -> kube::Client {
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
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        let label = self.shared.label((self.part, &parts.method, &target));
        self.sleep_latency("out", label).await;
        self.wait_connected().await?;
        self.check_alive()?;
        if is_lease(&target) && self.loses_leases() {
            return Err(wire_cut_error());
        }
        if is_write(&parts.method, &target) {
            self.write(Request::from_parts(parts, body), &target, label).await
        } else {
            self.read(Request::from_parts(parts, body), &target, label).await
        }
    }

    async fn read(
        &self,
        request: Request<Bytes>,
        target: &str,
        label: u64,
    ) -> Result<Response<Body>, BoxError> {
        let now = self.shared.clock.instant();
        let verdict = self.stale_reads().check(target, now);
        let response = match verdict {
            Read::Fails => return Err(wire_cut_error()),
            Read::Expired => return Ok(rejection(410)),
            Read::Fresh => self.serve(request).await,
            Read::AsOf(target) => self.serve(redirect(request, &target)).await,
        };
        self.sleep_latency("back", label).await;
        self.wait_connected().await?;
        self.check_alive()?;
        let is_watch = target.contains("watch=1") || target.contains("watch=true");
        Ok(if is_watch { self.watch(response, target) } else { response.map(boxed) })
    }

    async fn write(
        &self,
        request: Request<Bytes>,
        target: &str,
        label: u64,
    ) -> Result<Response<Body>, BoxError> {
        let is_counted = !is_lease(target) && !is_event(target);
        let fault = if is_counted { self.shared.armed.count_write(self.counted_as) } else { None };
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
                self.shared.call(WorldCall::Reconnect(self.part));
                self.wait_connected().await?;
            }
            Some(FaultKind::Pause) => {
                set_outcome(Outcome::Lost);
                self.halt.halt();
                self.shared.call(WorldCall::Resume(self.part));
                tokio::task::yield_now().await;
                set_outcome(Outcome::Open);
            }
            _ => {}
        }
        // Before the server executes the write, whose own event is held back or lost too.
        let revision = self.shared.server.revision();
        match fault {
            Some(FaultKind::HoldWatches) => self.start(&self.held_until, HELD),
            Some(FaultKind::WatchGap) => {
                self.shared.note_outage(HELD);
                self.stale_reads().begin_gap(self.shared.clock.instant() + HELD);
                self.break_watches();
            }
            _ => {}
        }
        if fault == Some(FaultKind::Repeat) {
            let first = self.serve(request.clone()).await;
            let index = self.record(&request, target);
            self.shared.log.set_outcome(index, Outcome::Unheard(first.status().as_u16()));
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
            Some(FaultKind::StaleRestart) => {
                set_outcome(Outcome::Unheard(code));
                self.cut();
                self.shared.call(WorldCall::RestartStale(self.part, revision));
                return Err(wire_cut_error());
            }
            Some(FaultKind::LoseAnswer) => {
                set_outcome(Outcome::Unheard(code));
                return Err(wire_cut_error());
            }
            Some(FaultKind::BreakWatches) => self.break_watches(),
            Some(FaultKind::LoseLease) => self.start(&self.leases_lost_until, OUTAGE),
            _ => {}
        }
        let response = self.named(response, index).await?;
        self.sleep_latency("back", label).await;
        if self.check_alive().is_err() || !*self.connected.borrow() {
            set_outcome(Outcome::Unheard(code));
        }
        self.wait_connected().await?;
        self.check_alive()?;
        Ok(response)
    }

    /// Starts an outage that ends by itself.
    fn start(&self, outage: &Mutex<Option<Instant>>, duration: Duration) {
        let end = self.shared.clock.instant() + duration;
        *outage.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
        self.shared.note_outage(duration);
    }

    fn loses_leases(&self) -> bool {
        let until = *self.leases_lost_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| self.shared.clock.instant() < until)
    }

    /// Records the name of the object in the response to a write, if that is JSON.
    async fn named(
        &self,
        response: Response<Answer>,
        index: usize,
    ) -> Result<Response<Body>, BoxError> {
        let content_type = response.headers().get(header::CONTENT_TYPE);
        let is_json =
            content_type.is_some_and(|found| found.as_bytes().starts_with(b"application/json"));
        if !is_json || !response.status().is_success() {
            return Ok(response.map(boxed));
        }
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        let named: Option<Named> = serde_json::from_slice(&body).ok();
        if let Some(name) = named.and_then(|named| named.metadata.name) {
            self.shared.log.set_name(index, &name);
        }
        let body = Full::new(body).map_err(|never| match never {});
        Ok(Response::from_parts(parts, body.boxed_unsync()))
    }

    /// Appends a write to the log, and returns its index.
    fn record(&self, request: &Request<Bytes>, target: &str) -> usize {
        let agent = request.headers().get(header::USER_AGENT);
        let agent = agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let (method, body) = (request.method().clone(), request.body().clone());
        self.shared.log.record(self.shared.clock.now(), self.part, agent, method, target, body)
    }

    async fn serve(&self, request: Request<Bytes>) -> Response<Answer> {
        let mut server = self.server.clone();
        let answer = tower::Service::call(&mut server, request.map(Full::new)).await;
        answer.unwrap_or_else(|never| match never {})
    }

    /// Sleeps for the latency of one direction, `out` or `back`. The seed, the time and the request's label determine it, so it
    /// does not depend on other requests that are sent at the same time.
    async fn sleep_latency(&self, direction: &str, label: u64) {
        if !self.shared.latency.is_zero() {
            let fraction = self.shared.clock.draw(&(direction, label));
            self.shared.clock.sleep(self.shared.latency.mul_f64(fraction)).await;
        }
    }

    fn check_alive(&self) -> Result<(), BoxError> {
        if self.is_cut() { Err(wire_cut_error()) } else { Ok(()) }
    }

    fn crash(&self) {
        self.cut();
        self.shared.call(WorldCall::Restart(self.part));
    }

    /// Reports to the world that the program of the part ended with this error, unless the part has crashed meanwhile. The
    /// world restarts the part.
    pub(super) fn ended(&self, error: String) {
        if !self.is_cut() {
            self.shared.call(WorldCall::Ended(self.part, error));
        }
    }

    fn break_watches(&self) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.cancel();
        *watches = self.crashed.child_token();
    }

    /// Wraps the response of a watch: faults can break it, and its events may be delayed.
    fn watch(&self, response: Response<Answer>, target: &str) -> Response<Body> {
        if self.watch_mode == Watches::Untouched {
            return response.map(boxed);
        }
        let delay = if self.watch_mode == Watches::Delayed {
            let path = target.split('?').next().unwrap_or_default();
            self.shared.armed.max_watch_delay().mul_f64(self.shared.clock.draw(&path))
        } else {
            Duration::ZERO
        };
        let broken = self.watches.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let initial = target.contains("sendInitialEvents=true");
        response.map(|body| {
            let (clock, held_until) = (self.shared.clock.clone(), Arc::clone(&self.held_until));
            delayed_body(DelayedWatch::new(body, delay, held_until, clock, broken, initial))
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
pub(super) fn wire_cut_error() -> BoxError {
    io::Error::new(io::ErrorKind::NotConnected, "the wire was cut").into()
}

/// Names in an object.
#[derive(Deserialize)]
struct Named {
    metadata: NamedMetadata,
}

#[derive(Deserialize)]
struct NamedMetadata {
    name: Option<String>,
}

/// Returns the request with another path and query.
fn redirect(mut request: Request<Bytes>, target: &str) -> Request<Bytes> {
    if let Ok(target) = target.parse() {
        *request.uri_mut() = target;
    }
    request
}

fn boxed(body: Answer) -> Body {
    body.map_err(Into::into).boxed_unsync()
}

/// Returns the response of a server that rejects a request.
fn rejection(code: u16) -> Response<Body> {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let reason = match code {
        409 => "Conflict",
        410 => "Expired",
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
