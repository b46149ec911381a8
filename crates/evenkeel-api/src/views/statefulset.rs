//! StatefulSets.

use crate::Meta;
use crate::decode::{message, view};
use crate::int_or_string::IntOrString;
use crate::selector::Selector;
use crate::template::{ClaimTemplate, Template};
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// Runs pods with stable identities and storage (`apps/v1`).
    pub struct StatefulSet("k8s.io.api.apps.v1.StatefulSet") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: StatefulSetSpec = 2 "spec",
        /// Observed state of the object.
        status: StatefulSetStatus = 3 "status",
    }
}

view!(StatefulSet, "apps", "v1", "StatefulSet", "statefulsets", true);

message! {
    /// Desired state of a StatefulSet.
    pub struct StatefulSetSpec("k8s.io.api.apps.v1.StatefulSetSpec") {
        /// How many pods.
        replicas: Option<i32> = 1 "replicas",
        /// Which pods are its.
        selector: Selector = 2 "selector",
        /// Template of the pods.
        template: Template = 3 "template",
        /// Claim templates, for each pod.
        volume_claim_templates: Box<[ClaimTemplate]> = 4 "volumeClaimTemplates",
        /// The Service under which its pods are found by name.
        service_name: Text = 5 "serviceName",
        /// `OrderedReady` or `Parallel`.
        pod_management_policy: Text = 6 "podManagementPolicy",
        /// How old pods give way to new ones.
        update_strategy: StatefulSetUpdateStrategy = 7 "updateStrategy",
        /// Number of unused revisions to keep.
        revision_history_limit: Option<i32> = 8 "revisionHistoryLimit",
        /// How long a pod is ready before it counts as available.
        min_ready_seconds: i32 = 9 "minReadySeconds",
        /// Retention policy of the claims.
        persistent_volume_claim_retention_policy: Option<Box<StatefulSetPersistentVolumeClaimRetentionPolicy>> = 10 "persistentVolumeClaimRetentionPolicy",
        /// Where pods are counted from.
        ordinals: Option<Box<StatefulSetOrdinals>> = 11 "ordinals",
    }
}

message! {
    /// How old pods give way to new ones.
    pub struct StatefulSetUpdateStrategy("k8s.io.api.apps.v1.StatefulSetUpdateStrategy") {
        /// `RollingUpdate` or `OnDelete`.
        type_: Text = 1 "type",
        /// For `RollingUpdate`.
        rolling_update: Option<Box<RollingUpdateStatefulSetStrategy>> = 2 "rollingUpdate",
    }
}

message! {
    /// Limits of a rolling update.
    pub struct RollingUpdateStatefulSetStrategy("k8s.io.api.apps.v1.RollingUpdateStatefulSetStrategy") {
        /// How many pods, from the first, keep the old template.
        partition: Option<i32> = 1 "partition",
        /// How many may be missing.
        max_unavailable: Option<IntOrString> = 2 "maxUnavailable",
    }
}

message! {
    /// Retention policy of a StatefulSet's claims.
    pub struct StatefulSetPersistentVolumeClaimRetentionPolicy("k8s.io.api.apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy") {
        /// When the set is deleted: `Retain` or `Delete`.
        when_deleted: Text = 1 "whenDeleted",
        /// When the set is scaled down: `Retain` or `Delete`.
        when_scaled: Text = 2 "whenScaled",
    }
}

message! {
    /// Where pods are counted from.
    pub struct StatefulSetOrdinals("k8s.io.api.apps.v1.StatefulSetOrdinals") {
        /// The first pod's number.
        start: i32 = 1 "start",
    }
}

message! {
    /// Observed state of a StatefulSet: numbers of replicas, revisions.
    pub struct StatefulSetStatus("k8s.io.api.apps.v1.StatefulSetStatus") {
        /// Generation of the spec that this status is of.
        observed_generation: i64 = 1 "observedGeneration",
        /// Pods.
        replicas: i32 = 2 "replicas",
        /// Ready pods.
        ready_replicas: i32 = 3 "readyReplicas",
        /// Pods of the current revision.
        current_replicas: i32 = 4 "currentReplicas",
        /// Pods of the update revision.
        updated_replicas: i32 = 5 "updatedReplicas",
        /// The revision that pods had before the update.
        current_revision: Text = 6 "currentRevision",
        /// The revision that pods get.
        update_revision: Text = 7 "updateRevision",
        /// How often a revision's name was taken by another.
        collision_count: Option<i32> = 9 "collisionCount",
        /// Conditions.
        conditions: Box<[StatefulSetCondition]> = 10 "conditions",
        /// Available pods.
        available_replicas: i32 = 11 "availableReplicas",
    }
}

message! {
    /// Condition in the status of a StatefulSet.
    pub struct StatefulSetCondition("k8s.io.api.apps.v1.StatefulSetCondition") {
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
