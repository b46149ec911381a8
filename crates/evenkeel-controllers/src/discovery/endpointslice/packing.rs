//! Packs endpoints into slices with few writes. It creates no slice while existing slices have room. Upstream:
//! `reconcileByPortMapping` in `endpointslice/reconciler.go`.

use super::super::pod::same_reference;
use evenkeel_api::views::{Endpoint, EndpointSlice};
use std::{borrow::Cow, cmp::Reverse, collections::HashMap};

/// An EndpointSlice in its desired state.
#[derive(Debug)]
pub(in crate::discovery) struct PackedSlice<'a> {
    /// The existing slice; `None` for a new one.
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

/// Packs `desired` into slices of at most `max` endpoints. `needs_relabel` selects the slices whose labels change.
/// Upstream: `reconcileByPortMapping`.
///
/// 1. Keep desired endpoints in their slices, and remove all others ([`retain_desired`]).
/// 2. Add new endpoints to slices that are written anyway ([`fill_changed_slices`]).
/// 3. Add the rest to an unchanged slice or to new slices ([`fill_unchanged_or_new_slices`]).
pub(in crate::discovery) fn reconcile_by_port_mapping<'a>(
    existing: &[&'a EndpointSlice],
    desired: &[Endpoint],
    max: usize,
    needs_relabel: impl Fn(&EndpointSlice) -> bool,
) -> PackedSlices<'a> {
    let mut packed = PackedSlices::default();
    let mut unplaced: HashMap<EndpointKey<'_>, usize> = desired
        .iter()
        .enumerate()
        .map(|(index, endpoint)| (endpoint_key(endpoint), index))
        .collect();
    for slice in existing {
        let (members, changed) = retain_desired(slice, desired, &mut unplaced);
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
    packed.added = unplaced.len();
    let mut unplaced: Vec<usize> = unplaced.into_values().collect();
    // The order is descending, because `fill` takes endpoints from the end.
    unplaced.sort_unstable_by_key(|index| Reverse(*index));
    fill_changed_slices(&mut packed.slices, &mut unplaced, max);
    fill_unchanged_or_new_slices(&mut packed.slices, &mut unplaced, max);
    packed
}

/// Identity of an endpoint: addresses, host name and pod. Upstream: `endpointsliceutil.EndpointSet`, `hashEndpoint`.
type EndpointKey<'a> = (Cow<'a, str>, &'a str, &'a str, &'a str);

fn endpoint_key(endpoint: &Endpoint) -> EndpointKey<'_> {
    let address = match &*endpoint.addresses {
        [one] => Cow::Borrowed(&**one),
        several => {
            let mut sorted = several.to_vec();
            sorted.sort_unstable();
            Cow::Owned(sorted.join(","))
        }
    };
    let target = endpoint.target_ref.as_deref();
    let (namespace, name) = target.map_or(("", ""), |target| (&target.namespace, &target.name));
    (address, &endpoint.hostname, namespace, name)
}

/// Step 1: removes the slice's desired endpoints from `unplaced`. Returns them, and the number of those that change.
fn retain_desired<'a>(
    slice: &'a EndpointSlice,
    desired: &[Endpoint],
    unplaced: &mut HashMap<EndpointKey<'a>, usize>,
) -> (Vec<usize>, usize) {
    let (mut members, mut changed) = (Vec::with_capacity(slice.endpoints.len()), 0);
    for endpoint in &slice.endpoints {
        if let Some(index) = unplaced.remove(&endpoint_key(endpoint)) {
            changed += usize::from(!endpoints_equal_beyond_key(&desired[index], endpoint));
            members.push(index);
        }
    }
    (members, changed)
}

/// Reports whether two endpoints with equal keys are equal, apart from hints. Upstream: `EndpointsEqualBeyondHash`.
fn endpoints_equal_beyond_key(a: &Endpoint, b: &Endpoint) -> bool {
    a.node_name == b.node_name
        && a.zone == b.zone
        && a.conditions == b.conditions
        && same_reference(a.target_ref.as_deref(), b.target_ref.as_deref())
}

/// Step 2: adds new endpoints to slices that are written anyway, so that they need no further write.
fn fill_changed_slices(slices: &mut [PackedSlice<'_>], unplaced: &mut Vec<usize>, max: usize) {
    let mut written: Vec<&mut PackedSlice<'_>> =
        slices.iter_mut().filter(|slice| slice.needs_write).collect();
    written.sort_by_key(|slice| Reverse(slice.members.len()));
    for slice in written {
        fill(slice, unplaced, max);
    }
}

/// Moves endpoints from the end of `unplaced` to the slice until it has `max` endpoints.
fn fill(slice: &mut PackedSlice<'_>, unplaced: &mut Vec<usize>, max: usize) {
    let room = max.saturating_sub(slice.members.len()).min(unplaced.len());
    slice.members.extend(unplaced.drain(unplaced.len() - room..).rev());
}

/// Step 3: adds the remaining endpoints to the fullest unchanged slice that has room for all of them. If no slice
/// has, fills a new slice and repeats.
fn fill_unchanged_or_new_slices(
    slices: &mut Vec<PackedSlice<'_>>,
    unplaced: &mut Vec<usize>,
    max: usize,
) {
    while !unplaced.is_empty() {
        let unplaced_count = unplaced.len();
        let has_room_for_all = |slice: &&mut PackedSlice<'_>| {
            !slice.needs_write && slice.members.len() + unplaced_count <= max
        };
        // Of equally full slices, take the first by name. Upstream: `getSliceToFill`.
        let best = slices
            .iter_mut()
            .filter(has_room_for_all)
            .filter(|_| unplaced_count < max)
            .rev()
            .max_by_key(|slice| slice.members.len());
        match best {
            Some(slice) => {
                slice.needs_write = true;
                fill(slice, unplaced, max);
            }
            None => {
                let mut slice =
                    PackedSlice { existing: None, members: Vec::new(), needs_write: true };
                fill(&mut slice, unplaced, max);
                slices.push(slice);
            }
        }
    }
}
