//! Packing of endpoints into slices: few writes, and no new slice while existing ones have room. Upstream:
//! `reconcileByPortMapping` in `endpointslice/reconciler.go`.

use super::super::pod::same_reference;
use evenkeel_api::views::{Endpoint, EndpointSlice};
use std::{borrow::Cow, cmp::Reverse, collections::HashMap};

/// An EndpointSlice as it shall become.
#[derive(Debug)]
pub(in crate::discovery) struct PackedSlice<'a> {
    /// The existing slice; `None` for a new one.
    pub(in crate::discovery) existing: Option<&'a EndpointSlice>,
    /// Indexes in the desired endpoints.
    pub(in crate::discovery) members: Vec<usize>,
    /// Whether the slice must be created or updated.
    pub(in crate::discovery) needs_write: bool,
}

/// The EndpointSlices for one set of ports.
#[derive(Debug, Default)]
pub(in crate::discovery) struct PackedSlices<'a> {
    pub(in crate::discovery) slices: Vec<PackedSlice<'a>>,
    /// Slices without any desired endpoint. Upstream: `slicesToDelete`.
    pub(in crate::discovery) deleted: Vec<&'a EndpointSlice>,
    /// Number of desired endpoints that no existing slice has.
    pub(in crate::discovery) added: usize,
    /// Number of endpoints that change and stay in their slice.
    pub(in crate::discovery) updated: usize,
    /// Number of endpoints of existing slices that are not desired.
    pub(in crate::discovery) removed: usize,
}

/// Packs `desired` into slices of at most `max` endpoints; `needs_relabel` selects slices whose labels change. Upstream:
/// `reconcileByPortMapping`.
///
/// 1. Endpoints stay in their slices; undesired ones are removed.
/// 2. New endpoints fill the slices that step 1 changes, the fullest first.
/// 3. The rest goes to the fullest unchanged slice that has room for all of it, or else to new slices.
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
    // Reversed, because elements are taken from the end.
    unplaced.sort_unstable_by_key(|index| Reverse(*index));
    fill_changed_slices(&mut packed.slices, &mut unplaced, max);
    fill_unchanged_or_new_slices(&mut packed.slices, &mut unplaced, max);
    packed
}

/// Identity of an endpoint: addresses, host name, pod. Upstream: `endpointsliceutil.EndpointSet`, `hashEndpoint`.
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

/// Step 1. Returns the desired endpoints that the slice has, and how many of them change. They are taken out of `unplaced`.
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

/// Whether endpoints of equal identity are equal, apart from hints. Upstream: `EndpointsEqualBeyondHash`.
fn endpoints_equal_beyond_key(a: &Endpoint, b: &Endpoint) -> bool {
    a.node_name == b.node_name
        && a.zone == b.zone
        && a.conditions == b.conditions
        && same_reference(a.target_ref.as_deref(), b.target_ref.as_deref())
}

/// Step 2. A slice that is written anyway takes new endpoints at no extra write.
fn fill_changed_slices(slices: &mut [PackedSlice<'_>], unplaced: &mut Vec<usize>, max: usize) {
    let mut written: Vec<&mut PackedSlice<'_>> =
        slices.iter_mut().filter(|slice| slice.needs_write).collect();
    written.sort_by_key(|slice| Reverse(slice.members.len()));
    for slice in written {
        fill(slice, unplaced, max);
    }
}

/// Moves endpoints from the end of `unplaced` to the slice until it has `max`.
fn fill(slice: &mut PackedSlice<'_>, unplaced: &mut Vec<usize>, max: usize) {
    let room = max.saturating_sub(slice.members.len()).min(unplaced.len());
    slice.members.extend(unplaced.drain(unplaced.len() - room..).rev());
}

/// Step 3. The rest goes to the fullest unchanged slice that has room for all of it. If none has, a new slice takes as many as it
/// can, and the step repeats.
fn fill_unchanged_or_new_slices(
    slices: &mut Vec<PackedSlice<'_>>,
    unplaced: &mut Vec<usize>,
    max: usize,
) {
    while !unplaced.is_empty() {
        let n = unplaced.len();
        let has_room_for_all =
            |slice: &&mut PackedSlice<'_>| !slice.needs_write && slice.members.len() + n <= max;
        // Of equally full slices, the first by name. Upstream: `getSliceToFill`.
        let best = slices
            .iter_mut()
            .filter(has_room_for_all)
            .filter(|_| n < max)
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
