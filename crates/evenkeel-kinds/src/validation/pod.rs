//! Validation of pod specs, in pods and in templates.
//!
//! Upstream: `k8s.io/kubernetes/pkg/apis/core/validation`.

use super::pod_containers::{containers, host_network_ports, trimmed_image};
use super::pod_env::file_key_volumes;
use super::pod_os::{host_processes, host_users, operating_system};
use super::{
    labels, names, pod_annotations, pod_claims, pod_level, pod_security, quantity, volume,
};
use evenkeel_apimachinery::status::quote;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{flag, get, int, list, object, text};
use serde_json::Value;
use std::collections::BTreeSet;

const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
/// Maximum length of a host name on Linux, in bytes.
const MAX_HOSTNAME: usize = 64;
/// Most search paths of a pod's resolver.
const MAX_SEARCHES: usize = 32;
/// Maximum number of characters of the search paths and the spaces between them.
const MAX_SEARCH_LENGTH: usize = 2048;
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// Validates a new pod.
///
/// Upstream: `ValidatePodCreate`.
pub(crate) fn create(pod: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    metadata_and_spec(pod, None, errors);
    let Some(spec) = pod.get("spec") else { return };
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(&path.field("ephemeralContainers"), "cannot be set on create");
    }
    if !list(spec, "schedulingGates").is_empty() && !text(spec, "nodeName").is_empty() {
        errors.forbidden(
            &path.field("nodeName"),
            "cannot be set until all schedulingGates have been cleared",
        );
    }
    pod_annotations::match_fields(pod, &path, errors);
}

/// Validates a pod without its object metadata. `old` is the pod of an update.
///
/// Upstream: `validatePodMetadataAndSpec`.
pub(super) fn metadata_and_spec(pod: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (metadata, path) = (Path::new("metadata"), Path::new("spec"));
    pod_annotations::values(pod, old, &metadata.field("annotations"), errors);
    let Some(spec) = pod.get("spec") else {
        return errors.required(&path.field("containers"), "");
    };
    self::spec(spec, text(pod, "metadata.name"), &path, errors);
    pod_only(spec, old.and_then(|old| old.get("spec")), &path, errors);
}

/// Validates rules that only apply to pods, not to templates. Images have no surrounding spaces. The required node
/// affinity has valid label values, unless the `old` spec has invalid ones.
///
/// Upstream: `validatePodMetadataAndSpec`, `AllowInvalidLabelValueInRequiredNodeAffinity`.
pub(super) fn pod_only(spec: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    if text(spec, "serviceAccountName").is_empty() {
        token_sources(spec, &path.field("volumes"), errors);
    }
    let grace = int(spec, "terminationGracePeriodSeconds");
    errors.non_negative(&path.field("terminationGracePeriodSeconds"), grace);
    for field in ["containers", "initContainers"] {
        let list_path = path.field(field);
        for (index, container) in list(spec, field).iter().enumerate() {
            trimmed_image(container, &list_path.index(index), errors);
        }
    }
    super::affinity::required_values(spec, old, path, errors);
}

/// Rejects volumes with tokens of a service account if the pod has no service account.
fn token_sources(spec: &Value, volumes_path: &Path<'_>, errors: &mut Errors) {
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        let path = volumes_path.index(index);
        let sources = path.field("projected.sources");
        for (index, source) in list(volume, "projected.sources").iter().enumerate() {
            if get(source, "serviceAccountToken").is_some() {
                let detail = "must not be specified when serviceAccountName is not set";
                errors.forbidden(&sources.index(index).field("serviceAccountToken"), detail);
            }
        }
    }
}

/// Validates the metadata and the spec of a pod template.
///
/// Upstream: `ValidatePodTemplateSpec`.
pub(super) fn template(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    labels::labels(object(template, "metadata.labels"), &path.field("labels"), errors);
    if let Some(meta) = template.get("metadata") {
        labels::annotations(meta, &path.field("annotations"), errors);
    }
    pod_annotations::values(template, None, &path.field("annotations"), errors);
    let spec_path = path.field("spec");
    match template.get("spec") {
        Some(spec) => {
            self::spec(spec, "", &spec_path, errors);
            pod_annotations::match_fields(template, &spec_path, errors);
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

/// Validates a pod spec. `pod_name` is empty for a template.
///
/// Upstream: `ValidatePodSpec`.
pub(super) fn spec(spec: &Value, pod_name: &str, path: &Path<'_>, errors: &mut Errors) {
    if get(spec, "terminationGracePeriodSeconds").is_none() {
        errors.required(&path.field("terminationGracePeriodSeconds"), "");
    }
    let volumes = volume::volumes(spec, pod_name, &path.field("volumes"), errors);
    pod_claims::pod_resource_claims(spec, path, errors);
    containers(spec, path, &volumes, errors);
    pod_level::resources(spec, path, errors);
    if flag(spec, "hostNetwork") {
        host_network_ports(spec, path, errors);
    }
    let word = |field: &'static str| (path.field(field), text(spec, field));
    let (field, value) = word("restartPolicy");
    errors.required_one_of(&field, value, RESTART_POLICIES);
    let (field, value) = word("dnsPolicy");
    errors.required_one_of(&field, value, DNS_POLICIES);
    labels::labels(object(spec, "nodeSelector"), &path.field("nodeSelector"), errors);
    pod_security::of_pod(spec, path, errors);
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.field("shareProcessNamespace"), true, detail);
    }
    if let Some(affinity) = get(spec, "affinity") {
        super::affinity::affinity(affinity, &path.field("affinity"), errors);
    }
    dns(spec, path, errors);
    gates(spec, path, errors);
    spread_constraints(spec, &path.field("topologySpreadConstraints"), errors);
    host_processes(spec, path, errors);
    host_users(spec, path, errors);
    hostname_override(spec, &path.field("hostnameOverride"), errors);
    identity(spec, path, errors);
    tolerations(spec, &path.field("tolerations"), errors);
    host_aliases(spec, &path.field("hostAliases"), errors);
    let (field, value) = word("priorityClassName");
    if !value.is_empty() {
        errors.invalid_for_each(&field, value, &names::dns_subdomain(value));
    }
    if let Some(name) = get(spec, "runtimeClassName").and_then(Value::as_str) {
        errors.invalid_for_each(&path.field("runtimeClassName"), name, &names::dns_subdomain(name));
    }
    if let Some(policy) = get(spec, "preemptionPolicy").and_then(Value::as_str) {
        let path = path.field("preemptionPolicy");
        errors.required_one_of(&path, policy, &["PreemptLowerPriority", "Never"]);
    }
    if let Some(overhead) = get(spec, "overhead") {
        let limits = serde_json::json!({"limits": overhead});
        quantity::requirements(&limits, &path.field("overhead"), errors);
    }
    operating_system(spec, path, errors);
    file_key_volumes(spec, path, errors);
}

/// Validates the names of the pod's account, node and host, and its deadline.
fn identity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    type Validate = fn(&str) -> Vec<String>;
    let name = |field: &str, validate: Validate, errors: &mut Errors| {
        let value = text(spec, field);
        if !value.is_empty() {
            errors.invalid_for_each(&path.field(field), value, &validate(value));
        }
    };
    name("serviceAccountName", names::dns_subdomain, errors);
    let (account, deprecated) = (text(spec, "serviceAccountName"), text(spec, "serviceAccount"));
    if account != deprecated {
        let detail = format!("must be the same as serviceAccountName: {}", quote(account));
        errors.invalid(&path.field("deprecatedServiceAccount"), deprecated, &detail);
    }
    name("nodeName", names::dns_subdomain, errors);
    let deadline = int(spec, "activeDeadlineSeconds");
    errors.in_range(&path.field("activeDeadlineSeconds"), deadline, 1, i64::from(i32::MAX));
    name("hostname", names::dns_label, errors);
    name("subdomain", names::dns_label, errors);
}

/// Validates the IP address and the hostnames of each alias.
///
/// Upstream: `ValidateHostAliases`.
fn host_aliases(spec: &Value, aliases_path: &Path<'_>, errors: &mut Errors) {
    for (index, alias) in list(spec, "hostAliases").iter().enumerate() {
        let path = aliases_path.index(index);
        errors.invalid_for_each(
            &path.field("ip"),
            text(alias, "ip"),
            &names::ip(text(alias, "ip")),
        );
        let hostnames = path.field("hostnames");
        for (index, name) in list(alias, "hostnames").iter().filter_map(Value::as_str).enumerate() {
            errors.invalid_for_each(&hostnames.index(index), name, &names::dns_subdomain(name));
        }
    }
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
    errors.invalid_for_each(path, name, &names::dns_subdomain(name));
}

/// Validates the DNS configuration. The policy `None` requires nameservers.
///
/// Upstream: `validatePodDNSConfig`.
fn dns(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let policy = text(spec, "dnsPolicy");
    let path = path.field("dnsConfig");
    let Some(config) = get(spec, "dnsConfig") else {
        if policy == "None" {
            errors.required(&path, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        return;
    };
    let servers = list(config, "nameservers");
    if policy == "None" && servers.is_empty() {
        return errors.required(
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
    let nameservers_path = path.field("nameservers");
    for (index, server) in servers.iter().filter_map(Value::as_str).enumerate() {
        errors.invalid_for_each(&nameservers_path.index(index), server, &names::ip(server));
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
    let value = || Value::from(searches.clone());
    if searches.len() > MAX_SEARCHES {
        let detail = format!("must not have more than {MAX_SEARCHES} search paths");
        errors.invalid(path, value(), &detail);
    }
    if searches.join(" ").len() > MAX_SEARCH_LENGTH {
        let detail = format!(
            "must not have more than {MAX_SEARCH_LENGTH} characters (including spaces) in the search list"
        );
        errors.invalid(path, value(), &detail);
    }
    for (index, search) in searches.iter().enumerate().filter(|(_, search)| **search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        let messages = names::dns_subdomain_with_underscore(search);
        errors.invalid_for_each(&path.index(index), search, &messages);
    }
}

/// Validates topology spread constraints, and rejects two with the same topology key and action.
///
/// Upstream: `validateTopologySpreadConstraints`.
fn spread_constraints(spec: &Value, constraints_path: &Path<'_>, errors: &mut Errors) {
    let constraints = list(spec, "topologySpreadConstraints");
    let pair =
        |constraint| (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
    for (index, constraint) in constraints.iter().enumerate() {
        let path = constraints_path.index(index);
        let skew = int(constraint, "maxSkew").unwrap_or_default();
        if skew <= 0 {
            errors.invalid(&path.field("maxSkew"), skew, "must be greater than zero");
        }
        let (key, action) = pair(constraint);
        if key.is_empty() {
            errors.required(&path.field("topologyKey"), "can not be empty");
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        errors.one_of(&path.field("whenUnsatisfiable"), action, &actions);
        let rest = constraints.get(index + 1..).unwrap_or_default();
        if rest.iter().any(|other| pair(other) == (key, action)) {
            let path = path.field("{topologyKey, whenUnsatisfiable}");
            errors.duplicate(&path, format!("{{{key}, {action}}}"));
        }
        if let Some(minimum) = int(constraint, "minDomains") {
            let path = path.field("minDomains");
            if minimum <= 0 {
                errors.invalid(&path, minimum, "must be greater than zero");
            }
            if action != "DoNotSchedule" {
                let detail = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                );
                errors.invalid(&path, minimum, &detail);
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
            errors.invalid_for_each(&path.field("key"), key, &names::qualified_name(key));
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&path.field("operator"), operator, detail);
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
                let messages = names::label_value(value);
                if !messages.is_empty() {
                    errors.invalid(&path.field("operator"), value, &messages.join(";"));
                }
            }
            "Exists" => {
                if !text(toleration, "value").is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.invalid(&path.field("operator"), text(toleration, "value"), detail);
                }
            }
            // Numeric comparison needs an alpha feature. Upstream's error nevertheless lists both operators as
            // supported.
            "Lt" | "Gt" => {
                let listed = ["Equal", "Exists", "Lt", "Gt"];
                errors.not_supported(&path.field("operator"), operator, &listed);
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

/// Validates readiness gates and scheduling gates. The names of scheduling gates must be unique.
///
/// Upstream: `validateReadinessGates`, `validateSchedulingGates`.
fn gates(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let readiness_gates_path = path.field("readinessGates");
    for (index, gate) in list(spec, "readinessGates").iter().enumerate() {
        let name = text(gate, "conditionType");
        errors.invalid_for_each(
            &readiness_gates_path.index(index).field("conditionType"),
            name,
            &names::qualified_name(name),
        );
    }
    let scheduling_gates_path = path.field("schedulingGates");
    let mut seen = BTreeSet::new();
    for (index, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        errors.invalid_for_each(
            &scheduling_gates_path.index(index),
            name,
            &names::qualified_name(name),
        );
        if !seen.insert(name) {
            errors.duplicate(&scheduling_gates_path.index(index), name);
        }
    }
}
