//! SchedulingGates: a pod with gates waits until they are gone (KEP-3521).

use crate::{
    framework::{
        Action, Change, Filtered, Hint, Interest, Plugin, PreEnqueue, Rejection, Resource,
    },
    pod::PodInfo,
};

/// Holds back pods with `spec.schedulingGates`.
#[derive(Debug, Clone, Copy)]
pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn events(&self) -> Vec<Interest> {
        vec![Interest::new(Resource::TargetPod, &[Action::UpdatePodSchedulingGatesEliminated])]
    }

    fn hint(&self, _: &PodInfo, _: &Change) -> Hint {
        Hint::Queue
    }

    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueue> {
        Some(self)
    }
}

impl PreEnqueue for SchedulingGates {
    fn pre_enqueue(&self, pod: &PodInfo) -> Filtered {
        let gates: Vec<&str> =
            pod.pod.spec.scheduling_gates.iter().map(|gate| &*gate.name).collect();
        if gates.is_empty() {
            return Ok(());
        }
        Err(Rejection::unresolvable(format!("waiting for scheduling gates: [{}]", gates.join(" "))))
    }
}
