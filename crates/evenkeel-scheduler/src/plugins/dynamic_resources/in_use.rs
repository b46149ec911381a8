//! Devices that claims have, and those that pods on their way will give them.

use evenkeel_api::views::{AllocationResult, ResourceClaim};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{capacity::Amounts, inventory::device_id};

/// Devices in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct InUse {
    /// Given to one claim, each once for each that has it.
    whole: HashMap<Arc<str>, u32>,
    /// Given in shares: how many, and how much all of them have.
    shared: HashMap<Arc<str>, (u32, Amounts)>,
}

impl InUse {
    /// Whether nobody else can have the device.
    pub(super) fn is_taken(&self, id: &str) -> bool {
        self.whole.contains_key(id)
    }

    /// How much of the device its shares have; `None` where it has none.
    pub(super) fn shared(&self, id: &str) -> Option<&Amounts> {
        self.shared.get(id).map(|(_, amounts)| amounts)
    }

    /// Whether somebody has the device or a share of it.
    pub(super) fn has(&self, id: &str) -> bool {
        self.is_taken(id) || self.shared.contains_key(id)
    }

    /// Devices are given.
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

    /// Devices are given back.
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

/// Claims and their devices, as the cache shows them, as was written, and as is being decided.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    in_use: Arc<InUse>,
    /// What each claim has as far as the cache shows, by uid.
    seen: HashMap<Box<str>, Arc<AllocationResult>>,
    /// What claims are to have, by uid: decided, and not yet seen.
    pending: HashMap<Box<str>, Arc<AllocationResult>>,
    /// Newer versions of claims than the cache shows: the answers to writes, by uid.
    written: HashMap<Box<str>, Arc<ResourceClaim>>,
    /// Claims whose decision was carried out, by uid: it is dropped when the cache shows it.
    settled: HashSet<Box<str>>,
}

impl Tracker {
    /// Devices in use, as of now.
    pub(super) fn in_use(&self) -> Arc<InUse> {
        Arc::clone(&self.in_use)
    }

    /// Whether the claim's devices are being decided about.
    pub(super) fn is_pending(&self, uid: &str) -> bool {
        self.pending.contains_key(uid) && !self.settled.contains(uid)
    }

    /// The claim as it is known best.
    pub(super) fn best(&self, cached: Arc<ResourceClaim>) -> Arc<ResourceClaim> {
        match self.written.get(&*cached.meta.uid) {
            Some(written) if written.meta.version() > cached.meta.version() => Arc::clone(written),
            _ => cached,
        }
    }

    /// The cache shows a claim.
    pub(super) fn seen(&mut self, claim: &ResourceClaim) {
        let uid = &*claim.meta.uid;
        let newer = |written: &Arc<ResourceClaim>| written.meta.version() > claim.meta.version();
        let waits = self.written.get(uid).is_some_and(newer);
        if !waits {
            self.written.remove(uid);
        }
        let allocation = claim.status.allocation.as_deref();
        if self.seen.get(uid).map(|known| &**known) != allocation {
            self.unsee(uid);
            if let Some(allocation) = allocation {
                let allocation = Arc::new(allocation.clone());
                Arc::make_mut(&mut self.in_use).add(&allocation);
                self.seen.insert(uid.into(), allocation);
            }
        }
        if !waits && self.settled.remove(uid) {
            self.drop_pending(uid);
        }
    }

    /// The cache shows that a claim is gone.
    pub(super) fn gone(&mut self, claim: &ResourceClaim) {
        let uid = &*claim.meta.uid;
        self.written.remove(uid);
        self.unsee(uid);
        if self.settled.remove(uid) {
            self.drop_pending(uid);
        }
    }

    /// It was decided what the claim is to have.
    pub(super) fn decide(&mut self, uid: &str, allocation: Arc<AllocationResult>) {
        self.settled.remove(uid);
        self.drop_pending(uid);
        Arc::make_mut(&mut self.in_use).add(&allocation);
        self.pending.insert(uid.into(), allocation);
    }

    /// The claim that was decided about has this uid, now that it was made.
    pub(super) fn rename(&mut self, before: &str, uid: &str) {
        if let Some(allocation) = self.pending.remove(before) {
            self.pending.insert(uid.into(), allocation);
        }
    }

    /// What was decided is not to be.
    pub(super) fn abandon(&mut self, uid: &str) {
        if !self.settled.contains(uid) {
            self.drop_pending(uid);
        }
    }

    /// The claim was written.
    pub(super) fn wrote(&mut self, claim: Arc<ResourceClaim>) {
        let uid: Box<str> = (&*claim.meta.uid).into();
        let allocation = claim.status.allocation.as_deref();
        if allocation.is_some() && self.seen.get(&uid).map(|seen| &**seen) == allocation {
            // The cache was faster than the answer.
            self.drop_pending(&uid);
        } else if self.pending.contains_key(&uid) && allocation.is_some() {
            // Until the cache shows it.
            self.settled.insert(uid.clone());
        }
        self.written.insert(uid, claim);
    }

    /// Claims that were written but never seen again: the cache showed a newer version before the answer came.
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
        if let Some(before) = self.seen.remove(uid) {
            Arc::make_mut(&mut self.in_use).remove(&before);
        }
    }

    fn drop_pending(&mut self, uid: &str) {
        if let Some(before) = self.pending.remove(uid) {
            Arc::make_mut(&mut self.in_use).remove(&before);
        }
    }
}
