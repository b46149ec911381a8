//! Validation of flowcontrol.apiserver.k8s.io.

use super::dns_subdomain;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{flag, get, int, list, same, same_meaning, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;

mod rules;

/// Maximum `matchingPrecedence` of a FlowSchema.
const MAX_MATCHING_PRECEDENCE: i64 = 10_000;
/// Maximum number of queues of a priority level.
const MAX_QUEUES: i64 = 10_000_000;
/// Maximum number of bits of a hash that shuffle sharding may use.
const MAX_HASH_BITS: f64 = 60.0;
/// Annotation that keeps a concurrency share of zero. It is only valid in v1beta3.
const PRESERVE_ZERO_SHARES: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    match kind {
        "FlowSchema" => flow_schema(new, errors),
        "PriorityLevelConfiguration" => priority_level_configuration(new, None, errors),
        _ => {}
    }
}

pub(super) fn update(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    match kind {
        "FlowSchema" => flow_schema(new, errors),
        "PriorityLevelConfiguration" => priority_level_configuration(new, Some(old), errors),
        _ => {}
    }
}

/// Validates an updated status.
///
/// Upstream: `ValidateFlowSchemaStatus`, `ValidatePriorityLevelConfigurationStatus`.
pub(super) fn update_status(new: &Value, errors: &mut Errors) {
    let path = Path::new("status.conditions");
    let mut types = BTreeSet::new();
    for (index, condition) in list(new, "status.conditions").iter().enumerate() {
        let path = path.index(index);
        let kind = text(condition, "type");
        if !types.insert(kind) {
            errors.duplicate(&path.field("type"), kind);
        }
        if kind.is_empty() {
            errors.required(&path.field("type"), "");
        }
    }
}

/// Validates a FlowSchema: matching precedence, distinguisher method, priority level and rules.
///
/// Upstream: `ValidateFlowSchema`.
fn flow_schema(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let name = text(new, "metadata.name");
    let precedence = int(new, "spec.matchingPrecedence").unwrap_or_default();
    let precedence_path = path.field("matchingPrecedence");
    if precedence <= 0 {
        errors.invalid(&precedence_path, precedence, "must be a positive value");
    }
    if precedence > MAX_MATCHING_PRECEDENCE {
        let detail = format!("must not be greater than {MAX_MATCHING_PRECEDENCE}");
        errors.invalid(&precedence_path, precedence, &detail);
    }
    if precedence == 1 && name != "exempt" {
        let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.invalid(&precedence_path, precedence, detail);
    }
    if let Some(method) = get(new, "spec.distinguisherMethod") {
        let methods = ["ByNamespace", "ByUser"];
        if !methods.contains(&text(method, "type")) {
            let path = path.field("distinguisherMethod");
            // Upstream's error quotes the Go struct.
            let go_struct = json!({"Type": text(method, "type")});
            errors.not_supported(&path.field("type"), go_struct, &methods);
        }
    }
    let level = text(new, "spec.priorityLevelConfiguration.name");
    let level_path = path.field("priorityLevelConfiguration");
    match level {
        "" => errors.required(&level_path.field("name"), "must reference a priority level"),
        _ => errors.invalid_for_each(&level_path.field("name"), level, &dns_subdomain(level)),
    }
    let rules_path = path.field("rules");
    for (index, rule) in list(new, "spec.rules").iter().enumerate() {
        rules::policy_rules_with_subjects(rule, &rules_path.index(index), errors);
    }
    fixed_spec(new, mandatory_flow_schema(name).as_ref(), errors);
    update_status(new, errors);
}

/// Rejects a mandatory object whose spec differs from the fixed spec.
fn fixed_spec(new: &Value, fixed: Option<&Value>, errors: &mut Errors) {
    let spec = new.get("spec").unwrap_or(&Value::Null);
    if fixed.is_some_and(|fixed| !same_meaning(spec, fixed)) && !errors.is_full() {
        let name = text(new, "metadata.name");
        let detail = format!("spec of '{name}' must equal the fixed value");
        errors.invalid(&Path::new("spec"), spec.clone(), &detail);
    }
}

/// Returns the fixed spec of a mandatory FlowSchema, or `None` if no mandatory FlowSchema has this name.
///
/// Upstream: `MandatoryFlowSchemas`.
fn mandatory_flow_schema(name: &str) -> Option<Value> {
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    let rules_for_all_requests = |subjects: &[Value]| {
        json!([{
            "subjects": subjects,
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true,
                "namespaces": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }])
    };
    match name {
        "exempt" => Some(json!({
            "priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 1,
            "rules": rules_for_all_requests(&[group("system:masters")]),
        })),
        "catch-all" => Some(json!({
            "priorityLevelConfiguration": {"name": "catch-all"}, "matchingPrecedence": MAX_MATCHING_PRECEDENCE,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": rules_for_all_requests(&[group("system:unauthenticated"), group("system:authenticated")]),
        })),
        _ => None,
    }
}

/// Validates a PriorityLevelConfiguration with its status. The spec of a mandatory level is fixed, except for the
/// shares of `exempt`.
///
/// Upstream: `ValidatePriorityLevelConfiguration`.
fn priority_level_configuration(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let annotations = get(new, "metadata.annotations");
    if annotations.is_some_and(|annotations| annotations.get(PRESERVE_ZERO_SHARES).is_some()) {
        let detail = format!("annotation '{PRESERVE_ZERO_SHARES}' is forbidden");
        errors.forbidden(&Path::new("metadata.annotations"), &detail);
    }
    priority_level_spec(new, errors);
    mandatory_priority_level(new, errors);
    update_status(new, errors);
    declared(new, old, errors);
}

/// Validates the spec of a priority level by its type. Exactly the level named `exempt` has the type `Exempt`.
///
/// Upstream: `ValidatePriorityLevelConfigurationSpec`, without the rules of [`declared`].
fn priority_level_spec(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let kind = text(new, "spec.type");
    if (text(new, "metadata.name") == "exempt") != (kind == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.invalid(&path.field("type"), kind, detail);
    }
    match kind {
        "Exempt" => {
            if let Some(exempt) = get(new, "spec.exempt") {
                shares(exempt, &path.field("exempt"), errors);
                lendable_percent(exempt, &path.field("exempt"), errors);
            }
        }
        "Limited" => {
            if let Some(limited) = get(new, "spec.limited") {
                limited_priority_level(limited, &path.field("limited"), errors);
            }
        }
        "" => {}
        other => errors.not_supported(&path.field("type"), other, &["Exempt", "Limited"]),
    }
}

/// Rejects negative `nominalConcurrencyShares`.
fn shares(level: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(shares) = int(level, "nominalConcurrencyShares").filter(|shares| *shares < 0) {
        let detail = "must be a non-negative integer";
        errors.invalid(&path.field("nominalConcurrencyShares"), shares, detail);
    }
}

fn lendable_percent(level: &Value, path: &Path<'_>, errors: &mut Errors) {
    errors.in_range(&path.field("lendablePercent"), int(level, "lendablePercent"), 0, 100);
}

/// Validates shares, limit response, and the lending and borrowing of seats.
///
/// Upstream: `ValidateLimitedPriorityLevelConfiguration`.
fn limited_priority_level(limited: &Value, path: &Path<'_>, errors: &mut Errors) {
    shares(limited, path, errors);
    let response = path.field("limitResponse");
    match text(limited, "limitResponse.type") {
        "Queue" => {
            if let Some(queuing) = get(limited, "limitResponse.queuing") {
                queuing_configuration(queuing, &response.field("queuing"), errors);
            }
        }
        "Reject" | "" => {}
        other => errors.not_supported(&response.field("type"), other, &["Queue", "Reject"]),
    }
    lendable_percent(limited, path, errors);
    if let Some(percent) = int(limited, "borrowingLimitPercent").filter(|percent| *percent < 0) {
        let detail = "if specified, must be a non-negative integer";
        errors.invalid(&path.field("borrowingLimitPercent"), percent, detail);
    }
}

/// Validates the number and length of queues, and the hand size of shuffle sharding.
///
/// Upstream: `ValidatePriorityLevelQueuingConfiguration`.
fn queuing_configuration(queuing: &Value, path: &Path<'_>, errors: &mut Errors) {
    let number = |name: &str| int(queuing, name).unwrap_or_default();
    let (limit, queues, hand) = (number("queueLengthLimit"), number("queues"), number("handSize"));
    if limit <= 0 {
        errors.invalid(&path.field("queueLengthLimit"), limit, "must be positive");
    }
    if queues <= 0 {
        errors.invalid(&path.field("queues"), queues, "must be positive");
    } else if queues > MAX_QUEUES {
        let detail = format!("must not be greater than {MAX_QUEUES}");
        errors.invalid(&path.field("queues"), queues, &detail);
    }
    let hand_path = path.field("handSize");
    if hand <= 0 {
        errors.invalid(&hand_path, hand, "must be positive");
    } else if hand > queues {
        let detail = format!("should not be greater than queues ({queues})");
        errors.invalid(&hand_path, hand, &detail);
    // Shuffle sharding takes `hand` queues from the hash of a flow, with log2(queues) bits for each.
    } else if ((queues as f64).log2() * hand as f64).ceil() > MAX_HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}"
        );
        errors.invalid(&hand_path, hand, &detail);
    }
}

/// Rejects a mandatory priority level whose spec differs from the fixed spec. `exempt` may have its own shares.
///
/// Upstream: `ValidateIfMandatoryPriorityLevelConfigurationObject`.
fn mandatory_priority_level(new: &Value, errors: &mut Errors) {
    match text(new, "metadata.name") {
        "exempt" if text(new, "spec.type") != "Exempt" || get(new, "spec.limited").is_some() => {
            let detail =
                "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value";
            let spec = new.get("spec").cloned().unwrap_or_default();
            errors.invalid(&Path::new("spec"), spec, detail);
        }
        "catch-all" => {
            let fixed = json!({"type": "Limited", "limited": {
                "nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}}});
            fixed_spec(new, Some(&fixed), errors);
        }
        _ => {}
    }
}

/// Validates the unions of a priority level (a type, and the field that belongs to it) if they change. Upstream declares
/// these rules by tags on the type.
///
/// Upstream: `Validate_PriorityLevelConfigurationSpec`.
fn declared(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("spec");
    let kind = text(new, "spec.type");
    let is_kept = |field: &str| old.is_some_and(|old| is_unchanged(new, old, field));
    let same_type = is_kept("spec.type");
    if !(same_type && is_kept("spec.exempt"))
        && kind != "Exempt"
        && get(new, "spec.exempt").is_some()
    {
        errors.forbidden(&path.field("exempt"), "");
    }
    if !(same_type && is_kept("spec.limited")) {
        match (kind, get(new, "spec.limited")) {
            ("Limited", None) => errors.required(&path.field("limited"), ""),
            ("Limited", Some(_)) | (_, None) => {}
            (_, Some(_)) => errors.forbidden(&path.field("limited"), ""),
        }
    }
    if kind.is_empty() && !same_type {
        errors.required(&path.field("type"), "");
    }
    if get(new, "spec.limited").is_none() {
        return;
    }
    let response = Path::new("spec.limited.limitResponse");
    let kind = text(new, "spec.limited.limitResponse.type");
    let same_type = is_kept("spec.limited.limitResponse.type");
    if !(same_type && is_kept("spec.limited.limitResponse.queuing")) {
        match (kind, get(new, "spec.limited.limitResponse.queuing")) {
            ("Queue", None) => errors.required(&response.field("queuing"), ""),
            ("Queue", Some(_)) | (_, None) => {}
            (_, Some(_)) => errors.forbidden(&response.field("queuing"), ""),
        }
    }
    if kind.is_empty() && !same_type {
        errors.required(&response.field("type"), "");
    }
}

/// Returns whether both objects have the same value in a field.
fn is_unchanged(new: &Value, old: &Value, field: &str) -> bool {
    // An empty object differs from an absent one.
    get(new, field).is_some() == get(old, field).is_some() && same(get(new, field), get(old, field))
}

#[cfg(test)]
mod tests;
