//! Matching of pods and nodes: taints and tolerations here, node selectors and affinity in [`nodeaffinity`].
//!
//! Upstream: `k8s.io/component-helpers/scheduling/corev1`.

pub mod nodeaffinity;

use evenkeel_api::views::{Pod, Taint, Toleration};

/// Key of the taint of a node that is out of service. Its terminating pods are deleted by force, and its volumes are
/// detached by force.
///
/// Upstream: `TaintNodeOutOfService`.
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

/// Index function of pods by node: calls `key` with the name of the pod's node if the pod is bound.
pub fn node_key(pod: &Pod, key: &mut dyn FnMut(&str)) {
    if !pod.spec.node_name.is_empty() {
        key(&pod.spec.node_name);
    }
}

/// Returns whether the toleration tolerates the taint.
///
/// Upstream: `ToleratesTaint`.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    (toleration.effect.is_empty() || toleration.effect == taint.effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && match &*toleration.operator {
            "" | "Equal" => toleration.value == taint.value,
            "Exists" => true,
            _ => false,
        }
}

/// Returns whether one of the tolerations tolerates the taint.
pub fn is_tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// Returns the first `NoSchedule` or `NoExecute` taint that no toleration tolerates.
///
/// Upstream: `FindMatchingUntoleratedTaint`.
pub fn find_untolerated_taint<'a>(
    tolerations: &[Toleration],
    taints: &'a [Taint],
) -> Option<&'a Taint> {
    // A `PreferNoSchedule` taint repels no pod.
    let repels_pods = |taint: &&Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute");
    taints.iter().filter(repels_pods).find(|taint| !is_tolerated(tolerations, taint))
}
