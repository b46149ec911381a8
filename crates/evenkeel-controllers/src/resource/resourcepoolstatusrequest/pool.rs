//! Devices of a pool. Upstream: `calculatePoolStatus`.

use super::{
    plan::Slice,
    views::{self, PoolViews},
};
use crate::{
    newer_kinds::AllocatedDevice,
    resource::{
        podclaims::{Claim, allocated_devices},
        rules::{Rule, selects},
    },
    wire::to_i32,
};
use evenkeel_api::{View as _, quantity::Quantity};
use k8s_openapi::{
    api::resource::{v1::Device, v1alpha3::PoolStatus},
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Beginning of the only error that is not final. Upstream: `prefixPoolIncomplete`.
pub(super) const POOL_INCOMPLETE: &str = "PoolIncomplete:";
/// Maximum length of a `validationError` in bytes.
const MAX_ERROR_LENGTH: usize = 256;

/// Amounts by name, of capacities or counters.
pub(super) type Amounts<'a> = BTreeMap<&'a str, Quantity>;

/// Use of a driver's devices by claims, and the rules that taint devices.
pub(super) struct Inventory<'a> {
    /// Use of each pool.
    pools: BTreeMap<&'a str, Usage<'a>>,
    rules: &'a [Arc<Rule>],
}

/// Use of a pool's devices by claims without admin access.
#[derive(Default)]
pub(super) struct Usage<'a> {
    /// Names of the devices, each once, even if several claims share it.
    pub(super) devices: BTreeSet<&'a str>,
    /// Consumed capacity, by name.
    pub(super) consumed: Amounts<'a>,
}

impl<'a> Inventory<'a> {
    /// Adds up the allocations of a driver's devices.
    pub(super) fn new(driver: &str, claims: &'a [Arc<Claim>], rules: &'a [Arc<Rule>]) -> Self {
        let mut pools = BTreeMap::<&str, Usage<'_>>::new();
        let allocated = claims.iter().flat_map(|claim| allocated_devices(claim));
        let is_used = |result: &&AllocatedDevice| {
            result.driver == driver && result.admin_access != Some(true)
        };
        for result in allocated.filter(is_used) {
            let usage = pools.entry(&result.pool).or_default();
            usage.devices.insert(&result.device);
            for (name, amount) in result.consumed_capacity.iter().flatten() {
                add(&mut usage.consumed, name, amount);
            }
        }
        Self { pools, rules }
    }
}

/// Adds an amount to a sum. An invalid amount counts as zero.
pub(super) fn add<'a>(sums: &mut Amounts<'a>, name: &'a str, amount: &ApiQuantity) {
    let sum = sums.entry(name).or_default();
    *sum = sum.plus(quantity(amount));
}

/// Reads a quantity. An invalid one, which the API server rejects, is zero.
pub(super) fn quantity(text: &ApiQuantity) -> Quantity {
    Quantity::parse(&text.0).unwrap_or_default()
}

/// Slices of a pool's newest generation.
pub(super) struct Pool<'a> {
    driver: &'a str,
    name: &'a str,
    generation: i64,
    slices: Vec<&'a Slice>,
}

impl<'a> Pool<'a> {
    /// Returns the pools of a driver, or the one with this name, sorted by name.
    pub(super) fn all(driver: &'a str, name: Option<&str>, slices: &'a [Arc<Slice>]) -> Vec<Self> {
        let mut by_name = BTreeMap::<&str, Vec<&Slice>>::new();
        let of_driver = slices.iter().filter(|slice| slice.spec.driver == driver);
        for slice in of_driver {
            let pool = &*slice.spec.pool.name;
            if name.is_none_or(|name| name == pool) {
                by_name.entry(pool).or_default().push(slice);
            }
        }
        let pool = |(name, mut slices): (&'a str, Vec<&'a Slice>)| {
            let generation = |slice: &&Slice| slice.spec.pool.generation;
            let newest = slices.iter().map(generation).max().unwrap_or_default();
            slices.retain(|slice| generation(slice) == newest);
            slices.sort_unstable_by(|a, b| a.meta().name.cmp(&b.meta().name));
            Self { driver, name, generation: newest, slices }
        };
        by_name.into_iter().map(pool).collect()
    }

    /// Returns the devices of all slices, each with its slice.
    pub(super) fn devices(&self) -> impl Iterator<Item = (&'a Slice, &'a Device)> + Clone {
        self.slices.iter().flat_map(|slice| {
            let slice: &'a Slice = slice;
            slice.spec.devices.iter().flatten().map(move |device| (slice, device))
        })
    }

    pub(super) fn slices(&self) -> &[&'a Slice] {
        &self.slices
    }

    /// Returns the driver's name.
    pub(super) fn driver(&self) -> &'a str {
        self.driver
    }

    /// Returns the status of the pool. `attribute` is the request's default for the type of partitions.
    pub(super) fn status(&self, inventory: &Inventory<'_>, attribute: Option<&str>) -> PoolStatus {
        let status = PoolStatus {
            driver: self.driver.to_owned(),
            pool_name: self.name.to_owned(),
            generation: self.generation,
            node_name: self.node_name().map(str::to_owned),
            ..PoolStatus::default()
        };
        let expected = self.slices.first().map_or(0, |slice| slice.spec.pool.resource_slice_count);
        let observed = to_i32(self.slices.len());
        if i64::from(observed) < expected {
            let generation = self.generation;
            let error = format!(
                "{POOL_INCOMPLETE} pool {self} is incomplete: observed {observed}/{expected} slices at generation {generation}"
            );
            return PoolStatus { validation_error: Some(truncated(error)), ..status };
        }
        let unused = Usage::default();
        let usage = inventory.pools.get(self.name).unwrap_or(&unused);
        let total = to_i32(self.devices().count());
        let allocated = to_i32(usage.devices.len());
        let is_unavailable =
            |(_, device): &(&Slice, &Device)| self.is_unavailable(device, inventory.rules);
        let unavailable = to_i32(self.devices().filter(is_unavailable).count());
        let available = total.saturating_sub(allocated).saturating_sub(unavailable).max(0);
        let PoolViews { partition_summary, shareable_summary, error } =
            views::of(self, usage, attribute);
        PoolStatus {
            resource_slice_count: Some(observed),
            total_devices: Some(total),
            allocated_devices: Some(allocated),
            unavailable_devices: Some(unavailable),
            available_devices: Some(available),
            partition_summary: partition_summary.filter(|summary| !summary.is_empty()),
            shareable_summary,
            validation_error: error.map(truncated),
            ..status
        }
    }

    /// Returns the node of all slices, if they have the same one.
    fn node_name(&self) -> Option<&'a str> {
        let mut nodes =
            self.slices.iter().map(|slice| slice.spec.node_name.as_deref().unwrap_or_default());
        let first = nodes.next().filter(|node| !node.is_empty())?;
        nodes.all(|node| node == first).then_some(first)
    }

    /// Returns whether a taint of the device or of a rule prevents the allocation. Upstream: `deviceUnavailable`.
    fn is_unavailable(&self, device: &Device, rules: &[Arc<Rule>]) -> bool {
        let prevents = |effect: &str| matches!(effect, "NoSchedule" | "NoExecute");
        device.taints.iter().flatten().any(|taint| prevents(&taint.effect))
            || rules.iter().any(|rule| {
                prevents(&rule.spec.taint.effect)
                    && selects(rule, self.driver, self.name, &device.name)
            })
    }
}

impl std::fmt::Display for Pool<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.driver, self.name)
    }
}

/// Shortens an error to the length that the API allows.
fn truncated(mut error: String) -> String {
    error.truncate(error.floor_char_boundary(MAX_ERROR_LENGTH));
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use serde_json::{Value, json};

    fn slice(name: &str, generation: i64, node: &str, devices: &Value) -> Arc<Slice> {
        Arc::new(object(&json!({
            "metadata": {"name": name},
            "spec": {
                "driver": "gpu.test", "nodeName": node, "devices": devices,
                "pool": {"name": "p", "generation": generation, "resourceSliceCount": 2},
            },
        })))
    }

    fn claim(device: &str, admin: bool) -> Arc<Claim> {
        let result = json!({
            "request": "r", "driver": "gpu.test", "pool": "p", "device": device, "adminAccess": admin,
            "consumedCapacity": {"memory": "1Gi"},
        });
        Arc::new(object(&json!({
            "metadata": {"name": "c", "namespace": "ns"}, "spec": {},
            "status": {"allocation": {"devices": {"results": [result]}}},
        })))
    }

    fn status(slices: &[Arc<Slice>], claims: &[Arc<Claim>], rules: &[Arc<Rule>]) -> PoolStatus {
        let pools = Pool::all("gpu.test", None, slices);
        assert_eq!(pools.len(), 1);
        pools[0].status(&Inventory::new("gpu.test", claims, rules), None)
    }

    #[test]
    fn devices_are_counted_in_the_newest_generation() {
        let tainted =
            json!([{"name": "c", "taints": [{"key": "k", "effect": "NoSchedule"}]}, {"name": "d"}]);
        let slices = [
            slice("old", 1, "other", &json!([{"name": "x"}, {"name": "y"}, {"name": "z"}])),
            slice("s1", 2, "node", &json!([{"name": "a"}, {"name": "b"}])),
            slice("s2", 2, "node", &tainted),
        ];
        let rule = json!({"metadata": {"name": "r"}, "spec": {
            "deviceSelector": {"device": "d"}, "taint": {"key": "k", "effect": "NoExecute"},
        }});
        // A device that two claims share counts once, and admin access does not count.
        let claims = [claim("a", false), claim("a", false), claim("b", true)];
        let counts = |status: &PoolStatus| {
            [
                status.total_devices,
                status.allocated_devices,
                status.unavailable_devices,
                status.available_devices,
            ]
        };
        let without_rule = status(&slices, &claims, &[]);
        assert_eq!(counts(&without_rule), [4, 1, 1, 2].map(Some));
        assert_eq!((without_rule.generation, without_rule.resource_slice_count), (2, Some(2)));
        assert_eq!(without_rule.node_name.as_deref(), Some("node"));
        let with_rule = status(&slices, &claims, &[Arc::new(object(&rule))]);
        assert_eq!(counts(&with_rule), [4, 1, 2, 1].map(Some));
        let mut no_effect = rule;
        no_effect["spec"]["taint"]["effect"] = json!("None");
        let unaffected = status(&slices, &claims, &[Arc::new(object(&no_effect))]);
        assert_eq!(counts(&unaffected), counts(&without_rule));
    }

    #[test]
    fn incomplete_pool_has_an_error_instead_of_counts() {
        let incomplete = status(&[slice("s1", 3, "node", &json!([{"name": "a"}]))], &[], &[]);
        let error =
            "PoolIncomplete: pool gpu.test/p is incomplete: observed 1/2 slices at generation 3";
        assert_eq!(incomplete.validation_error.as_deref(), Some(error));
        assert_eq!((incomplete.total_devices, incomplete.resource_slice_count), (None, None));
        assert_eq!(truncated("é".repeat(200)).len(), MAX_ERROR_LENGTH);
    }

    #[test]
    fn node_name_is_left_out_if_slices_differ() {
        let one = json!([{"name": "a"}]);
        let mixed = [slice("s1", 1, "node", &one), slice("s2", 1, "other", &one)];
        assert_eq!(status(&mixed, &[], &[]).node_name, None);
    }
}
