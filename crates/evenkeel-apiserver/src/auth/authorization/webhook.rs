//! Client of one authorization webhook: sends SubjectAccessReviews, and caches the decisions.
//!
//! Upstream: `WebhookAuthorizer`.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_api::{duration, json};
use evenkeel_apimachinery::value::{flag, text};
use http::StatusCode;
use http::header::RETRY_AFTER;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::conditions::{Condition, Matched, matches, with_empty_fields};
use super::decision::{Decision, Effect};
use super::metrics::Metrics;
use crate::auth::rbac::aggregate;
use crate::clock::Clock;
use crate::https::{Target, error_of_response};

/// Maximum number of attempts to ask.
const MAX_ATTEMPTS: u32 = 5;
/// Delay before the second attempt.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
/// Factor by which the delay between two attempts grows.
const BACKOFF_FACTOR: f64 = 1.5;
/// Maximum size of a response in bytes.
const MAX_RESPONSE_SIZE: usize = 1024 * 1024;
/// Maximum number of cached decisions.
const MAX_REMEMBERED: usize = 8192;
/// Maximum size in bytes of a review whose decision is cached. Upstream: `maxControlledAttrCacheSize`.
const MAX_REMEMBERED_SIZE: usize = 10_000;

/// Settings of a webhook.
pub(super) struct Settings {
    pub(super) name: String,
    pub(super) target: Target,
    /// Version of the SubjectAccessReview: `v1` or `v1beta1`.
    pub(super) version: String,
    pub(super) timeout: Duration,
    /// Lifetime of a cached decision that allows; zero disables the cache.
    pub(super) authorized_ttl: Duration,
    /// Lifetime of any other cached decision; zero disables the cache.
    pub(super) unauthorized_ttl: Duration,
    /// Whether a request is denied when the webhook fails. Otherwise the next authorizer decides.
    pub(super) denies_on_error: bool,
    pub(super) conditions: Vec<Condition>,
}

/// Authorizer that asks a webhook.
pub(crate) struct Webhook {
    settings: Settings,
    clock: Clock,
    metrics: Arc<Metrics>,
    remembered: Mutex<Remembered>,
}

/// Cached decisions. A full cache evicts the oldest ones.
#[derive(Default)]
struct Remembered {
    by_spec: HashMap<String, (Decision, Instant)>,
    order: VecDeque<String>,
}

/// Failure of one attempt.
struct Failure {
    why: String,
    is_timeout: bool,
    should_retry: bool,
}

impl Webhook {
    pub(super) fn new(settings: Settings, clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self { settings, clock, metrics, remembered: Mutex::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Returns the decision about a request that the conditions exclude or fail on; `None` if the webhook must be
    /// called.
    ///
    /// Upstream: `WebhookAuthorizer.match`.
    pub(super) fn decide_by_conditions(&self, spec: &Value) -> Option<Decision> {
        if self.settings.conditions.is_empty() {
            return None;
        }
        let started = self.clock.instant();
        let matched = matches(&self.settings.conditions, &with_empty_fields(spec));
        let elapsed = self.clock.instant().saturating_duration_since(started);
        self.metrics.record_match_conditions(self.name(), &matched, elapsed);
        match matched {
            Matched::Yes => None,
            Matched::No => Some(Decision::no_opinion("")),
            Matched::Failed(errors) => {
                Some(self.decision_on_error(aggregate(errors.into_iter()).unwrap_or_default()))
            }
        }
    }

    fn decision_on_error(&self, error: String) -> Decision {
        let effect = if self.settings.denies_on_error { Effect::Deny } else { Effect::NoOpinion };
        Decision { effect, reason: String::new(), error: Some(error) }
    }

    /// Returns the webhook's decision about a review's `spec`, whose JSON is `key`.
    pub(super) async fn review(&self, spec: &Value, key: &str) -> Decision {
        let now = self.clock.instant();
        if let Some(decision) = self.remembered().get(key, now) {
            return decision;
        }
        let status = match self.ask_with_retries(spec).await {
            Ok(status) => status,
            Err(Failure { why, is_timeout, .. }) => {
                tracing::error!(
                    webhook = self.name(),
                    error = why,
                    "an authorization webhook failed"
                );
                if !self.settings.denies_on_error {
                    self.metrics.record_fail_open(self.name(), is_timeout);
                }
                return self.decision_on_error(why);
            }
        };
        let decision = decision_of_status(&status);
        let allowed = flag(&status, "allowed");
        let ttl =
            if allowed { self.settings.authorized_ttl } else { self.settings.unauthorized_ttl };
        if !ttl.is_zero() && key.len() < MAX_REMEMBERED_SIZE {
            self.remembered().insert(key, decision.clone(), self.clock.instant() + ttl);
        }
        decision
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the review to the webhook, and retries after failures that may be temporary.
    ///
    /// Upstream: `WithExponentialBackoff`.
    async fn ask_with_retries(&self, spec: &Value) -> Result<Value, Failure> {
        let mut backoff = INITIAL_BACKOFF;
        for _ in 1..MAX_ATTEMPTS {
            match self.ask_and_count(spec).await {
                Err(failure) if failure.should_retry => {
                    tracing::debug!(webhook = self.name(), error = failure.why, "asking again");
                }
                result => return result,
            }
            tokio::time::sleep(backoff).await;
            backoff = backoff.mul_f64(BACKOFF_FACTOR);
        }
        self.ask_and_count(spec).await
    }

    async fn ask_and_count(&self, spec: &Value) -> Result<Value, Failure> {
        let started = self.clock.instant();
        let result = self.ask(spec).await;
        let outcome = match &result {
            Ok(_) => "success",
            Err(Failure { is_timeout: true, .. }) => "timeout",
            Err(_) => "error",
        };
        let elapsed = self.clock.instant().saturating_duration_since(started);
        self.metrics.record_webhook_call(self.name(), outcome, elapsed);
        result
    }

    /// Makes one attempt. Returns the review's status.
    async fn ask(&self, spec: &Value) -> Result<Value, Failure> {
        let Settings { target, version, timeout, .. } = &self.settings;
        let nanoseconds = i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX);
        let query = format!("timeout={}", duration::format(nanoseconds));
        let failed = |why: String, is_timeout, should_retry| {
            let why = format!("Post \"{}?{query}\": {why}", target.url());
            Failure { why, is_timeout, should_retry }
        };
        let body = Bytes::from(review(spec, version).to_string());
        let response = target.post(body, &query, MAX_RESPONSE_SIZE);
        let response = match tokio::time::timeout(*timeout, response).await {
            Err(_) => return Err(failed("context deadline exceeded".to_owned(), true, false)),
            Ok(Err(why)) => {
                let is_reset = why.contains("reset by peer") || why.contains("was closed");
                return Err(failed(why, false, is_reset));
            }
            Ok(Ok(response)) => response,
        };
        let code = response.status();
        if !code.is_success() {
            let is_timeout = code == StatusCode::GATEWAY_TIMEOUT;
            let may_pass = is_timeout
                || code == StatusCode::INTERNAL_SERVER_ERROR
                || code == StatusCode::TOO_MANY_REQUESTS;
            let should_retry = may_pass || response.headers().contains_key(RETRY_AFTER);
            let why = error_of_response(code, response.body());
            return Err(Failure { why, is_timeout, should_retry });
        }
        let malformed = |why: String| Failure { why, is_timeout: false, should_retry: false };
        let answer: Value =
            json::from_slice(response.body()).map_err(|error| malformed(error.to_string()))?;
        let expected = format!("authorization.k8s.io/{version}");
        if text(&answer, "kind") != "SubjectAccessReview" || text(&answer, "apiVersion") != expected
        {
            return Err(malformed(format!(
                "the answer is a {:?} of {:?}, and must be a SubjectAccessReview of {expected}",
                text(&answer, "kind"),
                text(&answer, "apiVersion")
            )));
        }
        Ok(answer.get("status").cloned().unwrap_or_default())
    }
}

impl Remembered {
    fn get(&self, key: &str, now: Instant) -> Option<Decision> {
        let (decision, until) = self.by_spec.get(key)?;
        (*until > now).then(|| decision.clone())
    }

    fn insert(&mut self, key: &str, decision: Decision, until: Instant) {
        if self.by_spec.insert(key.to_owned(), (decision, until)).is_none() {
            self.order.push_back(key.to_owned());
        }
        if self.order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_spec.remove(&oldest);
        }
    }
}

/// Returns the review of a `spec` in a version. `v1beta1` names the groups in the singular.
///
/// Upstream: `v1SpecToV1beta1Spec`.
fn review(spec: &Value, version: &str) -> Value {
    let mut spec = spec.clone();
    if version == "v1beta1"
        && let Some(fields) = spec.as_object_mut()
        && let Some(groups) = fields.remove("groups")
    {
        fields.insert("group".to_owned(), groups);
    }
    json!({"kind": "SubjectAccessReview", "apiVersion": format!("authorization.k8s.io/{version}"),
        "metadata": {}, "spec": spec, "status": {"allowed": false}})
}

/// Returns the decision in a review's status.
fn decision_of_status(status: &Value) -> Decision {
    let reason = text(status, "reason").to_owned();
    let (effect, error) = match (flag(status, "denied"), flag(status, "allowed")) {
        (true, true) => {
            let why = "webhook subject access review returned both allow and deny response";
            (Effect::Deny, Some(why.to_owned()))
        }
        (true, false) => (Effect::Deny, None),
        (false, true) => (Effect::Allow, None),
        (false, false) => (Effect::NoOpinion, None),
    };
    Decision { effect, reason, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_decision() {
        for (status, effect, error) in [
            (json!({"allowed": true, "reason": "r"}), Effect::Allow, false),
            (json!({"allowed": false}), Effect::NoOpinion, false),
            (json!({"denied": true}), Effect::Deny, false),
            (json!({"denied": true, "allowed": true}), Effect::Deny, true),
            (Value::Null, Effect::NoOpinion, false),
        ] {
            let decision = decision_of_status(&status);
            assert_eq!((decision.effect, decision.error.is_some()), (effect, error), "{status}");
        }
    }

    #[test]
    fn the_groups_of_v1beta1_are_named_in_the_singular() {
        let spec = json!({"user": "a", "groups": ["b"]});
        let beta = review(&spec, "v1beta1");
        assert_eq!(beta["spec"], json!({"user": "a", "group": ["b"]}));
        assert_eq!(beta["apiVersion"], "authorization.k8s.io/v1beta1");
        assert_eq!(review(&spec, "v1")["spec"], spec);
    }

    #[tokio::test(start_paused = true)]
    async fn remembered_answers_expire_and_give_way() {
        let now = Clock::system().instant();
        let mut remembered = Remembered::default();
        let decision = Decision::no_opinion("r");
        for index in 0..=MAX_REMEMBERED {
            let until = now + Duration::from_secs(5);
            remembered.insert(&index.to_string(), decision.clone(), until);
        }
        assert_eq!(remembered.get("0", now), None, "it was the oldest");
        assert_eq!(remembered.get("1", now), Some(decision));
        assert_eq!(remembered.get("1", now + Duration::from_secs(5)), None);
        assert_eq!(remembered.by_spec.len(), MAX_REMEMBERED);
    }
}
