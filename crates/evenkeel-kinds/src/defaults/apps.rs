//! Defaults of the API groups apps and batch.

use super::Fill::{Flag, Int, Object, Optional, Text};
use super::{Table, fill, labels_from_template, pod_spec};
use evenkeel_apimachinery::value::{self, each, get, text};
use serde_json::{Value, json};

const DEPLOYMENT: Table = &[
    ("spec.replicas", Int(1)),
    ("spec.strategy.type", Text("RollingUpdate")),
    ("spec.revisionHistoryLimit", Int(10)),
    ("spec.progressDeadlineSeconds", Int(600)),
];
const DEPLOYMENT_ROLLING: Table = &[
    ("spec.strategy.rollingUpdate.maxUnavailable", Optional("25%")),
    ("spec.strategy.rollingUpdate.maxSurge", Optional("25%")),
];
const DAEMON_SET: Table =
    &[("spec.updateStrategy.type", Text("RollingUpdate")), ("spec.revisionHistoryLimit", Int(10))];
const DAEMON_SET_ROLLING: Table = &[
    ("spec.updateStrategy.rollingUpdate.maxUnavailable", Int(1)),
    ("spec.updateStrategy.rollingUpdate.maxSurge", Int(0)),
];
const STATEFUL_SET: Table = &[
    ("spec.podManagementPolicy", Text("OrderedReady")),
    ("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", Text("Retain")),
    ("spec.persistentVolumeClaimRetentionPolicy.whenScaled", Text("Retain")),
    ("spec.replicas", Int(1)),
    ("spec.revisionHistoryLimit", Int(10)),
    ("spec.volumeClaimTemplates.*.spec.volumeMode", Optional("Filesystem")),
    ("spec.volumeClaimTemplates.*.status.phase", Text("Pending")),
];
const STATEFUL_SET_ROLLING: Table = &[
    ("spec.updateStrategy.rollingUpdate?.partition", Int(0)),
    ("spec.updateStrategy.rollingUpdate?.maxUnavailable", Int(1)),
];
const JOB_SPEC: Table = &[
    ("completionMode", Optional("NonIndexed")),
    ("suspend", Flag(false)),
    ("manualSelector", Flag(false)),
];
const POD_FAILURE_POLICY: Table =
    &[("podFailurePolicy?.rules.*.onPodConditions.*.status", Text("True"))];
const CRON_JOB: Table = &[
    ("spec.concurrencyPolicy", Text("Allow")),
    ("spec.suspend", Flag(false)),
    ("spec.successfulJobsHistoryLimit", Int(3)),
    ("spec.failedJobsHistoryLimit", Int(1)),
];

pub(crate) fn apply(kind: &str, object: &mut Value) {
    match kind {
        "Deployment" => {
            fill(object, DEPLOYMENT);
            if text(object, "spec.strategy.type") == "RollingUpdate" {
                fill(object, DEPLOYMENT_ROLLING);
            }
        }
        "ReplicaSet" => fill(object, &[("spec.replicas", Int(1))]),
        "DaemonSet" => {
            fill(object, DAEMON_SET);
            template_generation(object);
            if text(object, "spec.updateStrategy.type") == "RollingUpdate" {
                fill(object, DAEMON_SET_ROLLING);
            }
        }
        "StatefulSet" => stateful_set(object),
        "Job" => job(object),
        "CronJob" => {
            fill(object, CRON_JOB);
            each(object, "spec.jobTemplate.spec", &mut |spec| fill(spec, POD_FAILURE_POLICY));
            each(object, "spec.jobTemplate.spec.template.spec", &mut pod_spec);
        }
        _ => {}
    }
    if kind != "CronJob" {
        each(object, "spec?.template?.spec?", &mut pod_spec);
    }
}

/// Sets the defaults of a StatefulSet, such as the update strategy `RollingUpdate`.
///
/// Upstream: `SetDefaults_StatefulSet`.
fn stateful_set(set: &mut Value) {
    if text(set, "spec.updateStrategy.type").is_empty() {
        value::set(set, "spec.updateStrategy.type", "RollingUpdate");
        fill(set, &[("spec.updateStrategy.rollingUpdate", Object)]);
    }
    if text(set, "spec.updateStrategy.type") == "RollingUpdate" {
        fill(set, STATEFUL_SET_ROLLING);
    }
    fill(set, STATEFUL_SET);
    each(set, "spec.volumeClaimTemplates.*", &mut |claim| {
        value::set(claim, "apiVersion", "v1");
        value::set(claim, "kind", "PersistentVolumeClaim");
    });
}

/// Sets the defaults of a Job. Some of them depend on other fields.
///
/// Upstream: `SetDefaults_Job`.
fn job(job: &mut Value) {
    labels_from_template(job);
    each(job, "spec", &mut |spec| {
        if get(spec, "completions").is_none() && get(spec, "parallelism").is_none() {
            value::set(spec, "completions", 1);
        }
        fill(spec, &[("parallelism", Int(1))]);
        if get(spec, "backoffLimit").is_none() {
            let has_limit_per_index = get(spec, "backoffLimitPerIndex").is_some();
            let limit = if has_limit_per_index { i32::MAX } else { 6 };
            value::set(spec, "backoffLimit", json!(limit));
        }
        if get(spec, "podReplacementPolicy").is_none() {
            let has_failure_policy = get(spec, "podFailurePolicy").is_some();
            let policy = if has_failure_policy { "Failed" } else { "TerminatingOrFailed" };
            value::set(spec, "podReplacementPolicy", policy);
        }
        fill(spec, JOB_SPEC);
        fill(spec, POD_FAILURE_POLICY);
    });
}

/// Sets the annotation with a DaemonSet's template generation to 0 if it is absent.
fn template_generation(set: &mut Value) {
    if let Some(annotations) = value::object_mut(set, "metadata.annotations") {
        annotations.entry("deprecated.daemonset.template.generation").or_insert_with(|| json!("0"));
    }
}
