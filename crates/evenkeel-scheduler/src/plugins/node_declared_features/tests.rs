//! Tests of the features that pods need and nodes declare.

use serde_json::json;

use super::{NodeDeclaredFeatures, required_features};
use crate::{
    fixtures::{info, node, pod, table},
    framework::{
        Change, CycleState, Delta, Filter, Plugin, PreFilter, PreFilterResult, QueueingHint,
    },
};

#[test]
fn required_features_are_inferred_from_the_spec() {
    let container = |more: serde_json::Value| json!({"spec": {"containers": [more]}});
    for (spec, expected) in [
        (json!({}), vec![]),
        (
            container(
                json!({"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}),
            ),
            vec!["RestartAllContainersOnContainerExits"],
        ),
        (container(json!({"name": "c", "restartPolicyRules": [{"action": "Restart"}]})), vec![]),
        (
            json!({"spec": {"initContainers": [{"name": "i", "volumeMounts": [
                {"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/b", "bindMountOptions": ["noexec"]},
            ]}]}}),
            vec!["VolumeBindMountOptions"],
        ),
        (
            json!({"spec": {"hostNetwork": true, "hostUsers": false}}),
            vec!["UserNamespacesHostNetworkSupport"],
        ),
        (json!({"spec": {"hostNetwork": true, "hostUsers": true}}), vec![]),
        (json!({"spec": {"hostUsers": false}}), vec![]),
    ] {
        assert_eq!(required_features(&pod("p", &spec)), expected, "{spec}");
    }
}

#[test]
fn nodes_must_declare_all_required_features() {
    let nodes = table(&[
        node(
            "a",
            &json!({"status": {"declaredFeatures": ["Other", "UserNamespacesHostNetworkSupport"]}}),
        ),
        node("b", &json!({})),
    ]);
    let pod = info("p", &json!({"spec": {"hostNetwork": true, "hostUsers": false}}));
    let mut state = CycleState::default();
    assert_eq!(NodeDeclaredFeatures.pre_filter(&mut state, &pod, &nodes), Ok(PreFilterResult::All));
    assert!(NodeDeclaredFeatures.filter(&state, &pod, nodes.get("a").unwrap()).is_ok());
    let rejection = NodeDeclaredFeatures.filter(&state, &pod, nodes.get("b").unwrap()).unwrap_err();
    assert_eq!(rejection.reasons.join(", "), "node(s) didn't match Pod's required features");
    let plain = info("q", &json!({}));
    let skipped = NodeDeclaredFeatures.pre_filter(&mut CycleState::default(), &plain, &nodes);
    assert_eq!(skipped, Ok(PreFilterResult::Skip));
}

#[test]
fn a_pod_is_retried_when_its_required_features_change() {
    let pod_update = |old: serde_json::Value, new: serde_json::Value| Change::TargetPodUpdate {
        old: info("p", &old),
        new: info("p", &new),
    };
    let (with_requirement, updated) = (
        json!({"spec": {"hostNetwork": true, "hostUsers": false}}),
        json!({"spec": {"hostNetwork": true, "hostUsers": false}, "status": {"phase": "Pending", "reason": "x"}}),
    );
    let node_added = Change::Node(Delta::Added(node("a", &json!({}))));
    for (change, expected) in [
        (pod_update(with_requirement.clone(), updated), QueueingHint::Skip),
        (pod_update(with_requirement.clone(), json!({})), QueueingHint::Queue),
        (node_added, QueueingHint::Queue),
    ] {
        assert_eq!(
            NodeDeclaredFeatures.queueing_hint(&info("p", &with_requirement), &change),
            expected,
            "{change:?}"
        );
    }
}
