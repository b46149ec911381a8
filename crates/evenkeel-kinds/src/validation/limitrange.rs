//! Validation of LimitRanges.

use super::{names, quantity};
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{Object, is_empty, list, object, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// Largest integer whose number of thousandths fits in 64 bits.
///
/// Upstream: `MaxMilliValue`.
const MAX_MILLI_VALUE: i128 = (i64::MAX / 1000) as i128;

/// Validates each item of a LimitRange: its type, its resource names, and the order of its limits.
///
/// Upstream: `ValidateLimitRange`.
pub(super) fn limit_range(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let limits_path = path.field("limits");
    let mut seen = BTreeSet::new();
    for (index, item) in list(new, "spec.limits").iter().enumerate() {
        let path = limits_path.index(index);
        let kind = text(item, "type");
        limit_type(kind, &path.field("type"), errors);
        if !seen.insert(kind) {
            errors.duplicate(&path.field("type"), kind);
        }
        let mut names = BTreeSet::new();
        let mut resources = |field: &str, errors: &mut Errors| {
            for name in object(item, field).into_iter().flat_map(Object::keys) {
                resource_name(kind, name, &path.field(field).key(name), errors);
                names.insert(name.as_str());
            }
        };
        resources("max", errors);
        resources("min", errors);
        for field in ["default", "defaultRequest"] {
            if kind != "Pod" {
                resources(field, errors);
            } else if !is_empty(item, field) {
                let detail = "may not be specified when `type` is 'Pod'";
                errors.forbidden(&path.field(field), detail);
            }
        }
        let has_storage =
            |field: &str| object(item, field).is_some_and(|map| map.contains_key("storage"));
        if kind == "PersistentVolumeClaim" && !has_storage("min") && !has_storage("max") {
            errors.required(
                &path.field("limits"),
                "either minimum or maximum storage value is required, but neither was provided",
            );
        }
        resources("maxLimitRequestRatio", errors);
        for name in names {
            Limits::of(item, name).validate(&path, errors);
        }
    }
}

/// Requires a standard type (`Pod`, `Container`, `PersistentVolumeClaim`), or a qualified name with a prefix.
///
/// Upstream: `validateLimitRangeTypeName`.
fn limit_type(kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let messages = names::qualified_name(kind);
    errors.invalid_for_each(path, kind, &messages);
    let is_standard = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind);
    if messages.is_empty() && !kind.contains('/') && !is_standard {
        errors.invalid(path, kind, "must be a standard limit type or fully qualified");
    }
}

/// Validates the name of a limited resource. Pods and containers only accept resources of containers.
///
/// Upstream: `validateLimitRangeResourceName`.
fn resource_name(kind: &str, name: &str, path: &Path<'_>, errors: &mut Errors) {
    match kind {
        "Pod" | "Container" => quantity::container_resource_name(name, path, errors),
        _ => {
            quantity::resource_name(name, path, errors);
        }
    }
}

/// Quantity of a limit: its amount, and the string in the object.
#[derive(Clone, Copy)]
struct Limit<'a> {
    amount: Amount,
    text: &'a str,
}

/// All limits of one resource in an item.
struct Limits<'a> {
    name: &'a str,
    min: Option<Limit<'a>>,
    max: Option<Limit<'a>>,
    default: Option<Limit<'a>>,
    default_request: Option<Limit<'a>>,
    ratio: Option<Limit<'a>>,
}

impl<'a> Limits<'a> {
    /// Reads the limits of a resource. Limits of a Pod have no defaults.
    fn of(item: &'a Value, name: &'a str) -> Self {
        let limit = |field: &str| {
            let value = object(item, field)?.get(name)?;
            Some(Limit { amount: Amount::of(value)?, text: value.as_str().unwrap_or_default() })
        };
        let default = |field: &str| limit(field).filter(|_| text(item, "type") != "Pod");
        Self {
            name,
            min: limit("min"),
            max: limit("max"),
            default: default("default"),
            default_request: default("defaultRequest"),
            ratio: limit("maxLimitRequestRatio"),
        }
    }

    fn validate(&self, path: &Path<'_>, errors: &mut Errors) {
        // Requires that `low` is not greater than `high`, both with their names in the error. The error is at `field`,
        // and quotes `value`.
        let mut require_order = |(low_name, low): (&str, Option<Limit<'a>>),
                                 (high_name, high): (&str, Option<Limit<'a>>),
                                 field: &str,
                                 value: Option<Limit<'a>>| {
            if let (Some(low), Some(high), Some(value)) = (low, high, value)
                && low.amount > high.amount
            {
                let detail =
                    format!("{low_name} {} is greater than {high_name} {}", low.text, high.text);
                errors.invalid(&path.field(field).key(self.name), value.text, &detail);
            }
        };
        let min = ("min value", self.min);
        let max = ("max value", self.max);
        let request = ("default request value", self.default_request);
        require_order(min, max, "min", self.min);
        require_order(min, request, "defaultRequest", self.default_request);
        require_order(request, max, "defaultRequest", self.default_request);
        let limit = ("default limit value", self.default);
        require_order(request, limit, "defaultRequest", self.default_request);
        // As in upstream, these two errors contain the minimum or the maximum, not the value of the field.
        require_order(min, ("default value", self.default), "default", self.min);
        require_order(("default value", self.default), max, "default", self.max);
        self.validate_ratio(path, errors);
        if let (Some(limit), Some(request)) = (self.default, self.default_request)
            && limit.amount != request.amount
            && !quantity::can_overcommit(self.name)
        {
            let detail = format!(
                "default value {} must equal to defaultRequest value {} in {}",
                limit.text, request.text, self.name
            );
            errors.invalid(&path.field("defaultRequest").key(self.name), request.text, &detail);
        }
    }

    fn validate_ratio(&self, path: &Path<'_>, errors: &mut Errors) {
        let Some(ratio) = self.ratio else { return };
        let path = path.field("maxLimitRequestRatio");
        let path = path.key(self.name);
        if ratio.amount < Amount::whole(1) {
            errors.invalid(&path, ratio.text, &format!("ratio {} is less than 1", ratio.text));
        }
        let (Some(min), Some(max)) = (self.min, self.max) else { return };
        let largest = largest_ratio(ratio.amount, min.amount, max.amount);
        if let Some(largest) = largest {
            let detail = format!("ratio {} is greater than max/min = {largest}", ratio.text);
            errors.invalid(&path, ratio.text, &detail);
        }
    }
}

/// Returns the quotient `max / min` in upstream's format if `ratio` is greater than the quotient. Compares amounts in
/// thousandths if these fit into 64 bits, otherwise as integers.
#[expect(clippy::cast_precision_loss, reason = "upstream divides floating-point numbers")]
fn largest_ratio(ratio: Amount, min: Amount, max: Amount) -> Option<String> {
    let [mut ratio_value, mut low, mut high] = [ratio, min, max].map(quantity::whole_value);
    let mut unit = 1.0;
    if [ratio_value, low, high].iter().all(|value| *value < MAX_MILLI_VALUE) {
        [ratio_value, low, high] = [ratio, min, max].map(quantity::milli_value);
        unit = 1000.0;
    }
    let largest = high as f64 / low as f64;
    let is_greater = ratio_value as f64 / unit > largest;
    is_greater.then(|| match largest {
        largest if largest.is_infinite() => "-Inf".to_owned(),
        largest => format!("{largest:.6}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn items_of_a_limit_range_are_validated() {
        let (min, request) = ("spec.limits[0].min[cpu]", "spec.limits[0].defaultRequest[cpu]");
        let (limit, ratio) =
            ("spec.limits[0].default[cpu]", "spec.limits[0].maxLimitRequestRatio[cpu]");
        let table: [(Value, &[&str]); 12] = [
            (json!({"type": "Container", "max": {"cpu": "1"}}), &[]),
            (json!({"type": "a"}), &["spec.limits[0].type"]),
            (json!({"type": "a/b", "max": {"storage": "1"}}), &[]),
            (json!({"type": "Pod", "default": {"cpu": "1"}}), &["spec.limits[0].default"]),
            (json!({"type": "Pod", "max": {"storage": "1"}}), &["spec.limits[0].max[storage]"]),
            (json!({"type": "PersistentVolumeClaim"}), &["spec.limits[0].limits"]),
            (json!({"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}), &[min]),
            (
                json!({"type": "Container", "min": {"cpu": "2"}, "default": {"cpu": "1"},
                    "defaultRequest": {"cpu": "1"}}),
                &[request, limit],
            ),
            (
                json!({"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "2"},
                    "defaultRequest": {"cpu": "3"}}),
                &[request, request, limit],
            ),
            (json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}}), &[ratio]),
            (
                json!({"type": "Container", "min": {"cpu": "50m"}, "max": {"cpu": "100m"},
                    "maxLimitRequestRatio": {"cpu": "3"}}),
                &[ratio],
            ),
            (
                json!({"type": "Container", "default": {"a.example/b": "2"},
                    "defaultRequest": {"a.example/b": "1"}}),
                &["spec.limits[0].defaultRequest[a.example/b]"],
            ),
        ];
        for (item, expected) in table {
            let mut errors = Errors::default();
            limit_range(&json!({"spec": {"limits": [item]}}), &mut errors);
            let found: Vec<String> =
                errors.into_vec().into_iter().map(|error| error.field).collect();
            assert_eq!(found, expected, "{item}");
        }
    }

    #[test]
    fn a_ratio_above_max_divided_by_min_is_reported_with_six_digits() {
        for (ratio, min, max, expected) in [
            (3, 1, 2, Some("2.000000")),
            (2, 1, 2, None),
            (1, 0, 0, None),
            (1, 0, 1, None),
            (1, 3, 1, Some("0.333333")),
        ] {
            let found = largest_ratio(Amount::whole(ratio), Amount::whole(min), Amount::whole(max));
            assert_eq!(found.as_deref(), expected, "{ratio} {min} {max}");
        }
    }
}
