//! Client of the scale sub-resource, with a cache of discovery. Upstream: `client-go/scale`.

use super::{Scale, ScaleError, body, decode};
use crate::answers::words;
use bytes::Bytes;
use evenkeel_api::{Kind, time::Timestamp};
use evenkeel_runtime::{
    client::{ApiError, Client},
    discovery::{Resource, ServerResources},
    plan::Failure,
};
use http::{
    Method, Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use std::sync::{Arc, Mutex, PoisonError};

/// Seconds for which a discovery result is cached; upstream resets its REST mapper as often.
const KNOWN_FOR_SECONDS: i64 = 30;

/// Seconds before a missing kind is looked up again.
const MISSED_FOR_SECONDS: i64 = 5;

/// A discovery result and its time.
type Found = (Timestamp, Arc<ServerResources>);

/// Client for scales; clones share the discovery cache.
#[derive(Clone)]
pub(crate) struct Scales {
    client: Client,
    found: Arc<Mutex<Option<Found>>>,
}

impl Scales {
    /// Builds a client for scales.
    pub(crate) fn new(client: Client) -> Self {
        Self { client, found: Arc::default() }
    }

    /// Returns the resources of a kind in its group, each in the preferred version.
    ///
    /// # Errors
    /// When none exists, or discovery fails.
    pub(crate) async fn resources(
        &self,
        group: &str,
        kind: &str,
    ) -> Result<Vec<Resource>, ScaleError> {
        let of_kind = |found: &ServerResources| {
            let fits = |r: &&Resource| r.kind.group == group && r.kind.kind == kind;
            let all: Vec<Resource> = found.preferred().filter(fits).cloned().collect();
            (!all.is_empty()).then_some(all)
        };
        self.lookup(of_kind).await?.ok_or_else(|| ScaleError::NoKind {
            kind: kind.to_owned(),
            place: format!("group {group:?}"),
        })
    }

    /// Reads the scale of an object.
    ///
    /// # Errors
    /// The API server's error; NotFound also for a kind without scale.
    pub(crate) async fn get(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Scale, Failure> {
        self.exchange(Method::GET, kind, namespace, name, Bytes::new()).await
    }

    /// Sets the replicas, with the resource version of `scale` as precondition.
    ///
    /// # Errors
    /// The API server's error; a conflict if the object has changed.
    pub(crate) async fn set(
        &self,
        kind: &Kind,
        namespace: &str,
        scale: &Scale,
        replicas: i32,
    ) -> Result<Scale, Failure> {
        let body = body(namespace, scale, replicas);
        self.exchange(Method::PUT, kind, namespace, &scale.name, body.into()).await
    }

    async fn exchange(
        &self,
        method: Method,
        kind: &Kind,
        namespace: &str,
        name: &str,
        body: Bytes,
    ) -> Result<Scale, Failure> {
        let path = format!("{}/{name}/scale", kind.path(namespace));
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(ACCEPT, "application/json");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(body).map_err(|error| local(error.to_string()))?;
        let refused = |error: ApiError| Failure {
            message: words(&Failure::from(&error), ""),
            ..error.into()
        };
        let answer = self.client.raw(request).await.map_err(refused)?;
        decode(answer.body()).map_err(|error| {
            local(format!(
                "the scale of {} {namespace}/{name} cannot be read: {error}",
                kind.plural
            ))
        })
    }

    /// Applies `find` to the discovery result, and refreshes an old one, or one without a result that is not recent.
    async fn lookup<T>(
        &self,
        find: impl Fn(&ServerResources) -> Option<T>,
    ) -> Result<Option<T>, ScaleError> {
        if let Some((age, known)) = self.known() {
            let there = find(&known);
            let good_for = if there.is_some() { KNOWN_FOR_SECONDS } else { MISSED_FOR_SECONDS };
            if age < good_for {
                return Ok(there);
            }
        }
        let fresh = self.client.api_resources().await;
        let fresh = fresh.map_err(|error| ScaleError::Refused(Failure::from(&error)))?;
        let now = self.client.clock().now();
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, fresh.clone()));
        Ok(find(&fresh))
    }

    /// Returns the cached discovery result and its age in seconds.
    fn known(&self) -> Option<(i64, Arc<ServerResources>)> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, known) = found.as_ref()?;
        Some((self.client.clock().now().duration_since(*at).as_secs(), known.clone()))
    }
}

/// Returns an error that occurred before a request.
fn local(message: String) -> Failure {
    Failure { code: 0, reason: String::new(), message, namespace_terminating: false }
}
