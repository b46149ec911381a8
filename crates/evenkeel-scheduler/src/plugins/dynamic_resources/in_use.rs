//! Devices that are in use: those allocated to claims, and in-flight allocations.
//!
//! Upstream: `allocatedDevices` and `inFlightAllocations` in `dra_manager.go`.

use evenkeel_api::views::{AllocationResult, DeviceRequestAllocationResult, ResourceClaim};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{capacity::Amounts, inventory::device_id};

/// Devices in use by claims without admin access.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct InUse {
    /// Number of allocations of each exclusively allocated device, by id.
    exclusive: HashMap<Arc<str>, u32>,
    /// Shared devices, by id.
    shared: HashMap<Arc<str>, SharedUse>,
}

/// Returns the allocated devices that count as in use. Admin access leaves a device available to others.
fn results_without_admin_access(
    allocation: &AllocationResult,
) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    allocation.devices.results.iter().filter(|result| result.admin_access != Some(true))
}

/// Use of a shared device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SharedUse {
    /// Number of shares.
    shares: u32,
    /// Capacity that the shares consume.
    consumed: Amounts,
}

impl InUse {
    /// Returns whether the device is exclusively allocated.
    pub(super) fn is_exclusively_allocated(&self, id: &str) -> bool {
        self.exclusive.contains_key(id)
    }

    /// Returns the consumed capacity of a shared device.
    pub(super) fn consumed_capacity(&self, id: &str) -> Option<&Amounts> {
        self.shared.get(id).map(|shared| &shared.consumed)
    }

    /// Returns whether the device is in use, exclusively or shared.
    pub(super) fn contains(&self, id: &str) -> bool {
        self.is_exclusively_allocated(id) || self.shared.contains_key(id)
    }

    /// Adds the devices of an allocation, except those with admin access.
    pub(super) fn add(&mut self, allocation: &AllocationResult) {
        for result in results_without_admin_access(allocation) {
            let id = device_id(&result.driver, &result.pool, &result.device);
            if result.share_id.is_none() {
                *self.exclusive.entry(id).or_insert(0) += 1;
                continue;
            }
            let SharedUse { shares, consumed } = self.shared.entry(id).or_default();
            *shares += 1;
            for (name, amount) in result.consumed_capacity.iter() {
                let zero = || amount.minus(*amount);
                *consumed.entry(name.into()).or_insert_with(zero) += *amount;
            }
        }
    }

    /// Removes the devices of an allocation, except those with admin access.
    pub(super) fn remove(&mut self, allocation: &AllocationResult) {
        for result in results_without_admin_access(allocation) {
            let id = device_id(&result.driver, &result.pool, &result.device);
            if result.share_id.is_none() {
                if let Some(count) = self.exclusive.get_mut(&id) {
                    *count -= 1;
                    if *count == 0 {
                        self.exclusive.remove(&id);
                    }
                }
                continue;
            }
            let Some(SharedUse { shares, consumed }) = self.shared.get_mut(&id) else { continue };
            *shares -= 1;
            for (name, amount) in result.consumed_capacity.iter() {
                if let Some(sum) = consumed.get_mut(name) {
                    *sum -= *amount;
                }
            }
            if *shares == 0 {
                self.shared.remove(&id);
            }
        }
    }
}

/// Devices in use according to the cache, to written claims that the cache does not show yet, and to in-flight
/// allocations.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    in_use: Arc<InUse>,
    /// Allocations in the cache, by claim uid.
    cached: HashMap<Box<str>, Arc<AllocationResult>>,
    /// In-flight allocations, by claim uid.
    pending: HashMap<Box<str>, Arc<AllocationResult>>,
    /// Written versions of claims that the cache does not show yet, by claim uid.
    written: HashMap<Box<str>, Arc<ResourceClaim>>,
    /// Uids of claims whose allocation was written. The in-flight entry is dropped once the cache shows the allocation.
    settled: HashSet<Box<str>>,
}

impl Tracker {
    /// Returns the devices in use.
    pub(super) fn in_use(&self) -> Arc<InUse> {
        Arc::clone(&self.in_use)
    }

    /// Returns whether an allocation of the claim is in flight and not written yet.
    pub(super) fn is_pending(&self, uid: &str) -> bool {
        self.pending.contains_key(uid) && !self.settled.contains(uid)
    }

    /// Returns the latest known version of the claim.
    pub(super) fn latest(&self, cached: Arc<ResourceClaim>) -> Arc<ResourceClaim> {
        match self.written.get(&*cached.meta.uid) {
            Some(written) if written.meta.version() > cached.meta.version() => Arc::clone(written),
            _ => cached,
        }
    }

    /// Records a claim from the cache.
    pub(super) fn observe(&mut self, claim: &ResourceClaim) {
        let uid = &*claim.meta.uid;
        let written = self.written.get(uid);
        let is_outdated =
            written.is_some_and(|written| written.meta.version() > claim.meta.version());
        if !is_outdated {
            self.written.remove(uid);
        }
        let allocation = claim.status.allocation.as_deref();
        if self.cached.get(uid).map(|cached| &**cached) != allocation {
            self.remove_cached(uid);
            if let Some(allocation) = allocation {
                let allocation = Arc::new(allocation.clone());
                Arc::make_mut(&mut self.in_use).add(&allocation);
                self.cached.insert(uid.into(), allocation);
            }
        }
        if !is_outdated && self.settled.remove(uid) {
            self.drop_pending(uid);
        }
    }

    /// Removes a claim that was deleted.
    pub(super) fn remove(&mut self, claim: &ResourceClaim) {
        let uid = &*claim.meta.uid;
        self.written.remove(uid);
        self.remove_cached(uid);
        if self.settled.remove(uid) {
            self.drop_pending(uid);
        }
    }

    /// Adds an in-flight allocation for the claim with this uid.
    pub(super) fn add_pending(&mut self, uid: &str, allocation: Arc<AllocationResult>) {
        self.settled.remove(uid);
        self.drop_pending(uid);
        Arc::make_mut(&mut self.in_use).add(&allocation);
        self.pending.insert(uid.into(), allocation);
    }

    /// Moves an in-flight allocation from the placeholder of a claim's uid to the uid that the API server assigned.
    pub(super) fn replace_placeholder_uid(&mut self, placeholder: &str, uid: &str) {
        if let Some(allocation) = self.pending.remove(placeholder) {
            self.pending.insert(uid.into(), allocation);
        }
    }

    /// Removes an in-flight allocation, unless it was written.
    pub(super) fn remove_unwritten(&mut self, uid: &str) {
        if !self.settled.contains(uid) {
            self.drop_pending(uid);
        }
    }

    /// Records a claim that the plugin wrote.
    pub(super) fn record_write(&mut self, claim: Arc<ResourceClaim>) {
        let uid: Box<str> = (&*claim.meta.uid).into();
        let allocation = claim.status.allocation.as_deref();
        if allocation.is_some() && self.cached.get(&uid).map(|cached| &**cached) == allocation {
            // The cache showed the allocation before the response arrived.
            self.drop_pending(&uid);
        } else if self.pending.contains_key(&uid) && allocation.is_some() {
            // The entry is kept until the cache shows the allocation.
            self.settled.insert(uid.clone());
        }
        self.written.insert(uid, claim);
    }

    /// Forgets a written version that is not newer than the cached one, because the cache showed the write before its
    /// response arrived.
    pub(super) fn forget_older_write(&mut self, cached: &ResourceClaim) {
        let uid = &*cached.meta.uid;
        let written = self.written.get(uid);
        if written.is_some_and(|written| written.meta.version() <= cached.meta.version()) {
            self.written.remove(uid);
            if self.settled.remove(uid) {
                self.drop_pending(uid);
            }
        }
    }

    /// Releases the devices of a cached allocation.
    fn remove_cached(&mut self, uid: &str) {
        if let Some(allocation) = self.cached.remove(uid) {
            Arc::make_mut(&mut self.in_use).remove(&allocation);
        }
    }

    /// Releases the devices of an in-flight allocation.
    fn drop_pending(&mut self, uid: &str) {
        if let Some(allocation) = self.pending.remove(uid) {
            Arc::make_mut(&mut self.in_use).remove(&allocation);
        }
    }
}
