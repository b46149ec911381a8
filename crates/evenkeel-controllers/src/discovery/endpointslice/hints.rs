//! Topology hints of endpoints, according to `trafficDistribution` (KEP-4444, KEP-3015) or to an annotation (KEP-2433).
//! Upstream: `endpointslice/trafficdist`, `endpointslice/topologycache`.

use super::{packing::PackedSlice, topology, zones::Ratios};
use crate::discovery::address::Family;
use evenkeel_api::views::{Endpoint, EndpointHints, ForNode, ForZone, Service};
use topology::Counts;

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

/// Slices of a family; their members are indexes into the desired endpoints.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    /// Desired endpoints. A changed hint takes effect only if its slice is written.
    pub(super) desired: Vec<Endpoint>,
    pub(super) slices: Vec<PackedSlice<'a>>,
}

impl Layout<'_> {
    /// Returns the number of ready endpoints.
    pub(super) fn ready(&self) -> usize {
        let all = self.slices.iter().flat_map(|slice| &slice.members);
        all.filter(|index| self.is_ready(**index)).count()
    }

    /// Reports whether the endpoint is ready.
    pub(super) fn is_ready(&self, index: usize) -> bool {
        self.desired[index].conditions.ready == Some(true)
    }

    /// Returns the endpoints of the slices that are written; new slices precede existing ones.
    pub(super) fn written(&self) -> impl Iterator<Item = usize> {
        let of_slices = |new: bool| {
            self.slices
                .iter()
                .filter(move |slice| slice.needs_write && slice.existing.is_none() == new)
        };
        of_slices(true).chain(of_slices(false)).flat_map(|slice| slice.members.iter().copied())
    }

    /// Returns the desired endpoints of a slice, each with the existing endpoint at its position.
    pub(super) fn present(&self, index: usize) -> impl Iterator<Item = (&Endpoint, &Endpoint)> {
        let slice = &self.slices[index];
        let present = slice.existing.map_or(&[][..], |slice| &slice.endpoints);
        slice.members.iter().map(|index| &self.desired[*index]).zip(present)
    }

    /// Sets the hints of all desired endpoints. Marks a slice to be written if `wrong` holds for a pair of its
    /// desired and existing endpoints.
    fn set(
        &mut self,
        desired_hints: impl Fn(&Endpoint) -> Option<EndpointHints>,
        wrong: impl Fn(&Endpoint, &Endpoint) -> bool,
    ) {
        for index in 0..self.slices.len() {
            let is_wrong = |(desired, present): (&Endpoint, &Endpoint)| wrong(desired, present);
            if !self.slices[index].needs_write && self.present(index).any(is_wrong) {
                self.slices[index].needs_write = true;
            }
        }
        for endpoint in &mut self.desired {
            endpoint.hints = desired_hints(endpoint);
        }
    }
}

/// Topology hints of a Service that has the annotation. Upstream: `hintsPopulatedByService`, `endpointsByService`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hinted {
    /// Whether the last family that was reconciled got such hints.
    pub(super) populated: bool,
    /// Number of endpoints allocated to each zone, by family.
    pub(super) given: [Option<Counts>; 2],
}

impl Hinted {
    fn set(&mut self, family: Family, given: Option<Counts>) {
        self.populated = given.is_some();
        self.given[family as usize] = given;
    }

    /// Removes the hints of a family. Upstream: `RemoveHints`.
    pub(super) fn remove(&mut self, family: Family) {
        self.set(family, None);
    }

    /// Reports whether a zone has too few endpoints for the current ratios. Upstream: `HasPopulatedHints`,
    /// `GetOverloadedServices`.
    pub(super) fn is_overloaded(&self, ratios: Option<&Ratios>) -> bool {
        self.given.iter().flatten().any(|given| topology::is_overloaded(given, ratios))
    }
}

/// An event: whether it is a warning, its reason and its message.
pub(super) type HintsEvent = (bool, &'static str, String);

/// Sets the hints according to the Service's mode. Returns the event to record, if any.
pub(super) fn apply(
    mode: Mode,
    layout: &mut Layout<'_>,
    family: Family,
    ratios: Option<&Ratios>,
    hinted: &mut Hinted,
) -> Option<HintsEvent> {
    let event = |warning, reason, message: &str| {
        Some((warning, reason, format!("{message}, addressType: {}", family.name())))
    };
    if mode == Mode::Topology {
        return match topology::allocate(layout, ratios) {
            Ok(given) => {
                let was = hinted.populated;
                hinted.set(family, Some(given));
                let message = "Topology Aware Hints has been enabled";
                if was { None } else { event(false, "TopologyAwareHintsEnabled", message) }
            }
            Err(why) => {
                hinted.remove(family);
                layout.set(|_| None, |_, present| present.hints.is_some());
                event(true, "TopologyAwareHintsDisabled", &why)
            }
        };
    }
    let was = hinted.populated;
    hinted.remove(family);
    match mode {
        Mode::PreferSameZone | Mode::PreferSameNode => layout.set(
            |endpoint| traffic_distribution_hint(endpoint, mode),
            |desired, present| {
                let desired_hints = traffic_distribution_hint(desired, mode);
                desired.conditions.ready == Some(true) && desired_hints != present.hints
            },
        ),
        Mode::Anywhere | Mode::Topology => {
            layout.set(|_| None, |_, present| present.hints.is_some());
        }
    }
    if was {
        event(true, "TopologyAwareHintsDisabled", "Topology Aware Hints has been disabled")
    } else {
        None
    }
}

/// Returns the hint for `trafficDistribution`: the endpoint's zone and, with `PreferSameNode`, also its node. An
/// endpoint that is not ready gets no hint. Upstream: `trafficdist.ReconcileHints`.
fn traffic_distribution_hint(endpoint: &Endpoint, mode: Mode) -> Option<EndpointHints> {
    let ready = endpoint.conditions.ready == Some(true);
    let zone = Some(&endpoint.zone).filter(|zone| ready && !zone.is_empty());
    let by_node = ready && mode == Mode::PreferSameNode;
    let on = Some(&endpoint.node_name).filter(|name| by_node && !name.is_empty());
    let hints = EndpointHints {
        for_zones: zone.map(|name| ForZone { name: name.clone() }).into_iter().collect(),
        for_nodes: on.map(|name| ForNode { name: name.clone() }).into_iter().collect(),
    };
    (zone.is_some() || on.is_some()).then_some(hints)
}

/// Returns the hint for one zone.
pub(super) fn zone_hint(zone: &str) -> Option<EndpointHints> {
    let for_zones = Box::new([ForZone { name: zone.into() }]);
    Some(EndpointHints { for_zones, for_nodes: Box::default() })
}
