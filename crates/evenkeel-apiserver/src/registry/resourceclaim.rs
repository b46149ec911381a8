//! Permission checks for device claims.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | A request with `adminAccess` needs the namespace's label `resource.kubernetes.io/admin-access: "true"` | `check_admin_access` |
//! | A new allocation of devices with admin access needs the label, too | `check_admin_access` |
//! | Changing `status.allocation` or `status.reservedFor` needs the verb on `resourceclaims/binding` | `check_binding` |
//! | Changing `status.devices` needs a verb on `resourceclaims/driver` for each driver: `associated-node:VERB` for a service account on the claim's node, `arbitrary-node:VERB` for others | `check_device_status` |
//!
//! Upstream: `pkg/registry/resource/utils.go`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::api::Context;
use crate::auth::{Attributes, permit, serviceaccount};
use evenkeel_apimachinery::status::{FieldError, StatusError};
use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::value::{flag, get, list, same_meaning, text};
use evenkeel_kinds::resourceclaim::device_id;

const GROUP: &str = "resource.k8s.io";
/// Label that allows claims with admin access in a namespace if it is `true`.
///
/// Upstream: `DRAAdminNamespaceLabelKey`.
const ADMIN_ACCESS_LABEL: &str = "resource.kubernetes.io/admin-access";

/// Returns an error for each permission that a write of a ResourceClaim or ResourceClaimTemplate lacks. For an update,
/// `verb` is `update` or `patch`.
pub(crate) fn check(
    cx: &Context<'_>,
    verb: &str,
    new: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    if cx.resource.group() != GROUP {
        return Vec::new();
    }
    let requests = match (cx.resource.plural(), cx.subresource, old) {
        ("resourceclaims", "", None) => "spec.devices.requests",
        ("resourceclaimtemplates", "", None) => "spec.spec.devices.requests",
        ("resourceclaims", "status", Some(old)) => return check_status(cx, verb, new, old),
        _ => return Vec::new(),
    };
    check_admin_access(cx, admin_request_path(list(new, requests))).into_iter().collect()
}

/// Returns the errors of an update of `status`.
///
/// Upstream: `resourceclaimStatusStrategy.ValidateUpdate`.
fn check_status(cx: &Context<'_>, verb: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    // An allocation that already has admin access may be kept.
    let had_admin_access = admin_result_path(old).is_some();
    let new_admin_access = if had_admin_access { None } else { admin_result_path(new) };
    let mut errors: Vec<FieldError> =
        check_admin_access(cx, new_admin_access).into_iter().collect();
    errors.extend(check_binding(cx, verb, new, old));
    if is_allocated(new) {
        errors.extend(check_device_status(cx, verb, new, old));
    }
    errors
}

/// Returns the path of the first request for admin access. As in upstream, a template has the path of a claim.
fn admin_request_path(requests: &[Value]) -> Option<String> {
    let index = requests.iter().position(|request| flag(request, "exactly.adminAccess"))?;
    Some(format!("spec.devices.requests[{index}].adminAccess"))
}

/// Returns the path of the first allocated device with admin access.
///
/// Upstream: `adminRequested`.
fn admin_result_path(claim: &Value) -> Option<String> {
    let results = list(claim, "status.allocation.devices.results");
    let index = results.iter().position(|result| flag(result, "adminAccess"))?;
    Some(format!("status.allocation.devices.results[{index}].adminAccess"))
}

/// Refuses admin access in a namespace without the label. `path` is the field that requests admin access, if any does.
///
/// Upstream: `AuthorizedForAdmin`, `AuthorizedForAdminStatus`.
fn check_admin_access(cx: &Context<'_>, path: Option<String>) -> Option<FieldError> {
    let path = path?;
    let namespace = cx.stored_namespace();
    let labels = get(&namespace, "metadata.labels");
    if labels.and_then(|labels| labels.get(ADMIN_ACCESS_LABEL)?.as_str()) == Some("true") {
        return None;
    }
    let why = format!(
        "admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"
    );
    Some(FieldError::forbidden(path, why))
}

fn is_allocated(claim: &Value) -> bool {
    get(claim, "status.allocation").is_some()
}

/// Returns whether an update allocates the claim, deallocates it, or changes its consumers.
fn changes_binding(new: &Value, old: &Value) -> bool {
    let same = |path: &str| {
        let part = |claim| get(claim, path).unwrap_or(&Value::Null);
        same_meaning(part(new), part(old))
    };
    // An empty allocation counts as an allocation.
    is_allocated(new) != is_allocated(old)
        || !same("status.allocation")
        || !same("status.reservedFor")
}

/// Refuses a change of the allocation or the consumers by a user without permission on `resourceclaims/binding`.
///
/// Upstream: `AuthorizedForBinding`.
fn check_binding(cx: &Context<'_>, verb: &str, new: &Value, old: &Value) -> Option<FieldError> {
    if !changes_binding(new, old) {
        return None;
    }
    let refused =
        authorize(cx, Attributes { verb, subresource: "binding", ..Attributes::default() });
    refused.err().map(|error| {
        let why = format!(
            "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: {error}"
        );
        FieldError::forbidden("status.allocation", why)
    })
}

/// Checks for each driver with a changed device status whether the user may write it.
///
/// Upstream: `AuthorizedForDeviceStatus`.
fn check_device_status(cx: &Context<'_>, verb: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut verbs = vec![format!("arbitrary-node:{verb}")];
    if is_on_node(cx.user, allocated_node(new)) {
        verbs.insert(0, format!("associated-node:{verb}"));
    }
    let mut errors = Vec::new();
    for driver in modified_drivers(new, old) {
        let authorize_verb = |verb: &String| {
            let namespace = cx.namespace;
            let subresource = "driver";
            let attributes =
                Attributes { verb, subresource, namespace, name: driver, ..Attributes::default() };
            authorize(cx, attributes)
        };
        // A permission for one of the verbs suffices. The error contains the first refusal.
        let Some(refusal) = authorize_verb(&verbs[0]).err() else { continue };
        if verbs[1..].iter().any(|verb| authorize_verb(verb).is_ok()) {
            continue;
        }
        let verbs = verbs.join(" ");
        let why = format!(
            "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{verbs}]\" permission: {refusal}"
        );
        errors.push(FieldError::forbidden("status.devices", why));
    }
    errors
}

/// Authorizes a request for a synthetic subresource of claims, which only RBAC rules name.
fn authorize(cx: &Context<'_>, attributes: Attributes<'_>) -> Result<(), StatusError> {
    let attributes = Attributes { group: GROUP, resource: "resourceclaims", ..attributes };
    permit(&cx.api.authorizer, &cx.api.store, cx.user, &attributes, cx.answers)
}

/// Returns the drivers of devices with an added, removed or changed status.
///
/// Upstream: `getModifiedDrivers`.
fn modified_drivers<'a>(new: &'a Value, old: &'a Value) -> BTreeSet<&'a str> {
    let mut old_devices: BTreeMap<_, &Value> =
        list(old, "status.devices").iter().map(|device| (device_id(device), device)).collect();
    let mut drivers = BTreeSet::new();
    for device in list(new, "status.devices") {
        let stored = old_devices.remove(&device_id(device));
        if !stored.is_some_and(|stored| same_meaning(stored, device)) {
            drivers.insert(text(device, "driver"));
        }
    }
    // The remaining devices were removed.
    drivers.extend(old_devices.values().map(|device| text(device, "driver")));
    drivers
}

/// Returns the node of an allocation whose node selector names exactly one node.
///
/// Upstream: `nodeNameFromAllocation`.
fn allocated_node(claim: &Value) -> Option<&str> {
    let [term] = list(claim, "status.allocation.nodeSelector.nodeSelectorTerms") else {
        return None;
    };
    let [field] = list(term, "matchFields") else { return None };
    let [node] = list(field, "values") else { return None };
    let is_name = text(field, "key") == "metadata.name" && text(field, "operator") == "In";
    let node = node.as_str().filter(|node| !node.is_empty())?;
    (is_name && list(term, "matchExpressions").is_empty()).then_some(node)
}

/// Returns whether the user is a service account whose token is bound to a pod on the node.
///
/// Upstream: `saAssociatedWithAllocatedNode`.
fn is_on_node(user: &User, node: Option<&str>) -> bool {
    node.is_some()
        && serviceaccount::split_username(&user.name).is_some()
        && serviceaccount::node_name(user) == node
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_error_names_the_first_request_for_admin_access() {
        let request = |admin: Value| json!({"name": "r", "exactly": {"adminAccess": admin}});
        let first = json!({"name": "r", "firstAvailable": [{"name": "s"}]});
        for (requests, want) in [
            (vec![], None),
            (vec![request(json!(false)), request(Value::Null), first.clone()], None),
            (vec![first, request(json!(true)), request(json!(true))], Some(1)),
        ] {
            let want =
                want.map(|index: usize| format!("spec.devices.requests[{index}].adminAccess"));
            assert_eq!(admin_request_path(&requests), want, "{requests:?}");
        }
    }

    #[test]
    fn changes_of_allocation_and_consumers_change_the_binding() {
        let claim = |status: Value| json!({"status": status});
        let allocated = json!({"devices": {"results": [{"device": "d"}]}});
        for (new, old, changes) in [
            (json!({}), json!({}), false),
            (json!({"allocation": {}}), json!({}), true),
            (json!({}), json!({"allocation": {}}), true),
            (json!({"allocation": allocated}), json!({"allocation": allocated}), false),
            (json!({"allocation": allocated}), json!({"allocation": {}}), true),
            (json!({"reservedFor": []}), json!({}), false),
            (json!({"reservedFor": [{"name": "p"}]}), json!({}), true),
            (json!({"devices": [{"driver": "a"}]}), json!({}), false),
        ] {
            assert_eq!(
                changes_binding(&claim(new.clone()), &claim(old.clone())),
                changes,
                "{new} {old}"
            );
        }
    }

    #[test]
    fn drivers_of_added_changed_and_removed_devices_are_modified() {
        let device = |driver: &str, device: &str, data: u8| json!({"driver": driver, "pool": "p", "device": device, "data": data});
        let claim = |devices: &[Value]| json!({"status": {"devices": devices}});
        let (a, b) = (device("a", "1", 0), device("b", "1", 0));
        for (new, old, want) in [
            (vec![a.clone(), b.clone()], vec![b.clone(), a.clone()], vec![]),
            (vec![a.clone(), device("b", "1", 1)], vec![a.clone(), b.clone()], vec!["b"]),
            (vec![a.clone()], vec![a.clone(), b.clone()], vec!["b"]),
            (vec![a.clone(), device("a", "2", 0)], vec![a.clone()], vec!["a"]),
            (vec![], vec![b, a], vec!["a", "b"]),
        ] {
            let drivers: Vec<_> = modified_drivers(&claim(&new), &claim(&old))
                .into_iter()
                .map(str::to_owned)
                .collect();
            assert_eq!(drivers, want, "{new:?} {old:?}");
        }
    }

    #[test]
    fn only_a_node_selector_with_one_node_name_has_a_node() {
        let field = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        let name = field("metadata.name", "In", &["n"]);
        let expression = json!({"key": "a", "operator": "Exists"});
        for (terms, want) in [
            (json!([{"matchFields": [name]}]), Some("n")),
            (json!([{"matchFields": [name]}, {"matchFields": [name]}]), None),
            (json!([{"matchFields": [name], "matchExpressions": [expression]}]), None),
            (json!([{"matchFields": [field("metadata.name", "NotIn", &["n"])]}]), None),
            (json!([{"matchFields": [field("metadata.name", "In", &["n", "m"])]}]), None),
            (json!([{"matchFields": [field("metadata.uid", "In", &["n"])]}]), None),
            (json!([]), None),
        ] {
            let claim =
                json!({"status": {"allocation": {"nodeSelector": {"nodeSelectorTerms": terms}}}});
            assert_eq!(allocated_node(&claim), want, "{claim}");
        }
    }

    #[test]
    fn only_a_service_account_whose_token_names_the_node_is_on_it() {
        let user = |name: &str, node: &str| User {
            extra: [("authentication.kubernetes.io/node-name".into(), [node.into()].into())].into(),
            ..User::authenticated(name, [])
        };
        let account = "system:serviceaccount:default:driver";
        for (user, node, want) in [
            (user(account, "n"), Some("n"), true),
            (user(account, "m"), Some("n"), false),
            (user(account, "n"), None, false),
            (user("ann", "n"), Some("n"), false),
            (User::authenticated(account, []), Some("n"), false),
        ] {
            assert_eq!(is_on_node(&user, node), want, "{user:?} {node:?}");
        }
    }
}
