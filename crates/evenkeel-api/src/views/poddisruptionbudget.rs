//! PodDisruptionBudgets: limits, selector, and allowed disruptions in the status.

use crate::Meta;
use crate::decode::{message, view};
use crate::int_or_string::IntOrString;
use crate::map::Map;
use crate::selector::Selector;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// PodDisruptionBudget, which limits the number of selected pods that may be disrupted at the same time.
    pub struct PodDisruptionBudget("k8s.io.api.policy.v1.PodDisruptionBudget") {
        /// Metadata; the budget counts pods of its namespace.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: PodDisruptionBudgetSpec = 2 "spec",
        /// Observed state of the object.
        status: PodDisruptionBudgetStatus = 3 "status",
    }
}

view!(
    PodDisruptionBudget,
    "policy",
    "v1",
    "PodDisruptionBudget",
    "poddisruptionbudgets",
    namespaced
);

message! {
    /// Desired state of a PodDisruptionBudget.
    pub struct PodDisruptionBudgetSpec("k8s.io.api.policy.v1.PodDisruptionBudgetSpec") {
        /// Number or percentage of pods that must stay available.
        min_available: Option<IntOrString> = 1 "minAvailable",
        /// Selector of the pods that the budget counts. An empty one selects all pods of the namespace; an absent one
        /// selects none.
        selector: Selector = 2 "selector",
        /// Number or percentage of pods that may be unavailable.
        max_unavailable: Option<IntOrString> = 3 "maxUnavailable",
        /// `IfHealthyBudget` (also when empty) or `AlwaysAllow`.
        unhealthy_pod_eviction_policy: Text = 4 "unhealthyPodEvictionPolicy",
    }
}

message! {
    /// Observed state of a PodDisruptionBudget: healthy pods and allowed disruptions.
    pub struct PodDisruptionBudgetStatus("k8s.io.api.policy.v1.PodDisruptionBudgetStatus") {
        /// Generation of the spec that the controller has observed.
        observed_generation: i64 = 1 "observedGeneration",
        /// Evicted pods that still exist, with the time of their eviction.
        disrupted_pods: Map<Timestamp> = 2 "disruptedPods",
        /// Number of pods that may be evicted now.
        disruptions_allowed: i32 = 3 "disruptionsAllowed",
        /// Number of pods whose condition `Ready` is true.
        current_healthy: i32 = 4 "currentHealthy",
        /// Minimum number of healthy pods.
        desired_healthy: i32 = 5 "desiredHealthy",
        /// Number of pods that should exist, by the scale of their controllers.
        expected_pods: i32 = 6 "expectedPods",
        /// Condition `DisruptionAllowed`, with the reason if it is false.
        conditions: Box<[MetaCondition]> = 7 "conditions",
    }
}

message! {
    /// Condition in the form that newer kinds share (`metav1.Condition`).
    pub struct MetaCondition("k8s.io.apimachinery.pkg.apis.meta.v1.Condition") {
        /// Type of the condition.
        type_: Text = 1 "type",
        /// `True`, `False` or `Unknown`.
        status: Text = 2 "status",
        /// Generation of the spec that the condition describes; 0 if unknown.
        observed_generation: i64 = 3 "observedGeneration",
        /// Time of the last change of the status.
        last_transition_time: Option<Timestamp> = 4 "lastTransitionTime",
        /// Reason for the last transition, in CamelCase.
        reason: Text = 5 "reason",
        /// Details of the last transition, for people.
        message: Text = 6 "message",
    }
}
