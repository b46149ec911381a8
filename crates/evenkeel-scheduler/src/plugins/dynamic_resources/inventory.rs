//! Devices of all ResourceSlices, indexed by node. Kept between attempts together with the results of CEL selectors.

use evenkeel_api::{
    Text,
    views::{Device, DeviceTaint, DeviceTaintRule, ResourceSlice},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::selectors::{Selector, Unsaid};

/// Returns the device id `driver/pool/device`.
pub(super) fn device_id(driver: &str, pool: &str, device: &str) -> Arc<str> {
    format!("{driver}/{pool}/{device}").into()
}

/// A ResourceSlice with cached selector results.
pub(super) struct Offer {
    pub(super) slice: Arc<ResourceSlice>,
    /// Id of each device.
    pub(super) ids: Box<[Arc<str>]>,
    /// Cached results by selector.
    said: Mutex<HashMap<Box<str>, Answers>>,
}

type Said = Result<bool, Unsaid>;

/// Result of a selector for each device, if evaluated.
type Answers = Box<[Option<Said>]>;

/// Maximum number of cached selectors for a slice.
const MAX_ENTRIES: usize = 64;

impl Offer {
    fn new(slice: Arc<ResourceSlice>) -> Self {
        let spec = &slice.spec;
        let ids =
            spec.devices.iter().map(|one| device_id(&spec.driver, &spec.pool.name, &one.name));
        Self { ids: ids.collect(), said: Mutex::default(), slice }
    }

    pub(super) fn driver(&self) -> &str {
        &self.slice.spec.driver
    }

    pub(super) fn pool(&self) -> &str {
        &self.slice.spec.pool.name
    }

    pub(super) fn devices(&self) -> &[Device] {
        &self.slice.spec.devices
    }

    /// Reports whether the selector matches the device; evaluates it once.
    pub(super) fn selects(&self, selector: &Selector, device: usize) -> Said {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= MAX_ENTRIES && !said.contains_key(selector.text()) {
            said.clear();
        }
        let answers = said
            .entry(selector.text().into())
            .or_insert_with(|| vec![None; self.devices().len()].into());
        answers[device]
            .get_or_insert_with(|| selector.selects(self.driver(), &self.devices()[device]))
            .clone()
    }

    /// Reports whether the device uses features that are not supported here.
    pub(super) fn is_unknown(&self) -> bool {
        let mut consumed = self.devices().iter().flat_map(|device| &*device.consumes_counters);
        consumed.any(|one| !one.compatibility_groups.is_empty())
    }
}

/// Devices of all ResourceSlices, by driver and pool.
#[derive(Default)]
pub(super) struct Inventory {
    offers: Vec<Arc<Offer>>,
    on_node: HashMap<Text, Vec<usize>>,
    shared: Vec<usize>,
    by_pool: HashMap<(Text, Text), Vec<usize>>,
    rules: Vec<Arc<DeviceTaintRule>>,
}

impl Inventory {
    /// Builds the inventory, and reuses the results of unchanged slices.
    pub(super) fn new(
        mut slices: Vec<Arc<ResourceSlice>>,
        rules: Vec<Arc<DeviceTaintRule>>,
        before: Option<&Self>,
    ) -> Self {
        slices.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        let known: HashMap<*const ResourceSlice, &Arc<Offer>> = before
            .iter()
            .flat_map(|before| &before.offers)
            .map(|offer| (Arc::as_ptr(&offer.slice), offer))
            .collect();
        let mut inventory = Self { rules, ..Self::default() };
        for (at, slice) in slices.into_iter().enumerate() {
            let spec = &slice.spec;
            if spec.node_name.is_empty() {
                inventory.shared.push(at);
            } else {
                inventory.on_node.entry(spec.node_name.clone()).or_default().push(at);
            }
            let pool = (spec.driver.clone(), spec.pool.name.clone());
            inventory.by_pool.entry(pool).or_default().push(at);
            let same = known.get(&Arc::as_ptr(&slice)).map(|offer| Arc::clone(offer));
            inventory.offers.push(same.unwrap_or_else(|| Arc::new(Offer::new(slice))));
        }
        inventory
    }

    /// Returns the slices that may apply to a node.
    pub(super) fn for_node(&self, node: &str) -> impl Iterator<Item = &Arc<Offer>> {
        let own = self.on_node.get(node).into_iter().flatten();
        own.chain(&self.shared).map(|at| &self.offers[*at])
    }

    /// Returns the slices of a pool, of every generation.
    pub(super) fn of_pool(&self, driver: &str, pool: &str) -> impl Iterator<Item = &Arc<Offer>> {
        let at = self.by_pool.get(&(driver.into(), pool.into()));
        at.into_iter().flatten().map(|at| &self.offers[*at])
    }

    /// Returns the taints that DeviceTaintRules add to the device.
    pub(super) fn taints_of(
        &self,
        offer: &Offer,
        device: &Device,
    ) -> impl Iterator<Item = &DeviceTaint> {
        let applies = move |rule: &&Arc<DeviceTaintRule>| {
            let Some(wanted) = rule.spec.device_selector.as_deref() else { return false };
            let fits = |wanted: &Option<Text>, is: &str| {
                wanted.as_deref().is_none_or(|wanted| wanted == is)
            };
            fits(&wanted.driver, offer.driver())
                && fits(&wanted.pool, offer.pool())
                && fits(&wanted.device, &device.name)
        };
        self.rules.iter().filter(applies).map(|rule| &rule.spec.taint)
    }
}
