//! Validation of HorizontalPodAutoscalers, in version 2.

use super::names;
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, list, text};
use serde_json::Value;

const METRICS: &[(&str, &str)] = &[
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    if kind == "HorizontalPodAutoscaler" {
        horizontal_pod_autoscaler(new, errors);
    }
}

/// Validates a HorizontalPodAutoscaler.
///
/// Upstream: `ValidateHorizontalPodAutoscaler`.
fn horizontal_pod_autoscaler(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let Some(spec) = new.get("spec") else { return };
    let minimum = int(spec, "minReplicas");
    if let Some(minimum) = minimum.filter(|minimum| *minimum < 0) {
        errors.invalid(&path.field("minReplicas"), minimum, "must be greater than or equal to 0");
    }
    let maximum = int(spec, "maxReplicas").unwrap_or_default();
    if maximum < 1 {
        if maximum == 0 {
            errors.required(&path.field("maxReplicas"), "");
        } else {
            errors.invalid(&path.field("maxReplicas"), maximum, "must be greater than 0");
        }
    }
    if minimum.is_some_and(|minimum| maximum < minimum) {
        errors.invalid(
            &path.field("maxReplicas"),
            maximum,
            "must be greater than or equal to `minReplicas`",
        );
    }
    target_ref(spec, &path.field("scaleTargetRef"), errors);
    let all = path.field("metrics");
    let mut outside = false;
    for (index, metric) in list(spec, "metrics").iter().enumerate() {
        outside |= matches!(text(metric, "type"), "Object" | "External");
        self::metric(metric, &all.index(index), errors);
    }
    if minimum == Some(0) && !outside {
        let words = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(&all, words);
    }
    let behavior = path.field("behavior");
    for field in ["scaleUp", "scaleDown"] {
        if let Some(rules) = get(spec, &format!("behavior.{field}")) {
            scaling_rules(rules, &behavior.field(field), errors);
        }
    }
}

/// Upstream: `ValidateCrossVersionObjectReference`.
fn target_ref(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["kind", "name"] {
        errors.required_valid(
            &path.field(field),
            text(spec, &format!("scaleTargetRef.{field}")),
            names::path_segment,
        );
    }
    let version = text(spec, "scaleTargetRef.apiVersion");
    if !version.contains('/') && version != "v1" {
        errors.invalid(&path.field("apiVersion"), version, "apiVersion must specify API group");
    }
}

/// Upstream: `validateMetricSpec`.
fn metric(metric: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(metric, "type");
    if kind.is_empty() {
        errors.required(&path.field("type"), "must specify a metric source type");
    }
    let supported: Vec<&str> = METRICS.iter().map(|(kind, _)| *kind).collect();
    let Some((_, expected)) = METRICS.iter().find(|(name, _)| *name == kind) else {
        if !kind.is_empty() {
            errors.not_supported(&path.field("type"), kind, &supported);
        }
        return;
    };
    // Only the first source is validated, in this order.
    let first = ["object", "external", "pods", "resource", "containerResource"]
        .into_iter()
        .find_map(|field| get(metric, field).map(|source| (field, source)));
    if let Some((field, source)) = first {
        metric_source(field, source, &path.field(field), errors);
    }
    if get(metric, expected).is_none() {
        errors.required(
            &path.field(expected),
            "must populate information for the given metric source",
        );
    }
    for (_, field) in METRICS.iter().filter(|(_, field)| field != expected) {
        if get(metric, field).is_some() {
            errors.forbidden(&path.field(field), "must populate the given metric source only");
        }
    }
}

fn metric_source(kind: &str, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let target = path.field("target");
    let utilization = int(source, "target.averageUtilization");
    let value = get(source, "target.value");
    let average = get(source, "target.averageValue");
    match kind {
        "resource" | "containerResource" => {
            if text(source, "name").is_empty() {
                errors.required(&path.field("name"), "must specify a resource name");
            }
            if kind == "containerResource" && text(source, "container").is_empty() {
                errors.required(&path.field("container"), "must specify a container");
            }
            if utilization.is_none() && average.is_none() {
                let words = "must set either a target raw value or a target utilization";
                errors.required(&target.field("averageUtilization"), words);
            }
            if utilization.is_some() && average.is_some() {
                let words = "may not set both a target raw value and a target utilization";
                errors.forbidden(&target.field("averageValue"), words);
            }
        }
        "pods" => {
            metric_name(source, path, errors);
            if average.and_then(Amount::of).is_none_or(|amount| amount <= Amount::default()) {
                errors.required(
                    &target.field("averageValue"),
                    "must specify a positive target averageValue",
                );
            }
        }
        _ => {
            metric_name(source, path, errors);
            if value.is_none() && average.is_none() {
                let words = "must set either a target value for metric or a per-pod target";
                errors.required(&target.field("averageValue"), words);
            }
        }
    }
    if let Some(utilization) = utilization.filter(|percent| *percent < 1) {
        errors.invalid(&target.field("averageUtilization"), utilization, "must be greater than 0");
    }
    for (amount, field) in [(value, "value"), (average, "averageValue")] {
        if amount.and_then(Amount::of).is_some_and(|amount| amount <= Amount::default())
            && kind != "pods"
        {
            errors.invalid(
                &target.field(field),
                amount.cloned().unwrap_or_default(),
                "must be positive",
            );
        }
    }
    match text(source, "target.type") {
        "" => errors.required(&target.field("type"), "must specify a metric target type"),
        kind => {
            if !["Utilization", "Value", "AverageValue"].contains(&kind) {
                errors.invalid(
                    &target.field("type"),
                    kind,
                    "must be either Utilization, Value, or AverageValue",
                );
            }
        }
    }
}

fn metric_name(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let metric = path.field("metric");
    match text(source, "metric.name") {
        "" => errors.required(&metric.field("name"), "must specify a metric name"),
        name => errors.invalid_all(&metric.field("name"), name, &names::path_segment(name)),
    }
}

/// Upstream: `validateScalingRules`.
fn scaling_rules(rules: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(seconds) = int(rules, "stabilizationWindowSeconds") {
        let path = path.field("stabilizationWindowSeconds");
        if seconds < 0 {
            errors.invalid(&path, seconds, "must be greater than or equal to zero");
        }
        if seconds > 3600 {
            errors.invalid(&path, seconds, "must be less than or equal to 3600");
        }
    }
    let select = text(rules, "selectPolicy");
    if !select.is_empty() {
        errors.one_of(&path.field("selectPolicy"), select, &["Disabled", "Max", "Min"]);
    }
    let all = path.field("policies");
    if list(rules, "policies").is_empty() {
        errors.required(&all, "must specify at least one Policy");
    }
    for (index, policy) in list(rules, "policies").iter().enumerate() {
        let path = all.index(index);
        errors.one_of(&path.field("type"), text(policy, "type"), &["Percent", "Pods"]);
        let value = int(policy, "value").unwrap_or_default();
        if value <= 0 {
            errors.invalid(&path.field("value"), value, "must be greater than zero");
        }
        let period = int(policy, "periodSeconds").unwrap_or_default();
        if period <= 0 {
            errors.invalid(&path.field("periodSeconds"), period, "must be greater than zero");
        } else if period > 1800 {
            errors.invalid(
                &path.field("periodSeconds"),
                period,
                "must be less than or equal to 1800",
            );
        }
    }
}
