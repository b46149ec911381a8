//! Desired slices that mirror Endpoints: one for each set of ports and each IP family. Upstream:
//! `pkg/controller/endpointslicemirroring/reconciler.go`.

use crate::{
    discovery::{
        address::{self, Family},
        canonical, endpoints,
        endpointslice::packing,
        order,
        slice::{
            self, Content, MANAGED_BY_LABEL, SERVICE_NAME_LABEL, ServiceCounts, Write, Writes,
        },
        trigger::TRIGGER_TIME_ANNOTATION,
    },
    wire::{self, LAST_APPLIED_ANNOTATION, PreservedMetadata},
};
use evenkeel_api::{
    OwnerReference, StrMap,
    views::{
        Endpoint, EndpointAddress, EndpointConditions, EndpointSlice, EndpointSubset, Endpoints,
        Service, SlicePort,
    },
};
use evenkeel_runtime::plan::{Action, Delete, EventRecord, Key, OnError, Plan};
use std::sync::Arc;

/// Value of the label `managed-by` on the slices of this controller. Upstream: `controllerName`.
pub(super) const MANAGED_BY: &str = "endpointslicemirroring-controller.k8s.io";
/// Label that excludes Endpoints from mirroring. Upstream: `LabelSkipMirror`.
const SKIP_MIRROR_LABEL: &str = "endpointslice.kubernetes.io/skip-mirror";

/// Observed state of Endpoints, their Service and their slices.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) key: Key,
    pub(super) endpoints: Option<Arc<Endpoints>>,
    pub(super) service: Option<Arc<Service>>,
    /// Slices that mirror the Endpoints.
    pub(super) slices: Vec<Arc<EndpointSlice>>,
    /// Maximum number of addresses that are mirrored for each subset of the Endpoints.
    pub(super) max_addresses_per_subset: usize,
}

/// Decision of one reconciliation, with the counts for metrics.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    pub(super) writes: Writes,
    /// Counts for metrics. `None` if the Endpoints are not mirrored.
    pub(super) counts: Option<Counts>,
}

/// Numbers of endpoints and addresses in one reconciliation.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) added: usize,
    pub(super) updated: usize,
    pub(super) removed: usize,
    /// Number of addresses that are not mirrored, because they are invalid or exceed the maximum.
    pub(super) skipped: usize,
    pub(super) service_counts: ServiceCounts,
}

impl Decision {
    /// Returns the events and writes.
    pub(super) fn plan(&self) -> Plan {
        Plan::of(self.writes.events_and_writes())
    }

    /// Returns whether the Endpoints are mirrored. If not, the writes only delete slices.
    pub(super) fn is_mirrored(&self) -> bool {
        self.counts.is_some()
    }
}

/// Returns whether the Endpoints may be mirrored: they are not a leader election lock, and no label excludes them. Upstream:
/// `skipMirror`.
pub(super) fn may_be_mirrored(endpoints: &Endpoints) -> bool {
    endpoints.meta.labels.get(SKIP_MIRROR_LABEL) != Some("true")
        && !endpoints::is_leader_election_lock(endpoints)
}

/// Mirrors the Endpoints if their Service has no selector. Otherwise, deletes the slices that mirror them.
pub(super) fn decide(observed: &Observed) -> Decision {
    let endpoints = observed.endpoints.as_ref().filter(|endpoints| may_be_mirrored(endpoints));
    let lacks_selector =
        observed.service.as_ref().is_some_and(|service| service.spec.selector.is_empty());
    match endpoints.filter(|_| lacks_selector) {
        Some(endpoints) => mirror(observed, endpoints),
        None => delete_slices(observed),
    }
}

/// Deletes all slices of Endpoints that are not mirrored.
fn delete_slices(observed: &Observed) -> Decision {
    let mut decision = Decision::default();
    for slice in observed.slices.iter().filter(|slice| !slice.meta.deleting()) {
        let Write { operation, action, hash } = slice::delete(slice);
        let action = match action {
            // A failed deletion does not stop the others.
            Action::Delete(delete) => Delete { on_error: OnError::Continue, ..delete }.into(),
            other => other,
        };
        decision.writes.push(Write { operation, action, hash });
    }
    decision
}

/// Endpoints of one set of ports and one IP family.
#[derive(Debug)]
struct Group {
    ports: Vec<SlicePort>,
    family: Family,
    endpoints: Vec<Endpoint>,
}

/// Makes the slices mirror the Endpoints. Upstream: `reconciler.reconcile`.
fn mirror(observed: &Observed, endpoints: &Endpoints) -> Decision {
    let mut decision = Decision::default();
    let Grouping { groups, invalid, skipped } =
        group_addresses(&endpoints.subsets, observed.max_addresses_per_subset);
    let regarding = wire::target(endpoints);
    let event =
        |reason, message| Action::from(EventRecord::warning(regarding.clone(), reason, message));
    if invalid > 0 {
        let message =
            format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
        decision.writes.events.push(event("InvalidIPAddress", message));
    }
    if skipped > invalid {
        let message = format!(
            "A max of {} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} addresses were skipped",
            observed.max_addresses_per_subset
        );
        decision.writes.events.push(event("TooManyAddressesToMirror", message));
    }
    let mut counts = Counts { skipped, ..Counts::default() };
    let common = CommonFields::of(&observed.key, endpoints);
    let mut to_create = Vec::new();
    let mut to_update = Vec::new();
    let mut to_delete = Vec::new();
    let mut unmatched: Vec<&EndpointSlice> = observed.slices.iter().map(|slice| &**slice).collect();
    for group in &groups {
        let existing = take_slices(&mut unmatched, group);
        // A group gets at most one slice, but upstream's ideal number divides its endpoints by the maximum per subset.
        counts.service_counts += ServiceCounts {
            endpoints: group.endpoints.len(),
            slices: usize::from(!group.endpoints.is_empty()),
            ideal: group.endpoints.len().div_ceil(observed.max_addresses_per_subset.max(1)),
        };
        if group.endpoints.is_empty() {
            counts.removed += existing.iter().map(|slice| slice.endpoints.len()).sum::<usize>();
            to_delete.extend(existing);
            continue;
        }
        let Some((first, others)) = existing.split_first() else {
            counts.added += group.endpoints.len();
            to_create.push(group);
            continue;
        };
        to_delete.extend(others);
        let is_equal = compare_and_count(first, &group.endpoints, &mut counts);
        if !is_equal || !common.match_slice(first) {
            to_update.push((*first, group));
        }
    }
    to_delete.append(&mut unmatched);
    recycle(&mut to_create, &mut to_update, &mut to_delete);
    if !endpoints.meta.deleting() {
        to_create.into_iter().for_each(|group| decision.writes.push(common.create(group)));
    }
    for (slice, group) in to_update {
        decision.writes.push(common.update(slice, group));
    }
    to_delete.into_iter().for_each(|slice| decision.writes.push(slice::delete(slice)));
    counts.service_counts.ideal = counts.service_counts.ideal.max(1);
    decision.counts = Some(counts);
    decision
}

/// The addresses of Endpoints, grouped for slices.
struct Grouping {
    groups: Vec<Group>,
    /// Number of invalid addresses.
    invalid: usize,
    /// Number of addresses that are not mirrored, including the invalid ones.
    skipped: usize,
}

/// Groups the addresses of all subsets. Mirrors at most `max_addresses_per_subset` of each canonical subset, ready ones
/// first.
fn group_addresses(subsets: &[EndpointSubset], max_addresses_per_subset: usize) -> Grouping {
    let mut groups = Vec::<Group>::new();
    let mut invalid = 0;
    let mut skipped = 0;
    for subset in &canonical::repack_subsets(subsets) {
        let ports = ports(subset);
        // The groups of both families are adjacent. This is the index of the first one.
        let index = groups.iter().position(|group| group.ports == ports).unwrap_or_else(|| {
            let group = |family| Group { ports: ports.clone(), family, endpoints: Vec::new() };
            groups.extend(Family::BOTH.map(group));
            groups.len() - 2
        });
        let ready = subset.addresses.iter().map(|address| (address, true));
        let unready = subset.not_ready_addresses.iter().map(|address| (address, false));
        let mut added = 0;
        for (address, ready) in ready.chain(unready) {
            if added >= max_addresses_per_subset {
                break;
            }
            match address::parse(&address.ip) {
                Some(ip) => {
                    let group = &mut groups[index + Family::of(ip) as usize];
                    group.endpoints.push(endpoint(address, &ip.to_string(), ready));
                    added += 1;
                }
                None => invalid += 1,
            }
        }
        skipped += subset.addresses.len() + subset.not_ready_addresses.len() - added;
    }
    Grouping { groups, invalid, skipped }
}

/// Converts the ports of a subset to sorted ports of a slice.
fn ports(subset: &EndpointSubset) -> Vec<SlicePort> {
    let slice_port = |port: &evenkeel_api::views::EndpointPort| SlicePort {
        name: port.name.clone(),
        protocol: port.protocol.clone(),
        port: Some(port.port),
        app_protocol: port.app_protocol.clone(),
    };
    let mut ports: Vec<SlicePort> = subset.ports.iter().map(slice_port).collect();
    order::sort_slice_ports(&mut ports);
    ports
}

/// Returns the endpoint of an address. Its termination and zone stay unset, because Endpoints do not have them.
/// Upstream: `addressToEndpoint`.
fn endpoint(address: &EndpointAddress, ip: &str, ready: bool) -> Endpoint {
    Endpoint {
        addresses: Box::new([ip.into()]),
        conditions: EndpointConditions { ready: Some(ready), serving: None, terminating: None },
        hostname: address.hostname.clone(),
        target_ref: address.target_ref.clone(),
        node_name: address.node_name.clone(),
        ..Endpoint::default()
    }
}

/// Removes the slices of a group from `slices` and returns them.
fn take_slices<'a>(slices: &mut Vec<&'a EndpointSlice>, group: &Group) -> Vec<&'a EndpointSlice> {
    let is_in_group = |slice: &EndpointSlice| {
        let mut ports = slice.ports.to_vec();
        order::sort_slice_ports(&mut ports);
        *slice.address_type == *group.family.name() && ports == group.ports
    };
    let (in_group, others) = slices.iter().partition(|slice| is_in_group(slice));
    *slices = others;
    in_group
}

/// Adds the differences between a slice and its desired endpoints to `counts`. Returns whether there are none.
fn compare_and_count(slice: &EndpointSlice, desired: &[Endpoint], counts: &mut Counts) -> bool {
    // Labels are compared separately, so no slice needs a relabel here.
    let packed = packing::reconcile_by_port_mapping(&[slice], desired, usize::MAX, |_| false);
    let is_equal =
        packed.slices.iter().all(|slice| !slice.needs_write) && packed.deleted.is_empty();
    counts.updated += packed.updated;
    counts.added += packed.added;
    counts.removed += packed.removed;
    is_equal
}

/// Turns slices that would be deleted into new slices of the same family. Upstream: `recycleSlices`.
fn recycle<'a, 'b>(
    to_create: &mut Vec<&'b Group>,
    to_update: &mut Vec<(&'a EndpointSlice, &'b Group)>,
    to_delete: &mut Vec<&'a EndpointSlice>,
) {
    to_create.retain(|group| {
        let is_usable = |slice: &&EndpointSlice| *slice.address_type == *group.family.name();
        let Some(index) = to_delete.iter().position(is_usable) else { return true };
        to_update.push((to_delete.remove(index), group));
        false
    });
}

/// Values that all slices of the Endpoints have in common.
struct CommonFields<'a> {
    key: &'a Key,
    labels: StrMap,
    annotations: StrMap,
    owner: OwnerReference,
}

impl<'a> CommonFields<'a> {
    /// Copies the labels and annotations of the Endpoints, except those that concern only the Endpoints. Upstream:
    /// `cloneAndRemoveKeys`.
    fn of(key: &'a Key, endpoints: &Endpoints) -> Self {
        let managed = [(SERVICE_NAME_LABEL, &*key.name), (MANAGED_BY_LABEL, MANAGED_BY)];
        let labels = endpoints
            .meta
            .labels
            .iter()
            .filter(|(key, _)| ![SERVICE_NAME_LABEL, MANAGED_BY_LABEL].contains(key));
        let annotations = endpoints.meta.annotations.iter();
        Self {
            key,
            labels: labels.chain(managed).collect(),
            annotations: annotations
                .filter(|(key, _)| {
                    ![TRIGGER_TIME_ANNOTATION, LAST_APPLIED_ANNOTATION].contains(key)
                })
                .collect(),
            owner: wire::controller_reference(&wire::target(endpoints)),
        }
    }

    /// Returns whether the slice has these labels and annotations, and is not owned by an earlier Endpoints object with
    /// the same name.
    fn match_slice(&self, slice: &EndpointSlice) -> bool {
        let meta = &slice.meta;
        let is_earlier_owner = |owner: &OwnerReference| {
            &*owner.kind == "Endpoints"
                && owner.name == self.owner.name
                && owner.uid != self.owner.uid
        };
        meta.labels == self.labels
            && meta.annotations == self.annotations
            && !meta.owners.iter().any(is_earlier_owner)
    }

    /// Returns the content of the slice for a group.
    fn content<'b>(&'b self, group: &'b Group) -> Content<'b> {
        Content {
            address_type: group.family.name(),
            ports: &group.ports,
            endpoints: &group.endpoints,
            labels: &self.labels,
        }
    }

    /// Returns the creation of the slice for a group.
    fn create(&self, group: &Group) -> Write {
        slice::create(self.key, &self.owner, &self.annotations, &self.content(group))
    }

    /// Returns the update of a slice, which keeps nothing but its name.
    fn update(&self, slice: &EndpointSlice, group: &Group) -> Write {
        let metadata = PreservedMetadata {
            generate_name: "",
            labels: &self.labels,
            owner_references: std::slice::from_ref(&self.owner),
            ..PreservedMetadata::with_annotations(&slice.meta, &self.annotations)
        };
        slice::update(slice, metadata, &self.content(group))
    }
}
