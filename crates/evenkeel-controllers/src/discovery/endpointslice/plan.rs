//! Desired EndpointSlices of a Service. Upstream: `endpointslice/reconciler.go`.
//!
//! | documented | where |
//! |---|---|
//! | `selector`, `ExternalName`: Services with slices | `selected::selects_pods` |
//! | pods that are endpoints | `pod::belongs_in_endpoints` |
//! | a pod on a node that does not exist | `desired::groups`, `desired::missing_nodes_error` |
//! | `ipFamilies`, `addressType`: slices for each family | `decide`, `address::families` |
//! | `--max-endpoints-per-slice`, packing with few writes | `packing::reconcile_by_port_mapping` |
//! | the empty slice of a Service without endpoints | `ensure_one` |
//! | `conditions`: `ready`, `serving`, `terminating`; `publishNotReadyAddresses` | `desired::endpoint` |
//! | `targetRef`, `nodeName`, `zone`, `hostname` | `desired::endpoint` |
//! | `ports`, `targetPort`, `appProtocol` | `desired::ports`, `pod::port` |
//! | `hints`: `trafficDistribution` (`PreferClose`, `PreferSameZone`, `PreferSameNode`) | `hints::mode`, `hints::traffic_distribution_hint` |
//! | `hints`: annotation `service.kubernetes.io/topology-mode` | `hints::mode`, `topology::allocate` |
//! | labels: `kubernetes.io/service-name`, `endpointslice.kubernetes.io/managed-by`, `service.kubernetes.io/headless` | `labels` |
//! | `ownerReferences`: slices of an earlier Service with the same name | `is_owned` |
//! | annotation `endpoints.kubernetes.io/last-change-trigger-time` | `trigger::annotated` |

use super::{
    desired::{self, Placed},
    hints::{self, Hinted, HintsEvent, Layout, Mode},
    packing::{self, PackedSlice},
    zones::Ratios,
};
use crate::{
    discovery::{
        address::{self, Family},
        slice::{self, Content, HEADLESS, MANAGED_BY, SERVICE_NAME, ServiceCounts, Write, Writes},
        trigger::{Times, annotated},
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
pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";
/// Labels that the controller sets itself. It does not copy the Service's values of these labels.
const RESERVED: [&str; 3] = [SERVICE_NAME, MANAGED_BY, HEADLESS];

/// Observed state of a Service and its slices.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) key: Key,
    pub(super) service: Arc<Service>,
    /// The selected pods, with their nodes.
    pub(super) pods: Vec<Placed>,
    /// The Service's slices, except terminating ones.
    pub(super) slices: Vec<Arc<EndpointSlice>>,
    /// Current trigger times, for the annotation.
    pub(super) times: Arc<Times>,
    /// Trigger times that the previous pass observed.
    pub(super) before: Option<Arc<Times>>,
    /// CPU ratios of the zones, if they are known and needed.
    pub(super) ratios: Option<Arc<Ratios>>,
    /// State of the Service's topology hints.
    pub(super) hinted: Hinted,
    /// Maximum number of endpoints in a slice.
    pub(super) max: usize,
}

/// Decision of a pass, with values for later passes and for metrics.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    pub(super) writes: Writes,
    /// Whether some writes are left for the next pass.
    more: bool,
    pub(super) hinted: Hinted,
    pub(super) share: ServiceCounts,
    /// For each family: the number of endpoints added, of endpoints removed, and of slices written.
    pub(super) counts: Vec<[usize; 3]>,
    /// Whether a pod was omitted because its node does not exist.
    pub(super) incomplete: bool,
}

/// Values that all slices of a Service have in common.
struct Common<'a> {
    key: &'a Key,
    labels: StrMap,
    owner: OwnerReference,
    about: Target,
    trigger: Option<Timestamp>,
    deleting: bool,
}

impl<'a> Common<'a> {
    fn of(observed: &'a Observed) -> Self {
        let about = wire::target(&*observed.service);
        Self {
            key: &observed.key,
            labels: labels(&observed.service),
            owner: wire::controller_reference(&about),
            about,
            trigger: observed.times.trigger(observed.before.as_deref()),
            deleting: observed.service.meta.deleting(),
        }
    }
}

/// Reconciles the slices of each family of the Service, and deletes the slices of other families. A failed write
/// skips only the remaining writes of its family. Upstream: `Reconcile`.
pub(super) fn decide(observed: &Observed) -> Decision {
    let (common, families) = (Common::of(observed), address::families(&observed.service));
    let mut decision = Decision { hinted: observed.hinted.clone(), ..Decision::default() };
    let is_of = |slice: &&EndpointSlice, family: Family| *slice.address_type == *family.name();
    let slices = || observed.slices.iter().map(|slice| &**slice);
    for family in Family::BOTH.into_iter().filter(|family| !families.contains(family)) {
        if slices().any(|slice| is_of(&slice, family)) {
            decision.hinted.remove(family);
        }
    }
    for family in &families {
        let existing: Vec<&EndpointSlice> =
            slices().filter(|slice| is_of(slice, *family)).collect();
        reconcile(observed, &common, *family, &existing, &mut decision);
    }
    for slice in slices().filter(|slice| !families.iter().any(|family| is_of(slice, *family))) {
        decision.add(slice::delete(slice), &common, OnError::Continue);
    }
    if let Some(missing) = desired::missing_nodes_error(&observed.service, &observed.pods) {
        decision.incomplete = true;
        decision.writes.events.push(failure(&common, &missing));
    }
    decision
}

/// Reconciles the slices of one family. Upstream: `reconcileByAddressType`.
fn reconcile(
    observed: &Observed,
    common: &Common<'_>,
    family: Family,
    existing: &[&EndpointSlice],
    decision: &mut Decision,
) {
    let mut family = Slices::reconcile(observed, common, family, existing);
    let mode = hints::mode(&observed.service);
    let description = hints::apply(
        mode,
        &mut family.layout,
        family.family,
        observed.ratios.as_deref(),
        &mut decision.hinted,
    );
    decision.share += family.share(observed.max);
    let mut writes = family.creates(common);
    writes.extend(family.updates(common));
    writes.extend(family.deleted.iter().map(|slice| slice::delete(slice)));
    decision.counts.push([family.added, family.removed, writes.len()]);
    let on_error = OnError::SkipPart(family.family as u32);
    writes.into_iter().for_each(|write| decision.add(write, common, on_error));
    decision.writes.events.extend(description.map(|description| event(common, description)));
}

/// Slices of one family while they are packed.
struct Slices<'a> {
    family: Family,
    layout: Layout<'a>,
    /// Ports of each slice in the layout.
    ports: Vec<Vec<SlicePort>>,
    /// For each slice in the layout: an existing slice that would be deleted, and becomes this new slice instead.
    recycled: Vec<Option<&'a EndpointSlice>>,
    deleted: Vec<&'a EndpointSlice>,
    added: usize,
    removed: usize,
    /// Number of endpoints of each set of ports.
    sizes: Vec<usize>,
}

impl<'a> Slices<'a> {
    fn reconcile(
        observed: &Observed,
        common: &Common<'_>,
        family: Family,
        existing: &[&'a EndpointSlice],
    ) -> Self {
        let layout = Layout { desired: Vec::new(), slices: Vec::new() };
        let mut all = Self {
            family,
            layout,
            ports: Vec::new(),
            recycled: Vec::new(),
            deleted: Vec::new(),
            added: 0,
            removed: 0,
            sizes: Vec::new(),
        };
        let (own, foreign): (Vec<_>, Vec<_>) =
            existing.iter().partition(|slice| is_owned(slice, &observed.service));
        all.deleted = foreign;
        let keys: Vec<Vec<SlicePort>> = own.iter().map(|slice| sorted(&slice.ports)).collect();
        let groups = desired::groups(&observed.service, &observed.pods, family);
        let is_grouped = |ports: &Vec<SlicePort>| groups.iter().any(|group| group.ports == *ports);
        let ungrouped = own.iter().zip(&keys).filter(|(_, ports)| !is_grouped(ports));
        all.deleted.extend(ungrouped.map(|(slice, _)| *slice));
        for group in groups {
            let with_ports = own.iter().zip(&keys).filter(|(_, ports)| **ports == group.ports);
            let with_ports: Vec<&EndpointSlice> = with_ports.map(|(slice, _)| *slice).collect();
            all.add(group, &with_ports, observed.max, &common.labels);
        }
        all.ensure_one(&observed.service, &common.labels);
        all.recycle(&observed.service);
        all
    }

    fn add(
        &mut self,
        group: desired::Group,
        existing: &[&'a EndpointSlice],
        max: usize,
        labels: &StrMap,
    ) {
        let relabel = |slice: &EndpointSlice| {
            !without_reserved(&slice.meta.labels).eq(without_reserved(labels))
        };
        let packed = packing::reconcile_by_port_mapping(existing, &group.endpoints, max, relabel);
        self.added += packed.added;
        self.removed += packed.removed;
        self.deleted.extend(packed.deleted);
        self.sizes.push(group.endpoints.len());
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
    fn ensure_one(&mut self, service: &Service, labels: &StrMap) {
        if !self.layout.slices.is_empty() {
            return;
        }
        let present = match &self.deleted[..] {
            [one] if is_owned(one, service) && is_placeholder(one, labels) => Some(*one),
            _ => None,
        };
        if present.is_some() {
            self.deleted.clear();
        }
        let needs_write = present.is_none();
        self.layout.slices.push(PackedSlice {
            existing: present,
            members: Vec::new(),
            needs_write,
        });
        self.ports.push(Vec::new());
    }

    /// Turns slices that would be deleted into new slices. Upstream: `recycleSlices`.
    fn recycle(&mut self, service: &Service) {
        self.recycled = vec![None; self.layout.slices.len()];
        let new = (0..self.layout.slices.len())
            .rev()
            .filter(|index| self.layout.slices[*index].existing.is_none());
        let (mut usable, others): (Vec<_>, Vec<_>) =
            self.deleted.iter().partition(|slice| is_owned(slice, service));
        usable.reverse();
        for index in new {
            self.recycled[index] = usable.pop();
        }
        usable.reverse();
        self.deleted = others;
        self.deleted.extend(usable);
    }

    fn share(&self, max: usize) -> ServiceCounts {
        let ideal: usize = self.sizes.iter().map(|size| size.div_ceil(max)).sum();
        let endpoints = self.sizes.iter().sum();
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
    fn creates(&self, common: &Common<'_>) -> Vec<Write> {
        let slices = &self.layout.slices;
        let is_new =
            |index: &usize| slices[*index].existing.is_none() && self.recycled[*index].is_none();
        let annotations = annotated(&StrMap::default(), common.trigger);
        (0..slices.len())
            .filter(|index| is_new(index) && !common.deleting)
            .map(|index| {
                let endpoints = self.endpoints(index);
                let content = self.content(index, &endpoints, &common.labels);
                slice::create(common.key, &common.owner, &annotations, &content)
            })
            .collect()
    }

    fn updates(&self, common: &Common<'_>) -> Vec<Write> {
        let slices = self.layout.slices.iter().zip(&self.recycled).enumerate();
        let written = slices.filter(|(_, (slice, _))| slice.needs_write);
        written
            .filter_map(|(index, (packed, recycled))| {
                let slice = packed.existing.or(*recycled)?;
                // A recycled slice does not keep its annotations.
                let kept = if packed.existing.is_some() {
                    &slice.meta.annotations
                } else {
                    &StrMap::default()
                };
                let annotations = annotated(kept, common.trigger);
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
    fn add(&mut self, write: Write, common: &Common<'_>, on_error: OnError) {
        if self.writes.len() as u64 >= BURST_LIMIT {
            self.more = true;
            return;
        }
        let action = with_events(write.action, common, on_error);
        self.writes.push(Write { action, ..write });
    }

    /// Returns the events and writes. Beyond [`BURST_LIMIT`] writes, the next pass makes the rest.
    pub(super) fn plan(&self) -> Plan {
        let requeue = self.more.then_some(Duration::from_millis(1));
        Plan { requeue, ..Plan::of(self.writes.all()) }
    }
}

/// Adds an event that the action's failure records, and the effect of its failure on later actions.
fn with_events(action: Action, common: &Common<'_>, on_error: OnError) -> Action {
    let key = common.key;
    let note = |what: String| {
        Some(failed(
            common,
            &format!("failed to {what} EndpointSlice for Service {key}: {{error}}"),
        ))
    };
    match action {
        Action::Create(create) => {
            Create { failed: note("create".to_owned()), on_error, ..create }.into()
        }
        Action::Update(update) => {
            let failed = note(format!("update {}", update.target.name));
            Update { failed, on_error, ..update }.into()
        }
        Action::Delete(delete) => {
            let failed = note(format!("delete {}", delete.target.name));
            Delete { failed, on_error, ..delete }.into()
        }
        other => other,
    }
}

fn failed(common: &Common<'_>, why: &str) -> EventRecord {
    let message = format!("Error updating Endpoint Slices for Service {}: {why}", common.key);
    EventRecord::warning(common.about.clone(), "FailedToUpdateEndpointSlices", message)
}

fn failure(common: &Common<'_>, why: &str) -> Action {
    failed(common, why).into()
}

fn event(common: &Common<'_>, (warning, reason, message): HintsEvent) -> Action {
    EventRecord { regarding: common.about.clone(), warning, reason, message }.into()
}

/// Returns the labels of slices: the Service's labels and those that the controller sets. Upstream:
/// `setEndpointSliceLabels`.
fn labels(service: &Service) -> StrMap {
    let headless = (!address::has_cluster_ip(service)).then_some((HEADLESS, ""));
    let own = [(SERVICE_NAME, &*service.meta.name), (MANAGED_BY, MANAGER)];
    without_reserved(&service.meta.labels).chain(headless).chain(own).collect()
}

/// Returns the labels that are copied from the Service.
fn without_reserved(labels: &StrMap) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().filter(|(key, _)| !RESERVED.contains(key))
}

fn sorted(ports: &[SlicePort]) -> Vec<SlicePort> {
    let mut ports = ports.to_vec();
    crate::discovery::order::slice_ports(&mut ports);
    ports
}

/// Reports whether the slice belongs to this Service, and not to an earlier one with the same name. Upstream:
/// `ownedBy`.
fn is_owned(slice: &EndpointSlice, service: &Service) -> bool {
    let is_service =
        |owner: &OwnerReference| &*owner.kind == "Service" && &*owner.api_version == "v1";
    slice.meta.owners.iter().any(|owner| is_service(owner) && owner.uid == service.meta.uid)
}

/// Reports whether the slice is the empty slice of a Service without endpoints.
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
        let groups = desired::groups(&observed.service, &observed.pods, family);
        let all = || groups.iter().flat_map(|group| &group.endpoints);
        let ready = all().filter(|endpoint| endpoint.conditions.ready == Some(true)).count();
        description.fact(
            &format!("{} endpoints", family.name()),
            format!("{}, {ready} ready", all().count()),
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
