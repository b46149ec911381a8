//! Auditing: events about requests, for a log and a webhook.
//!
//! `policy` decides the level and the stages, and `event` the fields; both are pure. `log` and `webhook` write.
//!
//! | documented | where |
//! |---|---|
//! | `RequestReceived` is written once the user is known, and `ResponseComplete` at the end | `receive`, `complete` |
//! | `ResponseStarted` is written for long-running requests | `respond` |
//! | A request without a valid user has the stage `ResponseStarted` alone | `refuse` |
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

/// Policy of a server, and where its events go.
pub(crate) struct Auditor {
    policy: AuditPolicy,
    log: Option<Log>,
    webhook: Option<Webhook>,
    clock: Clock,
    n_events: AtomicU64,
    n_rejected: AtomicU64,
}

impl Auditor {
    /// Reads the policy, and opens the log. The error names the setting.
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
        let (n_events, n_rejected) = Default::default();
        Ok(Self { policy, log, webhook, clock, n_events, n_rejected })
    }

    /// Returns what sends events to the webhook, if there is one.
    pub(crate) fn sender(&self) -> Option<Arc<webhook::Sender>> {
        self.webhook.as_ref().map(Webhook::sender)
    }

    /// Writes an event to the log, and queues it for the webhook. Returns whether the request may go on.
    async fn process(&self, event: &AuditEvent) -> bool {
        let Some(bytes) = self.encode(event) else { return true };
        match &self.log {
            Some(log) => log.process(bytes).await,
            None => true,
        }
    }

    /// Queues an event without waiting.
    fn enqueue(&self, event: &AuditEvent) {
        let Some(bytes) = self.encode(event) else { return };
        if let Some(log) = &self.log {
            log.enqueue(bytes);
        }
    }

    fn encode(&self, event: &AuditEvent) -> Option<Vec<u8>> {
        self.n_events.fetch_add(1, Ordering::Relaxed);
        let mut bytes = serde_json::to_vec(event).ok()?;
        if let Some(webhook) = &self.webhook {
            webhook.enqueue(bytes.clone());
        }
        bytes.push(b'\n');
        Some(bytes)
    }

    /// Writes the metrics of auditing.
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

/// Audit event of one request, as its handlers add to it. Without a policy, it does nothing.
#[derive(Clone, Default)]
pub(crate) struct RequestAudit(Option<Arc<Inner>>);

struct Inner {
    auditor: Arc<Auditor>,
    state: Mutex<State>,
    is_complete: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Annotations from before the policy was evaluated.
    early: Vec<(String, String)>,
    /// The event; `None` before the policy is evaluated, and at the level `None`.
    event: Option<AuditEvent>,
    /// Whether the request has no valid user.
    is_refused: bool,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at_stage(&self, stage: Stage) -> Option<AuditEvent> {
        let now = self.auditor.clock.now();
        self.state().event.as_mut()?.at_stage(stage, now)
    }

    async fn emit(&self, stage: Stage) -> bool {
        match self.at_stage(stage) {
            Some(event) => self.auditor.process(&event).await,
            None => true,
        }
    }
}

impl RequestAudit {
    /// Creates the audit of a request of a server that may have an auditor.
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

    /// Evaluates the policy for a request of a user, and writes the first event. Returns false if the request has to
    /// fail because the event could not be written.
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
        let may_go_on = inner.emit(Stage::RequestReceived).await;
        if !may_go_on {
            inner.auditor.n_rejected.fetch_add(1, Ordering::Relaxed);
        }
        may_go_on
    }

    /// Evaluates the policy for a request without a valid user.
    ///
    /// Upstream: `WithFailedAuthenticationAudit`, `withFailedRequestAudit`.
    pub(crate) fn refuse(&self, received: &Received<'_>, attributes: &AuditAttributes<'_>) {
        self.begin(received, None, attributes);
        if let Some(inner) = &self.0 {
            inner.state().is_refused = true;
        }
    }

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
        for (key, value) in std::mem::take(&mut state.early) {
            event.annotate(key, value);
        }
        state.event = Some(event);
    }

    /// Returns whether events of at least this level are written for the request.
    pub(crate) fn wants(&self, level: Level) -> bool {
        let Some(inner) = &self.0 else { return false };
        inner.state().event.as_ref().is_some_and(|event| event.level() >= level)
    }

    fn change(&self, change: impl FnOnce(&mut AuditEvent)) {
        if let Some(inner) = &self.0
            && let Some(event) = &mut inner.state().event
        {
            change(event);
        }
    }

    /// Adds an annotation.
    ///
    /// Upstream: `AddAuditAnnotation`.
    pub(crate) fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        let Some(inner) = &self.0 else { return };
        let mut state = inner.state();
        match &mut state.event {
            Some(event) => event.annotate(key.into(), value.into()),
            None => state.early.push((key.into(), value.into())),
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

    /// Records the patch of the request.
    pub(crate) fn request_patch(&self, patch: impl FnOnce() -> Option<Value>) {
        if self.wants(Level::Request)
            && let Some(patch) = patch()
        {
            self.change(|event| event.set_request_patch(patch));
        }
    }

    /// Records the response, and writes the event of its stage. A response that lasts has its last event when it ends.
    /// `has_object` says that the body is an object of the API, if it is JSON or protobuf at all.
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
            response.body_mut().hold(Completion(self.clone()));
        } else {
            self.complete().await;
        }
    }

    fn record(&self, response: &mut Response<Body>, has_object: bool) {
        let all = has_object && self.wants(Level::RequestResponse);
        let body = if all { response.body_mut().gather() } else { response.body().peek() };
        if let Some(body) = body {
            let headers = response.headers();
            let object = (all || response::may_be_status(&body))
                .then(|| response::decode(headers, &body))
                .flatten();
            if let Some(object) = object {
                let is_status = response::is_status(&object);
                self.change(|event| {
                    if is_status {
                        event.set_response_status(&object);
                    }
                    if is_status || all {
                        event.set_response_object(object);
                    }
                });
            }
        }
        let code = response.status();
        self.change(|event| event.set_response_code(code));
    }

    /// Writes the last event of a request.
    async fn complete(&self) {
        if let Some(inner) = &self.0
            && !inner.is_complete.swap(true, Ordering::Relaxed)
        {
            inner.emit(Stage::ResponseComplete).await;
        }
    }

    /// Writes the event of a handler that panicked.
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

    /// Returns a guard that writes the last event if the request ends without a response.
    pub(crate) fn guard(&self) -> Abandoned {
        Abandoned(self.clone())
    }
}

/// Writes the last event of a request when its response has ended.
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

/// Writes the last event of a request whose client left before the response.
pub(crate) struct Abandoned(RequestAudit);

impl Abandoned {
    /// The response is there: it has its own event.
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
