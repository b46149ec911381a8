//! Warnings about pods and pod templates.

use super::network::warn_about_ip;
use super::{
    DEPRECATED_LABELS, DEPRECATED_VOLUMES, annotation, warn_about_deprecated_label,
    warn_about_fractional_bytes,
};
use crate::app_armor;
use crate::validation::dns_label;
use crate::validation::pod_annotations::{SECCOMP_CONTAINER, SECCOMP_POD};
use evenkeel_api::forms;
use evenkeel_apimachinery::value::{get, int, list, object, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Deprecated annotations of pods, each with the message of the warning.
const DEPRECATED_ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

/// Warns about a new pod. Updates of a pod get no warnings.
///
/// Upstream: `GetWarningsForPod`.
pub(super) fn pod(pod: &Value, warnings: &mut Vec<String>) {
    let name = text(pod, "metadata.name");
    let messages = dns_label(name);
    if !messages.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is \
             recommended: [{}]",
            messages.join(" ")
        ));
    }
    if let Some(spec) = pod.get("spec") {
        pod_spec(pod, spec, "spec", warnings);
    }
}

/// Warns about the pod template of a new or changed object.
///
/// Upstream: `GetWarningsForPodTemplate`.
pub(super) fn template(object: &Value, path: &str, warnings: &mut Vec<String>) {
    let Some(template) = get(object, path) else { return };
    if let Some(spec) = get(template, "spec") {
        pod_spec(template, spec, &format!("{path}.spec"), warnings);
        warnings.extend(app_armor::template_warnings(template, spec, path));
    }
}

/// Warns about annotations of seccomp profiles that no field names, because they have no effect.
fn seccomp_annotations(pod: &Value, spec: &Value, path: &str, warnings: &mut Vec<String>) {
    const FIELD: &str = "securityContext.seccompProfile";
    let path = path.strip_suffix("spec").unwrap_or_default();
    let mut warn = |owner: &Value, key: String| {
        if get(owner, FIELD).is_none() && annotation(pod, &key).is_some() {
            warnings.push(format!(
                "{path}metadata.annotations[{key}]: non-functional in v1.27+; use the \"seccompProfile\" field instead"
            ));
        }
    };
    warn(spec, SECCOMP_POD.to_owned());
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list(spec, containers) {
            warn(container, format!("{SECCOMP_CONTAINER}{}", text(container, "name")));
        }
    }
}

/// Warns about deprecated labels, annotations and fields, and about values that are probably mistakes, of a pod or a
/// pod template.
///
/// Upstream: `warningsForPodSpecAndMeta`.
fn pod_spec(pod: &Value, spec: &Value, path: &str, warnings: &mut Vec<String>) {
    for (key, message) in DEPRECATED_LABELS {
        if object(spec, "nodeSelector").is_some_and(|labels| labels.contains_key(*key)) {
            warnings.push(format!("{path}.nodeSelector[{key}]: {message}"));
        }
    }
    node_affinity(spec, path, warnings);
    for (index, spread) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        let path = format!("{path}.topologySpreadConstraints[{index}]");
        warn_about_deprecated_label(
            &format!("{path}.topologyKey"),
            text(spread, "topologyKey"),
            warnings,
        );
        null_selector(spread, &format!("{path}.labelSelector"), warnings);
    }
    for (key, message) in DEPRECATED_ANNOTATIONS {
        if annotation(pod, key).is_some() {
            let path = path.strip_suffix("spec").unwrap_or_default();
            warnings.push(format!("{path}metadata.annotations[{key}]: {message}"));
        }
    }
    seccomp_annotations(pod, spec, path, warnings);
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        let path = format!("{path}.volumes[{index}]");
        for (kind, words) in DEPRECATED_VOLUMES {
            if get(volume, kind).is_some() {
                // Upstream's path has this capitalization.
                let kind = if *kind == "storageos" { "storageOS" } else { kind };
                warnings.push(format!("{path}.{kind}: {words}"));
            }
        }
        for field in ["requests", "limits"] {
            let field = format!("ephemeral.volumeClaimTemplate.spec.resources.{field}");
            let amount = get(volume, &format!("{field}.storage"));
            warn_about_fractional_bytes(&format!("{path}.{field}[storage]"), amount, warnings);
        }
    }
    let ips = list(spec, "hostAliases").iter().map(|alias| text(alias, "ip"));
    duplicates(ips, "ip", &format!("{path}.hostAliases"), warnings);
    let secrets = list(spec, "imagePullSecrets").iter().map(|secret| text(secret, "name"));
    duplicates(secrets.clone(), "name", &format!("{path}.imagePullSecrets"), warnings);
    for (index, _) in secrets.enumerate().filter(|(_, name)| name.is_empty()) {
        warnings.push(format!("{path}.imagePullSecrets[{index}].name: invalid empty name \"\""));
    }
    bytes_of_resources(spec, "overhead", path, warnings);
    for (container, path) in containers(spec, path) {
        self::container(container, &path, warnings);
    }
    ports(spec, path, warnings);
    if int(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        warnings.push(format!("{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    pod_affinity(spec, path, warnings);
    for (index, ip) in list(spec, "dnsConfig.nameservers").iter().enumerate() {
        warn_about_ip(&format!("{path}.dnsConfig.nameservers[{index}]"), ip.as_str(), warnings);
    }
    for (index, alias) in list(spec, "hostAliases").iter().enumerate() {
        let path = format!("{path}.hostAliases[{index}].ip");
        warn_about_ip(&path, Some(text(alias, "ip")), warnings);
    }
}

/// Returns the containers of a pod with their paths.
///
/// Upstream: `VisitContainersWithPath`.
fn containers<'a>(spec: &'a Value, path: &'a str) -> impl Iterator<Item = (&'a Value, String)> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |field| {
        let containers = list(spec, field).iter().enumerate();
        containers.map(move |(index, one)| (one, format!("{path}.{field}[{index}]")))
    })
}

/// Warns about deprecated node labels in required and preferred node affinity.
///
/// Upstream: `GetWarningsForNodeSelectorTerm`.
fn node_affinity(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    let required =
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let preferred = "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in list(spec, required).iter().enumerate() {
        let path = format!("{path}.{required}[{index}]");
        for (index, expression) in list(term, "matchExpressions").iter().enumerate() {
            let path = format!("{path}.matchExpressions[{index}].key");
            warn_about_deprecated_label(&path, text(expression, "key"), warnings);
        }
    }
    for (index, term) in list(spec, preferred).iter().enumerate() {
        let path = format!("{path}.{preferred}[{index}].preference");
        for (index, expression) in list(term, "preference.matchExpressions").iter().enumerate() {
            let path = format!("{path}.matchExpressions[{index}]");
            warn_about_deprecated_label(&format!("{path}.key"), text(expression, "key"), warnings);
            let values = list(expression, "values").iter().filter_map(Value::as_str);
            for (index, value) in values.enumerate() {
                for message in forms::label_value(value) {
                    warnings.push(format!("{path}.values[{index}]: {value} is invalid, {message}"));
                }
            }
        }
    }
}

/// Warns about terms of pod affinity and anti-affinity with a null label selector, which matches no pod.
///
/// Upstream: `warningsForPodAffinityTerms`, `warningsForWeightedPodAffinityTerms`.
fn pod_affinity(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let required = format!("affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution");
        for (index, term) in list(spec, &required).iter().enumerate() {
            null_selector(term, &format!("{path}.{required}[{index}].labelSelector"), warnings);
        }
        let preferred = format!("affinity.{kind}.preferredDuringSchedulingIgnoredDuringExecution");
        for (index, term) in list(spec, &preferred).iter().enumerate() {
            let path = format!("{path}.{preferred}[{index}].podAffinityTerm.labelSelector");
            let term = term.get("podAffinityTerm").unwrap_or(&Value::Null);
            null_selector(term, &path, warnings);
        }
    }
}

/// Warns about a term or a spread constraint without `labelSelector`.
fn null_selector(term: &Value, path: &str, warnings: &mut Vec<String>) {
    if term.get("labelSelector").is_none() {
        warnings.push(format!("{path}: a null labelSelector results in matching no pod"));
    }
}

/// Warns about each value that repeats an earlier one.
fn duplicates<'a>(
    values: impl Iterator<Item = &'a str>,
    field: &str,
    path: &str,
    warnings: &mut Vec<String>,
) {
    let mut seen = BTreeSet::new();
    for (index, value) in values.enumerate() {
        if !seen.insert(value) {
            warnings.push(format!("{path}[{index}].{field}: duplicate {field} {value:?}"));
        }
    }
}

/// Warns about fractional amounts of memory and ephemeral storage in the resource list `field`.
fn bytes_of_resources(owner: &Value, field: &str, path: &str, warnings: &mut Vec<String>) {
    for resource in ["memory", "ephemeral-storage"] {
        let amount = object(owner, field).and_then(|amounts| amounts.get(resource));
        warn_about_fractional_bytes(&format!("{path}.{field}[{resource}]"), amount, warnings);
    }
}

/// Warns about fractional amounts of memory and ephemeral storage, and about variables with the same name.
fn container(container: &Value, path: &str, warnings: &mut Vec<String>) {
    for resource in ["memory", "ephemeral-storage"] {
        for field in ["resources.limits", "resources.requests"] {
            let amount = object(container, field).and_then(|amounts| amounts.get(resource));
            warn_about_fractional_bytes(&format!("{path}.{field}[{resource}]"), amount, warnings);
        }
    }
    let mut seen = BTreeSet::new();
    for (index, variable) in list(container, "env").iter().enumerate() {
        let name = text(variable, "name");
        if seen.insert(name) {
            continue;
        }
        let (value, reference) = (text(variable, "value"), format!("$({name})"));
        let extends = value != reference && value.contains(&reference);
        if variable.get("valueFrom").is_some() || !extends {
            warnings.push(format!(
                "{path}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

/// Warns about host IPs without host port, and about ports that overlap or share a name. Compares the ports of all
/// containers.
fn ports(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    let ports: Vec<(&Value, String)> = containers(spec, path)
        .flat_map(|(container, path)| {
            let ports = list(container, "ports").iter().enumerate();
            ports.map(move |(index, port)| (port, format!("{path}.ports[{index}]")))
        })
        .collect();
    let number = |port: &Value, field: &str| int(port, field).unwrap_or_default();
    let key = |port| (number(port, "containerPort"), text(port, "protocol"));
    for (index, (port, path)) in ports.iter().enumerate() {
        let (host_ip, host_port) = (text(port, "hostIP"), number(port, "hostPort"));
        if !host_ip.is_empty() && host_port == 0 {
            let (container_port, protocol) = key(port);
            warnings.push(format!(
                "{path}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{container_port} Protocol:{protocol} HostIP:{host_ip}}}",
                text(port, "name"),
            ));
        }
        for (other, other_path) in
            ports.iter().take(index).filter(|(other, _)| key(other) == key(port))
        {
            let (other_ip, other_port) = (text(other, "hostIP"), number(other, "hostPort"));
            let words = if (host_ip, host_port) == (other_ip, other_port) {
                "duplicate"
            } else if host_port == 0 || other_port == 0 {
                "overlapping"
            } else if host_port == other_port && host_ip.is_empty() != other_ip.is_empty() {
                "dangerously ambiguous"
            } else {
                continue;
            };
            warnings.push(format!("{path}: {words} port definition with {other_path}"));
        }
    }
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for (port, path) in &ports {
        let name = text(port, "name");
        if name.is_empty() {
            continue;
        }
        match names.get(name) {
            Some(other) => warnings.push(format!(
                "{path}: duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
            )),
            None => {
                names.insert(name, path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_warn_about_ambiguous_and_ineffective_fields() {
        let ports = |ports: Value| json!({"containers": [{"ports": ports}]});
        let env = |variable: Value| json!({"containers": [{"env": [{"name": "A"}, variable]}]});
        let hides = "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply";
        let table: [(Value, &[&str]); 10] = [
            (json!({"containers": [{}]}), &[]),
            (
                json!({"imagePullSecrets": [{}, {"name": "a"}, {"name": "a"}]}),
                &[
                    "spec.imagePullSecrets[2].name: duplicate name \"a\"",
                    "spec.imagePullSecrets[0].name: invalid empty name \"\"",
                ],
            ),
            (env(json!({"name": "A", "value": "$(A)b"})), &[]),
            (env(json!({"name": "A", "value": "$(A)"})), &[hides]),
            (env(json!({"name": "A", "valueFrom": {}})), &[hides]),
            (
                ports(
                    json!([{"containerPort": 1, "name": "a"}, {"containerPort": 1, "hostPort": 2, "name": "a"}]),
                ),
                &[
                    "spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]",
                    "spec.containers[0].ports[1]: duplicate port name \"a\" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]",
                ],
            ),
            (
                ports(
                    json!([{"containerPort": 1, "hostPort": 2}, {"containerPort": 1, "hostPort": 2, "hostIP": "1.2.3.4"}]),
                ),
                &[
                    "spec.containers[0].ports[1]: dangerously ambiguous port definition with spec.containers[0].ports[0]",
                ],
            ),
            (
                ports(json!([{"containerPort": 1, "hostIP": "1.2.3.4", "protocol": "TCP"}])),
                &[
                    "spec.containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:1 Protocol:TCP HostIP:1.2.3.4}",
                ],
            ),
            (
                json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}),
                &[
                    "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod",
                ],
            ),
            (
                json!({"containers": [{"resources": {"limits": {"memory": "1500m"}}}]}),
                &[
                    "spec.containers[0].resources.limits[memory]: fractional byte value \"1500m\" is invalid, must be an integer",
                ],
            ),
        ];
        for (spec, expected) in table {
            let mut found = Vec::new();
            pod_spec(&json!({}), &spec, "spec", &mut found);
            assert_eq!(found, expected, "{spec}");
        }
    }
}
