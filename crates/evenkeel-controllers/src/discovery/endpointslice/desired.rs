//! Which endpoints a Service should have in one family, by the ports that they offer.

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

/// A pod, and its node if that is there.
pub(super) type Placed = (Arc<Pod>, Option<Arc<Node>>);

/// Endpoints with the same ports.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) ports: Vec<SlicePort>,
    pub(super) endpoints: Vec<Endpoint>,
}

/// The endpoints of a family, in groups. A pod whose node is not there is left out, unless the Service publishes what is not
/// ready; a pod without an address of the family makes a group all the same.
pub(super) fn groups(service: &Service, pods: &[Placed], family: Family) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (pod, node) in pods.iter().filter(|(pod, _)| pod::belongs_in_endpoints(pod)) {
        let ports = ports(service, pod);
        let at = groups.iter().position(|group| group.ports == ports).unwrap_or_else(|| {
            groups.push(Group { ports, endpoints: Vec::new() });
            groups.len() - 1
        });
        if node.is_some() || service.spec.publish_not_ready_addresses {
            groups[at].endpoints.extend(endpoint(service, pod, node.as_deref(), family));
        }
    }
    groups
}

/// Pods that are left out because their node is not there, in words.
pub(super) fn missing(service: &Service, pods: &[Placed]) -> Option<String> {
    let lost = pods.iter().filter(|(pod, node)| node.is_none() && pod::belongs_in_endpoints(pod));
    let published = service.spec.publish_not_ready_addresses;
    let texts: Vec<String> = lost
        .filter(|_| !published)
        .map(|(pod, _)| {
            let (service, node) = (&service.meta, &pod.spec.node_name);
            format!(
                "skipping Pod {} for Service {}/{}: Node {node} Not Found",
                pod.meta.name, service.namespace, service.name
            )
        })
        .collect();
    match &texts[..] {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

/// The pod's ports for the Service, in order. A pod that has none of them is an endpoint without ports.
fn ports(service: &Service, pod: &Pod) -> Vec<SlicePort> {
    let of = |port: &evenkeel_api::views::ServicePort| {
        Some(SlicePort {
            name: port.name.clone(),
            protocol: pod::protocol(&port.protocol).into(),
            port: Some(pod::port(pod, port)?),
            app_protocol: port.app_protocol.clone(),
        })
    };
    let mut ports: Vec<SlicePort> = service.spec.ports.iter().filter_map(of).collect();
    order::slice_ports(&mut ports);
    ports
}

/// The pod as an endpoint. It is never ready while it is on its way out, unless the Service says that it does not care.
fn endpoint(service: &Service, pod: &Pod, node: Option<&Node>, family: Family) -> Option<Endpoint> {
    let ips = pod.status.pod_ips.iter().filter_map(|ip| address::parse(&ip.ip));
    let mut addresses: Vec<Text> =
        ips.filter(|ip| Family::of(*ip) == family).map(|ip| ip.to_string().into()).collect();
    if addresses.is_empty() {
        return None;
    }
    addresses.sort_unstable();
    let (serving, terminating) = (pods::is_ready(pod), pod.meta.deleting());
    let ready = service.spec.publish_not_ready_addresses || (serving && !terminating);
    let zone = node.and_then(|node| node.meta.labels.get(super::ZONE)).unwrap_or_default();
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
