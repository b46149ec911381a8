//! Devices of all ResourceSlices, indexed by node and pool. All functions are pure.

use evenkeel_api::{
    Text,
    views::{Device, DeviceTaint, DeviceTaintRule, ResourceSlice},
};
use std::{collections::HashMap, sync::Arc};

/// Returns the id of a device: `driver/pool/device`.
pub(super) fn device_id(driver: &str, pool: &str, device: &str) -> Arc<str> {
    format!("{driver}/{pool}/{device}").into()
}

/// A ResourceSlice in the inventory.
pub(super) struct Offer {
    /// Index in the inventory.
    pub(super) index: usize,
    pub(super) slice: Arc<ResourceSlice>,
    /// Device ids, in the order of the slice's devices.
    pub(super) ids: Arc<[Arc<str>]>,
}

impl Offer {
    fn new(index: usize, slice: Arc<ResourceSlice>) -> Self {
        let spec = &slice.spec;
        let ids = spec
            .devices
            .iter()
            .map(|device| device_id(&spec.driver, &spec.pool.name, &device.name));
        Self { index, ids: ids.collect(), slice }
    }

    /// Returns the driver of the slice.
    pub(super) fn driver(&self) -> &str {
        &self.slice.spec.driver
    }

    /// Returns the name of the slice's pool.
    pub(super) fn pool(&self) -> &str {
        &self.slice.spec.pool.name
    }

    /// Returns the devices of the slice.
    pub(super) fn devices(&self) -> &[Device] {
        &self.slice.spec.devices
    }

    /// Returns whether a device of the slice uses a feature that this allocator does not support. The allocator ignores
    /// such slices.
    pub(super) fn uses_unsupported_feature(&self) -> bool {
        let mut consumed = self.devices().iter().flat_map(|device| &*device.consumes_counters);
        consumed.any(|counters| !counters.compatibility_groups.is_empty())
    }
}

/// Devices of all ResourceSlices, by driver and pool.
#[derive(Default)]
pub(super) struct Inventory {
    offers: Vec<Offer>,
    /// Indexes of the slices with a node name, by that name.
    by_node: HashMap<Text, Vec<usize>>,
    /// Indexes of the slices without a node name.
    without_node: Vec<usize>,
    /// Indexes of slices by driver and pool.
    by_pool: HashMap<(Text, Text), Vec<usize>>,
    /// Rules that add taints to devices.
    rules: Vec<Arc<DeviceTaintRule>>,
}

impl Inventory {
    /// Builds the inventory. It reuses the device ids of unchanged slices.
    pub(super) fn new(
        mut slices: Vec<Arc<ResourceSlice>>,
        rules: Vec<Arc<DeviceTaintRule>>,
        old: Option<&Self>,
    ) -> Self {
        slices.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        // The cache keeps an unchanged slice in the same `Arc`, so the pointer identifies it.
        let old_offers: HashMap<*const ResourceSlice, &Offer> = old
            .iter()
            .flat_map(|old| &old.offers)
            .map(|offer| (Arc::as_ptr(&offer.slice), offer))
            .collect();
        let mut inventory = Self { rules, ..Self::default() };
        for (index, slice) in slices.into_iter().enumerate() {
            let spec = &slice.spec;
            if spec.node_name.is_empty() {
                inventory.without_node.push(index);
            } else {
                inventory.by_node.entry(spec.node_name.clone()).or_default().push(index);
            }
            let pool = (spec.driver.clone(), spec.pool.name.clone());
            inventory.by_pool.entry(pool).or_default().push(index);
            let offer = match old_offers.get(&Arc::as_ptr(&slice)) {
                Some(old) => Offer { index, ids: Arc::clone(&old.ids), slice },
                None => Offer::new(index, slice),
            };
            inventory.offers.push(offer);
        }
        inventory
    }

    /// Returns all slices, in order of their index.
    pub(super) fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// Returns the slices that may have devices for a node.
    pub(super) fn slices_for_node(&self, node: &str) -> impl Iterator<Item = &Offer> {
        let with_node_name = self.by_node.get(node).into_iter().flatten();
        with_node_name.chain(&self.without_node).map(|index| &self.offers[*index])
    }

    /// Returns the slices of a pool in all of its generations.
    pub(super) fn slices_of_pool(&self, driver: &str, pool: &str) -> impl Iterator<Item = &Offer> {
        let indexes = self.by_pool.get(&(driver.into(), pool.into()));
        indexes.into_iter().flatten().map(|index| &self.offers[*index])
    }

    /// Returns the taints that DeviceTaintRules add to the device.
    pub(super) fn taints_of(
        &self,
        offer: &Offer,
        device: &Device,
    ) -> impl Iterator<Item = &DeviceTaint> {
        let applies = move |rule: &&Arc<DeviceTaintRule>| {
            let Some(selector) = rule.spec.device_selector.as_deref() else { return false };
            // A field that is not set selects every device.
            let matches = |required: &Option<Text>, value: &str| {
                required.as_deref().is_none_or(|required| required == value)
            };
            matches(&selector.driver, offer.driver())
                && matches(&selector.pool, offer.pool())
                && matches(&selector.device, &device.name)
        };
        self.rules.iter().filter(applies).map(|rule| &rule.spec.taint)
    }
}
