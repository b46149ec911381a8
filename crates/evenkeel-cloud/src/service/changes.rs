//! Which changes of a service a load balancer has to hear of.

use evenkeel_api::views::Service;

/// Whether the cloud has to hear of the change from `old` to `new`, both of which want a load balancer (upstream's
/// `needsUpdate`).
pub(super) fn matter(old: &Service, new: &Service) -> bool {
    let (a, b) = (&old.spec, &new.spec);
    old.meta.uid != new.meta.uid
        || old.meta.annotations != new.meta.annotations
        || a.load_balancer_source_ranges != b.load_balancer_source_ranges
        || a.ports != b.ports
        || a.session_affinity != b.session_affinity
        || a.session_affinity_config != b.session_affinity_config
        || a.load_balancer_ip != b.load_balancer_ip
        || a.external_ips != b.external_ips
        || a.external_traffic_policy != b.external_traffic_policy
        || a.health_check_node_port != b.health_check_node_port
        // Families come and go, but never change places.
        || a.ip_families.len() != b.ip_families.len()
}
