//! Validation of the API group batch.

use super::job_policies::{pod_failure_policy, success_policy};
use super::{labels, names, pod};
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{self, get, int, list, object, text};
use serde_json::{Value, json};

/// Maximum `parallelism` and `maxFailedIndexes` of an Indexed Job, because the status lists indexes in a string.
const MAX_OF_INDEXED: i64 = 100_000;

/// Number of completions above which `parallelism` and `maxFailedIndexes` have a lower maximum.
const MANY_COMPLETIONS: i64 = 100_000;

/// Maximum `parallelism` and `maxFailedIndexes` with more than [`MANY_COMPLETIONS`] completions and a backoff limit
/// per index.
const MAX_WITH_MANY_COMPLETIONS: i64 = 10_000;

/// Maximum length of `managedBy` in bytes.
const MAX_MANAGED_BY: usize = 63;

pub(crate) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    match kind {
        "Job" => job(new, errors),
        "CronJob" => cron_job(new, None, errors),
        _ => {}
    }
}

pub(crate) fn update(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    match kind {
        "Job" => job_update(new, old, errors),
        "CronJob" => cron_job(new, Some(old), errors),
        _ => {}
    }
}

/// Validates a new Job, including the pods' labels and the selector, which the server generates.
///
/// Upstream: `ValidateJobCreate`.
fn job(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let Some(spec) = new.get("spec") else { return };
    if get(spec, "selector").is_some() {
        generated_selector(new, errors);
    }
    job_spec(spec, &path, errors);
    selector(spec, &path, errors);
    name(new, errors);
}

/// Requires a valid selector that matches the labels of the pod template.
///
/// Upstream: `ValidateJobSpec`.
fn selector(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut selector_errors = Errors::default();
    match get(spec, "selector") {
        None => errors.required(&path.field("selector"), ""),
        Some(selector) => {
            labels::selector(selector, &path.field("selector"), errors);
            labels::selector(selector, &path.field("selector"), &mut selector_errors);
        }
    }
    // A missing selector matches no pods. An invalid selector is not evaluated.
    let template_labels = object(spec, "template.metadata.labels");
    if selector_errors.is_empty() && !labels::selects(get(spec, "selector"), template_labels) {
        let labels = get(spec, "template.metadata.labels").cloned().unwrap_or_default();
        let template = path.field("template");
        let detail = "`selector` does not match template `labels`";
        errors.invalid(&template.field("metadata").field("labels"), labels, detail);
    }
}

/// Requires that the hostname of the pod with the last index is a DNS label.
///
/// Upstream: `validateNameAllowsCompletions`.
fn name(new: &Value, errors: &mut Errors) {
    let completions = int(new, "spec.completions").unwrap_or_default();
    if text(new, "spec.completionMode") != "Indexed" || completions <= 0 {
        return;
    }
    let name = text(new, "metadata.name");
    let hostname = format!("{name}-{}", completions - 1);
    if !names::dns_label(&hostname).is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {hostname}");
        errors.invalid(&Path::new("metadata").field("name"), name, &detail);
    }
}

/// Requires the labels and the selector that the server generates from the Job's uid and name.
///
/// Upstream: `validateGeneratedSelector`.
fn generated_selector(new: &Value, errors: &mut Errors) {
    if value::flag(new, "spec.manualSelector") {
        return;
    }
    let labels = object(new, "spec.template.metadata.labels");
    let (uid, name) = (text(new, "metadata.uid"), text(new, "metadata.name"));
    let path = Path::new("spec.template.metadata.labels");
    for (key, expected) in [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ] {
        let (path, detail) = (path.key(key), format!("must be '{expected}'"));
        match labels.and_then(|labels| labels.get(key)).and_then(Value::as_str) {
            None => errors.required(&path, &detail),
            Some(label) if label != expected => {
                let labels = Value::Object(labels.cloned().unwrap_or_default());
                errors.invalid(&path, labels, &detail);
            }
            Some(_) => {}
        }
    }
    let generated = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    if get(new, "spec.selector").is_some_and(|selector| *selector != generated) {
        let selector = get(new, "spec.selector").cloned().unwrap_or_default();
        errors.invalid(&Path::new("spec.selector"), selector, "`selector` not auto-generated");
    }
}

/// Validates a Job's spec except for its selector.
///
/// Upstream: `validateJobSpec`.
fn job_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.non_negative(&path.field(field), int(spec, field));
    }
    if get(spec, "maxFailedIndexes").is_some() && get(spec, "backoffLimitPerIndex").is_none() {
        errors.required(&path.field("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if let Some(manager) = get(spec, "managedBy").and_then(Value::as_str) {
        managed_by(manager, &path.field("managedBy"), errors);
    }
    completion_mode(spec, path, errors);
    if let Some(policy) = get(spec, "podFailurePolicy") {
        pod_failure_policy(spec, policy, &path.field("podFailurePolicy"), errors);
    }
    if let Some(policy) = get(spec, "successPolicy") {
        let path = path.field("successPolicy");
        if text(spec, "completionMode") == "Indexed" {
            let completions = int(spec, "completions").unwrap_or_default();
            success_policy(policy, completions, &path, errors);
        } else {
            let policy = quoted("*batch.SuccessPolicy", Some(policy));
            errors.invalid(&path, policy, "requires indexed completion mode");
        }
    }
    if let Some(policy) = get(spec, "podReplacementPolicy").and_then(Value::as_str) {
        let path = path.field("podReplacementPolicy");
        let supported: &[&str] = match get(spec, "podFailurePolicy") {
            Some(_) => &["Failed"],
            None => &["Failed", "TerminatingOrFailed"],
        };
        if !supported.contains(&policy) {
            errors.not_supported(&path, policy, supported);
        }
    }
    let template_path = path.field("template");
    let template = get(spec, "template").cloned().unwrap_or_else(|| json!({}));
    pod::template(&template, &template_path, errors);
    let restart_path = template_path.field("spec");
    let restart_path = restart_path.field("restartPolicy");
    match text(&template, "spec.restartPolicy") {
        "" | "Always" => {
            errors.required(&restart_path, "valid values: \"OnFailure\", \"Never\"");
        }
        "Never" => {}
        "OnFailure" if get(spec, "podFailurePolicy").is_none() => {}
        "OnFailure" => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.invalid(&restart_path, "OnFailure", detail);
        }
        other => errors.not_supported(&restart_path, other, &["OnFailure", "Never"]),
    }
}

/// Requires a domain-prefixed path such as `acme.io/foo`.
///
/// Upstream: `IsDomainPrefixedPath`.
fn managed_by(manager: &str, path: &Path<'_>, errors: &mut Errors) {
    match manager.split_once('/') {
        _ if manager.is_empty() => errors.required(path, ""),
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
            errors.invalid_for_each(path, host, &names::dns_subdomain(host));
        }
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.invalid(path, manager, detail);
        }
    }
    if manager.len() > MAX_MANAGED_BY {
        errors.too_long(path, MAX_MANAGED_BY);
    }
}

/// Validates the fields that depend on the completion mode.
fn completion_mode(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mode = text(spec, "completionMode");
    if mode != "Indexed" {
        if get(spec, "completionMode").is_some() && mode != "NonIndexed" {
            let supported = ["NonIndexed", "Indexed"];
            errors.not_supported(&path.field("completionMode"), mode, &supported);
            return;
        }
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(number) = int(spec, field) {
                errors.invalid(&path.field(field), number, "requires indexed completion mode");
            }
        }
        return;
    }
    let completions = int(spec, "completions");
    if completions.is_none() {
        errors.required(&path.field("completions"), "when completion mode is Indexed");
    }
    let indexed = " when completion mode is Indexed";
    at_most(spec, "parallelism", MAX_OF_INDEXED, indexed, path, errors);
    let max_failed = int(spec, "maxFailedIndexes");
    if let (Some(completions), Some(max_failed)) = (completions, max_failed)
        && max_failed > completions
    {
        let detail = "must be less than or equal to completions";
        errors.invalid(&path.field("maxFailedIndexes"), max_failed, detail);
    }
    at_most(spec, "maxFailedIndexes", MAX_OF_INDEXED, "", path, errors);
    let has_many_completions = completions.is_some_and(|count| count > MANY_COMPLETIONS);
    if has_many_completions && int(spec, "backoffLimitPerIndex").is_some() {
        let when = format!(
            " when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
        );
        if max_failed.is_none() {
            let detail = format!("must be specified when completions is above {MANY_COMPLETIONS}");
            errors.required(&path.field("maxFailedIndexes"), &detail);
        }
        at_most(spec, "parallelism", MAX_WITH_MANY_COMPLETIONS, &when, path, errors);
        at_most(spec, "maxFailedIndexes", MAX_WITH_MANY_COMPLETIONS, &when, path, errors);
    }
}

/// Rejects a number above the maximum. The error ends with `when`, the case in which the maximum applies.
fn at_most(
    spec: &Value,
    field: &str,
    maximum: i64,
    when: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if let Some(number) = int(spec, field).filter(|number| *number > maximum) {
        let detail = format!("must be less than or equal to {maximum}{when}");
        errors.invalid(&path.field(field), number, &detail);
    }
}

/// Validates an updated Job: the new spec, and the fields that are immutable.
///
/// Upstream: `ValidateJobSpecUpdate`.
fn job_update(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let (Some(after), Some(before)) = (new.get("spec"), old.get("spec")) else { return };
    job_spec(after, &path, errors);
    selector(after, &path, errors);
    let completions = path.field("completions");
    if text(after, "completionMode") != "Indexed" {
        errors.immutable(&completions, get(after, "completions"), get(before, "completions"));
    } else if let Some(count) = int(after, "completions")
        && int(before, "completions") != Some(count)
        && int(after, "parallelism") != Some(count)
    {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.invalid(&completions, count, detail);
    }
    let mut immutable = |field: &str, type_name| {
        let (new, old) = (get(after, field), get(before, field));
        errors.immutable_pointer(&path.field(field), new, old, |new| quoted(type_name, new));
    };
    immutable("selector", "*v1.LabelSelector");
    template_update(new, old, errors);
    let mut immutable = |field: &str, type_name| {
        let (new, old) = (get(after, field), get(before, field));
        errors.immutable_pointer(&path.field(field), new, old, |new| quoted(type_name, new));
    };
    immutable("completionMode", "*s");
    immutable("podFailurePolicy", "*batch.PodFailurePolicy");
    immutable("backoffLimitPerIndex", "*i");
    immutable("managedBy", "*s");
    immutable("successPolicy", "*batch.SuccessPolicy");
}

/// Rejects changes of the pod template. While a Job is suspended and has no active pods, its scheduling constraints,
/// labels, annotations and container resources may change.
///
/// Upstream: `validatePodTemplateUpdate`, `shouldAllowMutablePodTemplate`.
fn template_update(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let (Some(after), Some(before)) = (new.get("spec"), old.get("spec")) else { return };
    // The new template, with the old values of the fields that may change.
    let mut allowed = get(after, "template").cloned().unwrap_or_default();
    let mut old_template = get(before, "template").cloned().unwrap_or_default();
    let is_mutable = has_mutable_template(old);
    if is_mutable {
        for field in [
            "metadata.annotations",
            "metadata.labels",
            "spec.nodeSelector",
            "spec.tolerations",
            "spec.schedulingGates",
        ] {
            value::copy(&mut allowed, &old_template, field);
        }
        for containers in ["containers", "initContainers"] {
            for (index, container) in
                list(&old_template, &format!("spec.{containers}")).iter().enumerate()
            {
                let target = allowed.pointer_mut(&format!("/spec/{containers}/{index}"));
                if let Some(target) = target {
                    value::copy(target, container, "resources");
                }
            }
        }
        for template in [&mut allowed, &mut old_template] {
            value::remove(template, "spec.affinity.nodeAffinity");
            if object(template, "spec.affinity").is_none_or(serde_json::Map::is_empty) {
                value::remove(template, "spec.affinity");
            }
        }
    }
    if allowed == old_template {
        return;
    }
    let path = path.field("template");
    if is_mutable {
        let spec = || quoted("core.PodSpec", get(after, "template.spec"));
        errors.invalid_large(&path.field("spec"), spec, "field is immutable");
    } else {
        let template = || quoted("core.PodTemplateSpec", get(after, "template"));
        errors.invalid_large(&path, template, "field is immutable");
    }
}

/// Returns whether parts of a Job's pod template may change: it is suspended, by now also in its status, and no pod is
/// active.
fn has_mutable_template(job: &Value) -> bool {
    let is_stopped = get(job, "status.startTime").is_none()
        || list(job, "status.conditions").iter().any(|condition| {
            text(condition, "type") == "Suspended" && text(condition, "status") == "True"
        });
    value::flag(job, "spec.suspend") && is_stopped && int(job, "status.active").unwrap_or(0) == 0
}

/// Upstream: `validateCronJobSpec`.
fn cron_job(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("spec");
    let Some(spec) = new.get("spec") else { return };
    match text(spec, "schedule") {
        // Declarative validation reports this at the end.
        "" => {}
        schedule => {
            let has_time_zone = schedule.contains("TZ");
            let is_changed = old.is_none_or(|old| text(old, "spec.schedule") != schedule);
            if has_time_zone && is_changed {
                let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
                errors.invalid(&path.field("schedule"), schedule, detail);
            } else if !has_time_zone
                && let Err(detail) = evenkeel_component_helpers::cron::Schedule::parse(schedule)
            {
                errors.invalid(&path.field("schedule"), schedule, &detail);
            }
        }
    }
    if let Some(zone) = get(spec, "timeZone").and_then(Value::as_str) {
        if zone.is_empty() {
            errors.invalid(
                &path.field("timeZone"),
                zone,
                "timeZone must be nil or non-empty string",
            );
        } else if zone.eq_ignore_ascii_case("local") {
            let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
            errors.invalid(&path.field("timeZone"), zone, detail);
        } else if evenkeel_component_helpers::cron::time_zone(zone).is_none() {
            errors.invalid(&path.field("timeZone"), zone, &format!("unknown time zone {zone}"));
        }
    }
    errors
        .non_negative(&path.field("startingDeadlineSeconds"), int(spec, "startingDeadlineSeconds"));
    errors.required_one_of(
        &path.field("concurrencyPolicy"),
        text(spec, "concurrencyPolicy"),
        &["Allow", "Forbid", "Replace"],
    );
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.non_negative(&path.field(field), int(spec, field));
    }
    let template = path.field("jobTemplate");
    let job_path = template.field("spec");
    if let Some(job) = get(spec, "jobTemplate.spec") {
        if get(job, "selector").is_some() {
            let selector = get(job, "selector").cloned().unwrap_or_default();
            errors.invalid(
                &job_path.field("selector"),
                selector,
                "`selector` will be auto-generated",
            );
        }
        if value::flag(job, "manualSelector") {
            errors.not_supported(&job_path.field("manualSelector"), true, &["nil", "false"]);
        }
        job_spec(job, &job_path, errors);
    }
    if old.is_none() && text(new, "metadata.name").len() > 52 {
        let meta = Path::new("metadata");
        errors.invalid(
            &meta.field("name"),
            text(new, "metadata.name"),
            "must be no more than 52 characters",
        );
    }
    if text(spec, "schedule").is_empty() {
        errors.required(&path.field("schedule"), "");
    }
}
