//! ReplicationControllers: replicas, selector, template, and counts in the status.

use crate::Meta;
use crate::decode::{message, view};
use crate::selector::MapSelector;
use crate::template::Template;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// ReplicationController, which keeps a number of pods of one template running (`v1`).
    pub struct ReplicationController("k8s.io.api.core.v1.ReplicationController") {
        /// Metadata; labels default to the template's.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: ReplicationControllerSpec = 2 "spec",
        /// Observed state of the object.
        status: ReplicationControllerStatus = 3 "status",
    }
}

view!(
    ReplicationController,
    "",
    "v1",
    "ReplicationController",
    "replicationcontrollers",
    namespaced
);

message! {
    /// Desired state of a ReplicationController.
    pub struct ReplicationControllerSpec("k8s.io.api.core.v1.ReplicationControllerSpec") {
        /// Desired number of pods; 1 if absent.
        replicas: Option<i32> = 1 "replicas",
        /// Seconds for which a pod must be ready before it counts as available; 0 by default.
        min_ready_seconds: i32 = 4 "minReadySeconds",
        /// Labels of the pods; empty for the template's labels.
        selector: MapSelector = 2 "selector",
        /// Template of the pods.
        template: Template = 3 "template",
    }
}

message! {
    /// Observed state of a ReplicationController: numbers of replicas, conditions.
    pub struct ReplicationControllerStatus("k8s.io.api.core.v1.ReplicationControllerStatus") {
        /// Number of pods that are neither terminating nor finished.
        replicas: i32 = 1 "replicas",
        /// Number of pods with all labels of the template.
        fully_labeled_replicas: i32 = 2 "fullyLabeledReplicas",
        /// Number of pods whose condition `Ready` is true.
        ready_replicas: i32 = 4 "readyReplicas",
        /// Number of pods that have been ready for `minReadySeconds`.
        available_replicas: i32 = 5 "availableReplicas",
        /// Generation of the spec that the controller has observed.
        observed_generation: i64 = 3 "observedGeneration",
        /// Condition `ReplicaFailure`: the last creation or deletion of a pod failed.
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
        /// Time of the last change of the status.
        last_transition_time: Option<Timestamp> = 3 "lastTransitionTime",
        /// Reason for the last transition, in CamelCase.
        reason: Text = 4 "reason",
        /// Details of the last transition, for people.
        message: Text = 5 "message",
    }
}
