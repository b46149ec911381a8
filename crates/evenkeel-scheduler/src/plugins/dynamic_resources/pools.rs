//! Pools of devices, restricted to the devices that one node can access.
//!
//! Upstream: `structured/internal/incubating/pools_incubating.go`, `GatherPools`.

use evenkeel_api::views::{CounterSet, Device, Node, NodeSelector};
use evenkeel_component_helpers::scheduling::corev1::nodeaffinity;
use std::collections::{BTreeMap, BTreeSet};

use super::inventory::{Inventory, Offer};

/// A pool, restricted to the devices that one node can access.
pub(super) struct Pool<'a> {
    pub(super) driver: &'a str,
    pub(super) name: &'a str,
    pub(super) state: PoolState,
    /// Slices with devices that the node can access.
    pub(super) offers: Vec<&'a Offer>,
    /// Other slices of the pool's newest generation.
    pub(super) inaccessible_offers: Vec<&'a Offer>,
    /// Shared counters of the pool by the name of their set.
    pub(super) counters: BTreeMap<&'a str, &'a CounterSet>,
}

/// State of a resource pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolState {
    /// All slices of the newest generation exist and are consistent.
    Usable,
    /// The API server does not have all slices of the newest generation yet.
    Incomplete,
    /// The slices contradict each other.
    Invalid,
}

/// Returns whether a node selection includes the node. The other arguments are the selection of a slice or device.
pub(super) fn selects_node(
    name: &str,
    all_nodes: bool,
    selector: Option<&NodeSelector>,
    node: &Node,
) -> bool {
    if !name.is_empty() {
        return *name == *node.meta.name;
    }
    let matches_node = |selector: &NodeSelector| {
        selector.node_selector_terms.iter().any(|term| nodeaffinity::matches(term, node))
    };
    all_nodes || selector.is_some_and(matches_node)
}

/// Returns whether the node can access a device that has its own node selection.
pub(super) fn is_device_accessible(device: &Device, node: &Node) -> bool {
    selects_node(&device.node_name, device.all_nodes, device.node_selector.as_deref(), node)
}

/// Returns whether the node can access some device of the slice.
fn is_offer_accessible(offer: &Offer, node: &Node) -> bool {
    let spec = &offer.slice.spec;
    let selector = spec.node_selector.as_deref();
    if !spec.node_name.is_empty() || spec.all_nodes || selector.is_some() {
        return selects_node(&spec.node_name, spec.all_nodes, selector, node);
    }
    spec.per_device_node_selection
        && spec.devices.iter().any(|device| is_device_accessible(device, node))
}

/// Returns the pools of a node ordered by driver and name. Pools with devices that have binding conditions come last.
pub(super) fn gather<'a>(inventory: &'a Inventory, node: &Node) -> Vec<Pool<'a>> {
    // Slices of the newest generation, by driver and pool name.
    let mut found: BTreeMap<(&str, &str), Vec<&Offer>> = BTreeMap::new();
    for offer in inventory.slices_for_node(&node.meta.name) {
        if offer.uses_unsupported_feature() || !is_offer_accessible(offer, node) {
            continue;
        }
        let of_pool = found.entry((offer.driver(), offer.pool())).or_default();
        let generation = |offer: &Offer| offer.slice.spec.pool.generation;
        match of_pool.first().map(|first| generation(first).cmp(&generation(offer))) {
            Some(std::cmp::Ordering::Greater) => {}
            Some(std::cmp::Ordering::Less) => *of_pool = vec![offer],
            _ => of_pool.push(offer),
        }
    }
    let pools = found.into_values().filter_map(|offers| build_pool(inventory, offers));
    let (with_conditions, mut pools): (Vec<_>, Vec<_>) = pools.partition(|pool| {
        let mut devices = pool.offers.iter().flat_map(|offer| offer.devices());
        devices.any(|device| !device.binding_conditions.is_empty())
    });
    pools.extend(with_conditions);
    pools
}

/// Builds a pool from slices of one generation. Returns `None` if slices of a newer generation exist.
fn build_pool<'a>(inventory: &'a Inventory, mut offers: Vec<&'a Offer>) -> Option<Pool<'a>> {
    let first = *offers.first()?;
    let newest = &first.slice.spec.pool;
    let mut pool = Pool {
        driver: first.driver(),
        name: first.pool(),
        state: PoolState::Usable,
        offers: Vec::new(),
        inaccessible_offers: Vec::new(),
        counters: BTreeMap::new(),
    };
    let is_complete = |count: usize| i64::try_from(count) == Ok(newest.resource_slice_count);
    if !is_complete(offers.len()) {
        // The other slices need not be accessible from the node, but they must exist.
        let mut n_existing = 0;
        for other in inventory.slices_of_pool(pool.driver, pool.name) {
            let generation = other.slice.spec.pool.generation;
            if generation > newest.generation {
                return None;
            }
            if generation < newest.generation || other.uses_unsupported_feature() {
                continue;
            }
            n_existing += 1;
            if !offers.iter().any(|offer| offer.index == other.index) {
                pool.inaccessible_offers.push(other);
            }
        }
        if !is_complete(n_existing) {
            pool.inaccessible_offers.clear();
            pool.state = PoolState::Incomplete;
            return Some(pool);
        }
    }
    offers.sort_by(|a, b| a.slice.meta.name.cmp(&b.slice.meta.name));
    let has_counters = |offer: &&Offer| !offer.slice.spec.shared_counters.is_empty();
    let (with_counters, devices): (Vec<_>, Vec<_>) = offers.into_iter().partition(has_counters);
    let (inaccessible_with_counters, inaccessible_offers): (Vec<_>, Vec<_>) =
        pool.inaccessible_offers.into_iter().partition(has_counters);
    pool.offers = devices;
    pool.inaccessible_offers = inaccessible_offers;
    let mut is_valid = are_names_unique(&pool.offers);
    let counter_slices = with_counters.iter().chain(&inaccessible_with_counters);
    for set in counter_slices.flat_map(|offer| &*offer.slice.spec.shared_counters) {
        is_valid &= pool.counters.insert(&set.name, set).is_none();
    }
    if !is_valid || !consumes_existing_counters(&pool) {
        pool.state = PoolState::Invalid;
        pool.offers.clear();
        pool.inaccessible_offers.clear();
    }
    Some(pool)
}

/// Returns whether the devices of the slices have different names.
fn are_names_unique(offers: &[&Offer]) -> bool {
    let mut names = BTreeSet::new();
    offers.iter().flat_map(|offer| offer.devices()).all(|device| names.insert(&*device.name))
}

/// Returns whether all counters that the pool's devices consume exist.
fn consumes_existing_counters(pool: &Pool<'_>) -> bool {
    let devices =
        pool.offers.iter().chain(&pool.inaccessible_offers).flat_map(|offer| offer.devices());
    devices.flat_map(|device| &*device.consumes_counters).all(|consumed| {
        let set = pool.counters.get(&*consumed.counter_set);
        set.is_some_and(|set| consumed.counters.iter().all(|(name, _)| set.counters.contains(name)))
    })
}
