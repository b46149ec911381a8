//! Status builder of an autoscaler: conditions, events and the status update.

use crate::wire;
use evenkeel_api::{
    time::Timestamp,
    views::{
        CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition,
        HorizontalPodAutoscalerStatus, MetricIdentifier, MetricStatus, MetricValueStatus,
    },
};
use evenkeel_runtime::plan::{EventRecord, Plan, Target, Update};
use serde_json::{Value, json};

/// Condition type: the controller can read and update the scale.
pub(super) const ABLE_TO_SCALE: &str = "AbleToScale";
/// Condition type: the controller can compute the replicas from metrics.
pub(super) const SCALING_ACTIVE: &str = "ScalingActive";
/// Condition type: a limit changed the computed replicas.
pub(super) const SCALING_LIMITED: &str = "ScalingLimited";
/// Condition type: the autoscaler scaled the workload to zero replicas.
pub(super) const SCALED_TO_ZERO: &str = "ScaledToZero";

/// Collects conditions and events of a reconciliation.
#[derive(Debug, Clone)]
pub(super) struct StatusBuilder {
    target: Target,
    pub(super) status: HorizontalPodAutoscalerStatus,
    events: Vec<EventRecord>,
    now: Timestamp,
}

impl StatusBuilder {
    /// Begins with the autoscaler's current status.
    pub(super) fn new(autoscaler: &HorizontalPodAutoscaler, now: Timestamp) -> Self {
        Self {
            target: wire::target(autoscaler),
            status: autoscaler.status.clone(),
            events: Vec::new(),
            now,
        }
    }

    /// Adds a normal event about the autoscaler.
    pub(super) fn normal_event(&mut self, reason: &'static str, message: String) {
        self.events.push(EventRecord::normal(self.target.clone(), reason, message));
    }

    /// Adds a warning event about the autoscaler.
    pub(super) fn warning_event(&mut self, reason: &'static str, message: impl Into<String>) {
        self.events.push(EventRecord::warning(self.target.clone(), reason, message));
    }

    /// Sets a condition. Its transition time changes only with its status. Upstream: `setCondition`.
    pub(super) fn set_condition(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let mut conditions = std::mem::take(&mut self.status.conditions).into_vec();
        let index = conditions.iter().position(|condition| &*condition.type_ == type_);
        let index = index.unwrap_or_else(|| {
            conditions.push(HorizontalPodAutoscalerCondition {
                type_: type_.into(),
                ..HorizontalPodAutoscalerCondition::default()
            });
            conditions.len() - 1
        });
        let condition = &mut conditions[index];
        if &*condition.status != status {
            condition.last_transition_time = Some(wire::whole_second(self.now));
        }
        condition.status = status.into();
        condition.reason = reason.into();
        condition.message = message.into();
        self.status.conditions = conditions.into();
    }

    /// Removes a condition if the status has it.
    pub(super) fn remove_condition(&mut self, type_: &str) {
        let conditions = std::mem::take(&mut self.status.conditions).into_vec();
        self.status.conditions =
            conditions.into_iter().filter(|condition| &*condition.type_ != type_).collect();
    }

    /// Sets `lastScaleTime` to now.
    pub(super) fn set_last_scale_time(&mut self) {
        self.status.last_scale_time = Some(wire::whole_second(self.now));
    }

    /// Returns the events, and the status update if the status changed. Upstream: `updateStatusIfNeeded`.
    pub(super) fn plan(&self, autoscaler: &HorizontalPodAutoscaler) -> Plan {
        let mut plan = Plan::nothing();
        plan.actions.extend(self.events.iter().cloned().map(Into::into));
        if self.status != autoscaler.status {
            let body = wire::status_body(
                autoscaler,
                &autoscaler.meta.annotations,
                &status_json(&self.status),
            );
            plan.push(Update {
                failed: Some(EventRecord::warning(
                    self.target.clone(),
                    "FailedUpdateStatus",
                    "{error}",
                )),
                ..Update::status(self.target.clone(), body)
            });
        }
        plan
    }
}

/// Encodes the status as JSON, without absent fields.
fn status_json(status: &HorizontalPodAutoscalerStatus) -> Value {
    let conditions: Vec<Value> = status.conditions.iter().map(condition_json).collect();
    let metrics: Vec<Value> = status.current_metrics.iter().map(metric_json).collect();
    let mut json = json!({
        "currentReplicas": status.current_replicas, "desiredReplicas": status.desired_replicas,
        "currentMetrics": metrics, "conditions": conditions,
    });
    if let Some(generation) = status.observed_generation {
        json["observedGeneration"] = generation.into();
    }
    if let Some(time) = status.last_scale_time {
        json["lastScaleTime"] = time.to_string().into();
    }
    json
}

/// Encodes a condition as JSON.
fn condition_json(condition: &HorizontalPodAutoscalerCondition) -> Value {
    let mut json = json!({
        "type": condition.type_, "status": condition.status,
        "reason": condition.reason, "message": condition.message,
        "lastTransitionTime": condition.last_transition_time.map(|time| time.to_string()),
    });
    if condition.observed_generation != 0 {
        json["observedGeneration"] = condition.observed_generation.into();
    }
    json
}

/// Encodes the status of a metric as JSON.
fn metric_json(metric: &MetricStatus) -> Value {
    let mut json = json!({"type": metric.type_});
    if let Some(status) = &metric.object {
        json["object"] = json!({
            "metric": identifier_json(&status.metric), "current": value_json(&status.current),
            "describedObject": reference_json(&status.described_object),
        });
    }
    if let Some(status) = &metric.pods {
        json["pods"] = json!({"metric": identifier_json(&status.metric), "current": value_json(&status.current)});
    }
    if let Some(status) = &metric.resource {
        json["resource"] = json!({"name": status.name, "current": value_json(&status.current)});
    }
    if let Some(status) = &metric.container_resource {
        json["containerResource"] = json!({
            "name": status.name, "container": status.container, "current": value_json(&status.current),
        });
    }
    if let Some(status) = &metric.external {
        json["external"] = json!({"metric": identifier_json(&status.metric), "current": value_json(&status.current)});
    }
    json
}

/// Encodes a reference to an object as JSON.
fn reference_json(object: &CrossVersionObjectReference) -> Value {
    let mut json = json!({"kind": object.kind, "name": object.name});
    if !object.api_version.is_empty() {
        json["apiVersion"] = (&*object.api_version).into();
    }
    json
}

/// Encodes a metric's name and selector as JSON.
fn identifier_json(metric: &MetricIdentifier) -> Value {
    let mut json = json!({"name": metric.name});
    if let Some(selector) = metric.selector.to_json() {
        json["selector"] = selector;
    }
    json
}

/// Encodes a metric's current value as JSON.
fn value_json(value: &MetricValueStatus) -> Value {
    let mut json = json!({});
    for (name, amount) in [("value", value.value), ("averageValue", value.average_value)] {
        if let Some(amount) = amount {
            json[name] = amount.to_string().into();
        }
    }
    if let Some(percent) = value.average_utilization {
        json["averageUtilization"] = percent.into();
    }
    json
}
