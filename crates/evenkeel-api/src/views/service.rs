//! Services.

use crate::Meta;
use crate::StrMap;
use crate::decode::{message, view};
use crate::int_or_string::IntOrString;

message! {
    /// A service.
    pub struct Service("k8s.io.api.core.v1.Service") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// What should be.
        spec: ServiceSpec = 2 "spec",
    }
}

view!(Service, "", "v1", "Service", "services", true);

message! {
    /// What should be.
    pub struct ServiceSpec("k8s.io.api.core.v1.ServiceSpec") {
        /// Ports.
        ports: Box<[ServicePort]> = 1 "ports",
        /// Which pods; empty when somebody else writes the endpoints.
        selector: StrMap = 2 "selector",
        /// Its address, `None` for a headless one.
        cluster_ip: Box<str> = 3 "clusterIP",
        /// Its addresses, one for each family.
        cluster_ips: Box<[Box<str>]> = 18 "clusterIPs",
        /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
        type_: Box<str> = 4 "type",
        /// Where it points by DNS.
        external_name: Box<str> = 10 "externalName",
        /// Whether pods count before they are ready.
        publish_not_ready_addresses: bool = 13 "publishNotReadyAddresses",
        /// `IPv4`, `IPv6`.
        ip_families: Box<[Box<str>]> = 19 "ipFamilies",
        /// How many families.
        ip_family_policy: Box<str> = 17 "ipFamilyPolicy",
        /// `Cluster` or `Local`.
        internal_traffic_policy: Box<str> = 22 "internalTrafficPolicy",
        /// Which endpoints are preferred.
        traffic_distribution: Box<str> = 23 "trafficDistribution",
    }
}

message! {
    /// A port.
    pub struct ServicePort("k8s.io.api.core.v1.ServicePort") {
        /// Name.
        name: Box<str> = 1 "name",
        /// `TCP` (also when empty), `UDP` or `SCTP`.
        protocol: Box<str> = 2 "protocol",
        /// What is spoken over it.
        app_protocol: Box<str> = 6 "appProtocol",
        /// Port of the service.
        port: i32 = 3 "port",
        /// Port of the pods, by number or name.
        target_port: IntOrString = 4 "targetPort",
        /// Port of every node, 0 for none.
        node_port: i32 = 5 "nodePort",
    }
}
