//! Endpoints: the older record of which addresses a service has.

use super::config::ObjectReference;
use crate::Meta;
use crate::decode::{message, view};
use crate::text::Text;
use serde::Serialize;

message! {
    /// The addresses of a service.
    pub struct Endpoints("k8s.io.api.core.v1.Endpoints") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// The addresses, by which ports they have.
        subsets: Box<[EndpointSubset]> = 2 "subsets",
    }
}

view!(Endpoints, "", "v1", "Endpoints", "endpoints", true);

message! {
    /// Addresses with the same ports.
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct EndpointSubset("k8s.io.api.core.v1.EndpointSubset") {
        /// Those that are ready.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        addresses: Box<[EndpointAddress]> = 1 "addresses",
        /// Those that are not.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        not_ready_addresses: Box<[EndpointAddress]> = 2 "notReadyAddresses",
        /// Their ports.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        ports: Box<[EndpointPort]> = 3 "ports",
    }
}

message! {
    /// IP address of an Endpoints subset, with its pod and node.
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct EndpointAddress("k8s.io.api.core.v1.EndpointAddress") {
        /// The address.
        ip: Text = 1 "ip",
        /// Its name within the service's domain.
        #[serde(skip_serializing_if = "str::is_empty")]
        hostname: Text = 3 "hostname",
        /// The node it is on.
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
        /// Its name in the service.
        #[serde(skip_serializing_if = "str::is_empty")]
        name: Text = 1 "name",
        /// Its number.
        port: i32 = 2 "port",
        /// `TCP`, `UDP` or `SCTP`.
        #[serde(skip_serializing_if = "str::is_empty")]
        protocol: Text = 3 "protocol",
        /// Application protocol of the port.
        #[serde(skip_serializing_if = "str::is_empty")]
        app_protocol: Text = 4 "appProtocol",
    }
}
