//! Validation of pod updates: few fields of the spec may change, and container states only move forward.

use super::ValidationTarget;
use super::pod;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{copy, get, int, is_empty, list, set, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const SPEC_DETAIL: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
                          `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
                          additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set \
                          to 1 if it was previously negative)";

/// Validates an update of a pod through one of its paths.
///
/// Upstream: `ValidatePodUpdate`.
pub(crate) fn update(target: ValidationTarget<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    match target.subresource {
        "status" => status(new, old, errors),
        "ephemeralcontainers" => ephemeral(new, old, errors),
        "resize" => {
            if let Some(spec) = new.get("spec") {
                pod::spec(spec, &Path::new("spec"), errors);
            }
        }
        _ => spec(new, old, errors),
    }
}

fn spec(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let (Some(new), Some(old)) = (new.get("spec"), old.get("spec")) else { return };
    pod::spec(new, &path, errors);
    for field in ["containers", "initContainers"] {
        if list(new, field).len() != list(old, field).len() {
            errors.forbidden(&path.field(field), "pod updates may not add or remove containers");
            return;
        }
    }
    deadline(new, old, &path, errors);
    if text(old, "nodeName").is_empty() != text(new, "nodeName").is_empty()
        && !list(new, "schedulingGates").is_empty()
    {
        errors.forbidden(
            &path.field("nodeName"),
            "cannot be set until all schedulingGates have been cleared",
        );
    }
    added_gates(new, old, &path, errors);
    let gated = !list(old, "schedulingGates").is_empty();
    let mut allowed = new.clone();
    for field in ["containers", "initContainers"] {
        for (index, before) in list(old, field).iter().enumerate() {
            if let Some(after) = allowed.get_mut(field).and_then(|all| all.get_mut(index)) {
                copy(after, before, "image");
            }
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy(&mut allowed, old, field);
    }
    if gated {
        copy(&mut allowed, old, "nodeSelector");
        copy(&mut allowed, old, "affinity");
    }
    if int(old, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0)
        && int(new, "terminationGracePeriodSeconds") == Some(1)
    {
        set(
            &mut allowed,
            "terminationGracePeriodSeconds",
            int(old, "terminationGracePeriodSeconds"),
        );
    }
    tolerations(new, old, &path, errors);
    if allowed != *old {
        errors.forbidden(&path, SPEC_DETAIL);
    }
}

fn deadline(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("activeDeadlineSeconds");
    match (int(new, "activeDeadlineSeconds"), int(old, "activeDeadlineSeconds")) {
        (Some(after), Some(before)) if after > before => {
            errors.invalid(&path, after, "must be less than or equal to previous value");
        }
        (None, Some(before)) => {
            errors.invalid(&path, before, "must not update from a positive integer to nil value");
        }
        _ => {}
    }
}

fn added_gates(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let before: BTreeSet<&str> =
        list(old, "schedulingGates").iter().map(|gate| text(gate, "name")).collect();
    let all = path.field("schedulingGates");
    for (index, gate) in list(new, "schedulingGates").iter().enumerate() {
        if !before.contains(text(gate, "name")) {
            errors.forbidden(
                &all.index(index),
                "only deletion is allowed, but found new scheduling gate",
            );
        }
    }
}

/// Allows new tolerations; old ones stay, except for their duration.
///
/// Upstream: `validateOnlyAddedTolerations`.
fn tolerations(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let key = |toleration: &Value| {
        ["key", "operator", "value", "effect"]
            .map(|field| text(toleration, field).to_owned())
            .join("\u{0}")
    };
    let after: BTreeSet<String> = list(new, "tolerations").iter().map(key).collect();
    if !list(old, "tolerations").iter().all(|toleration| after.contains(&key(toleration))) {
        errors.forbidden(
            &path.field("tolerations"),
            "existing toleration can not be modified except its tolerationSeconds",
        );
    }
}

/// Index and value of the first item with each name.
fn by_name(items: &[Value]) -> BTreeMap<&str, (usize, &Value)> {
    let mut first = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        first.entry(text(item, "name")).or_insert((index, item));
    }
    first
}

/// Upstream: `ValidatePodEphemeralContainersUpdate`.
fn ephemeral(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let (Some(new), Some(old)) = (new.get("spec"), old.get("spec")) else { return };
    pod::spec(new, &path, errors);
    let path = path.field("ephemeralContainers");
    let after = by_name(list(new, "ephemeralContainers"));
    for before in list(old, "ephemeralContainers") {
        let name = text(before, "name");
        match after.get(name).map(|(_, container)| *container) {
            None => errors.forbidden(
                &path,
                &format!("existing ephemeral containers {name:?} may not be removed\n"),
            ),
            Some(same) if same != before => {
                errors.forbidden(
                    &path,
                    &format!("existing ephemeral containers {name:?} may not be changed\n"),
                );
            }
            Some(_) => {}
        }
    }
}

/// Upstream: `ValidatePodStatusUpdate`.
fn status(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("status");
    let nominated = text(new, "status.nominatedNodeName");
    if !nominated.is_empty() && nominated != text(old, "status.nominatedNodeName") {
        errors.invalid_all(
            &path.field("nominatedNodeName"),
            nominated,
            &super::names::dns_subdomain(nominated),
        );
    }
    let policy = text(new, "spec.restartPolicy");
    for (field, restarts) in [
        ("containerStatuses", policy == "Always"),
        ("initContainerStatuses", policy == "Always" || policy == "OnFailure"),
    ] {
        if !restarts {
            transitions(new, old, field, policy, errors);
        }
    }
    let ips = list(new, "status.podIPs");
    if !ips.is_empty() && text(&ips[0], "ip") != text(new, "status.podIP") {
        errors.invalid(
            &path.field("podIPs").index(0).field("ip"),
            text(&ips[0], "ip"),
            "must be equal to `podIP`",
        );
    }
}

/// Rejects the restart of a terminated container that the restart policy does not restart.
///
/// Upstream: `ValidateContainerStateTransition`.
fn transitions(new: &Value, old: &Value, field: &str, policy: &str, errors: &mut Errors) {
    let path = Path::new("status");
    let all = path.field(field);
    let after = by_name(list(new, &format!("status.{field}")));
    let own =
        ["containers", "initContainers"].map(|field| by_name(list(new, &format!("spec.{field}"))));
    for before in list(old, &format!("status.{field}")) {
        if get(before, "state.terminated").is_none() {
            continue;
        }
        let code = int(before, "state.terminated.exitCode").unwrap_or_default();
        if policy == "OnFailure" && code != 0 {
            continue;
        }
        let name = text(before, "name");
        let own_policy = own
            .iter()
            .find_map(|containers| containers.get(name))
            .map(|(_, container)| text(container, "restartPolicy"));
        if own_policy == Some("Always") {
            continue;
        }
        if let Some((index, status)) = after.get(name)
            && is_empty(status, "state.terminated")
        {
            errors.forbidden(
                &all.index(*index).field("state"),
                "may not be transitioned to non-terminated state",
            );
        }
    }
}
