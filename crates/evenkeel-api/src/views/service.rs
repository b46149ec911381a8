//! Services: type, addresses, ports, selector and traffic policies.

use crate::Meta;
use crate::StrMap;
use crate::decode::{message, view};
use crate::int_or_string::IntOrString;
use crate::text::Text;

message! {
    /// Service with the fields that endpoint and address controllers read.
    pub struct Service("k8s.io.api.core.v1.Service") {
        /// Metadata; the name is the Service's DNS label.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: ServiceSpec = 2 "spec",
        /// Observed state of the object.
        status: ServiceStatus = 3 "status",
    }
}

view!(Service, "", "v1", "Service", "services", namespaced);

message! {
    /// Desired state of a Service.
    pub struct ServiceSpec("k8s.io.api.core.v1.ServiceSpec") {
        /// Ports. If there are several, they need different names.
        ports: Box<[ServicePort]> = 1 "ports",
        /// Labels of the pods; empty if users write the endpoints.
        selector: StrMap = 2 "selector",
        /// Virtual address, the first of `clusterIPs`; `None` for a headless Service.
        cluster_ip: Text = 3 "clusterIP",
        /// Virtual addresses, one per IP family, allocated by the API server.
        cluster_ips: Box<[Text]> = 18 "clusterIPs",
        /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
        type_: Text = 4 "type",
        /// Addresses that nodes accept traffic for the Service on. The administrator routes the traffic to the nodes.
        external_ips: Box<[Text]> = 5 "externalIPs",
        /// `None` (the default), or `ClientIP` to connect each client to the same pod.
        session_affinity: Text = 7 "sessionAffinity",
        /// Duration of the session affinity.
        session_affinity_config: SessionAffinityConfig = 14 "sessionAffinityConfig",
        /// Requested address of the load balancer; deprecated, and ignored by some providers.
        load_balancer_ip: Text = 8 "loadBalancerIP",
        /// CIDRs of clients that the load balancer accepts; empty for all.
        load_balancer_source_ranges: Box<[Text]> = 9 "loadBalancerSourceRanges",
        /// Class of the load balancer's implementation; empty for the cluster's cloud provider.
        load_balancer_class: Text = 21 "loadBalancerClass",
        /// Whether a Service of type `LoadBalancer` gets node ports; true if absent.
        allocate_load_balancer_node_ports: Option<bool> = 20 "allocateLoadBalancerNodePorts",
        /// `Cluster`, or `Local` for only the endpoints on the receiving node.
        external_traffic_policy: Text = 11 "externalTrafficPolicy",
        /// Node port of the health check for the external traffic policy `Local`; 0 for none.
        health_check_node_port: i32 = 12 "healthCheckNodePort",
        /// DNS name that an `ExternalName` Service is an alias of.
        external_name: Text = 10 "externalName",
        /// Whether endpoints count as ready, even if their pods are not.
        publish_not_ready_addresses: bool = 13 "publishNotReadyAddresses",
        /// IP families in order, `IPv4` and `IPv6`; the first is that of `clusterIP`.
        ip_families: Box<[Text]> = 19 "ipFamilies",
        /// `SingleStack`, `PreferDualStack` or `RequireDualStack`.
        ip_family_policy: Text = 17 "ipFamilyPolicy",
        /// `Cluster`, or `Local` for only the endpoints on the client's node.
        internal_traffic_policy: Text = 22 "internalTrafficPolicy",
        /// Preference among endpoints, such as `PreferSameZone`; empty for none.
        traffic_distribution: Text = 23 "trafficDistribution",
    }
}

message! {
    /// Port of a Service, and the target port of its pods.
    pub struct ServicePort("k8s.io.api.core.v1.ServicePort") {
        /// Name within the Service; empty only when there is one port.
        name: Text = 1 "name",
        /// `TCP` (also when empty), `UDP` or `SCTP`.
        protocol: Text = 2 "protocol",
        /// Application protocol of the port.
        app_protocol: Text = 6 "appProtocol",
        /// Port of the Service.
        port: i32 = 3 "port",
        /// Port of the pods, as a number or name.
        target_port: IntOrString = 4 "targetPort",
        /// Port on every node; 0 for none.
        node_port: i32 = 5 "nodePort",
    }
}

message! {
    /// Duration of the session affinity.
    pub struct SessionAffinityConfig("k8s.io.api.core.v1.SessionAffinityConfig") {
        /// Settings of the affinity `ClientIP`.
        client_ip: ClientIpConfig = 1 "clientIP",
    }
}

message! {
    /// Duration of the session affinity by client address.
    pub struct ClientIpConfig("k8s.io.api.core.v1.ClientIPConfig") {
        /// Seconds of session affinity: how long a client is routed to the same pod. 10800 by default, 0 if unset.
        timeout_seconds: i32 = 1 "timeoutSeconds",
    }
}

message! {
    /// Observed state of a Service.
    pub struct ServiceStatus("k8s.io.api.core.v1.ServiceStatus") {
        /// Addresses of the load balancer, set by the cloud provider.
        load_balancer: LoadBalancerStatus = 1 "loadBalancer",
    }
}

message! {
    /// Ingress points of a load balancer, set by the cloud provider.
    pub struct LoadBalancerStatus("k8s.io.api.core.v1.LoadBalancerStatus") {
        /// Ingress points of the load balancer.
        ingress: Box<[LoadBalancerIngress]> = 1 "ingress",
    }
}

message! {
    /// Ingress point of a load balancer: an address or a host name.
    pub struct LoadBalancerIngress("k8s.io.api.core.v1.LoadBalancerIngress") {
        /// IP address; empty for an ingress point with a host name.
        ip: Text = 1 "ip",
        /// DNS name; empty for an ingress point with an address.
        hostname: Text = 2 "hostname",
        /// `VIP` (also when empty) if packets arrive with the address as destination, else `Proxy`.
        ip_mode: Text = 3 "ipMode",
        /// Status of each port.
        ports: Box<[PortStatus]> = 4 "ports",
    }
}

message! {
    /// Error of one port of a load balancer.
    pub struct PortStatus("k8s.io.api.core.v1.PortStatus") {
        /// Port number of the Service.
        port: i32 = 1 "port",
        /// `TCP`, `UDP` or `SCTP`.
        protocol: Text = 2 "protocol",
        /// Reason for the problem in CamelCase; empty without a problem.
        error: Text = 3 "error",
    }
}
