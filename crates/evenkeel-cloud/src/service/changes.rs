//! Changes of a service that affect its load balancer.

use evenkeel_api::views::Service;

/// Returns whether the change from `old` to `new` affects the load balancer, which both want (upstream's
/// `needsUpdate`).
pub(super) fn needs_update(old: &Service, new: &Service) -> bool {
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
        // Families can be added and removed, but cannot change order.
        || a.ip_families.len() != b.ip_families.len()
}
