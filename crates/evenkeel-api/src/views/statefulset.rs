//! StatefulSets: template, claim templates, update strategy, and revisions in the status.

use crate::Meta;
use crate::decode::{message, view};
use crate::int_or_string::IntOrString;
use crate::selector::Selector;
use crate::template::{ClaimTemplate, Template};
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// StatefulSet, which runs pods with stable identities and storage (`apps/v1`).
    pub struct StatefulSet("k8s.io.api.apps.v1.StatefulSet") {
        /// Metadata; a pod's name is the set's name with an ordinal.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: StatefulSetSpec = 2 "spec",
        /// Observed state of the object.
        status: StatefulSetStatus = 3 "status",
    }
}

view!(StatefulSet, "apps", "v1", "StatefulSet", "statefulsets", namespaced);

message! {
    /// Desired state of a StatefulSet.
    pub struct StatefulSetSpec("k8s.io.api.apps.v1.StatefulSetSpec") {
        /// Desired number of pods; 1 if absent.
        replicas: Option<i32> = 1 "replicas",
        /// Selector of the pods; immutable, and must match the template's labels.
        selector: Selector = 2 "selector",
        /// Template of the pods.
        template: Template = 3 "template",
        /// Templates of each pod's claims.
        volume_claim_templates: Box<[ClaimTemplate]> = 4 "volumeClaimTemplates",
        /// Headless Service whose domain contains the pods' DNS names.
        service_name: Text = 5 "serviceName",
        /// `OrderedReady` or `Parallel`.
        pod_management_policy: Text = 6 "podManagementPolicy",
        /// Strategy for replacing pods of an older revision.
        update_strategy: StatefulSetUpdateStrategy = 7 "updateStrategy",
        /// Number of unused revisions to keep.
        revision_history_limit: Option<i32> = 8 "revisionHistoryLimit",
        /// Seconds for which a pod must be ready before it counts as available; 0 by default.
        min_ready_seconds: i32 = 9 "minReadySeconds",
        /// Retention policy of the claims.
        persistent_volume_claim_retention_policy: Option<Box<StatefulSetPersistentVolumeClaimRetentionPolicy>> = 10 "persistentVolumeClaimRetentionPolicy",
        /// Ordinals of the pods, which start at 0 if absent.
        ordinals: Option<Box<StatefulSetOrdinals>> = 11 "ordinals",
    }
}

message! {
    /// Strategy for replacing pods of an older template.
    pub struct StatefulSetUpdateStrategy("k8s.io.api.apps.v1.StatefulSetUpdateStrategy") {
        /// `RollingUpdate` or `OnDelete`.
        type_: Text = 1 "type",
        /// Limits of a rolling update; only with type `RollingUpdate`.
        rolling_update: Option<Box<RollingUpdateStatefulSetStrategy>> = 2 "rollingUpdate",
    }
}

message! {
    /// Limits of a rolling update.
    pub struct RollingUpdateStatefulSetStrategy("k8s.io.api.apps.v1.RollingUpdateStatefulSetStrategy") {
        /// Ordinal below which pods keep the old revision; 0 by default.
        partition: Option<i32> = 1 "partition",
        /// Number or percentage of pods that may be unavailable during the update; 1 by default.
        max_unavailable: Option<IntOrString> = 2 "maxUnavailable",
    }
}

message! {
    /// Retention policy of a StatefulSet's claims.
    pub struct StatefulSetPersistentVolumeClaimRetentionPolicy("k8s.io.api.apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy") {
        /// Policy when the set is deleted: `Retain` or `Delete`.
        when_deleted: Text = 1 "whenDeleted",
        /// Policy when the set is scaled down: `Retain` or `Delete`.
        when_scaled: Text = 2 "whenScaled",
    }
}

message! {
    /// Ordinals of the pods.
    pub struct StatefulSetOrdinals("k8s.io.api.apps.v1.StatefulSetOrdinals") {
        /// Ordinal of the first pod.
        start: i32 = 1 "start",
    }
}

message! {
    /// Observed state of a StatefulSet: numbers of replicas, revisions.
    pub struct StatefulSetStatus("k8s.io.api.apps.v1.StatefulSetStatus") {
        /// Generation of the spec that the controller has observed.
        observed_generation: i64 = 1 "observedGeneration",
        /// Number of pods that the controller has created.
        replicas: i32 = 2 "replicas",
        /// Number of pods whose condition `Ready` is true.
        ready_replicas: i32 = 3 "readyReplicas",
        /// Number of pods of the current revision.
        current_replicas: i32 = 4 "currentReplicas",
        /// Number of pods of the update revision.
        updated_replicas: i32 = 5 "updatedReplicas",
        /// Revision of the pods before the update.
        current_revision: Text = 6 "currentRevision",
        /// Revision that the update rolls out.
        update_revision: Text = 7 "updateRevision",
        /// Number of hash collisions in names of revisions so far.
        collision_count: Option<i32> = 9 "collisionCount",
        /// Conditions. Upstream sets none yet, but existing ones are kept.
        conditions: Box<[StatefulSetCondition]> = 10 "conditions",
        /// Number of pods that have been ready for `minReadySeconds`.
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
        /// Time of the last change of the status.
        last_transition_time: Option<Timestamp> = 3 "lastTransitionTime",
        /// Reason for the last transition, in CamelCase.
        reason: Text = 4 "reason",
        /// Details of the last transition, for people.
        message: Text = 5 "message",
    }
}
