//! EndpointSlices of both controllers: index by Service, writes, and which events need a reconciliation.

use super::OwnWrites;
use crate::wire::{self, Fresh, PreservedMetadata};
use bytes::Bytes;
use evenkeel_api::{
    OwnerReference, StrMap,
    views::{Endpoint, EndpointSlice, SlicePort},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Index},
    plan::{Action, Create, Delete, Key, OnError, Update},
};
use serde::Serialize;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// Label with the Service's name. Upstream: `LabelServiceName`.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label with the managing controller. Upstream: `LabelManagedBy`.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Label of objects of a headless Service. Upstream: `IsHeadlessService`.
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";

/// Returns the Service, or the Endpoints, of a slice.
pub(super) fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let name = slice.meta.labels.get(SERVICE_NAME).filter(|name| !name.is_empty())?;
    Some(Key::new(&slice.meta.namespace, name))
}

/// Index of slices by Service.
#[derive(Debug, Clone)]
pub(super) struct ByService {
    slices: Index<EndpointSlice>,
    manager: &'static str,
}

impl ByService {
    /// Declares the index of the slices that `manager` manages.
    pub(super) fn of(slices: &Cache<EndpointSlice>, manager: &'static str) -> Self {
        let slices = slices.index("service", |slice, key| {
            if let Some(service) = service_of(slice) {
                key(&service.to_string());
            }
        });
        Self { slices, manager }
    }

    /// Returns the slices of a Service, by name.
    pub(super) fn get(&self, service: &Key) -> Vec<Arc<EndpointSlice>> {
        let mut found = self.slices.get(&service.to_string());
        found.retain(|slice| self.keeps(slice));
        found.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        found
    }

    /// Whether the manager manages the slice.
    pub(super) fn keeps(&self, slice: &EndpointSlice) -> bool {
        slice.meta.labels.get(MANAGED_BY) == Some(self.manager)
    }

    /// Returns the Services affected by a slice's event: the label changed, or another client wrote or deleted the
    /// slice. Upstream: `onEndpointSliceAdd`, `onEndpointSliceUpdate`, `onEndpointSliceDelete`.
    pub(super) fn concerned(&self, event: &CacheEvent<EndpointSlice>, own: &OwnWrites) -> Vec<Key> {
        let (slice, service) = (event.object(), service_of(event.object()));
        let changed = match event {
            // Slices that existed at the start are reconciled with their Services.
            CacheEvent::Added { initial: true, .. } => false,
            CacheEvent::Updated { old, new }
                if old.meta.resource_version == new.meta.resource_version =>
            {
                false
            }
            CacheEvent::Updated { old, .. } if service_of(old) != service => {
                return service.into_iter().chain(service_of(old)).collect();
            }
            CacheEvent::Updated { old, .. } if self.keeps(old) != self.keeps(slice) => true,
            CacheEvent::Added { .. } | CacheEvent::Updated { .. } => {
                self.keeps(slice) && !own.has(service.as_ref(), fingerprint(&Content::of(slice)))
            }
            CacheEvent::Deleted(_) => {
                self.keeps(slice) && !own.has(service.as_ref(), deletion(&slice.meta.name))
            }
        };
        service.into_iter().filter(|_| changed).collect()
    }
}

/// Content of a slice, without name and annotations.
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

/// Returns a hash of the content.
pub(super) fn fingerprint(content: &Content<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

fn deletion(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    ("deleted", name).hash(&mut hasher);
    hasher.finish()
}

/// Counts of one Service. Upstream: `metrics.EfficiencyInfo`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ServiceCounts {
    /// Number of endpoints.
    pub(super) endpoints: usize,
    /// Number of slices after the reconciliation.
    pub(super) slices: usize,
    /// Number of slices if all were full.
    pub(super) ideal: usize,
}

impl std::ops::AddAssign for ServiceCounts {
    fn add_assign(&mut self, other: Self) {
        self.endpoints += other.endpoints;
        self.slices += other.slices;
        self.ideal += other.ideal;
    }
}

/// Operation on a slice, as metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// A write and the hash of its content. A failure ends the reconciliation, unless the planner decides otherwise.
#[derive(Debug, PartialEq)]
pub(super) struct Write {
    pub(super) operation: Operation,
    pub(super) action: Action,
    pub(super) mark: u64,
}

/// Events and writes of a reconciliation.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Writes {
    /// Events, recorded before any write.
    pub(super) events: Vec<Action>,
    actions: Vec<Action>,
    pub(super) operations: Vec<Operation>,
    /// Hashes of the written contents.
    pub(super) marks: Vec<u64>,
}

impl Writes {
    pub(super) fn push(&mut self, write: Write) {
        self.operations.push(write.operation);
        self.marks.push(write.mark);
        self.actions.push(write.action);
    }

    /// Returns the number of writes.
    pub(super) fn len(&self) -> usize {
        self.actions.len()
    }

    /// Returns the events, then the writes.
    pub(super) fn all(&self) -> Vec<Action> {
        self.events.iter().chain(&self.actions).cloned().collect()
    }
}

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

/// Returns the action that creates a slice for the Service or the Endpoints of this key, with `owner` as controller.
pub(super) fn create(
    key: &Key,
    owner: &OwnerReference,
    annotations: &StrMap,
    content: &Content<'_>,
) -> Write {
    let metadata = Fresh {
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
        mark: fingerprint(content),
    }
}

/// Returns the prefix of the slice's name: the Service's name and, if it fits, a dash. Upstream:
/// `getEndpointSlicePrefix`.
fn prefix(name: &str) -> String {
    const LONGEST: usize = 253;
    if name.len() < LONGEST { format!("{name}-") } else { name.to_owned() }
}

/// Returns the update of a slice's content and metadata, with the resource version as precondition.
pub(super) fn update(
    slice: &EndpointSlice,
    metadata: PreservedMetadata<'_>,
    content: &Content<'_>,
) -> Write {
    let update = Update::new(wire::target(slice), body(metadata, content));
    Write {
        operation: Operation::Update,
        action: Update { on_error: OnError::SkipRest, ..update }.into(),
        mark: fingerprint(content),
    }
}

/// Returns the deletion of a slice.
pub(super) fn delete(slice: &EndpointSlice) -> Write {
    let delete = Delete::new(wire::target(slice));
    Write {
        operation: Operation::Delete,
        action: Delete { on_error: OnError::SkipRest, ..delete }.into(),
        mark: deletion(&slice.meta.name),
    }
}
