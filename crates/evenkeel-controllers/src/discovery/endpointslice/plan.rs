//! Desired EndpointSlices of a Service. Upstream: `endpointslice/reconciler.go`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `selector`, `ExternalName`: Services with slices | `selected::selects_pods` |
//! | pods that are endpoints | `pod::belongs_in_endpoints` |
//! | a pod on a node that does not exist | `desired::group_by_ports`, `desired::missing_nodes_error` |
//! | `ipFamilies`, `addressType`: slices for each family | `decide`, `address::families` |
//! | `--max-endpoints-per-slice`, packing with few writes | `packing::reconcile_by_port_mapping` |
//! | the empty slice of a Service without endpoints | `ensure_placeholder` |
//! | `conditions`: `ready`, `serving`, `terminating`; `publishNotReadyAddresses` | `desired::endpoint` |
//! | `targetRef`, `nodeName`, `zone`, `hostname` | `desired::endpoint` |
//! | `ports`, `targetPort`, `appProtocol` | `desired::ports`, `pod::find_port` |
//! | `hints`: `trafficDistribution` (`PreferClose`, `PreferSameZone`, `PreferSameNode`) | `hints::mode`, `hints::traffic_distribution_hint` |
//! | `hints`: annotation `service.kubernetes.io/topology-mode` | `hints::mode`, `topology::allocate` |
//! | labels: `kubernetes.io/service-name`, `endpointslice.kubernetes.io/managed-by`, `service.kubernetes.io/headless` | `labels` |
//! | `ownerReferences`: slices of an earlier Service with the same name | `is_owned` |
//! | annotation `endpoints.kubernetes.io/last-change-trigger-time` | `trigger::with_trigger_time` |

use super::{
    desired::{self, PlacedPod},
    hints::{self, HintsEvent, Layout, Mode, TopologyHints},
    packing::{self, PackedSlice},
    zones::Ratios,
};
use crate::{
    discovery::{
        address::{self, Family},
        slice::{
            self, Content, HEADLESS_LABEL, MANAGED_BY_LABEL, SERVICE_NAME_LABEL, ServiceCounts,
            Write, Writes,
        },
        trigger::{TriggerTimes, with_trigger_time},
    },
    wire::{self, PreservedMetadata},
    words,
};
use evenkeel_api::{
    OwnerReference, StrMap,
    time::Timestamp,
    views::{Endpoint, EndpointSlice, Service, SlicePort},
};
use evenkeel_runtime::{
    introspect::Description,
    plan::{Action, BURST_LIMIT, Create, Delete, EventRecord, Key, OnError, Plan, Target, Update},
};
use std::{sync::Arc, time::Duration};

/// Value of the label `managed-by` for this controller. Upstream: `ControllerName`.
pub(super) const MANAGED_BY: &str = "endpointslice-controller.k8s.io";
/// Labels that the controller sets itself. It does not copy the Service's values of these labels.
const RESERVED_LABELS: [&str; 3] = [SERVICE_NAME_LABEL, MANAGED_BY_LABEL, HEADLESS_LABEL];

/// Observed state of a Service and its slices.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) key: Key,
    pub(super) service: Arc<Service>,
    /// The selected pods, with their nodes.
    pub(super) pods: Vec<PlacedPod>,
    /// The Service's slices, except terminating ones.
    pub(super) slices: Vec<Arc<EndpointSlice>>,
    /// Current trigger times, for the annotation.
    pub(super) trigger_times: Arc<TriggerTimes>,
    /// Trigger times of the last successful reconciliation.
    pub(super) previous_trigger_times: Option<Arc<TriggerTimes>>,
    /// CPU ratios of the zones, if they are known and needed.
    pub(super) ratios: Option<Arc<Ratios>>,
    /// State of the Service's topology hints.
    pub(super) topology_hints: TopologyHints,
    /// Maximum number of endpoints in a slice.
    pub(super) max_endpoints_per_slice: usize,
}

/// Decision of a reconciliation, with values for later reconciliations and for metrics.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    pub(super) writes: Writes,
    /// Whether some writes are left for the next reconciliation.
    has_more_writes: bool,
    pub(super) topology_hints: TopologyHints,
    pub(super) service_counts: ServiceCounts,
    pub(super) family_counts: Vec<FamilyCounts>,
    /// Whether a pod was omitted because its node does not exist.
    pub(super) omits_pods: bool,
}

/// Numbers of changes of one IP family in a reconciliation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FamilyCounts {
    pub(super) added_endpoints: usize,
    pub(super) removed_endpoints: usize,
    /// Number of slices that are created, updated or deleted.
    pub(super) changed_slices: usize,
}

/// Values that all slices of a Service have in common.
struct CommonFields<'a> {
    key: &'a Key,
    labels: StrMap,
    owner: OwnerReference,
    /// The Service, to which events refer.
    service: Target,
    /// Time of the change that caused the writes, for the annotation.
    trigger_time: Option<Timestamp>,
    /// Whether the Service is terminating.
    deleting: bool,
}

impl<'a> CommonFields<'a> {
    fn of(observed: &'a Observed) -> Self {
        let service = wire::target(&*observed.service);
        Self {
            key: &observed.key,
            labels: labels(&observed.service),
            owner: wire::controller_reference(&service),
            service,
            trigger_time: observed
                .trigger_times
                .trigger_time(observed.previous_trigger_times.as_deref()),
            deleting: observed.service.meta.deleting(),
        }
    }
}

/// Reconciles the slices of each family of the Service, and deletes the slices of other families. A failed write
/// skips only the remaining writes of its family. Upstream: `Reconcile`.
pub(super) fn decide(observed: &Observed) -> Decision {
    let common = CommonFields::of(observed);
    let families = address::families(&observed.service);
    let mut decision =
        Decision { topology_hints: observed.topology_hints.clone(), ..Decision::default() };
    let is_of_family =
        |slice: &&EndpointSlice, family: Family| *slice.address_type == *family.name();
    let slices = || observed.slices.iter().map(|slice| &**slice);
    for family in Family::BOTH.into_iter().filter(|family| !families.contains(family)) {
        if slices().any(|slice| is_of_family(&slice, family)) {
            decision.topology_hints.remove(family);
        }
    }
    for family in &families {
        let existing: Vec<&EndpointSlice> =
            slices().filter(|slice| is_of_family(slice, *family)).collect();
        reconcile(observed, &common, *family, &existing, &mut decision);
    }
    let is_of_other_family =
        |slice: &&EndpointSlice| !families.iter().any(|family| is_of_family(slice, *family));
    for slice in slices().filter(is_of_other_family) {
        decision.add(slice::delete(slice), &common, OnError::Continue);
    }
    if let Some(missing) = desired::missing_nodes_error(&observed.service, &observed.pods) {
        decision.omits_pods = true;
        decision.writes.events.push(update_failed_event(&common, &missing).into());
    }
    decision
}

/// Reconciles the slices of one family. Upstream: `reconcileByAddressType`.
fn reconcile(
    observed: &Observed,
    common: &CommonFields<'_>,
    family: Family,
    existing: &[&EndpointSlice],
    decision: &mut Decision,
) {
    let mut slices = FamilySlices::reconcile(observed, common, family, existing);
    let hints_event = hints::apply(
        hints::mode(&observed.service),
        &mut slices.layout,
        family,
        observed.ratios.as_deref(),
        &mut decision.topology_hints,
    );
    decision.service_counts += slices.service_counts(observed.max_endpoints_per_slice);
    let mut writes = slices.creates(common);
    writes.extend(slices.updates(common));
    writes.extend(slices.deleted.iter().map(|slice| slice::delete(slice)));
    decision.family_counts.push(FamilyCounts {
        added_endpoints: slices.added,
        removed_endpoints: slices.removed,
        changed_slices: writes.len(),
    });
    let on_error = OnError::SkipPart(family as u32);
    writes.into_iter().for_each(|write| decision.add(write, common, on_error));
    decision.writes.events.extend(hints_event.map(|event| to_action(common, event)));
}

/// Slices of one IP family while they are packed.
struct FamilySlices<'a> {
    family: Family,
    layout: Layout<'a>,
    /// Ports of each slice in the layout.
    ports: Vec<Vec<SlicePort>>,
    /// For each slice in the layout: if it is new, an existing slice that is updated instead of being deleted.
    recycled: Vec<Option<&'a EndpointSlice>>,
    /// Existing slices to delete.
    deleted: Vec<&'a EndpointSlice>,
    /// Number of added endpoints.
    added: usize,
    /// Number of removed endpoints.
    removed: usize,
    /// Number of desired endpoints of each set of ports.
    group_sizes: Vec<usize>,
}

impl<'a> FamilySlices<'a> {
    /// Computes the slices of one IP family.
    fn reconcile(
        observed: &Observed,
        common: &CommonFields<'_>,
        family: Family,
        existing: &[&'a EndpointSlice],
    ) -> Self {
        let layout = Layout { desired: Vec::new(), slices: Vec::new() };
        let (owned, foreign): (Vec<&EndpointSlice>, Vec<_>) =
            existing.iter().partition(|slice| is_owned(slice, &observed.service));
        let mut slices = Self {
            family,
            layout,
            ports: Vec::new(),
            recycled: Vec::new(),
            deleted: foreign,
            added: 0,
            removed: 0,
            group_sizes: Vec::new(),
        };
        // Slices of an earlier Service with the same name are deleted, so only owned slices are packed.
        let owned_ports: Vec<Vec<SlicePort>> =
            owned.iter().map(|slice| sorted_ports(&slice.ports)).collect();
        let groups = desired::group_by_ports(&observed.service, &observed.pods, family);
        let is_grouped = |ports: &Vec<SlicePort>| groups.iter().any(|group| group.ports == *ports);
        let ungrouped = owned.iter().zip(&owned_ports).filter(|(_, ports)| !is_grouped(ports));
        slices.deleted.extend(ungrouped.map(|(slice, _)| *slice));
        for group in groups {
            let in_group =
                owned.iter().zip(&owned_ports).filter(|(_, ports)| **ports == group.ports);
            let in_group: Vec<&EndpointSlice> = in_group.map(|(slice, _)| *slice).collect();
            slices.add_group(group, &in_group, observed.max_endpoints_per_slice, &common.labels);
        }
        slices.ensure_placeholder(&observed.service, &common.labels);
        slices.recycle(&observed.service);
        slices
    }

    /// Packs the endpoints of a group into its existing slices and new ones.
    fn add_group(
        &mut self,
        group: desired::PortGroup,
        existing: &[&'a EndpointSlice],
        max_endpoints_per_slice: usize,
        labels: &StrMap,
    ) {
        let needs_relabel = |slice: &EndpointSlice| {
            !without_reserved(&slice.meta.labels).eq(without_reserved(labels))
        };
        let packed = packing::reconcile_by_port_mapping(
            existing,
            &group.endpoints,
            max_endpoints_per_slice,
            needs_relabel,
        );
        self.added += packed.added;
        self.removed += packed.removed;
        self.deleted.extend(packed.deleted);
        self.group_sizes.push(group.endpoints.len());
        // The members of a packed slice are indexes into the endpoints of the group.
        let offset = self.layout.desired.len();
        self.layout.desired.extend(group.endpoints);
        for mut slice in packed.slices {
            slice.members.iter_mut().for_each(|index| *index += offset);
            self.layout.slices.push(slice);
            self.ports.push(group.ports.clone());
        }
    }

    /// Ensures that a Service without endpoints has one empty slice. Upstream: `newEndpointSlice`, for the placeholder
    /// slice.
    fn ensure_placeholder(&mut self, service: &Service, labels: &StrMap) {
        if !self.layout.slices.is_empty() {
            return;
        }
        let placeholder = match &self.deleted[..] {
            [slice] if is_owned(slice, service) && is_placeholder(slice, labels) => Some(*slice),
            _ => None,
        };
        if placeholder.is_some() {
            self.deleted.clear();
        }
        self.layout.slices.push(PackedSlice {
            existing: placeholder,
            members: Vec::new(),
            needs_write: placeholder.is_none(),
        });
        self.ports.push(Vec::new());
    }

    /// Turns slices that would be deleted into new slices. Upstream: `recycleSlices`.
    fn recycle(&mut self, service: &Service) {
        self.recycled = vec![None; self.layout.slices.len()];
        let new_slices = (0..self.layout.slices.len())
            .rev()
            .filter(|index| self.layout.slices[*index].existing.is_none());
        let (usable, others): (Vec<&EndpointSlice>, Vec<_>) =
            self.deleted.iter().partition(|slice| is_owned(slice, service));
        let mut usable = usable.into_iter();
        for index in new_slices {
            self.recycled[index] = usable.next();
        }
        self.deleted = others;
        self.deleted.extend(usable);
    }

    /// Returns the numbers of endpoints and slices for metrics.
    fn service_counts(&self, max_endpoints_per_slice: usize) -> ServiceCounts {
        let ideal: usize =
            self.group_sizes.iter().map(|size| size.div_ceil(max_endpoints_per_slice)).sum();
        let endpoints = self.group_sizes.iter().sum();
        ServiceCounts { endpoints, slices: self.layout.slices.len(), ideal: ideal.max(1) }
    }

    /// Returns the desired endpoints of a slice.
    fn endpoints(&self, index: usize) -> Vec<Endpoint> {
        self.layout.slices[index]
            .members
            .iter()
            .map(|index| self.layout.desired[*index].clone())
            .collect()
    }

    /// Returns the content of the slice with the ports at `index`.
    fn content<'b>(
        &'b self,
        index: usize,
        endpoints: &'b [Endpoint],
        labels: &'b StrMap,
    ) -> Content<'b> {
        Content { address_type: self.family.name(), ports: &self.ports[index], endpoints, labels }
    }

    /// Returns the creations of slices. A terminating Service gets no slices, because the garbage collector would
    /// delete them.
    fn creates(&self, common: &CommonFields<'_>) -> Vec<Write> {
        let slices = &self.layout.slices;
        let is_new =
            |index: &usize| slices[*index].existing.is_none() && self.recycled[*index].is_none();
        let annotations = with_trigger_time(&StrMap::default(), common.trigger_time);
        (0..slices.len())
            .filter(|index| is_new(index) && !common.deleting)
            .map(|index| {
                let endpoints = self.endpoints(index);
                let content = self.content(index, &endpoints, &common.labels);
                slice::create(common.key, &common.owner, &annotations, &content)
            })
            .collect()
    }

    /// Returns the updates of existing and recycled slices that must be written.
    fn updates(&self, common: &CommonFields<'_>) -> Vec<Write> {
        let slices = self.layout.slices.iter().zip(&self.recycled).enumerate();
        let to_write = slices.filter(|(_, (slice, _))| slice.needs_write);
        to_write
            .filter_map(|(index, (packed, recycled))| {
                let slice = packed.existing.or(*recycled)?;
                // A recycled slice does not keep its annotations.
                let kept_annotations = if packed.existing.is_some() {
                    &slice.meta.annotations
                } else {
                    &StrMap::default()
                };
                let annotations = with_trigger_time(kept_annotations, common.trigger_time);
                let endpoints = self.endpoints(index);
                let content = self.content(index, &endpoints, &common.labels);
                let metadata = PreservedMetadata {
                    labels: &common.labels,
                    ..PreservedMetadata::with_annotations(&slice.meta, &annotations)
                };
                Some(slice::update(slice, metadata, &content))
            })
            .collect()
    }
}

impl Decision {
    /// Adds a write, unless the reconciliation already has [`BURST_LIMIT`] writes.
    fn add(&mut self, write: Write, common: &CommonFields<'_>, on_error: OnError) {
        if self.writes.len() as u64 >= BURST_LIMIT {
            self.has_more_writes = true;
            return;
        }
        let action = with_events(write.action, common, on_error);
        self.writes.push(Write { action, ..write });
    }

    /// Returns the events and writes. Beyond [`BURST_LIMIT`] writes, the next reconciliation makes the rest.
    pub(super) fn plan(&self) -> Plan {
        let requeue = self.has_more_writes.then_some(Duration::from_millis(1));
        Plan { requeue, ..Plan::of(self.writes.events_and_writes()) }
    }
}

/// Returns the action with the event of its failure. `on_error` is the effect of its failure on later actions.
fn with_events(action: Action, common: &CommonFields<'_>, on_error: OnError) -> Action {
    let key = common.key;
    let failure_event = |operation: String| {
        Some(update_failed_event(
            common,
            &format!("failed to {operation} EndpointSlice for Service {key}: {{error}}"),
        ))
    };
    match action {
        Action::Create(create) => {
            let failed = failure_event("create".to_owned());
            Create { failed, on_error, ..create }.into()
        }
        Action::Update(update) => {
            let failed = failure_event(format!("update {}", update.target.name));
            Update { failed, on_error, ..update }.into()
        }
        Action::Delete(delete) => {
            let failed = failure_event(format!("delete {}", delete.target.name));
            Delete { failed, on_error, ..delete }.into()
        }
        other => other,
    }
}

/// Returns the event for slices that cannot be updated.
fn update_failed_event(common: &CommonFields<'_>, why: &str) -> EventRecord {
    let message = format!("Error updating Endpoint Slices for Service {}: {why}", common.key);
    EventRecord::warning(common.service.clone(), "FailedToUpdateEndpointSlices", message)
}

/// Returns the action that records an event about hints.
fn to_action(common: &CommonFields<'_>, event: HintsEvent) -> Action {
    let HintsEvent { warning, reason, message } = event;
    EventRecord { regarding: common.service.clone(), warning, reason: reason.into(), message }
        .into()
}

/// Returns the labels of slices: the Service's labels and those that the controller sets. Upstream:
/// `setEndpointSliceLabels`.
fn labels(service: &Service) -> StrMap {
    let headless = (!address::has_cluster_ip(service)).then_some((HEADLESS_LABEL, ""));
    let managed = [(SERVICE_NAME_LABEL, &*service.meta.name), (MANAGED_BY_LABEL, MANAGED_BY)];
    without_reserved(&service.meta.labels).chain(headless).chain(managed).collect()
}

/// Returns the labels that are copied from the Service.
fn without_reserved(labels: &StrMap) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().filter(|(key, _)| !RESERVED_LABELS.contains(key))
}

/// Returns the ports in upstream's order, by which slices are compared.
fn sorted_ports(ports: &[SlicePort]) -> Vec<SlicePort> {
    let mut ports = ports.to_vec();
    crate::discovery::order::sort_slice_ports(&mut ports);
    ports
}

/// Returns whether the slice belongs to this Service, and not to an earlier one with the same name. Upstream:
/// `ownedBy`.
fn is_owned(slice: &EndpointSlice, service: &Service) -> bool {
    let is_service =
        |owner: &OwnerReference| &*owner.kind == "Service" && &*owner.api_version == "v1";
    slice.meta.owners.iter().any(|owner| is_service(owner) && owner.uid == service.meta.uid)
}

/// Returns whether the slice is the empty slice of a Service without endpoints.
fn is_placeholder(slice: &EndpointSlice, labels: &StrMap) -> bool {
    slice.endpoints.is_empty() && slice.ports.is_empty() && slice.meta.labels == *labels
}

/// Returns the values of the metric labels `topology` and `traffic_distribution`.
pub(super) fn metric_labels(service: &Service) -> [&str; 2] {
    match hints::mode(service) {
        Mode::Topology => ["Auto", ""],
        Mode::PreferSameZone | Mode::PreferSameNode => {
            ["Disabled", &service.spec.traffic_distribution]
        }
        Mode::Anywhere => ["Disabled", ""],
    }
}

/// Describes the Service for `evenkeel explain`.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    description.fact("selects", words::count(words::signed(observed.pods.len()), "pod"));
    for family in address::families(&observed.service) {
        let groups = desired::group_by_ports(&observed.service, &observed.pods, family);
        let endpoints = || groups.iter().flat_map(|group| &group.endpoints);
        let ready = endpoints().filter(|endpoint| endpoint.conditions.ready == Some(true)).count();
        description.fact(
            &format!("{} endpoints", family.name()),
            format!("{}, {ready} ready", endpoints().count()),
        );
    }
    if let Some(missing) = desired::missing_nodes_error(&observed.service, &observed.pods) {
        description.waits(missing);
    }
    for slice in &observed.slices {
        description.child(&wire::target(&**slice));
    }
    description
}
