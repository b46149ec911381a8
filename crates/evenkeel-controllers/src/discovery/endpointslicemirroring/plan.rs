//! Desired slices that mirror Endpoints: one for each set of ports and each IP family. Upstream:
//! `pkg/controller/endpointslicemirroring/reconciler.go`.

use crate::{
    discovery::{
        address::{self, Family},
        canonical, endpoints,
        endpointslice::packing,
        order,
        slice::{self, Content, MANAGED_BY, SERVICE_NAME, ServiceCounts, Write, Writes},
        trigger::TRIGGER_TIME,
    },
    wire::{self, PreservedMetadata},
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

/// Value of the label `managed-by` for this controller. Upstream: `controllerName`.
pub(super) const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// Label that excludes Endpoints from mirroring. Upstream: `LabelSkipMirror`.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Annotation of `kubectl apply`, which is not copied to slices.
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Observed state of Endpoints, their Service and their slices.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) key: Key,
    pub(super) endpoints: Option<Arc<Endpoints>>,
    pub(super) service: Option<Arc<Service>>,
    /// Slices that mirror the Endpoints.
    pub(super) slices: Vec<Arc<EndpointSlice>>,
    /// Maximum number of addresses that are mirrored for each subset.
    pub(super) max: usize,
}

/// Decision of a pass, with values for later passes and for metrics.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    pub(super) writes: Writes,
    /// Counts for metrics; `None` if the Endpoints are not mirrored.
    pub(super) counts: Option<Counts>,
}

/// Numbers of endpoints and addresses in a pass.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) added: usize,
    pub(super) updated: usize,
    pub(super) removed: usize,
    pub(super) skipped: usize,
    pub(super) share: ServiceCounts,
}

impl Decision {
    /// Returns the events and writes.
    pub(super) fn plan(&self) -> Plan {
        Plan::of(self.writes.all())
    }
}

/// Reports whether the Endpoints may be mirrored. They may unless they are a leader election lock, or a label
/// excludes them. Upstream: `skipMirror`.
pub(super) fn may_be_mirrored(endpoints: &Endpoints) -> bool {
    endpoints.meta.labels.get(SKIP) != Some("true")
        && !endpoints::is_leader_election_lock(endpoints)
}

/// Mirrors the Endpoints if their Service has no selector. Otherwise, deletes the slices that mirror them.
pub(super) fn decide(observed: &Observed) -> Decision {
    let endpoints = observed.endpoints.as_ref().filter(|endpoints| may_be_mirrored(endpoints));
    let lacks_selector =
        observed.service.as_ref().is_some_and(|service| service.spec.selector.is_empty());
    match endpoints.filter(|_| lacks_selector) {
        Some(endpoints) => mirror(observed, endpoints),
        None => clear(observed),
    }
}

fn clear(observed: &Observed) -> Decision {
    let mut decision = Decision::default();
    for slice in observed.slices.iter().filter(|slice| !slice.meta.deleting()) {
        let Write { operation, action, mark } = slice::delete(slice);
        let action = match action {
            // A failed deletion does not stop the others.
            Action::Delete(delete) => Delete { on_error: OnError::Continue, ..delete }.into(),
            other => other,
        };
        decision.writes.push(Write { operation, action, mark });
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

fn mirror(observed: &Observed, endpoints: &Endpoints) -> Decision {
    let mut decision = Decision::default();
    let (groups, invalid, skipped) = groups(&endpoints.subsets, observed.max);
    let about = wire::target(endpoints);
    let event =
        |reason, message| Action::from(EventRecord::warning(about.clone(), reason, message));
    if invalid > 0 {
        let message =
            format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
        decision.writes.events.push(event("InvalidIPAddress", message));
    }
    if skipped > invalid {
        let message = format!(
            "A max of {} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} addresses were skipped",
            observed.max
        );
        decision.writes.events.push(event("TooManyAddressesToMirror", message));
    }
    let mut counts = Counts { skipped, ..Counts::default() };
    let common = Common::of(&observed.key, endpoints);
    let (mut created, mut updated, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest: Vec<&EndpointSlice> = observed.slices.iter().map(|slice| &**slice).collect();
    for group in &groups {
        let existing = take(&mut rest, group);
        let (first, others) = existing
            .split_first()
            .map_or((None, &[][..]), |(first, others)| (Some(*first), others));
        counts.share += ServiceCounts {
            endpoints: group.endpoints.len(),
            slices: usize::from(!group.endpoints.is_empty()),
            ideal: group.endpoints.len().div_ceil(observed.max.max(1)),
        };
        if group.endpoints.is_empty() {
            counts.removed += existing.iter().map(|slice| slice.endpoints.len()).sum::<usize>();
            deleted.extend(existing);
            continue;
        }
        deleted.extend(others);
        match first {
            None => {
                counts.added += group.endpoints.len();
                created.push(group);
            }
            Some(slice) => {
                let same = compare(slice, &group.endpoints, &mut counts);
                if !(same && common.are_on(slice)) {
                    updated.push((slice, group));
                }
            }
        }
    }
    deleted.append(&mut rest);
    recycle(&mut created, &mut updated, &mut deleted);
    if !endpoints.meta.deleting() {
        created.into_iter().for_each(|group| decision.writes.push(common.create(group)));
    }
    updated
        .into_iter()
        .for_each(|(slice, group)| decision.writes.push(common.update(slice, group)));
    deleted.into_iter().for_each(|slice| decision.writes.push(slice::delete(slice)));
    counts.share.ideal = counts.share.ideal.max(1);
    decision.counts = Some(counts);
    decision
}

/// Returns the endpoints of all subsets in canonical form, the number of invalid addresses, and the number of skipped
/// addresses, which includes the invalid ones. At most `max` addresses of each subset are mirrored, ready ones first.
fn groups(subsets: &[EndpointSubset], max: usize) -> (Vec<Group>, usize, usize) {
    let (mut groups, mut invalid, mut skipped) = (Vec::<Group>::new(), 0, 0);
    for subset in &canonical::repack(subsets) {
        let ports = ports(subset);
        let index = groups.iter().position(|group| group.ports == ports).unwrap_or_else(|| {
            let group = |family| Group { ports: ports.clone(), family, endpoints: Vec::new() };
            groups.extend(Family::BOTH.map(group));
            groups.len() - 2
        });
        let ready = subset.addresses.iter().map(|address| (address, true));
        let all = ready.chain(subset.not_ready_addresses.iter().map(|address| (address, false)));
        let mut added = 0;
        for (address, ready) in all {
            if added >= max {
                break;
            }
            match address::parse(&address.ip) {
                Some(ip) => {
                    let family = Family::of(ip);
                    groups[index + family as usize].endpoints.push(endpoint(
                        address,
                        &ip.to_string(),
                        ready,
                    ));
                    added += 1;
                }
                None => invalid += 1,
            }
        }
        skipped += subset.addresses.len() + subset.not_ready_addresses.len() - added;
    }
    (groups, invalid, skipped)
}

fn ports(subset: &EndpointSubset) -> Vec<SlicePort> {
    let slice_port = |port: &evenkeel_api::views::EndpointPort| SlicePort {
        name: port.name.clone(),
        protocol: port.protocol.clone(),
        port: Some(port.port),
        app_protocol: port.app_protocol.clone(),
    };
    let mut ports: Vec<SlicePort> = subset.ports.iter().map(slice_port).collect();
    order::slice_ports(&mut ports);
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
fn take<'a>(slices: &mut Vec<&'a EndpointSlice>, group: &Group) -> Vec<&'a EndpointSlice> {
    let is_of = |slice: &EndpointSlice| {
        let mut ports = slice.ports.to_vec();
        order::slice_ports(&mut ports);
        *slice.address_type == *group.family.name() && ports == group.ports
    };
    let (taken, rest) = slices.iter().partition(|slice| is_of(slice));
    *slices = rest;
    taken
}

/// Reports whether a slice has exactly these endpoints, and counts the differences.
fn compare(slice: &EndpointSlice, desired: &[Endpoint], counts: &mut Counts) -> bool {
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
    created: &mut Vec<&'b Group>,
    updated: &mut Vec<(&'a EndpointSlice, &'b Group)>,
    deleted: &mut Vec<&'a EndpointSlice>,
) {
    created.retain(|group| {
        let usable = deleted.iter().position(|slice| *slice.address_type == *group.family.name());
        usable.map(|index| updated.push((deleted.remove(index), group))).is_none()
    });
}

/// Values that all slices of the Endpoints have in common.
struct Common<'a> {
    key: &'a Key,
    labels: StrMap,
    annotations: StrMap,
    owner: OwnerReference,
}

impl<'a> Common<'a> {
    /// Copies the labels and annotations of the Endpoints, except those that concern only the Endpoints. Upstream:
    /// `cloneAndRemoveKeys`.
    fn of(key: &'a Key, endpoints: &Endpoints) -> Self {
        let own = [(SERVICE_NAME, &*key.name), (MANAGED_BY, MANAGER)];
        let labels = endpoints
            .meta
            .labels
            .iter()
            .filter(|(key, _)| ![SERVICE_NAME, MANAGED_BY].contains(key));
        let annotations = endpoints.meta.annotations.iter();
        Self {
            key,
            labels: labels.chain(own).collect(),
            annotations: annotations
                .filter(|(key, _)| ![TRIGGER_TIME, APPLIED].contains(key))
                .collect(),
            owner: wire::controller_reference(&wire::target(endpoints)),
        }
    }

    /// Reports whether the slice has these labels and annotations, and no owner that is an earlier Endpoints object
    /// with the same name.
    fn are_on(&self, slice: &EndpointSlice) -> bool {
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

    fn content<'b>(&'b self, group: &'b Group) -> Content<'b> {
        Content {
            address_type: group.family.name(),
            ports: &group.ports,
            endpoints: &group.endpoints,
            labels: &self.labels,
        }
    }

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
