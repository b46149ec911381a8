//! Desired endpoints of a Service in one IP family, grouped by ports. Upstream: `reconcileByAddressType`.

use super::super::{
    address::{self, Family},
    order, pod,
};
use crate::pods;
use evenkeel_api::{
    Text,
    views::{Endpoint, EndpointConditions, Node, Pod, Service, SlicePort},
};
use std::sync::Arc;

/// A pod and its node.
#[derive(Debug)]
pub(super) struct PlacedPod {
    pub(super) pod: Arc<Pod>,
    /// The node, if it exists.
    pub(super) node: Option<Arc<Node>>,
}

/// Endpoints that have equal ports. Upstream: `desiredEndpointsByPortMap`.
#[derive(Debug, Default)]
pub(super) struct PortGroup {
    pub(super) ports: Vec<SlicePort>,
    pub(super) endpoints: Vec<Endpoint>,
}

/// Returns the endpoints of a family, grouped by ports. Omits a pod whose node does not exist, unless the Service
/// sets `publishNotReadyAddresses`. A pod without an address of the family still creates its group.
pub(super) fn group_by_ports(
    service: &Service,
    pods: &[PlacedPod],
    family: Family,
) -> Vec<PortGroup> {
    let mut groups: Vec<PortGroup> = Vec::new();
    for PlacedPod { pod, node } in pods {
        if !pod::belongs_in_endpoints(pod) {
            continue;
        }
        let ports = ports(service, pod);
        let index = groups.iter().position(|group| group.ports == ports).unwrap_or_else(|| {
            groups.push(PortGroup { ports, endpoints: Vec::new() });
            groups.len() - 1
        });
        if node.is_some() || service.spec.publish_not_ready_addresses {
            groups[index].endpoints.extend(endpoint(service, pod, node.as_deref(), family));
        }
    }
    groups
}

/// Returns the error about pods that are omitted because their node does not exist, or `None` if no pod is.
pub(super) fn missing_nodes_error(service: &Service, pods: &[PlacedPod]) -> Option<String> {
    if service.spec.publish_not_ready_addresses {
        return None;
    }
    let omitted = pods
        .iter()
        .filter(|placed| placed.node.is_none() && pod::belongs_in_endpoints(&placed.pod));
    let errors: Vec<String> = omitted
        .map(|PlacedPod { pod, .. }| {
            let service = &service.meta;
            let node = &pod.spec.node_name;
            format!(
                "skipping Pod {} for Service {}/{}: Node {node} Not Found",
                pod.meta.name, service.namespace, service.name
            )
        })
        .collect();
    match &errors[..] {
        [] => None,
        [error] => Some(error.clone()),
        errors => Some(format!("[{}]", errors.join(", "))),
    }
}

/// Returns the pod's ports for the Service, sorted. A pod with none of the Service's ports becomes an endpoint
/// without ports. Upstream: `getEndpointPorts`.
fn ports(service: &Service, pod: &Pod) -> Vec<SlicePort> {
    let slice_port = |port: &evenkeel_api::views::ServicePort| {
        Some(SlicePort {
            name: port.name.clone(),
            protocol: pod::protocol_or_tcp(&port.protocol).into(),
            port: Some(pod::find_port(pod, port)?),
            app_protocol: port.app_protocol.clone(),
        })
    };
    let mut ports: Vec<SlicePort> = service.spec.ports.iter().filter_map(slice_port).collect();
    order::sort_slice_ports(&mut ports);
    ports
}

/// Returns the endpoint of a pod, or `None` if the pod has no address of the family. A terminating pod is not ready,
/// unless the Service sets `publishNotReadyAddresses`. Upstream: `podToEndpoint`.
fn endpoint(service: &Service, pod: &Pod, node: Option<&Node>, family: Family) -> Option<Endpoint> {
    let ips = pod.status.pod_ips.iter().filter_map(|ip| address::parse(&ip.ip));
    let mut addresses: Vec<Text> =
        ips.filter(|ip| Family::of(*ip) == family).map(|ip| ip.to_string().into()).collect();
    if addresses.is_empty() {
        return None;
    }
    addresses.sort_unstable();
    let serving = pods::is_ready(pod);
    let terminating = pod.meta.deleting();
    let ready = service.spec.publish_not_ready_addresses || (serving && !terminating);
    let zone = node.and_then(|node| node.meta.labels.get(super::ZONE_LABEL)).unwrap_or_default();
    Some(Endpoint {
        addresses: addresses.into(),
        conditions: EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        },
        hostname: pod::hostname(pod, service).into(),
        target_ref: Some(pod::reference(pod)),
        node_name: pod.spec.node_name.clone(),
        zone: zone.into(),
        hints: None,
    })
}
