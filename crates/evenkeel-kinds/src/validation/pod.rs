//! Validation of pod specs, in pods and in templates.
//!
//! Upstream: `k8s.io/kubernetes/pkg/apis/core/validation`.

use super::container_restart::container_restart_policy;
use super::pod_env::{file_key_ref, file_key_volumes};
use super::pod_security::{no_windows_options, user_and_seccomp_profile};
use super::{labels, names, pod_claims, pod_level, pod_sysctls, quantity, volume};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{flag, get, int, is_empty, list, object, text};
use serde_json::Value;
use std::collections::BTreeSet;

const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
/// Maximum length of a host name on Linux, in bytes.
const MAX_HOSTNAME: usize = 64;
/// Most search paths of a pod's resolver.
const MAX_SEARCHES: usize = 32;
/// Most characters of the search paths and the spaces between them.
const MAX_SEARCH_LENGTH: usize = 2048;
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
/// Resources of a container that `resourceFieldRef` may reference, besides huge pages.
const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Validates a new pod.
///
/// Upstream: `ValidatePodCreate`.
pub(crate) fn create(pod: &Value, errors: &mut Errors) {
    let Some(spec) = pod.get("spec") else {
        errors.required(&Path::new("spec").field("containers"), "");
        return;
    };
    let path = Path::new("spec");
    self::spec(spec, &path, errors);
    pod_only(spec, None, &path, errors);
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(&path.field("ephemeralContainers"), "cannot be set on create");
    }
    if !list(spec, "schedulingGates").is_empty() && !text(spec, "nodeName").is_empty() {
        errors.forbidden(
            &path.field("nodeName"),
            "cannot be set until all schedulingGates have been cleared",
        );
    }
}

/// Validates rules that only apply to pods, not to templates. Images have no surrounding spaces. The required node
/// affinity has valid label values, unless the `old` spec has invalid ones.
///
/// Upstream: `validateContainersOnlyForPod`, `AllowInvalidLabelValueInRequiredNodeAffinity`.
pub(super) fn pod_only(spec: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    for field in ["containers", "initContainers"] {
        let all = path.field(field);
        for (index, container) in list(spec, field).iter().enumerate() {
            let image = text(container, "image");
            if image.trim() != image {
                let words = "must not have leading or trailing whitespace";
                errors.invalid(&all.index(index).field("image"), image, words);
            }
        }
    }
    super::affinity::required_values(spec, old, path, errors);
}

/// Validates the metadata and the spec of a pod template.
///
/// Upstream: `ValidatePodTemplateSpec`.
pub(super) fn template(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    labels::labels(object(template, "metadata.labels"), &path.field("labels"), errors);
    if let Some(meta) = template.get("metadata") {
        labels::annotations(meta, &path.field("annotations"), errors);
    }
    let spec_path = path.field("spec");
    match template.get("spec") {
        Some(spec) => {
            self::spec(spec, &spec_path, errors);
            if !list(spec, "ephemeralContainers").is_empty() {
                errors.forbidden(
                    &spec_path.field("ephemeralContainers"),
                    "ephemeral containers not allowed in pod template",
                );
            }
        }
        None => errors.required(&spec_path.field("containers"), ""),
    }
}

/// Validates a pod spec.
///
/// Upstream: `ValidatePodSpec`.
pub(super) fn spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let volumes = volume::volumes(spec, &path.field("volumes"), errors);
    pod_claims::pod_resource_claims(spec, path, errors);
    containers(spec, path, &volumes, errors);
    pod_level::resources(spec, path, errors);
    errors.one_of(&path.field("restartPolicy"), text(spec, "restartPolicy"), RESTART_POLICIES);
    dns(spec, path, errors);
    scheduling(spec, path, errors);
    if let Some(seconds) = int(spec, "activeDeadlineSeconds") {
        errors.in_range(
            &path.field("activeDeadlineSeconds"),
            Some(seconds),
            1,
            i64::from(i32::MAX),
        );
    }
    for (field, validate) in [
        ("serviceAccountName", names::dns_subdomain as fn(&str) -> Vec<String>),
        ("nodeName", names::dns_subdomain),
        ("runtimeClassName", names::dns_subdomain),
        ("hostname", names::dns_label),
        ("subdomain", names::dns_label),
        ("priorityClassName", names::dns_subdomain),
    ] {
        let value = text(spec, field);
        if !value.is_empty() {
            errors.invalid_all(&path.field(field), value, &validate(value));
        }
    }
    if get(spec, "runtimeClassName").and_then(Value::as_str) == Some("") {
        errors.invalid_all(&path.field("runtimeClassName"), "", &names::dns_subdomain(""));
    }
    if let Some(policy) = get(spec, "preemptionPolicy").and_then(Value::as_str) {
        let path = path.field("preemptionPolicy");
        match policy {
            "" => errors.required(&path, ""),
            "PreemptLowerPriority" | "Never" => {}
            _ => errors.not_supported(&path, policy, &["PreemptLowerPriority", "Never"]),
        }
    }
    if let Some(overhead) = get(spec, "overhead") {
        let limits = serde_json::json!({"limits": overhead});
        quantity::requirements(&limits, &path.field("overhead"), errors);
    }
    hostname_override(spec, &path.field("hostnameOverride"), errors);
    let aliases = path.field("hostAliases");
    for (index, alias) in list(spec, "hostAliases").iter().enumerate() {
        let path = aliases.index(index);
        errors.invalid_all(&path.field("ip"), text(alias, "ip"), &names::ip(text(alias, "ip")));
        let hostnames = path.field("hostnames");
        for (index, name) in list(alias, "hostnames").iter().filter_map(Value::as_str).enumerate() {
            errors.invalid_all(&hostnames.index(index), name, &names::dns_subdomain(name));
        }
    }
    scheduling_gates(spec, path, errors);
    operating_system(spec, path, errors);
    security(spec, path, errors);
    file_key_volumes(spec, path, errors);
}

/// Validates `hostnameOverride`, which replaces the pod's host name. It conflicts with `hostNetwork` and
/// `setHostnameAsFQDN`.
fn hostname_override(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(name) = get(spec, "hostnameOverride").and_then(Value::as_str) else { return };
    for field in ["setHostnameAsFQDN", "hostNetwork"] {
        if flag(spec, field) {
            errors.forbidden(path, &format!("may not be specified when {field} is true"));
        }
    }
    if name.len() > MAX_HOSTNAME {
        errors.too_long(path, MAX_HOSTNAME);
    }
    errors.invalid_all(path, name, &names::dns_subdomain(name));
}

/// Which namespaces of the host a pod shares.
#[derive(Clone, Copy)]
struct Host {
    network: bool,
    users: bool,
}

/// Upstream: `validateContainers`, `validateInitContainers`.
fn containers(spec: &Value, path: &Path<'_>, volumes: &BTreeSet<&str>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    let mut host_ports = BTreeSet::new();
    let users = get(spec, "hostUsers") != Some(&Value::Bool(false));
    let host = Host { network: flag(spec, "hostNetwork"), users };
    let claim_names = pod_claims::claim_names(spec);
    let grace = int(spec, "terminationGracePeriodSeconds").filter(|seconds| *seconds >= 0);
    let all = path.field("containers");
    if list(spec, "containers").is_empty() {
        errors.required(&all, "");
    }
    for (index, container) in list(spec, "containers").iter().enumerate() {
        let path = all.index(index);
        self::container(container, &path, volumes, host, errors);
        pod_claims::container_claims(container, &claim_names, &path, errors);
        if !text(container, "name").is_empty() && !seen.insert(text(container, "name")) {
            errors.duplicate(&path.field("name"), text(container, "name"));
        }
        lifecycle(container, grace, &path, errors);
        probes(container, &path, errors);
        conflicting_host_ports(container, &path, &mut host_ports, errors);
        let resize = list(container, "resizePolicy");
        let path = path.field("resizePolicy");
        resize_policy(resize, text(spec, "restartPolicy"), &path, errors);
    }
    let all = path.field("initContainers");
    for (index, container) in list(spec, "initContainers").iter().enumerate() {
        let path = all.index(index);
        self::container(container, &path, volumes, host, errors);
        pod_claims::container_claims(container, &claim_names, &path, errors);
        if !text(container, "name").is_empty() && !seen.insert(text(container, "name")) {
            errors.duplicate(&path.field("name"), text(container, "name"));
        }
        let resize = list(container, "resizePolicy");
        let resize_path = path.field("resizePolicy");
        resize_policy(resize, text(spec, "restartPolicy"), &resize_path, errors);
        if text(container, "restartPolicy") == "Always" {
            lifecycle(container, grace, &path, errors);
            probes(container, &path, errors);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if get(container, field).is_some() {
                let words = "may not be set for init containers without restartPolicy=Always";
                errors.forbidden(&path.field(field), words);
            }
        }
    }
    let host = Host { network: false, ..host };
    ephemeral_containers(spec, path, volumes, &mut seen, host, errors);
}

/// Upstream: `validateEphemeralContainers`.
fn ephemeral_containers<'a>(
    spec: &'a Value,
    path: &Path<'_>,
    volumes: &BTreeSet<&str>,
    seen: &mut BTreeSet<&'a str>,
    host: Host,
    errors: &mut Errors,
) {
    let all = path.field("ephemeralContainers");
    let targets: BTreeSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|field| list(spec, field).iter().map(|container| text(container, "name")))
        .collect();
    for (index, container) in list(spec, "ephemeralContainers").iter().enumerate() {
        let path = all.index(index);
        self::container(container, &path, volumes, host, errors);
        if !text(container, "name").is_empty() && !seen.insert(text(container, "name")) {
            errors.duplicate(&path.field("name"), text(container, "name"));
        }
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !targets.contains(target) {
            errors.not_found(&path.field("targetContainerName"), target);
        }
        for field in [
            "ports",
            "lifecycle",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "resizePolicy",
        ] {
            if !is_empty(container, field) {
                errors.forbidden(&path.field(field), "cannot be set for an Ephemeral Container");
            }
        }
        if !is_empty(container, "resources") {
            errors.forbidden(&path.field("resources"), "cannot be set for an Ephemeral Container");
        }
        let mounts = path.field("volumeMounts");
        for (index, mount) in list(container, "volumeMounts").iter().enumerate() {
            if !text(mount, "subPath").is_empty() {
                errors.forbidden(
                    &mounts.index(index).field("subPath"),
                    "cannot be set for an Ephemeral Container",
                );
            }
        }
    }
}

/// Upstream: `validateContainerCommon`.
fn container(
    container: &Value,
    path: &Path<'_>,
    volumes: &BTreeSet<&str>,
    host: Host,
    errors: &mut Errors,
) {
    errors.required_valid(&path.field("name"), text(container, "name"), names::dns_label);
    if text(container, "image").is_empty() {
        errors.required(&path.field("image"), "");
    }
    let policies = &["File", "FallbackToLogsOnError"];
    errors.one_of(
        &path.field("terminationMessagePolicy"),
        text(container, "terminationMessagePolicy"),
        policies,
    );
    ports(container, &path.field("ports"), host.network, errors);
    env(container, path, errors);
    volume::mounts(container, path, volumes, errors);
    let pulls = &["Always", "IfNotPresent", "Never"];
    errors.one_of(&path.field("imagePullPolicy"), text(container, "imagePullPolicy"), pulls);
    if let Some(resources) = get(container, "resources") {
        quantity::requirements(resources, &path.field("resources"), errors);
    }
    if let Some(context) = get(container, "securityContext") {
        let path = path.field("securityContext");
        user_and_seccomp_profile(context, &path, errors);
        let proc_mounts = ["Default", "Unmasked"];
        let proc_mount = get(context, "procMount");
        errors.one_of_if_set(&path.field("procMount"), proc_mount, &proc_mounts);
        if proc_mount.and_then(Value::as_str) == Some("Unmasked") && host.users {
            let detail = "`hostUsers` must be false to use `Unmasked`";
            errors.invalid(&path.field("procMount"), "Unmasked", detail);
        }
        if flag(context, "privileged")
            && get(context, "allowPrivilegeEscalation") == Some(&Value::Bool(false))
        {
            errors.invalid(
                &path,
                context.clone(),
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            );
        }
    }
    container_restart_policy(container, path, errors);
}

/// Upstream: `validateResizePolicy`.
fn resize_policy(policies: &[Value], restart: &str, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, policy) in policies.iter().enumerate() {
        let (resource, action) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if !seen.insert(resource) {
            errors.duplicate(&path.index(index), resource);
        }
        for (value, supported) in
            [(resource, ["cpu", "memory"]), (action, ["NotRequired", "RestartContainer"])]
        {
            match value {
                "" => errors.required(path, ""),
                _ => errors.one_of(path, value, &supported),
            }
        }
        if restart == "Never" && action != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(path, action, detail);
        }
    }
}

/// Upstream: `validateContainerPorts`.
fn ports(container: &Value, path: &Path<'_>, host_network: bool, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, port) in list(container, "ports").iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let messages = names::port_name(name);
            errors.invalid_all(&path.field("name"), name, &messages);
            if messages.is_empty() && !seen.insert(name) {
                errors.duplicate(&path.field("name"), name);
            }
        }
        let number = int(port, "containerPort").unwrap_or_default();
        if number == 0 {
            errors.required(&path.field("containerPort"), "");
        } else {
            errors.in_range(&path.field("containerPort"), Some(number), 1, 65535);
        }
        let host = int(port, "hostPort").filter(|host| *host != 0);
        errors.in_range(&path.field("hostPort"), host, 1, 65535);
        if host_network && host.is_some_and(|host| host != number) {
            errors.invalid(
                &path.field("hostPort"),
                host,
                "must match `containerPort` when `hostNetwork` is true",
            );
        }
        match text(port, "protocol") {
            "" => errors.required(&path.field("protocol"), ""),
            protocol => errors.one_of(&path.field("protocol"), protocol, PROTOCOLS),
        }
    }
}

/// Upstream: `checkHostPortConflicts`.
fn conflicting_host_ports(
    container: &Value,
    path: &Path<'_>,
    seen: &mut BTreeSet<String>,
    errors: &mut Errors,
) {
    let ports = path.field("ports");
    for (index, port) in list(container, "ports").iter().enumerate() {
        let Some(host) = int(port, "hostPort").filter(|host| *host != 0) else { continue };
        let key = format!("{}/{}/{host}", text(port, "protocol"), text(port, "hostIP"));
        if !seen.insert(key.clone()) {
            errors.duplicate(&ports.index(index).field("hostPort"), key);
        }
    }
}

/// Upstream: `ValidateEnv`.
fn env(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = path.field("env");
    for (index, variable) in list(container, "env").iter().enumerate() {
        let path = all.index(index);
        errors.required_valid(&path.field("name"), text(variable, "name"), names::env_name);
        if let Some(source) = get(variable, "valueFrom") {
            env_source(variable, source, &path.field("valueFrom"), errors);
        }
    }
    let all = path.field("envFrom");
    for (index, source) in list(container, "envFrom").iter().enumerate() {
        let path = all.index(index);
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            errors.invalid_all(&path.field("prefix"), prefix, &names::env_name(prefix));
        }
        let mut source_count = 0;
        for field in ["configMapRef", "secretRef"] {
            let Some(reference) = get(source, field) else { continue };
            source_count += 1;
            let path = path.field(field);
            errors.required_valid(
                &path.field("name"),
                text(reference, "name"),
                names::dns_subdomain,
            );
        }
        match source_count {
            // As upstream, the error is about the list, not its item.
            0 => errors.invalid(&all, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(&all, "", "may not have more than one field specified at a time"),
        }
    }
}

/// Upstream: `validateEnvVarValueFrom`.
fn env_source(variable: &Value, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut source_count = 0;
    if let Some(reference) = get(source, "fieldRef") {
        source_count += 1;
        field_ref(reference, ENV_FIELDS, &path.field("fieldRef"), errors);
    }
    if let Some(reference) = get(source, "resourceFieldRef") {
        source_count += 1;
        resource_field_ref(reference, &path.field("resourceFieldRef"), errors);
    }
    for field in ["configMapKeyRef", "secretKeyRef"] {
        let Some(reference) = get(source, field) else { continue };
        source_count += 1;
        let path = path.field(field);
        let name = text(reference, "name");
        errors.invalid_all(&path.field("name"), name, &names::dns_subdomain(name));
        errors.required_valid(&path.field("key"), text(reference, "key"), names::config_key);
    }
    if let Some(reference) = get(source, "fileKeyRef") {
        source_count += 1;
        file_key_ref(reference, &path.field("fileKeyRef"), errors);
    }
    let words = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
    if source_count == 0 {
        errors.invalid(path, "", words);
    } else if !text(variable, "value").is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if source_count > 1 {
        errors.invalid(path, "", "may not have more than one field specified at a time");
    }
}

/// Pod fields that an environment variable may reference.
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Pod fields that a downward API volume may reference.
pub(super) const VOLUME_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.labels",
    "metadata.annotations",
    "metadata.uid",
];

/// Validates a reference to a field of the pod.
///
/// Upstream: `validateObjectFieldSelector`.
pub(super) fn field_ref(reference: &Value, allowed: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if text(reference, "apiVersion").is_empty() {
        errors.required(&path.field("apiVersion"), "");
        return;
    }
    let field = text(reference, "fieldPath");
    let path = path.field("fieldPath");
    if field.is_empty() {
        errors.required(&path, "");
        return;
    }
    if let Some((map, key)) = field.strip_suffix("']").and_then(|field| field.split_once("['")) {
        match map {
            "metadata.labels" => errors.invalid_all(&path, key, &names::qualified_name(key)),
            "metadata.annotations" => {
                errors.invalid_all(&path, key, &names::qualified_name(&key.to_lowercase()));
            }
            _ => errors.invalid(&path, field, "does not support subscript"),
        }
        return;
    }
    if allowed.contains(&field) {
        return;
    }
    if ENV_FIELDS.contains(&field) || VOLUME_FIELDS.contains(&field) {
        errors.not_supported(&path, field, allowed);
    } else {
        errors.invalid(
            &path,
            field,
            &format!("error converting fieldPath: field label not supported: {field}"),
        );
    }
}

/// Validates a reference to a resource of a container.
///
/// Upstream: `validateContainerResourceFieldSelector`.
pub(super) fn resource_field_ref(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(reference, "resource");
    let is_huge = name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-");
    match name {
        "" => errors.required(&path.field("resource"), ""),
        _ if is_huge => {}
        name => errors.one_of(&path.field("resource"), name, RESOURCE_FIELDS),
    }
    divisor(reference, name, is_huge, path, errors);
}

/// Upstream: `validateContainerResourceDivisor`.
fn divisor(reference: &Value, name: &str, is_huge: bool, path: &Path<'_>, errors: &mut Errors) {
    const SIZES: [&str; 13] =
        ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let divisor = text(reference, "divisor");
    let (known, resource) = match name {
        "limits.cpu" | "requests.cpu" => (&["1m", "1"][..], "cpu"),
        "limits.memory" | "requests.memory" => (&SIZES[..], "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (&SIZES[..], "local ephemeral storage")
        }
        _ if is_huge => (&SIZES[..], "hugepages"),
        _ => return,
    };
    if !["", "0"].contains(&divisor) && !known.contains(&divisor) {
        let known = if resource == "cpu" { known.join(" and ") } else { known.join(", ") };
        let detail =
            format!("only divisor's values {known} are supported with the {resource} resource");
        errors.invalid(&path.field("divisor"), name, &detail);
    }
}

/// Validates the lifecycle handlers of a container. A sleep must not exceed the pod's grace period.
///
/// Upstream: `validateLifecycle`, `validateSleepAction`.
fn lifecycle(container: &Value, grace: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("lifecycle");
    for field in ["postStart", "preStop"] {
        if let Some(handler) = get(container, &format!("lifecycle.{field}")) {
            self::handler(
                handler,
                &["exec", "httpGet", "tcpSocket", "sleep"],
                &path.field(field),
                errors,
            );
            let sleep = get(handler, "sleep");
            let seconds = sleep.map(|sleep| int(sleep, "seconds").unwrap_or_default());
            if let (Some(seconds), Some(grace)) = (seconds, grace)
                && !(0..=grace).contains(&seconds)
            {
                let detail = format!(
                    "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                );
                errors.invalid(&path.field(field).field("sleep"), seconds, &detail);
            }
        }
    }
}

/// Upstream: `validateProbe`.
fn probes(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = get(container, field) else { continue };
        let path = path.field(field);
        handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], &path, errors);
        for field in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            errors.non_negative(&path.field(field), int(probe, field));
        }
        let grace = int(probe, "terminationGracePeriodSeconds");
        if let Some(seconds) = grace.filter(|seconds| *seconds <= 0) {
            errors.invalid(
                &path.field("terminationGracePeriodSeconds"),
                seconds,
                "must be greater than 0",
            );
        }
        if field == "readinessProbe" {
            if grace.is_some() {
                let words = "must not be set for readinessProbes";
                errors.invalid(&path.field("terminationGracePeriodSeconds"), grace, words);
            }
        } else if int(probe, "successThreshold").is_some_and(|successes| successes != 1) {
            errors.invalid(
                &path.field("successThreshold"),
                int(probe, "successThreshold"),
                "must be 1",
            );
        }
    }
}

/// Upstream: `validateHandler`.
fn handler(handler: &Value, types: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let mut handler_count = 0;
    for handler_type in types {
        let Some(action) = get(handler, handler_type) else { continue };
        let path = path.field(handler_type);
        handler_count += 1;
        if handler_count > 1 {
            errors.forbidden(&path, "may not specify more than 1 handler type");
            continue;
        }
        match *handler_type {
            "exec" if list(action, "command").is_empty() => {
                errors.required(&path.field("command"), "");
            }
            "httpGet" => {
                if text(action, "path").is_empty() {
                    errors.required(&path.field("path"), "");
                }
                port_number_or_name(get(action, "port"), &path.field("port"), errors);
                errors.one_of(&path.field("scheme"), text(action, "scheme"), &["HTTP", "HTTPS"]);
                let headers = path.field("httpHeaders");
                for header in list(action, "httpHeaders") {
                    let name = text(header, "name");
                    errors.invalid_all(&headers, name, &names::http_header(name));
                }
            }
            "tcpSocket" => port_number_or_name(get(action, "port"), &path.field("port"), errors),
            "grpc" => errors.in_range(
                &path.field("port"),
                Some(int(action, "port").unwrap_or_default()),
                1,
                65535,
            ),
            _ => {}
        }
    }
    if handler_count == 0 {
        errors.required(path, "must specify a handler type");
    }
}

/// Validates a port number or a port name.
///
/// Upstream: `ValidatePortNumOrName`.
pub(super) fn port_number_or_name(port: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    match port {
        Some(Value::String(name)) => errors.invalid_all(path, name, &names::port_name(name)),
        Some(Value::Number(number)) => errors.in_range(path, number.as_i64(), 1, 65535),
        _ => errors.in_range(path, Some(0), 1, 65535),
    }
}

/// Upstream: `validatePodDNSConfig`.
fn dns(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let policy = text(spec, "dnsPolicy");
    errors.one_of(&path.field("dnsPolicy"), policy, DNS_POLICIES);
    let path = path.field("dnsConfig");
    let Some(config) = get(spec, "dnsConfig") else {
        if policy == "None" {
            errors.required(&path, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        return;
    };
    let servers = list(config, "nameservers");
    if policy == "None" && servers.is_empty() {
        errors.required(
            &path.field("nameservers"),
            "must provide at least one DNS nameserver when `dnsPolicy` is None",
        );
    }
    if servers.len() > 3 {
        errors.invalid(
            &path.field("nameservers"),
            Value::from(servers),
            "must not have more than 3 nameservers",
        );
    }
    let all = path.field("nameservers");
    for (index, server) in servers.iter().filter_map(Value::as_str).enumerate() {
        errors.invalid_all(&all.index(index), server, &names::ip(server));
    }
    searches(config, &path.field("searches"), errors);
    let options = path.field("options");
    for (index, option) in list(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.required(&options.index(index), "must not be empty");
        }
    }
}

/// Validates the search list of a resolver, which has limits of its own.
fn searches(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    let searches: Vec<&str> = list(config, "searches").iter().filter_map(Value::as_str).collect();
    let all = || Value::from(searches.clone());
    if searches.len() > MAX_SEARCHES {
        let detail = format!("must not have more than {MAX_SEARCHES} search paths");
        errors.invalid(path, all(), &detail);
    }
    if searches.join(" ").len() > MAX_SEARCH_LENGTH {
        let detail = format!(
            "must not have more than {MAX_SEARCH_LENGTH} characters (including spaces) in the search list"
        );
        errors.invalid(path, all(), &detail);
    }
    for (index, search) in searches.iter().enumerate().filter(|(_, search)| **search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        let messages = names::dns_subdomain_with_underscore(search);
        errors.invalid_all(&path.index(index), search, &messages);
    }
}

/// Validates node selector, tolerations, topology spread constraints and affinity.
fn scheduling(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    labels::labels(object(spec, "nodeSelector"), &path.field("nodeSelector"), errors);
    tolerations(spec, &path.field("tolerations"), errors);
    let all = path.field("topologySpreadConstraints");
    let mut seen = BTreeSet::new();
    for (index, constraint) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        let path = all.index(index);
        let skew = int(constraint, "maxSkew").unwrap_or_default();
        if skew <= 0 {
            errors.invalid(&path.field("maxSkew"), skew, "must be greater than zero");
        }
        let key = text(constraint, "topologyKey");
        if key.is_empty() {
            errors.required(&path.field("topologyKey"), "can not be empty");
        } else {
            errors.invalid_all(&path.field("topologyKey"), key, &names::qualified_name(key));
        }
        let action = text(constraint, "whenUnsatisfiable");
        let pair = format!("{{{key}, {action}}}");
        errors.one_of(
            &path.field("whenUnsatisfiable"),
            action,
            &["DoNotSchedule", "ScheduleAnyway"],
        );
        if !seen.insert(pair.clone()) {
            errors.duplicate(&path.field("{topologyKey, whenUnsatisfiable}"), pair);
        }
        if let Some(minimum) = int(constraint, "minDomains") {
            if minimum <= 0 {
                errors.invalid(&path.field("minDomains"), minimum, "must be greater than zero");
            }
            if action != "DoNotSchedule" {
                let words = "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway";
                errors.invalid(&path.field("minDomains"), minimum, words);
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            errors.one_of_if_set(&path.field(field), get(constraint, field), &["Honor", "Ignore"]);
        }
        pod_level::label_keys(constraint, &path, errors);
        if let Some(selector) = get(constraint, "labelSelector") {
            labels::selector(selector, &path.field("labelSelector"), errors);
        }
    }
    if let Some(affinity) = get(spec, "affinity") {
        super::affinity::affinity(affinity, &path.field("affinity"), errors);
    }
}

/// Validates `tolerations` of a pod spec or of a RuntimeClass's scheduling.
///
/// Upstream: `ValidateTolerations`.
pub(super) fn tolerations(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (index, toleration) in list(spec, "tolerations").iter().enumerate() {
        let path = path.index(index);
        let (key, operator, effect) =
            (text(toleration, "key"), text(toleration, "operator"), text(toleration, "effect"));
        if !key.is_empty() {
            errors.invalid_all(&path.field("key"), key, &names::qualified_name(key));
        } else if operator != "Exists" {
            let words = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&path.field("operator"), operator, words);
        }
        if int(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            errors.invalid(
                &path.field("effect"),
                effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            );
        }
        match operator {
            "Equal" | "" => {
                let value = text(toleration, "value");
                errors.invalid_all(&path.field("operator"), value, &names::label_value(value));
            }
            "Exists" => {
                if !text(toleration, "value").is_empty() {
                    let words = "value must be empty when `operator` is 'Exists'";
                    errors.invalid(&path.field("operator"), text(toleration, "value"), words);
                }
            }
            // Numeric comparison needs an alpha feature. Upstream's error nevertheless lists both operators as
            // supported.
            "Lt" | "Gt" => {
                let all = ["Equal", "Exists", "Lt", "Gt"];
                errors.not_supported(&path.field("operator"), operator, &all);
            }
            other => errors.not_supported(&path.field("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            errors.one_of(
                &path.field("effect"),
                effect,
                &["NoSchedule", "PreferNoSchedule", "NoExecute"],
            );
        }
    }
}

/// Upstream: `validateSchedulingGates`.
fn scheduling_gates(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = path.field("readinessGates");
    for (index, gate) in list(spec, "readinessGates").iter().enumerate() {
        let name = text(gate, "conditionType");
        errors.invalid_all(
            &all.index(index).field("conditionType"),
            name,
            &names::qualified_name(name),
        );
    }
    let all = path.field("schedulingGates");
    let mut seen = BTreeSet::new();
    for (index, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        errors.invalid_all(&all.index(index), name, &names::qualified_name(name));
        if !seen.insert(name) {
            errors.duplicate(&all.index(index), name);
        }
    }
}

/// Upstream: `validateOS`.
fn operating_system(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(os) = get(spec, "os") else { return };
    match text(os, "name") {
        "" => errors.required(&path.field("os").field("name"), "cannot be empty"),
        "linux" => {
            if get(spec, "securityContext.windowsOptions").is_some() {
                let path = path.field("securityContext");
                errors.forbidden(
                    &path.field("windowsOptions"),
                    "windows options cannot be set for a linux pod",
                );
            }
            no_windows_options(spec, path, errors);
        }
        "windows" => {
            let words = "cannot be set for a windows pod";
            for field in ["hostPID", "hostIPC", "shareProcessNamespace"] {
                if flag(spec, field) {
                    errors.forbidden(&path.field(field), words);
                }
            }
            let context = path.field("securityContext");
            for field in [
                "appArmorProfile",
                "seLinuxOptions",
                "seccompProfile",
                "fsGroup",
                "fsGroupChangePolicy",
                "sysctls",
                "runAsUser",
                "runAsGroup",
                "supplementalGroups",
            ] {
                if get(spec, &format!("securityContext.{field}")).is_some() {
                    errors.forbidden(&context.field(field), words);
                }
            }
        }
        other => errors.not_supported(&path.field("os"), other, &["linux", "windows"]),
    }
}

/// Upstream: `validatePodSpecSecurityContext`.
fn security(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(context) = get(spec, "securityContext") else { return };
    let path = path.field("securityContext");
    user_and_seccomp_profile(context, &path, errors);
    errors.in_range(&path.field("fsGroup"), int(context, "fsGroup"), 0, i64::from(i32::MAX));
    let groups = path.field("supplementalGroups");
    for (index, group) in list(context, "supplementalGroups").iter().enumerate() {
        errors.in_range(&groups.index(index), group.as_i64(), 0, i64::from(i32::MAX));
    }
    pod_sysctls::sysctls(spec, context, &path.field("sysctls"), errors);
    for (field, policies) in [
        ("fsGroupChangePolicy", ["Always", "OnRootMismatch"]),
        ("supplementalGroupsPolicy", ["Merge", "Strict"]),
        ("seLinuxChangePolicy", ["MountOption", "Recursive"]),
    ] {
        errors.one_of_if_set(&path.field(field), get(context, field), &policies);
    }
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let words = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.field("shareProcessNamespace"), true, words);
    }
}
