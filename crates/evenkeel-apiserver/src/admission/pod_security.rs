//! PodSecurity: enforces the standard of a pod's namespace (KEP-2579, `pod-security-admission/policy`).

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

/// The latest version of the standards.
const LATEST: Version = Version::MAX;

/// Annotation of a request's audit event: the standard that its pod has to meet.
const ENFORCED: &str = "pod-security.kubernetes.io/enforce-policy";
/// Annotation of a request's audit event: how its pod violates the `audit` level of its namespace.
const VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";

/// Upstream's reason and detail of a violation.
type Finding = (&'static str, String);

/// Refuses a pod that violates the `enforce` level of its namespace.
pub(super) fn admit(cx: &Context<'_>, pod: &Value, old: Option<&Value>) -> Result<(), StatusError> {
    if !matches!(cx.subresource, "" | "ephemeralcontainers" | "resize")
        || old.is_some_and(|old| !is_significant(pod, old))
    {
        return Ok(());
    }
    let namespace = namespace(cx);
    let (level, version) = wanted(&namespace, "enforce");
    let found = check(level, version, &pod["metadata"], &pod["spec"]);
    let (level, version) = (level.name(), shown(version));
    cx.audit.annotate(ENFORCED, format!("{level}:{version}"));
    annotate_violations(cx, &namespace, &pod["metadata"], &pod["spec"]);
    if found.is_empty() {
        return Ok(());
    }
    let why = format!("violates PodSecurity \"{level}:{version}\": {}", message(&found));
    Err(StatusError::forbidden(&cx.resource.name, text(pod, "metadata.name"), why))
}

/// Returns warnings about a pod or a workload's pod template that violates the `warn` level of its namespace.
pub(super) fn warnings(cx: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
    if !cx.subresource.is_empty() || !cx.resource.namespaced {
        return Vec::new();
    }
    let Some((metadata, spec)) = pod_of(cx, object) else { return Vec::new() };
    if old.and_then(|old| pod_of(cx, old)).is_some_and(|(_, before)| before == spec) {
        return Vec::new();
    }
    let namespace = namespace(cx);
    if cx.resource.kind() != "Pod" {
        annotate_violations(cx, &namespace, metadata, spec);
    }
    violation(&namespace, "warn", metadata, spec).into_iter().collect()
}

/// Returns how a pod would violate its namespace's level of a mode, `warn` or `audit`; `None` if it does not.
fn violation(namespace: &Value, mode: &str, metadata: &Value, spec: &Value) -> Option<String> {
    let (level, version) = wanted(namespace, mode);
    let found = check(level, version, metadata, spec);
    let (level, version) = (level.name(), shown(version));
    (!found.is_empty())
        .then(|| format!("would violate PodSecurity \"{level}:{version}\": {}", message(&found)))
}

/// Annotates the request's audit event if a pod violates the `audit` level of its namespace.
fn annotate_violations(cx: &Context<'_>, namespace: &Value, metadata: &Value, spec: &Value) {
    if cx.audit.wants(audit::Level::Metadata)
        && let Some(why) = violation(namespace, "audit", metadata, spec)
    {
        cx.audit.annotate(VIOLATIONS, why);
    }
}

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

fn namespace(cx: &Context<'_>) -> Value {
    let entry = cx.api.store.get("/namespaces", cx.namespace);
    // Search the bytes before decoding: few namespaces have such a label.
    const MARK: &[u8] = b"\"pod-security.kubernetes.io/";
    let entry = entry.filter(|e| e.json().windows(MARK.len()).any(|w| w == MARK));
    entry.and_then(|entry| entry.decode().ok()).unwrap_or_default()
}

/// Returns the standard and the version that a namespace's labels name. An unknown standard counts as the strictest, an
/// unknown version as the latest.
///
/// Upstream: `PolicyToEvaluate`.
fn wanted(namespace: &Value, mode: &str) -> (Level, Version) {
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

/// Parses `v1.N`.
///
/// Upstream: `ParseVersion`.
fn parse_version(text: &str) -> Option<Version> {
    let minor = text.strip_prefix("v1.")?;
    let is_number = minor.bytes().all(|byte| byte.is_ascii_digit());
    let plain = minor == "0" || !minor.starts_with('0');
    (is_number && plain).then(|| minor.parse().ok()).flatten()
}

fn shown(version: Version) -> String {
    if version == LATEST { "latest".to_owned() } else { format!("v1.{version}") }
}

/// Returns whether an update changes fields that a standard checks.
fn is_significant(new: &Value, old: &Value) -> bool {
    let rest = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for field in ["tolerations", "activeDeadlineSeconds"] {
            if let Some(map) = spec.as_object_mut() {
                map.remove(field);
            }
        }
        spec
    };
    rest(new) != rest(old) || annotations_differ(new, old)
}

fn annotations_differ(new: &Value, old: &Value) -> bool {
    let profiles = |pod: &Value| -> Vec<(String, Value)> {
        let all = object(pod, "metadata.annotations").into_iter().flatten();
        all.filter(|(k, _)| k.contains("apparmor.security"))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    };
    profiles(new) != profiles(old)
}

/// Formats the violations as the error and the warning show them.
fn message(found: &[Finding]) -> String {
    let all: Vec<String> = found
        .iter()
        .map(
            |(what, why)| {
                if why.is_empty() { (*what).to_owned() } else { format!("{what} ({why})") }
            },
        )
        .collect();
    all.join(", ")
}

/// Iterates over all containers of a pod.
fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|name| list(spec, name))
}

/// Returns a pod's violations of one version of a standard, in upstream's order.
fn check(level: Level, version: Version, metadata: &Value, spec: &Value) -> Vec<Finding> {
    let mut found = Vec::new();
    if level == Level::Privileged {
        return found;
    }
    let windows = version >= 25 && text(spec, "os.name") == "windows";
    let restricted = level == Level::Restricted;
    if restricted && version >= 8 && !windows {
        each(
            spec,
            &mut found,
            "allowPrivilegeEscalation != false",
            "set securityContext.allowPrivilegeEscalation=false",
            |c| get(c, "securityContext.allowPrivilegeEscalation") != Some(&Value::Bool(false)),
        );
    }
    apparmor(metadata, spec, &mut found);
    if restricted && version >= 22 && !windows {
        capabilities_restricted(spec, &mut found);
    } else {
        capabilities_baseline(spec, &mut found);
    }
    host(spec, &mut found);
    if version >= 34 {
        host_of_probes(spec, &mut found);
    }
    each_not(spec, &mut found, "privileged", "set securityContext.privileged=true", |c| {
        flag(c, "securityContext.privileged")
    });
    proc_mount(spec, &mut found);
    if restricted {
        volumes(spec, &mut found);
        non_root(spec, &mut found, version < 23 || windows);
    }
    if version >= 19 {
        seccomp(spec, &mut found, restricted && !windows);
    } else {
        seccomp_annotations(metadata, &mut found);
    }
    selinux(spec, &mut found, version);
    sysctls(spec, &mut found, version);
    host_process(spec, &mut found);
    found
}

/// Formats names as `container "c"` or `containers "c", "d"`.
fn named(containers: &[&Value]) -> String {
    let names: Vec<String> =
        containers.iter().map(|c| format!("\"{}\"", text(c, "name"))).collect();
    let word = if names.len() == 1 { "container" } else { "containers" };
    format!("{word} {}", names.join(", "))
}

fn each(
    spec: &Value,
    found: &mut Vec<Finding>,
    what: &'static str,
    must: &str,
    bad: impl Fn(&Value) -> bool,
) {
    let all: Vec<&Value> = containers(spec).filter(|c| bad(c)).collect();
    if !all.is_empty() {
        found.push((what, format!("{} must {must}", named(&all))));
    }
}

fn each_not(
    spec: &Value,
    found: &mut Vec<Finding>,
    what: &'static str,
    must_not: &str,
    bad: impl Fn(&Value) -> bool,
) {
    let all: Vec<&Value> = containers(spec).filter(|c| bad(c)).collect();
    if !all.is_empty() {
        found.push((what, format!("{} must not {must_not}", named(&all))));
    }
}

fn apparmor(metadata: &Value, spec: &Value, found: &mut Vec<Finding>) {
    let good = |kind: &str| matches!(kind, "" | "RuntimeDefault" | "Localhost");
    let annotated = object(metadata, "annotations").into_iter().flatten().any(|(key, value)| {
        let value = value.as_str().unwrap_or_default();
        key.starts_with(APP_ARMOR)
            && !(value.is_empty() || value == "runtime/default" || value.starts_with("localhost/"))
    });
    let bad = !good(text(spec, "securityContext.appArmorProfile.type"))
        || containers(spec).any(|c| !good(text(c, "securityContext.appArmorProfile.type")));
    if annotated || bad {
        found.push((
            "forbidden AppArmor profile",
            "profiles must be RuntimeDefault or Localhost".to_owned(),
        ));
    }
}

fn capabilities_restricted(spec: &Value, found: &mut Vec<Finding>) {
    let drops = |c: &Value| list(c, "securityContext.capabilities.drop").iter().any(|d| d == "ALL");
    let adds = |c: &Value| {
        list(c, "securityContext.capabilities.add").iter().any(|a| a != "NET_BIND_SERVICE")
    };
    let keeping: Vec<&Value> = containers(spec).filter(|c| !drops(c)).collect();
    let adding: Vec<&Value> = containers(spec).filter(|c| adds(c)).collect();
    let mut why = Vec::new();
    if !keeping.is_empty() {
        why.push(format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            named(&keeping)
        ));
    }
    if !adding.is_empty() {
        let all = added(&adding, &["NET_BIND_SERVICE"]);
        why.push(format!(
            "{} must not include {all} in securityContext.capabilities.add",
            named(&adding)
        ));
    }
    if !why.is_empty() {
        found.push(("unrestricted capabilities", why.join("; ")));
    }
}

/// Returns the quoted names of added capabilities that are not allowed.
fn added(containers: &[&Value], allowed: &[&str]) -> String {
    let mut names: Vec<String> = containers
        .iter()
        .flat_map(|c| list(c, "securityContext.capabilities.add"))
        .filter_map(Value::as_str)
        .filter(|name| !allowed.contains(name))
        .map(|name| format!("\"{name}\""))
        .collect();
    names.sort();
    names.dedup();
    names.join(", ")
}

fn capabilities_baseline(spec: &Value, found: &mut Vec<Finding>) {
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
    let bad = |c: &Value| {
        list(c, "securityContext.capabilities.add")
            .iter()
            .any(|a| !ALLOWED.contains(&a.as_str().unwrap_or_default()))
    };
    let all: Vec<&Value> = containers(spec).filter(|c| bad(c)).collect();
    if !all.is_empty() {
        let names = added(&all, &ALLOWED);
        let why =
            format!("{} must not include {names} in securityContext.capabilities.add", named(&all));
        found.push(("non-default capabilities", why));
    }
}

fn host(spec: &Value, found: &mut Vec<Finding>) {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|name| flag(spec, name))
        .map(|name| format!("{name}=true"))
        .collect();
    if !shared.is_empty() {
        found.push(("host namespaces", shared.join(", ")));
    }
    let paths: Vec<String> = list(spec, "volumes")
        .iter()
        .filter(|v| v.get("hostPath").is_some())
        .map(|v| format!("\"{}\"", text(v, "name")))
        .collect();
    if !paths.is_empty() {
        let word = if paths.len() == 1 { "volume" } else { "volumes" };
        found.push(("hostPath volumes", format!("{word} {}", paths.join(", "))));
    }
    let mut ports: Vec<i64> = Vec::new();
    let using: Vec<&Value> = containers(spec)
        .filter(|c| {
            let own: Vec<i64> = list(c, "ports")
                .iter()
                .filter_map(|p| int(p, "hostPort"))
                .filter(|p| *p != 0)
                .collect();
            ports.extend(&own);
            !own.is_empty()
        })
        .collect();
    if !using.is_empty() {
        ports.sort_unstable();
        ports.dedup();
        let word = if ports.len() == 1 { "hostPort" } else { "hostPorts" };
        let ports: Vec<String> = ports.iter().map(i64::to_string).collect();
        let verb = if using.len() == 1 { "uses" } else { "use" };
        found.push(("hostPort", format!("{} {verb} {word} {}", named(&using), ports.join(", "))));
    }
}

/// Reports hosts in probes and lifecycle handlers, to which the node's kubelet would connect.
///
/// Upstream: `CheckHostProbesAndHostLifecycle`.
fn host_of_probes(spec: &Value, found: &mut Vec<Finding>) {
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
    let quoted = |all: &BTreeSet<&str>| {
        all.iter().map(|one| format!("\"{one}\"")).collect::<Vec<_>>().join(", ")
    };
    let (container, uses) =
        if names.len() == 1 { ("container", "uses") } else { ("containers", "use") };
    let s = if hosts.len() == 1 { "" } else { "s" };
    let (names, hosts) = (quoted(&names), quoted(&hosts));
    let why = format!("{container} {names} {uses} probe or lifecycle host{s} {hosts}");
    found.push(("probe or lifecycle host", why));
}

fn proc_mount(spec: &Value, found: &mut Vec<Finding>) {
    if flag(spec, "hostUsers") || get(spec, "hostUsers").is_none() {
        each_not(spec, found, "procMount", "set securityContext.procMount to \"Unmasked\"", |c| {
            !matches!(text(c, "securityContext.procMount"), "" | "Default")
        });
    }
}

fn volumes(spec: &Value, found: &mut Vec<Finding>) {
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
        let kind = fields.map(|(k, _)| k.as_str()).find(|k| *k != "name").unwrap_or("unknown");
        if ALLOWED.contains(&kind) || kind == "image" {
            continue;
        }
        names.push(format!("\"{}\"", text(volume, "name")));
        kinds.push(format!("\"{kind}\""));
    }
    if names.is_empty() {
        return;
    }
    found.retain(|(what, _)| *what != "hostPath volumes");
    kinds.sort();
    kinds.dedup();
    let (volume, uses) = if names.len() == 1 { ("volume", "uses") } else { ("volumes", "use") };
    let types = if kinds.len() == 1 { "type" } else { "types" };
    let why = format!(
        "{volume} {} {uses} restricted volume {types} {}",
        names.join(", "),
        kinds.join(", ")
    );
    found.push(("restricted volume types", why));
}

fn non_root(spec: &Value, found: &mut Vec<Finding>, any_user: bool) {
    let pod = get(spec, "securityContext.runAsNonRoot").and_then(Value::as_bool);
    let own = |c: &Value| get(c, "securityContext.runAsNonRoot").and_then(Value::as_bool);
    let explicit: Vec<&Value> = containers(spec).filter(|c| own(c) == Some(false)).collect();
    let implicit: Vec<&Value> =
        containers(spec).filter(|c| own(c).is_none() && pod.is_none()).collect();
    if pod == Some(false) {
        found.push((
            "runAsNonRoot != true",
            "pod must not set securityContext.runAsNonRoot=false".to_owned(),
        ));
    } else if !explicit.is_empty() {
        let why = format!("{} must not set securityContext.runAsNonRoot=false", named(&explicit));
        found.push(("runAsNonRoot != true", why));
    } else if !implicit.is_empty() {
        let why = format!("pod or {} must set securityContext.runAsNonRoot=true", named(&implicit));
        found.push(("runAsNonRoot != true", why));
    }
    if any_user {
        return;
    }
    let root: Vec<&Value> =
        containers(spec).filter(|c| int(c, "securityContext.runAsUser") == Some(0)).collect();
    if int(spec, "securityContext.runAsUser") == Some(0) {
        found.push(("runAsUser=0", "pod must not set runAsUser=0".to_owned()));
    } else if !root.is_empty() {
        found.push(("runAsUser=0", format!("{} must not set runAsUser=0", named(&root))));
    }
}

fn seccomp(spec: &Value, found: &mut Vec<Finding>, required: bool) {
    let path = "securityContext.seccompProfile.type";
    let good = |kind: &str| matches!(kind, "RuntimeDefault" | "Localhost");
    let pod = text(spec, path);
    if !pod.is_empty() && !good(pod) {
        let why = format!("pod must not set {path} to \"{pod}\"");
        found.push(("seccompProfile", why));
        return;
    }
    let bad: Vec<&Value> =
        containers(spec).filter(|c| !text(c, path).is_empty() && !good(text(c, path))).collect();
    if !bad.is_empty() {
        let why = format!("{} must not set {path} to \"{}\"", named(&bad), text(bad[0], path));
        found.push(("seccompProfile", why));
        return;
    }
    let unset: Vec<&Value> = containers(spec).filter(|c| text(c, path).is_empty()).collect();
    if required && pod.is_empty() && !unset.is_empty() {
        let why = format!(
            "pod or {} must set {path} to \"RuntimeDefault\" or \"Localhost\"",
            named(&unset)
        );
        found.push(("seccompProfile", why));
    }
}

/// Checks seccomp profiles in annotations, where old versions of Kubernetes had them.
///
/// Upstream: `seccompProfileBaseline_1_0`.
fn seccomp_annotations(metadata: &Value, found: &mut Vec<Finding>) {
    let is_of_seccomp = |key: &str| key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER);
    let is_good = |profile: &str| {
        matches!(profile, "" | "runtime/default" | "docker/default")
            || profile.starts_with("localhost/")
    };
    let annotations = object(metadata, "annotations").into_iter().flatten();
    let bad: Vec<String> = annotations
        .filter(|(key, profile)| is_of_seccomp(key) && !profile.as_str().is_some_and(is_good))
        .map(|(key, profile)| format!("{key}={profile}"))
        .collect();
    if !bad.is_empty() {
        let s = if bad.len() == 1 { "" } else { "s" };
        found.push(("seccompProfile", format!("forbidden annotation{s} {}", bad.join(", "))));
    }
}

fn selinux(spec: &Value, found: &mut Vec<Finding>, version: Version) {
    const TYPES: [&str; 4] = ["", "container_t", "container_init_t", "container_kvm_t"];
    let is_type =
        |name: &str| TYPES.contains(&name) || version >= 31 && name == "container_engine_t";
    let bad = |of: &Value| {
        let options = &of["securityContext"]["seLinuxOptions"];
        !is_type(text(options, "type"))
            || !text(options, "user").is_empty()
            || !text(options, "role").is_empty()
    };
    if bad(spec) || containers(spec).any(bad) {
        found.push(("seLinuxOptions", "forbidden type, user or role set".to_owned()));
    }
}

fn sysctls(spec: &Value, found: &mut Vec<Finding>, version: Version) {
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
        .map(|s| text(s, "name"))
        .filter(|name| !is_allowed(name))
        .collect();
    if !names.is_empty() {
        found.push(("forbidden sysctls", names.join(", ")));
    }
}

fn host_process(spec: &Value, found: &mut Vec<Finding>) {
    let path = "securityContext.windowsOptions.hostProcess";
    let all: Vec<&Value> = containers(spec).filter(|c| flag(c, path)).collect();
    if flag(spec, path) {
        found.push(("hostProcess", format!("pod must not set {path}=true")));
    } else if !all.is_empty() {
        found.push(("hostProcess", format!("{} must not set {path}=true", named(&all))));
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
            check(level, LATEST, &Value::Null, spec).into_iter().map(|(what, _)| what).collect()
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
        let words = message(&check(Level::Restricted, LATEST, &Value::Null, &spec));
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
                check(level, version, &Value::Null, &spec).iter().any(|(found, _)| *found == what)
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
            let (level, version) = wanted(&namespace, "enforce");
            assert_eq!((level, &*shown(version)), (Level::Baseline, expected), "{label}");
        }
    }

    #[test]
    fn hosts_of_probes_and_handlers_are_named_once() {
        let probe = |host: &str| json!({"httpGet": {"host": host, "port": 1}});
        let spec = json!({
            "initContainers": [{"name": "b", "lifecycle": {"preStop": {"tcpSocket": {"host": "y", "port": 1}}}}],
            "containers": [{"name": "a", "readinessProbe": probe("x"), "startupProbe": probe("x"), "livenessProbe": probe("")}]});
        let words = message(&check(Level::Baseline, LATEST, &Value::Null, &spec));
        let want = "probe or lifecycle host (containers \"a\", \"b\" use probe or lifecycle hosts \"x\", \"y\")";
        assert_eq!(words, want);
        let one = json!({"containers": [{"name": "a", "readinessProbe": probe("x")}]});
        let words = message(&check(Level::Baseline, 34, &Value::Null, &one));
        assert_eq!(
            words,
            "probe or lifecycle host (container \"a\" uses probe or lifecycle host \"x\")"
        );
    }
}
