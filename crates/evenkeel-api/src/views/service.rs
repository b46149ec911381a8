//! Services.

use crate::Meta;
use crate::StrMap;
use crate::decode::{message, view};
use crate::int_or_string::IntOrString;
use crate::text::Text;

message! {
    /// Service, with the fields that endpoints and address controllers read.
    pub struct Service("k8s.io.api.core.v1.Service") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: ServiceSpec = 2 "spec",
        /// Observed state of the object.
        status: ServiceStatus = 3 "status",
    }
}

view!(Service, "", "v1", "Service", "services", true);

message! {
    /// Desired state of a Service.
    pub struct ServiceSpec("k8s.io.api.core.v1.ServiceSpec") {
        /// Ports.
        ports: Box<[ServicePort]> = 1 "ports",
        /// Which pods; empty when somebody else writes the endpoints.
        selector: StrMap = 2 "selector",
        /// Its address, `None` for a headless one.
        cluster_ip: Text = 3 "clusterIP",
        /// Its addresses, one for each family.
        cluster_ips: Box<[Text]> = 18 "clusterIPs",
        /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
        type_: Text = 4 "type",
        /// Addresses outside the cluster that lead to it by somebody else's doing.
        external_ips: Box<[Text]> = 5 "externalIPs",
        /// `None` or `ClientIP`.
        session_affinity: Text = 7 "sessionAffinity",
        /// How long a caller stays with one pod.
        session_affinity_config: SessionAffinityConfig = 14 "sessionAffinityConfig",
        /// Address that its load balancer should have.
        load_balancer_ip: Text = 8 "loadBalancerIP",
        /// Ranges of callers that its load balancer lets through; empty for all.
        load_balancer_source_ranges: Box<[Text]> = 9 "loadBalancerSourceRanges",
        /// Class of the load balancer's implementation; empty for that of the cluster's cloud.
        load_balancer_class: Text = 21 "loadBalancerClass",
        /// Whether node ports are allocated for a Service of type `LoadBalancer`; true where absent.
        allocate_load_balancer_node_ports: Option<bool> = 20 "allocateLoadBalancerNodePorts",
        /// `Cluster` or `Local`.
        external_traffic_policy: Text = 11 "externalTrafficPolicy",
        /// Port of every node that tells whether pods are on it; 0 for none.
        health_check_node_port: i32 = 12 "healthCheckNodePort",
        /// Where it points by DNS.
        external_name: Text = 10 "externalName",
        /// Whether pods count before they are ready.
        publish_not_ready_addresses: bool = 13 "publishNotReadyAddresses",
        /// `IPv4`, `IPv6`.
        ip_families: Box<[Text]> = 19 "ipFamilies",
        /// How many families.
        ip_family_policy: Text = 17 "ipFamilyPolicy",
        /// `Cluster` or `Local`.
        internal_traffic_policy: Text = 22 "internalTrafficPolicy",
        /// Which endpoints are preferred.
        traffic_distribution: Text = 23 "trafficDistribution",
    }
}

message! {
    /// Port of a Service, and the target port of its pods.
    pub struct ServicePort("k8s.io.api.core.v1.ServicePort") {
        /// Name.
        name: Text = 1 "name",
        /// `TCP` (also when empty), `UDP` or `SCTP`.
        protocol: Text = 2 "protocol",
        /// Application protocol of the port.
        app_protocol: Text = 6 "appProtocol",
        /// Port of the service.
        port: i32 = 3 "port",
        /// Port of the pods, by number or name.
        target_port: IntOrString = 4 "targetPort",
        /// Port of every node, 0 for none.
        node_port: i32 = 5 "nodePort",
    }
}

message! {
    /// How long a caller stays with one pod.
    pub struct SessionAffinityConfig("k8s.io.api.core.v1.SessionAffinityConfig") {
        /// By the caller's address.
        client_ip: ClientIpConfig = 1 "clientIP",
    }
}

message! {
    /// How long a caller's address stays with one pod.
    pub struct ClientIpConfig("k8s.io.api.core.v1.ClientIPConfig") {
        /// Seconds; 0 when not set.
        timeout_seconds: i32 = 1 "timeoutSeconds",
    }
}

message! {
    /// Observed state of a Service.
    pub struct ServiceStatus("k8s.io.api.core.v1.ServiceStatus") {
        /// Its load balancer.
        load_balancer: LoadBalancerStatus = 1 "loadBalancer",
    }
}

message! {
    /// A load balancer as its callers see it.
    pub struct LoadBalancerStatus("k8s.io.api.core.v1.LoadBalancerStatus") {
        /// Where it is reached.
        ingress: Box<[LoadBalancerIngress]> = 1 "ingress",
    }
}

message! {
    /// One place where a load balancer is reached.
    pub struct LoadBalancerIngress("k8s.io.api.core.v1.LoadBalancerIngress") {
        /// Address; empty for one that is reached by name.
        ip: Text = 1 "ip",
        /// Name; empty for one that is reached by address.
        hostname: Text = 2 "hostname",
        /// `VIP` (also when empty) or `Proxy`: whether packets arrive with the address as their destination.
        ip_mode: Text = 3 "ipMode",
        /// How each port is.
        ports: Box<[PortStatus]> = 4 "ports",
    }
}

message! {
    /// How one port of a load balancer is.
    pub struct PortStatus("k8s.io.api.core.v1.PortStatus") {
        /// The port.
        port: i32 = 1 "port",
        /// `TCP`, `UDP` or `SCTP`.
        protocol: Text = 2 "protocol",
        /// CamelCase reason of the problem; empty where there is none.
        error: Text = 3 "error",
    }
}
