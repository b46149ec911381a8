//! Scale sub-resource of built-in and custom kinds, found by discovery. Upstream: `client-go/scale`.

use crate::answers::words;
use bytes::Bytes;
use evenkeel_api::{Kind, Text, time::Timestamp};
use evenkeel_runtime::{
    client::{ApiError, Client},
    discovery::{Resource, ServerResources},
    plan::Failure,
};
use http::{
    Method, Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// Seconds for which a discovery result is cached; upstream resets its REST mapper as often.
const KNOWN_FOR_SECONDS: i64 = 30;

/// Seconds before a missing kind is looked up again.
const MISSED_FOR_SECONDS: i64 = 5;

/// Scale of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Scale {
    /// Uid of the scaled object.
    pub(crate) uid: Text,
    /// Name of the scaled object.
    pub(crate) name: Text,
    /// Resource version of the scaled object.
    pub(crate) resource_version: Text,
    /// Desired replicas, `spec.replicas` of the scale.
    pub(crate) replicas: i32,
    /// Observed replicas, `status.replicas` of the scale.
    pub(crate) current: i32,
    /// `status.selector` as a query string; empty without one.
    pub(crate) selector: Text,
}

/// Why a scale could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScaleError {
    /// Discovery has no such kind in the group.
    #[error("no matches for kind {kind:?} in {place}")]
    NoKind {
        /// The kind, as in the reference.
        kind: String,
        /// The searched group or version: `group "apps"` or `version "apps/v1"`.
        place: String,
    },
    /// The API server's error.
    #[error("{}", .0.message)]
    Refused(#[source] Failure),
}

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

    /// Returns the resource of a kind in one version of its group.
    ///
    /// # Errors
    /// When it does not exist, or discovery fails.
    pub(crate) async fn resource(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Result<Resource, ScaleError> {
        let of_kind = |found: &ServerResources| found.of_kind(api_version, kind).cloned();
        self.lookup(of_kind).await?.ok_or_else(|| ScaleError::NoKind {
            kind: kind.to_owned(),
            place: format!("version {api_version:?}"),
        })
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
        let body = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {
                "name": scale.name, "namespace": namespace, "uid": scale.uid,
                "resourceVersion": scale.resource_version,
            },
            "spec": {"replicas": replicas},
            "status": {"replicas": scale.current, "selector": scale.selector},
        });
        self.exchange(Method::PUT, kind, namespace, &scale.name, body.to_string().into()).await
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
        let refused =
            |error: ApiError| Failure { message: words(&error, ""), ..Failure::from(&error) };
        let answer = self.client.raw(request).await.map_err(refused)?;
        let wire: Wire = serde_json::from_slice(answer.body()).map_err(|error| {
            local(format!(
                "the scale of {} {namespace}/{name} cannot be read: {error}",
                kind.plural
            ))
        })?;
        Ok(wire.into())
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

/// Scale of `autoscaling/v1`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wire {
    metadata: WireMeta,
    spec: WireReplicas,
    status: WireStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireMeta {
    uid: Text,
    name: Text,
    resource_version: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireReplicas {
    replicas: i32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    replicas: i32,
    /// A string in `autoscaling/v1`; a map in versions of older groups.
    selector: Value,
}

impl From<Wire> for Scale {
    fn from(wire: Wire) -> Self {
        Self {
            uid: wire.metadata.uid,
            name: wire.metadata.name,
            resource_version: wire.metadata.resource_version,
            replicas: wire.spec.replicas,
            current: wire.status.replicas,
            selector: wire.status.selector.as_str().unwrap_or_default().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_read_as_far_as_it_is_there() {
        let text = r#"{"kind":"Scale","metadata":{"name":"web","uid":"u","resourceVersion":"7"},
            "spec":{"replicas":3},"status":{"replicas":2,"selector":"app=web"}}"#;
        let scale: Scale = serde_json::from_str::<Wire>(text).map(Scale::from).unwrap();
        assert_eq!((scale.replicas, scale.current, &*scale.selector), (3, 2, "app=web"));
        let bare: Scale = serde_json::from_str::<Wire>(r#"{"spec":{}}"#).map(Scale::from).unwrap();
        assert_eq!(bare, Scale::default());
    }
}
