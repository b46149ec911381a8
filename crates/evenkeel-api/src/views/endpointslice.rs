//! EndpointSlices, each with a part of a Service's endpoints.

use super::config::ObjectReference;
use crate::Meta;
use crate::decode::{message, view};
use crate::text::Text;
use serde::Serialize;

message! {
    /// Part of the endpoints of a Service (`discovery.k8s.io/v1`).
    pub struct EndpointSlice("k8s.io.api.discovery.v1.EndpointSlice") {
        /// Metadata; the label `kubernetes.io/service-name` names the Service.
        meta: Meta = 1 "metadata",
        /// Endpoints of the slice, at most 1000.
        endpoints: Box<[Endpoint]> = 2 "endpoints",
        /// Ports that every endpoint of the slice serves.
        ports: Box<[SlicePort]> = 3 "ports",
        /// `IPv4`, `IPv6` or `FQDN`.
        address_type: Text = 4 "addressType",
    }
}

view!(EndpointSlice, "discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", namespaced);

message! {
    /// Backend of a Service, such as a pod, with its addresses.
    #[derive(Serialize, Hash)]
    #[serde(rename_all = "camelCase")]
    pub struct Endpoint("k8s.io.api.discovery.v1.Endpoint") {
        /// Addresses of the endpoint, of the slice's address type. Only the first has a defined meaning.
        addresses: Box<[Text]> = 1 "addresses",
        /// Whether the endpoint is ready, serving or terminating.
        conditions: EndpointConditions = 2 "conditions",
        /// DNS label of the endpoint within the Service's domain; empty for none.
        #[serde(skip_serializing_if = "str::is_empty")]
        hostname: Text = 3 "hostname",
        /// Object behind the endpoint, such as a pod.
        #[serde(skip_serializing_if = "Option::is_none")]
        target_ref: Option<Box<ObjectReference>> = 4 "targetRef",
        /// Node that hosts the endpoint; empty if unknown.
        #[serde(skip_serializing_if = "str::is_empty")]
        node_name: Text = 6 "nodeName",
        /// Zone of that node; empty if unknown.
        #[serde(skip_serializing_if = "str::is_empty")]
        zone: Text = 7 "zone",
        /// Topology hints, which select the clients that should use the endpoint.
        #[serde(skip_serializing_if = "Option::is_none")]
        hints: Option<EndpointHints> = 8 "hints",
    }
}

message! {
    /// Conditions of an endpoint; absent ones are unknown.
    #[derive(Serialize, Hash, Copy)]
    #[serde(rename_all = "camelCase")]
    pub struct EndpointConditions("k8s.io.api.discovery.v1.EndpointConditions") {
        /// Whether the endpoint accepts new connections: it is serving and not terminating.
        #[serde(skip_serializing_if = "Option::is_none")]
        ready: Option<bool> = 1 "ready",
        /// Whether the endpoint is ready, even while it is terminating.
        #[serde(skip_serializing_if = "Option::is_none")]
        serving: Option<bool> = 2 "serving",
        /// Whether the endpoint is terminating.
        #[serde(skip_serializing_if = "Option::is_none")]
        terminating: Option<bool> = 3 "terminating",
    }
}

message! {
    /// Topology hints of an endpoint.
    #[derive(Serialize, Hash)]
    #[serde(rename_all = "camelCase")]
    pub struct EndpointHints("k8s.io.api.discovery.v1.EndpointHints") {
        /// Zones whose clients should use the endpoint.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        for_zones: Box<[ForZone]> = 1 "forZones",
        /// Nodes whose clients should use the endpoint.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        for_nodes: Box<[ForNode]> = 2 "forNodes",
    }
}

message! {
    /// Zone whose clients should use an endpoint (topology-aware routing).
    #[derive(Serialize, Hash)]
    pub struct ForZone("k8s.io.api.discovery.v1.ForZone") {
        /// Zone, as in the node label `topology.kubernetes.io/zone`.
        name: Text = 1 "name",
    }
}

message! {
    /// Node whose clients should use an endpoint (topology-aware routing).
    #[derive(Serialize, Hash)]
    pub struct ForNode("k8s.io.api.discovery.v1.ForNode") {
        /// Name of the node.
        name: Text = 1 "name",
    }
}

message! {
    /// Port that every endpoint of a slice serves.
    #[derive(Serialize, Hash)]
    #[serde(rename_all = "camelCase")]
    pub struct SlicePort("k8s.io.api.discovery.v1.EndpointPort") {
        /// Name of the Service's port; empty only when there is one port.
        name: Text = 1 "name",
        /// `TCP`, `UDP` or `SCTP`.
        protocol: Text = 2 "protocol",
        /// Port number; absent for all ports.
        #[serde(skip_serializing_if = "Option::is_none")]
        port: Option<i32> = 3 "port",
        /// Application protocol of the port.
        #[serde(skip_serializing_if = "str::is_empty")]
        app_protocol: Text = 4 "appProtocol",
    }
}
