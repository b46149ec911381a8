//! Deployments.

use crate::Meta;
use crate::decode::{message, view};
use crate::int_or_string::IntOrString;
use crate::selector::Selector;
use crate::template::Template;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// Rolls out a pod template through ReplicaSets (`apps/v1`).
    pub struct Deployment("k8s.io.api.apps.v1.Deployment") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: DeploymentSpec = 2 "spec",
        /// Observed state of the object.
        status: DeploymentStatus = 3 "status",
    }
}

view!(Deployment, "apps", "v1", "Deployment", "deployments", true);

message! {
    /// Desired state of a Deployment.
    pub struct DeploymentSpec("k8s.io.api.apps.v1.DeploymentSpec") {
        /// How many pods.
        replicas: Option<i32> = 1 "replicas",
        /// Which pods are its.
        selector: Selector = 2 "selector",
        /// Template of the pods.
        template: Template = 3 "template",
        /// How old pods give way to new ones.
        strategy: DeploymentStrategy = 4 "strategy",
        /// How long a pod is ready before it counts as available.
        min_ready_seconds: i32 = 5 "minReadySeconds",
        /// How many old ReplicaSets are kept.
        revision_history_limit: Option<i32> = 6 "revisionHistoryLimit",
        /// Whether it rests.
        paused: bool = 7 "paused",
        /// How long it may stand still before it counts as stuck.
        progress_deadline_seconds: Option<i32> = 9 "progressDeadlineSeconds",
    }
}

message! {
    /// How old pods give way to new ones.
    pub struct DeploymentStrategy("k8s.io.api.apps.v1.DeploymentStrategy") {
        /// `RollingUpdate` or `Recreate`.
        type_: Text = 1 "type",
        /// For `RollingUpdate`.
        rolling_update: Option<Box<RollingUpdateDeployment>> = 2 "rollingUpdate",
    }
}

message! {
    /// Limits of a rolling update.
    pub struct RollingUpdateDeployment("k8s.io.api.apps.v1.RollingUpdateDeployment") {
        /// How many may be missing.
        max_unavailable: Option<IntOrString> = 1 "maxUnavailable",
        /// How many may be too many.
        max_surge: Option<IntOrString> = 2 "maxSurge",
    }
}

message! {
    /// Observed state of a Deployment: numbers of replicas, conditions.
    pub struct DeploymentStatus("k8s.io.api.apps.v1.DeploymentStatus") {
        /// Generation of the spec that this status is of.
        observed_generation: i64 = 1 "observedGeneration",
        /// Pods.
        replicas: i32 = 2 "replicas",
        /// Pods of the present template.
        updated_replicas: i32 = 3 "updatedReplicas",
        /// Ready pods.
        ready_replicas: i32 = 7 "readyReplicas",
        /// Available pods.
        available_replicas: i32 = 4 "availableReplicas",
        /// Pods still missing.
        unavailable_replicas: i32 = 5 "unavailableReplicas",
        /// Pods that are being deleted.
        terminating_replicas: Option<i32> = 9 "terminatingReplicas",
        /// Conditions.
        conditions: Box<[DeploymentCondition]> = 6 "conditions",
        /// How often a template's hash was taken by another.
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
        /// When it was last written.
        last_update_time: Option<Timestamp> = 6 "lastUpdateTime",
        /// When the status last changed.
        last_transition_time: Option<Timestamp> = 7 "lastTransitionTime",
        /// Why, in one CamelCase word.
        reason: Text = 4 "reason",
        /// Human-readable message.
        message: Text = 5 "message",
    }
}
