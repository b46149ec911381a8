use super::{
    plan::{Content, LimitedKind, Observed, plan},
    replenish::may_decrease_usage,
};
use crate::fixtures::{T0, at, object};
use evenkeel_api::{
    View,
    views::{PersistentVolumeClaim, ResourceQuota},
};
use evenkeel_component_helpers::quota::{Classes, Evaluator};
use evenkeel_runtime::plan::Action;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// Returns the quota `q` with these limits and this status.
fn quota(hard: &Value, status: &Value) -> Arc<ResourceQuota> {
    Arc::new(object(&json!({
        "metadata": {"name": "q", "namespace": "ns", "resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {"hard": hard}, "status": status,
    })))
}

/// Returns a counted resource with this content.
fn limited_kind(group: &str, plural: &str, content: Content) -> LimitedKind {
    LimitedKind { evaluator: Arc::new(Evaluator::new(group, plural).unwrap()), content }
}

fn decode_all<V: View>(objects: &[Value]) -> Vec<Arc<V>> {
    objects.iter().map(|value| Arc::new(object(value))).collect()
}

fn pods(pods: &[Value]) -> LimitedKind {
    limited_kind("", "pods", Content::Pods(decode_all(pods)))
}

/// Returns a pod whose container requests this CPU.
fn pod(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn observed(quota: Arc<ResourceQuota>, limited_kinds: Vec<LimitedKind>) -> Observed {
    Observed { quota, classes: Classes::default(), limited_kinds }
}

/// Returns the written status, if any.
fn status(observed: &Observed) -> Option<Value> {
    let plan = plan(observed, T0);
    let [Action::Update(update)] = &plan.actions[..] else {
        assert!(plan.actions.is_empty(), "{plan:?}");
        return None;
    };
    let body: Value = serde_json::from_slice(&update.body).expect("JSON");
    assert_eq!(body["metadata"]["resourceVersion"], "7");
    assert_eq!(body["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!((update.subresource, &*update.target.name), ("status", "q"));
    Some(body["status"].clone())
}

#[test]
fn hard_resources_are_counted() {
    let hard = json!({"pods": "5", "cpu": "2", "secrets": "3", "count/secrets": "3", "count/widgets.example.com": "1", "unknown": "1"});
    let limited_kinds = || {
        vec![
            pods(&[pod("500m"), pod("250m")]),
            limited_kind("", "secrets", Content::Count(2)),
            limited_kind("example.com", "widgets", Content::Count(0)),
        ]
    };
    let used = json!({"pods": "2", "cpu": "750m", "secrets": "2", "count/secrets": "2", "count/widgets.example.com": "0"});
    let first = status(&observed(quota(&hard, &json!({})), limited_kinds()));
    assert_eq!(first, Some(json!({"hard": hard, "used": used})));
    // An equal quantity in another notation is not written.
    let mut same = used.clone();
    same["cpu"] = json!("0.75");
    assert_eq!(
        status(&observed(quota(&hard, &json!({"hard": hard, "used": same})), limited_kinds())),
        None
    );
}

#[test]
fn uncounted_resources_keep_their_usage_and_unlimited_ones_are_dropped() {
    let hard = json!({"pods": "5", "secrets": "3"});
    let before = json!({"hard": {"pods": "4", "services": "1"}, "used": {"pods": "1", "secrets": "2", "services": "1"}});
    let written = status(&observed(quota(&hard, &before), vec![pods(&[])]));
    assert_eq!(written, Some(json!({"hard": hard, "used": {"pods": "0", "secrets": "2"}})));
}

#[test]
fn scopes_exclude_pods_and_other_resources() {
    let mut scoped = quota(&json!({"pods": "5", "secrets": "1"}), &json!({}));
    Arc::make_mut(&mut scoped).spec.scopes = Box::new(["BestEffort".into()]);
    let best_effort = json!({"spec": {"containers": [{"name": "c"}]}});
    let limited_kinds =
        vec![pods(&[pod("1"), best_effort]), limited_kind("", "secrets", Content::Count(4))];
    let written = status(&observed(scoped, limited_kinds)).expect("it is written");
    assert_eq!(written["used"], json!({"pods": "1", "secrets": "0"}));
}

#[test]
fn usage_from_two_kinds_is_summed() {
    let hard =
        json!({"requests.example.com/gpu": "9", "gpu.deviceclass.resource.k8s.io/devices": "9"});
    let class = object(
        &json!({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}),
    );
    let pod = json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "2"}}}]}});
    let pod_claim = json!({"metadata": {"name": "own", "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]},
        "spec": {"devices": {"requests": [{"exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}}]}}});
    let other = json!({"metadata": {"name": "other"}, "spec": pod_claim["spec"]});
    let claims = Content::DeviceClaims {
        claims: decode_all(&[pod_claim, other]),
        pods: decode_all(std::slice::from_ref(&pod)),
    };
    let observed = Observed {
        quota: quota(&hard, &json!({})),
        classes: [&class].into_iter().collect(),
        limited_kinds: vec![
            pods(&[pod]),
            limited_kind("resource.k8s.io", "resourceclaims", claims),
        ],
    };
    let used = status(&observed).expect("it is written")["used"].clone();
    assert_eq!(
        used,
        json!({"requests.example.com/gpu": "4", "gpu.deviceclass.resource.k8s.io/devices": "4"})
    );
}

#[test]
fn requeued_when_the_next_terminating_pod_is_overdue() {
    let terminating = |seconds: i64| {
        let meta =
            json!({"deletionTimestamp": at(seconds).to_string(), "deletionGracePeriodSeconds": 30});
        json!({"metadata": meta, "spec": {"containers": [{"name": "c"}]}})
    };
    let hard = json!({"pods": "5"});
    let status = json!({"hard": hard, "used": {"pods": "2"}});
    let observed = observed(
        quota(&hard, &status),
        vec![pods(&[terminating(-40), terminating(-20), terminating(0)])],
    );
    let plan = plan(&observed, T0);
    assert_eq!(
        plan.requeue,
        Some(Duration::from_secs(11)),
        "10 s until the next pod is overdue, plus 1 s"
    );
    assert!(plan.actions.is_empty(), "one of three pods is already overdue");
}

#[test]
fn changed_claim_storage_may_decrease_usage() {
    let claim = |requested: &str, allocated: Value, phase: &str| -> PersistentVolumeClaim {
        object(&json!({
            "spec": {"resources": {"requests": {"storage": requested}}},
            "status": {"allocatedResources": allocated, "phase": phase},
        }))
    };
    let unallocated = || json!({});
    let before = claim("10Gi", unallocated(), "Pending");
    // The claim after the update, and whether the update may decrease usage.
    let table = [
        (claim("10Gi", unallocated(), "Bound"), false),
        (claim("10240Mi", unallocated(), "Pending"), false),
        (claim("5Gi", unallocated(), "Pending"), true),
        (claim("10Gi", json!({"storage": "20Gi"}), "Pending"), true),
    ];
    for (after, want) in table {
        assert_eq!(may_decrease_usage(&before, &after, T0), want, "{after:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn usage_is_the_sum_in_any_order(mut cpus in proptest::collection::vec(0i64..5000, 0..20)) {
        let hard = json!({"requests.cpu": "100", "pods": "100"});
        let written = |cpus: &[i64]| {
            let objects: Vec<Value> = cpus.iter().map(|cpu| pod(&format!("{cpu}m"))).collect();
            status(&observed(quota(&hard, &json!({})), vec![pods(&objects)])).expect("it is written")
        };
        let first = written(&cpus);
        let used: evenkeel_api::quantity::Quantity =
            first["used"]["requests.cpu"].as_str().unwrap().parse().unwrap();
        prop_assert_eq!(used.milli_value(), cpus.iter().sum::<i64>());
        prop_assert_eq!(&first["used"]["pods"], &json!(cpus.len().to_string()));
        cpus.reverse();
        prop_assert_eq!(written(&cpus), first);
    }
}
