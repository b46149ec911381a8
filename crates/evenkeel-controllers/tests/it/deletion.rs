//! Deletions that dependents or pods delay.

use crate::world::World;
use serde_json::{Value, json};
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn owners(map: &Value) -> usize {
    map["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len)
}

#[tokio::test(start_paused = true)]
async fn failed_orphaning_of_one_dependent_does_not_block_others() {
    let world = World::with(&["garbage-collector-controller"]).await;
    let map = |name: &str| json!({ "metadata": { "name": name } });
    let owner = world.create(MAPS, &map("owner")).await;
    let reference = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
    });
    for name in ["a", "b", "stuck", "y", "z"] {
        let mut dependent = map(name);
        dependent["metadata"]["ownerReferences"] = json!([reference]);
        world.create(MAPS, &dependent).await;
    }
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["UPDATE"],
    });
    let policy = json!({
        "metadata": { "name": "keep" },
        "spec": {
            "matchConstraints": { "resourceRules": [rule] },
            "validations": [{ "expression": "object.metadata.name != 'stuck'" }],
        },
    });
    world.create(&format!("{POLICIES}/validatingadmissionpolicies"), &policy).await;
    let binding = json!({
        "metadata": { "name": "keep" }, "spec": { "policyName": "keep", "validationActions": ["Deny"] },
    });
    let bindings = format!("{POLICIES}/validatingadmissionpolicybindings");
    world.create(&bindings, &binding).await;
    pass(10).await;

    world.delete(&format!("{MAPS}/owner"), &json!({ "propagationPolicy": "Orphan" })).await;
    pass(60).await;
    let mut left = Vec::new();
    for name in ["a", "b", "stuck", "y", "z"] {
        left.push(owners(&world.get(&format!("{MAPS}/{name}")).await.unwrap()));
    }
    assert_eq!(left, [0, 0, 1, 0, 0]);
    assert!(
        world.get(&format!("{MAPS}/owner")).await.is_some(),
        "the owner waits for the last dependent"
    );

    world.delete(&format!("{bindings}/keep"), &json!({})).await;
    pass(1100).await;
    assert_eq!(owners(&world.get(&format!("{MAPS}/stuck")).await.unwrap()), 0);
    assert_eq!(world.get(&format!("{MAPS}/owner")).await, None);
}

#[tokio::test(start_paused = true)]
async fn namespace_is_deleted_before_an_unused_grace_period_ends() {
    const NAMESPACE: &str = "/api/v1/namespaces/ns";
    let world = World::with(&["namespace-controller"]).await;
    let pod = json!({ "metadata": { "name": "slow" }, "spec": {
        "nodeName": "n", "terminationGracePeriodSeconds": 3600,
        "containers": [{ "name": "c", "image": "one" }],
    } });
    world.create(&format!("{NAMESPACE}/pods"), &pod).await;
    world.run_pods().await;
    world.delete(NAMESPACE, &json!({})).await;
    pass(10).await;
    let pod = world.get(&format!("{NAMESPACE}/pods/slow")).await.unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod:#}");
    let namespace = world.get(NAMESPACE).await.unwrap();
    assert_eq!(namespace["status"]["phase"], "Terminating");

    world.delete(&format!("{NAMESPACE}/pods/slow"), &json!({ "gracePeriodSeconds": 0 })).await;
    pass(300).await;
    assert_eq!(world.get(NAMESPACE).await, None);
}
