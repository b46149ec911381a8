//! Client of the `scale` subresource of any kind. It finds the kind's resource by discovery, and reads and updates the
//! scale.
//! Upstream: `client-go/scale`.

mod read;

pub(crate) use read::{Step, get, resource_for_version, resources_in_group, update};

use evenkeel_api::Text;
use evenkeel_runtime::plan::Failure;
use serde::{Deserialize, Deserializer};
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
    /// `status.selector`: a label selector in string form. Empty if absent or not a string.
    pub(crate) selector: Text,
}

/// Failure to find the resource of a scaled kind.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KindLookupError {
    /// Discovery has no such kind in the group.
    #[error("no matches for kind {kind:?} in {place}")]
    NoKind {
        /// The kind, as in the reference.
        kind: String,
        /// The searched group or version: `group "apps"` or `version "apps/v1"`.
        place: String,
    },
    /// The discovery request failed.
    #[error("{}", .0.message)]
    Discovery(#[source] Failure),
}

/// Encodes an update of `scale` to `replicas`. It fails if the resource version has changed since `scale` was read.
fn update_body(namespace: &str, scale: &Scale, replicas: i32) -> String {
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

/// Decodes a scale of `autoscaling/v1`. As in Go, absent fields and `null` keep their defaults.
fn decode(body: &[u8]) -> Result<Scale, serde_json::Error> {
    serde_json::from_slice::<Wire>(body).map(Scale::from)
}

/// Scale of `autoscaling/v1`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wire {
    #[serde(deserialize_with = "null_as_default")]
    metadata: WireMeta,
    #[serde(deserialize_with = "null_as_default")]
    spec: WireSpec,
    #[serde(deserialize_with = "null_as_default")]
    status: WireStatus,
}

/// Metadata of a scale.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireMeta {
    #[serde(deserialize_with = "null_as_default")]
    uid: Text,
    #[serde(deserialize_with = "null_as_default")]
    name: Text,
    #[serde(deserialize_with = "null_as_default")]
    resource_version: Text,
}

/// Spec of a scale.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireSpec {
    #[serde(deserialize_with = "null_as_default")]
    replicas: i32,
}

/// Status of a scale.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    #[serde(deserialize_with = "null_as_default")]
    replicas: i32,
    /// A string. `extensions/v1beta1` has a map here, which is read as an empty selector.
    selector: Value,
}

/// Decodes `null` as the default, like Go.
fn null_as_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
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

    #[test]
    fn null_fields_of_a_scale_are_defaults() {
        let null: Scale = decode(br#"{"metadata":null,"spec":null,"status":null}"#).unwrap();
        assert_eq!(null, Scale::default());
        let text = br#"{"metadata":{"name":null,"uid":"u","resourceVersion":null},
            "spec":{"replicas":null},"status":{"replicas":2,"selector":null}}"#;
        let scale: Scale = decode(text).unwrap();
        assert_eq!(scale, Scale { uid: "u".into(), current: 2, ..Scale::default() });
    }

    #[test]
    fn map_selector_is_read_as_empty() {
        let scale = decode(br#"{"status":{"selector":{"app":"web"}}}"#).unwrap();
        assert_eq!(&*scale.selector, "");
    }
}
