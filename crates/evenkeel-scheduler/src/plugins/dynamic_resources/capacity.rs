//! Consumable capacity: the part of a shared device's capacity that a request consumes.
//!
//! Upstream: KEP-5075, `structured/internal/incubating/consumable_capacity.go`.

use evenkeel_api::{
    Map,
    quantity::Quantity,
    views::{
        CapacityRequestPolicy, CapacityRequestPolicyRange, CapacityRequirements, DeviceCapacity,
    },
};
use std::collections::BTreeMap;

/// Amounts by name of the capacity.
pub(super) type Amounts = BTreeMap<Box<str>, Quantity>;

/// Returns the capacity that the request consumes.
///
/// # Errors
/// Fails if the device's request policy cannot represent the requested amount. No device is suitable then.
pub(super) fn consumed(
    requested: Option<&CapacityRequirements>,
    total: &Map<DeviceCapacity>,
) -> Result<Amounts, String> {
    let mut consumed = Amounts::new();
    for (name, capacity) in total.iter() {
        let requested = requested.and_then(|requested| requested.requests.get(name)).copied();
        let amount = round_by_policy(requested, capacity)
            .map_err(|error| format!("capacity \"{name}\": {error}"))?;
        if amount.sign() < 0 {
            return Err(format!("capacity \"{name}\": capacity value is negative"));
        }
        consumed.insert(name.into(), amount);
    }
    Ok(consumed)
}

/// Returns whether the device has the requested capacity beside `consumed_by_others`.
///
/// # Errors
/// Fails as [`consumed`] does.
pub(super) fn suffices(
    requested: Option<&CapacityRequirements>,
    total: &Map<DeviceCapacity>,
    consumed_by_others: [Option<&Amounts>; 2],
) -> Result<bool, String> {
    if requested
        .is_some_and(|requested| requested.requests.iter().any(|(name, _)| !total.contains(name)))
    {
        return Ok(false);
    }
    let consumed = consumed(requested, total)?;
    Ok(total.iter().all(|(name, capacity)| {
        let amount = consumed.get(name).copied().unwrap_or(Quantity::ZERO);
        let others = consumed_by_others.iter().flatten().filter_map(|amounts| amounts.get(name));
        let sum = others.fold(amount, |sum, other| sum.plus(*other));
        is_allowed(amount, capacity.request_policy.as_deref()) && sum <= capacity.value
    }))
}

/// Rounds a requested amount according to the device's request policy.
fn round_by_policy(
    requested: Option<Quantity>,
    capacity: &DeviceCapacity,
) -> Result<Quantity, String> {
    let policy = capacity.request_policy.as_deref();
    let Some(requested) = requested else {
        return Ok(policy.and_then(|policy| policy.default).unwrap_or(capacity.value));
    };
    let Some(policy) = policy else { return Ok(requested) };
    if let Some(range) = policy.valid_range.as_deref()
        && let Some(min) = range.min
    {
        return round_up_to_step(requested, range, min);
    }
    let sufficient = policy.valid_values.iter().find(|value| requested <= **value);
    Ok(sufficient.copied().unwrap_or(requested))
}

/// Rounds a requested amount up to the minimum or the next step of the range.
fn round_up_to_step(
    requested: Quantity,
    range: &CapacityRequestPolicyRange,
    min: Quantity,
) -> Result<Quantity, String> {
    const NOT_REPRESENTABLE: &str =
        "capacity request cannot be represented in the device's range arithmetic";
    if requested < min {
        return Ok(min);
    }
    let Some(step) = range.step.map(Quantity::value).filter(|step| *step > 0) else {
        return Ok(requested);
    };
    if requested > Quantity::from_units(i64::MAX) {
        return Err(format!("{NOT_REPRESENTABLE}: request {requested} exceeds MaxInt64"));
    }
    let requested = i128::from(requested.value());
    let min = i128::from(min.value());
    let steps = (requested - min + i128::from(step) - 1).div_euclid(i128::from(step));
    let amount = min + steps * i128::from(step);
    i64::try_from(amount).map(Quantity::from_units).map_err(|_| {
        format!(
            "{NOT_REPRESENTABLE}: rounding request {requested} up to the next step passes MaxInt64"
        )
    })
}

/// Returns whether the policy allows the amount.
fn is_allowed(amount: Quantity, policy: Option<&CapacityRequestPolicy>) -> bool {
    let Some(policy) = policy else { return true };
    if policy.default == Some(amount) {
        return true;
    }
    if let Some(range) = policy.valid_range.as_deref() {
        let min = range.min.map_or(0, Quantity::value);
        let step = range.step.map(Quantity::value).filter(|step| *step != 0);
        return range.max.is_none_or(|max| amount <= max)
            && step.is_none_or(|step| (amount.value() - min) % step == 0);
    }
    policy.valid_values.is_empty() || policy.valid_values.contains(&amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, View, views::ResourceSlice};
    use serde_json::{Value, json};

    /// Capacities of a device whose capacity `memory` has these fields.
    fn device(capacity: &Value) -> Map<DeviceCapacity> {
        let slice = json!({"spec": {"devices": [{"name": "d", "capacity": {"memory": capacity}}]}});
        let slice = ResourceSlice::decode(slice.to_string().as_bytes(), Encoding::Json).unwrap();
        slice.spec.devices[0].capacity.clone()
    }

    fn requirements_of(amount: Option<&str>) -> Option<CapacityRequirements> {
        let amount = amount.map(|text| ("memory", Quantity::parse(text).unwrap()));
        amount.map(|amount| CapacityRequirements { requests: [amount].into_iter().collect() })
    }

    #[test]
    fn amounts_are_rounded_by_the_request_policy() {
        let range = json!({"value": "10Gi", "requestPolicy": {"default": "1Gi",
            "validRange": {"min": "2Gi", "max": "8Gi", "step": "2Gi"}}});
        let values = json!({"value": "10Gi", "requestPolicy": {"default": "1Gi", "validValues": ["1Gi", "4Gi"]}});
        let plain = json!({"value": "10Gi"});
        for (capacity, requested, expected) in [
            (&plain, None, Some("10Gi")),
            (&plain, Some("3Gi"), Some("3Gi")),
            (&plain, Some("11Gi"), None),
            (&range, None, Some("1Gi")),
            (&range, Some("1Gi"), Some("2Gi")),
            (&range, Some("3Gi"), Some("4Gi")),
            (&range, Some("8Gi"), Some("8Gi")),
            (&range, Some("9Gi"), None),
            (&values, Some("2Gi"), Some("4Gi")),
            (&values, Some("5Gi"), None),
        ] {
            let (total, requested) = (device(capacity), requirements_of(requested));
            let fits = suffices(requested.as_ref(), &total, [None, None]).unwrap();
            let amount = consumed(requested.as_ref(), &total).unwrap()["memory"];
            assert_eq!(fits.then_some(amount), expected.map(|text| Quantity::parse(text).unwrap()));
        }
    }

    #[test]
    fn consumed_capacity_is_not_available_again() {
        let total = device(&json!({"value": "4Gi"}));
        let consumed: Amounts = [("memory".into(), Quantity::parse("2Gi").unwrap())].into();
        let requested = requirements_of(Some("2Gi"));
        assert_eq!(suffices(requested.as_ref(), &total, [Some(&consumed), None]), Ok(true));
        assert_eq!(
            suffices(requested.as_ref(), &total, [Some(&consumed), Some(&consumed)]),
            Ok(false)
        );
        let other =
            CapacityRequirements { requests: [("x", Quantity::ZERO)].into_iter().collect() };
        assert_eq!(
            suffices(Some(&other), &total, [None, None]),
            Ok(false),
            "the device has no capacity x"
        );
    }
}
