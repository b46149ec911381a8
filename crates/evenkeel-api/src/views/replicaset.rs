//! ReplicaSets.

use crate::Meta;
use crate::decode::{message, view};
use crate::selector::Selector;
use crate::template::Template;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// Keeps a number of pods of one template running (`apps/v1`).
    pub struct ReplicaSet("k8s.io.api.apps.v1.ReplicaSet") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: ReplicaSetSpec = 2 "spec",
        /// Observed state of the object.
        status: ReplicaSetStatus = 3 "status",
    }
}

view!(ReplicaSet, "apps", "v1", "ReplicaSet", "replicasets", true);

message! {
    /// Desired state of a ReplicaSet.
    pub struct ReplicaSetSpec("k8s.io.api.apps.v1.ReplicaSetSpec") {
        /// How many pods.
        replicas: Option<i32> = 1 "replicas",
        /// How long a pod is ready before it counts as available.
        min_ready_seconds: i32 = 4 "minReadySeconds",
        /// Which pods are its.
        selector: Selector = 2 "selector",
        /// Template of the pods.
        template: Template = 3 "template",
    }
}

message! {
    /// Observed state of a ReplicaSet: numbers of replicas, conditions.
    pub struct ReplicaSetStatus("k8s.io.api.apps.v1.ReplicaSetStatus") {
        /// Pods.
        replicas: i32 = 1 "replicas",
        /// Pods with all labels of the template.
        fully_labeled_replicas: i32 = 2 "fullyLabeledReplicas",
        /// Ready pods.
        ready_replicas: i32 = 4 "readyReplicas",
        /// Available pods.
        available_replicas: i32 = 5 "availableReplicas",
        /// Pods that are being deleted.
        terminating_replicas: Option<i32> = 7 "terminatingReplicas",
        /// Generation of the spec that this status is of.
        observed_generation: i64 = 3 "observedGeneration",
        /// Conditions.
        conditions: Box<[ReplicaSetCondition]> = 6 "conditions",
    }
}

message! {
    /// Condition such as `ReplicaFailure`.
    pub struct ReplicaSetCondition("k8s.io.api.apps.v1.ReplicaSetCondition") {
        /// Type of the condition.
        type_: Text = 1 "type",
        /// `True`, `False` or `Unknown`.
        status: Text = 2 "status",
        /// When the status last changed.
        last_transition_time: Option<Timestamp> = 3 "lastTransitionTime",
        /// Why, in one CamelCase word.
        reason: Text = 4 "reason",
        /// Human-readable message.
        message: Text = 5 "message",
    }
}
