//! Validation of a Job's pod failure policy and success policy.

use super::names;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, list, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of rules of a policy.
const MAX_RULES: usize = 20;
/// Maximum number of exit codes of a rule.
const MAX_EXIT_CODES: usize = 255;
/// Maximum number of pod conditions of a rule.
const MAX_POD_CONDITIONS: usize = 20;
/// Maximum length of `succeededIndexes` in bytes.
const MAX_SUCCEEDED_INDEXES: usize = 64 * 1024;

/// Rejects a list with more than `max_items` items.
fn check_count(items: &[Value], max_items: usize, path: &Path<'_>, errors: &mut Errors) {
    if items.len() > max_items {
        errors.too_many(path, items.len(), max_items);
    }
}

/// Requires one of the supported values.
fn required_one_of(value: &str, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if value.is_empty() {
        let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        errors.required(path, &format!("valid values: [{}]", quoted.join(" ")));
    } else {
        errors.one_of(path, value, supported);
    }
}

/// Validates the pod failure policy of a Job's spec.
///
/// Upstream: `validatePodFailurePolicy`.
pub(super) fn pod_failure_policy(
    spec: &Value,
    policy: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let containers: BTreeSet<&str> = ["template.spec.containers", "template.spec.initContainers"]
        .iter()
        .flat_map(|field| list(spec, field).iter().map(|container| text(container, "name")))
        .collect();
    let rules = list(policy, "rules");
    let path = path.field("rules");
    check_count(rules, MAX_RULES, &path, errors);
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        let action = text(rule, "action");
        if action == "FailIndex" {
            if get(spec, "backoffLimitPerIndex").is_none() {
                let detail = "requires the backoffLimitPerIndex to be set";
                errors.invalid(&path.field("action"), action, detail);
            }
        } else {
            let supported = ["Count", "FailIndex", "FailJob", "Ignore"];
            required_one_of(action, &supported, &path.field("action"), errors);
        }
        if let Some(codes) = get(rule, "onExitCodes") {
            on_exit_codes(codes, &containers, &path.field("onExitCodes"), errors);
        }
        let conditions = list(rule, "onPodConditions");
        on_pod_conditions(conditions, &path.field("onPodConditions"), errors);
        let detail = match (get(rule, "onExitCodes").is_some(), !conditions.is_empty()) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.invalid_whole(&path, detail);
    }
}

/// Validates a rule for exit codes: operator, container name, and values.
///
/// Upstream: `validatePodFailurePolicyRuleOnExitCodes`.
fn on_exit_codes(codes: &Value, containers: &BTreeSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    let operator = text(codes, "operator");
    required_one_of(operator, &["In", "NotIn"], &path.field("operator"), errors);
    if let Some(name) = get(codes, "containerName").and_then(Value::as_str)
        && !containers.contains(name)
    {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&path.field("containerName"), name, detail);
    }
    let values = list(codes, "values");
    let path = path.field("values");
    if values.is_empty() {
        let shown = get(codes, "values").cloned().unwrap_or_default();
        errors.invalid(&path, shown, "at least one value is required");
    }
    check_count(values, MAX_EXIT_CODES, &path, errors);
    let numbers: Vec<i64> = values.iter().map(|value| value.as_i64().unwrap_or_default()).collect();
    let mut seen = BTreeSet::new();
    for (index, number) in numbers.iter().enumerate() {
        let path = path.index(index);
        if operator == "In" && *number == 0 {
            errors.invalid(&path, 0, "must not be 0 for the In operator");
        }
        if !seen.insert(*number) {
            errors.duplicate(&path, *number);
        }
    }
    if !numbers.is_sorted() {
        errors.invalid(&path, values.to_vec(), "must be ordered");
    }
}

/// Validates type and status of each pod condition that a rule matches.
///
/// Upstream: `validatePodFailurePolicyRuleOnPodConditions`.
fn on_pod_conditions(conditions: &[Value], path: &Path<'_>, errors: &mut Errors) {
    check_count(conditions, MAX_POD_CONDITIONS, path, errors);
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let type_ = text(condition, "type");
        errors.invalid_for_each(&path.field("type"), type_, &names::qualified_name(type_));
        let supported = ["False", "True", "Unknown"];
        required_one_of(text(condition, "status"), &supported, &path.field("status"), errors);
    }
}

/// Validates the success policy of a Job with this number of completions.
///
/// Upstream: `validateSuccessPolicy`.
pub(super) fn success_policy(
    policy: &Value,
    completions: i64,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let rules = list(policy, "rules");
    let path = path.field("rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.required(&path, detail);
    }
    check_count(rules, MAX_RULES, &path, errors);
    for (index, rule) in rules.iter().enumerate() {
        success_policy_rule(rule, completions, &path.index(index), errors);
    }
}

/// Validates a rule of a success policy: indexes must be in the range of completions, and the count must not exceed
/// them.
///
/// Upstream: `validateSuccessPolicyRule`.
fn success_policy_rule(rule: &Value, completions: i64, path: &Path<'_>, errors: &mut Errors) {
    let indexes = get(rule, "succeededIndexes").and_then(Value::as_str);
    let count = int(rule, "succeededCount");
    if indexes.is_none() && count.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.required(path, detail);
    }
    let mut index_count = 0;
    if let Some(indexes) = indexes {
        let path = path.field("succeededIndexes");
        if indexes.len() > MAX_SUCCEEDED_INDEXES {
            errors.too_long(&path, MAX_SUCCEEDED_INDEXES);
        }
        match count_of_indexes(indexes, completions) {
            Ok(count) => index_count = count,
            Err(why) => {
                let detail = format!("error parsing succeededIndexes: {why}");
                errors.invalid(&path, indexes, &detail);
            }
        }
    }
    let Some(count) = count else { return };
    let path = path.field("succeededCount");
    errors.non_negative(&path, Some(count));
    if count > completions {
        let detail = format!(
            "must be less than or equal to {completions} (the number of specified completions)"
        );
        errors.invalid(&path, count, &detail);
    }
    if indexes.is_some() && count > index_count {
        let detail = format!(
            "must be less than or equal to {index_count} (the number of indexes in the specified succeededIndexes field)"
        );
        errors.invalid(&path, count, &detail);
    }
}

/// Returns the number of indexes in a list such as `0-2,5`. Each index must be below `completions`.
///
/// Upstream: `validateIndexesFormat`.
pub(super) fn count_of_indexes(indexes: &str, completions: i64) -> Result<i64, String> {
    if indexes.is_empty() {
        return Ok(0);
    }
    // Last index of the previous interval.
    let mut previous = None;
    let mut total = 0;
    for interval in indexes.split(',') {
        let (first, last) = index_interval(interval, completions)?;
        if let Some(previous) = previous.filter(|previous| *previous >= first) {
            return Err(format!("non-increasing order, previous: {previous}, current: {first}"));
        }
        total += last - first + 1;
        previous = Some(last);
    }
    Ok(total)
}

/// Returns the first and the last index of an interval such as `0-2` or `5`, each below `completions`.
///
/// Upstream: `parseIndexInterval`.
pub(super) fn index_interval(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let parse_index = |text: &str| -> Result<i64, String> {
        let index: i64 = text
            .parse()
            .map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if index >= completions {
            return Err(format!("too large index: {text:?}"));
        }
        Ok(index)
    };
    match *interval.split('-').collect::<Vec<_>>().as_slice() {
        [single] => parse_index(single).map(|index| (index, index)),
        [first, last] => {
            let (first, last) = (parse_index(first)?, parse_index(last)?);
            if first >= last {
                return Err(format!("non-increasing order, previous: {first}, current: {last}"));
            }
            Ok((first, last))
        }
        _ => Err(format!(
            "the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted_or_rejected() {
        for (indexes, count) in [("", 0), ("0", 1), ("0-2", 3), ("0,2-3", 3)] {
            assert_eq!(count_of_indexes(indexes, 4), Ok(count), "{indexes}");
        }
        for (indexes, why) in [
            ("4", "too large index: \"4\""),
            ("a", "cannot convert string to integer for index: \"a\""),
            ("1,1", "non-increasing order, previous: 1, current: 1"),
            ("2-1", "non-increasing order, previous: 2, current: 1"),
            (
                "0-1-2",
                "the fragment \"0-1-2\" violates the requirement that an index interval can have at most two parts separated by '-'",
            ),
        ] {
            assert_eq!(count_of_indexes(indexes, 4), Err(why.to_owned()), "{indexes}");
        }
    }
}
