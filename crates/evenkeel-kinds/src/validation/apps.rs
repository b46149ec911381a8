//! Validation of the API group apps.

use super::{ValidationTarget, labels, names, persistentvolumeclaim, pod};
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{self, get, int, is_empty, list, object, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(crate) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    match kind {
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" => {
            if kind == "StatefulSet" {
                stateful_set_immutable(new, errors);
            }
            selector_and_template(kind, new, TemplateCheck::Full, errors);
            by_kind(kind, new, errors);
        }
        "ControllerRevision" => revision(new, errors),
        _ => {}
    }
}

pub(crate) fn update(target: ValidationTarget<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    if target.subresource == "status" {
        return status(target.kind, new, old, errors);
    }
    match target.kind {
        "DaemonSet" => {
            immutable("selector", "*v1.LabelSelector", new, old, errors);
            selector_and_template(target.kind, new, TemplateCheck::Full, errors);
            by_kind(target.kind, new, errors);
        }
        "Deployment" | "ReplicaSet" => {
            selector_and_template(target.kind, new, TemplateCheck::Full, errors);
            by_kind(target.kind, new, errors);
            immutable("selector", "*v1.LabelSelector", new, old, errors);
        }
        "StatefulSet" => {
            // A StatefulSet whose stored template is invalid can still be scaled and deleted.
            let mut old_errors = Errors::default();
            selector_and_template(target.kind, old, TemplateCheck::Full, &mut old_errors);
            by_kind(target.kind, old, &mut old_errors);
            let check =
                if old_errors.is_empty() { TemplateCheck::Full } else { TemplateCheck::Workload };
            selector_and_template(target.kind, new, check, errors);
            by_kind(target.kind, new, errors);
            stateful_set_update(new, old, errors);
        }
        "ControllerRevision" => {
            errors.non_negative(&Path::new("revision"), int(new, "revision"));
            errors.immutable(&Path::new("data"), new.get("data"), old.get("data"));
        }
        _ => {}
    }
}

/// Rules that apply to the pod template of a workload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TemplateCheck {
    /// All rules for pod templates, and the rules of the workload.
    Full,
    /// Only the rules of the workload, such as for the restart policy.
    Workload,
}

/// Validates the selector, the pod template, and that the selector matches the labels of the template.
fn selector_and_template(kind: &str, new: &Value, check: TemplateCheck, errors: &mut Errors) {
    let path = Path::new("spec");
    // Names in the errors. Upstream has the same messages for ReplicaSets and Deployments.
    let (selector_owner, template_owner) = match kind {
        "StatefulSet" => ("statefulset", kind),
        "DaemonSet" => ("daemonset", kind),
        _ => ("deployment", "ReplicaSet"),
    };
    let (selector, selector_path) = (get(new, "spec.selector"), path.field("selector"));
    let mut selector_errors = Errors::default();
    match selector {
        None if kind == "DaemonSet" => {}
        None => errors.required(&selector_path, ""),
        Some(selector) => {
            labels::selector(selector, &selector_path, errors);
            labels::selector(selector, &selector_path, &mut selector_errors);
            if is_empty(selector, "matchLabels") && is_empty(selector, "matchExpressions") {
                let detail = format!("empty selector is invalid for {selector_owner}");
                let selector = quoted("*v1.LabelSelector", Some(selector));
                errors.invalid(&selector_path, selector, &detail);
            }
        }
    }
    let labels = object(new, "spec.template.metadata.labels");
    let template_path = path.field("template");
    // A missing selector matches no labels. An invalid selector cannot be evaluated. An empty selector has already been
    // reported.
    let is_valid = selector_errors.is_empty();
    let is_empty_selector = selector.is_some_and(value::is_blank);
    if !is_valid && kind != "DaemonSet" {
        let detail = if kind == "StatefulSet" { "" } else { "invalid label selector" };
        let selector = quoted("*v1.LabelSelector", selector);
        return errors.invalid(&selector_path, selector, detail);
    } else if is_valid && !is_empty_selector && !labels::selects(selector, labels) {
        let labels = labels.cloned().map_or(Value::Null, Value::Object);
        let detail = "`selector` does not match template `labels`";
        errors.invalid(&template_path.field("metadata").field("labels"), labels, detail);
    }
    if let Some(template) = get(new, "spec.template") {
        match check {
            TemplateCheck::Full if kind == "StatefulSet" => {
                pod::template(&template_of_pods(new, template), &template_path, errors);
            }
            TemplateCheck::Full => pod::template(template, &template_path, errors),
            TemplateCheck::Workload => {}
        }
        let policy = text(template, "spec.restartPolicy");
        if policy != "Always" && !policy.is_empty() {
            let path = template_path.field("spec");
            errors.not_supported(&path.field("restartPolicy"), policy, &["Always"]);
        }
        if get(template, "spec.activeDeadlineSeconds").is_some() {
            let path = template_path.field("spec");
            errors.forbidden(
                &path.field("activeDeadlineSeconds"),
                &format!("activeDeadlineSeconds in {template_owner} is not Supported"),
            );
        }
    } else {
        errors.required(&template_path, "");
    }
}

/// Returns a StatefulSet's pod template in the form that the controller instantiates. The volumes of the claim
/// templates come first. Host name and subdomain are absent, because the controller sets them.
fn template_of_pods(set: &Value, template: &Value) -> Value {
    let mut template = template.clone();
    let claims = list(set, "spec.volumeClaimTemplates");
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else {
        return template;
    };
    spec.remove("subdomain");
    spec.remove("hostname");
    if claims.is_empty() {
        return template;
    }
    let names: BTreeSet<&str> = claims.iter().map(|claim| text(claim, "metadata.name")).collect();
    let volume = |name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let mut volumes: Vec<Value> = names.iter().map(volume).collect();
    // A claim template replaces a volume of the same name.
    if let Some(Value::Array(template_volumes)) = spec.remove("volumes") {
        let is_kept = |volume: &Value| !names.contains(text(volume, "name"));
        volumes.extend(template_volumes.into_iter().filter(is_kept));
    }
    spec.insert("volumes".to_owned(), volumes.into());
    template
}

fn by_kind(kind: &str, new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    for field in ["replicas", "minReadySeconds"] {
        errors.non_negative(&path.field(field), int(new, &format!("spec.{field}")));
    }
    if kind != "StatefulSet" {
        let limit = int(new, "spec.revisionHistoryLimit");
        errors.non_negative(&path.field("revisionHistoryLimit"), limit);
    }
    match kind {
        "Deployment" => deployment(new, &path, errors),
        "DaemonSet" => daemon_set(new, &path.field("updateStrategy"), errors),
        "StatefulSet" => stateful_set(new, &path, errors),
        _ => {}
    }
}

/// Validates a non-negative integer or percentage.
///
/// Upstream: `ValidatePositiveIntOrPercent`.
pub(super) fn count_or_percent(value: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Some(Value::String(text)) => {
            let digits = text.strip_suffix('%').filter(|digits| !digits.is_empty());
            if !digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
                let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                             '93%', regex used for validation is '[0-9]+%')";
                errors.invalid(path, text.as_str(), detail);
            }
        }
        Some(Value::Number(number)) => errors.non_negative(path, number.as_i64()),
        _ => {}
    }
}

/// Returns the percentage of a value such as `"25%"`, or `None` if the value is not a percentage.
pub(super) fn percent(value: Option<&Value>) -> Option<i64> {
    let digits = value?.as_str()?.strip_suffix('%')?;
    // `i64::from_str` would also accept a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Returns whether a value is zero or absent. A string that is neither a percentage nor a number counts as zero.
///
/// Upstream: `getIntOrPercentValue`.
fn is_zero(value: Option<&Value>) -> bool {
    match value {
        None => true,
        Some(Value::String(text)) => {
            percent(value).or_else(|| text.parse().ok()).unwrap_or_default() == 0
        }
        Some(value) => value.as_i64() == Some(0),
    }
}

/// Rejects a percentage above 100%.
///
/// Upstream: `IsNotMoreThan100Percent`.
fn at_most_100_percent(value: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    if percent(value).is_some_and(|percent| percent > 100) {
        errors.invalid(path, value.cloned().unwrap_or_default(), "must not be greater than 100%");
    }
}

/// Validates the fields of a Deployment's spec other than selector and template: strategy, rollout parameters and
/// deadlines.
///
/// Upstream: `ValidateDeploymentSpec`.
fn deployment(new: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("strategy");
    let rolling = get(new, "spec.strategy.rollingUpdate");
    match text(new, "spec.strategy.type") {
        "Recreate" => {
            if rolling.is_some() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                errors.forbidden(&path.field("rollingUpdate"), detail);
            }
        }
        "RollingUpdate" => {
            let path = path.field("rollingUpdate");
            let Some(rolling) = rolling else {
                errors.required(&path, "this should be defaulted and never be nil");
                return;
            };
            let (unavailable, surge) = (get(rolling, "maxUnavailable"), get(rolling, "maxSurge"));
            count_or_percent(unavailable, &path.field("maxUnavailable"), errors);
            count_or_percent(surge, &path.field("maxSurge"), errors);
            if is_zero(unavailable) && is_zero(surge) {
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.invalid(
                    &path.field("maxUnavailable"),
                    unavailable.cloned().unwrap_or_default(),
                    detail,
                );
            }
            at_most_100_percent(unavailable, &path.field("maxUnavailable"), errors);
        }
        _ => {
            let strategy = quoted("apps.DeploymentStrategy", get(new, "spec.strategy"));
            errors.not_supported(&path, strategy, &["Recreate", "RollingUpdate"]);
        }
    }
    let deadline = int(new, "spec.progressDeadlineSeconds");
    let spec = Path::new("spec");
    errors.non_negative(&spec.field("progressDeadlineSeconds"), deadline);
    let min_ready_seconds = int(new, "spec.minReadySeconds").unwrap_or_default();
    if deadline.is_some_and(|deadline| deadline <= min_ready_seconds) {
        errors.invalid(
            &spec.field("progressDeadlineSeconds"),
            deadline,
            "must be greater than minReadySeconds",
        );
    }
}

/// Validates the update strategy of a DaemonSet. Exactly one of `maxUnavailable` and `maxSurge` must be non-zero.
///
/// Upstream: `ValidateDaemonSetSpec`.
fn daemon_set(new: &Value, path: &Path<'_>, errors: &mut Errors) {
    match text(new, "spec.updateStrategy.type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let path = path.field("rollingUpdate");
            if get(new, "spec.updateStrategy.rollingUpdate").is_none() {
                return errors.required(&path, "");
            }
            let unavailable = get(new, "spec.updateStrategy.rollingUpdate.maxUnavailable");
            let surge = get(new, "spec.updateStrategy.rollingUpdate.maxSurge");
            count_or_percent(unavailable, &path.field("maxUnavailable"), errors);
            count_or_percent(surge, &path.field("maxSurge"), errors);
            at_most_100_percent(unavailable, &path.field("maxUnavailable"), errors);
            at_most_100_percent(surge, &path.field("maxSurge"), errors);
            match (is_zero(unavailable), is_zero(surge)) {
                (false, false) => {
                    let detail = "may not be set when maxUnavailable is non-zero";
                    errors.invalid(
                        &path.field("maxSurge"),
                        surge.cloned().unwrap_or_default(),
                        detail,
                    );
                }
                (true, true) => {
                    let detail = "cannot be 0 when maxSurge is 0";
                    errors.required(&path.field("maxUnavailable"), detail);
                }
                _ => {}
            }
        }
        _ => {
            let strategy = quoted("apps.DaemonSetUpdateStrategy", get(new, "spec.updateStrategy"));
            errors.not_supported(path, strategy, &["RollingUpdate", "OnDelete"]);
        }
    }
}

/// Validates the fields of a StatefulSet's spec other than selector and template, such as the update strategy.
///
/// Upstream: `ValidateStatefulSetSpec`.
fn stateful_set(new: &Value, path: &Path<'_>, errors: &mut Errors) {
    let policy = text(new, "spec.podManagementPolicy");
    match policy {
        "" => errors.required(&path.field("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        _ => errors.invalid(
            &path.field("podManagementPolicy"),
            policy,
            "must be 'OrderedReady' or 'Parallel'",
        ),
    }
    let strategy = path.field("updateStrategy");
    let rolling = get(new, "spec.updateStrategy.rollingUpdate");
    match text(new, "spec.updateStrategy.type") {
        "" => errors.required(&strategy, ""),
        "OnDelete" => {
            if rolling.is_some() {
                let detail = "only allowed for updateStrategy 'RollingUpdate'";
                let rolling = quoted("*apps.RollingUpdateStatefulSetStrategy", rolling);
                errors.invalid(&strategy.field("rollingUpdate"), rolling, detail);
            }
        }
        "RollingUpdate" => {
            let path = strategy.field("rollingUpdate");
            errors.non_negative(
                &path.field("partition"),
                int(new, "spec.updateStrategy.rollingUpdate.partition"),
            );
            let unavailable = get(new, "spec.updateStrategy.rollingUpdate.maxUnavailable");
            count_or_percent(unavailable, &path.field("maxUnavailable"), errors);
            if unavailable.is_some() && is_zero(unavailable) {
                let detail = "cannot be 0";
                errors.invalid(
                    &path.field("maxUnavailable"),
                    unavailable.cloned().unwrap_or_default(),
                    detail,
                );
            }
            at_most_100_percent(unavailable, &path.field("maxUnavailable"), errors);
        }
        _ => {
            let value = quoted("apps.StatefulSetUpdateStrategy", get(new, "spec.updateStrategy"));
            errors.invalid(&strategy, value, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
    let retention = path.field("persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        let value = text(new, &format!("spec.persistentVolumeClaimRetentionPolicy.{field}"));
        errors.one_of(&retention.field(field), value, &["Retain", "Delete"]);
    }
    errors.non_negative(&path.field("ordinals").field("start"), int(new, "spec.ordinals.start"));
}

/// Validates the fields of a new StatefulSet that an update cannot change.
///
/// Upstream: `validateVolumeClaimTemplates`.
fn stateful_set_immutable(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let claims = path.field("volumeClaimTemplates");
    for (index, claim) in list(new, "spec.volumeClaimTemplates").iter().enumerate() {
        persistentvolumeclaim::create(claim, &claims.index(index).field("spec"), errors);
    }
    let service = text(new, "spec.serviceName");
    if !service.is_empty() {
        errors.invalid_for_each(&path.field("serviceName"), service, &names::dns_label(service));
    }
}

/// Rejects changes of a StatefulSet's immutable fields.
///
/// Upstream: `ValidateStatefulSetUpdate`.
fn stateful_set_update(new: &Value, old: &Value, errors: &mut Errors) {
    for (field, type_name) in [
        ("serviceName", "s"),
        ("podManagementPolicy", "s"),
        ("selector", "*v1.LabelSelector"),
        ("volumeClaimTemplates", "[]core.PersistentVolumeClaim"),
    ] {
        immutable(field, type_name, new, old, errors);
    }
}

/// Rejects a change of a field of the spec. `type_name` is the field's internal type.
fn immutable(field: &str, type_name: &'static str, new: &Value, old: &Value, errors: &mut Errors) {
    let path = format!("spec.{field}");
    let (after, before) = (get(new, &path), get(old, &path));
    let quoted = |value: Option<&Value>| quoted(type_name, value);
    errors.immutable_as(&Path::new(&path), after, before, quoted);
}

/// Validates a ControllerRevision: `revision` is not negative, and `data` is an object.
///
/// Upstream: `validateControllerRevision`.
fn revision(new: &Value, errors: &mut Errors) {
    errors.non_negative(&Path::new("revision"), int(new, "revision"));
    match get(new, "data") {
        None => errors.required(&Path::new("data"), "data is mandatory"),
        Some(Value::Object(_)) => {}
        Some(_) => errors.required(&Path::new("data"), "data must be a valid JSON object"),
    }
}

/// Validates the counts in the status of a workload or ReplicationController.
///
/// Upstream: `ValidateReplicaSetStatus`, `ValidateReplicationControllerStatus`, `ValidateDeploymentStatus`.
pub(super) fn status(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("status");
    for field in [
        "replicas",
        "fullyLabeledReplicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "currentReplicas",
        "observedGeneration",
        "terminatingReplicas",
        "collisionCount",
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "numberMisscheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
    ] {
        errors.non_negative(&path.field(field), int(new, &format!("status.{field}")));
    }
    let count = |field: &str| int(new, &format!("status.{field}")).unwrap_or_default();
    // Each count of pods that may not exceed the replicas.
    let counts: &[&str] = match kind {
        "Deployment" => &["updatedReplicas", "readyReplicas", "availableReplicas"],
        "ReplicaSet" | "ReplicationController" => {
            &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"]
        }
        "StatefulSet" => {
            &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"]
        }
        _ => &[],
    };
    if !counts.is_empty() {
        let replicas = count("replicas");
        for &field in counts {
            if count(field) > replicas {
                let detail = "cannot be greater than status.replicas";
                errors.invalid(&path.field(field), count(field), detail);
            }
        }
        if count("availableReplicas") > count("readyReplicas") {
            let field =
                if kind == "StatefulSet" { "status.readyReplicas" } else { "readyReplicas" };
            let detail = &format!("cannot be greater than {field}");
            errors.invalid(&path.field("availableReplicas"), count("availableReplicas"), detail);
        }
        let field = "status.collisionCount";
        let is_decremented = match (int(old, field), int(new, field)) {
            (Some(before), Some(after)) => after < before,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if matches!(kind, "Deployment" | "StatefulSet") && is_decremented {
            let value = get(new, field).cloned().unwrap_or_default();
            errors.invalid(&path.field("collisionCount"), value, "cannot be decremented");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_in_a_status_do_not_exceed_the_replicas() {
        for kind in ["Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"] {
            for (counts, expected) in [
                (
                    json!({"replicas": 2, "readyReplicas": 2, "availableReplicas": 1}),
                    &[] as &[&str],
                ),
                (json!({"replicas": 2, "readyReplicas": 3}), &["status.readyReplicas"]),
                (
                    json!({"replicas": 1, "availableReplicas": 2}),
                    &["status.availableReplicas", "status.availableReplicas"],
                ),
                (json!({"observedGeneration": -1}), &["status.observedGeneration"]),
                // Upstream compares only the counts that the kind has.
                (
                    json!({"replicas": -1, "observedGeneration": 1}),
                    match kind {
                        "StatefulSet" => &[
                            "status.replicas",
                            "status.readyReplicas",
                            "status.currentReplicas",
                            "status.updatedReplicas",
                            "status.availableReplicas",
                        ],
                        "Deployment" => &[
                            "status.replicas",
                            "status.updatedReplicas",
                            "status.readyReplicas",
                            "status.availableReplicas",
                        ],
                        _ => &[
                            "status.replicas",
                            "status.fullyLabeledReplicas",
                            "status.readyReplicas",
                            "status.availableReplicas",
                        ],
                    },
                ),
            ] {
                let mut errors = Errors::default();
                let object = json!({"status": counts});
                status(kind, &object, &object, &mut errors);
                let fields: Vec<String> =
                    errors.into_vec().into_iter().map(|error| error.field.clone()).collect();
                assert_eq!(fields, expected, "{kind}: {counts}");
            }
        }
    }
}
