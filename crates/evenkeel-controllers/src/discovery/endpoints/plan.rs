//! Desired Endpoints of a Service. Upstream: `syncService` in `endpoints_controller.go`.

use super::{
    super::{
        address::{self, Family},
        canonical::{self, Offer},
        pod,
        selected::selects_pods,
        slice::HEADLESS,
        trigger::{Times, annotated},
    },
    capacity::{self, OVER_CAPACITY, TRUNCATED},
};
use crate::{
    pods,
    wire::{self, Fresh, Kept},
    words,
};
use evenkeel_api::{
    StrMap, View,
    views::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service},
};
use evenkeel_runtime::{
    introspect::Description,
    plan::{Create, Delete, Key, Note, Plan, Target, Update},
};
use serde::Serialize;
use std::sync::Arc;

/// Label with the managing controller. Upstream: `LabelManagedBy`.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// This controller's value of the label.
const MANAGER: &str = "endpoint-controller";
/// Annotation of Endpoints that serve as a leader-election lock. Upstream: `LeaderElectionRecordAnnotationKey`.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// Observed state of a Service.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) key: Key,
    /// The Service; `None` if it is deleted.
    pub(super) service: Option<Arc<Service>>,
    /// The selected pods.
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) endpoints: Option<Arc<Endpoints>>,
    /// Times for the trigger annotation, now.
    pub(super) times: Option<Arc<Times>>,
    /// The same as of the last reconciliation.
    pub(super) before: Option<Arc<Times>>,
}

/// Whether the Endpoints are a leader-election lock, without a Service.
pub(in crate::discovery) fn elects(endpoints: &Endpoints) -> bool {
    endpoints.meta.annotations.contains(LEADER)
}

/// Whether this controller manages the Endpoints.
pub(super) fn is_own(endpoints: &Endpoints) -> bool {
    endpoints.meta.labels.get(MANAGED_BY) == Some(MANAGER)
}

/// Creates, updates or deletes the Endpoints.
pub(super) fn plan(observed: &Observed) -> Plan {
    let mut plan = Plan::nothing();
    let Some(service) = &observed.service else {
        if let Some(endpoints) = &observed.endpoints {
            plan.push(Delete::new(wire::target(&**endpoints)));
        }
        return plan;
    };
    if !selects_pods(service) {
        return plan;
    }
    let mut subsets = subsets(service, &observed.pods);
    let is_cut = capacity::truncate(&mut subsets);
    let labels = labels(service);
    match &observed.endpoints {
        Some(endpoints) if is_so(endpoints, &subsets, is_cut, service) => {}
        Some(endpoints) => plan.push(change(endpoints, observed, &labels, subsets, is_cut)),
        None => plan.push(make(observed, &labels, subsets, is_cut)),
    }
    plan
}

/// Returns the canonical subsets of the selected pods.
fn subsets(service: &Service, pods: &[Arc<Pod>]) -> Box<[EndpointSubset]> {
    let family = address::first_family(service);
    // Most pods have the same ports as the previous one.
    let mut lists: Vec<Vec<EndpointPort>> = Vec::new();
    let mut offers = Vec::with_capacity(pods.len());
    for pod in pods.iter().filter(|pod| is_published(service, pod)) {
        let Some(ports) = ports(service, pod) else { continue };
        let Some(address) = address_of(service, pod, family) else { continue };
        let at = lists.iter().position(|list| *list == ports).unwrap_or_else(|| {
            lists.push(ports);
            lists.len() - 1
        });
        let ready = service.spec.publish_not_ready_addresses || pods::is_ready(pod);
        offers.push((address, ready, at));
    }
    let offer = |(address, ready, at): (_, _, usize)| Offer { address, ready, ports: &lists[at] };
    canonical::repack_subsets(offers.into_iter().map(offer).collect())
}

/// Whether the pod is published: terminating pods are not, unless the Service sets `publishNotReadyAddresses`.
fn is_published(service: &Service, pod: &Pod) -> bool {
    pod::belongs_in_endpoints(pod)
        && (service.spec.publish_not_ready_addresses || !pod.meta.deleting())
}

/// Returns the pod's ports for the Service; `None` if it has none of them. A headless Service need not have ports.
fn ports(service: &Service, pod: &Pod) -> Option<Vec<EndpointPort>> {
    if service.spec.ports.is_empty() {
        return (&*service.spec.cluster_ip == "None").then(Vec::new);
    }
    let of = |port: &evenkeel_api::views::ServicePort| {
        Some(EndpointPort {
            name: port.name.clone(),
            port: pod::port(pod, port)?,
            protocol: pod::protocol(&port.protocol).into(),
            app_protocol: port.app_protocol.clone(),
        })
    };
    let ports: Vec<EndpointPort> = service.spec.ports.iter().filter_map(of).collect();
    Some(ports).filter(|ports| !ports.is_empty())
}

/// Returns the pod's first address of the family. Upstream: `podToEndpointAddressForService`.
fn address_of(service: &Service, pod: &Pod, family: Option<Family>) -> Option<EndpointAddress> {
    let own = || address::parse(&pod.status.pod_ip).map_or(Family::V4, Family::of);
    let family = family.unwrap_or_else(own);
    let mut ips = pod.status.pod_ips.iter().filter_map(|ip| address::parse(&ip.ip));
    let ip = ips.find(|ip| Family::of(*ip) == family)?;
    Some(EndpointAddress {
        ip: ip.to_string().into(),
        hostname: pod::hostname(pod, service).into(),
        node_name: pod.spec.node_name.clone(),
        target_ref: Some(pod::reference(pod)),
    })
}

/// Returns the Service's labels and those of the Endpoints.
fn labels(service: &Service) -> StrMap {
    let own = service.meta.labels.iter().filter(|(key, _)| *key != HEADLESS);
    let headless = (!address::has_cluster_ip(service)).then_some((HEADLESS, ""));
    own.chain(headless).chain([(MANAGED_BY, MANAGER)]).collect()
}

/// Whether the Endpoints are up to date. Reordered subsets count as equal. The label of headless Services is not
/// compared, because a Service does not change this. Upstream: `semanticIgnoreResourceVersion`.
fn is_so(
    endpoints: &Endpoints,
    subsets: &[EndpointSubset],
    is_cut: bool,
    service: &Service,
) -> bool {
    let says = endpoints.meta.annotations.get(OVER_CAPACITY);
    is_own(endpoints)
        && says == is_cut.then_some(TRUNCATED)
        && plain(&endpoints.meta.labels).eq(plain(&service.meta.labels))
        && (canonical::same(&endpoints.subsets, subsets)
            || canonical::same(&canonical::repack(&endpoints.subsets), subsets))
}

fn plain(labels: &StrMap) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().filter(|(key, _)| ![HEADLESS, MANAGED_BY].contains(key))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<M> {
    api_version: &'static str,
    kind: &'static str,
    metadata: M,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    subsets: Box<[EndpointSubset]>,
}

impl<M> Body<M> {
    fn new(metadata: M, subsets: Box<[EndpointSubset]>) -> Self {
        Self { api_version: "v1", kind: "Endpoints", metadata, subsets }
    }
}

/// Sets the annotations about the trigger time and the capacity.
fn annotations(present: &StrMap, observed: &Observed, is_cut: bool) -> StrMap {
    let trigger =
        observed.times.as_ref().and_then(|times| times.trigger(observed.before.as_deref()));
    let kept = annotated(present, trigger);
    let others = kept.iter().filter(|(key, _)| *key != OVER_CAPACITY);
    others.chain(is_cut.then_some((OVER_CAPACITY, TRUNCATED))).collect()
}

fn make(
    observed: &Observed,
    labels: &StrMap,
    subsets: Box<[EndpointSubset]>,
    is_cut: bool,
) -> Create {
    let (Key { namespace, name }, kind) = (&observed.key, Endpoints::kind());
    let annotations = annotations(&StrMap::default(), observed, is_cut);
    let metadata = Fresh {
        name,
        generate_name: "",
        namespace,
        labels,
        annotations: &annotations,
        owner_references: &[],
    };
    let message = format!("Failed to create endpoint for service {namespace}/{name}: {{error}}");
    let about = Target::new(kind.clone(), namespace, name, "");
    Create {
        failed: Some(Note::warning(about, "FailedToCreateEndpoint", message)),
        ..Create::new(kind, namespace, wire::json(&Body::new(metadata, subsets)))
    }
}

fn change(
    endpoints: &Endpoints,
    observed: &Observed,
    labels: &StrMap,
    subsets: Box<[EndpointSubset]>,
    is_cut: bool,
) -> Update {
    let annotations = annotations(&endpoints.meta.annotations, observed, is_cut);
    let metadata = Kept { labels, ..Kept::with_annotations(&endpoints.meta, &annotations) };
    let message = format!("Failed to update endpoint {}: {{error}}", observed.key);
    let about = wire::target(endpoints);
    Update {
        failed: Some(Note::warning(about.clone(), "FailedToUpdateEndpoint", message)),
        ..Update::new(about, wire::json(&Body::new(metadata, subsets)))
    }
}

/// Describes the Service for `evenkeel explain`.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    let Some(service) = &observed.service else {
        description.fact("the Service", "gone");
        return description;
    };
    let subsets = subsets(service, &observed.pods);
    let ready: usize = subsets.iter().map(|subset| subset.addresses.len()).sum();
    let unready: usize = subsets.iter().map(|subset| subset.not_ready_addresses.len()).sum();
    description.fact("selects", words::count(words::signed(observed.pods.len()), "pod"));
    description.fact("addresses", format!("{ready} ready, {unready} not"));
    if let Some(endpoints) = &observed.endpoints {
        description.child(&wire::target(&**endpoints));
    }
    description
}
