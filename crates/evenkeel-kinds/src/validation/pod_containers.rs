//! Validation of a pod's containers.

use super::container_restart::{container_restart_policy, init_container_restart_policy};
use super::pod_env::env;
use super::pod_handlers::{lifecycle, probes};
use super::volume::Volumes;
use super::{names, pod_claims, pod_security, quantity, volume};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, is_empty, list, text};
use serde_json::Value;
use std::collections::BTreeSet;

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// Fields that ephemeral containers do not have, in the order of upstream's struct.
const NOT_FOR_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// Parts of a pod that affect the validation of its containers.
struct Pod<'a> {
    /// Valid volumes.
    volumes: &'a Volumes<'a>,
    /// Names of the resource claims.
    claims: BTreeSet<&'a str>,
    restart_policy: &'a str,
    /// Termination grace period.
    grace_seconds: Option<i64>,
    /// Whether the pod shares the user namespace of the host.
    host_users: bool,
}

/// Validates the containers of a pod's spec. `volumes` are its valid volumes.
pub(super) fn containers(
    spec: &Value,
    path: &Path<'_>,
    volumes: &Volumes<'_>,
    errors: &mut Errors,
) {
    let pod = Pod {
        volumes,
        claims: pod_claims::claim_names(spec),
        restart_policy: text(spec, "restartPolicy"),
        grace_seconds: int(spec, "terminationGracePeriodSeconds"),
        host_users: get(spec, "hostUsers") != Some(&Value::Bool(false)),
    };
    regular_containers(spec, &pod, &path.field("containers"), errors);
    init_containers(spec, &pod, &path.field("initContainers"), errors);
    ephemeral_containers(spec, &pod, &path.field("ephemeralContainers"), errors);
}

/// Validates `containers`. A pod needs at least one container.
///
/// Upstream: `validateContainers`.
fn regular_containers(
    spec: &Value,
    pod: &Pod<'_>,
    containers_path: &Path<'_>,
    errors: &mut Errors,
) {
    let containers = list(spec, "containers");
    if containers.is_empty() {
        return errors.required(containers_path, "");
    }
    let mut seen = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = containers_path.index(index);
        container_common(container, pod, &path, errors);
        let name = text(container, "name");
        if !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
        lifecycle(container, pod.grace_seconds, &path, errors);
        probes(container, &path, errors);
        container_restart_policy(container, &path, errors);
    }
    host_port_conflicts(containers, containers_path, errors);
}

/// Validates `initContainers`, sidecars included.
///
/// Upstream: `validateInitContainers`.
fn init_containers(spec: &Value, pod: &Pod<'_>, containers_path: &Path<'_>, errors: &mut Errors) {
    let mut seen: BTreeSet<&str> =
        list(spec, "containers").iter().map(|container| text(container, "name")).collect();
    for (index, container) in list(spec, "initContainers").iter().enumerate() {
        let path = containers_path.index(index);
        container_common(container, pod, &path, errors);
        init_container_restart_policy(container, &path, errors);
        let name = text(container, "name");
        if seen.contains(name) {
            errors.duplicate(&path.field("name"), name);
        } else if !name.is_empty() {
            seen.insert(name);
        }
        // As in upstream, each init container is checked alone, so errors have the path of the first one.
        host_port_conflicts(std::slice::from_ref(container), containers_path, errors);
        let is_sidecar = text(container, "restartPolicy") == "Always";
        if is_sidecar {
            lifecycle(container, pod.grace_seconds, &path, errors);
            probes(container, &path, errors);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if get(container, field).is_some() {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.forbidden(&path.field(field), detail);
            }
        }
        let policies = path.field("resizePolicy");
        for (index, policy) in list(container, "resizePolicy").iter().enumerate() {
            if text(policy, "restartPolicy") == "RestartContainer" {
                let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                let path = policies.index(index);
                errors.invalid(&path.field("restartPolicy"), "RestartContainer", detail);
            }
        }
    }
}

/// Validates the `ephemeralContainers` of a pod.
///
/// Upstream: `validateEphemeralContainers`.
fn ephemeral_containers(
    spec: &Value,
    pod: &Pod<'_>,
    containers_path: &Path<'_>,
    errors: &mut Errors,
) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    let targets: BTreeSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|field| list(spec, field).iter().map(|container| text(container, "name")))
        .collect();
    let mut seen = targets.clone();
    for (index, container) in list(spec, "ephemeralContainers").iter().enumerate() {
        let path = containers_path.index(index);
        container_common(container, pod, &path, errors);
        trimmed_image(container, &path, errors);
        let name = text(container, "name");
        if !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !targets.contains(target) {
            errors.not_found(&path.field("targetContainerName"), target);
        }
        for field in NOT_FOR_EPHEMERAL {
            // Lists and resources have no pointers in Go: empty ones are not set.
            let has_pointer =
                !matches!(field, "ports" | "resources" | "resizePolicy" | "restartPolicyRules");
            if get(container, field).is_some() && (has_pointer || !is_empty(container, field)) {
                errors.forbidden(&path.field(field), DETAIL);
            }
        }
        let mounts = path.field("volumeMounts");
        for (index, mount) in list(container, "volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !text(mount, field).is_empty() {
                    errors.forbidden(&mounts.index(index).field(field), DETAIL);
                }
            }
        }
    }
}

/// Rejects an image with spaces around it. Upstream accepts such images in templates.
///
/// Upstream: `validateContainerOnlyForPod`.
pub(super) fn trimmed_image(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let image = text(container, "image");
    if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.invalid(&path.field("image"), image, detail);
    }
}

/// Validates the fields that all containers have.
///
/// Upstream: `validateContainerCommon`.
fn container_common(container: &Value, pod: &Pod<'_>, path: &Path<'_>, errors: &mut Errors) {
    errors.required_valid(&path.field("name"), text(container, "name"), names::dns_label);
    if text(container, "image").is_empty() {
        errors.required(&path.field("image"), "");
    }
    errors.required_one_of(
        &path.field("terminationMessagePolicy"),
        text(container, "terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    ports(container, &path.field("ports"), errors);
    env(container, path, errors);
    volume::mounts(container, path, pod.volumes, errors);
    errors.required_one_of(
        &path.field("imagePullPolicy"),
        text(container, "imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
    );
    if let Some(resources) = get(container, "resources") {
        quantity::requirements(resources, &path.field("resources"), errors);
    }
    pod_claims::container_claims(container, &pod.claims, path, errors);
    let policies = list(container, "resizePolicy");
    resize_policy(policies, pod.restart_policy, &path.field("resizePolicy"), errors);
    if let Some(context) = get(container, "securityContext") {
        let path = path.field("securityContext");
        pod_security::of_container(context, pod.host_users, &path, errors);
    }
}

/// Allows one policy for CPU and one for memory. A pod that never restarts allows only resizes without a restart.
///
/// Upstream: `validateResizePolicy`.
fn resize_policy(policies: &[Value], restart: &str, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, policy) in policies.iter().enumerate() {
        let (resource, action) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if !seen.insert(resource) {
            errors.duplicate(&path.index(index), resource);
        }
        errors.required_one_of(path, resource, &["cpu", "memory"]);
        errors.required_one_of(path, action, &["NotRequired", "RestartContainer"]);
        if restart == "Never" && action != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(path, action, detail);
        }
    }
}

/// Requires valid numbers and protocols, and distinct valid names.
///
/// Upstream: `validateContainerPorts`.
fn ports(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, port) in list(container, "ports").iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let messages = names::port_name(name);
            errors.invalid_for_each(&path.field("name"), name, &messages);
            if messages.is_empty() && !seen.insert(name) {
                errors.duplicate(&path.field("name"), name);
            }
        }
        match int(port, "containerPort").unwrap_or_default() {
            0 => errors.required(&path.field("containerPort"), ""),
            number => errors.in_range(&path.field("containerPort"), Some(number), 1, 65535),
        }
        let host = int(port, "hostPort").filter(|host| *host != 0);
        errors.in_range(&path.field("hostPort"), host, 1, 65535);
        errors.required_one_of(&path.field("protocol"), text(port, "protocol"), PROTOCOLS);
    }
}

/// Requires that each combination of protocol, host IP and host port occurs once.
///
/// Upstream: `checkHostPortConflicts`.
fn host_port_conflicts(containers: &[Value], containers_path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = containers_path.index(index);
        let ports = path.field("ports");
        for (index, port) in list(container, "ports").iter().enumerate() {
            let Some(host) = int(port, "hostPort").filter(|host| *host != 0) else { continue };
            let key = format!("{}/{}/{host}", text(port, "protocol"), text(port, "hostIP"));
            if !seen.insert(key.clone()) {
                errors.duplicate(&ports.index(index).field("hostPort"), key);
            }
        }
    }
}

/// Requires that host ports equal the container ports if the pod uses the host's network.
///
/// Upstream: `validatePodHostNetworkDeps`.
pub(super) fn host_network_ports(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let containers_path = path.field("containers");
    for (index, container) in list(spec, "containers").iter().enumerate() {
        let path = containers_path.index(index);
        let ports = path.field("ports");
        for (index, port) in list(container, "ports").iter().enumerate() {
            let number = |field: &str| int(port, field).unwrap_or_default();
            let host = number("hostPort");
            if host != 0 && host != number("containerPort") {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&ports.index(index).field("hostPort"), host, detail);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn container(changes: &Value) -> Value {
        let mut container = json!({"name": "c", "image": "i", "imagePullPolicy": "Always",
            "terminationMessagePolicy": "File"});
        for (name, value) in changes.as_object().into_iter().flatten() {
            container[name] = value.clone();
        }
        container
    }

    fn fields(spec: &Value) -> Vec<String> {
        let mut errors = Errors::default();
        containers(spec, &Path::new("s"), &Volumes::new(), &mut errors);
        errors.into_vec().into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn names_are_unique_over_all_lists() {
        let named = |name: &str| container(&json!({"name": name}));
        let spec = json!({
            "containers": [named("a"), named("b"), named("a")],
            "initContainers": [named("b"), named("c")],
            "ephemeralContainers": [named("c"), container(&json!({"name": "d", "targetContainerName": "d"}))],
        });
        let expected = [
            "s.containers[2].name",
            "s.initContainers[0].name",
            "s.ephemeralContainers[0].name",
            "s.ephemeralContainers[1].targetContainerName",
        ];
        assert_eq!(fields(&spec), expected);
        assert_eq!(fields(&json!({})), ["s.containers"]);
    }

    #[test]
    fn each_list_has_fields_of_its_own() {
        let main = container(&json!({}));
        let probe = json!({"exec": {"command": ["a"]}, "successThreshold": 1});
        let resize = json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
        let cases: [(&str, Value, &[&str]); 5] = [
            ("initContainers", json!({"livenessProbe": probe}), &["livenessProbe"]),
            ("initContainers", json!({"livenessProbe": probe, "restartPolicy": "Always"}), &[]),
            ("initContainers", json!({"resizePolicy": resize}), &["resizePolicy[0].restartPolicy"]),
            (
                "ephemeralContainers",
                json!({"restartPolicy": "Never", "livenessProbe": probe, "image": " i"}),
                &["image", "restartPolicy", "livenessProbe"],
            ),
            (
                "ephemeralContainers",
                json!({"resources": {"claims": [{"name": "x"}]}}),
                &["resources.claims[0]", "resources"],
            ),
        ];
        for (list, changes, expected) in cases {
            let mut changes = changes;
            changes["name"] = json!("other");
            let spec = json!({"containers": [main], list: [container(&changes)]});
            let expected: Vec<String> =
                expected.iter().map(|field| format!("s.{list}[0].{field}")).collect();
            assert_eq!(fields(&spec), expected, "{changes}");
        }
    }

    #[test]
    fn host_ports_are_unique_and_of_the_container() {
        let with = |port: i64, host: i64| {
            let port = json!({"containerPort": port, "hostPort": host, "protocol": "TCP"});
            json!({"ports": [port]})
        };
        let (first, mut second) = (container(&with(80, 8080)), container(&with(8080, 8080)));
        second["name"] = json!("d");
        let spec = json!({"containers": [first, second], "initContainers": []});
        assert_eq!(fields(&spec), ["s.containers[1].ports[0].hostPort"]);
        let mut errors = Errors::default();
        host_network_ports(&spec, &Path::new("s"), &mut errors);
        let fields: Vec<String> = errors.into_vec().into_iter().map(|one| one.field).collect();
        assert_eq!(fields, ["s.containers[0].ports[0].hostPort"]);
    }
}
