//! Plugins of upstream's that a configuration may name and that do nothing here.

use crate::framework::{ClusterEvent, Plugin};

/// The plugins, each with the gate by which upstream has it on by default.
pub(crate) const INERT: [(&str, &str); 4] = [
    ("DeferredPodScheduling", "InPlacePodVerticalScalingSchedulerPreemption"),
    ("GangScheduling", "GenericWorkload"),
    ("PodGroupPodsCount", "TopologyAwareWorkloadScheduling"),
    ("TopologyPlacementGenerator", "TopologyAwareWorkloadScheduling"),
];

/// A plugin that takes part in no extension point: pods of a PodGroup are scheduled one by one. It watches nothing, so that
/// a server without its resources keeps nobody waiting (upstream's scheduler waits for the informer of PodGroups).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inert(pub(crate) &'static str);

impl Plugin for Inert {
    fn name(&self) -> &'static str {
        self.0
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        Vec::new()
    }
}
