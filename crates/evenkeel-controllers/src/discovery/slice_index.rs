//! EndpointSlices of both controllers in the cache: their index by Service, and which events need a reconciliation.

use super::{
    OwnWrites,
    slice::{Content, MANAGED_BY, deletion, fingerprint, service_of},
};
use evenkeel_api::views::EndpointSlice;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Index},
    plan::Key,
};
use std::sync::Arc;

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
