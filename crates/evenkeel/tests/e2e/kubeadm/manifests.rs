//! The files under `deploy/`: they are valid, and refer only to things that exist.

use super::{exposition::Families, queries::missing};
use k8s_openapi::api::{
    core::v1::{Pod, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{path::PathBuf, process::Command};

/// Queries of kube-prometheus (kubernetes-mixin) for the controller manager: its dashboard, its alerts for this job, and those
/// for clients and versions.
const KUBE_PROMETHEUS: &str = include_str!("kube-prometheus.txt");

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("deploy/{name}: {error}"))
}

/// Reads a manifest under `deploy/`, and checks that the type knows every field.
#[track_caller]
pub(super) fn deployed<T: DeserializeOwned + Serialize>(name: &str) -> T {
    exactly(&serde_saphyr::from_str(&read(name)).expect("YAML"))
}

#[track_caller]
fn exactly<T: DeserializeOwned + Serialize>(value: &Value) -> T {
    let object: T = serde_json::from_value(value.clone()).expect("an object of that type");
    assert_eq!(serde_json::to_value(&object).expect("JSON"), *value, "fields that nobody knows");
    object
}

#[test]
fn static_pod_equals_kubeadms() {
    let pod: Pod = deployed("static-pod/kube-controller-manager.yaml");
    let spec = pod.spec.expect("a spec");
    assert_eq!(pod.metadata.namespace.as_deref(), Some("kube-system"));
    assert_eq!(spec.host_network, Some(true));
    let container = &spec.containers[0];
    let arguments = &container.command.as_ref().expect("a command")[1..];
    assert_eq!(arguments.len(), 17);
    assert!(arguments.is_sorted(), "as kubeadm sorts them");
    // Every file that an argument names is mounted.
    let mounts: Vec<&str> =
        container.volume_mounts.iter().flatten().map(|mount| mount.mount_path.as_str()).collect();
    for argument in arguments {
        if let Some((_, file)) =
            argument.split_once('=').filter(|(_, value)| value.starts_with('/'))
        {
            assert!(
                mounts.iter().any(|mount| file.starts_with(mount)),
                "{argument} is not mounted"
            );
        }
    }
}

#[test]
fn rbac_manifests_have_known_kinds() {
    let text = read("rbac.yaml");
    let mut kinds = Vec::new();
    for document in text.split("\n---\n") {
        let value: Value = serde_saphyr::from_str(document).expect("YAML");
        let kind = value["kind"].as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            "ServiceAccount" => drop(exactly::<ServiceAccount>(&value)),
            "ClusterRole" => drop(exactly::<ClusterRole>(&value)),
            "ClusterRoleBinding" => drop(exactly::<ClusterRoleBinding>(&value)),
            "RoleBinding" => drop(exactly::<RoleBinding>(&value)),
            other => panic!("{other} is not expected"),
        }
        kinds.push(kind);
    }
    assert_eq!(kinds.len(), 5);
}

#[derive(Deserialize)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    name: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(default)]
    record: String,
    #[serde(default)]
    alert: String,
    expr: String,
    #[serde(default, rename = "for")]
    _lasting: String,
    #[serde(default)]
    labels: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

fn rules(name: &str) -> Vec<Rule> {
    let rules: Rules = serde_saphyr::from_str(&read(name)).expect("YAML");
    assert!(rules.groups.iter().all(|group| !group.name.is_empty()));
    rules.groups.into_iter().flat_map(|group| group.rules).collect()
}

/// Returns the queries of a rules file, and the names that it records.
pub(super) fn rule_queries(name: &str) -> (Vec<String>, Vec<String>) {
    let rules = rules(name);
    let recorded = rules.iter().map(|rule| rule.record.clone()).collect();
    (rules.into_iter().map(|rule| rule.expr).collect(), recorded)
}

/// Queries of a dashboard.
pub(super) fn dashboard_queries(name: &str) -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read(name)).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    targets.map(|target| target["expr"].as_str().expect("a query").to_owned()).collect()
}

/// Returns the series that rules, the dashboard or kube-prometheus query and that are missing here.
pub(super) fn missing_series(families: &Families) -> Vec<String> {
    let (mut queries, recorded) = rule_queries("prometheus/rules.yaml");
    queries.extend(dashboard_queries("grafana/controller-manager.json"));
    queries.extend(KUBE_PROMETHEUS.lines().map(str::to_owned));
    assert!(queries.len() > 40, "all are looked at");
    queries.iter().flat_map(|query| missing(query, families, &recorded)).collect()
}

#[test]
fn alerting_rules_are_complete() {
    let files = ["rules.yaml", "scheduler.yaml", "api-server.yaml"];
    for rule in files.iter().flat_map(|file| rules(&format!("prometheus/{file}"))) {
        assert!(rule.alert.is_empty() != rule.record.is_empty(), "{}", rule.expr);
        if !rule.alert.is_empty() {
            assert!(["critical", "warning"].contains(&rule.labels["severity"].as_str()));
            assert!(
                ["summary", "description"].iter().all(|text| rule.annotations.contains_key(*text))
            );
        }
    }
}

#[test]
fn systemd_units_are_valid() {
    let units: Vec<PathBuf> = std::fs::read_dir(path("systemd"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    for unit in &units {
        let text = std::fs::read_to_string(unit).expect("a unit");
        assert!(text.contains("\nExecStart=/usr/local/bin/"), "{}", unit.display());
        assert!(text.contains("\nNoNewPrivileges=yes"), "{}", unit.display());
        let Ok(checked) = Command::new("systemd-analyze").arg("verify").arg(unit).output() else {
            continue;
        };
        // It does not matter that the program is not installed here.
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        let faults: Vec<&str> = said
            .lines()
            .filter(|line| line.contains(".service") && !line.contains("is not executable"))
            .collect();
        assert_eq!(faults, [""; 0], "{}", unit.display());
    }
    assert!(!units.is_empty());
}

#[test]
fn images_have_the_static_binaries_and_run_as_nonroot() {
    let file = read("Containerfile");
    let mut stages = file.split("FROM common AS ");
    let common = stages.next().expect("the common stage");
    assert!(common.contains("FROM scratch AS common\n") && common.contains("USER 65534:65534\n"));
    assert!(common.contains(" /etc/ssl/certs/ca-certificates.crt\n"), "{common}");
    let images: Vec<&str> = stages.collect();
    assert_eq!(images.len(), 4);
    for image in images {
        let program = image.lines().next().expect("a name");
        let copied = format!("target/images/${{TARGETARCH}}/{program} /usr/local/bin/{program}\n");
        assert!(image.contains(&copied) && !image.contains("USER "), "{image}");
        assert!(image.contains(&format!("ENTRYPOINT [\"{program}\"]")), "{image}");
    }
    let build = read("build");
    assert!(build.contains("-unknown-linux-musl") && build.contains("target/images/$arch"));
}
