//! Changes of a service that affect its load balancer.

use evenkeel_api::views::Service;

/// Returns whether the change from `old` to `new` affects the load balancer, if both need one (upstream's
/// `needsUpdate`).
pub(super) fn needs_update(old: &Service, new: &Service) -> bool {
    let (old_spec, new_spec) = (&old.spec, &new.spec);
    old.meta.uid != new.meta.uid
        || old.meta.annotations != new.meta.annotations
        || old_spec.load_balancer_source_ranges != new_spec.load_balancer_source_ranges
        || old_spec.ports != new_spec.ports
        || old_spec.session_affinity != new_spec.session_affinity
        || old_spec.session_affinity_config != new_spec.session_affinity_config
        || old_spec.load_balancer_ip != new_spec.load_balancer_ip
        || old_spec.external_ips != new_spec.external_ips
        || old_spec.external_traffic_policy != new_spec.external_traffic_policy
        || old_spec.health_check_node_port != new_spec.health_check_node_port
        // Validation allows to add and remove families, but not to reorder them.
        || old_spec.ip_families.len() != new_spec.ip_families.len()
}
