//! Which taints a pod bears.

use evenkeel_api::views::{Taint, Toleration};

/// Whether the toleration is for this taint.
pub(super) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    (toleration.effect.is_empty() || toleration.effect == taint.effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && match &*toleration.operator {
            "" | "Equal" => toleration.value == taint.value,
            "Exists" => true,
            _ => false,
        }
}

/// Whether one of them is.
pub(super) fn tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// The first taint that keeps the pod off the node.
pub(super) fn forbidding<'a>(tolerations: &[Toleration], taints: &'a [Taint]) -> Option<&'a Taint> {
    let hard = |taint: &&Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute");
    taints.iter().filter(hard).find(|taint| !tolerated(tolerations, taint))
}
