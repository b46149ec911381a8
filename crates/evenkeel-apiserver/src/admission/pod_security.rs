//! Admission plug-in PodSecurity: enforces the Pod Security Standard that the labels of a pod's namespace name
//! (KEP-2579, `pod-security-admission/policy`).

use crate::api::Context;
use crate::audit;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{flag, get, int, list, object, text};
use evenkeel_kinds::validation::pod_annotations::{APP_ARMOR, SECCOMP_CONTAINER, SECCOMP_POD};
use serde_json::Value;
use std::collections::BTreeSet;

/// Pod Security Standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// Minor version of Kubernetes whose checks a standard uses.
type Version = u32;

/// Version `latest`: all checks apply.
const LATEST: Version = Version::MAX;

/// Annotation of a request's audit event with the enforced level and version.
const ENFORCED_ANNOTATION: &str = "pod-security.kubernetes.io/enforce-policy";
/// Annotation of a request's audit event with the violations of the namespace's `audit` level.
const VIOLATIONS_ANNOTATION: &str = "pod-security.kubernetes.io/audit-violations";

/// Violation of a standard, in upstream's words.
struct Violation {
    /// The forbidden setting, such as `hostPath volumes`.
    reason: &'static str,
    /// Containers, volumes or fields that violate the standard; may be empty.
    detail: String,
}

/// Violations of one pod.
#[derive(Default)]
struct Violations(Vec<Violation>);

impl Violations {
    /// Adds a violation with this reason and detail.
    fn add(&mut self, reason: &'static str, detail: String) {
        self.0.push(Violation { reason, detail });
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Formats the violations as errors and warnings list them.
    fn message(&self) -> String {
        let violations = self.0.iter().map(|Violation { reason, detail }| {
            if detail.is_empty() { (*reason).to_owned() } else { format!("{reason} ({detail})") }
        });
        violations.collect::<Vec<_>>().join(", ")
    }
}

/// Refuses a pod that violates the `enforce` level of its namespace.
pub(super) fn admit(cx: &Context<'_>, pod: &Value, old: Option<&Value>) -> Result<(), StatusError> {
    if !matches!(cx.subresource, "" | "ephemeralcontainers" | "resize")
        || old.is_some_and(|old| !is_significant(pod, old))
    {
        return Ok(());
    }
    let namespace = namespace(cx);
    let (level, version) = level_and_version(&namespace, "enforce");
    let violations = check(level, version, &pod["metadata"], &pod["spec"]);
    let (level, version) = (level.name(), version_text(version));
    cx.audit.annotate(ENFORCED_ANNOTATION, format!("{level}:{version}"));
    annotate_violations(cx, &namespace, &pod["metadata"], &pod["spec"]);
    if violations.is_empty() {
        return Ok(());
    }
    let why = format!("violates PodSecurity \"{level}:{version}\": {}", violations.message());
    Err(StatusError::forbidden(&cx.resource.name, text(pod, "metadata.name"), why))
}

/// Returns warnings about a pod or a workload's pod template that violates the `warn` level of its namespace.
pub(super) fn warnings(cx: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
    if !cx.subresource.is_empty() || !cx.resource.namespaced {
        return Vec::new();
    }
    let Some((metadata, spec)) = pod_of(cx, object) else { return Vec::new() };
    let old_spec = old.and_then(|old| pod_of(cx, old)).map(|(_, spec)| spec);
    if old_spec == Some(spec) {
        return Vec::new();
    }
    let namespace = namespace(cx);
    if cx.resource.kind() != "Pod" {
        annotate_violations(cx, &namespace, metadata, spec);
    }
    violation_message(&namespace, "warn", metadata, spec).into_iter().collect()
}

/// Returns a message about a pod that violates the level of its namespace for a mode, `warn` or `audit`; `None` if the
/// pod does not.
fn violation_message(
    namespace: &Value,
    mode: &str,
    metadata: &Value,
    spec: &Value,
) -> Option<String> {
    let (level, version) = level_and_version(namespace, mode);
    let violations = check(level, version, metadata, spec);
    if violations.is_empty() {
        return None;
    }
    let (level, version, message) = (level.name(), version_text(version), violations.message());
    Some(format!("would violate PodSecurity \"{level}:{version}\": {message}"))
}

/// Annotates the request's audit event if a pod violates the `audit` level of its namespace.
fn annotate_violations(cx: &Context<'_>, namespace: &Value, metadata: &Value, spec: &Value) {
    if cx.audit.wants(audit::Level::Metadata)
        && let Some(message) = violation_message(namespace, "audit", metadata, spec)
    {
        cx.audit.annotate(VIOLATIONS_ANNOTATION, message);
    }
}

/// Returns the metadata and the spec of a pod, or of a workload's pod template; `None` for other kinds.
fn pod_of<'a>(cx: &Context<'_>, object: &'a Value) -> Option<(&'a Value, &'a Value)> {
    let template = match (cx.resource.group(), cx.resource.plural()) {
        ("", "pods") => object,
        ("", "podtemplates") => &object["template"],
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
        | ("", "replicationcontrollers")
        | ("batch", "jobs") => &object["spec"]["template"],
        ("batch", "cronjobs") => &object["spec"]["jobTemplate"]["spec"]["template"],
        _ => return None,
    };
    Some((&template["metadata"], &template["spec"]))
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// Returns the stored namespace of the request; null if it has no labels of Pod Security.
fn namespace(cx: &Context<'_>) -> Value {
    let entry = cx.api.store.get("/namespaces", cx.namespace);
    // Few namespaces have such a label, and a search in the bytes is faster than decoding.
    const LABEL_PREFIX: &[u8] = b"\"pod-security.kubernetes.io/";
    let has_label =
        |json: &[u8]| json.windows(LABEL_PREFIX.len()).any(|window| window == LABEL_PREFIX);
    let entry = entry.filter(|entry| has_label(entry.json()));
    entry.and_then(|entry| entry.decode().ok()).unwrap_or_default()
}

/// Returns the level and the version that a namespace's labels set for a mode: `enforce`, `audit` or `warn`. An unknown
/// level counts as the strictest one, an unknown version as the latest one.
///
/// Upstream: `PolicyToEvaluate`.
fn level_and_version(namespace: &Value, mode: &str) -> (Level, Version) {
    let labels = object(namespace, "metadata.labels");
    let label = |name: String| {
        labels.and_then(|labels| labels.get(&name)).and_then(Value::as_str).unwrap_or_default()
    };
    let level = match label(format!("pod-security.kubernetes.io/{mode}")) {
        "" | "privileged" => Level::Privileged,
        "baseline" => Level::Baseline,
        _ => Level::Restricted,
    };
    let version = label(format!("pod-security.kubernetes.io/{mode}-version"));
    (level, parse_version(version).unwrap_or(LATEST))
}

/// Parses a version `v1.N`. N has no leading zeros.
///
/// Upstream: `ParseVersion`.
fn parse_version(text: &str) -> Option<Version> {
    let minor = text.strip_prefix("v1.")?;
    let is_number = minor.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = minor != "0" && minor.starts_with('0');
    if !is_number || has_leading_zero {
        return None;
    }
    minor.parse().ok()
}

fn version_text(version: Version) -> String {
    if version == LATEST { "latest".to_owned() } else { format!("v1.{version}") }
}

/// Returns whether an update changes fields that a standard checks.
fn is_significant(new: &Value, old: &Value) -> bool {
    let checked_spec = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for field in ["tolerations", "activeDeadlineSeconds"] {
            if let Some(fields) = spec.as_object_mut() {
                fields.remove(field);
            }
        }
        spec
    };
    checked_spec(new) != checked_spec(old) || apparmor_annotations_differ(new, old)
}

fn apparmor_annotations_differ(new: &Value, old: &Value) -> bool {
    let profiles = |pod: &Value| -> Vec<(String, Value)> {
        let annotations = object(pod, "metadata.annotations").into_iter().flatten();
        annotations
            .filter(|(key, _)| key.contains("apparmor.security"))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    profiles(new) != profiles(old)
}

/// Iterates over all containers of a pod.
fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|name| list(spec, name))
}

/// Returns a pod's violations of one version of a standard, in upstream's order.
fn check(level: Level, version: Version, metadata: &Value, spec: &Value) -> Violations {
    let mut violations = Violations::default();
    if level == Level::Privileged {
        return violations;
    }
    // Since v1.25, pods for Windows are exempt from checks of Linux features.
    let is_windows = version >= 25 && text(spec, "os.name") == "windows";
    let is_restricted = level == Level::Restricted;
    if is_restricted && version >= 8 && !is_windows {
        require_each(
            spec,
            &mut violations,
            "allowPrivilegeEscalation != false",
            "set securityContext.allowPrivilegeEscalation=false",
            |container| {
                get(container, "securityContext.allowPrivilegeEscalation")
                    != Some(&Value::Bool(false))
            },
        );
    }
    check_apparmor(metadata, spec, &mut violations);
    if is_restricted && version >= 22 && !is_windows {
        check_capabilities_restricted(spec, &mut violations);
    } else {
        check_capabilities_baseline(spec, &mut violations);
    }
    check_host(spec, &mut violations);
    if version >= 34 {
        check_probe_hosts(spec, &mut violations);
    }
    forbid_each(
        spec,
        &mut violations,
        "privileged",
        "set securityContext.privileged=true",
        |container| flag(container, "securityContext.privileged"),
    );
    check_proc_mount(spec, &mut violations);
    if is_restricted {
        check_volumes(spec, &mut violations);
        check_run_as_non_root(spec, &mut violations);
        if version >= 23 && !is_windows {
            check_run_as_user(spec, &mut violations);
        }
    }
    if version >= 19 {
        let is_profile_required = is_restricted && !is_windows;
        check_seccomp(spec, &mut violations, is_profile_required);
    } else {
        check_seccomp_annotations(metadata, &mut violations);
    }
    check_selinux(spec, &mut violations, version);
    check_sysctls(spec, &mut violations, version);
    check_host_process(spec, &mut violations);
    violations
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
    let violating: Vec<&Value> = containers(spec).filter(|container| violates(container)).collect();
    if !violating.is_empty() {
        violations.add(reason, format!("{} must not {must_not}", container_names(&violating)));
    }
}

/// Reports AppArmor profiles other than `RuntimeDefault` and `Localhost`.
fn check_apparmor(metadata: &Value, spec: &Value, violations: &mut Violations) {
    let is_allowed = |profile: &str| matches!(profile, "" | "RuntimeDefault" | "Localhost");
    let has_forbidden_annotation =
        object(metadata, "annotations").into_iter().flatten().any(|(key, value)| {
            let value = value.as_str().unwrap_or_default();
            key.starts_with(APP_ARMOR)
                && !(value.is_empty()
                    || value == "runtime/default"
                    || value.starts_with("localhost/"))
        });
    let path = "securityContext.appArmorProfile.type";
    let has_forbidden_field = !is_allowed(text(spec, path))
        || containers(spec).any(|container| !is_allowed(text(container, path)));
    if has_forbidden_annotation || has_forbidden_field {
        violations.add(
            "forbidden AppArmor profile",
            "profiles must be RuntimeDefault or Localhost".to_owned(),
        );
    }
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

/// Reports the use of the host's namespaces, paths and ports.
fn check_host(spec: &Value, violations: &mut Violations) {
    let namespaces: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|name| flag(spec, name))
        .map(|name| format!("{name}=true"))
        .collect();
    if !namespaces.is_empty() {
        violations.add("host namespaces", namespaces.join(", "));
    }
    let paths: Vec<String> = list(spec, "volumes")
        .iter()
        .filter(|volume| volume.get("hostPath").is_some())
        .map(|volume| format!("\"{}\"", text(volume, "name")))
        .collect();
    if !paths.is_empty() {
        let word = if paths.len() == 1 { "volume" } else { "volumes" };
        violations.add("hostPath volumes", format!("{word} {}", paths.join(", ")));
    }
    let mut ports = BTreeSet::new();
    let mut using = Vec::new();
    for container in containers(spec) {
        let host_ports = list(container, "ports").iter().filter_map(|port| int(port, "hostPort"));
        let host_ports: Vec<i64> = host_ports.filter(|port| *port != 0).collect();
        if !host_ports.is_empty() {
            using.push(container);
            ports.extend(host_ports);
        }
    }
    if !using.is_empty() {
        let word = if ports.len() == 1 { "hostPort" } else { "hostPorts" };
        let ports: Vec<String> = ports.iter().map(i64::to_string).collect();
        let verb = if using.len() == 1 { "uses" } else { "use" };
        let names = container_names(&using);
        violations.add("hostPort", format!("{names} {verb} {word} {}", ports.join(", ")));
    }
}

/// Reports hosts in probes and lifecycle handlers, to which the node's kubelet would connect.
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
    let quoted = |texts: &BTreeSet<&str>| {
        texts.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(", ")
    };
    let (container, uses) =
        if names.len() == 1 { ("container", "uses") } else { ("containers", "use") };
    let plural = if hosts.len() == 1 { "" } else { "s" };
    let (names, hosts) = (quoted(&names), quoted(&hosts));
    let detail = format!("{container} {names} {uses} probe or lifecycle host{plural} {hosts}");
    violations.add("probe or lifecycle host", detail);
}

/// Reports containers with another `procMount` than the default.
fn check_proc_mount(spec: &Value, violations: &mut Violations) {
    // A pod with a user namespace of its own (`hostUsers: false`) may have any `procMount`.
    if flag(spec, "hostUsers") || get(spec, "hostUsers").is_none() {
        let must_not = "set securityContext.procMount to \"Unmasked\"";
        forbid_each(spec, violations, "procMount", must_not, |container| {
            !matches!(text(container, "securityContext.procMount"), "" | "Default")
        });
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
    // This violation covers the one of the baseline level.
    violations.0.retain(|violation| violation.reason != "hostPath volumes");
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
    let implicit: Vec<&Value> = containers(spec)
        .filter(|container| non_root(container).is_none() && non_root(spec).is_none())
        .collect();
    if non_root(spec) == Some(false) {
        violations.add(
            "runAsNonRoot != true",
            "pod must not set securityContext.runAsNonRoot=false".to_owned(),
        );
    } else if !explicit.is_empty() {
        let detail = format!(
            "{} must not set securityContext.runAsNonRoot=false",
            container_names(&explicit)
        );
        violations.add("runAsNonRoot != true", detail);
    } else if !implicit.is_empty() {
        let names = container_names(&implicit);
        let detail = format!("pod or {names} must set securityContext.runAsNonRoot=true");
        violations.add("runAsNonRoot != true", detail);
    }
}

/// Reports a pod or containers whose user is root.
fn check_run_as_user(spec: &Value, violations: &mut Violations) {
    let is_root = |value: &Value| int(value, "securityContext.runAsUser") == Some(0);
    let root: Vec<&Value> = containers(spec).filter(|container| is_root(container)).collect();
    if is_root(spec) {
        violations.add("runAsUser=0", "pod must not set runAsUser=0".to_owned());
    } else if !root.is_empty() {
        let names = container_names(&root);
        violations.add("runAsUser=0", format!("{names} must not set runAsUser=0"));
    }
}

/// Reports seccomp profiles other than `RuntimeDefault` and `Localhost`, and missing ones if a profile is required.
fn check_seccomp(spec: &Value, violations: &mut Violations, is_profile_required: bool) {
    let path = "securityContext.seccompProfile.type";
    let is_allowed = |profile: &str| matches!(profile, "RuntimeDefault" | "Localhost");
    let pod_profile = text(spec, path);
    if !pod_profile.is_empty() && !is_allowed(pod_profile) {
        let detail = format!("pod must not set {path} to \"{pod_profile}\"");
        violations.add("seccompProfile", detail);
        return;
    }
    let is_forbidden = |profile: &str| !profile.is_empty() && !is_allowed(profile);
    let forbidden: Vec<&Value> =
        containers(spec).filter(|container| is_forbidden(text(container, path))).collect();
    if let Some(first) = forbidden.first() {
        let (names, profile) = (container_names(&forbidden), text(first, path));
        let detail = format!("{names} must not set {path} to \"{profile}\"");
        violations.add("seccompProfile", detail);
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
fn check_seccomp_annotations(metadata: &Value, violations: &mut Violations) {
    let is_seccomp_key = |key: &str| key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER);
    let is_allowed = |profile: &str| {
        matches!(profile, "" | "runtime/default" | "docker/default")
            || profile.starts_with("localhost/")
    };
    let annotations = object(metadata, "annotations").into_iter().flatten();
    let forbidden: Vec<String> = annotations
        .filter(|(key, profile)| is_seccomp_key(key) && !profile.as_str().is_some_and(is_allowed))
        .map(|(key, profile)| format!("{key}={profile}"))
        .collect();
    if !forbidden.is_empty() {
        let plural = if forbidden.len() == 1 { "" } else { "s" };
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
    let has_forbidden_options = |pod_or_container: &Value| {
        let options = &pod_or_container["securityContext"]["seLinuxOptions"];
        !is_allowed_type(text(options, "type"))
            || !text(options, "user").is_empty()
            || !text(options, "role").is_empty()
    };
    if has_forbidden_options(spec) || containers(spec).any(has_forbidden_options) {
        violations.add("seLinuxOptions", "forbidden type, user or role set".to_owned());
    }
}

/// Reports sysctls that are not allowed.
fn check_sysctls(spec: &Value, violations: &mut Violations, version: Version) {
    /// Allowed sysctls, with the version that first allows them.
    const ALLOWED: [(&str, Version); 12] = [
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
    if flag(spec, path) {
        violations.add("hostProcess", format!("pod must not set {path}=true"));
    } else if !host_processes.is_empty() {
        let names = container_names(&host_processes);
        violations.add("hostProcess", format!("{names} must not set {path}=true"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn versions_are_read_from_labels() {
        for (label, expected) in [
            ("v1.24", "v1.24"),
            ("v1.0", "v1.0"),
            ("latest", "latest"),
            ("", "latest"),
            ("v1.024", "latest"),
            ("v2.0", "latest"),
            ("v1.", "latest"),
            ("1.24", "latest"),
            ("v1.+4", "latest"),
            ("v1.99999999999", "latest"),
        ] {
            let labels = json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": label});
            let namespace = json!({"metadata": {"labels": labels}});
            let (level, version) = level_and_version(&namespace, "enforce");
            assert_eq!((level, &*version_text(version)), (Level::Baseline, expected), "{label}");
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
