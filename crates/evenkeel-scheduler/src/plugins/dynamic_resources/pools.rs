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
    pub(super) elsewhere: Vec<&'a Offer>,
    /// Shared counters of the pool by the name of their set.
    pub(super) counters: BTreeMap<&'a str, &'a CounterSet>,
}

/// State of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolState {
    Usable,
    /// The API server does not have all slices of the newest generation yet.
    Incomplete,
    /// The slices contradict each other.
    Invalid,
}

/// Reports whether a slice's or device's node selection includes the node.
pub(super) fn reaches(name: &str, all: bool, selector: Option<&NodeSelector>, node: &Node) -> bool {
    if !name.is_empty() {
        return *name == *node.meta.name;
    }
    let selected = |selector: &NodeSelector| {
        selector.node_selector_terms.iter().any(|term| nodeaffinity::matches(term, node))
    };
    all || selector.is_some_and(selected)
}

/// Reports whether the node can access a device that has its own node selection.
pub(super) fn device_reaches(device: &Device, node: &Node) -> bool {
    reaches(&device.node_name, device.all_nodes, device.node_selector.as_deref(), node)
}

fn offer_reaches(offer: &Offer, node: &Node) -> bool {
    let spec = &offer.slice.spec;
    let selector = spec.node_selector.as_deref();
    if !spec.node_name.is_empty() || spec.all_nodes || selector.is_some() {
        return reaches(&spec.node_name, spec.all_nodes, selector, node);
    }
    spec.per_device_node_selection && spec.devices.iter().any(|device| device_reaches(device, node))
}

/// Returns the pools of a node ordered by driver and name. Pools with devices that have binding conditions come last.
pub(super) fn gather<'a>(inventory: &'a Inventory, node: &Node) -> Vec<Pool<'a>> {
    let mut found: BTreeMap<(&str, &str), Vec<&Offer>> = BTreeMap::new();
    for offer in inventory.for_node(&node.meta.name) {
        if offer.is_unknown() || !offer_reaches(offer, node) {
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
    let pools = found.into_values().filter_map(|offers| pool(inventory, offers));
    let (with_conditions, mut pools): (Vec<_>, Vec<_>) = pools.partition(|pool| {
        let mut devices = pool.offers.iter().flat_map(|offer| offer.devices());
        devices.any(|device| !device.binding_conditions.is_empty())
    });
    pools.extend(with_conditions);
    pools
}

/// Builds a pool from slices of one generation. Returns `None` if slices of a newer generation exist.
fn pool<'a>(inventory: &'a Inventory, mut offers: Vec<&'a Offer>) -> Option<Pool<'a>> {
    let first = *offers.first()?;
    let wanted = &first.slice.spec.pool;
    let mut pool = Pool {
        driver: first.driver(),
        name: first.pool(),
        state: PoolState::Usable,
        offers: Vec::new(),
        elsewhere: Vec::new(),
        counters: BTreeMap::new(),
    };
    let is_all = |count: usize| i64::try_from(count) == Ok(wanted.resource_slice_count);
    if !is_all(offers.len()) {
        // The missing slices need not apply to the node, but they must exist.
        let mut existing = 0;
        for other in inventory.of_pool(pool.driver, pool.name) {
            let generation = other.slice.spec.pool.generation;
            if generation > wanted.generation {
                return None;
            }
            if generation < wanted.generation || other.is_unknown() {
                continue;
            }
            existing += 1;
            if !offers.iter().any(|offer| offer.index == other.index) {
                pool.elsewhere.push(other);
            }
        }
        if !is_all(existing) {
            pool.elsewhere.clear();
            pool.state = PoolState::Incomplete;
            return Some(pool);
        }
    }
    offers.sort_by(|a, b| a.slice.meta.name.cmp(&b.slice.meta.name));
    let has_counters = |offer: &&Offer| !offer.slice.spec.shared_counters.is_empty();
    let (with_counters, devices): (Vec<_>, Vec<_>) = offers.into_iter().partition(has_counters);
    let (others, elsewhere): (Vec<_>, Vec<_>) = pool.elsewhere.into_iter().partition(has_counters);
    (pool.offers, pool.elsewhere) = (devices, elsewhere);
    let mut valid = are_names_unique(&pool.offers);
    for set in
        with_counters.iter().chain(&others).flat_map(|offer| &*offer.slice.spec.shared_counters)
    {
        valid &= pool.counters.insert(&set.name, set).is_none();
    }
    if !valid || !consumes_existing_counters(&pool) {
        pool.state = PoolState::Invalid;
        (pool.offers, pool.elsewhere) = (Vec::new(), Vec::new());
    }
    Some(pool)
}

fn are_names_unique(offers: &[&Offer]) -> bool {
    let mut names = BTreeSet::new();
    offers.iter().flat_map(|offer| offer.devices()).all(|device| names.insert(&*device.name))
}

fn consumes_existing_counters(pool: &Pool<'_>) -> bool {
    let devices = pool.offers.iter().chain(&pool.elsewhere).flat_map(|offer| offer.devices());
    devices.flat_map(|device| &*device.consumes_counters).all(|consumed| {
        let set = pool.counters.get(&*consumed.counter_set);
        set.is_some_and(|set| consumed.counters.iter().all(|(name, _)| set.counters.contains(name)))
    })
}
