//! Conversion of HorizontalPodAutoscalers between autoscaling/v1 and autoscaling/v2. Annotations keep the fields
//! that v1 lacks.
//!
//! Upstream: `k8s.io/kubernetes/pkg/apis/autoscaling/v1/conversion.go`.

use evenkeel_apimachinery::value::{self, get, int, list, object_mut, remove, set, text};
use serde_json::{Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";

fn is_cpu_utilization(metric: &Value) -> bool {
    text(metric, "type") == "Resource"
        && text(metric, "resource.name") == "cpu"
        && int(metric, "resource.target.averageUtilization").is_some()
}

/// Converts an autoscaling/v2 object to autoscaling/v1.
pub fn to_v1(hpa: &mut Value) {
    let mut other_metrics = Vec::new();
    for metric in list(hpa, "spec.metrics").to_vec() {
        if is_cpu_utilization(&metric) && get(hpa, "spec.targetCPUUtilizationPercentage").is_none()
        {
            let utilization = int(&metric, "resource.target.averageUtilization");
            set(hpa, "spec.targetCPUUtilizationPercentage", utilization);
        } else {
            other_metrics.push(metric);
        }
    }
    let mut current = Vec::new();
    for metric in list(hpa, "status.currentMetrics").to_vec() {
        let utilization = int(&metric, "resource.current.averageUtilization");
        if text(&metric, "resource.name") == "cpu" && utilization.is_some() {
            set(hpa, "status.currentCPUUtilizationPercentage", utilization);
        } else {
            current.push(metric);
        }
    }
    let behavior = remove(hpa, "spec.behavior").map_or_else(Vec::new, |behavior| vec![behavior]);
    let conditions = list(hpa, "status.conditions").to_vec();
    for (key, annotated) in
        [(METRICS, other_metrics), (CURRENT_METRICS, current), (CONDITIONS, conditions)]
    {
        set_annotation(hpa, key, &Value::Array(annotated));
    }
    if let Some(behavior) = behavior.first() {
        set_annotation(hpa, BEHAVIOR, behavior);
    }
    for field in ["spec.metrics", "status.currentMetrics", "status.conditions"] {
        remove(hpa, field);
    }
    if get(hpa, "status.currentReplicas").is_none() && hpa.get("status").is_some() {
        set(hpa, "status.currentReplicas", 0);
    }
}

fn set_annotation(hpa: &mut Value, key: &str, annotated: &Value) {
    if value::is_blank(annotated) {
        return;
    }
    if let Some(annotations) = object_mut(hpa, "metadata.annotations") {
        annotations.insert(key.to_owned(), Value::from(annotated.to_string()));
    }
}

/// Converts an autoscaling/v1 object to autoscaling/v2.
pub fn to_v2(hpa: &mut Value) {
    let mut annotated = |key: &str| -> Option<Value> {
        let annotations = value::get_mut(hpa, "metadata.annotations")?.as_object_mut()?;
        let text = annotations.remove(key)?;
        serde_json::from_str(text.as_str()?).ok()
    };
    let (metrics, behavior, conditions, current) = (
        annotated(METRICS),
        annotated(BEHAVIOR),
        annotated(CONDITIONS),
        annotated(CURRENT_METRICS),
    );
    if value::is_empty(hpa, "metadata.annotations") {
        remove(hpa, "metadata.annotations");
    }
    let mut all: Vec<Value> =
        metrics.and_then(|metrics| metrics.as_array().cloned()).unwrap_or_default();
    if let Some(utilization) =
        remove(hpa, "spec.targetCPUUtilizationPercentage").filter(Value::is_number)
    {
        all.push(json!({"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": utilization}}}));
    }
    if !all.is_empty() {
        set(hpa, "spec.metrics", all);
    }
    if let Some(behavior) = behavior {
        set(hpa, "spec.behavior", behavior);
    }
    if let Some(conditions) = conditions {
        set(hpa, "status.conditions", conditions);
    }
    let mut metrics: Vec<Value> =
        current.and_then(|current| current.as_array().cloned()).unwrap_or_default();
    if let Some(utilization) =
        remove(hpa, "status.currentCPUUtilizationPercentage").filter(Value::is_number)
    {
        metrics.push(json!({"type": "Resource", "resource": {
            "name": "cpu", "current": {"averageUtilization": utilization}}}));
    }
    if hpa.get("status").is_some() {
        set(
            hpa,
            "status.currentMetrics",
            if metrics.is_empty() { Value::Null } else { Value::Array(metrics) },
        );
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
}
