//! Auditing: writes events about requests to a log and sends them to a webhook.
//!
//! `policy` decides the level and the stages of a request's events, and `event` their fields. Both are free of I/O.
//! `log` and `webhook` write the events.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `RequestReceived` is written once the user is known, and `ResponseComplete` at the end | `receive`, `complete` |
//! | `ResponseStarted` is written for long-running requests | `respond` |
//! | A request that fails authentication has only the stage `ResponseStarted` | `refuse` |
//! | `Panic` is written when a handler panicked | `panicked` |
//! | `--audit-log-mode`: `batch`, `blocking`, `blocking-strict` | `log::process` |
//! | `--audit-log-maxage`, `--audit-log-maxbackup`, `--audit-log-maxsize` | `rotation::removed`, `log::rotate` |
//! | `--audit-webhook-batch-…`, `--audit-webhook-initial-backoff` | `webhook::Webhook` |
//!
//! Upstream: `endpoints/filters/audit.go`, `audit/context.go`.

mod event;
mod log;
mod options;
mod policy;
mod response;
mod rotation;
mod webhook;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evenkeel_apimachinery::user::User;
use http::Response;
use serde_json::{Value, json};

use event::AuditEvent;
pub(crate) use event::Received;
use log::Log;
pub use options::{AuditLogOptions, AuditMode, AuditOptions, AuditWebhookOptions};
use policy::AuditPolicy;
use policy::Stage;
pub(crate) use policy::{AuditAttributes, Level};
use webhook::Webhook;

use crate::clock::Clock;
use crate::response::Body;

/// Audit policy of a server, and the destinations of its events.
pub(crate) struct Auditor {
    policy: AuditPolicy,
    log: Option<Log>,
    webhook: Option<Webhook>,
    clock: Clock,
    /// Number of events generated.
    n_events: AtomicU64,
    /// Number of requests that failed because their event could not be written.
    n_rejected: AtomicU64,
}

impl Auditor {
    /// Parses the policy, opens the log and reads the webhook's configuration. An error has the name of the flag and
    /// the reason.
    pub(crate) fn open(
        options: AuditOptions,
        clock: Clock,
    ) -> Result<Self, (&'static str, String)> {
        let policy = AuditPolicy::parse(&options.policy)
            .map_err(|why| ("audit-policy-file", format!("loading audit policy file: {why}")))?;
        let log = options.log.map(|options| Log::start(options, clock.clone())).transpose();
        let log = log.map_err(|error| ("audit-log-path", format!("ensureLogFile: {error}")))?;
        let webhook = options.webhook.map(Webhook::new).transpose().map_err(|why| {
            ("audit-webhook-config-file", format!("initializing audit webhook: {why}"))
        })?;
        let (n_events, n_rejected) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { policy, log, webhook, clock, n_events, n_rejected })
    }

    /// Returns the sender of queued events to the webhook; `None` without a webhook.
    pub(crate) fn sender(&self) -> Option<Arc<webhook::Sender>> {
        self.webhook.as_ref().map(Webhook::sender)
    }

    /// Writes an event to the log, and queues it for the webhook. Returns whether the request may continue.
    async fn process(&self, event: &AuditEvent) -> bool {
        let Some(bytes) = self.encode_and_send(event) else { return true };
        match &self.log {
            Some(log) => log.process(bytes).await,
            None => true,
        }
    }

    /// Queues an event for the log and the webhook without waiting.
    fn enqueue(&self, event: &AuditEvent) {
        let Some(bytes) = self.encode_and_send(event) else { return };
        if let Some(log) = &self.log {
            log.enqueue(bytes);
        }
    }

    /// Counts an event and queues it for the webhook. Returns the line for the log.
    fn encode_and_send(&self, event: &AuditEvent) -> Option<Vec<u8>> {
        self.n_events.fetch_add(1, Ordering::Relaxed);
        let mut bytes = serde_json::to_vec(event).ok()?;
        if let Some(webhook) = &self.webhook {
            webhook.enqueue(bytes.clone());
        }
        bytes.push(b'\n');
        Some(bytes)
    }

    /// Appends the metrics of auditing to `text`.
    pub(crate) fn render(&self, text: &mut String) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for (name, help, value) in [
            (
                "apiserver_audit_event_total",
                "Counter of audit events generated and sent to the audit backend.",
                count(&self.n_events),
            ),
            (
                "apiserver_audit_requests_rejected_total",
                "Counter of apiserver requests rejected due to an error in audit logging backend.",
                count(&self.n_rejected),
            ),
        ] {
            let _ = write!(
                text,
                "# HELP {name} [ALPHA] {help}\n# TYPE {name} counter\n{name} {value}\n"
            );
        }
        let name = "apiserver_audit_error_total";
        let help = "Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.";
        let _ = write!(text, "# HELP {name} [ALPHA] {help}\n# TYPE {name} counter\n");
        for (plugin, failed) in [
            ("log", self.log.as_ref().map(Log::n_failed)),
            ("webhook", self.webhook.as_ref().map(Webhook::n_failed)),
        ] {
            if let Some(failed) = failed {
                let _ = writeln!(text, "{name}{{plugin=\"{plugin}\"}} {failed}");
            }
        }
    }
}

/// Audit event of one request. The request's handlers add fields to it. Without an audit policy, the methods have no
/// effect.
#[derive(Clone, Default)]
pub(crate) struct RequestAudit(Option<Arc<Inner>>);

/// State of a request's audit event, which the handlers of the request share.
struct Inner {
    auditor: Arc<Auditor>,
    state: Mutex<State>,
    /// Whether the last event of the request has been written or is not needed.
    is_complete: AtomicBool,
}

/// Audit event of a request, while handlers add to it.
#[derive(Default)]
struct State {
    /// Annotations that were added before the policy was evaluated.
    early_annotations: Vec<(String, String)>,
    /// Event of the request; `None` before the policy is evaluated, and at the level `None`.
    event: Option<AuditEvent>,
    /// Whether the request failed authentication.
    is_refused: bool,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the event of a stage; `None` if the policy omits it.
    fn at_stage(&self, stage: Stage) -> Option<AuditEvent> {
        let now = self.auditor.clock.now();
        self.state().event.as_mut()?.at_stage(stage, now)
    }

    /// Writes the event of a stage unless the policy omits it. Returns whether the request may continue.
    async fn emit(&self, stage: Stage) -> bool {
        match self.at_stage(stage) {
            Some(event) => self.auditor.process(&event).await,
            None => true,
        }
    }
}

impl RequestAudit {
    /// Creates the audit of a request. `auditor` is `None` if the server has no audit policy.
    pub(crate) fn new(auditor: Option<&Arc<Auditor>>) -> Self {
        Self(auditor.map(|auditor| {
            let (auditor, state, is_complete) = (auditor.clone(), Mutex::default(), false.into());
            Arc::new(Inner { auditor, state, is_complete })
        }))
    }

    /// Returns whether the server has an audit policy.
    pub(crate) fn is_configured(&self) -> bool {
        self.0.is_some()
    }

    /// Evaluates the policy for an authenticated request, and writes the event of the stage `RequestReceived`. Returns
    /// whether the request may continue: false if it has to fail because the event could not be written.
    ///
    /// Upstream: `WithAudit`.
    pub(crate) async fn receive(
        &self,
        received: &Received<'_>,
        user: &User,
        attributes: &AuditAttributes<'_>,
    ) -> bool {
        self.begin(received, Some(user), attributes);
        let Some(inner) = &self.0 else { return true };
        let may_continue = inner.emit(Stage::RequestReceived).await;
        if !may_continue {
            inner.auditor.n_rejected.fetch_add(1, Ordering::Relaxed);
        }
        may_continue
    }

    /// Evaluates the policy for a request that failed authentication.
    ///
    /// Upstream: `WithFailedAuthenticationAudit`, `withFailedRequestAudit`.
    pub(crate) fn refuse(&self, received: &Received<'_>, attributes: &AuditAttributes<'_>) {
        self.begin(received, None, attributes);
        if let Some(inner) = &self.0 {
            inner.state().is_refused = true;
        }
    }

    /// Evaluates the policy, and creates the event unless the level is `None`.
    fn begin(
        &self,
        received: &Received<'_>,
        user: Option<&User>,
        attributes: &AuditAttributes<'_>,
    ) {
        let Some(inner) = &self.0 else { return };
        let config = inner.auditor.policy.evaluate(user, attributes);
        if config.level == Level::None {
            return;
        }
        let mut event = AuditEvent::begin(config.clone(), received, user, attributes);
        let mut state = inner.state();
        for (key, value) in std::mem::take(&mut state.early_annotations) {
            event.annotate(key, value);
        }
        state.event = Some(event);
    }

    /// Returns whether events of at least this level are written for the request.
    pub(crate) fn wants(&self, level: Level) -> bool {
        let Some(inner) = &self.0 else { return false };
        inner.state().event.as_ref().is_some_and(|event| event.level() >= level)
    }

    /// Changes the event, if there is one.
    fn change(&self, change: impl FnOnce(&mut AuditEvent)) {
        if let Some(inner) = &self.0
            && let Some(event) = &mut inner.state().event
        {
            change(event);
        }
    }

    /// Adds an annotation to the event.
    ///
    /// Upstream: `AddAuditAnnotation`.
    pub(crate) fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        let Some(inner) = &self.0 else { return };
        let mut state = inner.state();
        match &mut state.event {
            Some(event) => event.annotate(key.into(), value.into()),
            None => state.early_annotations.push((key.into(), value.into())),
        }
    }

    /// Records the user that the request impersonates.
    pub(crate) fn impersonate(&self, user: &User, constraint: Option<&str>) {
        self.change(|event| event.set_impersonated_user(user, constraint));
    }

    /// Records the object of the request.
    pub(crate) fn request_object(&self, object: &Value) {
        self.change(|event| event.set_request_object(object));
    }

    /// Records the patch of the request. `patch` is only called if the level needs it.
    pub(crate) fn request_patch(&self, patch: impl FnOnce() -> Option<Value>) {
        if self.wants(Level::Request)
            && let Some(patch) = patch()
        {
            self.change(|event| event.set_request_patch(patch));
        }
    }

    /// Records the response, and writes the events of its stages. The last event of a long-running request is written
    /// when the response ends. `has_object` is whether a body in JSON or protobuf is an API object.
    pub(crate) async fn respond(
        &self,
        response: &mut Response<Body>,
        has_object: bool,
        is_long_running: bool,
    ) {
        let Some(inner) = &self.0 else { return };
        if !self.wants(Level::Metadata) {
            inner.is_complete.store(true, Ordering::Relaxed);
            return;
        }
        self.record(response, has_object && !is_long_running);
        let is_refused = inner.state().is_refused;
        if is_refused || is_long_running {
            inner.emit(Stage::ResponseStarted).await;
        }
        if is_refused {
            inner.is_complete.store(true, Ordering::Relaxed);
        } else if is_long_running {
            // The body drops the guard when the response ends.
            response.body_mut().hold(Completion(self.clone()));
        } else {
            self.complete().await;
        }
    }

    /// Records the status code of a response, and its object if the level includes it. A Status is always recorded.
    fn record(&self, response: &mut Response<Body>, has_object: bool) {
        let records_object = has_object && self.wants(Level::RequestResponse);
        // Only an object to record needs the whole body. A Status is short.
        let body =
            if records_object { response.body_mut().gather() } else { response.body().peek() };
        if let Some(body) = body {
            let headers = response.headers();
            if (records_object || response::may_be_status(&body))
                && let Some(object) = response::decode(headers, &body)
            {
                let is_status = response::is_status(&object);
                self.change(|event| {
                    if is_status {
                        event.set_response_status(&object);
                    }
                    if is_status || records_object {
                        event.set_response_object(object);
                    }
                });
            }
        }
        let code = response.status();
        self.change(|event| event.set_response_code(code));
    }

    /// Writes the event of the stage `ResponseComplete`, unless the last event has been written.
    async fn complete(&self) {
        if let Some(inner) = &self.0
            && !inner.is_complete.swap(true, Ordering::Relaxed)
        {
            inner.emit(Stage::ResponseComplete).await;
        }
    }

    /// Writes the event of the stage `Panic`, for a request whose handler panicked.
    pub(crate) async fn panicked(&self, panic: &str) {
        let Some(inner) = &self.0 else { return };
        self.change(|event| {
            event.set_response_status(&json!({
                "status": "Failure", "reason": "InternalError", "code": 500,
                "message": format!("APIServer panic'd: {panic}"),
            }));
        });
        inner.is_complete.store(true, Ordering::Relaxed);
        inner.emit(Stage::Panic).await;
    }

    /// Returns a guard that writes the last event if it is dropped before the request has a response.
    pub(crate) fn guard(&self) -> Abandoned {
        Abandoned(self.clone())
    }
}

/// Guard in the body of a response: writes the last event of the request when the response has ended.
struct Completion(RequestAudit);

impl Drop for Completion {
    fn drop(&mut self) {
        let Some(inner) = &self.0.0 else { return };
        if !inner.is_complete.swap(true, Ordering::Relaxed)
            && let Some(event) = inner.at_stage(Stage::ResponseComplete)
        {
            inner.auditor.enqueue(&event);
        }
    }
}

/// Guard that writes the last event of a request whose client disconnects before the response.
pub(crate) struct Abandoned(RequestAudit);

impl Abandoned {
    /// Disarms the guard, because the response has an event of its own.
    pub(crate) fn answered(mut self) {
        self.0 = RequestAudit::default();
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        let Some(inner) = &self.0.0 else { return };
        if !inner.is_complete.load(Ordering::Relaxed) {
            self.0.change(|event| {
                event.set_response_status(&json!({
                    "status": "Success", "message": "Connection closed early", "code": 200,
                }));
            });
            drop(Completion(self.0.clone()));
        }
    }
}
