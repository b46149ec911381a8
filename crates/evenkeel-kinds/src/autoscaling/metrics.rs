//! Fields of a HorizontalPodAutoscaler that autoscaling/v1 lacks, in the form of the annotations that keep them.
//!
//! The names and the order of the struct fields are those of upstream's Go types, because annotations contain the
//! structs as JSON.

use evenkeel_api::quantity::Quantity;
use evenkeel_api::quote::escape_html;
use evenkeel_apimachinery::value::{get, int, is_blank, text};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Encodes values as the JSON of an annotation, with the escapes of Go's encoder.
pub(super) fn to_annotation(values: &impl Serialize) -> String {
    escape_html(serde_json::to_string(values).unwrap_or_default())
}

/// Quantity in canonical form, such as the value of a metric.
#[derive(Debug, Clone, Serialize)]
struct Amount(String);

impl Default for Amount {
    fn default() -> Self {
        Self("0".to_owned())
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Value::deserialize(deserializer)? {
            Value::Null => return Ok(Self::default()),
            Value::String(text) => text,
            other => other.to_string(),
        };
        let quantity = Quantity::parse(text.trim()).map_err(serde::de::Error::custom)?;
        Ok(Self(quantity.to_string()))
    }
}

impl Amount {
    fn is_zero(&self) -> bool {
        self.0 == "0"
    }
}

/// Returns the quantity at `path` of an object in autoscaling/v2.
fn amount(metric: &Value, path: &str) -> Option<Amount> {
    get(metric, path).and_then(Value::as_str).map(|text| Amount(text.to_owned()))
}

/// Label selector with upstream's field names.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Selector {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    match_labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    match_expressions: Vec<Requirement>,
}

/// Requirement of a label selector.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Requirement {
    key: String,
    operator: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
}

/// Returns the selector of a metric in autoscaling/v2.
fn selector(metric: &Value) -> Option<Selector> {
    get(metric, "metric.selector").and_then(|selector| Selector::deserialize(selector).ok())
}

/// Returns the identifier of a metric in autoscaling/v2.
fn identifier(name: &str, selector: Option<&Selector>) -> Value {
    let mut metric = json!({"name": name});
    if let Some(selector) = selector {
        metric["selector"] = serde_json::to_value(selector).unwrap_or_default();
    }
    metric
}

/// Reference to an object that a metric describes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Reference {
    kind: String,
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_version: String,
}

impl Reference {
    fn of(metric: &Value) -> Self {
        let field = |name: &str| text(metric, &format!("describedObject.{name}")).to_owned();
        Self { kind: field("kind"), name: field("name"), api_version: field("apiVersion") }
    }

    fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Returns a JSON object with those fields that are set.
fn object_of_set_fields<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(fields.collect::<Map<String, Value>>())
}

/// Encodes an optional quantity.
fn amount_value(amount: Option<&Amount>) -> Option<Value> {
    amount.map(|amount| Value::from(amount.0.as_str()))
}

/// Returns the target of a metric in autoscaling/v2.
fn target(
    type_: &str,
    value: Option<&Amount>,
    average: Option<&Amount>,
    utilization: Option<i32>,
) -> Value {
    object_of_set_fields([
        ("type", Some(type_.into())),
        ("value", amount_value(value)),
        ("averageValue", amount_value(average)),
        ("averageUtilization", utilization.map(Value::from)),
    ])
}

/// Returns the current value of a metric in autoscaling/v2.
fn current(value: Option<&Amount>, average: Option<&Amount>, utilization: Option<i32>) -> Value {
    object_of_set_fields([
        ("value", amount_value(value)),
        ("averageValue", amount_value(average)),
        ("averageUtilization", utilization.map(Value::from)),
    ])
}

/// Returns the integer at `path`, such as a utilization in percent.
fn int32(object: &Value, path: &str) -> Option<i32> {
    int(object, path).and_then(|number| i32::try_from(number).ok())
}

/// A metric in the spec of an autoscaler, with its target.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec {
    #[serde(rename = "type")]
    type_: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<ObjectSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<PodsSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<ResourceSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_resource: Option<ContainerResourceSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    external: Option<ExternalSource>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObjectSource {
    target: Reference,
    metric_name: String,
    target_value: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<Selector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    average_value: Option<Amount>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodsSource {
    metric_name: String,
    target_average_value: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<Selector>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResourceSource {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_average_utilization: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_average_value: Option<Amount>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerResourceSource {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_average_utilization: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_average_value: Option<Amount>,
    container: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ExternalSource {
    metric_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric_selector: Option<Selector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_value: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_average_value: Option<Amount>,
}

impl Spec {
    /// Converts a metric of autoscaling/v2.
    ///
    /// Upstream: `Convert_autoscaling_MetricSpec_To_v1_MetricSpec`.
    pub(super) fn of(metric: &Value) -> Self {
        let name = |source: &Value| text(source, "metric.name").to_owned();
        let average = |source: &Value| amount(source, "target.averageValue");
        let utilization = |source: &Value| int32(source, "target.averageUtilization");
        Self {
            type_: text(metric, "type").to_owned(),
            object: get(metric, "object").map(|source| ObjectSource {
                target: Reference::of(source),
                metric_name: name(source),
                target_value: amount(source, "target.value").unwrap_or_default(),
                selector: selector(source),
                average_value: average(source),
            }),
            pods: get(metric, "pods").map(|source| PodsSource {
                metric_name: name(source),
                target_average_value: average(source).unwrap_or_default(),
                selector: selector(source),
            }),
            resource: get(metric, "resource").map(|source| ResourceSource {
                name: text(source, "name").to_owned(),
                target_average_utilization: utilization(source),
                target_average_value: average(source),
            }),
            container_resource: get(metric, "containerResource").map(|source| {
                ContainerResourceSource {
                    name: text(source, "name").to_owned(),
                    target_average_utilization: utilization(source),
                    target_average_value: average(source),
                    container: text(source, "container").to_owned(),
                }
            }),
            external: get(metric, "external").map(|source| ExternalSource {
                metric_name: name(source),
                metric_selector: selector(source),
                target_value: amount(source, "target.value"),
                target_average_value: average(source),
            }),
        }
    }

    /// Converts to a metric of autoscaling/v2.
    ///
    /// Upstream: `Convert_v1_MetricSpec_To_autoscaling_MetricSpec`.
    pub(super) fn to_v2(&self) -> Value {
        let resource_target = |utilization: Option<i32>, average: Option<&Amount>| {
            let type_ = if utilization.is_some() { "Utilization" } else { "AverageValue" };
            target(type_, None, average, utilization)
        };
        let object_source = self.object.as_ref().map(|source| {
            let average = source.average_value.as_ref();
            let type_ = if average.is_some() { "AverageValue" } else { "Value" };
            let value = &source.target_value;
            // In v1, the value is always present, and zero if only the average is set.
            let value = (average.is_none() || !value.is_zero()).then_some(value);
            json!({"describedObject": source.target.to_value(),
                "target": target(type_, value, average, None),
                "metric": identifier(&source.metric_name, source.selector.as_ref())})
        });
        let pods = self.pods.as_ref().map(|source| {
            json!({"metric": identifier(&source.metric_name, source.selector.as_ref()),
                "target": target("AverageValue", None, Some(&source.target_average_value), None)})
        });
        let resource = self.resource.as_ref().map(|source| {
            let target = resource_target(
                source.target_average_utilization,
                source.target_average_value.as_ref(),
            );
            json!({"name": source.name, "target": target})
        });
        let container_resource = self.container_resource.as_ref().map(|source| {
            let target = resource_target(
                source.target_average_utilization,
                source.target_average_value.as_ref(),
            );
            json!({"name": source.name, "target": target, "container": source.container})
        });
        let external = self.external.as_ref().map(|source| {
            let value = source.target_value.as_ref();
            let type_ = if value.is_some() { "Value" } else { "AverageValue" };
            json!({"metric": identifier(&source.metric_name, source.metric_selector.as_ref()),
                "target": target(type_, value, source.target_average_value.as_ref(), None)})
        });
        object_of_set_fields([
            ("type", Some(self.type_.as_str().into())),
            ("object", object_source),
            ("pods", pods),
            ("resource", resource),
            ("containerResource", container_resource),
            ("external", external),
        ])
    }
}

/// A metric in the status of an autoscaler, with its last value.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    #[serde(rename = "type")]
    type_: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<ObjectStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<PodsStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<ResourceStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_resource: Option<ContainerResourceStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    external: Option<ExternalStatus>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObjectStatus {
    target: Reference,
    metric_name: String,
    current_value: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<Selector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    average_value: Option<Amount>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodsStatus {
    metric_name: String,
    current_average_value: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<Selector>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResourceStatus {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_average_utilization: Option<i32>,
    current_average_value: Amount,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerResourceStatus {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_average_utilization: Option<i32>,
    current_average_value: Amount,
    container: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ExternalStatus {
    metric_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric_selector: Option<Selector>,
    current_value: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_average_value: Option<Amount>,
}

impl Status {
    /// Converts a metric's status of autoscaling/v2.
    ///
    /// Upstream: `Convert_autoscaling_MetricStatus_To_v1_MetricStatus`.
    pub(super) fn of(metric: &Value) -> Self {
        let name = |source: &Value| text(source, "metric.name").to_owned();
        let value = |source: &Value| amount(source, "current.value").unwrap_or_default();
        let average = |source: &Value| amount(source, "current.averageValue");
        let utilization = |source: &Value| int32(source, "current.averageUtilization");
        Self {
            type_: text(metric, "type").to_owned(),
            object: get(metric, "object").map(|source| ObjectStatus {
                target: Reference::of(source),
                metric_name: name(source),
                current_value: value(source),
                selector: selector(source),
                average_value: average(source),
            }),
            pods: get(metric, "pods").map(|source| PodsStatus {
                metric_name: name(source),
                current_average_value: average(source).unwrap_or_default(),
                selector: selector(source),
            }),
            resource: get(metric, "resource").map(|source| ResourceStatus {
                name: text(source, "name").to_owned(),
                current_average_utilization: utilization(source),
                current_average_value: average(source).unwrap_or_default(),
            }),
            container_resource: get(metric, "containerResource").map(|source| {
                ContainerResourceStatus {
                    name: text(source, "name").to_owned(),
                    current_average_utilization: utilization(source),
                    current_average_value: average(source).unwrap_or_default(),
                    container: text(source, "container").to_owned(),
                }
            }),
            external: get(metric, "external").map(|source| ExternalStatus {
                metric_name: name(source),
                metric_selector: selector(source),
                current_value: value(source),
                current_average_value: average(source),
            }),
        }
    }

    /// Converts to a metric's status of autoscaling/v2.
    ///
    /// Upstream: `Convert_v1_MetricStatus_To_autoscaling_MetricStatus`.
    pub(super) fn to_v2(&self) -> Value {
        let object_source = self.object.as_ref().map(|source| {
            json!({"metric": identifier(&source.metric_name, source.selector.as_ref()),
                "current": current(Some(&source.current_value), source.average_value.as_ref(), None),
                "describedObject": source.target.to_value()})
        });
        let pods = self.pods.as_ref().map(|source| {
            json!({"metric": identifier(&source.metric_name, source.selector.as_ref()),
                "current": current(None, Some(&source.current_average_value), None)})
        });
        let resource = self.resource.as_ref().map(|source| {
            let average = Some(&source.current_average_value);
            json!({"name": source.name,
                "current": current(None, average, source.current_average_utilization)})
        });
        let container_resource = self.container_resource.as_ref().map(|source| {
            let average = Some(&source.current_average_value);
            json!({"name": source.name, "container": source.container,
                "current": current(None, average, source.current_average_utilization)})
        });
        let external = self.external.as_ref().map(|source| {
            let average = source.current_average_value.as_ref();
            json!({"metric": identifier(&source.metric_name, source.metric_selector.as_ref()),
                "current": current(Some(&source.current_value), average, None)})
        });
        object_of_set_fields([
            ("type", Some(self.type_.as_str().into())),
            ("object", object_source),
            ("pods", pods),
            ("resource", resource),
            ("containerResource", container_resource),
            ("external", external),
        ])
    }
}

/// A condition, whose form is the same in both versions.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    last_transition_time: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_generation: Option<i64>,
}

impl Condition {
    pub(super) fn of(condition: &Value) -> Self {
        Self::deserialize(condition).unwrap_or_default()
    }

    pub(super) fn to_v2(&self) -> Value {
        let mut condition = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = condition.as_object_mut() {
            fields.retain(|name, value| name != "lastTransitionTime" || !value.is_null());
        }
        condition
    }
}

/// Scaling rules of an autoscaler. Upstream writes the annotation from the internal type, whose fields have no JSON
/// names. The aliases also accept the names of autoscaling/v2.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Behavior {
    #[serde(alias = "scaleUp")]
    scale_up: Option<Rules>,
    #[serde(alias = "scaleDown")]
    scale_down: Option<Rules>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Rules {
    #[serde(alias = "stabilizationWindowSeconds")]
    stabilization_window_seconds: Option<i32>,
    #[serde(alias = "selectPolicy")]
    select_policy: Option<String>,
    #[serde(alias = "policies")]
    policies: Option<Vec<Policy>>,
    #[serde(alias = "tolerance")]
    tolerance: Option<Amount>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Policy {
    #[serde(rename = "Type", alias = "type")]
    type_: String,
    #[serde(alias = "value")]
    value: i32,
    #[serde(alias = "periodSeconds")]
    period_seconds: i32,
}

impl Behavior {
    pub(super) fn of(behavior: &Value) -> Self {
        let policies = |rules: &Value| {
            let policies = get(rules, "policies").and_then(Value::as_array)?;
            Some(policies.iter().map(Policy::of).collect())
        };
        let rules = |field: &str| {
            get(behavior, field).map(|rules| Rules {
                stabilization_window_seconds: int32(rules, "stabilizationWindowSeconds"),
                select_policy: get(rules, "selectPolicy").and_then(Value::as_str).map(Into::into),
                policies: policies(rules),
                tolerance: amount(rules, "tolerance"),
            })
        };
        Self { scale_up: rules("scaleUp"), scale_down: rules("scaleDown") }
    }

    /// Returns the rules of autoscaling/v2, or null if there are no rules.
    pub(super) fn to_v2(&self) -> Value {
        let rules = |rules: &Rules| {
            let policies = rules.policies.as_ref();
            object_of_set_fields([
                ("stabilizationWindowSeconds", rules.stabilization_window_seconds.map(Value::from)),
                ("selectPolicy", rules.select_policy.as_deref().map(Value::from)),
                ("policies", policies.map(|policies| policies.iter().map(Policy::to_v2).collect())),
                ("tolerance", amount_value(rules.tolerance.as_ref())),
            ])
        };
        let behavior = object_of_set_fields([
            ("scaleUp", self.scale_up.as_ref().map(rules)),
            ("scaleDown", self.scale_down.as_ref().map(rules)),
        ]);
        if is_blank(&behavior) { Value::Null } else { behavior }
    }
}

impl Policy {
    fn of(policy: &Value) -> Self {
        let number = |field: &str| int32(policy, field).unwrap_or_default();
        Self {
            type_: text(policy, "type").to_owned(),
            value: number("value"),
            period_seconds: number("periodSeconds"),
        }
    }

    fn to_v2(&self) -> Value {
        json!({"type": self.type_, "value": self.value, "periodSeconds": self.period_seconds})
    }
}
