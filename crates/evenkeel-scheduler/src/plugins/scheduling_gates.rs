//! SchedulingGates: a pod with gates waits until they are gone (KEP-3521).

use crate::{
    framework::{Change, Filtered, Hint, Plugin, PreEnqueue, Rejection},
    pod::PodInfo,
};

/// Holds back pods with `spec.schedulingGates`.
#[derive(Debug, Clone, Copy)]
pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn hint(&self, pod: &PodInfo, change: &Change<'_>) -> Hint {
        Hint::when(matches!(change, Change::OwnUpdate) && pod.pod.spec.scheduling_gates.is_empty())
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
