//! Roles, certificates and bootstrap tokens are correct at the end, under faults.

use crate::fixtures::{KINDS, MINUTE, REST, SILENCE, each_of, every_kind, several};
use base64::prelude::*;
use evenkeel_sim::{FaultKind, Faults, Options, Requests, World, part};
use serde_json::{Value, json};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const ASKED: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const MAPS: &str = "/api/v1/namespaces/kube-public/configmaps";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// Certificate requests of a client and of a node, created for these tests.
const CLIENT: &str = include_str!("testdata/request.pem");
const NODE: &str = include_str!("testdata/node.pem");

fn asked(name: &str, signer: &str, pem: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "request": BASE64_STANDARD.encode(pem), "signerName": format!("kubernetes.io/{signer}"),
            "usages": ["digital signature", "client auth"],
        },
    })
}

fn role(name: &str, part_of: &str, of: &str, verb: &str) -> Value {
    let mut role = json!({"metadata": {"name": name, "labels": {"part-of": part_of}}, "rules": []});
    if of.is_empty() {
        role["rules"] = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]);
    } else {
        role["aggregationRule"] =
            json!({"clusterRoleSelectors": [{"matchLabels": {"part-of": of}}]});
    }
    role
}

async fn verb_of_top(user: &Requests) -> Value {
    let top = user.get(&format!("{ROLES}/top")).await.unwrap_or_default();
    top["rules"][0]["verbs"][0].clone()
}

/// A ClusterRole that aggregates an aggregated ClusterRole follows changes of the lowest one.
pub(crate) async fn aggregated_roles(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    world.create(ROLES, &role("top", "", "top", "")).await;
    world.create(ROLES, &role("middle", "top", "middle", "")).await;
    world.create(ROLES, &role("bottom", "middle", "", "get")).await;
    world.until("the top has it", 10 * MINUTE, async |user| verb_of_top(user).await == "get").await;
    let more = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]});
    world.merge(&format!("{ROLES}/bottom"), &more).await;
    world.until("and the next", 10 * MINUTE, async |user| verb_of_top(user).await == "list").await;
    world.settle(REST).await;
    world.stays_silent(SILENCE).await;
}

/// The controllers approve and sign a node's request, sign a client's request after a user has approved it, and later
/// delete both.
pub(crate) async fn certificates_are_issued(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    world.create(ASKED, &asked("node", "kube-apiserver-client-kubelet", NODE)).await;
    world.create(ASKED, &asked("client", "kube-apiserver-client", CLIENT)).await;
    let approved = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}]}});
    world.merge(&format!("{ASKED}/client/approval"), &approved).await;
    world
        .until("both have a certificate", 10 * MINUTE, async |user| {
            let all = user.list(ASKED).await;
            all.len() == 2 && all.iter().all(|one| one["status"]["certificate"].is_string())
        })
        .await;
    let node = world.get(&format!("{ASKED}/node")).await.expect("it is there");
    let conditions = node["status"]["conditions"].as_array().expect("a list");
    assert_eq!(conditions.len(), 1, "{conditions:?}");
    world.settle(REST).await;
    world
        .until("they are cleared away", 180 * MINUTE, async |user| {
            user.list(ASKED).await.is_empty()
        })
        .await;
    // If a part crashed at the end, it restarts now.
    world.settle(REST).await;
    world.stays_silent(SILENCE).await;
}

/// The ConfigMap `cluster-info` has a signature for each bootstrap token until the token expires.
pub(crate) async fn tokens_sign_and_expire(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    let info =
        json!({"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": "clusters: []"}});
    world.create(MAPS, &info).await;
    let end = world.clock().now() + evenkeel_api::time::SignedDuration::from_hours(1);
    for (id, expiration) in
        [("abcdef", String::new()), ("ghijkl", evenkeel_api::time::seconds(end))]
    {
        let mut data = json!({
            "token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true",
        });
        if !expiration.is_empty() {
            data["expiration"] = expiration.into();
        }
        let secret = json!({
            "metadata": {"name": format!("bootstrap-token-{id}")}, "type": "bootstrap.kubernetes.io/token", "stringData": data,
        });
        world.create(SECRETS, &secret).await;
    }
    let signatures = async |user: &Requests| {
        let info = user.get(&format!("{MAPS}/cluster-info")).await.unwrap_or_default();
        info["data"].as_object().map_or(0, |data| data.len() - 1)
    };
    world.until("both sign", 10 * MINUTE, async |user| signatures(user).await == 2).await;
    world.until("one ends", 70 * MINUTE, async |user| signatures(user).await == 1).await;
    world.settle(REST).await;
    assert_eq!(world.get(&format!("{SECRETS}/bootstrap-token-ghijkl")).await, None);
    world.stays_silent(SILENCE).await;
}

/// Returns options without nodes. The scenario takes hours, in which nodes would renew their leases.
pub(crate) fn without_nodes() -> Options {
    let mut options = Options::default();
    options.nodes.nodes.clear();
    options.ignores("CertificateSigningRequest/status/certificate", "its serial is random")
}

/// Runs the scenario with this fault at each write.
fn each(what: FaultKind, more_than: u64, scenario: &impl AsyncFn(&mut World, Faults)) {
    each_of(&without_nodes(), part::CONTROLLERS, what, more_than, scenario);
}

#[test]
fn roles_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 4, &aggregated_roles);
}

#[test]
fn certificates_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 5, &certificates_are_issued);
}

#[test]
fn certificates_with_each_answer_lost() {
    each(FaultKind::LoseAnswer, 5, &certificates_are_issued);
}

#[test]
fn tokens_with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 3, &tokens_sign_and_expire);
}

#[test]
fn roles_with_every_kind_of_fault() {
    every_kind(&without_nodes(), &aggregated_roles);
}

#[test]
fn certificates_with_every_kind_of_fault() {
    every_kind(&without_nodes(), &certificates_are_issued);
}

#[test]
fn tokens_with_every_kind_of_fault() {
    every_kind(&without_nodes(), &tokens_sign_and_expire);
}

#[test]
fn roles_with_random_faults() {
    several(&without_nodes(), 3, (4, 12), &KINDS, &aggregated_roles);
}

#[test]
fn certificates_with_random_faults() {
    several(&without_nodes(), 3, (4, 12), &KINDS, &certificates_are_issued);
}

#[test]
fn tokens_with_random_faults() {
    several(&without_nodes(), 3, (4, 12), &KINDS, &tokens_sign_and_expire);
}
