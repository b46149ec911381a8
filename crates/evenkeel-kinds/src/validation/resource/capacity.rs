//! Validation of a device's capacities, and of the policies for requests that consume them.

use super::super::quantity::whole_value;
use super::names;
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, list, object};
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of `validValues` in a request policy.
const MAX_VALID_VALUES: usize = 10;

/// Validates `capacity` of a device. Only a device that can be allocated multiple times may have request policies.
///
/// Upstream: `validateMultiAllocatableDeviceCapacity`, `validateSingleAllocatableDeviceCapacity`.
pub(super) fn capacities(
    device: &Value,
    allows_multiple: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let path = path.field("capacity");
    for (name, capacity) in object(device, "capacity").into_iter().flatten() {
        names::qualified(name, &path, errors);
        let Some(policy) = get(capacity, "requestPolicy") else { continue };
        let path = path.key(name);
        let path = path.field("requestPolicy");
        if allows_multiple {
            let value = Quantity::of(capacity, "value").unwrap_or_default();
            request_policy(value, policy, &path, errors);
        } else {
            errors.forbidden(&path, "allowMultipleAllocations must be true");
        }
    }
}

/// Quantity: its amount, and the string in the object.
#[derive(Clone, Copy, Default)]
struct Quantity<'v> {
    amount: Amount,
    text: &'v str,
}

impl<'v> Quantity<'v> {
    fn of(object: &'v Value, field: &str) -> Option<Self> {
        get(object, field).and_then(Self::from_value)
    }

    fn from_value(value: &'v Value) -> Option<Self> {
        Some(Self { amount: Amount::of(value)?, text: value.as_str().unwrap_or_default() })
    }
}

/// Validates the request policy of a capacity: either valid values or a valid range, with a default.
///
/// Upstream: `validateRequestPolicy`, `validateValidRequestValues`.
fn request_policy(capacity: Quantity<'_>, policy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let values: Vec<Quantity<'_>> =
        list(policy, "validValues").iter().filter_map(Quantity::from_value).collect();
    let range = get(policy, "validRange");
    let default = Quantity::of(policy, "default");
    match (values.is_empty(), range, default) {
        (false, Some(_), _) => errors.forbidden(
            path,
            r#"exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#,
        ),
        (false, None, None) => {
            errors.required(&path.field("default"), "required when validValues is defined");
        }
        (false, None, Some(default)) => {
            valid_values(default, capacity, &values, &path.field("validValues"), errors);
        }
        (true, Some(_), None) => {
            errors.required(&path.field("default"), "required when validRange is defined");
        }
        (true, Some(range), Some(default)) => {
            valid_range(default, capacity, range, &path.field("validRange"), errors);
        }
        (true, None, _) => {}
    }
}

/// Requires unique values in ascending order, at most the capacity, and among them the default.
///
/// Upstream: `validateRequestPolicyValidValues`.
fn valid_values(
    default: Quantity<'_>,
    capacity: Quantity<'_>,
    values: &[Quantity<'_>],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for (index, pair) in values.windows(2).enumerate() {
        if pair[0].amount > pair[1].amount {
            let detail = "values must be sorted in ascending order";
            errors.invalid(&path.index(index + 1), pair[1].text, detail);
        }
    }
    let mut has_default = false;
    if values.len() > MAX_VALID_VALUES {
        errors.too_many(path, values.len(), MAX_VALID_VALUES);
    } else {
        for (index, value) in values.iter().enumerate() {
            if value.amount > capacity.amount {
                let detail = format!("option is larger than capacity value: {}", capacity.text);
                errors.invalid(&path.index(index), value.text, &detail);
            }
            has_default |= value.amount == default.amount;
        }
        let mut seen = BTreeSet::new();
        for (index, value) in values.iter().enumerate() {
            let number = whole_value(value.amount);
            if !seen.insert(number) {
                errors.duplicate(&path.index(index), number.to_string());
            }
        }
    }
    if !has_default {
        let detail = "default value is not valid according to the requestPolicy";
        errors.invalid(path, default.text, detail);
    }
}

/// Validates a range of requests: the minimum, maximum, step and default must be consistent and at most the capacity.
///
/// Upstream: `validateRequestPolicyRange`.
fn valid_range(
    default: Quantity<'_>,
    capacity: Quantity<'_>,
    range: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(min) = Quantity::of(range, "min") else {
        return errors.required(&path.field("min"), "required when validRange is defined");
    };
    let max = Quantity::of(range, "max");
    let mut exceeds = |field: &str, value: Quantity<'_>, words: &str, limit: Quantity<'_>| {
        errors.invalid(&path.field(field), value.text, &format!("{words}: {}", limit.text));
    };
    if min.amount > capacity.amount {
        exceeds("min", min, "min is larger than capacity value", capacity);
    }
    if default.amount < min.amount {
        exceeds("default", default, "default is less than min", min);
    }
    if let Some(max) = max {
        if min.amount > max.amount {
            exceeds("max", min, "min is larger than max", max);
        }
        if max.amount > capacity.amount {
            exceeds("max", max, "max is larger than capacity value", capacity);
        }
        if default.amount > max.amount {
            exceeds("default", default, "default is more than max", max);
        }
    }
    if let Some(step) = Quantity::of(range, "step") {
        let bounds = [("default", Some(default)), ("min", Some(min)), ("max", max)];
        valid_step(step, &bounds, capacity, path, errors);
    }
}

/// Validates the step. The default and the maximum must be the minimum plus a multiple of the step.
///
/// Upstream: `validateRequestPolicyRangeStep`.
fn valid_step(
    step: Quantity<'_>,
    bounds: &[(&str, Option<Quantity<'_>>); 3],
    capacity: Quantity<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let step_path = path.field("step");
    if step.amount <= Amount::default() {
        return errors.invalid(&step_path, step.text, "must be greater than zero");
    }
    let [default, min, max] = bounds.map(|(_, bound)| bound);
    let min = min.unwrap_or_default();
    let added = min.amount + step.amount;
    if added > capacity.amount {
        let detail = format!("one step {added} is larger than capacity value: {}", capacity.text);
        errors.invalid(&step_path, step.text, &detail);
    }
    let mut is_unsafe = false;
    for (field, bound) in bounds.iter().copied().chain([("step", Some(step))]) {
        let Some(bound) = bound else { continue };
        let detail = if bound.amount.is_negative() {
            "must be greater than or equal to 0"
        } else if bound.amount > Amount::whole(i64::MAX) {
            "must not be larger than 9223372036854775807"
        } else {
            continue;
        };
        is_unsafe = true;
        errors.invalid(&path.field(field), bound.text, detail);
    }
    if is_unsafe {
        return;
    }
    for value in [default, max].into_iter().flatten() {
        let distance = whole_value(value.amount) - whole_value(min.amount);
        if distance % whole_value(step.amount) != 0 {
            let detail = format!(
                "value is not a multiple of a given step ({}) from ({})",
                step.text, min.text
            );
            errors.invalid(&step_path, value.text, &detail);
        }
    }
}
