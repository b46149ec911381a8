//! Quota usage of Services and PersistentVolumeClaims.

use super::Usage;
use evenkeel_api::{
    quantity::Quantity,
    views::{PersistentVolumeClaim, Service},
};

/// Separator between the name of a class and the resource that a quota limits for this class.
const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const STORAGE: &str = "requests.storage";
const CLAIMS: &str = "persistentvolumeclaims";
/// Annotation with a claim's class, from before the field `storageClassName` existed.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn services_match_resource(name: &str) -> bool {
    matches!(name, "services" | "services.nodeports" | "services.loadbalancers")
}

/// Adds the number of Services, node ports and load balancers.
pub(super) fn service_usage(service: &Service, usage: &mut Usage) {
    let count = |number: usize| Quantity::from_units(i64::try_from(number).unwrap_or(i64::MAX));
    let ports = &service.spec.ports;
    let (node_ports, load_balancers) = match &*service.spec.type_ {
        "NodePort" => (ports.len(), 0),
        "LoadBalancer" if service.spec.allocate_load_balancer_node_ports == Some(false) => {
            (ports.iter().filter(|port| port.node_port != 0).count(), 1)
        }
        "LoadBalancer" => (ports.len(), 1),
        _ => (0, 0),
    };
    usage.set("services", count(1));
    usage.set("services.nodeports", count(node_ports));
    usage.set("services.loadbalancers", count(load_balancers));
}

/// Returns the type of a Service if quotas limit it (`NodePort` or `LoadBalancer`), otherwise an empty string.
pub fn service_type(service: &Service) -> &str {
    match &*service.spec.type_ {
        limited @ ("NodePort" | "LoadBalancer") => limited,
        _ => "",
    }
}

pub(super) fn volume_claims_match_resource(name: &str) -> bool {
    let resource = match name.rsplit_once(STORAGE_CLASS) {
        Some((_class, resource)) => resource,
        None => name,
    };
    matches!(resource, STORAGE | CLAIMS)
}

/// Adds the number of claims and the requested storage, each in total and for the claim's class.
pub(super) fn volume_claim_usage(claim: &PersistentVolumeClaim, usage: &mut Usage) {
    let annotated = claim.meta.annotations.get(CLASS_ANNOTATION);
    let class = annotated.or(claim.spec.storage_class_name.as_deref()).unwrap_or_default();
    let mut charge = |resource: &str, amount: Quantity| {
        if !class.is_empty() {
            usage.set(format!("{class}{STORAGE_CLASS}{resource}"), amount);
        }
        usage.set(resource, amount);
    };
    charge(CLAIMS, Quantity::from_units(1));
    let Some(desired) = claim.spec.resources.requests.get("storage") else { return };
    // If a user reduces the requested size while an expansion is pending, the size that the expansion has allocated
    // counts until the expansion ends (KEP-1790).
    let allocated = claim.status.allocated_resources.get("storage").copied();
    let counted = allocated.filter(|allocated| allocated > desired).unwrap_or(*desired);
    charge(STORAGE, counted.rounded_up());
}

/// Returns the VolumeAttributesClasses that the claim requests, that its volume has, and to which the volume is
/// being modified. The list is sorted and contains each class once.
pub fn volume_classes(claim: &PersistentVolumeClaim) -> Vec<&str> {
    let status = &claim.status;
    let target = status.modify_volume_status.as_ref();
    let mut classes = vec![
        &*claim.spec.volume_attributes_class_name,
        &*status.current_volume_attributes_class_name,
        target.map_or("", |target| &*target.target_volume_attributes_class_name),
    ];
    classes.retain(|class| !class.is_empty());
    classes.sort_unstable();
    classes.dedup();
    classes
}
