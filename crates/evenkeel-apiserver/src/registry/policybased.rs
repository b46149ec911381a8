//! Escalation checks: a user may not write roles and bindings that grant permissions that the user does not hold.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | A user who writes a role holds its permissions, or has the verb `escalate` on the role | `check_role` |
//! | A user who sets or changes an aggregation rule holds every permission | `check_aggregation` |
//! | A user who writes a binding holds the role's permissions, or has the verb `bind` on the role | `check_binding` |
//!
//! The check reads the object after mutating admission and before validation. Upstream:
//! `pkg/registry/rbac/clusterrole/policybased` and its neighbors.

use serde_json::Value;

use crate::api::Context;
use crate::auth::{Attributes, PolicyRule, Role, RoleRef, escalation};
use crate::resource::key;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{get, list, same_meaning, set};

const GROUP: &str = "rbac.authorization.k8s.io";
const SYSTEM_MASTERS: &str = "system:masters";

/// Refuses a write of a role or binding that grants permissions that the user does not hold. `name_in_path` is the name
/// in the request's path. It is empty for a create.
pub(crate) fn check(
    cx: &Context<'_>,
    name_in_path: &str,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    let resource = cx.resource;
    if resource.group() != GROUP || !cx.subresource.is_empty() || cx.user.is_in(SYSTEM_MASTERS) {
        return Ok(());
    }
    let is_role = matches!(resource.plural(), "roles" | "clusterroles");
    if !is_role && !matches!(resource.plural(), "rolebindings" | "clusterrolebindings") {
        return Ok(());
    }
    if is_role && is_allowed(cx, "escalate", resource.plural(), name_in_path, GROUP) {
        return Ok(());
    }
    if old.is_some_and(|old| mutates_only_gc_fields(object, old)) {
        return Ok(());
    }
    if is_role { check_role(cx, object, old) } else { check_binding(cx, object) }
}

/// Returns whether the user has a verb on a role, in the request's namespace.
fn is_allowed(cx: &Context<'_>, verb: &str, resource: &str, name: &str, group: &str) -> bool {
    let namespace = cx.namespace;
    let attributes = Attributes { verb, group, resource, namespace, name, ..Attributes::default() };
    cx.allows(&attributes)
}

/// Refuses a role with rules that the user does not hold.
///
/// Upstream: `clusterrole/policybased.Storage`, `role/policybased.Storage`.
fn check_role(cx: &Context<'_>, object: &Value, old: Option<&Value>) -> Result<(), StatusError> {
    let role: Role = serde_json::from_value(object.clone()).map_err(StatusError::internal)?;
    check_user_holds(cx, &role.rules.unwrap_or_default())?;
    check_aggregation(cx, object, old)
}

/// Refuses an aggregation rule unless the user holds every permission. Aggregation can add any rule to a role.
fn check_aggregation(
    cx: &Context<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), StatusError> {
    let aggregates = |role: &Value| !list(role, "aggregationRule.clusterRoleSelectors").is_empty();
    if cx.resource.plural() != "clusterroles" {
        return Ok(());
    }
    if !aggregates(object) && !old.is_some_and(aggregates) {
        return Ok(());
    }
    check_user_holds(cx, &full_authority()).map_err(|_| {
        let why = "must have cluster-admin privileges to use the aggregationRule";
        StatusError::forbidden(&cx.resource.name, cx.name, why)
    })
}

/// Returns rules for every verb on every resource and path.
fn full_authority() -> [PolicyRule; 2] {
    let any = || vec![Box::from("*")];
    [
        PolicyRule { verbs: any(), api_groups: any(), resources: any(), ..PolicyRule::default() },
        PolicyRule { verbs: any(), non_resource_urls: any(), ..PolicyRule::default() },
    ]
}

/// Refuses a binding to a role that the user neither holds nor may bind.
///
/// Upstream: `clusterrolebinding/policybased.Storage`, `rolebinding/policybased.Storage`.
fn check_binding(cx: &Context<'_>, object: &Value) -> Result<(), StatusError> {
    let reference = get(object, "roleRef").cloned().unwrap_or_default();
    let reference: RoleRef = serde_json::from_value(reference).map_err(StatusError::internal)?;
    let (plural, namespace) = match &*reference.kind {
        "ClusterRole" => ("clusterroles", ""),
        "Role" => ("roles", cx.namespace),
        kind => {
            let kind = evenkeel_apimachinery::status::quote(kind);
            let why = format!("unsupported role reference kind: {kind}");
            return Err(StatusError::plain_internal(why));
        }
    };
    if is_allowed(cx, "bind", plural, &reference.name, &reference.api_group) {
        return Ok(());
    }
    if plural == "roles" && namespace.is_empty() {
        return Err(StatusError::bad_request("Namespace parameter required."));
    }
    check_user_holds(cx, &rules_of(cx, plural, namespace, &reference.name)?)
}

/// Returns the rules of a stored role.
///
/// Upstream: `GetRoleReferenceRules`.
fn rules_of(
    cx: &Context<'_>,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Result<Vec<PolicyRule>, StatusError> {
    if name.is_empty() {
        return Err(StatusError::bad_request("Name parameter required."));
    }
    // Upstream's store names the resource of the request, not the resource of the role.
    let not_found = || StatusError::not_found(&cx.resource.name, name);
    let resource = cx.api.table.get(&format!("{GROUP}/v1"), plural).ok_or_else(not_found)?;
    let entry = cx.api.store.get(&resource.resource_prefix, &key(&resource, namespace, name));
    let entry = entry.ok_or_else(not_found)?;
    let role: Role = serde_json::from_slice(entry.json()).map_err(StatusError::internal)?;
    Ok(role.rules.unwrap_or_default())
}

/// Refuses rules that the user does not hold in the request's namespace.
fn check_user_holds(cx: &Context<'_>, rules: &[PolicyRule]) -> Result<(), StatusError> {
    let held = cx.api.authorizer.rules_for(&cx.api.store, cx.user, cx.namespace);
    escalation::confirm_no_escalation(cx.user, &held, rules)
        .map_err(|why| StatusError::forbidden(&cx.resource.name, cx.name, why))
}

/// Returns whether an update changes only fields that the garbage collector changes. Such updates need no further
/// permission, so that dependents and finalizers can always be removed.
///
/// Upstream: `IsOnlyMutatingGCFields`.
pub(crate) fn mutates_only_gc_fields(new: &Value, old: &Value) -> bool {
    let without_gc_fields = |object: &Value| {
        let mut object = object.clone();
        for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
            set(&mut object, &format!("metadata.{field}"), Value::Null);
        }
        object
    };
    same_meaning(&without_gc_fields(new), &without_gc_fields(old))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_owners_finalizers_and_managed_fields_are_garbage_collector_fields() {
        let old = json!({"metadata": {"name": "r", "labels": {"a": "b"}, "ownerReferences": [{"name": "o"}]}, "rules": []});
        let changed = |path: &str, to: Value| {
            let mut new = old.clone();
            set(&mut new, path, to);
            mutates_only_gc_fields(&new, &old)
        };
        for (path, to, expected) in [
            ("metadata.ownerReferences", json!([]), true),
            ("metadata.finalizers", json!(["f"]), true),
            ("metadata.managedFields", json!([{"manager": "m"}]), true),
            ("metadata.annotations", json!({}), true),
            ("rules", Value::Null, true),
            ("metadata.labels", json!({"a": "c"}), false),
            ("metadata.annotations", json!({"a": "c"}), false),
            ("rules", json!([{"verbs": ["get"]}]), false),
            ("aggregationRule", json!({"clusterRoleSelectors": [{}]}), false),
            ("subjects", json!([{"name": "u"}]), false),
        ] {
            assert_eq!(changed(path, to.clone()), expected, "{path} {to}");
        }
    }
}
