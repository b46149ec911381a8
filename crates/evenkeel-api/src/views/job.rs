//! Jobs.

use crate::Meta;
use crate::decode::{message, view};
use crate::selector::Selector;
use crate::template::Template;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// Runs pods to completion (`batch/v1`).
    pub struct Job("k8s.io.api.batch.v1.Job") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: JobSpec = 2 "spec",
        /// Observed state of the object.
        status: JobStatus = 3 "status",
    }
}

view!(Job, "batch", "v1", "Job", "jobs", true);

message! {
    /// Desired state of a Job.
    pub struct JobSpec("k8s.io.api.batch.v1.JobSpec") {
        /// Pods at a time.
        parallelism: Option<i32> = 1 "parallelism",
        /// Pods that must succeed; where absent, any success completes the Job.
        completions: Option<i32> = 2 "completions",
        /// Seconds that it may be active for.
        active_deadline_seconds: Option<i64> = 3 "activeDeadlineSeconds",
        /// `podFailurePolicy`.
        pod_failure_policy: Option<Box<PodFailurePolicy>> = 11 "podFailurePolicy",
        /// When it is complete before all of its indexes are.
        success_policy: Option<Box<SuccessPolicy>> = 16 "successPolicy",
        /// Failed pods that it bears.
        backoff_limit: Option<i32> = 7 "backoffLimit",
        /// Failed pods that each index bears.
        backoff_limit_per_index: Option<i32> = 12 "backoffLimitPerIndex",
        /// Failed indexes that it bears.
        max_failed_indexes: Option<i32> = 13 "maxFailedIndexes",
        /// Which pods are its.
        selector: Selector = 4 "selector",
        /// Template of the pods.
        template: Template = 6 "template",
        /// Seconds after its end when it is deleted.
        ttl_seconds_after_finished: Option<i32> = 8 "ttlSecondsAfterFinished",
        /// `NonIndexed` (also when empty) or `Indexed`.
        completion_mode: Text = 9 "completionMode",
        /// Whether it is to have no pods for now.
        suspend: bool = 10 "suspend",
        /// `TerminatingOrFailed` (also when empty) or `Failed`: which pods are replaced.
        pod_replacement_policy: Text = 14 "podReplacementPolicy",
        /// Controller that manages the Job; empty for the Job controller.
        managed_by: Text = 15 "managedBy",
    }
}

message! {
    /// Policy for failed pods: the first matching rule applies.
    pub struct PodFailurePolicy("k8s.io.api.batch.v1.PodFailurePolicy") {
        /// In order.
        rules: Box<[PodFailurePolicyRule]> = 1 "rules",
    }
}

message! {
    /// One rule, about exit codes or about conditions.
    pub struct PodFailurePolicyRule("k8s.io.api.batch.v1.PodFailurePolicyRule") {
        /// `FailJob`, `FailIndex`, `Ignore` or `Count`.
        action: Text = 1 "action",
        /// About exit codes.
        on_exit_codes: Option<Box<OnExitCodes>> = 2 "onExitCodes",
        /// About conditions: any of these.
        on_pod_conditions: Box<[OnPodCondition]> = 3 "onPodConditions",
    }
}

message! {
    /// Exit codes that a rule of a pod failure policy matches.
    pub struct OnExitCodes("k8s.io.api.batch.v1.PodFailurePolicyOnExitCodesRequirement") {
        /// Of this container; of any where empty.
        container_name: Text = 1 "containerName",
        /// `In` or `NotIn`.
        operator: Text = 2 "operator",
        /// The codes.
        values: Box<[i32]> = 3 "values",
    }
}

message! {
    /// Pod condition that a rule of a pod failure policy matches.
    pub struct OnPodCondition("k8s.io.api.batch.v1.PodFailurePolicyOnPodConditionsPattern") {
        /// Its type.
        type_: Text = 1 "type",
        /// Its status.
        status: Text = 2 "status",
    }
}

message! {
    /// When a Job is complete before all of its indexes are: when any rule is met.
    pub struct SuccessPolicy("k8s.io.api.batch.v1.SuccessPolicy") {
        /// In order.
        rules: Box<[SuccessPolicyRule]> = 1 "rules",
    }
}

message! {
    /// Indexes that must succeed, or how many of them, or how many of all.
    pub struct SuccessPolicyRule("k8s.io.api.batch.v1.SuccessPolicyRule") {
        /// The indexes, as in `0,2-5`.
        succeeded_indexes: Option<Text> = 1 "succeededIndexes",
        /// How many.
        succeeded_count: Option<i32> = 2 "succeededCount",
    }
}

message! {
    /// Observed state of a Job: numbers of pods, finished indexes, conditions.
    pub struct JobStatus("k8s.io.api.batch.v1.JobStatus") {
        /// Conditions.
        conditions: Box<[JobCondition]> = 1 "conditions",
        /// When it began, or was last resumed.
        start_time: Option<Timestamp> = 2 "startTime",
        /// When it was complete.
        completion_time: Option<Timestamp> = 3 "completionTime",
        /// Pods that run or wait to.
        active: i32 = 4 "active",
        /// Pods that succeeded.
        succeeded: i32 = 5 "succeeded",
        /// Pods that failed.
        failed: i32 = 6 "failed",
        /// Pods that are being deleted.
        terminating: Option<i32> = 11 "terminating",
        /// Indexes that succeeded, as in `0,2-5`.
        completed_indexes: Text = 7 "completedIndexes",
        /// Indexes that failed, where they are counted.
        failed_indexes: Option<Text> = 10 "failedIndexes",
        /// Pods that have ended and are still to be counted.
        uncounted_terminated_pods: Option<Box<UncountedTerminatedPods>> = 8 "uncountedTerminatedPods",
        /// Pods that are ready.
        ready: Option<i32> = 9 "ready",
    }
}

message! {
    /// Uids of pods that have ended and are still to be counted.
    pub struct UncountedTerminatedPods("k8s.io.api.batch.v1.UncountedTerminatedPods") {
        /// Those that succeeded.
        succeeded: Box<[Text]> = 1 "succeeded",
        /// Those that failed.
        failed: Box<[Text]> = 2 "failed",
    }
}

message! {
    /// Condition such as `Complete`, `Failed` or `SuccessCriteriaMet`.
    pub struct JobCondition("k8s.io.api.batch.v1.JobCondition") {
        /// Type of the condition.
        type_: Text = 1 "type",
        /// `True`, `False` or `Unknown`.
        status: Text = 2 "status",
        /// When it was last looked at.
        last_probe_time: Option<Timestamp> = 3 "lastProbeTime",
        /// When the status last changed.
        last_transition_time: Option<Timestamp> = 4 "lastTransitionTime",
        /// Why, in one CamelCase word.
        reason: Text = 5 "reason",
        /// Human-readable message.
        message: Text = 6 "message",
    }
}
