//! Index of EndpointSlices by Service for both controllers. Decides which events of slices need a reconciliation.

use super::{
    OwnWrites,
    slice::{Content, MANAGED_BY_LABEL, content_hash, deletion_hash, service_of},
};
use evenkeel_api::views::EndpointSlice;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Index},
    plan::Key,
};
use std::sync::Arc;

/// Index of slices by Service.
#[derive(Debug, Clone)]
pub(super) struct SlicesByService {
    slices: Index<EndpointSlice>,
    manager: &'static str,
}

impl SlicesByService {
    /// Creates the index of the slices that `manager` manages.
    pub(super) fn of(slices: &Cache<EndpointSlice>, manager: &'static str) -> Self {
        let slices = slices.index("service", |slice, key| {
            if let Some(service) = service_of(slice) {
                key(&service.to_string());
            }
        });
        Self { slices, manager }
    }

    /// Returns the slices of a Service, sorted by name.
    pub(super) fn get(&self, service: &Key) -> Vec<Arc<EndpointSlice>> {
        let mut slices = self.slices.get(&service.to_string());
        slices.retain(|slice| self.manages(slice));
        slices.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        slices
    }

    /// Returns whether the manager manages the slice.
    pub(super) fn manages(&self, slice: &EndpointSlice) -> bool {
        slice.meta.labels.get(MANAGED_BY_LABEL) == Some(self.manager)
    }

    /// Returns the Services that a slice's event affects, because a label changed or another client wrote or deleted
    /// the slice. Upstream: `onEndpointSliceAdd`, `onEndpointSliceUpdate`, `onEndpointSliceDelete`.
    pub(super) fn affected_services(
        &self,
        event: &CacheEvent<EndpointSlice>,
        own_writes: &OwnWrites,
    ) -> Vec<Key> {
        let slice = event.object();
        let service = service_of(event.object());
        let needs_pass = match event {
            // Slices that existed at the start are reconciled together with their Services.
            CacheEvent::Added { initial: true, .. } => false,
            CacheEvent::Updated { old, new }
                if old.meta.resource_version == new.meta.resource_version =>
            {
                false
            }
            CacheEvent::Updated { old, .. } if service_of(old) != service => {
                return service.into_iter().chain(service_of(old)).collect();
            }
            CacheEvent::Updated { old, .. } if self.manages(old) != self.manages(slice) => true,
            CacheEvent::Added { .. } => {
                self.manages(slice)
                    && !own_writes.take(service.as_ref(), content_hash(&Content::of(slice)))
            }
            CacheEvent::Updated { .. } => {
                self.manages(slice)
                    && !own_writes.contains(service.as_ref(), content_hash(&Content::of(slice)))
            }
            CacheEvent::Deleted(_) => {
                self.manages(slice)
                    && !own_writes.contains(service.as_ref(), deletion_hash(&slice.meta.name))
            }
        };
        if needs_pass { service.into_iter().collect() } else { Vec::new() }
    }
}
