//! Topology aware hints (KEP-2433): allocates endpoints to zones in proportion to the zones' CPU, if the annotation
//! `service.kubernetes.io/topology-mode` is set. Upstream: `endpointslice/topologycache`.

use super::{
    hints::{EndpointPair, Layout, zone_hint},
    zones::Ratios,
};
use evenkeel_api::Text;
use std::collections::BTreeMap;

/// Fraction by which a zone's share of the CPU may exceed its share of the endpoints. Upstream: `overloadThreshold`.
const OVERLOAD_THRESHOLD: f64 = 0.2;

/// Number of endpoints allocated to each zone.
pub(super) type ZoneCounts = BTreeMap<Text, usize>;

/// Maximum and desired number of endpoints of a zone. Upstream: `allocation`.
#[derive(Debug, Clone, Copy)]
struct Allocation {
    /// Maximum number of endpoints. Hints that exceed it are invalid.
    maximum: usize,
    /// Number of endpoints in proportion to the zone's CPU, usually a fraction.
    desired: f64,
}

/// Sets the hints in slices that are written, and in unchanged slices whose hints are invalid. Returns the number of
/// endpoints allocated to each zone. Upstream: `AddHints`.
///
/// # Errors
///
/// Returns the reason why no hints can be set.
pub(super) fn allocate(
    layout: &mut Layout<'_>,
    ratios: Option<&Ratios>,
) -> Result<ZoneCounts, String> {
    let allocations = allocations(layout.ready_count(), ratios)?;
    let UnchangedSlices { mut allocated, invalid } = unchanged_slices(layout, &allocations);
    let invalid_members =
        invalid.iter().flat_map(|index| layout.slices[*index].members.iter().copied());
    let members: Vec<usize> = layout
        .members_to_write()
        .chain(invalid_members)
        .filter(|index| layout.is_ready(*index))
        .collect();
    if members.iter().any(|index| layout.desired[*index].zone.is_empty()) {
        return Err("One or more endpoints do not have a zone specified".to_owned());
    }
    if members.is_empty() && allocated.is_empty() {
        return Err("No hints allocated for zones".to_owned());
    }
    for index in invalid {
        layout.slices[index].needs_write = true;
    }
    for index in &members {
        let zone = layout.desired[*index].zone.clone();
        layout.desired[*index].hints = zone_hint(&zone);
        *allocated.entry(zone).or_default() += 1;
    }
    let (mut giving, mut receiving) = giving_and_receiving_zones(&allocations, &allocated);
    for index in members {
        let zone = layout.desired[index].zone.clone();
        let Some(remaining) = giving.get_mut(&zone).filter(|remaining| **remaining > 0) else {
            continue;
        };
        let Some((receiver, missing)) = receiving.iter_mut().find(|(_, missing)| **missing > 0)
        else {
            break;
        };
        layout.desired[index].hints = zone_hint(receiver);
        *remaining -= 1;
        *missing -= 1;
        *allocated.entry(receiver.clone()).or_default() += 1;
        allocated.entry(zone).and_modify(|count| *count -= 1);
    }
    Ok(allocated)
}

/// Returns the allocation of this number of endpoints to each zone. Upstream: `getAllocations`.
///
/// # Errors
///
/// Fails if the ratios are unknown, or a zone would be overloaded.
fn allocations(
    endpoints: usize,
    ratios: Option<&Ratios>,
) -> Result<BTreeMap<Text, Allocation>, String> {
    let ratios = ratios.ok_or(
        "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes",
    )?;
    let with_counts =
        |words: &str| format!("{words} ({endpoints} endpoints, {} zones)", ratios.len());
    if ratios.len() > endpoints {
        return Err(with_counts("Insufficient number of endpoints"));
    }
    let minimum = |ratio: f64| minimum_endpoints(endpoints, ratio);
    let total: usize = ratios.values().map(|ratio| minimum(*ratio)).sum();
    let spare = endpoints.checked_sub(total).ok_or_else(|| {
        with_counts("Unable to allocate minimum required endpoints to each zone without exceeding overload threshold")
    })?;
    let allocation = |ratio: f64| {
        let minimum = minimum(ratio);
        let desired = (ratio * endpoints as f64).max(minimum as f64);
        Allocation { maximum: minimum + spare, desired }
    };
    Ok(ratios.iter().map(|(zone, ratio)| (zone.clone(), allocation(*ratio))).collect())
}

/// Returns the least number of endpoints of a zone with this share of the CPU that does not overload the zone.
fn minimum_endpoints(endpoints: usize, ratio: f64) -> usize {
    (ratio * endpoints as f64 * (1.0 / (1.0 + OVERLOAD_THRESHOLD))).ceil() as usize
}

/// Hints of the slices that need no write otherwise.
struct UnchangedSlices {
    /// Number of endpoints that valid hints allocate to each zone.
    allocated: ZoneCounts,
    /// Indexes of the slices whose hints are invalid.
    invalid: Vec<usize>,
}

/// Returns the allocations of slices that need no write, and the slices whose hints are invalid.
fn unchanged_slices(
    layout: &Layout<'_>,
    allocations: &BTreeMap<Text, Allocation>,
) -> UnchangedSlices {
    let mut allocated = ZoneCounts::new();
    let mut invalid = Vec::new();
    for index in (0..layout.slices.len()).filter(|index| !layout.slices[*index].needs_write) {
        match hints_by_zone(layout, index, &allocated, allocations) {
            Some(counts) => {
                for (zone, count) in counts {
                    *allocated.entry(zone).or_default() += count;
                }
            }
            None => invalid.push(index),
        }
    }
    UnchangedSlices { allocated, invalid }
}

/// Returns how many endpoints a slice allocates to each zone. Returns `None` if its hints are invalid: one is missing,
/// or a zone would get more than its maximum. Upstream: `getHintsByZone`.
fn hints_by_zone(
    layout: &Layout<'_>,
    index: usize,
    allocated: &ZoneCounts,
    allocations: &BTreeMap<Text, Allocation>,
) -> Option<ZoneCounts> {
    let mut counts = ZoneCounts::new();
    for EndpointPair { desired, existing } in layout.pairs(index) {
        if desired.conditions.ready != Some(true) {
            continue;
        }
        let zones = &existing.hints.as_ref()?.for_zones;
        if zones.is_empty() {
            return None;
        }
        for zone in zones {
            allocations.get(&zone.name)?;
            *counts.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let fits = |zone: &str, count: usize| {
        let other_slices = allocated.get(zone).copied().unwrap_or_default();
        allocations.get(zone).is_some_and(|allocation| other_slices + count <= allocation.maximum)
    };
    counts.iter().all(|(zone, count)| fits(zone, *count)).then_some(counts)
}

/// Returns how many endpoints each zone gives and receives. Repeatedly, the zone with the largest surplus gives one
/// to the zone with the largest deficit. Upstream: `getGivingAndReceivingZones`.
fn giving_and_receiving_zones(
    allocations: &BTreeMap<Text, Allocation>,
    allocated: &ZoneCounts,
) -> (ZoneCounts, ZoneCounts) {
    let mut surpluses = BTreeMap::<&str, f64>::new();
    let mut deficits = BTreeMap::<&str, f64>::new();
    for (zone, allocation) in allocations {
        let surplus = allocated.get(zone).copied().unwrap_or_default() as f64 - allocation.desired;
        if surplus > 0.0 {
            surpluses.insert(zone, surplus);
        } else if surplus < 0.0 {
            deficits.insert(zone, -surplus);
        }
    }
    let mut giving = ZoneCounts::new();
    let mut receiving = ZoneCounts::new();
    while let (Some((giver, surplus)), Some((receiver, deficit))) =
        (largest(&surpluses), largest(&deficits))
    {
        // Only fractions of an endpoint are left, which a move of a whole endpoint would not even out.
        if (surplus < 1.0 && deficit < 1.0) || surplus < 0.5 || deficit < 0.5 {
            break;
        }
        *giving.entry(giver.into()).or_default() += 1;
        *receiving.entry(receiver.into()).or_default() += 1;
        surpluses.entry(giver).and_modify(|surplus| *surplus -= 1.0);
        deficits.entry(receiver).and_modify(|deficit| *deficit -= 1.0);
    }
    (giving, receiving)
}

/// Returns the zone with the largest positive number, and the number.
fn largest<'a>(zones: &BTreeMap<&'a str, f64>) -> Option<(&'a str, f64)> {
    let numbers = zones.iter().map(|(zone, number)| (*zone, *number));
    numbers.filter(|(_, number)| *number > 0.0).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Returns whether a zone has too few of the allocated endpoints for the current ratios, or the ratios are unknown.
pub(super) fn is_overloaded(allocated: &ZoneCounts, ratios: Option<&Ratios>) -> bool {
    let Some(ratios) = ratios else { return !allocated.is_empty() };
    let total: usize = allocated.values().sum();
    let too_few = |zone: &str, ratio: f64| {
        let minimum = minimum_endpoints(total, ratio);
        allocated.get(zone).is_none_or(|count| *count < minimum)
    };
    !allocated.is_empty() && ratios.iter().any(|(zone, ratio)| too_few(zone, *ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratios(shares: &[(&str, f64)]) -> Ratios {
        shares.iter().map(|(zone, share)| ((*zone).into(), *share)).collect()
    }

    #[test]
    fn allocations_are_proportional_to_cpu() {
        let even = ratios(&[("a", 0.5), ("b", 0.5)]);
        let maximum_and_desired =
            |endpoints, ratios: Option<&Ratios>| -> Result<Vec<(usize, f64)>, String> {
                let zones = allocations(endpoints, ratios)?.into_values();
                Ok(zones.map(|zone| (zone.maximum, zone.desired)).collect::<Vec<_>>())
            };
        assert_eq!(maximum_and_desired(4, Some(&even)), Ok(vec![(2, 2.0), (2, 2.0)]));
        assert_eq!(maximum_and_desired(10, Some(&even)), Ok(vec![(5, 5.0), (5, 5.0)]));
        assert_eq!(maximum_and_desired(20, Some(&even)), Ok(vec![(11, 10.0), (11, 10.0)]));
        let refused = |endpoints, ratios: Option<&Ratios>| {
            maximum_and_desired(endpoints, ratios).unwrap_err()
        };
        assert_eq!(
            refused(1, Some(&even)),
            "Insufficient number of endpoints (1 endpoints, 2 zones)"
        );
        assert!(refused(4, None).starts_with("Insufficient Node information"));
        let uneven = ratios(&[("a", 0.7), ("b", 0.2), ("c", 0.1)]);
        assert_eq!(
            refused(3, Some(&uneven)),
            "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold (3 endpoints, 3 zones)"
        );
    }

    #[test]
    fn overloaded_zones_are_detected() {
        let even = ratios(&[("a", 0.5), ("b", 0.5)]);
        let endpoint_counts = |shares: &[(&str, usize)]| -> ZoneCounts {
            shares.iter().map(|(zone, n)| ((*zone).into(), *n)).collect()
        };
        assert!(!is_overloaded(&endpoint_counts(&[("a", 5), ("b", 5)]), Some(&even)));
        assert!(is_overloaded(&endpoint_counts(&[("a", 8), ("b", 2)]), Some(&even)));
        assert!(
            is_overloaded(&endpoint_counts(&[("a", 8)]), Some(&even)),
            "a zone without endpoints"
        );
        assert!(is_overloaded(&endpoint_counts(&[("a", 8)]), None), "no CPU ratios");
        assert!(!is_overloaded(&ZoneCounts::new(), None));
    }
}
