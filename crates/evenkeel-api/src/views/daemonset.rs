//! DaemonSets: template, update strategy, and counts in the status.

use crate::Meta;
use crate::decode::{message, view};
use crate::int_or_string::IntOrString;
use crate::selector::Selector;
use crate::template::Template;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// DaemonSet, which runs one pod on each matching node (`apps/v1`).
    pub struct DaemonSet("k8s.io.api.apps.v1.DaemonSet") {
        /// Metadata; an annotation has the generation of the template.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: DaemonSetSpec = 2 "spec",
        /// Observed state of the object.
        status: DaemonSetStatus = 3 "status",
    }
}

view!(DaemonSet, "apps", "v1", "DaemonSet", "daemonsets", namespaced);

message! {
    /// Desired state of a DaemonSet.
    pub struct DaemonSetSpec("k8s.io.api.apps.v1.DaemonSetSpec") {
        /// Selector of the pods; immutable, and must match the template's labels.
        selector: Selector = 1 "selector",
        /// Template of the pods.
        template: Template = 2 "template",
        /// Strategy for replacing pods of an older template.
        update_strategy: DaemonSetUpdateStrategy = 3 "updateStrategy",
        /// Seconds for which a pod must be ready before it counts as available; 0 by default.
        min_ready_seconds: i32 = 4 "minReadySeconds",
        /// Number of unused revisions to keep; 10 by default.
        revision_history_limit: Option<i32> = 6 "revisionHistoryLimit",
    }
}

message! {
    /// Strategy for replacing pods of an older template.
    pub struct DaemonSetUpdateStrategy("k8s.io.api.apps.v1.DaemonSetUpdateStrategy") {
        /// `RollingUpdate` or `OnDelete`.
        type_: Text = 1 "type",
        /// Limits of a rolling update; only with type `RollingUpdate`.
        rolling_update: Option<Box<RollingUpdateDaemonSet>> = 2 "rollingUpdate",
    }
}

message! {
    /// Limits of a rolling update.
    pub struct RollingUpdateDaemonSet("k8s.io.api.apps.v1.RollingUpdateDaemonSet") {
        /// Number or percentage of nodes without an available pod during the update; 1 by default.
        max_unavailable: Option<IntOrString> = 1 "maxUnavailable",
        /// Number or percentage of nodes with both an old and a new pod during the update; 0 by default.
        max_surge: Option<IntOrString> = 2 "maxSurge",
    }
}

message! {
    /// Observed state of a DaemonSet: numbers of nodes and pods.
    pub struct DaemonSetStatus("k8s.io.api.apps.v1.DaemonSetStatus") {
        /// Number of nodes that should have a pod and have one.
        current_number_scheduled: i32 = 1 "currentNumberScheduled",
        /// Number of nodes that should not have a pod but have one.
        number_misscheduled: i32 = 2 "numberMisscheduled",
        /// Number of nodes that should have a pod.
        desired_number_scheduled: i32 = 3 "desiredNumberScheduled",
        /// Number of nodes that should have a pod and have a ready one.
        number_ready: i32 = 4 "numberReady",
        /// Generation of the spec that the controller has observed.
        observed_generation: i64 = 5 "observedGeneration",
        /// Number of nodes that should have a pod and have one of the current template.
        updated_number_scheduled: i32 = 6 "updatedNumberScheduled",
        /// Number of nodes that should have a pod and have an available one.
        number_available: i32 = 7 "numberAvailable",
        /// Number of nodes that should have a pod but have no available one.
        number_unavailable: i32 = 8 "numberUnavailable",
        /// Number of hash collisions in names of revisions so far.
        collision_count: Option<i32> = 9 "collisionCount",
        /// Conditions. Upstream sets none yet, but existing ones are kept.
        conditions: Box<[DaemonSetCondition]> = 10 "conditions",
    }
}

message! {
    /// Condition in the status of a DaemonSet.
    pub struct DaemonSetCondition("k8s.io.api.apps.v1.DaemonSetCondition") {
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
