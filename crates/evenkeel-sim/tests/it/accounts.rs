//! Under faults, namespaces get the objects that pods need, and tokens are deleted with their account.

use crate::fixtures::{KINDS, REST, SILENCE, each, every_kind, several};
use evenkeel_sim::{FaultKind, Faults, Options, World};
use serde_json::{Value, json};

const NAMESPACE: &str = "/api/v1/namespaces/other";

fn token(name: &str, account: &str) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
        "type": "kubernetes.io/service-account-token",
    })
}

/// The controllers create the default ServiceAccount and the ConfigMap with the CA, and restore both after a deletion. A
/// token Secret gets a token, and is deleted with its account.
pub(crate) async fn accounts_and_tokens(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    world.create("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).await;
    world.settle(REST).await;
    let [accounts, maps, secrets] =
        ["serviceaccounts", "configmaps", "secrets"].map(|plural| format!("{NAMESPACE}/{plural}"));
    let [account, ca] = [format!("{accounts}/default"), format!("{maps}/kube-root-ca.crt")];
    let first = world.get(&account).await.expect("an account");
    assert!(world.get(&ca).await.is_some_and(|map| map["data"]["ca.crt"].is_string()));
    world.create(&secrets, &token("of-default", "default")).await;
    world.create(&secrets, &token("of-nobody", "nobody")).await;
    world.settle(REST).await;
    let filled = world.get(&format!("{secrets}/of-default")).await.expect("a token");
    assert!(filled["data"]["token"].is_string() && filled["data"]["ca.crt"].is_string());
    world.merge(&ca, &json!({"data": {"ca.crt": "somebody else's"}})).await;
    world.delete(&account, "Background").await;
    world.settle(REST).await;
    let again = world.get(&account).await.expect("an account again");
    assert_ne!(again["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(world.get(&format!("{secrets}/of-default")).await, None, "it was the first one's");
    let map = world.get(&ca).await.expect("a CA");
    assert_ne!(map["data"]["ca.crt"], "somebody else's");
    world.stays_silent(SILENCE).await;
}

#[test]
fn with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 6, &accounts_and_tokens);
}

#[test]
fn with_each_answer_lost() {
    each(FaultKind::LoseAnswer, 6, &accounts_and_tokens);
}

#[test]
fn accounts_with_every_kind_of_fault() {
    every_kind(&Options::default(), &accounts_and_tokens);
}

#[test]
fn accounts_with_random_faults() {
    several(&Options::default(), 3, (4, 12), &KINDS, &accounts_and_tokens);
}
