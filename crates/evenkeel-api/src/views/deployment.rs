//! Deployments: template, strategy, rollout limits, status and conditions.

use crate::Meta;
use crate::decode::{message, view};
use crate::int_or_string::IntOrString;
use crate::selector::Selector;
use crate::template::Template;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// Deployment, which rolls out a pod template through ReplicaSets (`apps/v1`).
    pub struct Deployment("k8s.io.api.apps.v1.Deployment") {
        /// Metadata; an annotation has the revision of the template.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: DeploymentSpec = 2 "spec",
        /// Observed state of the object.
        status: DeploymentStatus = 3 "status",
    }
}

view!(Deployment, "apps", "v1", "Deployment", "deployments", namespaced);

message! {
    /// Desired state of a Deployment.
    pub struct DeploymentSpec("k8s.io.api.apps.v1.DeploymentSpec") {
        /// Desired number of pods; 1 if absent.
        replicas: Option<i32> = 1 "replicas",
        /// Selector of the pods; immutable, and must match the template's labels.
        selector: Selector = 2 "selector",
        /// Template of the pods.
        template: Template = 3 "template",
        /// Strategy for replacing pods of an older template.
        strategy: DeploymentStrategy = 4 "strategy",
        /// Seconds for which a pod must be ready before it counts as available; 0 by default.
        min_ready_seconds: i32 = 5 "minReadySeconds",
        /// Number of old ReplicaSets to keep for rollbacks; 10 by default.
        revision_history_limit: Option<i32> = 6 "revisionHistoryLimit",
        /// Whether the rollout of template changes is paused.
        paused: bool = 7 "paused",
        /// Seconds without progress after which the rollout is reported as failed; 600 by default.
        progress_deadline_seconds: Option<i32> = 9 "progressDeadlineSeconds",
    }
}

message! {
    /// Strategy for replacing pods of an older template.
    pub struct DeploymentStrategy("k8s.io.api.apps.v1.DeploymentStrategy") {
        /// `RollingUpdate` or `Recreate`.
        type_: Text = 1 "type",
        /// Limits of a rolling update; only with type `RollingUpdate`.
        rolling_update: Option<Box<RollingUpdateDeployment>> = 2 "rollingUpdate",
    }
}

message! {
    /// Limits of a rolling update.
    pub struct RollingUpdateDeployment("k8s.io.api.apps.v1.RollingUpdateDeployment") {
        /// Number or percentage of pods that may be unavailable during the update; 25% by default.
        max_unavailable: Option<IntOrString> = 1 "maxUnavailable",
        /// Number or percentage of pods above the desired number during the update; 25% by default.
        max_surge: Option<IntOrString> = 2 "maxSurge",
    }
}

message! {
    /// Observed state of a Deployment: numbers of replicas, conditions.
    pub struct DeploymentStatus("k8s.io.api.apps.v1.DeploymentStatus") {
        /// Generation of the spec that the controller has observed.
        observed_generation: i64 = 1 "observedGeneration",
        /// Number of pods of all its ReplicaSets that are not terminating.
        replicas: i32 = 2 "replicas",
        /// Number of pods of the current template that are not terminating.
        updated_replicas: i32 = 3 "updatedReplicas",
        /// Number of pods whose condition `Ready` is true.
        ready_replicas: i32 = 7 "readyReplicas",
        /// Number of pods that have been ready for `minReadySeconds`.
        available_replicas: i32 = 4 "availableReplicas",
        /// Number of pods that must still become available, including those not yet created.
        unavailable_replicas: i32 = 5 "unavailableReplicas",
        /// Number of pods that are terminating.
        terminating_replicas: Option<i32> = 9 "terminatingReplicas",
        /// Conditions: `Available`, `Progressing` and `ReplicaFailure`.
        conditions: Box<[DeploymentCondition]> = 6 "conditions",
        /// Number of hash collisions in names of ReplicaSets so far.
        collision_count: Option<i32> = 8 "collisionCount",
    }
}

message! {
    /// Condition such as `Progressing` or `Available`.
    pub struct DeploymentCondition("k8s.io.api.apps.v1.DeploymentCondition") {
        /// Type of the condition.
        type_: Text = 1 "type",
        /// `True`, `False` or `Unknown`.
        status: Text = 2 "status",
        /// Time at which the condition was last updated.
        last_update_time: Option<Timestamp> = 6 "lastUpdateTime",
        /// Time of the last change of the status.
        last_transition_time: Option<Timestamp> = 7 "lastTransitionTime",
        /// Reason for the last transition, in CamelCase.
        reason: Text = 4 "reason",
        /// Details of the last transition, for people.
        message: Text = 5 "message",
    }
}
