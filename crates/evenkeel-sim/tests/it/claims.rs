//! Under faults, a pod gets exactly one ResourceClaim for each entry.

use crate::fixtures::{KINDS, MINUTE, PODS, REST, SILENCE, bare_pod, each, every_kind, several};
use evenkeel_sim::{FaultKind, Faults, Options, World};
use serde_json::{Value, json};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";

/// Two claims are created and reserved for a pod, and deleted with it.
pub(crate) async fn create_and_release(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "c.test"}}]);
    let template =
        json!({"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": requests}}}});
    world.create(TEMPLATES, &template).await;
    let mut pod = bare_pod("p");
    pod["spec"]["schedulerName"] = json!("nobody");
    pod["spec"]["resourceClaims"] = json!([
        {"name": "one", "resourceClaimTemplateName": "t"}, {"name": "other", "resourceClaimTemplateName": "t"},
    ]);
    world.create(PODS, &pod).await;
    let n_claims =
        |pod: &Value| pod["status"]["resourceClaimStatuses"].as_array().map_or(0, Vec::len);
    world
        .until("the status of the pod names both", 10 * MINUTE, async |user| {
            user.get(&format!("{PODS}/p")).await.is_some_and(|pod| n_claims(&pod) == 2)
        })
        .await;
    world.settle(REST).await;
    assert_eq!(world.list(CLAIMS).await.len(), 2);
    world.merge(&format!("{PODS}/p/status"), &json!({"status": {"phase": "Failed"}})).await;
    world.until("both go", 10 * MINUTE, async |user| user.list(CLAIMS).await.is_empty()).await;
    world.settle(REST).await;
    world.stays_silent(SILENCE).await;
}

#[test]
fn with_a_crash_after_each_write() {
    each(FaultKind::CrashAfter, 5, &create_and_release);
}

#[test]
fn with_each_answer_lost() {
    each(FaultKind::LoseAnswer, 5, &create_and_release);
}

#[test]
fn claims_with_every_kind_of_fault() {
    every_kind(&Options::default(), &create_and_release);
}

#[test]
fn claims_with_random_faults() {
    several(&Options::default(), 3, (4, 12), &KINDS, &create_and_release);
}
