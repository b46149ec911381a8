//! TokenReview and SubjectAccessReview with a cache of their results.
//!
//! Upstream: `apiserver/plugin/pkg/authenticator/token/webhook`, `apiserver/plugin/pkg/authorizer/webhook`.

use super::{
    metrics::{Metrics, Review as ReviewKind},
    user::User,
};
use crate::{
    client::{ApiError, Client, full_text},
    clock::Clock,
};
use bytes::Bytes;
use evenkeel_api::time::Timestamp;
use http::{Method, Request, StatusCode, header};
use ring::hmac;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Maximum number of cached results of each kind.
const CACHE_CAPACITY: usize = 1024;
/// Maximum size of a cached request in bytes, so that clients cannot exhaust memory.
const MAX_CACHED_REQUEST_SIZE: usize = 10_000;
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of attempts of a review. The constants below define the backoff between them.
///
/// Upstream: `DefaultAuthWebhookRetryBackoff`.
const MAX_ATTEMPTS: u32 = 5;
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const BACKOFF_FACTOR: f64 = 1.5;
const BACKOFF_JITTER: f64 = 0.2;

/// Time to live of cached results. Zero disables the cache.
#[derive(Debug, Clone, Copy)]
pub struct ReviewCacheTtls {
    /// For results of TokenReviews.
    pub token: Duration,
    /// For SubjectAccessReviews that allow the request (`--authorization-webhook-cache-authorized-ttl`).
    pub granted: Duration,
    /// For SubjectAccessReviews that deny the request (`--authorization-webhook-cache-unauthorized-ttl`).
    pub denied: Duration,
}

/// Client of TokenReview and SubjectAccessReview.
pub struct ReviewClient {
    client: Client,
    clock: Clock,
    ttls: ReviewCacheTtls,
    metrics: Option<Metrics>,
    /// Secret key of the hash that replaces tokens as cache keys. The cache thus contains no tokens, and clients
    /// cannot provoke collisions.
    key: hmac::Key,
    /// Results of TokenReviews by the token's hash.
    tokens: Mutex<ReviewCache<[u8; 32], Option<User>>>,
    /// Results of SubjectAccessReviews by user, verb and path.
    access_reviews: Mutex<ReviewCache<(User, String, String), Access>>,
}

/// Results of reviews, each with the time when it expires.
type ReviewCache<K, V> = HashMap<K, (V, Timestamp)>;

/// Response to a TokenReview or a SubjectAccessReview.
#[derive(Deserialize)]
struct Review<S> {
    status: S,
}

/// Status of a TokenReview.
#[derive(Deserialize)]
struct TokenStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: TokenUser,
    #[serde(default)]
    error: String,
}

/// User in the status of a TokenReview.
#[derive(Deserialize, Default)]
#[serde(default)]
struct TokenUser {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// Result of a SubjectAccessReview.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Access {
    #[serde(default)]
    pub(super) allowed: bool,
    #[serde(default)]
    pub(super) denied: bool,
    #[serde(default)]
    pub(super) reason: String,
}

impl ReviewClient {
    /// Creates a client that sends reviews with `client`. Its user needs the role `system:auth-delegator`.
    pub fn new(client: Client, clock: Clock, ttls: ReviewCacheTtls) -> Self {
        let random = [0u64; 4].map(|_| rand::random::<u64>().to_le_bytes());
        let key = hmac::Key::new(hmac::HMAC_SHA256, random.as_flattened());
        Self {
            client,
            clock,
            ttls,
            metrics: None,
            key,
            tokens: Mutex::default(),
            access_reviews: Mutex::default(),
        }
    }

    pub(super) fn with_metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    /// Returns the user of a token, or `None` if the token is invalid.
    pub(super) async fn authenticate_token(&self, token: &str) -> Result<Option<User>, String> {
        let start = self.clock.instant();
        let hash = hmac::sign(&self.key, token.as_bytes());
        let key: [u8; 32] = hash.as_ref().try_into().unwrap_or_default();
        let cached_user = cached(&self.tokens, &key, self.clock.now());
        let hit = cached_user.is_some();
        let user = match cached_user {
            Some(user) => Ok(user),
            None => self.review_token(token, key).await,
        };
        if let Some(metrics) = &self.metrics {
            metrics.record_token_authentication(hit, start.elapsed());
        }
        user
    }

    async fn review_token(&self, token: &str, key: [u8; 32]) -> Result<Option<User>, String> {
        let _in_flight = self.metrics.as_ref().map(Metrics::token_review_in_flight);
        let review = serde_json::json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        let status: TokenStatus = self
            .send_review(ReviewKind::Token, "/apis/authentication.k8s.io/v1/tokenreviews", &review)
            .await?;
        if !status.authenticated && !status.error.is_empty() {
            return Err(status.error);
        }
        let TokenUser { username: name, uid, groups, extra } = status.user;
        let user = status.authenticated.then_some(User { name, uid, groups, extra });
        self.store(&self.tokens, key, user.clone(), self.ttls.token);
        Ok(user)
    }

    /// Reviews whether the user may use the verb on a path.
    pub(super) async fn review_access(
        &self,
        user: &User,
        verb: &str,
        path: &str,
    ) -> Result<Access, String> {
        let key = (user.clone(), verb.to_owned(), path.to_owned());
        if let Some(access) = cached(&self.access_reviews, &key, self.clock.now()) {
            return Ok(access);
        }
        let mut review = serde_json::json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name, "groups": user.groups,
                "nonResourceAttributes": {"path": path, "verb": verb},
            },
        });
        if !user.uid.is_empty() {
            review["spec"]["uid"] = user.uid.clone().into();
        }
        if !user.extra.is_empty() {
            review["spec"]["extra"] = serde_json::json!(user.extra);
        }
        let access: Access = self
            .send_review(
                ReviewKind::Access,
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                &review,
            )
            .await?;
        let ttl = if access.allowed { self.ttls.granted } else { self.ttls.denied };
        if verb.len() + path.len() + request_size(user) <= MAX_CACHED_REQUEST_SIZE {
            self.store(&self.access_reviews, key, access.clone(), ttl);
        }
        Ok(access)
    }

    /// Sends a review, retries it after transient errors, and returns its status.
    async fn send_review<S: for<'de> Deserialize<'de>>(
        &self,
        kind: ReviewKind,
        path: &str,
        review: &serde_json::Value,
    ) -> Result<S, String> {
        let body = Bytes::from(review.to_string());
        let mut backoff = INITIAL_BACKOFF;
        let mut attempt = 1;
        loop {
            let request = Request::builder()
                .method(Method::POST)
                .uri(path)
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::ACCEPT, "application/json")
                .body(body.clone())
                .map_err(|error| error.to_string())?;
            let start = self.clock.instant();
            let answer = tokio::time::timeout(REVIEW_TIMEOUT, self.client.raw(request)).await;
            if let Some(metrics) = &self.metrics {
                metrics.record_review(kind, code(answer.as_ref().ok()), start.elapsed());
            }
            let error = match answer {
                Err(_) => return Err(format!("no answer within {} s", REVIEW_TIMEOUT.as_secs())),
                Ok(Ok(answer)) => {
                    let review: Result<Review<S>, _> = serde_json::from_slice(answer.body());
                    return review.map(|review| review.status).map_err(|error| error.to_string());
                }
                Ok(Err(error)) => error,
            };
            if attempt == MAX_ATTEMPTS || !is_transient(&error) {
                return Err(full_text(&error));
            }
            attempt += 1;
            let jitter = 1.0 + BACKOFF_JITTER * self.clock.draw(&path);
            self.clock.sleep(backoff.mul_f64(jitter)).await;
            backoff = backoff.mul_f64(BACKOFF_FACTOR);
        }
    }

    /// Stores a result in a cache. A full cache first drops its expired results, or else all results.
    fn store<K: Eq + Hash, V>(
        &self,
        cache: &Mutex<ReviewCache<K, V>>,
        key: K,
        value: V,
        ttl: Duration,
    ) {
        if ttl.is_zero() {
            return;
        }
        let now = self.clock.now();
        let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= CACHE_CAPACITY {
            cache.retain(|_, (_, expires)| now < *expires);
        }
        if cache.len() >= CACHE_CAPACITY {
            cache.clear();
        }
        cache.insert(key, (value, now + ttl));
    }
}

/// Returns the status code of a response.
fn code(answer: Option<&Result<http::Response<Bytes>, ApiError>>) -> Option<StatusCode> {
    match answer? {
        Ok(answer) => Some(answer.status()),
        Err(error) => StatusCode::from_u16(error.code()).ok(),
    }
}

/// Returns whether the error is transient, so that a retry may succeed.
fn is_transient(error: &ApiError) -> bool {
    match error.status() {
        None => matches!(error, ApiError::Transport { .. }),
        Some(status) => {
            status.code == 429 || &*status.reason == "InternalError" || status.retry_after.is_some()
        }
    }
}

/// Returns the number of bytes of a user's attributes in a review.
fn request_size(user: &User) -> usize {
    let extra = user.extra.iter().flat_map(|(key, values)| values.iter().chain([key]));
    user.name.len()
        + user.uid.len()
        + user.groups.iter().chain(extra).map(String::len).sum::<usize>()
}

/// Returns a cached result that has not expired.
fn cached<K: Eq + Hash, V: Clone>(
    cache: &Mutex<ReviewCache<K, V>>,
    key: &K,
    now: Timestamp,
) -> Option<V> {
    let cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
    cache.get(key).filter(|(_, expires)| now < *expires).map(|(value, _)| value.clone())
}

#[cfg(test)]
mod tests;
