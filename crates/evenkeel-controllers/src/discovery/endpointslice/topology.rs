//! Topology aware hints (KEP-2433): allocates endpoints to zones in proportion to the zones' CPU, if the annotation
//! `service.kubernetes.io/topology-mode` is set. Upstream: `endpointslice/topologycache`.

use super::{
    hints::{Layout, zone_hint},
    zones::Ratios,
};
use evenkeel_api::Text;
use std::collections::BTreeMap;

/// Maximum overload of the endpoints in a zone, as a fraction of their share. Upstream: `overloadThreshold`.
const OVERLOAD: f64 = 0.2;

/// Number of endpoints allocated to each zone.
pub(super) type Counts = BTreeMap<Text, usize>;

/// Maximum and desired number of endpoints of a zone. Upstream: `allocation`.
#[derive(Debug, Clone, Copy)]
struct Allocation {
    maximum: usize,
    desired: f64,
}

/// Sets the hints in slices that are written, and in unchanged slices whose hints are invalid. Returns the number of
/// endpoints allocated to each zone. Upstream: `AddHints`.
///
/// # Errors
///
/// The reason why no hints can be set.
pub(super) fn allocate(layout: &mut Layout<'_>, ratios: Option<&Ratios>) -> Result<Counts, String> {
    let allocations = allocations(layout.ready(), ratios)?;
    let (mut given, wrong) = unchanged(layout, &allocations);
    let others = wrong.iter().flat_map(|index| layout.slices[*index].members.iter().copied());
    let members = layout.written().chain(others).filter(|index| layout.is_ready(*index));
    let members: Vec<usize> = members.collect();
    if members.iter().any(|index| layout.desired[*index].zone.is_empty()) {
        return Err("One or more endpoints do not have a zone specified".to_owned());
    }
    if members.is_empty() && given.is_empty() {
        return Err("No hints allocated for zones".to_owned());
    }
    for index in wrong {
        layout.slices[index].needs_write = true;
    }
    for index in &members {
        let zone = layout.desired[*index].zone.clone();
        layout.desired[*index].hints = zone_hint(&zone);
        *given.entry(zone).or_default() += 1;
    }
    let (mut giving, mut receiving) = exchange(&allocations, &given);
    for index in members {
        let zone = layout.desired[index].zone.clone();
        let Some(remaining) = giving.get_mut(&zone).filter(|remaining| **remaining > 0) else {
            continue;
        };
        let Some((receiver, wanted)) = receiving.iter_mut().find(|(_, wanted)| **wanted > 0) else {
            break;
        };
        layout.desired[index].hints = zone_hint(receiver);
        *remaining -= 1;
        *wanted -= 1;
        *given.entry(receiver.clone()).or_default() += 1;
        given.entry(zone).and_modify(|n| *n -= 1);
    }
    Ok(given)
}

/// Returns the allocation of this number of endpoints to each zone. Upstream: `getAllocations`.
///
/// # Errors
///
/// The ratios are unknown, or a zone would be overloaded.
fn allocations(
    endpoints: usize,
    ratios: Option<&Ratios>,
) -> Result<BTreeMap<Text, Allocation>, String> {
    let ratios = ratios.ok_or(
        "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes",
    )?;
    let counted = |words: &str| format!("{words} ({endpoints} endpoints, {} zones)", ratios.len());
    if ratios.len() > endpoints {
        return Err(counted("Insufficient number of endpoints"));
    }
    let minimum =
        |ratio: f64| (ratio * endpoints as f64 * (1.0 / (1.0 + OVERLOAD))).ceil() as usize;
    let total: usize = ratios.values().map(|ratio| minimum(*ratio)).sum();
    let spare = endpoints.checked_sub(total).ok_or_else(|| {
        counted("Unable to allocate minimum required endpoints to each zone without exceeding overload threshold")
    })?;
    let allocation = |ratio: f64| {
        let minimum = minimum(ratio);
        let desired = (ratio * endpoints as f64).max(minimum as f64);
        Allocation { maximum: minimum + spare, desired }
    };
    Ok(ratios.iter().map(|(zone, ratio)| (zone.clone(), allocation(*ratio))).collect())
}

/// Returns how many endpoints the unchanged slices allocate to each zone, and the indexes of slices whose hints are
/// invalid.
fn unchanged(
    layout: &Layout<'_>,
    allocations: &BTreeMap<Text, Allocation>,
) -> (Counts, Vec<usize>) {
    let (mut given, mut wrong) = (Counts::new(), Vec::new());
    for index in (0..layout.slices.len()).filter(|index| !layout.slices[*index].needs_write) {
        match hinted(layout, index, &given, allocations) {
            Some(hints) => {
                for (zone, n) in hints {
                    *given.entry(zone).or_default() += n;
                }
            }
            None => wrong.push(index),
        }
    }
    (given, wrong)
}

/// Returns how many endpoints a slice allocates to each zone, or `None` if its hints are invalid. They are if one is
/// missing, or if they give a zone more than its maximum. Upstream: `getHintsByZone`.
fn hinted(
    layout: &Layout<'_>,
    index: usize,
    given: &Counts,
    allocations: &BTreeMap<Text, Allocation>,
) -> Option<Counts> {
    let mut counts = Counts::new();
    for (endpoint, present) in layout.present(index) {
        if endpoint.conditions.ready != Some(true) {
            continue;
        }
        let zones = present
            .hints
            .as_ref()
            .map(|hints| &hints.for_zones)
            .filter(|zones| !zones.is_empty())?;
        for zone in zones {
            allocations.get(&zone.name)?;
            *counts.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let too_many = |zone: &str, n: usize| {
        let already = given.get(zone).copied().unwrap_or_default();
        allocations.get(zone).is_none_or(|allocation| n + already > allocation.maximum)
    };
    (!counts.iter().any(|(zone, n)| too_many(zone, *n))).then_some(counts)
}

/// Returns how many endpoints each zone gives and receives. Repeatedly, the zone with the largest surplus gives one
/// to the zone with the largest deficit. Upstream: `getGivingAndReceivingZones`.
fn exchange(allocations: &BTreeMap<Text, Allocation>, given: &Counts) -> (Counts, Counts) {
    let surplus = |zone: &str, allocation: &Allocation| {
        given.get(zone).copied().unwrap_or_default() as f64 - allocation.desired
    };
    let differences = |sign: f64| -> BTreeMap<&str, f64> {
        let all = allocations
            .iter()
            .map(|(zone, allocation)| (&**zone, sign * surplus(zone, allocation)));
        all.filter(|(_, n)| *n > 0.0).collect()
    };
    let (mut surpluses, mut deficits) = (differences(1.0), differences(-1.0));
    let (mut giving, mut receiving) = (Counts::new(), Counts::new());
    while let (Some((giver, surplus)), Some((receiver, deficit))) =
        (largest(&surpluses), largest(&deficits))
    {
        if (surplus < 1.0 && deficit < 1.0) || surplus < 0.5 || deficit < 0.5 {
            break;
        }
        *giving.entry(giver.into()).or_default() += 1;
        *receiving.entry(receiver.into()).or_default() += 1;
        surpluses.entry(giver).and_modify(|n| *n -= 1.0);
        deficits.entry(receiver).and_modify(|n| *n -= 1.0);
    }
    (giving, receiving)
}

fn largest<'a>(zones: &BTreeMap<&'a str, f64>) -> Option<(&'a str, f64)> {
    let all = zones.iter().map(|(zone, n)| (*zone, *n));
    all.filter(|(_, n)| *n > 0.0).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Reports whether a zone has too few of these endpoints for the current ratios.
pub(super) fn is_overloaded(given: &Counts, ratios: Option<&Ratios>) -> bool {
    let Some(ratios) = ratios else { return !given.is_empty() };
    let total: usize = given.values().sum();
    let too_few = |zone: &str, ratio: f64| {
        let minimum = (total as f64 * ratio * (1.0 / (1.0 + OVERLOAD))).ceil() as usize;
        given.get(zone).is_none_or(|n| *n < minimum)
    };
    !given.is_empty() && ratios.iter().any(|(zone, ratio)| too_few(zone, *ratio))
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
                let all = allocations(endpoints, ratios)?;
                Ok(all.into_values().map(|zone| (zone.maximum, zone.desired)).collect::<Vec<_>>())
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
        let endpoint_counts = |shares: &[(&str, usize)]| -> Counts {
            shares.iter().map(|(zone, n)| ((*zone).into(), *n)).collect()
        };
        assert!(!is_overloaded(&endpoint_counts(&[("a", 5), ("b", 5)]), Some(&even)));
        assert!(is_overloaded(&endpoint_counts(&[("a", 8), ("b", 2)]), Some(&even)));
        assert!(
            is_overloaded(&endpoint_counts(&[("a", 8)]), Some(&even)),
            "a zone without endpoints"
        );
        assert!(is_overloaded(&endpoint_counts(&[("a", 8)]), None), "no CPU ratios");
        assert!(!is_overloaded(&Counts::new(), None));
    }
}
