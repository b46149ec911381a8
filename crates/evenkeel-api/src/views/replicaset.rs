//! ReplicaSets: replicas, selector, template, and counts in the status.

use crate::Meta;
use crate::decode::{message, view};
use crate::selector::Selector;
use crate::template::Template;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// ReplicaSet, which keeps a number of pods of one template running (`apps/v1`).
    pub struct ReplicaSet("k8s.io.api.apps.v1.ReplicaSet") {
        /// Metadata; labels default to the template's.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: ReplicaSetSpec = 2 "spec",
        /// Observed state of the object.
        status: ReplicaSetStatus = 3 "status",
    }
}

view!(ReplicaSet, "apps", "v1", "ReplicaSet", "replicasets", namespaced);

message! {
    /// Desired state of a ReplicaSet.
    pub struct ReplicaSetSpec("k8s.io.api.apps.v1.ReplicaSetSpec") {
        /// Desired number of pods; 1 if absent.
        replicas: Option<i32> = 1 "replicas",
        /// Seconds for which a pod must be ready before it counts as available; 0 by default.
        min_ready_seconds: i32 = 4 "minReadySeconds",
        /// Selector of the pods; immutable, and must match the template's labels.
        selector: Selector = 2 "selector",
        /// Template of the pods.
        template: Template = 3 "template",
    }
}

message! {
    /// Observed state of a ReplicaSet: numbers of replicas, conditions.
    pub struct ReplicaSetStatus("k8s.io.api.apps.v1.ReplicaSetStatus") {
        /// Number of pods that are neither terminating nor finished.
        replicas: i32 = 1 "replicas",
        /// Number of pods with all labels of the template.
        fully_labeled_replicas: i32 = 2 "fullyLabeledReplicas",
        /// Number of pods whose condition `Ready` is true.
        ready_replicas: i32 = 4 "readyReplicas",
        /// Number of pods that have been ready for `minReadySeconds`.
        available_replicas: i32 = 5 "availableReplicas",
        /// Number of pods that are terminating.
        terminating_replicas: Option<i32> = 7 "terminatingReplicas",
        /// Generation of the spec that the controller has observed.
        observed_generation: i64 = 3 "observedGeneration",
        /// Condition `ReplicaFailure`: the last creation or deletion of a pod failed.
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
        /// Time of the last change of the status.
        last_transition_time: Option<Timestamp> = 3 "lastTransitionTime",
        /// Reason for the last transition, in CamelCase.
        reason: Text = 4 "reason",
        /// Details of the last transition, for people.
        message: Text = 5 "message",
    }
}
