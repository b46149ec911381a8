//! That classes and scopes come and go without losing anybody.

use serde_json::json;

use super::{Census, Scope};
use crate::fixtures::pod;
use evenkeel_api::selector::Selector;

fn in_scope(census: &Census, scope: super::ScopeId) -> u32 {
    census.members(scope).flat_map(|class| class.nodes().iter().map(|(_, n)| n)).sum()
}

#[test]
fn what_nobody_needs_is_forgotten_and_found_out_again() {
    let mut census = Census::default();
    let labelled = |n: usize| {
        pod(
            &format!("p{n}"),
            &json!({ "metadata": { "labels": { "app": "web", "n": n.to_string() } } }),
        )
    };
    let web = || Scope::within("shop", Selector::parse("app=web").unwrap());
    let kept = census.enter(&labelled(0), 7);
    for n in 1..2000 {
        let class = census.enter(&labelled(n), 3);
        let scope =
            census.scope(Scope::within("shop", Selector::parse(&format!("n={n}")).unwrap()));
        assert_eq!(in_scope(&census, scope), 1);
        let scope = census.scope(web());
        assert_eq!(in_scope(&census, scope), 2, "the first and this one");
        census.leave(class, 3);
    }
    assert!(census.classes.len() < 600 && census.scopes.len() < 1800, "empty classes are swept");
    assert!(census.is_of(kept, &labelled(0)));
    census.leave(kept, 7);
    let scope = census.scope(web());
    assert_eq!(in_scope(&census, scope), 0);
}

#[test]
fn pods_of_one_kind_are_one_class() {
    let mut census = Census::default();
    let with = |name: &str, more| pod(name, &json!({ "spec": more }));
    let near = json!({ "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "zone", "labelSelector": {} } ] } } });
    let plain = census.enter(&with("a", json!({})), 1);
    assert_eq!(census.enter(&with("b", json!({ "priority": 5 })), 1), plain);
    // Affinity to nodes tells no pods apart.
    let to_nodes = json!({ "affinity": { "nodeAffinity": {} } });
    assert_eq!(census.enter(&with("c", to_nodes), 2), plain);
    let other = census.enter(&with("d", near.clone()), 2);
    assert_ne!(other, plain);
    assert_eq!(census.enter(&with("e", near), 2), other);
    let nodes: Vec<_> = census.get(plain).unwrap().nodes().iter().collect();
    assert_eq!(nodes, [(1, 2), (2, 1)]);
}
