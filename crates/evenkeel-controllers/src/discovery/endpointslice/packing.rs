//! Packs endpoints into slices with few writes. It creates no slice while existing slices have room. Upstream:
//! `reconcileByPortMapping` in `endpointslice/reconciler.go`.

use super::super::pod::same_reference;
use evenkeel_api::views::{Endpoint, EndpointSlice};
use std::{borrow::Cow, cmp::Reverse, collections::HashMap};

/// An EndpointSlice in its desired state.
#[derive(Debug)]
pub(in crate::discovery) struct PackedSlice<'a> {
    /// The existing slice. `None` for a new one.
    pub(in crate::discovery) existing: Option<&'a EndpointSlice>,
    /// Indexes into the desired endpoints.
    pub(in crate::discovery) members: Vec<usize>,
    /// Whether the slice must be created or updated.
    pub(in crate::discovery) needs_write: bool,
}

/// The EndpointSlices for one set of ports.
#[derive(Debug, Default)]
pub(in crate::discovery) struct PackedSlices<'a> {
    pub(in crate::discovery) slices: Vec<PackedSlice<'a>>,
    /// Existing slices without any desired endpoint. Upstream: `slicesToDelete`.
    pub(in crate::discovery) deleted: Vec<&'a EndpointSlice>,
    /// Number of desired endpoints that are in no existing slice.
    pub(in crate::discovery) added: usize,
    /// Number of endpoints that change but stay in their slice.
    pub(in crate::discovery) updated: usize,
    /// Number of endpoints in existing slices that are not desired.
    pub(in crate::discovery) removed: usize,
}

/// Packs `desired` into slices of at most `max_endpoints` endpoints. `needs_relabel` selects the slices whose labels
/// change. Upstream: `reconcileByPortMapping`.
///
/// 1. Keep desired endpoints in their slices, and remove all others ([`retain_desired`]).
/// 2. Add new endpoints to slices that are written anyway ([`fill_changed_slices`]).
/// 3. Add the rest to an unchanged slice or to new slices ([`fill_unchanged_or_new_slices`]).
pub(in crate::discovery) fn reconcile_by_port_mapping<'a>(
    existing: &[&'a EndpointSlice],
    desired: &[Endpoint],
    max_endpoints: usize,
    needs_relabel: impl Fn(&EndpointSlice) -> bool,
) -> PackedSlices<'a> {
    let mut packed = PackedSlices::default();
    let mut unplaced_by_key: HashMap<EndpointKey<'_>, usize> = desired
        .iter()
        .enumerate()
        .map(|(index, endpoint)| (endpoint_key(endpoint), index))
        .collect();
    for slice in existing {
        let Retained { members, changed } = retain_desired(slice, desired, &mut unplaced_by_key);
        let removed = slice.endpoints.len() - members.len();
        packed.updated += changed;
        packed.removed += removed;
        if removed > 0 && members.is_empty() {
            packed.deleted.push(slice);
        } else {
            let needs_write = changed > 0 || removed > 0 || needs_relabel(slice);
            packed.slices.push(PackedSlice { existing: Some(slice), members, needs_write });
        }
    }
    packed.added = unplaced_by_key.len();
    let mut unplaced: Vec<usize> = unplaced_by_key.into_values().collect();
    // The order is descending, because `fill` takes endpoints from the end.
    unplaced.sort_unstable_by_key(|index| Reverse(*index));
    fill_changed_slices(&mut packed.slices, &mut unplaced, max_endpoints);
    fill_unchanged_or_new_slices(&mut packed.slices, &mut unplaced, max_endpoints);
    packed
}

/// Identity of an endpoint: addresses, host name and pod. Upstream: `endpointsliceutil.EndpointSet`, `hashEndpoint`.
#[derive(PartialEq, Eq, Hash)]
struct EndpointKey<'a> {
    /// The addresses, sorted, separated by commas.
    addresses: Cow<'a, str>,
    hostname: &'a str,
    pod_namespace: &'a str,
    pod_name: &'a str,
}

/// Returns the addresses and the pod by which equal endpoints are recognized.
fn endpoint_key(endpoint: &Endpoint) -> EndpointKey<'_> {
    let addresses = match &*endpoint.addresses {
        [address] => Cow::Borrowed(&**address),
        addresses => {
            let mut sorted = addresses.to_vec();
            sorted.sort_unstable();
            Cow::Owned(sorted.join(","))
        }
    };
    let pod = endpoint.target_ref.as_deref();
    let (pod_namespace, pod_name) = pod.map_or(("", ""), |pod| (&pod.namespace, &pod.name));
    EndpointKey { addresses, hostname: &endpoint.hostname, pod_namespace, pod_name }
}

/// Desired endpoints that stay in their slice.
struct Retained {
    /// Indexes into the desired endpoints.
    members: Vec<usize>,
    /// Number of members that differ from the existing endpoint.
    changed: usize,
}

/// Step 1: removes the slice's desired endpoints from `unplaced_by_key`, and returns them.
fn retain_desired<'a>(
    slice: &'a EndpointSlice,
    desired: &[Endpoint],
    unplaced_by_key: &mut HashMap<EndpointKey<'a>, usize>,
) -> Retained {
    let mut retained = Retained { members: Vec::with_capacity(slice.endpoints.len()), changed: 0 };
    for endpoint in &slice.endpoints {
        if let Some(index) = unplaced_by_key.remove(&endpoint_key(endpoint)) {
            retained.changed += usize::from(!endpoints_equal_beyond_key(&desired[index], endpoint));
            retained.members.push(index);
        }
    }
    retained
}

/// Returns whether two endpoints with equal keys are equal, apart from hints. Upstream: `EndpointsEqualBeyondHash`.
fn endpoints_equal_beyond_key(a: &Endpoint, b: &Endpoint) -> bool {
    a.node_name == b.node_name
        && a.zone == b.zone
        && a.conditions == b.conditions
        && same_reference(a.target_ref.as_deref(), b.target_ref.as_deref())
}

/// Step 2: adds new endpoints to slices that are written anyway, so that they need no further write.
fn fill_changed_slices(
    slices: &mut [PackedSlice<'_>],
    unplaced: &mut Vec<usize>,
    max_endpoints: usize,
) {
    let mut changed: Vec<&mut PackedSlice<'_>> =
        slices.iter_mut().filter(|slice| slice.needs_write).collect();
    changed.sort_by_key(|slice| Reverse(slice.members.len()));
    for slice in changed {
        fill(slice, unplaced, max_endpoints);
    }
}

/// Moves endpoints from the end of `unplaced` to the slice until it has `max_endpoints` endpoints.
fn fill(slice: &mut PackedSlice<'_>, unplaced: &mut Vec<usize>, max_endpoints: usize) {
    let room = max_endpoints.saturating_sub(slice.members.len()).min(unplaced.len());
    slice.members.extend(unplaced.drain(unplaced.len() - room..).rev());
}

/// Step 3: adds the remaining endpoints to the fullest unchanged slice that has room for all of them. If there is none,
/// or if the endpoints fill a new slice, adds them to a new slice. Repeats until no endpoint remains.
fn fill_unchanged_or_new_slices(
    slices: &mut Vec<PackedSlice<'_>>,
    unplaced: &mut Vec<usize>,
    max_endpoints: usize,
) {
    while !unplaced.is_empty() {
        let unplaced_count = unplaced.len();
        let slice_to_fill = if unplaced_count < max_endpoints {
            fullest_unchanged_slice(slices, unplaced_count, max_endpoints)
        } else {
            None
        };
        match slice_to_fill {
            Some(slice) => {
                slice.needs_write = true;
                fill(slice, unplaced, max_endpoints);
            }
            None => {
                let mut slice =
                    PackedSlice { existing: None, members: Vec::new(), needs_write: true };
                fill(&mut slice, unplaced, max_endpoints);
                slices.push(slice);
            }
        }
    }
}

/// Returns the fullest unchanged slice that has room for `added` endpoints. Upstream: `getSliceToFill`.
fn fullest_unchanged_slice<'s, 'a>(
    slices: &'s mut [PackedSlice<'a>],
    added: usize,
    max_endpoints: usize,
) -> Option<&'s mut PackedSlice<'a>> {
    let unchanged = slices.iter_mut().filter(|slice| !slice.needs_write);
    let with_room = unchanged.filter(|slice| slice.members.len() + added <= max_endpoints);
    // Of equally full slices, `max_by_key` returns the last, which is the first by name in the reverse order.
    with_room.rev().max_by_key(|slice| slice.members.len())
}
