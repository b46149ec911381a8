//! An object's metadata and nothing else.

use evenkeel_api::{
    DecodeError, Encoding, Kind, Meta, OwnerReference, StrMap, View, time::Timestamp,
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// `PartialObjectMetadata`: what a writer reads of the answer to its write.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    /// The metadata.
    pub meta: Meta,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    metadata: WireMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireMeta {
    name: Box<str>,
    namespace: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    generation: i64,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<Box<str>, Box<str>>>,
    annotations: Option<BTreeMap<Box<str>, Box<str>>>,
    owner_references: Option<Vec<WireOwner>>,
    finalizers: Option<Box<[Box<str>]>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireOwner {
    api_version: Box<str>,
    kind: Box<str>,
    name: Box<str>,
    uid: Box<str>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

impl View for Metadata {
    const PROTOBUF: bool = false;

    fn kind() -> Kind {
        Kind::new("meta.k8s.io", "v1", "PartialObjectMetadata", "", false)
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn decode(bytes: &[u8], _encoding: Encoding) -> Result<Self, DecodeError> {
        let wire: Wire = serde_json::from_slice(bytes).map_err(|error| DecodeError {
            kind: "PartialObjectMetadata".into(),
            field: "metadata".into(),
            reason: error.to_string().into(),
        })?;
        Ok(Self { meta: wire.metadata.into() })
    }
}

impl From<WireMeta> for Meta {
    fn from(m: WireMeta) -> Self {
        let map =
            |map: Option<BTreeMap<Box<str>, Box<str>>>| StrMap::from_iter(map.unwrap_or_default());
        Self {
            name: m.name,
            namespace: m.namespace,
            uid: m.uid,
            resource_version: m.resource_version,
            generation: m.generation,
            creation: m.creation_timestamp,
            deletion: m.deletion_timestamp,
            deletion_grace_seconds: m.deletion_grace_period_seconds,
            labels: map(m.labels),
            annotations: map(m.annotations),
            owners: m
                .owner_references
                .unwrap_or_default()
                .into_iter()
                .map(OwnerReference::from)
                .collect(),
            finalizers: m.finalizers.unwrap_or_default(),
            ..Self::default()
        }
    }
}

impl From<WireOwner> for OwnerReference {
    fn from(o: WireOwner) -> Self {
        Self {
            api_version: o.api_version,
            kind: o.kind,
            name: o.name,
            uid: o.uid,
            controller: o.controller.unwrap_or_default(),
            block_owner_deletion: o.block_owner_deletion.unwrap_or_default(),
        }
    }
}
