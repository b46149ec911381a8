//! Permission checks for admission policies and bindings. Through a policy, users may only read parameters that they
//! may read directly.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | A policy with a new `paramKind` needs `get` on all objects of the kind | `check_policy` |
//! | A binding with a new `paramRef` or policy needs `get` on the named object, or `list` for a selector | `check_binding` |
//! | If the kind cannot be resolved, the user needs the permission on all resources | `ParamResource` |
//!
//! Upstream: `authz.go` of the four packages for policies in `pkg/registry/admissionregistration`.

use std::sync::Arc;

use serde_json::Value;

use crate::api::Context;
use crate::auth::Attributes;
use crate::resource::{ResourceType, key};
use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::value::{get, text};

const GROUP: &str = "admissionregistration.k8s.io";

/// Returns an error if the user lacks the permissions for the policy or binding.
pub(crate) fn check(cx: &Context<'_>, new: &Value, old: Option<&Value>) -> Option<FieldError> {
    if cx.resource.group() != GROUP || !cx.subresource.is_empty() {
        return None;
    }
    match cx.resource.plural() {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => check_policy(cx, new, old),
        "validatingadmissionpolicybindings" => {
            check_binding(cx, "validatingadmissionpolicies", new, old)
        }
        "mutatingadmissionpolicybindings" => {
            check_binding(cx, "mutatingadmissionpolicies", new, old)
        }
        _ => None,
    }
}

/// Checks that the user may get all objects of the policy's `paramKind`, if the kind is new.
///
/// Upstream: `authorizeCreate` and `authorizeUpdate` of policies.
fn check_policy(cx: &Context<'_>, new: &Value, old: Option<&Value>) -> Option<FieldError> {
    let kind = ParamKind::of(new)?;
    if old.and_then(ParamKind::of) == Some(kind) {
        return None;
    }
    let all_objects =
        Attributes { verb: "get", name: "*", namespace: "*", ..Attributes::default() };
    if is_allowed(cx, &ParamResource::of(cx, kind), all_objects) {
        return None;
    }
    let why = format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        format_user(cx.user),
        kind.kind,
        kind.api_version
    );
    Some(FieldError::forbidden("spec.paramKind", why))
}

/// Checks that the user may get or list the parameters of the binding, if its reference is new.
///
/// Upstream: `authorizeCreate` and `authorizeUpdate` of bindings.
fn check_binding(
    cx: &Context<'_>,
    policies: &str,
    new: &Value,
    old: Option<&Value>,
) -> Option<FieldError> {
    let reference = get(new, "spec.paramRef")?;
    if old.is_some_and(|old| is_same_reference(new, old)) {
        return None;
    }
    let policy = stored_policy(cx, policies, text(new, "spec.policyName"));
    let kind = policy.as_ref().and_then(ParamKind::of);
    let param_resource =
        kind.map_or(ParamResource::ALL_RESOURCES, |kind| ParamResource::of(cx, kind));
    let (name, namespace) = (text(reference, "name"), text(reference, "namespace"));
    let verb = if name.is_empty() { "list" } else { "get" };
    if is_allowed(
        cx,
        &param_resource,
        Attributes { verb, name, namespace, ..Attributes::default() },
    ) {
        return None;
    }
    let user = format_user(cx.user);
    let failed_step = match (&policy, kind) {
        (None, _) => Some(format!("get policy {}", text(new, "spec.policyName"))),
        (Some(_), Some(kind)) if kind.group().is_none() => Some(format!("parse paramKind {kind}")),
        (Some(_), Some(kind)) if param_resource.resource.is_none() => {
            Some(format!("resolve paramKind {kind}"))
        }
        _ => None,
    };
    let why = match failed_step {
        Some(failed_step) => format!(
            "unable to {failed_step} to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, versions and resources"
        ),
        None => {
            // Upstream swaps user and verb in the message for mutating policies.
            let (user, verb) = if policies.starts_with("mutating") {
                (verb, user.as_str())
            } else {
                (user.as_str(), verb)
            };
            format!(
                "user {user} does not have \"{verb}\" permission on the object referenced by paramRef"
            )
        }
    };
    Some(FieldError::forbidden("spec.paramRef", why))
}

/// Returns whether a binding still refers to the same parameters and policy. A binding with a selector or an action
/// always counts as changed, because upstream compares pointers to these.
fn is_same_reference(new: &Value, old: &Value) -> bool {
    let is_set = |path: &str| get(new, path).is_some() || get(old, path).is_some();
    let is_same = |path: &str| text(new, path) == text(old, path);
    get(old, "spec.paramRef").is_some()
        && is_same("spec.policyName")
        && is_same("spec.paramRef.name")
        && is_same("spec.paramRef.namespace")
        && !is_set("spec.paramRef.selector")
        && !is_set("spec.paramRef.parameterNotFoundAction")
}

fn stored_policy(cx: &Context<'_>, plural: &str, name: &str) -> Option<Value> {
    let resource = cx.api.table.get(&cx.resource.api_version, plural)?;
    let entry = cx.api.store.get(&resource.resource_prefix, &key(&resource, "", name))?;
    entry.decode().ok()
}

/// Returns whether the user may make a request with these attributes for the parameters' resource.
fn is_allowed(
    cx: &Context<'_>,
    param_resource: &ParamResource<'_>,
    attributes: Attributes<'_>,
) -> bool {
    let attributes =
        Attributes { group: param_resource.group, resource: param_resource.plural(), ..attributes };
    cx.allows(&attributes)
}

/// Kind of a policy's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ParamKind<'a> {
    api_version: &'a str,
    kind: &'a str,
}

impl<'a> ParamKind<'a> {
    fn of(policy: &'a Value) -> Option<Self> {
        let kind = get(policy, "spec.paramKind")?;
        Some(Self { api_version: text(kind, "apiVersion"), kind: text(kind, "kind") })
    }

    /// Returns the API group, or `None` if the version is invalid.
    ///
    /// Upstream: `ParseGroupVersion`.
    fn group(self) -> Option<&'a str> {
        match self.api_version.split_once('/') {
            None => Some(""),
            Some((_, version)) if version.contains('/') => None,
            Some((group, _)) => Some(group),
        }
    }
}

impl std::fmt::Display for ParamKind<'_> {
    /// Formats the kind as Go formats a pointer to its struct.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "&{{{} {}}}", self.api_version, self.kind)
    }
}

/// Resource of a policy's parameters.
struct ParamResource<'a> {
    /// API group; `*` for all.
    group: &'a str,
    /// Resource; `None` means all resources.
    resource: Option<Arc<ResourceType>>,
}

impl<'a> ParamResource<'a> {
    const ALL_RESOURCES: Self = Self { group: "*", resource: None };

    /// Returns the resource of a kind. An unknown kind means all resources of its group, an invalid group all
    /// resources.
    ///
    /// Upstream: `discoveryResourceResolver.Resolve`.
    fn of(cx: &Context<'_>, kind: ParamKind<'a>) -> Self {
        let Some(group) = kind.group() else { return Self::ALL_RESOURCES };
        let rows = cx.api.table.rows();
        Self { group, resource: rows.of_kind(kind.api_version, kind.kind).next().cloned() }
    }

    fn plural(&self) -> &str {
        self.resource.as_deref().map_or("*", ResourceType::plural)
    }
}

/// Formats a user as Go formats a pointer to `DefaultInfo`.
fn format_user(user: &User) -> String {
    let mut extra: Vec<String> =
        user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
    extra.sort_unstable();
    let (groups, extra) = (user.groups.join(" "), extra.join(" "));
    format!("&{{{} {} [{groups}] map[{extra}]}}", user.name, user.uid)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_group_comes_from_the_api_version() {
        for (api_version, group) in
            [("v1", Some("")), ("apps/v1", Some("apps")), ("", Some("")), ("a/b/c", None)]
        {
            assert_eq!(ParamKind { api_version, kind: "K" }.group(), group, "{api_version}");
        }
    }

    #[test]
    fn a_binding_needs_permission_if_its_parameters_may_have_changed() {
        let binding = |policy: &str, reference: Value| json!({"spec": {"policyName": policy, "paramRef": reference}});
        let named = || binding("p", json!({"name": "a", "namespace": "n"}));
        let action = || binding("p", json!({"name": "a", "parameterNotFoundAction": "Deny"}));
        for (new, old, same) in [
            (named(), named(), true),
            (named(), binding("q", json!({"name": "a", "namespace": "n"})), false),
            (named(), binding("p", json!({"name": "b", "namespace": "n"})), false),
            (named(), binding("p", json!({"name": "a"})), false),
            (named(), json!({"spec": {"policyName": "p"}}), false),
            (action(), action(), false),
            (binding("p", json!({"selector": {}})), binding("p", json!({"selector": {}})), false),
        ] {
            assert_eq!(is_same_reference(&new, &old), same, "{new} {old}");
        }
    }

    #[test]
    fn users_are_formatted_as_in_go() {
        let mut user = User::authenticated("bob", ["a"]);
        assert_eq!(format_user(&user), "&{bob  [a system:authenticated] map[]}");
        user.extra =
            [("k".into(), ["1".into(), "2".into()].into()), ("a".into(), [].into())].into();
        assert_eq!(format_user(&user), "&{bob  [a system:authenticated] map[a:[] k:[1 2]]}");
    }
}
