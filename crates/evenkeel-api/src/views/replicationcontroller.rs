//! ReplicationControllers.

use crate::Meta;
use crate::decode::{message, view};
use crate::selector::MapSelector;
use crate::template::Template;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// Keeps a number of pods of one template running (`v1`).
    pub struct ReplicationController("k8s.io.api.core.v1.ReplicationController") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: ReplicationControllerSpec = 2 "spec",
        /// Observed state of the object.
        status: ReplicationControllerStatus = 3 "status",
    }
}

view!(ReplicationController, "", "v1", "ReplicationController", "replicationcontrollers", true);

message! {
    /// Desired state of a ReplicationController.
    pub struct ReplicationControllerSpec("k8s.io.api.core.v1.ReplicationControllerSpec") {
        /// How many pods.
        replicas: Option<i32> = 1 "replicas",
        /// How long a pod is ready before it counts as available.
        min_ready_seconds: i32 = 4 "minReadySeconds",
        /// Which pods are its.
        selector: MapSelector = 2 "selector",
        /// Template of the pods.
        template: Template = 3 "template",
    }
}

message! {
    /// Observed state of a ReplicationController: numbers of replicas, conditions.
    pub struct ReplicationControllerStatus("k8s.io.api.core.v1.ReplicationControllerStatus") {
        /// Pods.
        replicas: i32 = 1 "replicas",
        /// Pods with all labels of the template.
        fully_labeled_replicas: i32 = 2 "fullyLabeledReplicas",
        /// Ready pods.
        ready_replicas: i32 = 4 "readyReplicas",
        /// Available pods.
        available_replicas: i32 = 5 "availableReplicas",
        /// Generation of the spec that this status is of.
        observed_generation: i64 = 3 "observedGeneration",
        /// Conditions.
        conditions: Box<[ReplicationControllerCondition]> = 6 "conditions",
    }
}

message! {
    /// Condition such as `ReplicaFailure`.
    pub struct ReplicationControllerCondition("k8s.io.api.core.v1.ReplicationControllerCondition") {
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
