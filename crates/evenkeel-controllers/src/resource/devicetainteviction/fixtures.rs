//! Objects for tests: a pod with a claim of one device, its slice, and rules.

use super::taints::{NO_EXECUTE, ObservedClaim, ObservedPod, Slice};
use crate::{
    fixtures::{self, at, object},
    resource::{podclaims::Claim, rules::Rule},
};
use evenkeel_api::{time::seconds, views::Pod};
use serde_json::{Value, json};
use std::sync::Arc;

/// Number of seconds of a [`toleration`] without `tolerationSeconds`.
pub(super) const NEVER: i64 = i64::MAX;

/// Returns the pod `p` on a node, which names the claim `c`.
pub(super) fn pod() -> Pod {
    let mut pod: Pod = object(&json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "p"},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]},
    }));
    pod.meta = fixtures::meta("p");
    pod.spec.node_name = "node".into();
    pod
}

/// Returns the claim `c` with the device `d`, reserved for the pod.
pub(super) fn claim(tolerations: &Value) -> Claim {
    object(&json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "c"},
        "spec": {"devices": {}},
        "status": {
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}],
            "allocation": {"devices": {"results": [{
                "request": "r", "driver": "gpu.test", "pool": "node", "device": "d", "tolerations": tolerations,
            }]}},
        },
    }))
}

/// Returns a slice of this generation with tainted devices, each with the time of its taint in seconds after `T0`.
pub(super) fn slice(name: &str, generation: i64, devices: &[(&str, i64)]) -> Slice {
    let device = |(name, seconds): &(&str, i64)| json!({"name": name, "taints": [taint(NO_EXECUTE, *seconds)]});
    let devices: Vec<Value> = devices.iter().map(device).collect();
    object(&json!({
        "metadata": {"name": name, "uid": name},
        "spec": {
            "driver": "gpu.test", "devices": devices,
            "pool": {"name": "node", "generation": generation, "resourceSliceCount": 1},
        },
    }))
}

/// Returns a rule that selects a device of the driver by name.
pub(super) fn rule(name: &str, effect: &str, device: &str, added: i64) -> Rule {
    object(&json!({
        "metadata": {"name": name, "uid": format!("{name}-uid"), "generation": 1},
        "spec": {
            "deviceSelector": {"driver": "gpu.test", "device": device},
            "taint": taint(effect, added),
        },
    }))
}

fn taint(effect: &str, added: i64) -> Value {
    json!({"key": "k", "value": "v", "effect": effect, "timeAdded": seconds(at(added))})
}

/// Returns a toleration of `NoExecute` taints with this key, for [`NEVER`] or these seconds.
pub(super) fn toleration(key: &str, seconds: i64) -> Value {
    let seconds = (seconds != NEVER).then_some(seconds);
    json!({"key": key, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": seconds})
}

/// Returns a pod with this claim and these slices.
pub(super) fn observed_pod(pod: Pod, claim: Claim, slices: &[Slice]) -> ObservedPod {
    let slices = slices.iter().cloned().map(Arc::new).collect();
    let claims = vec![ObservedClaim { claim: Arc::new(claim), slices }];
    ObservedPod { pod: Arc::new(pod), claims, accepts_pod_groups: false }
}
