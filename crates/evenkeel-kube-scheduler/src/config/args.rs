//! Arguments of the in-tree plugins, with upstream's defaults and validation.
//!
//! Upstream: `pkg/scheduler/apis/config/validation/validation_pluginargs.go`.

use super::{GROUP, GoDuration, check::FieldError};
use evenkeel_api::forms::qualified_name;
use evenkeel_component::features::FeatureGates;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Arguments of an in-tree plugin.
pub(crate) trait PluginArgs: Serialize + DeserializeOwned + Default {
    /// Sets the defaults of unset fields.
    fn set_defaults(&mut self, gates: &FeatureGates);
    /// Validates the arguments. `path` is their field path in errors.
    fn validate(&self, path: &str, gates: &FeatureGates) -> Vec<FieldError>;
}

/// Sets the defaults of a plugin's arguments. Returns `None` for a plugin whose arguments are not known.
pub(super) fn with_defaults(plugin: &str, args: &Value, gates: &FeatureGates) -> Option<Value> {
    Some(match plugin {
        "DefaultPreemption" => args_with_defaults::<DefaultPreemptionArgs>(plugin, args, gates),
        "DynamicResources" => args_with_defaults::<DynamicResourcesArgs>(plugin, args, gates),
        "InterPodAffinity" => args_with_defaults::<InterPodAffinityArgs>(plugin, args, gates),
        "NodeAffinity" => args_with_defaults::<NodeAffinityArgs>(plugin, args, gates),
        "NodeResourcesBalancedAllocation" => {
            args_with_defaults::<NodeResourcesBalancedAllocationArgs>(plugin, args, gates)
        }
        "NodeResourcesFit" => args_with_defaults::<NodeResourcesFitArgs>(plugin, args, gates),
        "PodTopologySpread" => args_with_defaults::<PodTopologySpreadArgs>(plugin, args, gates),
        "VolumeBinding" => args_with_defaults::<VolumeBindingArgs>(plugin, args, gates),
        _ => return None,
    })
}

/// Validates arguments after their defaults were set. Like upstream, the factory of `NodeResourcesFit` validates its own
/// arguments.
pub(super) fn validate(
    plugin: &str,
    args: &Value,
    path: &str,
    gates: &FeatureGates,
) -> Vec<FieldError> {
    match plugin {
        "DefaultPreemption" => typed::<DefaultPreemptionArgs>(args).validate(path, gates),
        "DynamicResources" => typed::<DynamicResourcesArgs>(args).validate(path, gates),
        "InterPodAffinity" => typed::<InterPodAffinityArgs>(args).validate(path, gates),
        "NodeAffinity" => typed::<NodeAffinityArgs>(args).validate(path, gates),
        "NodeResourcesBalancedAllocation" => {
            typed::<NodeResourcesBalancedAllocationArgs>(args).validate(path, gates)
        }
        "PodTopologySpread" => typed::<PodTopologySpreadArgs>(args).validate(path, gates),
        "VolumeBinding" => typed::<VolumeBindingArgs>(args).validate(path, gates),
        _ => Vec::new(),
    }
}

/// Converts arguments whose types were checked when the configuration was read.
pub(crate) fn typed<T: PluginArgs>(args: &Value) -> T {
    serde_json::from_value(args.clone()).unwrap_or_default()
}

/// Sets the defaults of arguments, their kind and their version.
fn args_with_defaults<T: PluginArgs>(plugin: &str, args: &Value, gates: &FeatureGates) -> Value {
    let mut args: T = if args.is_null() { T::default() } else { typed(args) };
    args.set_defaults(gates);
    let mut args = serde_json::to_value(args).unwrap_or_default();
    args["kind"] = format!("{plugin}Args").into();
    args["apiVersion"] = GROUP.into();
    args
}

/// Arguments of the plugin: upstream's `DefaultPreemptionArgs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DefaultPreemptionArgs {
    pub(crate) min_candidate_nodes_percentage: Option<i32>,
    pub(crate) min_candidate_nodes_absolute: Option<i32>,
}

impl PluginArgs for DefaultPreemptionArgs {
    fn set_defaults(&mut self, _: &FeatureGates) {
        self.min_candidate_nodes_percentage.get_or_insert(10);
        self.min_candidate_nodes_absolute.get_or_insert(100);
    }

    fn validate(&self, path: &str, _: &FeatureGates) -> Vec<FieldError> {
        let at = |field: &str| format!("{path}.{field}");
        let (percentage_field, absolute_field) =
            ("minCandidateNodesPercentage", "minCandidateNodesAbsolute");
        let percentage = self.min_candidate_nodes_percentage.unwrap_or_default();
        let absolute = self.min_candidate_nodes_absolute.unwrap_or_default();
        let mut errors = Vec::new();
        if !(0..=100).contains(&percentage) {
            errors.push(FieldError::value(
                at(percentage_field),
                percentage,
                "not in valid range [0, 100]",
            ));
        }
        if absolute < 0 {
            errors.push(FieldError::value(
                at(absolute_field),
                absolute,
                "not in valid range [0, inf)",
            ));
        }
        if percentage == 0 && absolute == 0 {
            let rule = "cannot be zero at the same time as";
            errors.push(FieldError::value(
                at(percentage_field),
                0,
                &format!("{rule} {absolute_field}"),
            ));
            errors.push(FieldError::value(
                at(absolute_field),
                0,
                &format!("{rule} {percentage_field}"),
            ));
        }
        errors
    }
}

/// Arguments of the plugin: upstream's `DynamicResourcesArgs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DynamicResourcesArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) filter_timeout: Option<GoDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) binding_timeout: Option<GoDuration>,
}

impl DynamicResourcesArgs {
    fn is_filter_timeout_enabled(gates: &FeatureGates) -> bool {
        gates.enabled("DRASchedulerFilterTimeout")
    }

    fn is_binding_timeout_enabled(gates: &FeatureGates) -> bool {
        gates.enabled("DRADeviceBindingConditions") && gates.enabled("DRAResourceClaimDeviceStatus")
    }
}

impl PluginArgs for DynamicResourcesArgs {
    fn set_defaults(&mut self, gates: &FeatureGates) {
        if Self::is_filter_timeout_enabled(gates) {
            self.filter_timeout.get_or_insert(GoDuration::from_seconds(10));
        }
        if Self::is_binding_timeout_enabled(gates) {
            self.binding_timeout.get_or_insert(GoDuration::from_seconds(600));
        }
    }

    fn validate(&self, path: &str, gates: &FeatureGates) -> Vec<FieldError> {
        let text = |duration: GoDuration| String::from(duration);
        let mut errors = Vec::new();
        if let Some(timeout) = self.filter_timeout {
            let at = format!("{path}.filterTimeout");
            if !Self::is_filter_timeout_enabled(gates) {
                errors.push(FieldError::forbidden(
                    at,
                    "DRASchedulingFilterTimeout feature gate is disabled",
                ));
            } else if timeout < GoDuration(0) {
                errors.push(FieldError::value(at, text(timeout), "must be zero or positive"));
            }
        }
        if let Some(timeout) = self.binding_timeout {
            let at = format!("{path}.bindingTimeout");
            if !Self::is_binding_timeout_enabled(gates) {
                let rule = "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled";
                errors.push(FieldError::forbidden(at, rule));
            } else if timeout < GoDuration::from_seconds(1) {
                errors.push(FieldError::value(at, text(timeout), "must be at least 1 second"));
            }
        }
        errors
    }
}

/// Arguments of the plugin: upstream's `InterPodAffinityArgs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct InterPodAffinityArgs {
    pub(crate) hard_pod_affinity_weight: Option<i32>,
    pub(crate) ignore_preferred_terms_of_existing_pods: bool,
}

impl PluginArgs for InterPodAffinityArgs {
    fn set_defaults(&mut self, _: &FeatureGates) {
        self.hard_pod_affinity_weight.get_or_insert(1);
    }

    fn validate(&self, path: &str, _: &FeatureGates) -> Vec<FieldError> {
        let weight = self.hard_pod_affinity_weight.unwrap_or_default();
        let error = FieldError::value(
            format!("{path}.hardPodAffinityWeight"),
            weight,
            "not in valid range [0, 100]",
        );
        if (0..=100).contains(&weight) { Vec::new() } else { vec![error] }
    }
}

/// Arguments of the plugin: upstream's `NodeAffinityArgs`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeAffinityArgs {
    /// Node affinity that applies to all pods of the profile in addition to their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) added_affinity: Option<Value>,
}

impl PluginArgs for NodeAffinityArgs {
    fn set_defaults(&mut self, _: &FeatureGates) {}

    fn validate(&self, path: &str, _: &FeatureGates) -> Vec<FieldError> {
        let Some(affinity) = &self.added_affinity else { return Vec::new() };
        let list = |value: &Value, field: &str| {
            value.get(field).and_then(Value::as_array).cloned().unwrap_or_default()
        };
        let (required, preferred) = (
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        );
        let mut errors = Vec::new();
        let mut check_term = |term: &Value, at: String| {
            for (n, requirement) in list(term, "matchExpressions").iter().enumerate() {
                let at = format!("{at}.matchExpressions[{n}]");
                errors.extend(check_requirement(requirement, &at));
            }
        };
        let terms = list(affinity.get(required).unwrap_or(&Value::Null), "nodeSelectorTerms");
        for (n, term) in terms.iter().enumerate() {
            check_term(term, format!("{path}.addedAffinity.{required}.nodeSelectorTerms[{n}]"));
        }
        for (n, preferred_term) in list(affinity, preferred).iter().enumerate() {
            let preference = preferred_term.get("preference").unwrap_or(&Value::Null);
            check_term(preference, format!("{path}.addedAffinity.{preferred}[{n}]"));
        }
        errors
    }
}

/// Returns the first error of a requirement of a node selector.
///
/// Upstream: `NewRequirement`.
fn check_requirement(requirement: &Value, at: &str) -> Option<FieldError> {
    let text = |field: &str| requirement.get(field).and_then(Value::as_str).unwrap_or_default();
    let values =
        requirement.get("values").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let values_json = || Value::from(values.to_vec());
    let at_values = format!("{at}.values");
    match text("operator") {
        "In" | "NotIn" if values.is_empty() => Some(FieldError::value(
            at_values,
            values_json(),
            "for 'in', 'notin' operators, values set can't be empty",
        )),
        "Exists" | "DoesNotExist" if !values.is_empty() => Some(FieldError::value(
            at_values,
            values_json(),
            "values set must be empty for exists and does not exist",
        )),
        "Gt" | "Lt" if values.len() != 1 => Some(FieldError::value(
            at_values,
            values_json(),
            "for 'Gt', 'Lt' operators, exactly one value is required",
        )),
        "Gt" | "Lt" if values[0].as_str().is_none_or(|text| text.parse::<i64>().is_err()) => {
            let rule = "for 'Gt', 'Lt' operators, the value must be an integer";
            Some(FieldError::value(format!("{at_values}[0]"), values[0].clone(), rule))
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {
            let key = text("key");
            // Upstream: `validateLabelKey`, which joins all broken rules in one error.
            let detail = qualified_name(key).join("; ");
            (!detail.is_empty()).then(|| FieldError::value(format!("{at}.key"), key, &detail))
        }
        other => {
            let supported = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
            Some(FieldError::unsupported(format!("{at}.operator"), other, &supported))
        }
    }
}

/// A resource and its weight.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ResourceSpec {
    pub(crate) name: String,
    pub(crate) weight: i64,
}

impl ResourceSpec {
    fn defaults() -> Vec<Self> {
        ["cpu", "memory"].map(|name| Self { name: name.to_owned(), weight: 1 }).into()
    }

    /// Sets the default resources if there are none, and sets unset weights to 1.
    fn set_defaults(resources: &mut Vec<Self>) {
        if resources.is_empty() {
            *resources = Self::defaults();
        }
        for resource in resources.iter_mut().filter(|resource| resource.weight == 0) {
            resource.weight = 1;
        }
    }
}

/// Arguments of the plugin: upstream's `NodeResourcesBalancedAllocationArgs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NodeResourcesBalancedAllocationArgs {
    pub(crate) resources: Vec<ResourceSpec>,
}

impl PluginArgs for NodeResourcesBalancedAllocationArgs {
    fn set_defaults(&mut self, _: &FeatureGates) {
        ResourceSpec::set_defaults(&mut self.resources);
    }

    fn validate(&self, path: &str, _: &FeatureGates) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (n, resource) in self.resources.iter().enumerate() {
            let at = format!("{path}.resources[{n}]");
            if self.resources[..n].iter().any(|other| other.name == resource.name) {
                errors.push(FieldError::duplicate(format!("{at}.name"), resource.name.as_str()));
            }
            if resource.weight != 1 {
                errors.push(FieldError::value(
                    format!("{at}.weight"),
                    resource.weight,
                    "must be 1",
                ));
            }
        }
        errors
    }
}

/// A point of a scoring function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShapePoint {
    /// Utilization of the resource in percent, from 0 to 100.
    pub utilization: i32,
    /// Score at this utilization, from 0 to 10.
    pub score: i32,
}

impl ShapePoint {
    /// Validates the points of a scoring function.
    fn check(points: &[Self], path: &str) -> Vec<FieldError> {
        if points.is_empty() {
            return vec![FieldError::required(
                path.to_owned(),
                "at least one point must be specified",
            )];
        }
        let mut errors = Vec::new();
        let is_unsorted = |pair: &[Self]| pair[0].utilization >= pair[1].utilization;
        if let Some(first) = points.windows(2).position(is_unsorted) {
            let n = first + 1;
            let rule = "values must be sorted in increasing order";
            errors.push(FieldError::value(
                format!("{path}[{n}].utilization"),
                points[n].utilization,
                rule,
            ));
        }
        for (n, point) in points.iter().enumerate() {
            for (field, value, max) in
                [("utilization", point.utilization, 100), ("score", point.score, 10)]
            {
                if !(0..=max).contains(&value) {
                    let rule = format!("not in valid range [0, {max}]");
                    errors.push(FieldError::value(format!("{path}[{n}].{field}"), value, &rule));
                }
            }
        }
        errors
    }
}

/// Arguments of the plugin: upstream's `NodeResourcesFitArgs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeResourcesFitArgs {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) ignored_resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) ignored_resource_groups: Vec<String>,
    pub(crate) scoring_strategy: Option<ScoringStrategy>,
}

/// Strategy by which requested resources determine a node's score.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ScoringStrategy {
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub(crate) kind: String,
    pub(crate) resources: Vec<ResourceSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requested_to_capacity_ratio: Option<RequestedToCapacityRatio>,
}

/// Arguments of the strategy `RequestedToCapacityRatio`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RequestedToCapacityRatio {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) shape: Vec<ShapePoint>,
}

impl PluginArgs for NodeResourcesFitArgs {
    fn set_defaults(&mut self, _: &FeatureGates) {
        let strategy = self.scoring_strategy.get_or_insert_with(|| ScoringStrategy {
            kind: "LeastAllocated".to_owned(),
            ..ScoringStrategy::default()
        });
        ResourceSpec::set_defaults(&mut strategy.resources);
    }

    fn validate(&self, path: &str, _: &FeatureGates) -> Vec<FieldError> {
        let at = |field: String| if path.is_empty() { field } else { format!("{path}.{field}") };
        let mut errors = Vec::new();
        for (n, name) in self.ignored_resources.iter().enumerate() {
            errors.extend(qualified_name(name).iter().map(|detail| {
                FieldError::value(at(format!("ignoredResources[{n}]")), name.as_str(), detail)
            }));
        }
        for (n, group) in self.ignored_resource_groups.iter().enumerate() {
            let at = at(format!("ignoredResourceGroups[{n}]"));
            if group.contains('/') {
                let rule = "resource group name can't contain '/'";
                errors.push(FieldError::value(at.clone(), group.as_str(), rule));
            }
            let broken = qualified_name(group);
            errors.extend(
                broken.iter().map(|detail| FieldError::value(at.clone(), group.as_str(), detail)),
            );
        }
        match &self.scoring_strategy {
            Some(strategy) => errors.extend(strategy.validate(&at("scoringStrategy".to_owned()))),
            None => errors.push(FieldError::required(
                at("scoringStrategy".to_owned()),
                "ScoringStrategy field is required",
            )),
        }
        errors
    }
}

impl ScoringStrategy {
    fn validate(&self, path: &str) -> Vec<FieldError> {
        const RATIO: &str = "RequestedToCapacityRatio";
        let supported_types = ["LeastAllocated", "MostAllocated", RATIO];
        let mut errors = Vec::new();
        if !supported_types.contains(&self.kind.as_str()) {
            errors.push(FieldError::unsupported(
                format!("{path}.type"),
                &self.kind,
                &supported_types,
            ));
        }
        for (n, resource) in self.resources.iter().enumerate() {
            if !(1..=100).contains(&resource.weight) {
                let rule =
                    format!("resource weight of {} not in valid range (0, 100]", resource.name);
                let at = format!("{path}.resources[{n}].weight");
                errors.push(FieldError::value(at, resource.weight, &rule));
            }
        }
        let at = format!("{path}.requestedToCapacityRatio");
        match (&self.requested_to_capacity_ratio, self.kind == RATIO) {
            (None, false) => {}
            (None, true) => {
                let rule = "must be specified when type is RequestedToCapacityRatio";
                errors.push(FieldError::required(at, rule));
            }
            (Some(ratio), true) => {
                errors.extend(ShapePoint::check(&ratio.shape, &format!("{at}.shape")));
            }
            (Some(_), false) => {
                let rule = "must be nil when type is not RequestedToCapacityRatio";
                errors.push(FieldError::forbidden(at, rule));
            }
        }
        errors
    }
}

/// Arguments of the plugin: upstream's `PodTopologySpreadArgs`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodTopologySpreadArgs {
    /// Constraints of pods that define none. They must not have selectors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) default_constraints: Vec<Value>,
    pub(crate) defaulting_type: String,
}

impl PluginArgs for PodTopologySpreadArgs {
    fn set_defaults(&mut self, _: &FeatureGates) {
        if self.defaulting_type.is_empty() {
            "System".clone_into(&mut self.defaulting_type);
        }
    }

    fn validate(&self, path: &str, _: &FeatureGates) -> Vec<FieldError> {
        let (kind, at) = (self.defaulting_type.as_str(), format!("{path}.defaultingType"));
        let mut errors = Vec::new();
        match kind {
            "System" if !self.default_constraints.is_empty() => {
                errors.push(FieldError::value(at, kind, "when .defaultConstraints are not empty"));
            }
            "System" | "List" => {}
            other => errors.push(FieldError::unsupported(at, other, &["System", "List"])),
        }
        for (n, constraint) in self.default_constraints.iter().enumerate() {
            let at = format!("{path}.defaultConstraints[{n}]");
            errors.extend(validate_constraint(constraint, &at));
            let key_and_action = |constraint: &Value| {
                [constraint["topologyKey"].clone(), constraint["whenUnsatisfiable"].clone()]
            };
            if self.default_constraints[..n]
                .iter()
                .any(|other| key_and_action(other) == key_and_action(constraint))
            {
                let [key, action] = key_and_action(constraint);
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                errors.push(FieldError::duplicate(
                    at,
                    format!("{{{}, {}}}", text(&key), text(&action)),
                ));
            }
        }
        errors
    }
}

/// Validates a default constraint.
fn validate_constraint(constraint: &Value, at: &str) -> Vec<FieldError> {
    let text = |field: &str| constraint.get(field).and_then(Value::as_str).unwrap_or_default();
    let mut errors = Vec::new();
    let skew = constraint.get("maxSkew").and_then(Value::as_i64).unwrap_or_default();
    if skew <= 0 {
        errors.push(FieldError::value(
            format!("{at}.maxSkew"),
            skew,
            "not in valid range (0, inf)",
        ));
    }
    let key = text("topologyKey");
    let at_key = format!("{at}.topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(at_key, "can not be empty"));
    } else {
        let broken = qualified_name(key);
        errors.extend(broken.iter().map(|detail| FieldError::value(at_key.clone(), key, detail)));
    }
    let at_when = format!("{at}.whenUnsatisfiable");
    match text("whenUnsatisfiable") {
        "" => errors.push(FieldError::required(at_when, "can not be empty")),
        "DoNotSchedule" | "ScheduleAnyway" => {}
        other => {
            let supported = ["DoNotSchedule", "ScheduleAnyway"];
            errors.push(FieldError::unsupported(at_when, other, &supported));
        }
    }
    if constraint.get("labelSelector").is_some() {
        let rule = "constraint must not define a selector, as they deduced for each pod";
        errors.push(FieldError::forbidden(format!("{at}.labelSelector"), rule));
    }
    errors
}

/// Arguments of the plugin: upstream's `VolumeBindingArgs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VolumeBindingArgs {
    pub(crate) bind_timeout_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) shape: Vec<ShapePoint>,
}

impl PluginArgs for VolumeBindingArgs {
    fn set_defaults(&mut self, gates: &FeatureGates) {
        self.bind_timeout_seconds.get_or_insert(600);
        if self.shape.is_empty() && gates.enabled("StorageCapacityScoring") {
            self.shape = vec![
                ShapePoint { utilization: 0, score: 10 },
                ShapePoint { utilization: 100, score: 0 },
            ];
        }
    }

    fn validate(&self, path: &str, gates: &FeatureGates) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let timeout = self.bind_timeout_seconds.unwrap_or_default();
        if timeout < 0 {
            let rule = "invalid BindTimeoutSeconds, should not be a negative value";
            errors.push(FieldError::value(format!("{path}.bindTimeoutSeconds"), timeout, rule));
        }
        let at = format!("{path}.shape");
        if gates.enabled("StorageCapacityScoring") {
            errors.extend(ShapePoint::check(&self.shape, &at));
        } else if !self.shape.is_empty() {
            let rule = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";
            errors.push(FieldError::value(at, json!(self.shape), rule));
        }
        errors
    }
}
