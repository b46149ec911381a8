//! In-tree plugins with upstream's names and weights, one module each.

mod amounts;
pub mod balanced_allocation;
mod default_binder;
pub mod default_preemption;
pub mod dynamic_resources;
mod image_locality;
pub mod inert;
pub mod inter_pod_affinity;
pub mod node_affinity;
mod node_declared_features;
mod node_name;
mod node_ports;
pub mod node_resources_fit;
mod node_selector;
mod node_unschedulable;
mod node_volume_limits;
mod per_domain;
pub mod pod_topology_spread;
mod priority_sort;
#[cfg(test)]
mod random_cluster;
mod resource_classes;
mod scheduling_gates;
pub mod shape;
mod taint_toleration;
#[cfg(test)]
mod tests;
pub mod volume_binding;
mod volume_restrictions;
mod volume_zone;
mod volumes;

pub use balanced_allocation::BalancedAllocation;
pub use default_binder::DefaultBinder;
pub use default_preemption::DefaultPreemption;
pub use dynamic_resources::DynamicResources;
pub use image_locality::ImageLocality;
pub use inter_pod_affinity::InterPodAffinity;
pub use node_affinity::NodeAffinity;
pub use node_declared_features::NodeDeclaredFeatures;
pub use node_name::NodeName;
pub use node_ports::NodePorts;
pub use node_resources_fit::NodeResourcesFit;
pub use node_unschedulable::NodeUnschedulable;
pub use node_volume_limits::NodeVolumeLimits;
pub use pod_topology_spread::PodTopologySpread;
pub use priority_sort::PrioritySort;
pub(crate) use priority_sort::priority_sort_key;
pub use scheduling_gates::SchedulingGates;
pub use taint_toleration::TaintToleration;
pub use volume_binding::VolumeBinding;
pub use volume_restrictions::VolumeRestrictions;
pub use volume_zone::VolumeZone;

use std::sync::Arc;

use crate::framework::{MAX_NODE_SCORE, Plugin};

/// Returns upstream's default plugins in its order, each with its weight.
///
/// Upstream: `getDefaultPlugins`.
pub(crate) fn defaults() -> Vec<(Arc<dyn Plugin>, i64)> {
    vec![
        (Arc::new(SchedulingGates), 0),
        (Arc::new(PrioritySort), 0),
        (Arc::new(NodeName), 0),
        (Arc::new(NodeUnschedulable), 0),
        (Arc::new(TaintToleration::default()), 3),
        (Arc::new(NodeAffinity::default()), 2),
        (Arc::new(NodePorts), 0),
        (Arc::new(NodeResourcesFit::default()), 1),
        (Arc::new(VolumeRestrictions::default()), 0),
        (Arc::new(NodeVolumeLimits::default()), 0),
        (Arc::new(VolumeBinding::default()), 1),
        (Arc::new(VolumeZone::default()), 0),
        (Arc::new(PodTopologySpread::default()), 2),
        (Arc::new(InterPodAffinity::default()), 2),
        (Arc::new(DynamicResources::default()), 2),
        (Arc::new(DefaultPreemption::default()), 0),
        (Arc::new(BalancedAllocation::default()), 1),
        (Arc::new(ImageLocality), 1),
        (Arc::new(DefaultBinder), 0),
        (Arc::new(NodeDeclaredFeatures), 0),
    ]
}

/// Scales scores from `0..=max` to `0..=100`, where `max` is the highest score.
///
/// Upstream: `DefaultNormalizeScore`.
fn default_normalize_score(scores: &mut [i64]) {
    normalize(scores, |percent| percent);
}

/// Scales scores from `0..=max` to `100..=0`, so that the highest score becomes 0.
///
/// Upstream: `DefaultNormalizeScore`, with `reverse`.
fn default_normalize_score_reversed(scores: &mut [i64]) {
    normalize(scores, |percent| MAX_NODE_SCORE - percent);
}

/// Replaces each score by the result of `score_of`, whose argument is the score in percent of the highest score.
fn normalize(scores: &mut [i64], score_of: impl Fn(i64) -> i64) {
    let max = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        *score = score_of(if max == 0 { 0 } else { MAX_NODE_SCORE * *score / max });
    }
}
