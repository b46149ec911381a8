//! Tests of the pod index: additions and removals of classes and scopes lose no pod.

use serde_json::json;

use super::{PodIndex, Scope};
use crate::fixtures::pod;
use evenkeel_api::selector::Selector;

/// Returns the number of pods in a scope.
fn count_pods(pod_index: &PodIndex, scope: super::ScopeId) -> u32 {
    pod_index.members(scope).flat_map(|class| class.nodes().iter().map(|(_, n)| n)).sum()
}

#[test]
fn unused_classes_and_scopes_are_dropped_and_rebuilt() {
    let mut pod_index = PodIndex::default();
    let labelled = |n: usize| {
        pod(
            &format!("p{n}"),
            &json!({ "metadata": { "labels": { "app": "web", "n": n.to_string() } } }),
        )
    };
    let web_scope = || Scope::within("shop", Selector::parse("app=web").unwrap());
    let class_of_pod_0 = pod_index.add_pod(&labelled(0), 7);
    for n in 1..2000 {
        let class = pod_index.add_pod(&labelled(n), 3);
        let scope = pod_index
            .find_or_add_scope(Scope::within("shop", Selector::parse(&format!("n={n}")).unwrap()));
        assert_eq!(count_pods(&pod_index, scope), 1);
        let scope = pod_index.find_or_add_scope(web_scope());
        assert_eq!(count_pods(&pod_index, scope), 2, "pod 0 and the new pod");
        pod_index.remove_pod(class, 3);
    }
    assert!(
        pod_index.classes.len() < 600 && pod_index.scopes.len() < 1800,
        "empty classes are swept"
    );
    assert!(pod_index.is_in_class(class_of_pod_0, &labelled(0)));
    pod_index.remove_pod(class_of_pod_0, 7);
    let scope = pod_index.find_or_add_scope(web_scope());
    assert_eq!(count_pods(&pod_index, scope), 0);
}

#[test]
fn pods_that_no_selector_distinguishes_share_a_class() {
    let mut pod_index = PodIndex::default();
    let pod_with = |name: &str, spec| pod(name, &json!({ "spec": spec }));
    let near = json!({ "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "zone", "labelSelector": {} } ] } } });
    let plain = pod_index.add_pod(&pod_with("a", json!({})), 1);
    assert_eq!(pod_index.add_pod(&pod_with("b", json!({ "priority": 5 })), 1), plain);
    // No selector distinguishes pods by their node affinity.
    let to_nodes = json!({ "affinity": { "nodeAffinity": {} } });
    assert_eq!(pod_index.add_pod(&pod_with("c", to_nodes), 2), plain);
    let other = pod_index.add_pod(&pod_with("d", near.clone()), 2);
    assert_ne!(other, plain);
    assert_eq!(pod_index.add_pod(&pod_with("e", near), 2), other);
    let nodes: Vec<_> = pod_index.get(plain).unwrap().nodes().iter().collect();
    assert_eq!(nodes, [(1, 2), (2, 1)]);
}
