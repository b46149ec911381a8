//! Evictions by taints of devices over the server.

use crate::world::World;
use evenkeel_api::views::Pod;
use serde_json::{Value, json};

const CONTROLLER: &str = "device-taint-eviction-controller";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const RULES: &str = "/apis/resource.k8s.io/v1/devicetaintrules";
const PODS: &str = "/api/v1/namespaces/ns/pods";

/// Returns a published device, a claim that has it with these tolerations, and a pod on a node that uses the claim.
async fn world_with_device(tolerations: &Value) -> World {
    let world = World::with(&[CONTROLLER]).await;
    world.create(SLICES, &slice(1, &json!([]))).await;
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "c.test"}}]);
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}});
    world.create(CLAIMS, &claim).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "nodeName": "node", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "one"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
    }});
    let pod = world.create(PODS, &pod).await;
    let result = json!({"request": "r", "driver": "gpu.test", "pool": "node", "device": "d", "tolerations": tolerations});
    let status = json!({"status": {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}],
    }});
    world.merge(&format!("{CLAIMS}/c/status"), &status).await;
    world.settle().await;
    assert_eq!(world.list::<Pod>().await.len(), 1);
    world
}

fn slice(generation: u32, taints: &Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("s{generation}")},
    "spec": {
        "driver": "gpu.test", "nodeName": "node", "devices": [{"name": "d", "taints": taints}],
        "pool": {"name": "node", "generation": generation, "resourceSliceCount": 1},
    }})
}

fn rule(effect: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "rule"},
        "spec": {"deviceSelector": {"driver": "gpu.test"}, "taint": {"key": "broken", "effect": effect}}})
}

/// Returns the status, reason and message of the rule's condition.
async fn condition(world: &World) -> [String; 3] {
    let rule = world.get(&format!("{RULES}/rule")).await.unwrap();
    let conditions = rule["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 1);
    assert_eq!(conditions[0]["type"], "EvictionInProgress");
    assert_eq!(conditions[0]["observedGeneration"], rule["metadata"]["generation"]);
    ["status", "reason", "message"].map(|field| conditions[0][field].as_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn taint_in_a_slice_evicts_the_pod() {
    let world = world_with_device(&json!([])).await;
    let harmless = json!([{"key": "slow", "effect": "NoSchedule"}]);
    world.merge(&format!("{SLICES}/s1"), &slice(1, &harmless)).await;
    world.settle().await;
    assert_eq!(world.list::<Pod>().await.len(), 1);
    world.create(SLICES, &slice(2, &json!([{"key": "broken", "effect": "NoExecute"}]))).await;
    world.settle().await;
    assert!(world.list::<Pod>().await.is_empty());
    let events = world.events().await;
    assert_eq!(events, ["Normal DeviceTaintManagerEviction: Marking for deletion"]);
}

#[tokio::test(start_paused = true)]
async fn rule_reports_its_effect_and_then_evicts() {
    let world = world_with_device(&json!([])).await;
    world.create(RULES, &rule("None")).await;
    world.settle().await;
    let [status, reason, message] = condition(&world).await;
    assert_eq!((&*status, &*reason), ("False", "NoEffect"));
    let counts = "1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace";
    assert!(message.starts_with(counts), "{message}");
    let effect = json!({"spec": {"taint": {"effect": "NoExecute"}}});
    world.merge(&format!("{RULES}/rule"), &effect).await;
    world.settle().await;
    assert!(world.list::<Pod>().await.is_empty());
    let [status, reason, message] = condition(&world).await;
    assert_eq!((&*status, &*reason), ("False", "Completed"));
    assert_eq!(message, "1 pod evicted since starting the controller.");
}

#[tokio::test(start_paused = true)]
async fn tolerated_taint_is_pending_until_its_rule_is_deleted() {
    let toleration =
        json!({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600});
    let world = world_with_device(&json!([toleration])).await;
    world.create(RULES, &rule("NoExecute")).await;
    world.settle().await;
    assert_eq!(world.list::<Pod>().await.len(), 1);
    let [status, reason, message] = condition(&world).await;
    assert_eq!((&*status, &*reason), ("True", "PodsPendingEviction"));
    assert_eq!(message, "1 pod needs to be evicted in 1 namespace.");
    world.delete(&format!("{RULES}/rule"), &json!({})).await;
    world.settle().await;
    let events = world.events().await;
    assert_eq!(events, ["Normal DeviceTaintManagerEviction: Cancelling deletion"]);
    world.create(RULES, &rule("NoExecute")).await;
    tokio::time::sleep(std::time::Duration::from_secs(3601)).await;
    world.settle().await;
    assert!(world.list::<Pod>().await.is_empty());
}
