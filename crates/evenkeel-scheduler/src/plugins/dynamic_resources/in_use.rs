//! Devices allocated to claims, and in-flight allocations.
//!
//! Upstream: `allocatedDevices` and `inFlightAllocations` in `dra_manager.go`.

use evenkeel_api::views::{AllocationResult, ResourceClaim};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{capacity::Amounts, inventory::device_id};

/// Devices in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct InUse {
    /// Exclusively allocated devices, with their number of claims.
    whole: HashMap<Arc<str>, u32>,
    /// Shared devices: number of shares and consumed capacity.
    shared: HashMap<Arc<str>, (u32, Amounts)>,
}

impl InUse {
    /// Reports whether the device is exclusively allocated.
    pub(super) fn is_taken(&self, id: &str) -> bool {
        self.whole.contains_key(id)
    }

    /// Returns the consumed capacity of a shared device.
    pub(super) fn shared(&self, id: &str) -> Option<&Amounts> {
        self.shared.get(id).map(|(_, amounts)| amounts)
    }

    /// Reports whether the device is in use.
    pub(super) fn has(&self, id: &str) -> bool {
        self.is_taken(id) || self.shared.contains_key(id)
    }

    /// Adds the devices of an allocation.
    pub(super) fn add(&mut self, allocation: &AllocationResult) {
        for result in allocation.devices.results.iter().filter(|one| one.admin_access != Some(true))
        {
            let id = device_id(&result.driver, &result.pool, &result.device);
            if result.share_id.is_none() {
                *self.whole.entry(id).or_insert(0) += 1;
                continue;
            }
            let (n, amounts) = self.shared.entry(id).or_default();
            *n += 1;
            for (name, amount) in result.consumed_capacity.iter() {
                *amounts.entry(name.into()).or_insert_with(|| amount.minus(*amount)) += *amount;
            }
        }
    }

    /// Removes the devices of an allocation.
    pub(super) fn remove(&mut self, allocation: &AllocationResult) {
        for result in allocation.devices.results.iter().filter(|one| one.admin_access != Some(true))
        {
            let id = device_id(&result.driver, &result.pool, &result.device);
            if result.share_id.is_none() {
                if let Some(n) = self.whole.get_mut(&id) {
                    *n -= 1;
                    if *n == 0 {
                        self.whole.remove(&id);
                    }
                }
                continue;
            }
            let Some((n, amounts)) = self.shared.get_mut(&id) else { continue };
            *n -= 1;
            for (name, amount) in result.consumed_capacity.iter() {
                if let Some(sum) = amounts.get_mut(name) {
                    *sum -= *amount;
                }
            }
            if *n == 0 {
                self.shared.remove(&id);
            }
        }
    }
}

/// Claims and their devices: as cached, as written, and as in flight.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    in_use: Arc<InUse>,
    /// By claim uid, devices in the cache.
    cached: HashMap<Box<str>, Arc<AllocationResult>>,
    /// By claim uid, in-flight allocations.
    pending: HashMap<Box<str>, Arc<AllocationResult>>,
    /// By claim uid, written versions that the cache does not have.
    written: HashMap<Box<str>, Arc<ResourceClaim>>,
    /// Uids of claims whose allocation was written; the in-flight entry is dropped when the cache has it.
    settled: HashSet<Box<str>>,
}

impl Tracker {
    /// Returns the devices in use.
    pub(super) fn in_use(&self) -> Arc<InUse> {
        Arc::clone(&self.in_use)
    }

    /// Reports whether an allocation of the claim is in flight.
    pub(super) fn is_pending(&self, uid: &str) -> bool {
        self.pending.contains_key(uid) && !self.settled.contains(uid)
    }

    /// Returns the newest known version of the claim.
    pub(super) fn best(&self, cached: Arc<ResourceClaim>) -> Arc<ResourceClaim> {
        match self.written.get(&*cached.meta.uid) {
            Some(written) if written.meta.version() > cached.meta.version() => Arc::clone(written),
            _ => cached,
        }
    }

    /// Handles a claim from the cache.
    pub(super) fn observe(&mut self, claim: &ResourceClaim) {
        let uid = &*claim.meta.uid;
        let newer = |written: &Arc<ResourceClaim>| written.meta.version() > claim.meta.version();
        let waits = self.written.get(uid).is_some_and(newer);
        if !waits {
            self.written.remove(uid);
        }
        let allocation = claim.status.allocation.as_deref();
        if self.cached.get(uid).map(|known| &**known) != allocation {
            self.unsee(uid);
            if let Some(allocation) = allocation {
                let allocation = Arc::new(allocation.clone());
                Arc::make_mut(&mut self.in_use).add(&allocation);
                self.cached.insert(uid.into(), allocation);
            }
        }
        if !waits && self.settled.remove(uid) {
            self.drop_pending(uid);
        }
    }

    /// Handles the deletion of a claim.
    pub(super) fn remove(&mut self, claim: &ResourceClaim) {
        let uid = &*claim.meta.uid;
        self.written.remove(uid);
        self.unsee(uid);
        if self.settled.remove(uid) {
            self.drop_pending(uid);
        }
    }

    /// Adds an in-flight allocation.
    pub(super) fn decide(&mut self, uid: &str, allocation: Arc<AllocationResult>) {
        self.settled.remove(uid);
        self.drop_pending(uid);
        Arc::make_mut(&mut self.in_use).add(&allocation);
        self.pending.insert(uid.into(), allocation);
    }

    /// Sets the uid of an in-flight allocation once its claim was created.
    pub(super) fn rename(&mut self, before: &str, uid: &str) {
        if let Some(allocation) = self.pending.remove(before) {
            self.pending.insert(uid.into(), allocation);
        }
    }

    /// Removes an in-flight allocation.
    pub(super) fn abandon(&mut self, uid: &str) {
        if !self.settled.contains(uid) {
            self.drop_pending(uid);
        }
    }

    /// Records a written claim.
    pub(super) fn wrote(&mut self, claim: Arc<ResourceClaim>) {
        let uid: Box<str> = (&*claim.meta.uid).into();
        let allocation = claim.status.allocation.as_deref();
        if allocation.is_some() && self.cached.get(&uid).map(|cached| &**cached) == allocation {
            // The cache had the claim before the response arrived.
            self.drop_pending(&uid);
        } else if self.pending.contains_key(&uid) && allocation.is_some() {
            // Kept until the cache has it.
            self.settled.insert(uid.clone());
        }
        self.written.insert(uid, claim);
    }

    /// Returns written claims that a newer cached version replaced before the response arrived.
    pub(super) fn overtaken(&mut self, cached: &ResourceClaim) {
        let uid = &*cached.meta.uid;
        let old = |written: &Arc<ResourceClaim>| written.meta.version() <= cached.meta.version();
        if self.written.get(uid).is_some_and(old) {
            self.written.remove(uid);
            if self.settled.remove(uid) {
                self.drop_pending(uid);
            }
        }
    }

    fn unsee(&mut self, uid: &str) {
        if let Some(before) = self.cached.remove(uid) {
            Arc::make_mut(&mut self.in_use).remove(&before);
        }
    }

    fn drop_pending(&mut self, uid: &str) {
        if let Some(before) = self.pending.remove(uid) {
            Arc::make_mut(&mut self.in_use).remove(&before);
        }
    }
}
