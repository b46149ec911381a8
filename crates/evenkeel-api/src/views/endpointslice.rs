//! EndpointSlices: which addresses a service has, in pieces.

use super::config::ObjectReference;
use crate::Meta;
use crate::decode::{message, view};
use crate::text::Text;
use serde::Serialize;

message! {
    /// Some of the addresses of a service.
    pub struct EndpointSlice("k8s.io.api.discovery.v1.EndpointSlice") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// The addresses.
        endpoints: Box<[Endpoint]> = 2 "endpoints",
        /// Ports of all of them.
        ports: Box<[SlicePort]> = 3 "ports",
        /// `IPv4`, `IPv6` or `FQDN`.
        address_type: Text = 4 "addressType",
    }
}

view!(EndpointSlice, "discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true);

message! {
    /// Something that answers.
    #[derive(Serialize, Hash)]
    #[serde(rename_all = "camelCase")]
    pub struct Endpoint("k8s.io.api.discovery.v1.Endpoint") {
        /// Its addresses.
        addresses: Box<[Text]> = 1 "addresses",
        /// How it is.
        conditions: EndpointConditions = 2 "conditions",
        /// Its name within the service's domain.
        #[serde(skip_serializing_if = "str::is_empty")]
        hostname: Text = 3 "hostname",
        /// Object behind the endpoint, such as a pod.
        #[serde(skip_serializing_if = "Option::is_none")]
        target_ref: Option<Box<ObjectReference>> = 4 "targetRef",
        /// The node it is on.
        #[serde(skip_serializing_if = "str::is_empty")]
        node_name: Text = 6 "nodeName",
        /// The zone it is in.
        #[serde(skip_serializing_if = "str::is_empty")]
        zone: Text = 7 "zone",
        /// Topology hints: clients that should use the endpoint.
        #[serde(skip_serializing_if = "Option::is_none")]
        hints: Option<EndpointHints> = 8 "hints",
    }
}

message! {
    /// Conditions of an endpoint; an absent one is unknown.
    #[derive(Serialize, Hash, Copy)]
    #[serde(rename_all = "camelCase")]
    pub struct EndpointConditions("k8s.io.api.discovery.v1.EndpointConditions") {
        /// It should be used.
        #[serde(skip_serializing_if = "Option::is_none")]
        ready: Option<bool> = 1 "ready",
        /// It answers, be it on its way out or not.
        #[serde(skip_serializing_if = "Option::is_none")]
        serving: Option<bool> = 2 "serving",
        /// It is on its way out.
        #[serde(skip_serializing_if = "Option::is_none")]
        terminating: Option<bool> = 3 "terminating",
    }
}

message! {
    /// Topology hints of an endpoint.
    #[derive(Serialize, Hash)]
    #[serde(rename_all = "camelCase")]
    pub struct EndpointHints("k8s.io.api.discovery.v1.EndpointHints") {
        /// Callers in these zones.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        for_zones: Box<[ForZone]> = 1 "forZones",
        /// Callers on these nodes.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        for_nodes: Box<[ForNode]> = 2 "forNodes",
    }
}

message! {
    /// Zone whose clients should use an endpoint (topology-aware routing).
    #[derive(Serialize, Hash)]
    pub struct ForZone("k8s.io.api.discovery.v1.ForZone") {
        /// Its name.
        name: Text = 1 "name",
    }
}

message! {
    /// Node whose clients should use an endpoint (topology-aware routing).
    #[derive(Serialize, Hash)]
    pub struct ForNode("k8s.io.api.discovery.v1.ForNode") {
        /// Its name.
        name: Text = 1 "name",
    }
}

message! {
    /// A port of a slice.
    #[derive(Serialize, Hash)]
    #[serde(rename_all = "camelCase")]
    pub struct SlicePort("k8s.io.api.discovery.v1.EndpointPort") {
        /// Its name in the service.
        name: Text = 1 "name",
        /// `TCP`, `UDP` or `SCTP`.
        protocol: Text = 2 "protocol",
        /// Its number; none for all.
        #[serde(skip_serializing_if = "Option::is_none")]
        port: Option<i32> = 3 "port",
        /// Application protocol of the port.
        #[serde(skip_serializing_if = "str::is_empty")]
        app_protocol: Text = 4 "appProtocol",
    }
}
