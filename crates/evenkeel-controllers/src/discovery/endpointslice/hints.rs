//! Topology hints of endpoints, according to `trafficDistribution` (KEP-4444, KEP-3015) or to an annotation (KEP-2433).
//! Upstream: `endpointslice/trafficdist`, `endpointslice/topologycache`.

use super::{packing::PackedSlice, topology, zones::Ratios};
use crate::discovery::address::Family;
use evenkeel_api::views::{Endpoint, EndpointHints, ForNode, ForZone, Service};
use topology::ZoneCounts;

/// Traffic distribution of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Any endpoint, independent of the client's zone and node.
    Anywhere,
    /// Endpoints in the client's zone. `PreferClose` is an older name for this.
    PreferSameZone,
    /// Endpoints on the client's node, else endpoints in its zone.
    PreferSameNode,
    /// Endpoints allocated in proportion to the zones' CPU (topology aware hints).
    Topology,
}

/// Returns the mode of a Service. The annotation, under either of its names, takes precedence over
/// `trafficDistribution`.
pub(super) fn mode(service: &Service) -> Mode {
    let annotation = |name| service.meta.annotations.get(name);
    let topology = annotation("service.kubernetes.io/topology-aware-hints")
        .or_else(|| annotation("service.kubernetes.io/topology-mode"));
    match (topology, &*service.spec.traffic_distribution) {
        (Some("Auto" | "auto"), _) => Mode::Topology,
        (_, "PreferSameNode") => Mode::PreferSameNode,
        (_, "PreferClose" | "PreferSameZone") => Mode::PreferSameZone,
        _ => Mode::Anywhere,
    }
}

/// Slices of a family. Their members are indexes into `desired`.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    /// Desired endpoints. A changed hint takes effect only if its slice is written.
    pub(super) desired: Vec<Endpoint>,
    pub(super) slices: Vec<PackedSlice<'a>>,
}

impl Layout<'_> {
    /// Returns the number of ready endpoints in all slices.
    pub(super) fn ready_count(&self) -> usize {
        let members = self.slices.iter().flat_map(|slice| &slice.members);
        members.filter(|index| self.is_ready(**index)).count()
    }

    /// Returns whether the desired endpoint with this index is ready.
    pub(super) fn is_ready(&self, index: usize) -> bool {
        self.desired[index].conditions.ready == Some(true)
    }

    /// Returns the endpoints of the slices that are written anyway. New slices precede existing ones.
    pub(super) fn members_to_write(&self) -> impl Iterator<Item = usize> {
        let to_write = || self.slices.iter().filter(|slice| slice.needs_write);
        let new = to_write().filter(|slice| slice.existing.is_none());
        let existing = to_write().filter(|slice| slice.existing.is_some());
        new.chain(existing).flat_map(|slice| slice.members.iter().copied())
    }

    /// Returns the desired endpoints of a slice, each with the existing endpoint at its position.
    pub(super) fn pairs(&self, index: usize) -> impl Iterator<Item = EndpointPair<'_>> {
        let slice = &self.slices[index];
        let existing = slice.existing.map_or(&[][..], |slice| &slice.endpoints);
        let desired = slice.members.iter().map(|index| &self.desired[*index]);
        desired.zip(existing).map(|(desired, existing)| EndpointPair { desired, existing })
    }

    /// Sets the hints of all desired endpoints. Marks a slice to be written if the hints of a pair are wrong.
    fn set_hints(
        &mut self,
        desired_hints: impl Fn(&Endpoint) -> Option<EndpointHints>,
        are_wrong: impl Fn(EndpointPair<'_>) -> bool,
    ) {
        for endpoint in &mut self.desired {
            endpoint.hints = desired_hints(endpoint);
        }
        for index in 0..self.slices.len() {
            if !self.slices[index].needs_write && self.pairs(index).any(&are_wrong) {
                self.slices[index].needs_write = true;
            }
        }
    }
}

/// A desired endpoint, and the existing endpoint at its position in the slice.
pub(super) struct EndpointPair<'a> {
    pub(super) desired: &'a Endpoint,
    pub(super) existing: &'a Endpoint,
}

/// Topology hints of a Service that has the annotation. Upstream: `hintsPopulatedByService`, `endpointsByService`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TopologyHints {
    /// Whether the family that was reconciled last got such hints.
    pub(super) populated: bool,
    /// Number of endpoints allocated to each zone, by family.
    pub(super) allocated: [Option<ZoneCounts>; 2],
}

impl TopologyHints {
    /// Sets the numbers of endpoints that are allocated to zones. `None` means that the slices have no hints.
    fn set(&mut self, family: Family, allocated: Option<ZoneCounts>) {
        self.populated = allocated.is_some();
        self.allocated[family as usize] = allocated;
    }

    /// Removes the hints of a family. Upstream: `RemoveHints`.
    pub(super) fn remove(&mut self, family: Family) {
        self.set(family, None);
    }

    /// Returns whether a zone has too few endpoints for the current ratios. Upstream: `HasPopulatedHints`,
    /// `GetOverloadedServices`.
    pub(super) fn is_overloaded(&self, ratios: Option<&Ratios>) -> bool {
        self.allocated.iter().flatten().any(|allocated| topology::is_overloaded(allocated, ratios))
    }
}

/// An event about the hints of a Service.
pub(super) struct HintsEvent {
    /// Whether the event is a warning.
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Sets the hints according to the Service's mode. Returns the event to record, if any.
pub(super) fn apply(
    mode: Mode,
    layout: &mut Layout<'_>,
    family: Family,
    ratios: Option<&Ratios>,
    topology_hints: &mut TopologyHints,
) -> Option<HintsEvent> {
    let were_populated = topology_hints.populated;
    match mode {
        Mode::Topology => return apply_topology(layout, family, ratios, topology_hints),
        Mode::PreferSameZone | Mode::PreferSameNode => layout.set_hints(
            |endpoint| traffic_distribution_hint(endpoint, mode),
            |EndpointPair { desired, existing }| {
                desired.conditions.ready == Some(true) && desired.hints != existing.hints
            },
        ),
        Mode::Anywhere => remove_hints(layout),
    }
    topology_hints.remove(family);
    were_populated.then(|| disabled_event(family, "Topology Aware Hints has been disabled"))
}

/// Sets hints in proportion to the CPU of the zones. If that is impossible, removes the hints. Returns an event if the
/// hints were enabled, or if they are impossible.
fn apply_topology(
    layout: &mut Layout<'_>,
    family: Family,
    ratios: Option<&Ratios>,
    topology_hints: &mut TopologyHints,
) -> Option<HintsEvent> {
    let were_populated = topology_hints.populated;
    match topology::allocate(layout, ratios) {
        Ok(allocated) => {
            topology_hints.set(family, Some(allocated));
            (!were_populated).then(|| enabled_event(family))
        }
        Err(reason) => {
            topology_hints.remove(family);
            remove_hints(layout);
            Some(disabled_event(family, &reason))
        }
    }
}

/// Removes the hints of all endpoints.
fn remove_hints(layout: &mut Layout<'_>) {
    layout.set_hints(|_| None, |pair| pair.existing.hints.is_some());
}

/// Returns the event for hints that were enabled.
fn enabled_event(family: Family) -> HintsEvent {
    let message = "Topology Aware Hints has been enabled";
    let message = format!("{message}, addressType: {}", family.name());
    HintsEvent { warning: false, reason: "TopologyAwareHintsEnabled", message }
}

/// Returns the event for hints that were disabled for the reason in `message`.
fn disabled_event(family: Family, message: &str) -> HintsEvent {
    let message = format!("{message}, addressType: {}", family.name());
    HintsEvent { warning: true, reason: "TopologyAwareHintsDisabled", message }
}

/// Returns the hint for `trafficDistribution`: the endpoint's zone and, with `PreferSameNode`, also its node. An
/// endpoint that is not ready gets no hint. Upstream: `trafficdist.ReconcileHints`.
fn traffic_distribution_hint(endpoint: &Endpoint, mode: Mode) -> Option<EndpointHints> {
    if endpoint.conditions.ready != Some(true) {
        return None;
    }
    let Endpoint { zone, node_name, .. } = endpoint;
    let mut hints = EndpointHints::default();
    if !zone.is_empty() {
        hints.for_zones = Box::new([ForZone { name: zone.clone() }]);
    }
    if mode == Mode::PreferSameNode && !node_name.is_empty() {
        hints.for_nodes = Box::new([ForNode { name: node_name.clone() }]);
    }
    (!hints.for_zones.is_empty() || !hints.for_nodes.is_empty()).then_some(hints)
}

pub(super) fn zone_hint(zone: &str) -> Option<EndpointHints> {
    let for_zones = Box::new([ForZone { name: zone.into() }]);
    Some(EndpointHints { for_zones, for_nodes: Box::default() })
}
