//! Who should use which endpoint (`hints`): callers in its zone or on its node, where the Service asks for that.
//!
//! Upstream: `endpointslice/trafficdist` (KEP-4444, KEP-3015) and, for the annotation, `endpointslice/topologycache`.

use super::{packing::PackedSlice, topology, zones::Ratios};
use crate::discovery::address::Family;
use evenkeel_api::views::{Endpoint, EndpointHints, ForNode, ForZone, Service};
use topology::Counts;

/// How a Service wants its callers to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Any endpoint will do.
    Anywhere,
    /// In the caller's zone (`PreferClose` is an older name of this).
    PreferSameZone,
    /// On the caller's node, or else in its zone.
    PreferSameNode,
    /// As zones have CPU (topology aware hints, by annotation).
    Topology,
}

/// What the Service asks for. The annotation, in either of its names, goes before `trafficDistribution`.
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

/// All slices of a family, over endpoints that they name by place.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    /// Endpoints; hints are set on those of slices that are written.
    pub(super) desired: Vec<Endpoint>,
    pub(super) slices: Vec<PackedSlice<'a>>,
}

impl Layout<'_> {
    /// How many endpoints are ready.
    pub(super) fn ready(&self) -> usize {
        let all = self.slices.iter().flat_map(|slice| &slice.members);
        all.filter(|at| self.is_ready(**at)).count()
    }

    /// Whether an endpoint is.
    pub(super) fn is_ready(&self, at: usize) -> bool {
        self.desired[at].conditions.ready == Some(true)
    }

    /// The endpoints of slices that are written: of those that are yet to be made first.
    pub(super) fn written(&self) -> impl Iterator<Item = usize> {
        let of = |new: bool| {
            self.slices.iter().filter(move |slice| slice.written && slice.existing.is_none() == new)
        };
        of(true).chain(of(false)).flat_map(|slice| slice.members.iter().copied())
    }

    /// An unchanged slice's endpoints, as they should be and as they are.
    pub(super) fn present(&self, at: usize) -> impl Iterator<Item = (&Endpoint, &Endpoint)> {
        let slice = &self.slices[at];
        let present = slice.existing.map_or(&[][..], |slice| &slice.endpoints);
        slice.members.iter().map(|at| &self.desired[*at]).zip(present)
    }

    /// Gives each endpoint the hints that `wanted` says, and writes slices that have others.
    fn set(
        &mut self,
        wanted: impl Fn(&Endpoint) -> Option<EndpointHints>,
        wrong: impl Fn(&Endpoint, &Endpoint) -> bool,
    ) {
        for at in 0..self.slices.len() {
            let is_wrong = |(desired, present): (&Endpoint, &Endpoint)| wrong(desired, present);
            if !self.slices[at].written && self.present(at).any(is_wrong) {
                self.slices[at].written = true;
            }
        }
        for endpoint in &mut self.desired {
            endpoint.hints = wanted(endpoint);
        }
    }
}

/// What is remembered of a Service whose slices had hints by the annotation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hinted {
    /// Its slices have such hints.
    pub(super) populated: bool,
    /// What each zone was given, by family.
    pub(super) given: [Option<Counts>; 2],
}

impl Hinted {
    fn set(&mut self, family: Family, given: Option<Counts>) {
        self.populated = given.is_some();
        self.given[family as usize] = given;
    }

    /// A family has no hints any more.
    pub(super) fn remove(&mut self, family: Family) {
        self.set(family, None);
    }

    /// Whether a zone has too little of what it was given.
    pub(super) fn is_overloaded(&self, ratios: Option<&Ratios>) -> bool {
        self.given.iter().flatten().any(|given| topology::is_overloaded(given, ratios))
    }
}

/// An event to tell: whether it is a warning, its reason, its message.
pub(super) type HintsEvent = (bool, &'static str, String);

/// Sets hints as the Service asks, and says what the user should know.
pub(super) fn apply(
    mode: Mode,
    layout: &mut Layout<'_>,
    family: Family,
    ratios: Option<&Ratios>,
    hinted: &mut Hinted,
) -> Option<HintsEvent> {
    let told = |warning, reason, message: &str| {
        Some((warning, reason, format!("{message}, addressType: {}", family.name())))
    };
    if mode == Mode::Topology {
        return match topology::allocate(layout, ratios) {
            Ok(given) => {
                let was = hinted.populated;
                hinted.set(family, Some(given));
                let message = "Topology Aware Hints has been enabled";
                if was { None } else { told(false, "TopologyAwareHintsEnabled", message) }
            }
            Err(why) => {
                hinted.remove(family);
                layout.set(|_| None, |_, present| present.hints.is_some());
                told(true, "TopologyAwareHintsDisabled", &why)
            }
        };
    }
    let was = hinted.populated;
    hinted.remove(family);
    match mode {
        Mode::PreferSameZone | Mode::PreferSameNode => layout.set(
            |endpoint| traffic_distribution_hint(endpoint, mode),
            |desired, present| {
                let wanted = traffic_distribution_hint(desired, mode);
                desired.conditions.ready == Some(true) && wanted != present.hints
            },
        ),
        Mode::Anywhere | Mode::Topology => {
            layout.set(|_| None, |_, present| present.hints.is_some());
        }
    }
    if was {
        told(true, "TopologyAwareHintsDisabled", "Topology Aware Hints has been disabled")
    } else {
        None
    }
}

/// The hint that `trafficDistribution` asks for: for callers in the endpoint's own zone and, with `PreferSameNode`, on its
/// own node. One that is not ready has none.
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

/// The hint for callers in one zone.
pub(super) fn zone_hint(zone: &str) -> Option<EndpointHints> {
    let for_zones = Box::new([ForZone { name: zone.into() }]);
    Some(EndpointHints { for_zones, for_nodes: Box::default() })
}
