//! PodSecurity: pods keep to the standard that their namespace enforces (KEP-2579, `pod-security-admission/policy`).

use crate::api::Context;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{flag, get, int, list, object, text};
use serde_json::Value;

/// The standards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// A kind's words for what is wrong, and where.
type Finding = (&'static str, String);

/// Refuses a pod that its namespace does not take.
pub(super) fn admit(cx: &Context<'_>, pod: &Value, old: Option<&Value>) -> Result<(), StatusError> {
    if !matches!(cx.subresource, "" | "ephemeralcontainers" | "resize")
        || old.is_some_and(|old| !is_significant(pod, old))
    {
        return Ok(());
    }
    let namespace = namespace(cx);
    let (level, version) = wanted(&namespace, "enforce");
    let found = check(level, &pod["metadata"], &pod["spec"]);
    if found.is_empty() {
        return Ok(());
    }
    let why = format!("violates PodSecurity \"{}:{version}\": {}", level.name(), message(&found));
    Err(StatusError::forbidden(&cx.resource.name, text(pod, "metadata.name"), why))
}

/// What a pod, or the template of a workload, would violate of the standard that its namespace warns of.
pub(super) fn warnings(cx: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
    if !cx.subresource.is_empty() || !cx.resource.namespaced {
        return Vec::new();
    }
    let Some((metadata, spec)) = pod_of(cx, object) else { return Vec::new() };
    if old.and_then(|old| pod_of(cx, old)).is_some_and(|(_, before)| before == spec) {
        return Vec::new();
    }
    let (level, version) = wanted(&namespace(cx), "warn");
    let found = check(level, metadata, spec);
    if found.is_empty() {
        return Vec::new();
    }
    vec![format!("would violate PodSecurity \"{}:{version}\": {}", level.name(), message(&found))]
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
    // Looked for in the bytes first: few namespaces have such a label.
    const MARK: &[u8] = b"\"pod-security.kubernetes.io/";
    let entry = entry.filter(|e| e.json().windows(MARK.len()).any(|w| w == MARK));
    entry.and_then(|entry| entry.decode().ok()).unwrap_or_default()
}

/// The standard that a namespace's labels name, and its version. What is no standard is the strictest.
fn wanted(namespace: &Value, mode: &str) -> (Level, String) {
    let labels = object(namespace, "metadata.labels");
    let label = |name: String| {
        labels.and_then(|labels| labels.get(&name)).and_then(Value::as_str).unwrap_or_default()
    };
    let level = match label(format!("pod-security.kubernetes.io/{mode}")) {
        "" | "privileged" => Level::Privileged,
        "baseline" => Level::Baseline,
        _ => Level::Restricted,
    };
    let version = match label(format!("pod-security.kubernetes.io/{mode}-version")) {
        "" => "latest",
        version => version,
    };
    (level, version.to_owned())
}

/// Whether an update changes more than what no standard looks at.
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

/// Returns the text of the findings, as in the error and the warning.
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

/// All of a pod's containers.
fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|name| list(spec, name))
}

/// What a pod violates of a standard, in upstream's order.
fn check(level: Level, metadata: &Value, spec: &Value) -> Vec<Finding> {
    let mut found = Vec::new();
    if level == Level::Privileged {
        return found;
    }
    let windows = text(spec, "os.name") == "windows";
    let restricted = level == Level::Restricted;
    if restricted && !windows {
        each(
            spec,
            &mut found,
            "allowPrivilegeEscalation != false",
            "set securityContext.allowPrivilegeEscalation=false",
            |c| get(c, "securityContext.allowPrivilegeEscalation") != Some(&Value::Bool(false)),
        );
    }
    apparmor(metadata, spec, &mut found);
    if restricted && !windows {
        capabilities_restricted(spec, &mut found);
    } else {
        capabilities_baseline(spec, &mut found);
    }
    host(spec, &mut found);
    each_not(spec, &mut found, "privileged", "set securityContext.privileged=true", |c| {
        flag(c, "securityContext.privileged")
    });
    proc_mount(spec, &mut found);
    if restricted {
        volumes(spec, &mut found);
        non_root(spec, &mut found, windows);
    }
    seccomp(spec, &mut found, restricted && !windows);
    selinux(spec, &mut found);
    sysctls(spec, &mut found);
    host_process(spec, &mut found);
    found
}

/// `container "c"`, `containers "c", "d"`.
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
        key.starts_with("container.apparmor.security.beta.kubernetes.io/")
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

/// Capabilities that containers add beyond those that they may.
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

fn non_root(spec: &Value, found: &mut Vec<Finding>, windows: bool) {
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
    if windows {
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

fn selinux(spec: &Value, found: &mut Vec<Finding>) {
    const TYPES: [&str; 5] =
        ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
    let bad = |of: &Value| {
        let options = &of["securityContext"]["seLinuxOptions"];
        !TYPES.contains(&text(options, "type"))
            || !text(options, "user").is_empty()
            || !text(options, "role").is_empty()
    };
    if bad(spec) || containers(spec).any(bad) {
        found.push(("seLinuxOptions", "forbidden type, user or role set".to_owned()));
    }
}

fn sysctls(spec: &Value, found: &mut Vec<Finding>) {
    const ALLOWED: [&str; 10] = [
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
    ];
    let names: Vec<&str> = list(spec, "securityContext.sysctls")
        .iter()
        .map(|s| text(s, "name"))
        .filter(|name| {
            !ALLOWED.contains(name) && !matches!(*name, "net.ipv4.tcp_rmem" | "net.ipv4.tcp_wmem")
        })
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
            check(level, &Value::Null, spec).into_iter().map(|(what, _)| what).collect()
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
        let words = message(&check(Level::Restricted, &Value::Null, &spec));
        let want = "allowPrivilegeEscalation != false (containers \"c\", \"d\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (containers \"c\", \"d\" must set securityContext.capabilities.drop=[\"ALL\"])";
        assert_eq!(words, want);
    }
}
