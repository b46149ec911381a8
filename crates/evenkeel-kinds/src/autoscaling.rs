//! HorizontalPodAutoscalers in version 1: the same object as in version 2, what version 1 cannot say kept in annotations.

use evenkeel_apimachinery::value::{self, at, int, list, object_mut, remove, set, text};
use serde_json::{Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";

fn is_cpu_share(metric: &Value) -> bool {
    text(metric, "type") == "Resource"
        && text(metric, "resource.name") == "cpu"
        && int(metric, "resource.target.averageUtilization").is_some()
}

/// From version 2 into version 1.
pub fn to_v1(hpa: &mut Value) {
    let mut others = Vec::new();
    for metric in list(hpa, "spec.metrics").to_vec() {
        if is_cpu_share(&metric) && at(hpa, "spec.targetCPUUtilizationPercentage").is_none() {
            let share = int(&metric, "resource.target.averageUtilization");
            set(hpa, "spec.targetCPUUtilizationPercentage", share);
        } else {
            others.push(metric);
        }
    }
    let mut current = Vec::new();
    for metric in list(hpa, "status.currentMetrics").to_vec() {
        let share = int(&metric, "resource.current.averageUtilization");
        if text(&metric, "resource.name") == "cpu" && share.is_some() {
            set(hpa, "status.currentCPUUtilizationPercentage", share);
        } else {
            current.push(metric);
        }
    }
    let behavior = remove(hpa, "spec.behavior").map_or_else(Vec::new, |behavior| vec![behavior]);
    let conditions = list(hpa, "status.conditions").to_vec();
    for (key, kept) in [(METRICS, others), (CURRENT, current), (CONDITIONS, conditions)] {
        annotate(hpa, key, &Value::Array(kept));
    }
    if let Some(behavior) = behavior.first() {
        annotate(hpa, BEHAVIOR, behavior);
    }
    for field in ["spec.metrics", "status.currentMetrics", "status.conditions"] {
        remove(hpa, field);
    }
    if at(hpa, "status.currentReplicas").is_none() && hpa.get("status").is_some() {
        set(hpa, "status.currentReplicas", 0);
    }
}

fn annotate(hpa: &mut Value, key: &str, kept: &Value) {
    if value::is_blank(kept) {
        return;
    }
    if let Some(annotations) = object_mut(hpa, "metadata.annotations") {
        annotations.insert(key.to_owned(), Value::from(kept.to_string()));
    }
}

/// From version 1 into version 2.
pub fn to_v2(hpa: &mut Value) {
    let mut kept = |key: &str| -> Option<Value> {
        let annotations = value::at_mut(hpa, "metadata.annotations")?.as_object_mut()?;
        let text = annotations.remove(key)?;
        serde_json::from_str(text.as_str()?).ok()
    };
    let (metrics, behavior, conditions, current) =
        (kept(METRICS), kept(BEHAVIOR), kept(CONDITIONS), kept(CURRENT));
    if value::is_empty(hpa, "metadata.annotations") {
        remove(hpa, "metadata.annotations");
    }
    let mut all: Vec<Value> =
        metrics.and_then(|metrics| metrics.as_array().cloned()).unwrap_or_default();
    if let Some(share) = remove(hpa, "spec.targetCPUUtilizationPercentage").filter(Value::is_number)
    {
        all.push(json!({"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": share}}}));
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
    if let Some(share) =
        remove(hpa, "status.currentCPUUtilizationPercentage").filter(Value::is_number)
    {
        metrics.push(json!({"type": "Resource", "resource": {
            "name": "cpu", "current": {"averageUtilization": share}}}));
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
        assert!(at(&hpa, "spec.metrics").is_none());
        to_v2(&mut hpa);
        assert_eq!(hpa, v2);
    }
}
