//! The checks of the Pod Security Standards (KEP-1933, `pod-security-admission/policy`).

use super::levels::{Level, Version};
use evenkeel_apimachinery::status::quote;
use evenkeel_apimachinery::value::{flag, get, int, list, object, text};
use evenkeel_kinds::validation::pod_annotations::{APP_ARMOR, SECCOMP_CONTAINER, SECCOMP_POD};
use serde_json::Value;
use std::collections::BTreeSet;

/// Violation of a standard, in upstream's words.
pub(super) struct Violation {
    /// The forbidden setting, such as `hostPath volumes`.
    pub(super) reason: &'static str,
    /// Containers, volumes or fields that violate the standard; may be empty.
    detail: String,
}

/// Violations of one pod.
#[derive(Default)]
pub(super) struct Violations(pub(super) Vec<Violation>);

impl Violations {
    /// Adds a violation with this reason and detail.
    fn add(&mut self, reason: &'static str, detail: String) {
        self.0.push(Violation { reason, detail });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lists only the reasons, for a warning about several pods.
    pub(super) fn reasons(&self) -> String {
        self.0.iter().map(|violation| violation.reason).collect::<Vec<_>>().join(", ")
    }

    /// Formats the violations for errors and warnings.
    pub(super) fn message(&self) -> String {
        let violations = self.0.iter().map(|Violation { reason, detail }| {
            if detail.is_empty() { (*reason).to_owned() } else { format!("{reason} ({detail})") }
        });
        violations.collect::<Vec<_>>().join(", ")
    }
}

/// Iterates over all containers of a pod.
fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|name| list(spec, name))
}

/// Returns a pod's violations of one version of a standard. Violations of the baseline level come first, ordered by the
/// names of the checks, then those of the restricted level. A restricted check replaces the baseline check that it
/// extends.
///
/// Upstream: `checkRegistry`.
pub(super) fn check(level: Level, version: Version, metadata: &Value, spec: &Value) -> Violations {
    let mut violations = Violations::default();
    if level == Level::Privileged {
        return violations;
    }
    let found = &mut violations;
    let is_restricted = level == Level::Restricted;
    check_apparmor(metadata, spec, found);
    if !(is_restricted && version >= 22) {
        check_capabilities_baseline(spec, found);
    }
    check_host_namespaces(spec, found);
    if !is_restricted {
        check_host_paths(spec, found);
    }
    check_host_ports(spec, found);
    if version >= 34 {
        check_probe_hosts(spec, found);
    }
    forbid_each(spec, found, "privileged", "set securityContext.privileged=true", |container| {
        flag(container, "securityContext.privileged")
    });
    // Since v1.35, a pod with a user namespace of its own may have any `procMount` at the baseline level.
    let is_relaxed = version >= 35 && has_user_namespace(spec);
    let is_replaced = is_restricted && version >= 35;
    if !is_replaced && !is_relaxed {
        check_proc_mount(spec, found);
    }
    check_selinux(spec, found, version);
    if version < 19 {
        check_seccomp_annotations(metadata, spec, found);
    } else if !is_restricted {
        check_seccomp(spec, found, false);
    }
    check_sysctls(spec, found, version);
    check_host_process(spec, found);
    if is_restricted {
        check_restricted(version, spec, found);
    }
    violations
}

/// Adds the violations of the checks that only the restricted level has.
fn check_restricted(version: Version, spec: &Value, found: &mut Violations) {
    // Since v1.25, pods for Windows are exempt from checks of Linux features.
    let is_windows = version >= 25 && text(spec, "os.name") == "windows";
    if version >= 8 && !is_windows {
        require_each(
            spec,
            found,
            "allowPrivilegeEscalation != false",
            "set securityContext.allowPrivilegeEscalation=false",
            |container| {
                get(container, "securityContext.allowPrivilegeEscalation")
                    != Some(&Value::Bool(false))
            },
        );
    }
    if version >= 22 && !is_windows {
        check_capabilities_restricted(spec, found);
    }
    if version >= 35 {
        check_proc_mount(spec, found);
    }
    check_volumes(spec, found);
    let is_relaxed = version >= 35 && has_user_namespace(spec);
    if !is_relaxed {
        check_run_as_non_root(spec, found);
        if version >= 23 {
            check_run_as_user(spec, found);
        }
    }
    if version >= 19 && !is_windows {
        check_seccomp(spec, found, true);
    }
}

/// Returns whether a pod has a user namespace of its own.
fn has_user_namespace(spec: &Value) -> bool {
    get(spec, "hostUsers") == Some(&Value::Bool(false))
}

/// Quotes each string, and joins the strings with commas.
fn quoted<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    texts.into_iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(", ")
}

/// Names the pod, if it violates a check, and its containers that violate the check. Returns `None` without violations.
fn setters(is_pod: bool, containers: &[&Value]) -> Option<String> {
    let pod = is_pod.then(|| "pod".to_owned());
    let containers = (!containers.is_empty()).then(|| container_names(containers));
    let setters: Vec<String> = pod.into_iter().chain(containers).collect();
    (!setters.is_empty()).then(|| setters.join(" and "))
}

/// Formats the names of containers as `container "c"` or `containers "c", "d"`.
fn container_names(containers: &[&Value]) -> String {
    let names: Vec<String> =
        containers.iter().map(|container| format!("\"{}\"", text(container, "name"))).collect();
    let word = if names.len() == 1 { "container" } else { "containers" };
    format!("{word} {}", names.join(", "))
}

/// Reports the containers that `violates` accepts, with the detail that they must do something.
fn require_each(
    spec: &Value,
    violations: &mut Violations,
    reason: &'static str,
    must: &str,
    violates: impl Fn(&Value) -> bool,
) {
    let violating: Vec<&Value> = containers(spec).filter(|container| violates(container)).collect();
    if !violating.is_empty() {
        violations.add(reason, format!("{} must {must}", container_names(&violating)));
    }
}

/// Reports the containers that `violates` accepts, with the detail that they must not do something.
fn forbid_each(
    spec: &Value,
    violations: &mut Violations,
    reason: &'static str,
    must_not: &str,
    violates: impl Fn(&Value) -> bool,
) {
    require_each(spec, violations, reason, &format!("not {must_not}"), violates);
}

/// Reports AppArmor profiles other than `RuntimeDefault` and `Localhost`.
fn check_apparmor(metadata: &Value, spec: &Value, violations: &mut Violations) {
    let path = "securityContext.appArmorProfile.type";
    let is_forbidden =
        |value: &Value| !matches!(text(value, path), "" | "RuntimeDefault" | "Localhost");
    let forbidden: Vec<&Value> = containers(spec).filter(|value| is_forbidden(value)).collect();
    let is_pod = is_forbidden(spec);
    let setting = forbidden.iter().copied().chain(is_pod.then_some(spec));
    let profiles: BTreeSet<&str> = setting.map(|value| text(value, path)).collect();
    let is_allowed_annotation = |value: &str| {
        value.is_empty() || value == "runtime/default" || value.starts_with("localhost/")
    };
    let annotations: Vec<String> = object(metadata, "annotations")
        .into_iter()
        .flatten()
        .map(|(key, value)| (key, value.as_str().unwrap_or_default()))
        .filter(|(key, value)| key.starts_with(APP_ARMOR) && !is_allowed_annotation(value))
        .map(|(key, value)| format!("{key}={}", quote(value)))
        .collect();
    let annotation = match annotations.len() {
        0 => None,
        1 => Some("annotation".to_owned()),
        _ => Some("annotations".to_owned()),
    };
    let setters: Vec<String> = setters(is_pod, &forbidden).into_iter().chain(annotation).collect();
    if setters.is_empty() {
        return;
    }
    let reason = match profiles.len() + annotations.len() {
        1 => "forbidden AppArmor profile",
        _ => "forbidden AppArmor profiles",
    };
    let values = quoted(profiles.into_iter().chain(annotations.iter().map(String::as_str)));
    let setters = setters.join(" and ");
    violations.add(reason, format!("{setters} must not set AppArmor profile type to {values}"));
}

/// Reports containers that do not drop all capabilities, or add one other than `NET_BIND_SERVICE`.
fn check_capabilities_restricted(spec: &Value, violations: &mut Violations) {
    let drops_all = |container: &Value| {
        list(container, "securityContext.capabilities.drop").iter().any(|dropped| dropped == "ALL")
    };
    let adds_forbidden = |container: &Value| {
        let mut added = list(container, "securityContext.capabilities.add").iter();
        added.any(|capability| capability != "NET_BIND_SERVICE")
    };
    let keeping: Vec<&Value> = containers(spec).filter(|container| !drops_all(container)).collect();
    let adding: Vec<&Value> =
        containers(spec).filter(|container| adds_forbidden(container)).collect();
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details.push(format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            container_names(&keeping)
        ));
    }
    if !adding.is_empty() {
        let capabilities = added_capabilities(&adding, &["NET_BIND_SERVICE"]);
        details.push(format!(
            "{} must not include {capabilities} in securityContext.capabilities.add",
            container_names(&adding)
        ));
    }
    if !details.is_empty() {
        violations.add("unrestricted capabilities", details.join("; "));
    }
}

/// Returns the quoted names of added capabilities that are not allowed.
fn added_capabilities(containers: &[&Value], allowed: &[&str]) -> String {
    let mut names: Vec<String> = containers
        .iter()
        .flat_map(|container| list(container, "securityContext.capabilities.add"))
        .filter_map(Value::as_str)
        .filter(|name| !allowed.contains(name))
        .map(|name| format!("\"{name}\""))
        .collect();
    names.sort();
    names.dedup();
    names.join(", ")
}

/// Reports containers that add capabilities which containers do not have by default.
fn check_capabilities_baseline(spec: &Value, violations: &mut Violations) {
    const ALLOWED: [&str; 13] = [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    let adds_forbidden = |container: &Value| {
        let mut added = list(container, "securityContext.capabilities.add").iter();
        added.any(|capability| !ALLOWED.contains(&capability.as_str().unwrap_or_default()))
    };
    let adding: Vec<&Value> =
        containers(spec).filter(|container| adds_forbidden(container)).collect();
    if !adding.is_empty() {
        let capabilities = added_capabilities(&adding, &ALLOWED);
        let detail = format!(
            "{} must not include {capabilities} in securityContext.capabilities.add",
            container_names(&adding)
        );
        violations.add("non-default capabilities", detail);
    }
}

/// Reports the use of the host's namespaces.
fn check_host_namespaces(spec: &Value, violations: &mut Violations) {
    let namespaces: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|name| flag(spec, name))
        .map(|name| format!("{name}=true"))
        .collect();
    if !namespaces.is_empty() {
        violations.add("host namespaces", namespaces.join(", "));
    }
}

/// Reports the use of the host's paths.
fn check_host_paths(spec: &Value, violations: &mut Violations) {
    let paths: Vec<String> = list(spec, "volumes")
        .iter()
        .filter(|volume| volume.get("hostPath").is_some())
        .map(|volume| format!("\"{}\"", text(volume, "name")))
        .collect();
    if !paths.is_empty() {
        let word = if paths.len() == 1 { "volume" } else { "volumes" };
        violations.add("hostPath volumes", format!("{word} {}", paths.join(", ")));
    }
}

/// Reports the use of the host's ports.
fn check_host_ports(spec: &Value, violations: &mut Violations) {
    let mut ports = BTreeSet::new();
    let mut using = Vec::new();
    for container in containers(spec) {
        let host_ports = list(container, "ports").iter().filter_map(|port| int(port, "hostPort"));
        let host_ports: Vec<i64> = host_ports.filter(|port| *port != 0).collect();
        if !host_ports.is_empty() {
            using.push(container);
            ports.extend(host_ports.iter().map(i64::to_string));
        }
    }
    if !using.is_empty() {
        let word = if ports.len() == 1 { "hostPort" } else { "hostPorts" };
        let ports: Vec<String> = ports.into_iter().collect();
        let verb = if using.len() == 1 { "uses" } else { "use" };
        let names = container_names(&using);
        violations.add("hostPort", format!("{names} {verb} {word} {}", ports.join(", ")));
    }
}

/// Reports hosts in probes and lifecycle handlers. The node's kubelet would connect to these hosts.
///
/// Upstream: `CheckHostProbesAndHostLifecycle`.
fn check_probe_hosts(spec: &Value, violations: &mut Violations) {
    const HANDLERS: [&str; 5] = [
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle.postStart",
        "lifecycle.preStop",
    ];
    let (mut names, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for container in containers(spec) {
        for handler in HANDLERS {
            for action in ["httpGet", "tcpSocket"] {
                let host = text(container, &format!("{handler}.{action}.host"));
                if !host.is_empty() {
                    names.insert(text(container, "name"));
                    hosts.insert(host);
                }
            }
        }
    }
    if names.is_empty() {
        return;
    }
    let (container, uses) =
        if names.len() == 1 { ("container", "uses") } else { ("containers", "use") };
    let plural = if hosts.len() == 1 { "" } else { "s" };
    let (names, hosts) = (quoted(names), quoted(hosts));
    let detail = format!("{container} {names} {uses} probe or lifecycle host{plural} {hosts}");
    violations.add("probe or lifecycle host", detail);
}

/// Reports containers with another `procMount` than the default.
fn check_proc_mount(spec: &Value, violations: &mut Violations) {
    let path = "securityContext.procMount";
    let forbidden: Vec<&Value> = containers(spec)
        .filter(|container| !matches!(text(container, path), "" | "Default"))
        .collect();
    if !forbidden.is_empty() {
        let types: BTreeSet<&str> =
            forbidden.iter().map(|container| text(container, path)).collect();
        let (names, types) = (container_names(&forbidden), quoted(types));
        violations.add("procMount", format!("{names} must not set {path} to {types}"));
    }
}

/// Reports volumes of types that the restricted level does not allow.
fn check_volumes(spec: &Value, violations: &mut Violations) {
    const ALLOWED: [&str; 8] = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    let mut names = Vec::new();
    let mut kinds: Vec<String> = Vec::new();
    for volume in list(spec, "volumes") {
        let fields = volume.as_object().into_iter().flatten();
        let kind = fields.map(|(field, _)| field.as_str()).find(|field| *field != "name");
        let kind = kind.unwrap_or("unknown");
        if ALLOWED.contains(&kind) || kind == "image" {
            continue;
        }
        names.push(format!("\"{}\"", text(volume, "name")));
        kinds.push(format!("\"{kind}\""));
    }
    if names.is_empty() {
        return;
    }
    kinds.sort();
    kinds.dedup();
    let (volume, uses) = if names.len() == 1 { ("volume", "uses") } else { ("volumes", "use") };
    let types = if kinds.len() == 1 { "type" } else { "types" };
    let detail = format!(
        "{volume} {} {uses} restricted volume {types} {}",
        names.join(", "),
        kinds.join(", ")
    );
    violations.add("restricted volume types", detail);
}

/// Reports a pod or containers that are not required to run as non-root.
fn check_run_as_non_root(spec: &Value, violations: &mut Violations) {
    // The field has the same path in pods and in containers. A container without it inherits the pod's.
    let non_root =
        |value: &Value| get(value, "securityContext.runAsNonRoot").and_then(Value::as_bool);
    let explicit: Vec<&Value> =
        containers(spec).filter(|container| non_root(container) == Some(false)).collect();
    let implicit: Vec<&Value> =
        containers(spec).filter(|container| non_root(container).is_none()).collect();
    if let Some(setters) = setters(non_root(spec) == Some(false), &explicit) {
        let detail = format!("{setters} must not set securityContext.runAsNonRoot=false");
        violations.add("runAsNonRoot != true", detail);
    } else if non_root(spec).is_none() && !implicit.is_empty() {
        let names = container_names(&implicit);
        let detail = format!("pod or {names} must set securityContext.runAsNonRoot=true");
        violations.add("runAsNonRoot != true", detail);
    }
}

/// Reports a pod or containers whose user is root.
fn check_run_as_user(spec: &Value, violations: &mut Violations) {
    let is_root = |value: &Value| int(value, "securityContext.runAsUser") == Some(0);
    let root: Vec<&Value> = containers(spec).filter(|container| is_root(container)).collect();
    if let Some(setters) = setters(is_root(spec), &root) {
        violations.add("runAsUser=0", format!("{setters} must not set runAsUser=0"));
    }
}

/// Reports seccomp profiles other than `RuntimeDefault` and `Localhost`, and missing ones if a profile is required.
fn check_seccomp(spec: &Value, violations: &mut Violations, is_profile_required: bool) {
    let path = "securityContext.seccompProfile.type";
    let is_allowed = |profile: &str| matches!(profile, "RuntimeDefault" | "Localhost");
    let pod_profile = text(spec, path);
    let is_forbidden = |value: &Value| {
        let profile = text(value, path);
        !profile.is_empty() && !is_allowed(profile)
    };
    let forbidden: Vec<&Value> = containers(spec).filter(|value| is_forbidden(value)).collect();
    let is_pod = is_forbidden(spec);
    if let Some(setters) = setters(is_pod, &forbidden) {
        let setting = forbidden.iter().copied().chain(is_pod.then_some(spec));
        let profiles = quoted(setting.map(|value| text(value, path)).collect::<BTreeSet<_>>());
        violations.add("seccompProfile", format!("{setters} must not set {path} to {profiles}"));
        return;
    }
    let unset: Vec<&Value> =
        containers(spec).filter(|container| text(container, path).is_empty()).collect();
    if is_profile_required && pod_profile.is_empty() && !unset.is_empty() {
        let detail = format!(
            "pod or {} must set {path} to \"RuntimeDefault\" or \"Localhost\"",
            container_names(&unset)
        );
        violations.add("seccompProfile", detail);
    }
}

/// Checks the seccomp profiles in annotations, which Kubernetes used before v1.19.
///
/// Upstream: `seccompProfileBaseline_1_0`.
fn check_seccomp_annotations(metadata: &Value, spec: &Value, violations: &mut Violations) {
    let is_allowed = |profile: &str| {
        matches!(profile, "runtime/default" | "docker/default") || profile.starts_with("localhost/")
    };
    let annotations = &metadata["annotations"];
    let of_containers =
        containers(spec).map(|container| format!("{SECCOMP_CONTAINER}{}", text(container, "name")));
    let forbidden: BTreeSet<String> = [SECCOMP_POD.to_owned()]
        .into_iter()
        .chain(of_containers)
        .filter_map(|key| Some((annotations.get(&key)?.as_str()?, key)))
        .filter(|(profile, _)| !is_allowed(profile))
        .map(|(profile, key)| format!("{key}={}", quote(profile)))
        .collect();
    if !forbidden.is_empty() {
        let plural = if forbidden.len() == 1 { "" } else { "s" };
        let forbidden: Vec<String> = forbidden.into_iter().collect();
        let detail = format!("forbidden annotation{plural} {}", forbidden.join(", "));
        violations.add("seccompProfile", detail);
    }
}

/// Reports SELinux options other than the allowed types.
fn check_selinux(spec: &Value, violations: &mut Violations, version: Version) {
    const TYPES: [&str; 4] = ["", "container_t", "container_init_t", "container_kvm_t"];
    let is_allowed_type =
        |name: &str| TYPES.contains(&name) || version >= 31 && name == "container_engine_t";
    // Pods and containers have the options at the same path.
    let is_forbidden = |value: &Value| {
        let options = &value["securityContext"]["seLinuxOptions"];
        !is_allowed_type(text(options, "type"))
            || !text(options, "user").is_empty()
            || !text(options, "role").is_empty()
    };
    let forbidden: Vec<&Value> = containers(spec).filter(|value| is_forbidden(value)).collect();
    let is_pod = is_forbidden(spec);
    let Some(setters) = setters(is_pod, &forbidden) else { return };
    let setting: Vec<&Value> = forbidden
        .iter()
        .copied()
        .chain(is_pod.then_some(spec))
        .map(|value| &value["securityContext"]["seLinuxOptions"])
        .collect();
    let types: BTreeSet<&str> = setting
        .iter()
        .map(|options| text(options, "type"))
        .filter(|name| !is_allowed_type(name))
        .collect();
    let mut details = Vec::new();
    if !types.is_empty() {
        let plural = if types.len() == 1 { "" } else { "s" };
        details.push(format!("type{plural} {}", quoted(types)));
    }
    for field in ["user", "role"] {
        if setting.iter().any(|options| !text(options, field).is_empty()) {
            details.push(format!("{field} may not be set"));
        }
    }
    let details = details.join("; ");
    let detail = format!("{setters} set forbidden securityContext.seLinuxOptions: {details}");
    violations.add("seLinuxOptions", detail);
}

/// Reports sysctls that are not allowed.
fn check_sysctls(spec: &Value, violations: &mut Violations, version: Version) {
    /// Allowed sysctls, with the version that first allows them.
    const ALLOWED: [(&str, Version); 14] = [
        ("kernel.shm_rmid_forced", 0),
        ("net.ipv4.ip_local_port_range", 0),
        ("net.ipv4.tcp_syncookies", 0),
        ("net.ipv4.ping_group_range", 0),
        ("net.ipv4.ip_unprivileged_port_start", 0),
        ("net.ipv4.ip_local_reserved_ports", 27),
        ("net.ipv4.tcp_keepalive_time", 29),
        ("net.ipv4.tcp_fin_timeout", 29),
        ("net.ipv4.tcp_keepalive_intvl", 29),
        ("net.ipv4.tcp_keepalive_probes", 29),
        ("net.ipv4.tcp_rmem", 32),
        ("net.ipv4.tcp_wmem", 32),
        ("net.ipv4.tcp_slow_start_after_idle", 37),
        ("net.ipv4.tcp_notsent_lowat", 37),
    ];
    let is_allowed =
        |name: &str| ALLOWED.iter().any(|(allowed, since)| *allowed == name && *since <= version);
    let names: Vec<&str> = list(spec, "securityContext.sysctls")
        .iter()
        .map(|sysctl| text(sysctl, "name"))
        .filter(|name| !is_allowed(name))
        .collect();
    if !names.is_empty() {
        violations.add("forbidden sysctls", names.join(", "));
    }
}

/// Reports a pod or containers that run as Windows host processes.
fn check_host_process(spec: &Value, violations: &mut Violations) {
    let path = "securityContext.windowsOptions.hostProcess";
    let host_processes: Vec<&Value> =
        containers(spec).filter(|container| flag(container, path)).collect();
    if let Some(setters) = setters(flag(spec, path), &host_processes) {
        violations.add("hostProcess", format!("{setters} must not set {path}=true"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::pod_security::levels::LATEST;
    use serde_json::json;

    #[test]
    fn standards() {
        let plain = json!({"containers": [{"name": "c"}]});
        let whats = |level, spec: &Value| -> Vec<&'static str> {
            check(level, LATEST, &Value::Null, spec).0.iter().map(|found| found.reason).collect()
        };
        assert!(
            whats(Level::Privileged, &plain).is_empty()
                && whats(Level::Baseline, &plain).is_empty()
        );
        assert_eq!(
            whats(Level::Restricted, &plain),
            [
                "allowPrivilegeEscalation != false",
                "unrestricted capabilities",
                "runAsNonRoot != true",
                "seccompProfile"
            ]
        );
        let good = json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]});
        assert!(whats(Level::Restricted, &good).is_empty());
        for (spec, want) in [
            (json!({"hostNetwork": true}), "host namespaces"),
            (json!({"volumes": [{"name": "v", "hostPath": {}}]}), "hostPath volumes"),
            (json!({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}), "hostPort"),
            (
                json!({"containers": [{"name": "c", "securityContext": {"privileged": true}}]}),
                "privileged",
            ),
            (
                json!({"containers": [{"name": "c", "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}]}),
                "non-default capabilities",
            ),
            (
                json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
                "seccompProfile",
            ),
            (json!({"securityContext": {"sysctls": [{"name": "kernel.x"}]}}), "forbidden sysctls"),
            (json!({"securityContext": {"seLinuxOptions": {"role": "x"}}}), "seLinuxOptions"),
        ] {
            assert_eq!(whats(Level::Baseline, &spec), [want], "{spec}");
        }
    }

    #[test]
    fn words_are_upstreams() {
        let spec = json!({"containers": [{"name": "c"}, {"name": "d"}], "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, "runAsNonRoot": true}});
        let words = check(Level::Restricted, LATEST, &Value::Null, &spec).message();
        let want = "allowPrivilegeEscalation != false (containers \"c\", \"d\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (containers \"c\", \"d\" must set securityContext.capabilities.drop=[\"ALL\"])";
        assert_eq!(words, want);
    }

    #[test]
    fn a_version_has_the_checks_of_its_time() {
        let container = |more: Value| {
            let mut container = json!({"name": "c"});
            container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"containers": [container]})
        };
        let sysctl = |name: &str| json!({"securityContext": {"sysctls": [{"name": name}]}});
        for (spec, level, before, since, what) in [
            (
                container(json!({"livenessProbe": {"httpGet": {"host": "h", "port": 1}}})),
                Level::Baseline,
                33,
                34,
                "probe or lifecycle host",
            ),
            (container(json!({})), Level::Restricted, 7, 8, "allowPrivilegeEscalation != false"),
            (container(json!({})), Level::Restricted, 21, 22, "unrestricted capabilities"),
            (
                container(json!({"securityContext": {"runAsUser": 0}})),
                Level::Restricted,
                22,
                23,
                "runAsUser=0",
            ),
            (container(json!({})), Level::Restricted, 18, 19, "seccompProfile"),
            (
                json!({"os": {"name": "windows"}, "containers": [{"name": "c"}]}),
                Level::Restricted,
                25,
                24,
                "seccompProfile",
            ),
            (
                sysctl("net.ipv4.ip_local_reserved_ports"),
                Level::Baseline,
                27,
                26,
                "forbidden sysctls",
            ),
            (sysctl("net.ipv4.tcp_fin_timeout"), Level::Baseline, 29, 28, "forbidden sysctls"),
            (sysctl("net.ipv4.tcp_rmem"), Level::Baseline, 32, 31, "forbidden sysctls"),
            (
                json!({"securityContext": {"seLinuxOptions": {"type": "container_engine_t"}}}),
                Level::Baseline,
                31,
                30,
                "seLinuxOptions",
            ),
        ] {
            let has = |version| {
                check(level, version, &Value::Null, &spec)
                    .0
                    .iter()
                    .any(|found| found.reason == what)
            };
            assert_eq!((has(before), has(since)), (false, true), "{what} {spec}");
        }
    }

    #[test]
    fn hosts_of_probes_and_handlers_are_named_once() {
        let probe = |host: &str| json!({"httpGet": {"host": host, "port": 1}});
        let spec = json!({
            "initContainers": [{"name": "b", "lifecycle": {"preStop": {"tcpSocket": {"host": "y", "port": 1}}}}],
            "containers": [{"name": "a", "readinessProbe": probe("x"), "startupProbe": probe("x"), "livenessProbe": probe("")}]});
        let words = check(Level::Baseline, LATEST, &Value::Null, &spec).message();
        let want = "probe or lifecycle host (containers \"a\", \"b\" use probe or lifecycle hosts \"x\", \"y\")";
        assert_eq!(words, want);
        let one = json!({"containers": [{"name": "a", "readinessProbe": probe("x")}]});
        let words = check(Level::Baseline, 34, &Value::Null, &one).message();
        assert_eq!(
            words,
            "probe or lifecycle host (container \"a\" uses probe or lifecycle host \"x\")"
        );
    }
}
