//! Upstream's plugins that a configuration may name, but that have no effect here.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | plugins of PodGroups (KEP-4671) and of in-place resizing (KEP-5836), by name | `Inert` |

use crate::framework::{ClusterEvent, Plugin};

/// Names of the plugins, each with the feature gate that upstream requires for it.
pub const INERT: [(&str, &str); 4] = [
    ("DeferredPodScheduling", "InPlacePodVerticalScalingSchedulerPreemption"),
    ("GangScheduling", "GenericWorkload"),
    ("PodGroupPodsCount", "TopologyAwareWorkloadScheduling"),
    ("TopologyPlacementGenerator", "TopologyAwareWorkloadScheduling"),
];

/// A plugin without extension points. Pods of a PodGroup are scheduled one by one. Upstream's scheduler waits for the informer
/// of PodGroups. This plugin watches nothing, so a server without PodGroups causes no delay.
#[derive(Debug, Clone, Copy)]
pub struct Inert(pub &'static str);

impl Plugin for Inert {
    fn name(&self) -> &'static str {
        self.0
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        Vec::new()
    }
}
