//! Validation of ResourceQuotas.

use super::quantity;
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{Object, get, list, object, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

/// Pairs of scopes that exclude each other.
const CONFLICTS: [[&str; 2]; 2] =
    [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];

/// Validates the limits and the scopes of a quota.
///
/// Upstream: `ValidateResourceQuotaSpec`.
pub(super) fn quota(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    hard(object(new, "spec.hard"), &path.field("hard"), errors);
    quota_scopes(new, &path.field("scopes"), errors);
    if get(new, "spec.scopeSelector").is_some() {
        scope_selector(new, &path.field("scopeSelector"), errors);
    }
}

/// Validates an update. The set of scopes is immutable.
///
/// Upstream: `ValidateResourceQuotaUpdate`.
pub(super) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    quota(new, errors);
    if scopes(new) != scopes(old) {
        let value = get(new, "spec.scopes").cloned().unwrap_or_default();
        errors.invalid(&Path::new("spec").field("scopes"), value, "field is immutable");
    }
}

/// Validates the names and quantities of a status.
///
/// Upstream: `ValidateResourceQuotaStatusUpdate`.
pub(super) fn status(new: &Value, errors: &mut Errors) {
    let path = Path::new("status");
    hard(object(new, "status.hard"), &path.field("hard"), errors);
    hard(object(new, "status.used"), &path.field("used"), errors);
}

/// Returns the distinct scopes in `spec.scopes`.
fn scopes(quota: &Value) -> BTreeSet<&str> {
    list(quota, "spec.scopes").iter().filter_map(Value::as_str).collect()
}

/// Validates the names and the quantities of resources.
fn hard(amounts: Option<&Object>, path: &Path<'_>, errors: &mut Errors) {
    for (name, amount) in amounts.into_iter().flatten() {
        let path = path.key(name);
        quantity::quota_resource_name(name, &path, errors);
        quantity::validate_quantity(name, amount, &path, errors);
    }
}

/// Number of the quota's standard resources that each scope does not cover. Each number is computed once, because a
/// quota may repeat a scope.
#[derive(Default)]
struct Unfit<'a>(BTreeMap<&'a str, usize>);

impl<'a> Unfit<'a> {
    fn count(&mut self, quota: &Value, scope: &'a str) -> usize {
        // An unknown scope has an error of its own, and covers every resource.
        if !SCOPES.contains(&scope) {
            return 0;
        }
        *self.0.entry(scope).or_insert_with(|| {
            let names = object(quota, "spec.hard").into_iter().flat_map(Object::keys);
            let is_unfit = |name: &&String| {
                quantity::is_standard_quota_resource(name) && !applies(scope, name)
            };
            names.filter(is_unfit).count()
        })
    }
}

/// Returns whether a scope may limit a resource.
///
/// Upstream: `IsResourceQuotaScopeValidForResource`.
fn applies(scope: &str, resource: &str) -> bool {
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => matches!(
            resource,
            "pods"
                | "cpu"
                | "memory"
                | "limits.cpu"
                | "limits.memory"
                | "requests.cpu"
                | "requests.memory"
        ),
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => {
            matches!(resource, "persistentvolumeclaims" | "requests.storage")
        }
        _ => true,
    }
}

/// Rejects unknown scopes, scopes that do not apply to a limited resource, and conflicting scopes.
///
/// Upstream: `validateResourceQuotaScopes`.
fn quota_scopes(new: &Value, path: &Path<'_>, errors: &mut Errors) {
    let value = || get(new, "spec.scopes").cloned().unwrap_or_default();
    let mut unfit = Unfit::default();
    for scope in list(new, "spec.scopes").iter().filter_map(Value::as_str) {
        if !SCOPES.contains(&scope) {
            errors.invalid_large(path, value, "unsupported scope");
        }
        for _ in 0..unfit.count(new, scope) {
            errors.invalid_large(path, value, "unsupported scope applied to resource");
        }
    }
    let scopes = scopes(new);
    for pair in CONFLICTS {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errors.invalid_large(path, value, "conflicting scopes");
        }
    }
}

/// Validates the requirements of the scope selector: scope, operator and values.
///
/// Upstream: `validateScopedResourceSelectorRequirement`.
fn scope_selector(new: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("matchExpressions");
    let expressions = list(new, "spec.scopeSelector.matchExpressions");
    let (mut seen, mut unfit) = (BTreeSet::new(), Unfit::default());
    for expression in expressions {
        let (scope, operator) = (text(expression, "scopeName"), text(expression, "operator"));
        seen.insert(scope);
        if !SCOPES.contains(&scope) {
            errors.invalid(&path.field("scopeName"), scope, "unsupported scope");
        }
        for _ in 0..unfit.count(new, scope) {
            let detail = "unsupported scope applied to resource";
            errors.invalid_large(
                &path,
                || quoted("core.ScopeSelector", get(new, "spec.scopeSelector")),
                detail,
            );
        }
        let has_values =
            SCOPES.contains(&scope) && ["PriorityClass", "VolumeAttributesClass"].contains(&scope);
        if SCOPES.contains(&scope) && !has_values && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.invalid(&path.field("operator"), operator, detail);
        }
        let values = get(expression, "values").filter(|_| !list(expression, "values").is_empty());
        match (operator, values) {
            ("In" | "NotIn", None) => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(&path.field("values"), detail);
            }
            ("Exists" | "DoesNotExist", Some(values)) => {
                let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(&path.field("values"), values.clone(), detail);
            }
            ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => {}
            (other, _) => {
                errors.invalid(&path.field("operator"), other, "not a valid selector operator");
            }
        }
    }
    for pair in CONFLICTS {
        if pair.iter().all(|scope| seen.contains(scope)) {
            let scopes = get(new, "spec.scopes").cloned().unwrap_or_default();
            errors.invalid(&path, scopes, "conflicting scopes");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(errors: Errors) -> Vec<String> {
        errors.into_vec().into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn quotas_need_valid_resources_and_scopes_that_cover_them() {
        let (scopes, all) = ("spec.scopes", "spec.scopeSelector.matchExpressions");
        let (operator, values) = (
            "spec.scopeSelector.matchExpressions.operator",
            "spec.scopeSelector.matchExpressions.values",
        );
        let name = "spec.scopeSelector.matchExpressions.scopeName";
        let selector = |scope: &str, operator: &str, values: Value| {
            json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [
                {"scopeName": scope, "operator": operator, "values": values}]}})
        };
        let table: [(Value, &[&str]); 13] = [
            (json!({"hard": {"pods": "1", "count/a.example.com": "2"}}), &[]),
            (json!({"hard": {"storage": "1"}}), &["spec.hard[storage]"]),
            (json!({"hard": {"pods": "500m"}}), &["spec.hard[pods]"]),
            (json!({"hard": {"requests.a.example/b": "500m"}}), &[]),
            (json!({"hard": {"cpu": "1", "a/b": "1"}, "scopes": ["NotTerminating"]}), &[]),
            (json!({"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}), &[scopes]),
            (json!({"scopes": ["BestEffort", "NotBestEffort"]}), &[scopes]),
            (selector("PriorityClass", "In", json!(["a"])), &[]),
            (selector("PriorityClass", "In", json!([])), &[values]),
            (selector("VolumeAttributesClass", "Exists", json!([])), &[all]),
            (selector("BestEffort", "DoesNotExist", json!([])), &[operator]),
            (selector("a", "Exists", json!(["a"])), &[name, values]),
            (selector("PriorityClass", "a", json!([])), &[operator]),
        ];
        for (spec, expected) in table {
            let mut errors = Errors::default();
            quota(&json!({"spec": spec}), &mut errors);
            assert_eq!(fields(errors), expected, "{spec}");
        }
    }

    #[test]
    fn the_set_of_scopes_is_immutable_and_statuses_need_valid_quantities() {
        let quota = |scopes: Value| json!({"spec": {"hard": {"pods": "1"}, "scopes": scopes}});
        let old = quota(json!(["Terminating", "PriorityClass"]));
        for (scopes, expected) in [
            (json!(["PriorityClass", "Terminating"]), &[][..]),
            (json!(["Terminating"]), &["spec.scopes"]),
            (json!([]), &["spec.scopes"]),
        ] {
            let mut errors = Errors::default();
            update(&quota(scopes), &old, &mut errors);
            assert_eq!(fields(errors), expected);
        }
        let mut errors = Errors::default();
        status(&json!({"status": {"hard": {"pods": "-1"}, "used": {"a": "1"}}}), &mut errors);
        assert_eq!(fields(errors), ["status.hard[pods]", "status.used[a]", "status.used[a]"]);
    }
}
