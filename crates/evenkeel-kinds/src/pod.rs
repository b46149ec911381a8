//! Strategy of pods: initial status, QoS class, fields that an update cannot change, and the grace period of a
//! deletion.

use evenkeel_apimachinery::reset::{reset_field, reset_metadata_for_status};
use evenkeel_apimachinery::value::{self, copy, int, list, set, text};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

use crate::{app_armor, pod_label_keys, pod_resize, pod_resources};

/// Sets the status of a new pod: the phase Pending, the QoS class, and the condition for scheduling gates.
///
/// Upstream: `PrepareForCreate` of `podStrategy`, `applySchedulingGatedCondition`.
pub fn prepare_create(pod: &mut Value, now: &str) {
    pod_label_keys::apply(pod);
    app_armor::copy_annotations(pod);
    pod_resources::default(pod);
    let qos = pod_resources::qos_class(pod);
    let mut status = json!({"phase": "Pending", "qosClass": qos});
    if !list(pod, "spec.schedulingGates").is_empty() {
        status["conditions"] = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": now}]);
    }
    set(pod, "status", status);
}

/// Resets the fields that a write of this subresource cannot change.
///
/// Upstream: `podStatusStrategy`, `podEphemeralContainersStrategy`, `podResizeStrategy`.
pub fn prepare_update(subresource: &str, new: &mut Value, old: &Value) {
    match subresource {
        "status" => {
            reset_field(new, old, "spec");
            // Only a DELETE sets `deletionTimestamp`, and only the pod's own path sets owner references.
            copy(new, old, "metadata.deletionTimestamp");
            copy(new, old, "metadata.ownerReferences");
            if text(new, "status.qosClass").is_empty() {
                copy(new, old, "status.qosClass");
            }
            preserve_status_fields(new, old);
        }
        // The subresource changes only the ephemeral containers, and metadata that a status update may change.
        "ephemeralcontainers" => {
            let containers = value::get(new, "spec.ephemeralContainers").cloned();
            let metadata = new.get("metadata").cloned();
            *new = old.clone();
            if let Some(metadata) = metadata {
                new["metadata"] = metadata;
                reset_metadata_for_status(new, old);
            }
            match containers {
                Some(containers) => set(new, "spec.ephemeralContainers", containers),
                None => {
                    value::remove(new, "spec.ephemeralContainers");
                }
            }
        }
        "resize" => pod_resize::prepare(new, old),
        _ => reset_field(new, old, "status"),
    }
}

/// Status fields that older clients do not know and therefore omit.
const PRESERVED_STATUS: [&str; 4] = [
    "status.resourceClaimStatuses",
    "status.extendedResourceClaimStatus",
    "status.nodeAllocatableResourceClaimStatuses",
    "status.observedGeneration",
];

/// Keeps the stored value of some status fields, and of the `observedGeneration` of each condition, if the body omits
/// them.
///
/// Upstream: `podStatusStrategy.PrepareForUpdate`, `preserveOldObservedGeneration`.
fn preserve_status_fields(new: &mut Value, old: &Value) {
    for field in PRESERVED_STATUS {
        if value::get(new, field).is_none_or(|value| *value == 0) {
            copy(new, old, field);
        }
    }
    // Several conditions may have the same type. The n-th condition of a type is paired with the n-th stored one.
    let mut generations: BTreeMap<String, VecDeque<i64>> = BTreeMap::new();
    for condition in list(old, "status.conditions") {
        let generation = int(condition, "observedGeneration").unwrap_or_default();
        generations.entry(text(condition, "type").to_owned()).or_default().push_back(generation);
    }
    value::each(new, "status.conditions.*", &mut |condition| {
        let stored = generations.get_mut(text(condition, "type")).and_then(VecDeque::pop_front);
        let stored = stored.unwrap_or_default();
        if stored != 0 && int(condition, "observedGeneration").unwrap_or_default() == 0 {
            set(condition, "observedGeneration", stored);
        }
    });
}

/// Returns the grace period of a deletion in seconds: the requested period, or else that of the spec, or else 30. The
/// period is 0 for a pod that has no node or has finished. A negative period counts as 1.
///
/// Upstream: `CheckGracefulDelete`.
pub fn deletion_grace_period(pod: &Value, requested: Option<i64>) -> Option<i64> {
    let from_spec = int(pod, "spec.terminationGracePeriodSeconds");
    let seconds = requested.or(from_spec).unwrap_or(30);
    if text(pod, "spec.nodeName").is_empty()
        || matches!(text(pod, "status.phase"), "Failed" | "Succeeded")
    {
        return Some(0);
    }
    Some(if seconds < 0 { 1 } else { seconds })
}
