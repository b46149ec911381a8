//! Summaries of a pool's partitions and shareable devices. Upstream: `computePoolViews`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | type of a partition: the slice's `partitionTypeAttribute`, or the request's default if no slice has one | `declared_attribute`, `partition_type` |
//! | `allocatable`: unused devices that still fit into the shared counters | `allocatable` |
//! | all partitions of a type consume the same counters | `partition_summary` |
//! | shareable devices and their capacity | `shareable_summary` |
//! | at most 32 entries in a list | `partition_summary`, `shareable_summary` |

use super::{
    plan::Slice,
    pool::{Amounts, Pool, Usage, add, quantity},
};
use crate::wire::to_i32;
use evenkeel_api::quantity::Quantity;
use k8s_openapi::{
    api::resource::{
        v1::{Device, DeviceCounterConsumption},
        v1alpha3::{PartitionTypeStatus, ShareableCapacityStatus, ShareableSummaryStatus},
    },
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use std::collections::BTreeMap;

/// Maximum number of entries in a list of the status. Upstream: `maxStatusListItems`.
const MAX_LIST_ITEMS: usize = 32;

/// Summaries of a pool. A pool with an error has no partitions.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PoolViews {
    pub(super) partition_summary: Option<Vec<PartitionTypeStatus>>,
    pub(super) shareable_summary: Option<ShareableSummaryStatus>,
    /// The first problem of the pool's devices.
    pub(super) error: Option<String>,
}

/// Returns the summaries of a pool. `default_attribute` is the request's default for the type of partitions.
pub(super) fn of(pool: &Pool<'_>, usage: &Usage<'_>, default_attribute: Option<&str>) -> PoolViews {
    let (partition_summary, partition_error) =
        split(partition_summary(pool, usage, default_attribute));
    let (shareable_summary, shareable_error) = split(shareable_summary(pool, usage));
    let error = partition_error.or(shareable_error);
    let partition_summary = partition_summary.flatten().filter(|_| error.is_none());
    PoolViews { partition_summary, shareable_summary: shareable_summary.flatten(), error }
}

fn split<T>(result: Result<T, String>) -> (Option<T>, Option<String>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(error) => (None, Some(error)),
    }
}

/// Amounts of all counters, by counter set and counter.
type Counters<'a> = BTreeMap<&'a str, Amounts<'a>>;

/// Partitions of one type.
#[derive(Default)]
struct Group<'a> {
    /// Counters that each partition consumes, as a string.
    cost: Vec<String>,
    total: usize,
    unused: Vec<&'a Device>,
}

/// Groups the devices that consume counters by their type. `None` if no attribute names the type. Upstream:
/// `computePartitionSummary`.
fn partition_summary(
    pool: &Pool<'_>,
    usage: &Usage<'_>,
    default_attribute: Option<&str>,
) -> Result<Option<Vec<PartitionTypeStatus>>, String> {
    let declares = pool.devices().any(|(slice, _)| declared_attribute(slice).is_some());
    let default_attribute = default_attribute.filter(|name| !declares && !name.is_empty());
    let attribute_of = |slice| declared_attribute(slice).or(default_attribute);
    if !pool.devices().any(|(slice, _)| attribute_of(slice).is_some()) {
        return Ok(None);
    }
    if pool
        .slices()
        .iter()
        .all(|slice| slice.spec.shared_counters.iter().flatten().next().is_none())
    {
        return Err(format!(
            "PartitionTypeMissing: pool {pool} declares partitionTypeAttribute but publishes no sharedCounters"
        ));
    }
    let mut groups = BTreeMap::<(&str, &str), Group<'_>>::new();
    for (slice, device) in pool.devices() {
        let cost = device.consumes_counters.as_deref().unwrap_or_default();
        let Some(attribute) = attribute_of(slice).filter(|_| !cost.is_empty()) else { continue };
        let Some(type_) = partition_type(pool.driver(), device, attribute) else {
            let name = &device.name;
            return Err(format!(
                "PartitionTypeMissing: device {name:?} in pool {pool} does not carry partition type attribute {attribute:?}"
            ));
        };
        let group = groups.entry((attribute, type_)).or_default();
        let cost = cost_text(cost);
        if group.total == 0 {
            group.cost = cost;
        } else if group.cost != cost {
            return Err(format!(
                "PartitionCostMismatch: devices of partition type {type_:?} in pool {pool} consume different counters"
            ));
        }
        group.total += 1;
        if !usage.devices.contains(&*device.name) {
            group.unused.push(device);
        }
    }
    if groups.len() > MAX_LIST_ITEMS {
        let count = groups.len();
        return Err(format!(
            "PartitionSummaryOverCap: pool {pool} has {count} partition types, exceeding the maximum of {MAX_LIST_ITEMS}"
        ));
    }
    let counters = available_counters(pool, usage);
    let status = |((attribute, type_), group): ((&str, &str), Group<'_>)| PartitionTypeStatus {
        attribute: attribute.to_owned(),
        type_: type_.to_owned(),
        total: to_i32(group.total),
        allocatable: to_i32(allocatable(&group.unused, counters.clone())),
    };
    Ok(Some(groups.into_iter().map(status).collect()))
}

/// Returns the attribute that the slice declares for the type of its partitions.
fn declared_attribute(slice: &Slice) -> Option<&str> {
    slice.spec.partition_type_attribute.as_deref().filter(|name| !name.is_empty())
}

/// Returns the string value of an attribute. The name in the driver's domain may be without the domain. Upstream:
/// `resolvePartitionType`.
fn partition_type<'a>(driver: &str, device: &'a Device, attribute: &str) -> Option<&'a str> {
    let attributes = device.attributes.as_ref()?;
    let bare_name = || attribute.strip_prefix(driver)?.strip_prefix('/');
    let value = attributes.get(attribute).or_else(|| attributes.get(bare_name()?))?;
    value.string.as_deref()
}

/// Returns the counters that a device consumes as a string, for comparison. Upstream: `consumesCountersKey`.
fn cost_text(cost: &[DeviceCounterConsumption]) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for consumption in cost {
        for (name, counter) in &consumption.counters {
            let amount = quantity(&counter.value);
            parts.push(format!("{}/{name}={amount}", consumption.counter_set));
        }
    }
    parts.sort_unstable();
    parts
}

/// Returns the shared counters without the consumption of used devices. Upstream: `availableCounters`.
fn available_counters<'a>(pool: &Pool<'a>, usage: &Usage<'_>) -> Counters<'a> {
    let mut counters = Counters::new();
    for slice in pool.slices() {
        for set in slice.spec.shared_counters.iter().flatten() {
            let amounts = counters.entry(&set.name).or_default();
            for (name, counter) in &set.counters {
                amounts.insert(name, quantity(&counter.value));
            }
        }
    }
    for (_, device) in pool.devices().filter(|(_, device)| usage.devices.contains(&*device.name)) {
        deduct(device, &mut counters);
    }
    counters
}

/// Counts the devices that can be allocated one after the other with these counters.
fn allocatable(devices: &[&Device], mut counters: Counters<'_>) -> usize {
    let fits = |device: &&&Device| {
        let fits = fits(device, &counters);
        if fits {
            deduct(device, &mut counters);
        }
        fits
    };
    devices.iter().filter(fits).count()
}

/// Returns whether the counters suffice for a device. Upstream: `deviceFits`.
fn fits(device: &Device, counters: &Counters<'_>) -> bool {
    device.consumes_counters.iter().flatten().all(|consumption| {
        let set = counters.get(&*consumption.counter_set);
        consumption.counters.iter().all(|(name, counter)| {
            let available = set.and_then(|set| set.get(&**name));
            available.is_some_and(|available| *available >= quantity(&counter.value))
        })
    })
}

/// Subtracts the consumption of a device. Upstream: `deductCounters`.
fn deduct(device: &Device, counters: &mut Counters<'_>) {
    for consumption in device.consumes_counters.iter().flatten() {
        let Some(set) = counters.get_mut(&*consumption.counter_set) else { continue };
        for (name, counter) in &consumption.counters {
            if let Some(available) = set.get_mut(&**name) {
                *available = available.minus(quantity(&counter.value));
            }
        }
    }
}

/// Adds up the capacity of devices that several claims can share. `None` if the pool has no such device. Upstream:
/// `computeShareableSummary`.
fn shareable_summary(
    pool: &Pool<'_>,
    usage: &Usage<'_>,
) -> Result<Option<ShareableSummaryStatus>, String> {
    let shareable = pool.devices().map(|(_, device)| device);
    let shareable = shareable.filter(|device| device.allow_multiple_allocations == Some(true));
    let (mut full, mut partial, mut totals) = (0, 0, Amounts::new());
    for device in shareable {
        if usage.devices.contains(&*device.name) {
            partial += 1;
        } else {
            full += 1;
        }
        for (name, capacity) in device.capacity.iter().flatten() {
            add(&mut totals, name, &capacity.value);
        }
    }
    if full + partial == 0 {
        return Ok(None);
    }
    if totals.len() > MAX_LIST_ITEMS {
        let count = totals.len();
        return Err(format!(
            "ShareableSummaryOverCap: pool {pool} has {count} shareable capacity keys, exceeding the maximum of {MAX_LIST_ITEMS}"
        ));
    }
    let capacity = |(name, total): (&str, Quantity)| {
        let consumed = usage.consumed.get(name).copied().unwrap_or_default();
        let available = total.minus(consumed);
        let available = if available.sign() < 0 { Quantity::default() } else { available };
        ShareableCapacityStatus {
            name: name.to_owned(),
            total: ApiQuantity(total.to_string()),
            consumed: ApiQuantity(consumed.to_string()),
            available: ApiQuantity(available.to_string()),
        }
    };
    let capacity: Vec<_> = totals.into_iter().map(capacity).collect();
    Ok(Some(ShareableSummaryStatus {
        fully_available_devices: full,
        partially_available_devices: partial,
        capacity: (!capacity.is_empty()).then_some(capacity),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use serde_json::{Value, json};
    use std::sync::Arc;

    const ATTRIBUTE: &str = "gpu.test/profile";

    /// Returns a partition of this type that consumes so much memory.
    fn partition(name: &str, type_: &str, memory: &str) -> Value {
        json!({"name": name, "attributes": {"profile": {"string": type_}}, "consumesCounters": [
            {"counterSet": "card", "counters": {"memory": {"value": memory}}},
        ]})
    }

    fn slice(name: &str, attribute: Option<&str>, devices: &Value) -> Arc<Slice> {
        Arc::new(object(&json!({
            "metadata": {"name": name},
            "spec": {
                "driver": "gpu.test", "partitionTypeAttribute": attribute, "devices": devices,
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            },
        })))
    }

    /// Returns a slice with a counter of 40Gi memory.
    fn counters() -> Arc<Slice> {
        Arc::new(object(&json!({
            "metadata": {"name": "counters"},
            "spec": {
                "driver": "gpu.test", "sharedCounters": [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}],
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            },
        })))
    }

    fn views(slices: &[Arc<Slice>], used: &[&'static str], attribute: Option<&str>) -> PoolViews {
        let pools = Pool::all("gpu.test", None, slices);
        let consumed = [("memory", Quantity::parse("3Gi").unwrap())].into();
        let usage = Usage { devices: used.iter().copied().collect(), consumed };
        of(&pools[0], &usage, attribute)
    }

    /// Returns type, total and allocatable devices of each group.
    fn groups(views: &PoolViews) -> Vec<(&str, i32, i32)> {
        assert_eq!(views.error, None);
        let groups = views.partition_summary.as_deref().unwrap_or_default();
        groups.iter().map(|group| (&*group.type_, group.total, group.allocatable)).collect()
    }

    #[test]
    fn partitions_share_the_counters_that_used_devices_leave() {
        let devices = json!([
            partition("a", "half", "20Gi"),
            partition("b", "half", "20Gi"),
            partition("c", "whole", "40Gi"),
            {"name": "no-partition"},
        ]);
        let declared = [counters(), slice("s", Some(ATTRIBUTE), &devices)];
        assert_eq!(groups(&views(&declared, &[], None)), [("half", 2, 2), ("whole", 1, 1)]);
        assert_eq!(groups(&views(&declared, &["a"], None)), [("half", 2, 1), ("whole", 1, 0)]);
        assert_eq!(groups(&views(&declared, &["c"], None)), [("half", 2, 0), ("whole", 1, 0)]);
        // The request's attribute counts only if no slice declares one.
        let undeclared = [counters(), slice("s", None, &devices)];
        assert_eq!(groups(&views(&undeclared, &[], None)), []);
        assert_eq!(groups(&views(&undeclared, &[], Some(ATTRIBUTE))).len(), 2);
        assert_eq!(groups(&views(&declared, &[], Some("gpu.test/other"))).len(), 2);
    }

    #[test]
    fn pools_whose_partitions_are_unclear_have_an_error() {
        let half = partition("a", "half", "20Gi");
        let other_cost = json!([half, partition("b", "half", "10Gi")]);
        let many: Vec<_> =
            (0..33).map(|n| partition(&format!("d{n}"), &format!("t{n}"), "1Gi")).collect();
        let untyped = json!([{"name": "x", "consumesCounters": half["consumesCounters"]}]);
        let table = [
            (
                vec![slice("s", Some(ATTRIBUTE), &json!([half]))],
                "PartitionTypeMissing: pool gpu.test/p declares partitionTypeAttribute but publishes no sharedCounters",
            ),
            (
                vec![counters(), slice("s", Some(ATTRIBUTE), &untyped)],
                "PartitionTypeMissing: device \"x\" in pool gpu.test/p does not carry partition type attribute \"gpu.test/profile\"",
            ),
            (
                vec![counters(), slice("s", Some(ATTRIBUTE), &other_cost)],
                "PartitionCostMismatch: devices of partition type \"half\" in pool gpu.test/p consume different counters",
            ),
            (
                vec![counters(), slice("s", Some(ATTRIBUTE), &json!(many))],
                "PartitionSummaryOverCap: pool gpu.test/p has 33 partition types, exceeding the maximum of 32",
            ),
        ];
        for (slices, want) in table {
            let views = views(&slices, &[], None);
            assert_eq!((views.error.as_deref(), views.partition_summary), (Some(want), None));
        }
    }

    #[test]
    fn shareable_devices_add_up() {
        let device = |name: &str| json!({"name": name, "allowMultipleAllocations": true, "capacity": {"memory": {"value": "8Gi"}}});
        let slices = [slice("s", None, &json!([device("a"), device("b"), {"name": "c"}]))];
        let summary = views(&slices, &["a"], None).shareable_summary.unwrap();
        assert_eq!((summary.fully_available_devices, summary.partially_available_devices), (1, 1));
        let capacity = &summary.capacity.unwrap()[0];
        assert_eq!(
            [&capacity.total.0, &capacity.consumed.0, &capacity.available.0],
            ["16Gi", "3Gi", "13Gi"]
        );
        // More is consumed than published.
        let small = json!([{"name": "a", "allowMultipleAllocations": true, "capacity": {"memory": {"value": "1Gi"}}}]);
        let summary = views(&[slice("s", None, &small)], &[], None).shareable_summary.unwrap();
        assert_eq!(summary.capacity.unwrap()[0].available.0, "0");
        assert_eq!(
            views(&[slice("s", None, &json!([{"name": "c"}]))], &[], None),
            PoolViews::default()
        );
    }
}
