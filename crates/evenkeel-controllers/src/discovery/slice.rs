//! Contents and writes of EndpointSlices, for both controllers.

use crate::wire::{self, NewMetadata, PreservedMetadata};
use bytes::Bytes;
use evenkeel_api::{
    OwnerReference, StrMap,
    views::{Endpoint, EndpointSlice, SlicePort},
};
use evenkeel_runtime::plan::{Action, Create, Delete, Key, OnError, Update};
use serde::Serialize;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Label that names the Service. Upstream: `LabelServiceName`.
pub(super) const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// Label that names the managing controller. Upstream: `LabelManagedBy`.
pub(super) const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
/// Label of the objects of a headless Service. Upstream: `IsHeadlessService`.
pub(super) const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// Returns the key of the slice's Service. Its Endpoints have the same key.
pub(super) fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let name = slice.meta.labels.get(SERVICE_NAME_LABEL).filter(|name| !name.is_empty())?;
    Some(Key::new(&slice.meta.namespace, name))
}

/// Content of a slice, without its name and annotations.
#[derive(Debug, Hash)]
pub(super) struct Content<'a> {
    pub(super) address_type: &'a str,
    pub(super) ports: &'a [SlicePort],
    pub(super) endpoints: &'a [Endpoint],
    pub(super) labels: &'a StrMap,
}

impl<'a> Content<'a> {
    /// Returns the content of an existing slice.
    pub(super) fn of(slice: &'a EndpointSlice) -> Self {
        Self {
            address_type: &slice.address_type,
            ports: &slice.ports,
            endpoints: &slice.endpoints,
            labels: &slice.meta.labels,
        }
    }
}

/// Returns a hash of the content, by which the controller recognizes its own writes.
pub(super) fn content_hash(content: &Content<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

/// Returns a hash that stands for the deletion of a slice.
pub(super) fn deletion_hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    ("deleted", name).hash(&mut hasher);
    hasher.finish()
}

/// Numbers of a Service's endpoints and slices. Upstream: `metrics.EfficiencyInfo`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ServiceCounts {
    /// Number of endpoints.
    pub(super) endpoints: usize,
    /// Number of slices after the reconciliation.
    pub(super) slices: usize,
    /// Number of slices that would suffice if all were full.
    pub(super) ideal: usize,
}

impl std::ops::AddAssign for ServiceCounts {
    fn add_assign(&mut self, other: Self) {
        self.endpoints += other.endpoints;
        self.slices += other.slices;
        self.ideal += other.ideal;
    }
}

/// Operation on a slice. Metrics have it as label `operation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    /// Returns the value of the label.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// A write and the hash of its content. A failed write skips the remaining writes of the reconciliation, unless the
/// planner sets another rule.
#[derive(Debug, PartialEq)]
pub(super) struct Write {
    pub(super) operation: Operation,
    pub(super) action: Action,
    pub(super) hash: u64,
}

/// Events and writes of a reconciliation.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Writes {
    /// Events to record before any write.
    pub(super) events: Vec<Action>,
    actions: Vec<Action>,
    pub(super) operations: Vec<Operation>,
    /// Hashes of the written contents.
    pub(super) hashes: Vec<u64>,
}

impl Writes {
    /// Adds a write, with its operation and its hash.
    pub(super) fn push(&mut self, write: Write) {
        self.operations.push(write.operation);
        self.hashes.push(write.hash);
        self.actions.push(write.action);
    }

    /// Returns the number of writes.
    pub(super) fn len(&self) -> usize {
        self.actions.len()
    }

    /// Returns the events, then the writes.
    pub(super) fn events_and_writes(&self) -> Vec<Action> {
        self.events.iter().chain(&self.actions).cloned().collect()
    }
}

/// Serialized form of an EndpointSlice.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a, M> {
    api_version: &'a str,
    kind: &'a str,
    metadata: M,
    address_type: &'a str,
    endpoints: &'a [Endpoint],
    ports: &'a [SlicePort],
}

/// Encodes an EndpointSlice as JSON.
fn body(metadata: impl Serialize, content: &Content<'_>) -> Bytes {
    let Content { address_type, ports, endpoints, .. } = *content;
    wire::json(&Body {
        api_version: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
        metadata,
        address_type,
        endpoints,
        ports,
    })
}

/// Returns the creation of a slice for the Service or Endpoints with this key. `owner` becomes its controller.
pub(super) fn create(
    key: &Key,
    owner: &OwnerReference,
    annotations: &StrMap,
    content: &Content<'_>,
) -> Write {
    let metadata = NewMetadata {
        name: "",
        generate_name: &prefix(&key.name),
        namespace: &key.namespace,
        labels: content.labels,
        annotations,
        owner_references: std::slice::from_ref(owner),
    };
    let kind = <EndpointSlice as evenkeel_api::View>::kind();
    let create = Create::new(kind, &key.namespace, body(metadata, content));
    Write {
        operation: Operation::Create,
        action: Create { on_error: OnError::SkipRest, ..create }.into(),
        hash: content_hash(content),
    }
}

/// Returns the prefix of a slice's name: the Service's name and a dash, or only the name if the dash would exceed the
/// maximum length. Upstream: `getEndpointSlicePrefix`.
fn prefix(name: &str) -> String {
    const MAX_NAME_LENGTH: usize = 253;
    if name.len() < MAX_NAME_LENGTH { format!("{name}-") } else { name.to_owned() }
}

/// Returns the update of a slice's content and metadata. It requires the resource version of `slice`.
pub(super) fn update(
    slice: &EndpointSlice,
    metadata: PreservedMetadata<'_>,
    content: &Content<'_>,
) -> Write {
    let update = Update::new(wire::target(slice), body(metadata, content));
    Write {
        operation: Operation::Update,
        action: Update { on_error: OnError::SkipRest, ..update }.into(),
        hash: content_hash(content),
    }
}

/// Returns the deletion of a slice.
pub(super) fn delete(slice: &EndpointSlice) -> Write {
    let delete = Delete::new(wire::target(slice));
    Write {
        operation: Operation::Delete,
        action: Delete { on_error: OnError::SkipRest, ..delete }.into(),
        hash: deletion_hash(&slice.meta.name),
    }
}
