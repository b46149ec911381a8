//! Score of a node by the utilization of its storage.
//!
//! Upstream: `plugins/volumebinding/scorer.go`.

use super::find::PodVolumes;
use crate::plugins::shape::Shape;
use evenkeel_api::quantity::Quantity;
use evenkeel_component_helpers::storage::volume;
use std::collections::BTreeMap;

/// Returns the mean score over the StorageClasses of static bindings or, if there are none, of dynamic provisions.
pub(super) fn score(found: &PodVolumes, shape: &Shape) -> i64 {
    let mut classes: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for (volume, claim) in &found.bindings {
        let sums = classes.entry(&volume.spec.storage_class_name).or_default();
        sums.0 += volume::requested(claim).value();
        sums.1 += volume::capacity(volume).value();
    }
    if found.bindings.is_empty() {
        for provision in &found.provisions {
            let Some(storage_capacity) = provision.capacity.as_deref() else { continue };
            let class = provision.claim.spec.storage_class_name.as_deref().unwrap_or_default();
            let sums = classes.entry(class).or_default();
            sums.0 += volume::requested(&provision.claim).value();
            // All volumes of one class use the same capacity.
            sums.1 = storage_capacity.capacity.map_or(0, Quantity::value);
        }
    }
    if classes.is_empty() {
        return 0;
    }
    let sum: i64 =
        classes.values().map(|(requested, capacity)| shape.score_for(*requested, *capacity)).sum();
    (sum as f64 / classes.len() as f64).round() as i64
}
