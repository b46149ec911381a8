//! What is particular about pods: their state when new, quality of service, what an update may touch, grace.

use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::reset::keep_field;
use evenkeel_apimachinery::value::{self, copy, int, list, object, set, text};
use serde_json::{Value, json};

/// A new pod is pending, and its class of service is known.
pub fn create(pod: &mut Value, now: &str) {
    let class = quality(pod);
    let mut status = json!({"phase": "Pending", "qosClass": class});
    if !list(pod, "spec.schedulingGates").is_empty() {
        status["conditions"] = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": now}]);
    }
    set(pod, "status", status);
}

/// Restores what a path may not change.
pub fn update(subresource: &str, new: &mut Value, old: &Value) {
    match subresource {
        "status" => {
            keep_field(new, old, "spec");
            // Deletion is asked for elsewhere, and owners are set elsewhere.
            copy(new, old, "metadata.deletionTimestamp");
            copy(new, old, "metadata.ownerReferences");
            copy(new, old, "status.qosClass");
        }
        "ephemeralcontainers" => {
            let containers = value::at(new, "spec.ephemeralContainers").cloned();
            let metadata = new.get("metadata").cloned();
            *new = old.clone();
            if let Some(metadata) = metadata {
                for field in ["managedFields", "resourceVersion"] {
                    if let Some(kept) = metadata.get(field) {
                        set(new, &format!("metadata.{field}"), kept.clone());
                    }
                }
            }
            match containers {
                Some(containers) => set(new, "spec.ephemeralContainers", containers),
                None => {
                    value::remove(new, "spec.ephemeralContainers");
                }
            }
        }
        _ => keep_field(new, old, "status"),
    }
}

/// The class of service: all limits equal to requests, some of either, or none (upstream: pkg/apis/core/v1/helper/qos).
pub fn quality(pod: &Value) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    for containers in ["spec.containers", "spec.initContainers"] {
        for container in list(pod, containers) {
            for name in ["cpu", "memory"] {
                let amount = |kind: &str| {
                    object(container, &format!("resources.{kind}"))
                        .and_then(|map| map.get(name))
                        .and_then(Amount::of)
                        .filter(|amount| !amount.is_zero())
                };
                let (request, limit) = (amount("requests"), amount("limits"));
                any |= request.is_some() || limit.is_some();
                guaranteed &=
                    limit.is_some() && request.is_none_or(|request| Some(request) == limit);
            }
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Seconds that a pod gets to end; one that runs nowhere, or has ended, gets none.
pub fn grace(pod: &Value, requested: Option<i64>) -> Option<i64> {
    let own = int(pod, "spec.terminationGracePeriodSeconds");
    let seconds = requested.or(own).unwrap_or(30);
    if text(pod, "spec.nodeName").is_empty()
        || matches!(text(pod, "status.phase"), "Failed" | "Succeeded")
    {
        return Some(0);
    }
    Some(if seconds < 0 { 1 } else { seconds })
}
