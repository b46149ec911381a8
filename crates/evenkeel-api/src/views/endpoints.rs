//! Endpoints, the predecessor of EndpointSlices.

use super::config::ObjectReference;
use crate::Meta;
use crate::decode::{message, view};
use crate::text::Text;
use serde::Serialize;

message! {
    /// Addresses that implement a Service (`v1`, deprecated in favor of EndpointSlices).
    pub struct Endpoints("k8s.io.api.core.v1.Endpoints") {
        /// Metadata. The Endpoints have the name of their Service.
        meta: Meta = 1 "metadata",
        /// Addresses, grouped by the ports that they serve.
        subsets: Box<[EndpointSubset]> = 2 "subsets",
    }
}

view!(Endpoints, "", "v1", "Endpoints", "endpoints", namespaced);

message! {
    /// Addresses with the same ports.
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct EndpointSubset("k8s.io.api.core.v1.EndpointSubset") {
        /// Addresses that are ready for connections.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        addresses: Box<[EndpointAddress]> = 1 "addresses",
        /// Addresses that are not ready: the pods are starting, failing their readiness probe, or terminating.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        not_ready_addresses: Box<[EndpointAddress]> = 2 "notReadyAddresses",
        /// Ports that all addresses of the subset serve.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        ports: Box<[EndpointPort]> = 3 "ports",
    }
}

message! {
    /// IP address of an Endpoints subset, with its pod and node.
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct EndpointAddress("k8s.io.api.core.v1.EndpointAddress") {
        /// IPv4 or IPv6 address; neither loopback nor link-local.
        ip: Text = 1 "ip",
        /// DNS label of the address within the Service's domain; empty for none.
        #[serde(skip_serializing_if = "str::is_empty")]
        hostname: Text = 3 "hostname",
        /// Node that hosts the endpoint; empty if unknown.
        #[serde(skip_serializing_if = "str::is_empty")]
        node_name: Text = 4 "nodeName",
        /// Object that has the address.
        #[serde(skip_serializing_if = "Option::is_none")]
        target_ref: Option<Box<ObjectReference>> = 2 "targetRef",
    }
}

message! {
    /// Port of an Endpoints subset.
    #[derive(Serialize, Hash)]
    #[serde(rename_all = "camelCase")]
    pub struct EndpointPort("k8s.io.api.core.v1.EndpointPort") {
        /// Name of the Service's port; empty only when there is one port.
        #[serde(skip_serializing_if = "str::is_empty")]
        name: Text = 1 "name",
        /// Port number, 1 to 65535.
        port: i32 = 2 "port",
        /// `TCP`, `UDP` or `SCTP`.
        #[serde(skip_serializing_if = "str::is_empty")]
        protocol: Text = 3 "protocol",
        /// Application protocol of the port.
        #[serde(skip_serializing_if = "str::is_empty")]
        app_protocol: Text = 4 "appProtocol",
    }
}
