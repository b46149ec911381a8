//! What the cluster says of a token and of a right, remembered for a while.

use super::{
    guard::User,
    metrics::{Metrics, Review as Asked},
};
use crate::{client::Client, clock::Clock};
use bytes::Bytes;
use evenkeel_api::time::Timestamp;
use http::{Method, Request, StatusCode, header};
use serde::Deserialize;
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Mutex,
    time::Duration,
};
use tokio::time::Instant;

/// At most so many answers are remembered of each sort.
const CAPACITY: usize = 1024;

/// How long answers hold.
#[derive(Debug, Clone, Copy)]
pub struct ReviewTimes {
    /// What a token is.
    pub token: Duration,
    /// A right that was granted.
    pub granted: Duration,
    /// A right that was denied.
    pub denied: Duration,
}

/// Asks the cluster by TokenReview and SubjectAccessReview.
pub struct Reviews {
    client: Client,
    clock: Clock,
    times: ReviewTimes,
    metrics: Option<Metrics>,
    /// Tokens are kept as keyed hashes: nothing that could be read out of memory.
    hasher: RandomState,
    tokens: Mutex<Remembered<(u64, u64), Option<User>>>,
    rights: Mutex<Remembered<(User, String, String), bool>>,
}

type Remembered<K, V> = HashMap<K, (V, Timestamp)>;

#[derive(Deserialize)]
struct Review<S> {
    status: S,
}

#[derive(Deserialize)]
struct TokenStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: TokenUser,
}

#[derive(Deserialize, Default)]
struct TokenUser {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Vec<String>,
}

#[derive(Deserialize)]
struct AccessStatus {
    #[serde(default)]
    allowed: bool,
}

impl Reviews {
    /// Asks through this client, whose user must be allowed to (`system:auth-delegator`).
    pub fn new(client: Client, clock: Clock, times: ReviewTimes) -> Self {
        Self {
            client,
            clock,
            times,
            metrics: None,
            hasher: RandomState::new(),
            tokens: Mutex::default(),
            rights: Mutex::default(),
        }
    }

    pub(super) fn counting(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    /// Whose token this is; `None` if nobody's.
    pub(super) async fn whose(&self, token: &str) -> Result<Option<User>, String> {
        let start = Instant::now();
        let key = (self.hasher.hash_one(token), self.hasher.hash_one((token, token.len())));
        let known = recall(&self.tokens, &key, self.clock.now());
        let hit = known.is_some();
        let user = match known {
            Some(user) => Ok(user),
            None => self.review_token(token, key).await,
        };
        if let Some(metrics) = &self.metrics {
            metrics.token(hit, start.elapsed());
        }
        user
    }

    async fn review_token(&self, token: &str, key: (u64, u64)) -> Result<Option<User>, String> {
        let _fetching = self.metrics.as_ref().map(Metrics::fetching);
        let review = serde_json::json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        let status: TokenStatus =
            self.ask(Asked::Token, "/apis/authentication.k8s.io/v1/tokenreviews", &review).await?;
        let user = status
            .authenticated
            .then_some(User { name: status.user.username, groups: status.user.groups });
        remember(&self.tokens, key, user.clone(), self.clock.now(), self.times.token);
        Ok(user)
    }

    /// Whether the user may do this to a path.
    pub(super) async fn may(&self, user: &User, verb: &str, path: &str) -> Result<bool, String> {
        let key = (user.clone(), verb.to_owned(), path.to_owned());
        if let Some(granted) = recall(&self.rights, &key, self.clock.now()) {
            return Ok(granted);
        }
        let review = serde_json::json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name, "groups": user.groups,
                "nonResourceAttributes": {"path": path, "verb": verb},
            },
        });
        let status: AccessStatus = self
            .ask(Asked::Access, "/apis/authorization.k8s.io/v1/subjectaccessreviews", &review)
            .await?;
        let time = if status.allowed { self.times.granted } else { self.times.denied };
        remember(&self.rights, key, status.allowed, self.clock.now(), time);
        Ok(status.allowed)
    }

    async fn ask<S: for<'de> Deserialize<'de>>(
        &self,
        asked: Asked,
        path: &str,
        review: &serde_json::Value,
    ) -> Result<S, String> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Bytes::from(review.to_string()))
            .map_err(|error| error.to_string())?;
        let start = Instant::now();
        let answer = self.client.raw(request).await;
        if let Some(metrics) = &self.metrics {
            let code = answer.as_ref().map_or_else(
                |error| StatusCode::from_u16(error.code()).ok(),
                |answer| Some(answer.status()),
            );
            metrics.reviewed(asked, code, start.elapsed());
        }
        let answer = answer.map_err(|error| error.to_string())?;
        let review: Review<S> =
            serde_json::from_slice(answer.body()).map_err(|error| error.to_string())?;
        Ok(review.status)
    }
}

fn recall<K: Eq + std::hash::Hash, V: Clone>(
    remembered: &Mutex<Remembered<K, V>>,
    key: &K,
    now: Timestamp,
) -> Option<V> {
    let remembered = remembered.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    remembered.get(key).filter(|(_, until)| now < *until).map(|(value, _)| value.clone())
}

fn remember<K: Eq + std::hash::Hash, V>(
    remembered: &Mutex<Remembered<K, V>>,
    key: K,
    value: V,
    now: Timestamp,
    time: Duration,
) {
    let mut remembered = remembered.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if remembered.len() >= CAPACITY {
        remembered.retain(|_, (_, until)| now < *until);
    }
    if remembered.len() >= CAPACITY {
        remembered.clear();
    }
    remembered.insert(key, (value, now + time));
}
