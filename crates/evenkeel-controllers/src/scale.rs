//! The `scale` sub-resource of whatever has one, built in or custom, found by discovery.

use crate::answers::words;
use bytes::Bytes;
use evenkeel_api::{Kind, Text, time::Timestamp};
use evenkeel_runtime::{
    client::{ApiError, Client},
    discovery::{Discovered, Resource},
    plan::Failure,
};
use http::{
    Method, Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// How long what discovery told is taken for true (upstream resets its mapper as often).
const KNOWN_FOR_SECONDS: i64 = 30;

/// How long it is believed that a kind is not there.
const MISSED_FOR_SECONDS: i64 = 5;

/// What an object's `scale` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Scale {
    /// Of the object.
    pub(crate) uid: Text,
    /// Of the object.
    pub(crate) name: Text,
    /// Of the object.
    pub(crate) resource_version: Text,
    /// Pods wanted.
    pub(crate) replicas: i32,
    /// Pods there.
    pub(crate) current: i32,
    /// Which pods, in the form of a query; empty where it does not say.
    pub(crate) selector: Text,
}

/// Why there is no scale.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScaleError {
    /// No group has such a kind.
    #[error("no matches for kind {kind:?} in {place}")]
    NoKind {
        /// The kind.
        kind: String,
        /// Where it was looked for: `group "apps"` or `version "apps/v1"`.
        place: String,
    },
    /// The server's answer.
    #[error("{}", .0.message)]
    Refused(#[source] Failure),
}

/// What discovery told, and when.
type Found = (Timestamp, Arc<Discovered>);

/// Access to scales. Clones share what discovery told.
#[derive(Clone)]
pub(crate) struct Scales {
    client: Client,
    found: Arc<Mutex<Option<Found>>>,
}

impl Scales {
    /// Access with this client.
    pub(crate) fn new(client: Client) -> Self {
        Self { client, found: Arc::default() }
    }

    /// The resource of a kind in one version of its group.
    ///
    /// # Errors
    /// When there is none, or discovery does not answer.
    pub(crate) async fn resource(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Result<Resource, ScaleError> {
        let of_kind = |found: &Discovered| found.of_kind(api_version, kind).cloned();
        self.lookup(of_kind).await?.ok_or_else(|| ScaleError::NoKind {
            kind: kind.to_owned(),
            place: format!("version {api_version:?}"),
        })
    }

    /// The resources of a kind in its group, whichever versions have it: each once, in the preferred version.
    ///
    /// # Errors
    /// When there is none, or discovery does not answer.
    pub(crate) async fn resources(
        &self,
        group: &str,
        kind: &str,
    ) -> Result<Vec<Resource>, ScaleError> {
        let of_kind = |found: &Discovered| {
            let fits = |r: &&Resource| r.kind.group == group && r.kind.kind == kind;
            let all: Vec<Resource> = found.preferred().filter(fits).cloned().collect();
            (!all.is_empty()).then_some(all)
        };
        self.lookup(of_kind).await?.ok_or_else(|| ScaleError::NoKind {
            kind: kind.to_owned(),
            place: format!("group {group:?}"),
        })
    }

    /// An object's scale.
    ///
    /// # Errors
    /// The server's refusal; not found also where the kind has no scale.
    pub(crate) async fn get(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Scale, Failure> {
        self.exchange(Method::GET, kind, namespace, name, Bytes::new()).await
    }

    /// Asks for so many replicas of what `scale` is of, if it is still of that version.
    ///
    /// # Errors
    /// The server's refusal; a conflict where somebody else wrote to the object.
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

    /// What `find` gives of what discovery told, which is asked again when that is old, or has nothing and is not quite new.
    async fn lookup<T>(
        &self,
        find: impl Fn(&Discovered) -> Option<T>,
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

    /// What discovery told last, and how many seconds ago.
    fn known(&self) -> Option<(i64, Arc<Discovered>)> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, known) = found.as_ref()?;
        Some((self.client.clock().now().duration_since(*at).as_secs(), known.clone()))
    }
}

/// A failure that no server told.
fn local(message: String) -> Failure {
    Failure { code: 0, reason: String::new(), message, namespace_terminating: false }
}

/// `autoscaling/v1`'s Scale.
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
    /// Text in `autoscaling/v1`; a map where a server still answers in an old group's version.
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
