//! SchedulingGates: gates a pod until its `spec.schedulingGates` are removed (KEP-3521).
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `spec.schedulingGates`: the pod does not enter the activeQ | `pre_enqueue` |
//! | the removal of all gates moves the pod to the activeQ | `events_to_register`, `queueing_hint` |

use crate::{
    framework::{
        ActionType, Change, ClusterEvent, EventResource, Plugin, PreEnqueue, QueueingHint, Status,
        StatusResult,
    },
    pod::PodInfo,
};

/// The SchedulingGates plugin.
#[derive(Debug, Clone, Copy)]
pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent::new(
            EventResource::TargetPod,
            &[ActionType::UpdatePodSchedulingGatesEliminated],
        )]
    }

    fn queueing_hint(&self, _: &PodInfo, _: &Change) -> QueueingHint {
        QueueingHint::Queue
    }

    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueue> {
        Some(self)
    }
}

impl PreEnqueue for SchedulingGates {
    fn pre_enqueue(&self, pod: &PodInfo) -> StatusResult {
        let gates: Vec<&str> =
            pod.pod.spec.scheduling_gates.iter().map(|gate| &*gate.name).collect();
        if gates.is_empty() {
            return Ok(());
        }
        Err(Status::unresolvable(format!("waiting for scheduling gates: [{}]", gates.join(" "))))
    }
}
