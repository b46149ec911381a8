//! Score of a node by the utilization of its storage.
//!
//! Upstream: `plugins/volumebinding/scorer.go`.

use super::find::PodVolumes;
use crate::plugins::shape::Shape;
use evenkeel_api::quantity::Quantity;
use evenkeel_component_helpers::storage::volume;
use std::collections::BTreeMap;

/// Storage of one StorageClass in bytes.
#[derive(Default)]
struct ClassUsage {
    /// Size of the claims.
    requested: i64,
    /// Size of the volumes, or free capacity for new ones.
    capacity: i64,
}

/// Returns the mean score over the StorageClasses of static bindings or, if there are none, of dynamic provisions.
pub(super) fn score(pod_volumes: &PodVolumes, shape: &Shape) -> i64 {
    let mut classes: BTreeMap<&str, ClassUsage> = BTreeMap::new();
    for (volume, claim) in &pod_volumes.bindings {
        let usage = classes.entry(&volume.spec.storage_class_name).or_default();
        usage.requested += volume::requested_storage(claim).value();
        usage.capacity += volume::capacity(volume).value();
    }
    if pod_volumes.bindings.is_empty() {
        for provision in &pod_volumes.provisions {
            let Some(storage_capacity) = provision.capacity.as_deref() else { continue };
            let class = provision.claim.spec.storage_class_name.as_deref().unwrap_or_default();
            let usage = classes.entry(class).or_default();
            usage.requested += volume::requested_storage(&provision.claim).value();
            // All volumes of one class use the same capacity.
            usage.capacity = storage_capacity.capacity.map_or(0, Quantity::value);
        }
    }
    if classes.is_empty() {
        return 0;
    }
    let sum: i64 =
        classes.values().map(|usage| shape.score_for(usage.requested, usage.capacity)).sum();
    (sum as f64 / classes.len() as f64).round() as i64
}
