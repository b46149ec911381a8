//! Conversion of HorizontalPodAutoscalers between autoscaling/v1 and autoscaling/v2. Annotations keep the fields
//! that v1 lacks.
//!
//! Upstream: `k8s.io/kubernetes/pkg/apis/autoscaling/v1/conversion.go`.

mod metrics;

use evenkeel_apimachinery::value::{self, get, int, is_blank, list, object_mut, remove, set, text};
use metrics::{Behavior, Condition, Spec, Status, to_annotation};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
/// Annotations that only the conversion writes.
const ROUND_TRIP_ANNOTATIONS: [&str; 6] = [
    METRICS,
    BEHAVIOR,
    CONDITIONS,
    CURRENT_METRICS,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// Returns whether a metric is the CPU usage of the pods. v1 has fields of its own for this metric.
fn is_cpu(metric: &Value) -> bool {
    text(metric, "type") == "Resource" && text(metric, "resource.name") == "cpu"
}

/// Returns the target utilization of a CPU metric in percent.
fn cpu_target(metric: &Value) -> Option<i64> {
    int(metric, "resource.target.averageUtilization").filter(|_| is_cpu(metric))
}

/// Converts an autoscaling/v2 object to autoscaling/v1.
///
/// Upstream: `Convert_autoscaling_HorizontalPodAutoscaler_To_v1_HorizontalPodAutoscaler`.
pub fn to_v1(hpa: &mut Value) {
    drop_annotations(hpa);
    let metrics = list(hpa, "spec.metrics");
    let cpu = metrics.iter().find_map(cpu_target);
    let others: Vec<Spec> =
        metrics.iter().filter(|metric| cpu_target(metric).is_none()).map(Spec::of).collect();
    let current = list(hpa, "status.currentMetrics");
    // Upstream takes the last metric that matches.
    let current_cpu = current.iter().rev().find_map(|metric| {
        int(metric, "resource.current.averageUtilization").filter(|_| is_cpu(metric))
    });
    let current: Vec<Status> = current.iter().map(Status::of).collect();
    let conditions: Vec<Condition> =
        list(hpa, "status.conditions").iter().map(Condition::of).collect();
    let behavior = get(hpa, "spec.behavior").map(|behavior| to_annotation(&Behavior::of(behavior)));
    let annotations = [
        (METRICS, (!others.is_empty()).then(|| to_annotation(&others))),
        (CURRENT_METRICS, (!current.is_empty()).then(|| to_annotation(&current))),
        (BEHAVIOR, behavior),
        (CONDITIONS, (!conditions.is_empty()).then(|| to_annotation(&conditions))),
    ];
    for (key, annotation) in annotations {
        if let Some(annotation) = annotation
            && let Some(annotations) = object_mut(hpa, "metadata.annotations")
        {
            annotations.insert(key.to_owned(), annotation.into());
        }
    }
    for field in ["spec.metrics", "spec.behavior", "status.currentMetrics", "status.conditions"] {
        remove(hpa, field);
    }
    if let Some(cpu) = cpu {
        set(hpa, "spec.targetCPUUtilizationPercentage", cpu);
    }
    if let Some(cpu) = current_cpu {
        set(hpa, "status.currentCPUUtilizationPercentage", cpu);
    }
    if get(hpa, "status.currentReplicas").is_none() && hpa.get("status").is_some() {
        set(hpa, "status.currentReplicas", 0);
    }
}

/// Removes the annotations that the conversion writes.
///
/// Upstream: `DropRoundTripHorizontalPodAutoscalerAnnotations`.
pub(crate) fn drop_annotations(hpa: &mut Value) {
    for key in ROUND_TRIP_ANNOTATIONS {
        take_annotation(hpa, key);
    }
    if value::is_empty(hpa, "metadata.annotations") {
        remove(hpa, "metadata.annotations");
    }
}

/// Removes an annotation, and returns its value.
fn take_annotation(hpa: &mut Value, key: &str) -> Option<String> {
    let annotations = value::get_mut(hpa, "metadata.annotations")?.as_object_mut()?;
    annotations.remove(key)?.as_str().map(str::to_owned)
}

/// Removes an annotation, and returns its decoded value. An annotation that cannot be decoded counts as absent.
fn take_annotated<T: DeserializeOwned>(hpa: &mut Value, key: &str) -> Option<T> {
    serde_json::from_str(&take_annotation(hpa, key)?).ok()
}

/// Converts an autoscaling/v1 object to autoscaling/v2.
///
/// Upstream: `Convert_v1_HorizontalPodAutoscaler_To_autoscaling_HorizontalPodAutoscaler`.
pub fn to_v2(hpa: &mut Value) {
    let metrics: Option<Vec<Spec>> = take_annotated(hpa, METRICS);
    let behavior: Option<Behavior> = take_annotated(hpa, BEHAVIOR);
    let conditions: Option<Vec<Condition>> = take_annotated(hpa, CONDITIONS);
    let current: Option<Vec<Status>> = take_annotated(hpa, CURRENT_METRICS);
    drop_annotations(hpa);
    let mut metrics_v2: Vec<Value> = metrics.iter().flatten().map(Spec::to_v2).collect();
    if let Some(utilization) =
        remove(hpa, "spec.targetCPUUtilizationPercentage").filter(Value::is_number)
    {
        metrics_v2.push(json!({"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": utilization}}}));
    }
    if !metrics_v2.is_empty() {
        set(hpa, "spec.metrics", metrics_v2);
    }
    let behavior = behavior.map(|behavior| behavior.to_v2());
    if let Some(behavior) = behavior.filter(|behavior| !is_blank(behavior)) {
        set(hpa, "spec.behavior", behavior);
    }
    if let Some(conditions) = conditions {
        let conditions: Vec<Value> = conditions.iter().map(Condition::to_v2).collect();
        set(hpa, "status.conditions", conditions);
    }
    let utilization =
        remove(hpa, "status.currentCPUUtilizationPercentage").filter(Value::is_number);
    let metrics: Vec<Value> = match (current, utilization) {
        (Some(current), _) => current.iter().map(Status::to_v2).collect(),
        (None, Some(utilization)) => vec![json!({"type": "Resource", "resource": {
            "name": "cpu", "current": {"averageUtilization": utilization}}})],
        (None, None) => Vec::new(),
    };
    if hpa.get("status").is_some() {
        let metrics = if metrics.is_empty() { Value::Null } else { Value::Array(metrics) };
        set(hpa, "status.currentMetrics", metrics);
        if int(hpa, "status.currentReplicas") == Some(0) {
            remove(hpa, "status.currentReplicas");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let v2 = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 5, "metrics": [
            {"type": "Pods", "pods": {"metric": {"name": "x"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]},
            "status": {"currentMetrics": null, "desiredReplicas": 0}});
        let mut hpa = v2.clone();
        to_v1(&mut hpa);
        assert_eq!(int(&hpa, "spec.targetCPUUtilizationPercentage"), Some(50));
        assert!(get(&hpa, "spec.metrics").is_none());
        to_v2(&mut hpa);
        assert_eq!(hpa, v2);
    }

    #[test]
    fn annotations_have_the_form_of_the_other_version() {
        let target = |kind: &str, field: &str, value: Value| json!({"type": kind, field: value});
        let metric = |name: &str| json!({"name": name, "selector": {"matchLabels": {"a": "b"}}});
        let reference = json!({"kind": "K", "name": "n", "apiVersion": "v1"});
        let metrics = json!([
            {"type": "Object", "object": {"describedObject": reference, "metric": metric("m"), "target": target("Value", "value", json!("2"))}},
            {"type": "Pods", "pods": {"metric": metric("m"), "target": target("AverageValue", "averageValue", json!("2"))}},
            {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "target": target("Utilization", "averageUtilization", json!(3))}},
            {"type": "External", "external": {"metric": metric("m"), "target": target("AverageValue", "averageValue", json!("2"))}},
        ]);
        let behavior = json!({"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}], "tolerance": "100m"}});
        let conditions = json!([{"type": "T", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "<R>"}]);
        let current = json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": "1", "averageUtilization": 5}}}]);
        let v2 = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 5, "metrics": metrics, "behavior": behavior},
            "status": {"currentMetrics": current, "conditions": conditions, "desiredReplicas": 0}});
        let mut hpa = v2.clone();
        to_v1(&mut hpa);
        let annotations = hpa["metadata"]["annotations"].clone();
        let object = r#"[{"type":"Object","object":{"target":{"kind":"K","name":"n","apiVersion":"v1"},"metricName":"m","targetValue":"2","selector":{"matchLabels":{"a":"b"}}}},"#;
        assert!(
            annotations[METRICS].as_str().is_some_and(|text| text.starts_with(object)),
            "{annotations}"
        );
        assert_eq!(
            annotations[BEHAVIOR],
            r#"{"ScaleUp":{"StabilizationWindowSeconds":null,"SelectPolicy":null,"Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":"100m"},"ScaleDown":null}"#
        );
        assert_eq!(
            annotations[CURRENT_METRICS],
            r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":5,"currentAverageValue":"1"}}]"#
        );
        assert_eq!(
            annotations[CONDITIONS],
            r#"[{"type":"T","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"\u003cR\u003e"}]"#
        );
        assert_eq!(int(&hpa, "status.currentCPUUtilizationPercentage"), Some(5));
        to_v2(&mut hpa);
        assert_eq!(hpa, v2);
    }

    #[test]
    fn annotations_that_cannot_be_read_are_dropped() {
        for text in ["{", "[{\"pods\": {\"targetAverageValue\": \"x\"}}]", "{}"] {
            let mut hpa =
                json!({"metadata": {"annotations": {METRICS: text, "a": "b"}}, "spec": {}});
            to_v2(&mut hpa);
            assert_eq!(hpa, json!({"metadata": {"annotations": {"a": "b"}}, "spec": {}}), "{text}");
        }
    }
}
