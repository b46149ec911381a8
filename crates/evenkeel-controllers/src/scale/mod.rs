//! Subresource `scale` of built-in and custom kinds: its wire form, and the steps that find the kind by discovery.
//! Upstream: `client-go/scale`.

mod read;

pub(crate) use read::{get, resource, resources, update};

use evenkeel_api::Text;
use evenkeel_runtime::plan::Failure;
use serde::Deserialize;
use serde_json::{Value, json};

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

/// Error in reading a scale.
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

/// Encodes a scale with `replicas` as desired replicas, and the resource version of `scale` as precondition.
fn body(namespace: &str, scale: &Scale, replicas: i32) -> String {
    let body = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {
            "name": scale.name, "namespace": namespace, "uid": scale.uid,
            "resourceVersion": scale.resource_version,
        },
        "spec": {"replicas": replicas},
        "status": {"replicas": scale.current, "selector": scale.selector},
    });
    body.to_string()
}

/// Decodes a scale of `autoscaling/v1`; missing fields get defaults.
fn decode(body: &[u8]) -> Result<Scale, serde_json::Error> {
    serde_json::from_slice::<Wire>(body).map(Scale::from)
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
    fn missing_fields_of_a_scale_are_defaults() {
        let text = r#"{"kind":"Scale","metadata":{"name":"web","uid":"u","resourceVersion":"7"},
            "spec":{"replicas":3},"status":{"replicas":2,"selector":"app=web"}}"#;
        let scale: Scale = decode(text.as_bytes()).unwrap();
        assert_eq!((scale.replicas, scale.current, &*scale.selector), (3, 2, "app=web"));
        let bare: Scale = decode(br#"{"spec":{}}"#).unwrap();
        assert_eq!(bare, Scale::default());
    }
}
