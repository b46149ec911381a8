//! Jobs: limits, completion mode, policies, counts and conditions.

use crate::Meta;
use crate::decode::{message, view};
use crate::selector::Selector;
use crate::template::Template;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// Job, which runs pods to completion (`batch/v1`).
    pub struct Job("k8s.io.api.batch.v1.Job") {
        /// Metadata. The Job's name is the prefix of its pods' names.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: JobSpec = 2 "spec",
        /// Observed state of the object.
        status: JobStatus = 3 "status",
    }
}

view!(Job, "batch", "v1", "Job", "jobs", namespaced);

message! {
    /// Desired state of a Job.
    pub struct JobSpec("k8s.io.api.batch.v1.JobSpec") {
        /// Maximum number of pods that run concurrently; 1 by default.
        parallelism: Option<i32> = 1 "parallelism",
        /// Number of pods that must succeed; if absent, a single success completes the Job.
        completions: Option<i32> = 2 "completions",
        /// Seconds after the start time at which the Job fails; suspension resets the start time.
        active_deadline_seconds: Option<i64> = 3 "activeDeadlineSeconds",
        /// Policy for failed pods; if absent, each failure counts toward `backoffLimit`.
        pod_failure_policy: Option<Box<PodFailurePolicy>> = 11 "podFailurePolicy",
        /// Policy by which an Indexed Job can succeed before all its indexes have succeeded.
        success_policy: Option<Box<SuccessPolicy>> = 16 "successPolicy",
        /// Number of retries after failed pods before the Job fails; 6 by default.
        backoff_limit: Option<i32> = 7 "backoffLimit",
        /// Number of retries per index before the index fails; no limit per index if absent.
        backoff_limit_per_index: Option<i32> = 12 "backoffLimitPerIndex",
        /// Number of failed indexes above which the Job fails; if absent, the other indexes continue.
        max_failed_indexes: Option<i32> = 13 "maxFailedIndexes",
        /// Selector of the pods, generated from the uid unless `manualSelector` is set.
        selector: Selector = 4 "selector",
        /// Template of the pods.
        template: Template = 6 "template",
        /// Seconds from the end of the Job to its deletion; if absent, the Job is kept.
        ttl_seconds_after_finished: Option<i32> = 8 "ttlSecondsAfterFinished",
        /// `NonIndexed` (also when empty) or `Indexed`.
        completion_mode: Text = 9 "completionMode",
        /// Whether the Job is suspended: the controller deletes its active pods and creates none.
        suspend: bool = 10 "suspend",
        /// When to replace a pod: once it is terminating or has failed (`TerminatingOrFailed`, also when empty), or only
        /// once it has failed (`Failed`).
        pod_replacement_policy: Text = 14 "podReplacementPolicy",
        /// Controller that manages the Job; empty for the Job controller.
        managed_by: Text = 15 "managedBy",
    }
}

message! {
    /// Policy for failed pods. The first matching rule applies.
    pub struct PodFailurePolicy("k8s.io.api.batch.v1.PodFailurePolicy") {
        /// Rules in order of evaluation, at most 20.
        rules: Box<[PodFailurePolicyRule]> = 1 "rules",
    }
}

message! {
    /// Action for failed pods that match an exit code or a condition.
    pub struct PodFailurePolicyRule("k8s.io.api.batch.v1.PodFailurePolicyRule") {
        /// `FailJob`, `FailIndex`, `Ignore` or `Count`.
        action: Text = 1 "action",
        /// Exit codes that the rule matches; absent in a rule on conditions.
        on_exit_codes: Option<Box<OnExitCodes>> = 2 "onExitCodes",
        /// Pod conditions; the rule matches a pod with any one of them. Empty in a rule on exit codes.
        on_pod_conditions: Box<[OnPodCondition]> = 3 "onPodConditions",
    }
}

message! {
    /// Exit codes that a rule of a pod failure policy matches.
    pub struct OnExitCodes("k8s.io.api.batch.v1.PodFailurePolicyOnExitCodesRequirement") {
        /// Name of the container; empty for any container.
        container_name: Text = 1 "containerName",
        /// `In` or `NotIn`.
        operator: Text = 2 "operator",
        /// Exit codes, sorted and without duplicates; `In` does not allow 0.
        values: Box<[i32]> = 3 "values",
    }
}

message! {
    /// Pod condition that a rule of a pod failure policy matches.
    pub struct OnPodCondition("k8s.io.api.batch.v1.PodFailurePolicyOnPodConditionsPattern") {
        /// Type of the pod condition, such as `DisruptionTarget`.
        type_: Text = 1 "type",
        /// `True` (the default), `False` or `Unknown`.
        status: Text = 2 "status",
    }
}

message! {
    /// Policy by which an Indexed Job can succeed before all its indexes have succeeded.
    pub struct SuccessPolicy("k8s.io.api.batch.v1.SuccessPolicy") {
        /// Rules in order of evaluation; the first that is met completes the Job.
        rules: Box<[SuccessPolicyRule]> = 1 "rules",
    }
}

message! {
    /// Rule that is met when enough of the given indexes have succeeded.
    pub struct SuccessPolicyRule("k8s.io.api.batch.v1.SuccessPolicyRule") {
        /// Indexes that count, such as `0,2-5`; absent for all.
        succeeded_indexes: Option<Text> = 1 "succeededIndexes",
        /// Number of these indexes that must succeed; all of them if absent.
        succeeded_count: Option<i32> = 2 "succeededCount",
    }
}

message! {
    /// Observed state of a Job: numbers of pods, finished indexes, conditions.
    pub struct JobStatus("k8s.io.api.batch.v1.JobStatus") {
        /// Conditions: `Suspended`, `SuccessCriteriaMet`, `FailureTarget`, and at the end `Complete` or `Failed`.
        conditions: Box<[JobCondition]> = 1 "conditions",
        /// Time at which the controller started or resumed the Job; absent while it is suspended.
        start_time: Option<Timestamp> = 2 "startTime",
        /// Time at which the Job completed successfully.
        completion_time: Option<Timestamp> = 3 "completionTime",
        /// Number of pods that are pending or running, and not terminating.
        active: i32 = 4 "active",
        /// Number of pods that reached the phase `Succeeded`.
        succeeded: i32 = 5 "succeeded",
        /// Number of pods that reached the phase `Failed`.
        failed: i32 = 6 "failed",
        /// Number of pods that are terminating.
        terminating: Option<i32> = 11 "terminating",
        /// Indexes that have succeeded, such as `0,2-5`.
        completed_indexes: Text = 7 "completedIndexes",
        /// Indexes that have failed, such as `0,2-5`; absent without `backoffLimitPerIndex`.
        failed_indexes: Option<Text> = 10 "failedIndexes",
        /// Finished pods that the counters do not include yet.
        uncounted_terminated_pods: Option<Box<UncountedTerminatedPods>> = 8 "uncountedTerminatedPods",
        /// Number of active pods whose condition `Ready` is true.
        ready: Option<i32> = 9 "ready",
    }
}

message! {
    /// Uids of finished pods that the counters do not include yet.
    pub struct UncountedTerminatedPods("k8s.io.api.batch.v1.UncountedTerminatedPods") {
        /// Uids of the pods that succeeded.
        succeeded: Box<[Text]> = 1 "succeeded",
        /// Uids of the pods that failed.
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
        /// Time at which the condition was last checked.
        last_probe_time: Option<Timestamp> = 3 "lastProbeTime",
        /// Time of the last change of the status.
        last_transition_time: Option<Timestamp> = 4 "lastTransitionTime",
        /// Reason for the last transition, in CamelCase.
        reason: Text = 5 "reason",
        /// Details of the last transition, for people.
        message: Text = 6 "message",
    }
}
