//! Desired Endpoints of a Service. Upstream: `syncService` in `endpoints_controller.go`.

use super::{
    super::{
        address::{self, Family},
        canonical::{self, EndpointCandidate},
        pod,
        selected::selects_pods,
        slice::HEADLESS_LABEL,
        trigger::{TriggerTimes, with_trigger_time},
    },
    capacity::{self, OVER_CAPACITY_ANNOTATION, TRUNCATED},
};
use crate::{
    pods,
    wire::{self, NewMetadata, PreservedMetadata},
    words,
};
use evenkeel_api::{
    StrMap, View,
    views::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service},
};
use evenkeel_runtime::{
    introspect::Description,
    plan::{Create, Delete, EventRecord, Key, Plan, Target, Update},
};
use serde::Serialize;
use std::sync::Arc;

/// Label that names the managing controller. Upstream: `LabelManagedBy`.
const MANAGED_BY_LABEL: &str = "endpoints.kubernetes.io/managed-by";
/// Value of the label for this controller.
const MANAGED_BY: &str = "endpoint-controller";
/// Annotation of Endpoints that are a leader election lock. Upstream: `LeaderElectionRecordAnnotationKey`.
const LEADER_ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";

/// Observed state of a Service and its Endpoints.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) key: Key,
    /// The Service. `None` if it was deleted.
    pub(super) service: Option<Arc<Service>>,
    /// The selected pods.
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) endpoints: Option<Arc<Endpoints>>,
    /// Trigger times of the current Service and pods, for the annotation `last-change-trigger-time`.
    pub(super) trigger_times: Option<Arc<TriggerTimes>>,
    /// Trigger times that the last successful reconciliation observed.
    pub(super) previous_trigger_times: Option<Arc<TriggerTimes>>,
}

/// Returns whether the Endpoints are a leader election lock, which has no Service.
pub(in crate::discovery) fn is_leader_election_lock(endpoints: &Endpoints) -> bool {
    endpoints.meta.annotations.contains(LEADER_ANNOTATION)
}

/// Returns whether this controller manages the Endpoints.
pub(super) fn is_managed(endpoints: &Endpoints) -> bool {
    endpoints.meta.labels.get(MANAGED_BY_LABEL) == Some(MANAGED_BY)
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
    let mut subsets = desired_subsets(service, &observed.pods);
    let is_truncated = capacity::truncate(&mut subsets);
    let labels = labels(service);
    match &observed.endpoints {
        Some(endpoints) if is_up_to_date(endpoints, &subsets, is_truncated, service) => {}
        Some(endpoints) => {
            plan.push(update_endpoints(endpoints, observed, &labels, subsets, is_truncated));
        }
        None => plan.push(create_endpoints(observed, &labels, subsets, is_truncated)),
    }
    plan
}

/// Returns the canonical subsets of the selected pods.
fn desired_subsets(service: &Service, pods: &[Arc<Pod>]) -> Box<[EndpointSubset]> {
    let family = address::first_family(service);
    // There are few distinct port lists, so a linear search is fast enough.
    let mut port_lists: Vec<Vec<EndpointPort>> = Vec::new();
    let mut addresses = Vec::with_capacity(pods.len());
    for pod in pods.iter().filter(|pod| is_published(service, pod)) {
        let Some(ports) = endpoint_ports(service, pod) else { continue };
        let Some(address) = address_of(service, pod, family) else { continue };
        let ports_index = port_lists.iter().position(|list| *list == ports).unwrap_or_else(|| {
            port_lists.push(ports);
            port_lists.len() - 1
        });
        let ready = service.spec.publish_not_ready_addresses || pods::is_ready(pod);
        addresses.push((address, ready, ports_index));
    }
    let candidate = |(address, ready, ports_index): (_, _, usize)| EndpointCandidate {
        address,
        ready,
        ports: &port_lists[ports_index],
    };
    canonical::build_subsets(addresses.into_iter().map(candidate).collect())
}

/// Returns whether the pod is published. A terminating pod is only published if the Service sets
/// `publishNotReadyAddresses`.
fn is_published(service: &Service, pod: &Pod) -> bool {
    pod::belongs_in_endpoints(pod)
        && (service.spec.publish_not_ready_addresses || !pod.meta.deleting())
}

/// Returns the pod's ports for the Service, or `None` if the pod has none of them. Only a headless Service may have
/// no ports.
fn endpoint_ports(service: &Service, pod: &Pod) -> Option<Vec<EndpointPort>> {
    if service.spec.ports.is_empty() {
        return (&*service.spec.cluster_ip == "None").then(Vec::new);
    }
    let endpoint_port = |port: &evenkeel_api::views::ServicePort| {
        Some(EndpointPort {
            name: port.name.clone(),
            port: pod::find_port(pod, port)?,
            protocol: pod::protocol_or_tcp(&port.protocol).into(),
            app_protocol: port.app_protocol.clone(),
        })
    };
    let ports: Vec<EndpointPort> = service.spec.ports.iter().filter_map(endpoint_port).collect();
    Some(ports).filter(|ports| !ports.is_empty())
}

/// Returns the pod's first address of the family. `None` means the family of the `podIP`. Upstream:
/// `podToEndpointAddressForService`.
fn address_of(service: &Service, pod: &Pod, family: Option<Family>) -> Option<EndpointAddress> {
    let pod_ip_family = || address::parse(&pod.status.pod_ip).map_or(Family::V4, Family::of);
    let family = family.unwrap_or_else(pod_ip_family);
    let mut ips = pod.status.pod_ips.iter().filter_map(|ip| address::parse(&ip.ip));
    let ip = ips.find(|ip| Family::of(*ip) == family)?;
    Some(EndpointAddress {
        ip: ip.to_string().into(),
        hostname: pod::hostname(pod, service).into(),
        node_name: pod.spec.node_name.clone(),
        target_ref: Some(pod::reference(pod)),
    })
}

/// Returns the labels of the Endpoints: the Service's labels, the managed-by label, and the headless label for a
/// headless Service.
fn labels(service: &Service) -> StrMap {
    let service_labels = service.meta.labels.iter().filter(|(key, _)| *key != HEADLESS_LABEL);
    let headless = (!address::has_cluster_ip(service)).then_some((HEADLESS_LABEL, ""));
    service_labels.chain(headless).chain([(MANAGED_BY_LABEL, MANAGED_BY)]).collect()
}

/// Returns whether the Endpoints are up to date. As upstream, neither the order of subsets nor the headless label
/// matters. Upstream: `semanticIgnoreResourceVersion`.
fn is_up_to_date(
    endpoints: &Endpoints,
    subsets: &[EndpointSubset],
    is_truncated: bool,
    service: &Service,
) -> bool {
    let over_capacity = endpoints.meta.annotations.get(OVER_CAPACITY_ANNOTATION);
    is_managed(endpoints)
        && over_capacity == is_truncated.then_some(TRUNCATED)
        && without_controller_labels(&endpoints.meta.labels)
            .eq(without_controller_labels(&service.meta.labels))
        // Repacking is costly, and seldom needed: this controller writes the canonical form.
        && (canonical::equal_ignore_resource_version(&endpoints.subsets, subsets)
            || canonical::equal_ignore_resource_version(
                &canonical::repack_subsets(&endpoints.subsets),
                subsets,
            ))
}

/// Returns the labels without those that the controller sets.
fn without_controller_labels(labels: &StrMap) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().filter(|(key, _)| ![HEADLESS_LABEL, MANAGED_BY_LABEL].contains(key))
}

/// Serialized form of Endpoints.
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

/// Returns the existing annotations with the current trigger time and over-capacity annotation.
fn annotations(existing: &StrMap, observed: &Observed, is_truncated: bool) -> StrMap {
    let trigger_time = observed
        .trigger_times
        .as_ref()
        .and_then(|times| times.trigger_time(observed.previous_trigger_times.as_deref()));
    let annotations = with_trigger_time(existing, trigger_time);
    let others = annotations.iter().filter(|(key, _)| *key != OVER_CAPACITY_ANNOTATION);
    others.chain(is_truncated.then_some((OVER_CAPACITY_ANNOTATION, TRUNCATED))).collect()
}

/// Returns the creation of the Endpoints.
fn create_endpoints(
    observed: &Observed,
    labels: &StrMap,
    subsets: Box<[EndpointSubset]>,
    is_truncated: bool,
) -> Create {
    let (Key { namespace, name }, kind) = (&observed.key, Endpoints::kind());
    let annotations = annotations(&StrMap::default(), observed, is_truncated);
    let metadata = NewMetadata {
        name,
        generate_name: "",
        namespace,
        labels,
        annotations: &annotations,
        owner_references: &[],
    };
    let message = format!("Failed to create endpoint for service {namespace}/{name}: {{error}}");
    let target = Target::new(kind.clone(), namespace, name, "");
    Create {
        failed: Some(EventRecord::warning(target, "FailedToCreateEndpoint", message)),
        ..Create::new(kind, namespace, wire::json(&Body::new(metadata, subsets)))
    }
}

fn update_endpoints(
    endpoints: &Endpoints,
    observed: &Observed,
    labels: &StrMap,
    subsets: Box<[EndpointSubset]>,
    is_truncated: bool,
) -> Update {
    let annotations = annotations(&endpoints.meta.annotations, observed, is_truncated);
    let metadata = PreservedMetadata {
        labels,
        ..PreservedMetadata::with_annotations(&endpoints.meta, &annotations)
    };
    let message = format!("Failed to update endpoint {}: {{error}}", observed.key);
    let target = wire::target(endpoints);
    Update {
        failed: Some(EventRecord::warning(target.clone(), "FailedToUpdateEndpoint", message)),
        ..Update::new(target, wire::json(&Body::new(metadata, subsets)))
    }
}

/// Describes the Service for `evenkeel explain`.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    let Some(service) = &observed.service else {
        description.fact("the Service", "deleted");
        return description;
    };
    let subsets = desired_subsets(service, &observed.pods);
    let ready: usize = subsets.iter().map(|subset| subset.addresses.len()).sum();
    let unready: usize = subsets.iter().map(|subset| subset.not_ready_addresses.len()).sum();
    description.fact("selects", words::count(words::signed(observed.pods.len()), "pod"));
    description.fact("addresses", format!("{ready} ready, {unready} not"));
    if let Some(endpoints) = &observed.endpoints {
        description.child(&wire::target(&**endpoints));
    }
    description
}
