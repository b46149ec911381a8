//! Validation of HorizontalPodAutoscalers of version 2.

use super::{ValidationTarget, names, quantity};
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, list, text};
use serde_json::Value;

/// Types of metric sources, each with the field of the source.
const METRIC_SOURCES: &[(&str, &str)] = &[
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

const NOT_POPULATED: &str = "must populate information for the given metric source";

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    if kind == "HorizontalPodAutoscaler" {
        horizontal_pod_autoscaler(new, None, errors);
    }
}

/// Validates an update through the object's path or its `/status`.
pub(super) fn update(target: ValidationTarget<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    match (target.kind, target.subresource) {
        ("HorizontalPodAutoscaler", "") => horizontal_pod_autoscaler(new, Some(old), errors),
        ("HorizontalPodAutoscaler", "status") => status(new, errors),
        _ => {}
    }
}

/// Validates a HorizontalPodAutoscaler.
///
/// Upstream: `ValidateHorizontalPodAutoscaler`, `validationOptionsForHorizontalPodAutoscaler`.
fn horizontal_pod_autoscaler(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let minimum = int(spec, "minReplicas");
    let maximum = int(spec, "maxReplicas").unwrap_or_default();
    let maximum_path = path.field("maxReplicas");
    if minimum.is_some_and(|minimum| maximum < minimum) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.invalid(&maximum_path, maximum, detail);
    }
    let is_same_kind = old.is_some_and(|old| {
        ["spec.scaleTargetRef.apiVersion", "spec.scaleTargetRef.kind"]
            .iter()
            .all(|field| text(new, field) == text(old, field))
    });
    let versions = if is_same_kind {
        ApiVersions::Any
    } else if text(spec, "scaleTargetRef.kind") == "ReplicationController" {
        ApiVersions::Valid
    } else {
        ApiVersions::OfGroups
    };
    let reference = get(spec, "scaleTargetRef").unwrap_or(&Value::Null);
    object_reference(reference, versions, &path.field("scaleTargetRef"), errors);
    let old_is_invalid = old.is_some_and(|old| {
        let metrics = list(old, "spec.metrics").iter();
        let mut objects = metrics.filter(|metric| text(metric, "type") == "Object");
        objects.any(|metric| {
            let version = text(metric, "object.describedObject.apiVersion");
            ApiVersions::Valid.message(version).is_some()
        })
    });
    let versions = if old_is_invalid { ApiVersions::Any } else { ApiVersions::Valid };
    let metrics_path = path.field("metrics");
    // Metrics of pods cannot scale up from zero pods.
    let mut has_object_or_external = false;
    for (index, metric) in list(spec, "metrics").iter().enumerate() {
        has_object_or_external |= matches!(text(metric, "type"), "Object" | "External");
        self::metric(metric, versions, &metrics_path.index(index), errors);
    }
    if minimum == Some(0) && !has_object_or_external {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(&metrics_path, detail);
    }
    let behavior = path.field("behavior");
    for field in ["scaleUp", "scaleDown"] {
        if let Some(rules) = get(spec, &format!("behavior.{field}")) {
            scaling_rules(rules, &behavior.field(field), errors);
        }
    }
    // Upstream validates the following declaratively.
    errors.non_negative(&path.field("minReplicas"), minimum);
    match maximum {
        0 => errors.required(&maximum_path, ""),
        1.. => {}
        _ => errors.invalid(&maximum_path, maximum, "must be greater than or equal to 1"),
    }
}

/// Rejects negative generations and numbers of replicas in the status.
///
/// Upstream: `ValidateHorizontalPodAutoscalerStatusUpdate`.
fn status(new: &Value, errors: &mut Errors) {
    let path = Path::new("status");
    let conditions = path.field("conditions");
    for (index, condition) in list(new, "status.conditions").iter().enumerate() {
        let path = conditions.index(index);
        errors
            .non_negative(&path.field("observedGeneration"), int(condition, "observedGeneration"));
    }
    for field in ["currentReplicas", "desiredReplicas"] {
        errors.non_negative(&path.field(field), int(new, &format!("status.{field}")));
    }
}

/// API versions that an object reference can have.
///
/// Upstream: `CrossVersionObjectReferenceValidationOptions`.
#[derive(Clone, Copy)]
enum ApiVersions {
    /// Any string, even an invalid version.
    Any,
    /// Valid versions of any group.
    Valid,
    /// Valid versions with a group, which excludes the core group.
    OfGroups,
}

impl ApiVersions {
    /// Returns why a version is invalid; `None` if it is valid.
    ///
    /// Upstream: `ValidateAPIVersion`.
    fn message(self, version: &str) -> Option<String> {
        let slash_count = version.matches('/').count();
        let has_group = slash_count == 1 && !version.starts_with('/');
        match self {
            Self::Any => None,
            _ if slash_count > 1 => Some(format!("unexpected GroupVersion string: {version}")),
            Self::OfGroups if !has_group => Some("apiVersion must specify API group".to_owned()),
            Self::Valid | Self::OfGroups => None,
        }
    }
}

/// Validates kind, name and API version of a reference to another object.
///
/// Upstream: `ValidateCrossVersionObjectReference`.
fn object_reference(
    reference: &Value,
    versions: ApiVersions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for field in ["kind", "name"] {
        errors.required_valid(&path.field(field), text(reference, field), names::path_segment);
    }
    let version = text(reference, "apiVersion");
    if let Some(message) = versions.message(version) {
        errors.invalid(&path.field("apiVersion"), version, &message);
    }
}

/// Validates a metric: its type must be known, and exactly the source of that type must be set.
///
/// Upstream: `validateMetricSpec`.
fn metric(metric: &Value, versions: ApiVersions, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(metric, "type");
    let type_path = path.field("type");
    if kind.is_empty() {
        errors.required(&type_path, "must specify a metric source type");
    }
    let expected = METRIC_SOURCES.iter().find(|(name, _)| *name == kind).map(|(_, field)| *field);
    if expected.is_none() {
        let supported: Vec<&str> = METRIC_SOURCES.iter().map(|(kind, _)| *kind).collect();
        errors.not_supported(&type_path, kind, &supported);
    }
    let present: Vec<&str> = ["object", "external", "pods", "resource", "containerResource"]
        .into_iter()
        .filter(|field| get(metric, field).is_some())
        .collect();
    // Only the first source is validated, in this order.
    if let Some((field, source)) =
        present.first().and_then(|field| Some((*field, get(metric, field)?)))
    {
        metric_source(field, source, versions, &path.field(field), errors);
    }
    if let Some(expected) = expected.filter(|field| !present.contains(field)) {
        errors.required(&path.field(expected), NOT_POPULATED);
    }
    if present.len() > 1 {
        for field in present.into_iter().filter(|field| Some(*field) != expected) {
            errors.forbidden(&path.field(field), "must populate the given metric source only");
        }
    }
}

/// Validates one source of a metric: the name of its resource or metric, and its target.
///
/// Upstream: `validateObjectSource` and those of the other sources.
fn metric_source(
    kind: &str,
    source: &Value,
    versions: ApiVersions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let target_path = path.field("target");
    let is_set = |field: &str| get(source, &format!("target.{field}")).is_some();
    let (has_value, has_average) = (is_set("value"), is_set("averageValue"));
    let has_utilization = is_set("averageUtilization");
    match kind {
        "resource" | "containerResource" => {
            match text(source, "name") {
                "" => errors.required(&path.field("name"), "must specify a resource name"),
                name if kind == "containerResource" => {
                    quantity::container_resource_name(name, &path.field("name"), errors);
                }
                _ => {}
            }
            if kind == "containerResource" {
                let path = path.field("container");
                match text(source, "container") {
                    "" => errors.required(&path, "must specify a container"),
                    name => errors.invalid_for_each(&path, name, &names::dns_label(name)),
                }
            }
            metric_target(source, &target_path, errors);
            if !has_utilization && !has_average {
                let detail = "must set either a target raw value or a target utilization";
                errors.required(&target_path.field("averageUtilization"), detail);
            }
            if has_utilization && has_average {
                let detail = "may not set both a target raw value and a target utilization";
                errors.forbidden(&target_path.field("averageValue"), detail);
            }
            return;
        }
        "object" => {
            let reference = get(source, "describedObject").unwrap_or(&Value::Null);
            object_reference(reference, versions, &path.field("describedObject"), errors);
        }
        _ => {}
    }
    metric_name(source, path, errors);
    metric_target(source, &target_path, errors);
    let average_path = target_path.field("averageValue");
    match kind {
        "pods" if !has_average => {
            errors.required(&average_path, "must specify a positive target averageValue");
        }
        "object" if !has_value && !has_average => {
            errors.required(&average_path, "must set either a target value or averageValue");
        }
        "external" if !has_value && !has_average => {
            let detail = "must set either a target value for metric or a per-pod target";
            errors.required(&average_path, detail);
        }
        "external" if has_value && has_average => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(&target_path.field("value"), detail);
        }
        _ => {}
    }
}

/// Validates the `target` of a metric source.
///
/// Upstream: `validateMetricTarget`.
fn metric_target(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(source, "target.type");
    if kind.is_empty() {
        errors.required(&path.field("type"), "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.invalid(&path.field("type"), kind, detail);
    }
    for field in ["value", "averageValue"] {
        let Some(amount) = get(source, &format!("target.{field}")) else { continue };
        if Amount::of(amount).is_some_and(|amount| amount <= Amount::default()) {
            errors.invalid(&path.field(field), amount.clone(), "must be positive");
        }
    }
    if let Some(percent) = int(source, "target.averageUtilization").filter(|percent| *percent < 1) {
        errors.invalid(&path.field("averageUtilization"), percent, "must be greater than 0");
    }
}

/// Validates the name of a metric.
///
/// Upstream: `validateMetricIdentifier`.
fn metric_name(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let metric = path.field("metric");
    match text(source, "metric.name") {
        "" => errors.required(&metric.field("name"), "must specify a metric name"),
        name => errors.invalid_for_each(&metric.field("name"), name, &names::path_segment(name)),
    }
}

/// Validates the scaling rules of one direction: the stabilization window, and at least one policy with positive
/// values.
///
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
    let select = get(rules, "selectPolicy");
    errors.one_of_if_set(&path.field("selectPolicy"), select, &["Disabled", "Max", "Min"]);
    let policies_path = path.field("policies");
    if list(rules, "policies").is_empty() {
        errors.required(&policies_path, "must specify at least one Policy");
    }
    for (index, policy) in list(rules, "policies").iter().enumerate() {
        let path = policies_path.index(index);
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
    if let Some(tolerance) = get(rules, "tolerance") {
        quantity::non_negative(tolerance, &path.field("tolerance"), errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(spec: &Value, old: Option<&Value>, expected: &[&str]) {
        let mut errors = Errors::default();
        let hpa = json!({"spec": spec});
        horizontal_pod_autoscaler(&hpa, old.map(|old| json!({"spec": old})).as_ref(), &mut errors);
        let found: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        let is_same = found.len() == expected.len()
            && found.iter().zip(expected).all(|(found, start)| found.starts_with(start));
        assert!(is_same, "{spec}: {found:#?}, not {expected:#?}");
    }

    fn spec(metric: &Value) -> Value {
        json!({"maxReplicas": 1, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}, "metrics": [metric]})
    }

    #[test]
    fn metrics_have_a_source_and_a_target() {
        let target = json!({"type": "Value", "value": "1"});
        let described = json!({"kind": "Service", "name": "s"});
        let object =
            json!({"describedObject": described, "metric": {"name": "m"}, "target": target});
        for (metric, expected) in [
            (json!({"type": "Object", "object": object}), vec![]),
            (
                json!({}),
                vec![
                    "spec.metrics[0].type: Required value",
                    "spec.metrics[0].type: Unsupported value: \"\"",
                ],
            ),
            (
                json!({"type": "x", "object": object}),
                vec!["spec.metrics[0].type: Unsupported value: \"x\""],
            ),
            (
                json!({"type": "Pods", "object": object}),
                vec!["spec.metrics[0].pods: Required value"],
            ),
            (
                json!({"type": "Pods", "object": object, "pods": {}}),
                vec!["spec.metrics[0].object: Forbidden"],
            ),
            (
                json!({"type": "Object", "object": {"describedObject": {"apiVersion": "a/b/c", "name": "a/b"}}}),
                vec![
                    "spec.metrics[0].object.describedObject.kind: Required value",
                    "spec.metrics[0].object.describedObject.name: Invalid value: \"a/b\"",
                    "spec.metrics[0].object.describedObject.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
                    "spec.metrics[0].object.metric.name: Required value",
                    "spec.metrics[0].object.target.type: Required value",
                    "spec.metrics[0].object.target.type: Invalid value: \"\"",
                    "spec.metrics[0].object.target.averageValue: Required value: must set either a target value or averageValue",
                ],
            ),
            (
                json!({"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "Value", "averageValue": "0", "value": "-1"}}}),
                vec![
                    "spec.metrics[0].pods.target.value: Invalid value: \"-1\": must be positive",
                    "spec.metrics[0].pods.target.averageValue: Invalid value: \"0\": must be positive",
                ],
            ),
            (
                json!({"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value", "averageValue": "1", "value": "1"}}}),
                vec!["spec.metrics[0].external.target.value: Forbidden"],
            ),
            (
                json!({"type": "ContainerResource", "containerResource": {"name": "pods", "container": "a.b", "target": {"type": "Utilization", "averageUtilization": 0}}}),
                vec![
                    "spec.metrics[0].containerResource.name: Invalid value: \"pods\": must be a standard resource for containers",
                    "spec.metrics[0].containerResource.container: Invalid value: \"a.b\": must not contain dots",
                    "spec.metrics[0].containerResource.target.averageUtilization: Invalid value: 0",
                ],
            ),
        ] {
            check(&spec(&metric), None, &expected);
        }
    }

    #[test]
    fn targets_have_a_group_unless_they_had_none() {
        let reference = |version: &str, kind: &str| json!({"maxReplicas": 1, "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": "a"}});
        let no_group = [
            "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group",
        ];
        check(&reference("v1", "Deployment"), None, &no_group);
        check(&reference("v1", "Deployment"), Some(&reference("v1", "Deployment")), &[]);
        check(&reference("v1", "Deployment"), Some(&reference("apps/v1", "Deployment")), &no_group);
        check(&reference("", "ReplicationController"), None, &[]);
    }

    #[test]
    fn replicas_have_bounds() {
        let replicas = |minimum: i64, maximum: i64| {
            let mut spec = spec(
                &json!({"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "1"}}}),
            );
            spec["minReplicas"] = minimum.into();
            spec["maxReplicas"] = maximum.into();
            spec
        };
        check(&replicas(0, 1), None, &[]);
        check(
            &replicas(2, 1),
            None,
            &["spec.maxReplicas: Invalid value: 1: must be greater than or equal to `minReplicas`"],
        );
        check(
            &replicas(-1, -1),
            None,
            &[
                "spec.minReplicas: Invalid value: -1: must be greater than or equal to 0",
                "spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1",
            ],
        );
        check(&replicas(0, 0), None, &["spec.maxReplicas: Required value"]);
    }
}
