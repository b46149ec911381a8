//! Validation of a pod's status. A terminated container stays terminated unless its restart policy allows a restart.

use super::{names, pod_annotations};
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, is_empty, list, object, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Types of conditions that Kubernetes defines. Other types must be qualified names.
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];
/// Maximum length of the message about the health of a resource, in bytes.
///
/// Upstream: `ResourceHealthMessageMaxLength`.
const MAX_HEALTH_MESSAGE: usize = 1024;

/// Validates an updated status.
///
/// Upstream: `ValidatePodStatusUpdate`.
pub(super) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let (metadata, path) = (Path::new("metadata"), Path::new("status"));
    let annotations_path = metadata.field("annotations");
    pod_annotations::changes(new, old, &annotations_path, errors);
    pod_annotations::values(new, Some(old), &annotations_path, errors);
    conditions(new, &path.field("conditions"), errors);
    nominated_node(new, old, &path.field("nominatedNodeName"), errors);
    observed_generation(new, "status.observedGeneration", &path, errors);
    super::immutable(&["status.qosClass"], new, old, errors);
    for field in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        transitions(new, old, field, &path.field(field), errors);
    }
    claim_statuses(new, &path.field("resourceClaimStatuses"), errors);
    extended_claim(new, &path.field("extendedResourceClaimStatus"), errors);
    pod_ips(new, old, &path.field("podIPs"), errors);
    host_ips(new, old, &path.field("hostIPs"), errors);
    for field in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        users(new, field, &path.field(field), errors);
    }
    for (field, containers) in
        [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")]
    {
        allocated_resources(new, field, containers, &path.field(field), errors);
    }
    let ephemeral_container_statuses_path = path.field("ephemeralContainerStatuses");
    for (index, status) in list(new, "status.ephemeralContainerStatuses").iter().enumerate() {
        if !is_empty(status, "allocatedResourcesStatus") {
            let path = ephemeral_container_statuses_path.index(index);
            let path = path.field("allocatedResourcesStatus");
            errors.forbidden(&path, "must not be specified in container status");
        }
    }
}

/// Validates the generation at `field` of a pod or a condition.
fn observed_generation(
    pod_or_condition: &Value,
    field: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if let Some(generation) = int(pod_or_condition, field).filter(|generation| *generation < 0) {
        let path = path.field("observedGeneration");
        errors.invalid(&path, generation, "must be a non-negative integer");
    }
}

/// Validates the types and generations of conditions.
///
/// Upstream: `validatePodConditions`.
fn conditions(pod: &Value, conditions_path: &Path<'_>, errors: &mut Errors) {
    for (index, condition) in list(pod, "status.conditions").iter().enumerate() {
        let (path, type_) = (conditions_path.index(index), text(condition, "type"));
        observed_generation(condition, "observedGeneration", &path, errors);
        if !SYSTEM_CONDITIONS.contains(&type_) {
            errors.invalid_for_each(&path.field("Type"), type_, &names::qualified_name(type_));
        }
    }
}

/// Validates a change of `nominatedNodeName`. A pod that is bound to a node can't be nominated.
fn nominated_node(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let nominated = text(new, "status.nominatedNodeName");
    if nominated.is_empty() || nominated == text(old, "status.nominatedNodeName") {
        return;
    }
    errors.invalid_for_each(path, nominated, &names::dns_subdomain(nominated));
    if !text(old, "spec.nodeName").is_empty() {
        errors.forbidden(path, "may not be set on pods that are already bound to a node");
    }
}

/// Rejects the restart of a terminated container if its restart policy and rules forbid the restart.
///
/// Upstream: `ValidateContainerStateTransition`, `ValidateInitContainerStateTransition`,
/// `ValidateEphemeralContainerStateTransition`.
fn transitions(
    new: &Value,
    old: &Value,
    field: &str,
    statuses_path: &Path<'_>,
    errors: &mut Errors,
) {
    let spec = get(old, "spec").unwrap_or(&Value::Null);
    let containers = match field {
        "containerStatuses" => list(spec, "containers"),
        "initContainerStatuses" => list(spec, "initContainers"),
        _ => &[],
    };
    if field != "ephemeralContainerStatuses" && all_may_restart(spec) {
        return;
    }
    let statuses = |pod| list(pod, &format!("status.{field}"));
    for (index, before) in statuses(old).iter().enumerate() {
        let Some(terminated) = get(before, "state.terminated") else { continue };
        let name = text(before, "name");
        let is_restarted = statuses(new)
            .iter()
            .any(|after| text(after, "name") == name && get(after, "state.terminated").is_none());
        let container = containers.iter().find(|container| text(container, "name") == name);
        let code = int(terminated, "exitCode").unwrap_or_default();
        if is_restarted && !container.is_some_and(|container| may_restart(container, spec, code)) {
            let detail = "may not be transitioned to non-terminated state";
            errors.forbidden(&statuses_path.index(index).field("state"), detail);
        }
    }
}

/// Returns whether a container has a rule that restarts all containers of the pod.
///
/// Upstream: `AllContainersCouldRestart`.
fn all_may_restart(spec: &Value) -> bool {
    let containers = ["initContainers", "containers"].iter().flat_map(|field| list(spec, field));
    containers
        .flat_map(|container| list(container, "restartPolicyRules"))
        .any(|rule| text(rule, "action") == "RestartAllContainers")
}

/// Returns whether a container of a pod may run again after its process ended with the exit code `code`.
///
/// Upstream: `ContainerShouldRestart`, `FindMatchingContainerRestartRule`.
fn may_restart(container: &Value, spec: &Value, code: i64) -> bool {
    let matches = |rule: &&Value| {
        let is_listed = list(rule, "exitCodes.values").iter().any(|value| *value == code);
        match text(rule, "exitCodes.operator") {
            "In" => is_listed,
            "NotIn" => !is_listed,
            _ => false,
        }
    };
    let policy = |policy: &str| match policy {
        "Always" => Some(true),
        "OnFailure" => Some(code != 0),
        "Never" => Some(false),
        _ => None,
    };
    let own = get(container, "restartPolicy").and_then(Value::as_str);
    let rule = list(container, "restartPolicyRules").iter().find(matches);
    let by_rule = rule.filter(|rule| own.is_some() && text(rule, "action") == "Restart");
    by_rule
        .map(|_| true)
        .or_else(|| own.and_then(policy))
        .or_else(|| policy(text(spec, "restartPolicy")))
        .unwrap_or(true)
}

/// Requires that each claim status names a unique entry of `spec.resourceClaims`, and a valid claim.
///
/// Upstream: `validatePodResourceClaimStatuses`.
fn claim_statuses(pod: &Value, statuses_path: &Path<'_>, errors: &mut Errors) {
    let claims = list(pod, "spec.resourceClaims");
    let mut seen = BTreeSet::new();
    for (index, status) in list(pod, "status.resourceClaimStatuses").iter().enumerate() {
        let (path, name) = (statuses_path.index(index), text(status, "name"));
        if !claims.iter().any(|claim| text(claim, "name") == name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(&path.field("name"), name, detail);
        }
        if !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
        if let Some(claim) = get(status, "resourceClaimName").and_then(Value::as_str) {
            let messages = names::dns_subdomain(claim);
            errors.invalid_for_each(&path.field("resourceClaimName"), claim, &messages);
        }
    }
}

/// Validates the claim for extended resources. Each mapping must name a container, a resource that the container
/// requests, and a request of the claim.
///
/// Upstream: `validatePodExtendedResourceClaimStatus`.
fn extended_claim(pod: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(status) = get(pod, "status.extendedResourceClaimStatus") else { return };
    let mappings = list(status, "requestMappings");
    let request_mappings_path = path.field("requestMappings");
    if mappings.is_empty() {
        errors.required(&request_mappings_path, "at least one request mapping is required");
    }
    let container = |name: &str| {
        let lists = ["spec.containers", "spec.initContainers"].map(|field| list(pod, field));
        lists.into_iter().flatten().find(|container| text(container, "name") == name)
    };
    let mut seen = BTreeSet::new();
    for (index, mapping) in mappings.iter().enumerate() {
        let path_of_mapping = request_mappings_path.index(index);
        let fields = ["containerName", "resourceName", "requestName"];
        let values = fields.map(|field| text(mapping, field));
        let [name, resource, request] = values;
        match container(name) {
            None => {
                let detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                errors.invalid(&path_of_mapping.field("containerName"), name, detail);
            }
            Some(container) => {
                let requests = object(container, "resources.requests");
                if !requests.is_some_and(|requests| requests.contains_key(resource)) {
                    let detail = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests";
                    errors.invalid(&path_of_mapping.field("resourceName"), resource, detail);
                }
            }
        }
        // As in upstream, this path has no index.
        errors.invalid_for_each(&path.field("requestName"), request, &names::dns_label(request));
        if !seen.insert(values) {
            for (field, value) in fields.iter().zip(values) {
                errors.duplicate(&path_of_mapping.field(field), value);
            }
        }
    }
    let claim = text(status, "resourceClaimName");
    errors.required_valid(&path.field("resourceClaimName"), claim, names::dns_subdomain);
}

/// Validates new addresses. The old pod's addresses may be kept.
///
/// Upstream: `IsValidIPForLegacyField`.
fn addresses(new: &[Value], old: &[Value], addresses_path: &Path<'_>, errors: &mut Errors) {
    let before: BTreeSet<&str> = old.iter().map(|one| text(one, "ip")).collect();
    for (index, one) in new.iter().enumerate() {
        let ip = text(one, "ip");
        if !before.contains(ip) {
            errors.invalid_for_each(&addresses_path.index(index), ip, &names::ip(ip));
        }
    }
}

/// Requires at most one address of each family. `list_type` is the list's internal type, such as `[]core.PodIP`.
///
/// Upstream: `IsDualStackIPStrings`.
fn families(ips: &[Value], list_type: &'static str, path: &Path<'_>, errors: &mut Errors) {
    if ips.len() < 2 {
        return;
    }
    let mut parsed = Vec::new();
    for (index, one) in ips.iter().enumerate() {
        match text(one, "ip").parse::<IpAddr>() {
            Ok(ip) => parsed.push(ip),
            Err(_) => {
                let ip = text(one, "ip");
                let why =
                    format!("failed to check for dual stack with error:invalid IP[{index}]: {ip}");
                errors.internal(path, &why);
                break;
            }
        }
    }
    let is_whole = parsed.len() == ips.len();
    let is_dual =
        is_whole && parsed.iter().any(IpAddr::is_ipv4) && parsed.iter().any(IpAddr::is_ipv6);
    if !is_dual || ips.len() > 2 {
        let shown = || quoted(list_type, Some(&Value::from(ips)));
        errors.invalid_large(path, shown, "may specify no more than one IP for each IP family");
    }
}

/// Validates the IPs of a pod: valid addresses, at most one per family, and the first one equal to `podIP`.
///
/// Upstream: `validatePodIPs`.
fn pod_ips(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (ips, first) = (list(new, "status.podIPs"), text(new, "status.podIP"));
    addresses(ips, list(old, "status.podIPs"), path, errors);
    families(ips, "[]core.PodIP", path, errors);
    match ips.first() {
        Some(one) if !first.is_empty() && text(one, "ip") != first => {
            let path = path.index(0);
            errors.invalid(&path.field("ip"), text(one, "ip"), "must be equal to `podIP`");
        }
        one if one.is_some() == first.is_empty() => {
            let shown = || quoted("[]core.PodIP", get(new, "status.podIPs"));
            let detail = "podIP and podIPs must either both be set or both be unset";
            errors.invalid_large(path, shown, detail);
        }
        _ => {}
    }
}

/// Validates the IPs of a pod's node: valid addresses, at most one per family, and the first one equal to `hostIP`.
///
/// Upstream: `validateHostIPs`.
fn host_ips(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ips = list(new, "status.hostIPs");
    let Some(one) = ips.first() else { return };
    if text(one, "ip") != text(new, "status.hostIP") {
        let path = path.index(0);
        errors.invalid(&path.field("ip"), text(one, "ip"), "must be equal to `hostIP`");
    }
    addresses(ips, list(old, "status.hostIPs"), path, errors);
    families(ips, "[]core.HostIP", path, errors);
}

/// Validates the Linux users of container statuses, and rejects them for Windows pods.
///
/// Upstream: `validateContainerStatusUsers`.
fn users(pod: &Value, field: &str, statuses_path: &Path<'_>, errors: &mut Errors) {
    let system = get(pod, "spec.os").map_or("linux", |os| text(os, "name"));
    for (index, status) in list(pod, &format!("status.{field}")).iter().enumerate() {
        let Some(user) = get(status, "user.linux") else { continue };
        let path = statuses_path.index(index);
        let path = path.field("user.linux");
        match system {
            "windows" => errors.forbidden(&path, "cannot be set for a windows pod"),
            "linux" => {
                let id = |field: &str| Some(int(user, field).unwrap_or_default());
                errors.in_range(&path.field("uid"), id("uid"), 0, i64::from(u32::MAX));
                errors.in_range(&path.field("gid"), id("gid"), 0, i64::from(i32::MAX));
                let groups = path.field("supplementalGroups");
                for (index, group) in list(user, "supplementalGroups").iter().enumerate() {
                    errors.in_range(&groups.index(index), group.as_i64(), 0, i64::from(i32::MAX));
                }
            }
            _ => {}
        }
    }
}

/// Validates the allocated resources in container statuses: names that the container requests, and their health.
///
/// Upstream: `validateContainerStatusAllocatedResourcesStatus`.
fn allocated_resources(
    pod: &Value,
    field: &str,
    containers: &str,
    statuses_path: &Path<'_>,
    errors: &mut Errors,
) {
    let containers = list(pod, &format!("spec.{containers}"));
    for (index, status) in list(pod, &format!("status.{field}")).iter().enumerate() {
        let path = statuses_path.index(index);
        let allocated_path = path.field("allocatedResourcesStatus");
        let own = text(status, "name");
        let container = containers.iter().find(|container| text(container, "name") == own);
        for (index, resource) in list(status, "allocatedResourcesStatus").iter().enumerate() {
            let (path, name) = (allocated_path.index(index), text(resource, "name"));
            if let Some(container) = container {
                allocated_name(container, pod, name, &path.field("name"), errors);
            }
            health(list(resource, "resources"), &path.field("resources"), errors);
        }
    }
}

/// Requires that a container asks for a resource, by its name or by its claim.
fn allocated_name(
    container: &Value,
    pod: &Value,
    name: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if !name.starts_with("claim:") {
        let requests = object(container, "resources.requests");
        if !requests.is_some_and(|requests| requests.contains_key(name)) {
            errors.invalid(path, name, "must match one of the container's resource requests");
        }
        return;
    }
    let is_named = |claim: &str, request: &str| {
        let slash = if request.is_empty() { "" } else { "/" };
        name == format!("claim:{claim}{slash}{request}")
    };
    let extended = get(pod, "status.extendedResourceClaimStatus").unwrap_or(&Value::Null);
    let is_own = list(container, "resources.claims")
        .iter()
        .any(|claim| is_named(text(claim, "name"), text(claim, "request")));
    let is_extended = list(extended, "requestMappings").iter().any(|mapping| {
        text(mapping, "containerName") == text(container, "name")
            && is_named(text(extended, "resourceClaimName"), text(mapping, "requestName"))
    });
    if !is_own && !is_extended {
        let detail = "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when \
                     container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty";
        errors.invalid(path, name, detail);
    }
}

fn health(resources: &[Value], resources_path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, resource) in resources.iter().enumerate() {
        let path = resources_path.index(index);
        let known = ["Healthy", "Unhealthy", "Unknown"];
        errors.one_of(&path.field("health"), text(resource, "health"), &known);
        match get(resource, "message").and_then(Value::as_str) {
            Some("") => errors.required(&path.field("message"), "must be non-empty if specified"),
            Some(message) if message.len() > MAX_HEALTH_MESSAGE => {
                errors.too_long(&path.field("message"), MAX_HEALTH_MESSAGE);
            }
            _ => {}
        }
        let id = text(resource, "resourceID");
        if !seen.insert(id) {
            errors.duplicate(&path.field("resourceID"), id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(new: &Value, old: &Value) -> Vec<String> {
        let mut errors = Errors::default();
        update(new, old, &mut errors);
        errors.into_vec().into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn a_terminated_container_runs_again_only_by_its_policy() {
        let pod = |container: Value, state: Value| {
            json!({"spec": {"restartPolicy": "Never", "containers": [container]},
                "status": {"containerStatuses": [{"name": "c", "state": state}]}})
        };
        let terminated = json!({"terminated": {"exitCode": 3}});
        let rules = |operator: &str| json!([{"action": "Restart", "exitCodes": {"operator": operator, "values": [3]}}]);
        for (container, may) in [
            (json!({"name": "c"}), false),
            (json!({"name": "c", "restartPolicy": "Always"}), true),
            (json!({"name": "c", "restartPolicy": "OnFailure"}), true),
            (json!({"name": "c", "restartPolicy": "Never"}), false),
            (
                json!({"name": "c", "restartPolicy": "Never", "restartPolicyRules": rules("In")}),
                true,
            ),
            (
                json!({"name": "c", "restartPolicy": "Never", "restartPolicyRules": rules("NotIn")}),
                false,
            ),
            (
                json!({"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}),
                true,
            ),
            (json!({"name": "d", "restartPolicy": "Always"}), false),
        ] {
            let old = pod(container.clone(), terminated.clone());
            let new = pod(container.clone(), json!({"running": {}}));
            let expected: &[&str] = if may { &[] } else { &["status.containerStatuses[0].state"] };
            assert_eq!(fields(&new, &old), expected, "{container}");
            assert!(fields(&old, &old).is_empty());
        }
    }

    #[test]
    fn fields_of_a_status_are_validated() {
        let old = json!({"spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"a/b": "1"}}}]}});
        let cases: [(Value, &[&str]); 12] = [
            (json!({"podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.1"}, {"ip": "::1"}]}), &[]),
            (json!({"podIP": "1.1.1.1"}), &["status.podIPs"]),
            (json!({"podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.2"}]}), &["status.podIPs[0].ip"]),
            (
                json!({"podIP": "x", "podIPs": [{"ip": "x"}, {"ip": "::1"}]}),
                &["status.podIPs[0]", "status.podIPs", "status.podIPs"],
            ),
            (json!({"hostIPs": [{"ip": "1.1.1.1"}]}), &["status.hostIPs[0].ip"]),
            (
                json!({"conditions": [{"type": "a b", "observedGeneration": -1}, {"type": "Ready"}]}),
                &["status.conditions[0].observedGeneration", "status.conditions[0].Type"],
            ),
            (json!({"nominatedNodeName": "m"}), &["status.nominatedNodeName"]),
            (json!({"observedGeneration": -1}), &["status.observedGeneration"]),
            (
                json!({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "-"}]}),
                &[
                    "status.resourceClaimStatuses[0].name",
                    "status.resourceClaimStatuses[0].resourceClaimName",
                ],
            ),
            (
                json!({"extendedResourceClaimStatus": {"requestMappings": [{"containerName": "c", "resourceName": "a/b", "requestName": "r"}]}}),
                &["status.extendedResourceClaimStatus.resourceClaimName"],
            ),
            (
                json!({"containerStatuses": [{"name": "c", "user": {"linux": {"uid": -1, "gid": 1}}}]}),
                &["status.containerStatuses[0].user.linux.uid"],
            ),
            (
                json!({"containerStatuses": [{"name": "c", "allocatedResourcesStatus": [
                    {"name": "a/b", "resources": [{"resourceID": "x", "health": "Healthy"}, {"resourceID": "x", "health": "y"}]},
                    {"name": "claim:d"}]}]}),
                &[
                    "status.containerStatuses[0].allocatedResourcesStatus[0].resources[1].health",
                    "status.containerStatuses[0].allocatedResourcesStatus[0].resources[1].resourceID",
                    "status.containerStatuses[0].allocatedResourcesStatus[1].name",
                ],
            ),
        ];
        for (status, expected) in cases {
            let mut new = old.clone();
            new["status"] = status;
            assert_eq!(fields(&new, &old), expected, "{new}");
        }
    }
}
