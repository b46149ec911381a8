//! Maintenance controllers: node CIDRs and TTLs, storage versions, legacy tokens, type checks of policies.

use crate::fixtures::{KINDS, MINUTE, REST, SILENCE, each_of, every_kind, several};
use evenkeel_sim::{FaultKind, Faults, Options, Requests, World, explore, part};
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};

const NODES: &str = "/api/v1/nodes";
const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const SYSTEM: &str = "/api/v1/namespaces/kube-system";
const OTHER: &str = "/api/v1/namespaces/default";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Returns options without nodes. The scenario takes days, in which nodes would renew their leases.
pub(crate) fn alone() -> Options {
    let mut options = Options { allocate_node_cidrs: true, ..Options::default() };
    options.nodes.nodes.clear();
    let chosen = "which range is free depends on when the deleted node's is";
    options
        .ignores("Node/spec/podCIDR", chosen)
        .ignores("Node/spec/podCIDRs", chosen)
        .ignores(
            "ValidatingAdmissionPolicy/status/typeChecking",
            "server-side apply removes a map that gets empty, and adds it when that is applied again, as upstream's does",
        )
}

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// Returns the CIDRs of the nodes that have one, and the number of nodes with the TTL annotation.
async fn cidrs_and_ttls(user: &Requests) -> (BTreeSet<String>, usize) {
    let nodes = user.list(NODES).await;
    let range = |node: &Value| node["spec"]["podCIDR"].as_str().map(str::to_owned);
    let ttl =
        |node: &&Value| node["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"] == "0";
    (nodes.iter().filter_map(range).collect(), nodes.iter().filter(ttl).count())
}

/// Each node gets a pod CIDR of its own, and an annotation with the TTL of its caches.
pub(crate) async fn node_cidrs_and_ttl(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    for name in ["a", "b", "c"] {
        world.create(NODES, &node(name)).await;
    }
    let three = async |user: &Requests| matches!(cidrs_and_ttls(user).await, (ranges, 3) if ranges.len() == 3);
    world.until("all nodes have a CIDR and a TTL", 10 * MINUTE, three).await;
    world.delete(&format!("{NODES}/b"), "Background").await;
    world.create(NODES, &node("d")).await;
    world.until("the new one is, too", 10 * MINUTE, three).await;
    world.settle(2 * MINUTE).await;
    world.stays_silent(SILENCE).await;
}

/// The controller writes each object of a resource again, and the migration succeeds.
pub(crate) async fn storage_version_migration(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    for n in 0..3 {
        let map = json!({"metadata": {"name": format!("m{n}")}, "data": {"n": n.to_string()}});
        world.create(&format!("{OTHER}/configmaps"), &map).await;
    }
    world.arm(faults);
    let resource = json!({"group": "", "resource": "configmaps"});
    let migration = json!({"metadata": {"name": "maps"}, "spec": {"resource": resource}});
    world.create(MIGRATIONS, &migration).await;
    let succeeded = async |user: &Requests| {
        let migration = user.get(&format!("{MIGRATIONS}/maps")).await.unwrap_or_default();
        let conditions = migration["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Succeeded" && one["status"] == "True")
    };
    world.until("it succeeded", 30 * MINUTE, succeeded).await;
    for n in 0..3 {
        let map = world.get(&format!("{OTHER}/configmaps/m{n}")).await.expect("a map");
        assert_eq!(map["data"]["n"], n.to_string());
    }
    world.settle(REST).await;
    world.stays_silent(SILENCE).await;
}

/// The controller type-checks each generation of a policy. The status has the warnings about the latest one.
pub(crate) async fn policies_are_type_checked(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    let rule = json!({
        "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["*"],
    });
    let policy = |name: &str, expression: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}],
        }})
    };
    world.create(POLICIES, &policy("right", "object.spec.replicas > 1")).await;
    world.create(POLICIES, &policy("wrong", "object.spec.replicas > '1'")).await;
    let checked = async |user: &Requests, name: &str| {
        let policy = user.get(&format!("{POLICIES}/{name}")).await.unwrap_or_default();
        let status = &policy["status"];
        let warnings = status["typeChecking"]["expressionWarnings"].as_array();
        (status["observedGeneration"].as_i64(), warnings.map_or(0, Vec::len))
    };
    let both = async |user: &Requests| {
        [checked(user, "right").await, checked(user, "wrong").await] == [(Some(1), 0), (Some(1), 1)]
    };
    world.until("both are checked", 10 * MINUTE, both).await;
    for (name, expression) in [("right", "object.nope == 1"), ("wrong", "true")] {
        let change = json!({"spec": {"validations": [{"expression": expression}]}});
        world.merge(&format!("{POLICIES}/{name}"), &change).await;
    }
    let again = async |user: &Requests| {
        [checked(user, "right").await, checked(user, "wrong").await] == [(Some(2), 1), (Some(2), 0)]
    };
    world.until("both are checked again", 10 * MINUTE, again).await;
    world.settle(2 * MINUTE).await;
    world.stays_silent(SILENCE).await;
}

/// The controller marks a legacy token that nobody uses, and deletes it later. A token that a pod mounts remains.
pub(crate) async fn legacy_tokens_are_cleaned(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    let tracking =
        format!("{SYSTEM}/configmaps/kube-apiserver-legacy-service-account-token-tracking");
    world.merge(&tracking, &json!({"data": {"since": "2025-12-01"}})).await;
    for name in ["old", "mounted"] {
        let annotations = json!({"kubernetes.io/service-account.name": "default"});
        let token = json!({
            "metadata": {"name": name, "annotations": annotations},
            "type": "kubernetes.io/service-account-token",
        });
        world.create(&format!("{OTHER}/secrets"), &token).await;
    }
    let named = json!({"secrets": [{"name": "old"}, {"name": "mounted"}]});
    world.merge(&format!("{OTHER}/serviceaccounts/default"), &named).await;
    let volume = json!({"name": "token", "secret": {"secretName": "mounted"}});
    let container = json!({"name": "c", "image": "i"});
    let spec = json!({"containers": [container], "volumes": [volume]});
    world
        .create(&format!("{OTHER}/pods"), &json!({"metadata": {"name": "user"}, "spec": spec}))
        .await;
    world.settle(REST).await;
    world.arm(faults);
    // The clean-up period here is an hour, and tokens are checked once a day.
    world.pass(DAY + REST).await;
    let marked = world.get(&format!("{OTHER}/secrets/old")).await.expect("not deleted yet");
    assert!(marked["metadata"]["labels"]["kubernetes.io/legacy-token-invalid-since"].is_string());
    world.pass(2 * DAY).await;
    assert_eq!(world.get(&format!("{OTHER}/secrets/old")).await, None);
    let mounted = world.get(&format!("{OTHER}/secrets/mounted")).await.expect("it is in use");
    assert_eq!(mounted["metadata"]["labels"], Value::Null);
    world.stays_silent(SILENCE).await;
}

#[test]
fn node_cidrs_and_ttl_with_a_crash_after_each_write() {
    each_of(&alone(), part::CONTROLLERS, FaultKind::CrashAfter, 6, &node_cidrs_and_ttl);
}

#[test]
fn node_cidrs_and_ttl_with_each_answer_lost() {
    each_of(&alone(), part::CONTROLLERS, FaultKind::LoseAnswer, 6, &node_cidrs_and_ttl);
}

#[test]
fn node_cidrs_and_ttl_with_random_faults() {
    several(&alone(), 6, (5, 12), &KINDS, &node_cidrs_and_ttl);
}

#[test]
fn storage_version_migration_with_a_crash_after_each_write() {
    each_of(&alone(), part::CONTROLLERS, FaultKind::CrashAfter, 4, &storage_version_migration);
}

#[test]
fn storage_version_migration_with_random_faults() {
    several(&alone(), 6, (4, 10), &KINDS, &storage_version_migration);
}

#[test]
fn policies_are_type_checked_with_a_crash_after_each_write() {
    each_of(&alone(), part::CONTROLLERS, FaultKind::CrashAfter, 3, &policies_are_type_checked);
}

#[test]
fn policies_are_type_checked_with_random_faults() {
    several(&alone(), 6, (4, 8), &KINDS, &policies_are_type_checked);
}

/// Runs only once, because the scenario takes three days of virtual time.
#[test]
fn legacy_tokens_are_cleaned_with_an_answer_lost() {
    explore::with_faults(
        &alone(),
        Faults::single(part::CONTROLLERS, 1, FaultKind::LoseAnswer),
        &legacy_tokens_are_cleaned,
    );
}

#[test]
fn node_cidrs_and_ttl_with_every_kind_of_fault() {
    every_kind(&alone(), &node_cidrs_and_ttl);
}

#[test]
fn storage_version_migration_with_every_kind_of_fault() {
    every_kind(&alone(), &storage_version_migration);
}

#[test]
fn policies_with_every_kind_of_fault() {
    every_kind(&alone(), &policies_are_type_checked);
}
