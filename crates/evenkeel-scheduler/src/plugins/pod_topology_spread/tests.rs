//! Compares the plugin, which maintains counts, with a direct implementation of upstream's rules, which counts all pods
//! for each attempt.

use evenkeel_api::views::{Node, Pod, TopologySpreadConstraint};
use evenkeel_component_helpers::scheduling::corev1::{
    TolerationOperators, nodeaffinity::matches_required,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::{Args, DefaultConstraint, DefaultingType, PodTopologySpread, WhenUnsatisfiable};
use crate::{
    fixtures::{info, merge, node, table},
    framework::{Change, CycleState, Delta, Plugin, PreFilter, PreFilterResult, QueueingHint},
    plugins::random_cluster::{
        HOST, RandomCluster, ZONE, filter_results, filter_results_of_state, pod_of, scores, steps,
    },
};

/// Returns a constraint by number, which selects its fields.
fn constraint(n: u8, when_unsatisfiable: &str) -> Value {
    let key = [ZONE, HOST, "rack"][usize::from(n / 3) % 3];
    let mut constraint = json!({
        "maxSkew": n % 3 + 1,
        "topologyKey": key,
        "whenUnsatisfiable": when_unsatisfiable,
        "labelSelector": match n / 9 % 4 {
            0 => json!({ "matchLabels": { "app": "web" } }),
            1 => json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["db", "cache"] }] }),
            2 => json!({}),
            _ => json!({ "matchExpressions": [{ "key": "app", "operator": "Exists" }] }),
        },
    });
    if n.is_multiple_of(5) {
        constraint["nodeTaintsPolicy"] = json!("Honor");
    }
    if n % 7 == 1 {
        constraint["nodeAffinityPolicy"] = json!("Ignore");
    }
    if n % 11 == 2 && when_unsatisfiable == "DoNotSchedule" {
        constraint["minDomains"] = json!(n % 4 + 1);
    }
    if n % 13 == 3 {
        constraint["matchLabelKeys"] = json!(["app", "none"]);
    }
    constraint
}

/// Returns a pod by number, with or without constraints.
fn numbered_pod(n: u8) -> Value {
    let hard = |n| constraint(n, "DoNotSchedule");
    let soft = |n| constraint(n, "ScheduleAnyway");
    let constraints = match n % 6 {
        0 => json!([]),
        1 => json!([hard(n)]),
        2 => json!([hard(n), hard(n / 2)]),
        3 => json!([soft(n), soft(n / 3)]),
        4 => json!([soft(n)]),
        _ => json!([hard(n / 2), soft(n), soft(n / 2)]),
    };
    let mut pod = pod_of(n, &json!({ "spec": { "topologySpreadConstraints": constraints } }));
    if n % 4 == 1 {
        merge(&mut pod, &json!({ "spec": { "nodeSelector": { ZONE: "a" } } }));
    }
    pod
}

fn constraints_of<'a>(pod: &'a Pod, when_unsatisfiable: &str) -> Vec<&'a TopologySpreadConstraint> {
    pod.spec
        .topology_spread_constraints
        .iter()
        .filter(|constraint| &*constraint.when_unsatisfiable == when_unsatisfiable)
        .collect()
}

/// Returns whether the labels of `other` match a constraint of `pod`.
fn matches(constraint: &TopologySpreadConstraint, pod: &Pod, other: &Pod) -> bool {
    let keys = constraint.match_label_keys.iter();
    let mut keys = keys.filter(|key| pod.meta.labels.contains(key));
    constraint.label_selector.matches(&other.meta.labels)
        && keys.all(|key| pod.meta.labels.get(key) == other.meta.labels.get(key))
}

/// Returns the number of pods on a node that the constraint counts.
fn count_on(
    cluster: &RandomCluster,
    constraint: &TopologySpreadConstraint,
    pod: &Pod,
    node: &Node,
) -> i64 {
    let with_match_label_keys =
        constraint.match_label_keys.iter().any(|key| pod.meta.labels.contains(key));
    if constraint.label_selector.is_everything() && !with_match_label_keys {
        return 0;
    }
    let counted = cluster.placed().filter(|(other, other_node)| {
        other_node.meta.name == node.meta.name
            && other.meta.namespace == pod.meta.namespace
            && !other.meta.deleting()
            && matches(constraint, pod, other)
    });
    counted.count() as i64
}

/// Returns whether the constraint's policies for node affinity and taints include the node.
fn is_included(constraint: &TopologySpreadConstraint, pod: &Pod, node: &Node) -> bool {
    (&*constraint.node_affinity_policy == "Ignore" || matches_required(&pod.spec, node))
        && (&*constraint.node_taints_policy != "Honor"
            || TolerationOperators::default()
                .find_untolerated_taint(&pod.spec.tolerations, &node.spec.taints)
                .is_none())
}

fn has_topology_keys(constraints: &[&TopologySpreadConstraint], node: &Node) -> bool {
    constraints.iter().all(|constraint| node.meta.labels.contains(&constraint.topology_key))
}

/// Returns the reason to reject each node, or an empty string for a feasible node.
fn expected(cluster: &RandomCluster, pod: &Pod) -> BTreeMap<String, String> {
    let hard = constraints_of(pod, "DoNotSchedule");
    let domains = |constraint: &TopologySpreadConstraint| {
        let mut domains: BTreeMap<&str, i64> = BTreeMap::new();
        for node in cluster.nodes.values().filter(|node| has_topology_keys(&hard, node)) {
            if is_included(constraint, pod, node) {
                let value = node.meta.labels.get(&constraint.topology_key).unwrap();
                *domains.entry(value).or_insert(0) += count_on(cluster, constraint, pod, node);
            }
        }
        domains
    };
    let domains: Vec<BTreeMap<&str, i64>> =
        hard.iter().map(|constraint| domains(constraint)).collect();
    let rejection = |node: &Node| {
        for (constraint, domains) in hard.iter().zip(&domains) {
            let Some(value) = node.meta.labels.get(&constraint.topology_key) else {
                return "node(s) didn't match pod topology spread constraints (missing required label)";
            };
            let has_min_domains = domains.len() >= constraint.min_domains.unwrap_or(1) as usize;
            let min_count =
                if has_min_domains { domains.values().min().copied().unwrap_or(0) } else { 0 };
            let self_match = i64::from(matches(constraint, pod, pod));
            let count = domains.get(value).copied().unwrap_or(0);
            if count + self_match - min_count > i64::from(constraint.max_skew) {
                return "node(s) didn't match pod topology spread constraints";
            }
        }
        ""
    };
    cluster.nodes.iter().map(|(name, node)| (name.clone(), rejection(node).to_owned())).collect()
}

fn expected_scores(cluster: &RandomCluster, pod: &Pod) -> Option<BTreeMap<String, i64>> {
    let soft = constraints_of(pod, "ScheduleAnyway");
    if soft.is_empty() {
        return None;
    }
    let is_scored = |node: &Node| has_topology_keys(&soft, node);
    let mut raw: BTreeMap<&str, f64> = BTreeMap::new();
    for constraint in &soft {
        let value =
            |node: &'_ Node| node.meta.labels.get(&constraint.topology_key).map(str::to_owned);
        let mut domains: BTreeMap<String, i64> = BTreeMap::new();
        for node in cluster.nodes.values().filter(|node| is_scored(node)) {
            let count = if is_included(constraint, pod, node) {
                count_on(cluster, constraint, pod, node)
            } else {
                0
            };
            *domains.entry(value(node).unwrap()).or_insert(0) += count;
        }
        let by_host = &*constraint.topology_key == HOST;
        let n_scored = cluster.nodes.values().filter(|node| is_scored(node)).count();
        let n_domains = if by_host { n_scored } else { domains.len() };
        let weight = ((n_domains + 2) as f64).ln();
        for (name, node) in cluster.nodes.iter().filter(|(_, node)| is_scored(node)) {
            let count = if by_host {
                count_on(cluster, constraint, pod, node)
            } else {
                domains[&value(node).unwrap()]
            };
            *raw.entry(name).or_insert(0.0) +=
                count as f64 * weight + f64::from(constraint.max_skew - 1);
        }
    }
    let raw: BTreeMap<&str, i64> =
        raw.into_iter().map(|(name, raw)| (name, raw.round() as i64)).collect();
    let (min, max) =
        (raw.values().min().copied().unwrap_or(0), raw.values().max().copied().unwrap_or(0));
    let scaled = |name: &str| match raw.get(name) {
        None => 0,
        Some(_) if max == 0 => 100,
        Some(raw) => 100 * (max + min - raw) / max,
    };
    Some(cluster.nodes.keys().map(|name| (name.clone(), scaled(name))).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// After any series of events, the plugin filters and scores each node as if it had counted all pods again.
    #[test]
    fn results_equal_those_of_a_full_count(steps in steps(), n in any::<u8>()) {
        let cluster = RandomCluster::after(&steps, numbered_pod);
        let plugin = PodTopologySpread::default();
        let pod = info("new", &numbered_pod(n));
        prop_assert_eq!(filter_results(&plugin, &cluster.table, &pod), expected(&cluster, &pod.pod));
        if !cluster.nodes.is_empty() {
            prop_assert_eq!(scores(&plugin, &cluster.table, &pod), expected_scores(&cluster, &pod.pod));
        }
    }

    /// `add_pod` and `remove_pod` change the cycle's state as if the pod were on the node or removed from it. Like
    /// upstream, an empty selector only counts pods that are added this way.
    #[test]
    fn add_pod_equals_a_pod_on_the_node(steps in steps(), n in any::<u8>(), other in any::<u8>(), node in 0_u8..4) {
        let mut cluster = RandomCluster::after(&steps, numbered_pod);
        let (pod, other) = (info("new", &numbered_pod(n)), info("other", &numbered_pod(other)));
        let has_empty_selector =
            |constraint: &TopologySpreadConstraint| constraint.label_selector.is_everything();
        if pod.pod.spec.topology_spread_constraints.iter().any(has_empty_selector) {
            return Ok(());
        }
        let plugin = PodTopologySpread::default();
        let node_name = format!("n{node}");
        let mut state = CycleState::default();
        let pre_filter_result = PreFilter::pre_filter(&plugin, &mut state, &pod, &cluster.table).unwrap();
        let Some(node) = cluster.table.get(&node_name).filter(|_| pre_filter_result == PreFilterResult::All) else { return Ok(()) };
        plugin.add_pod(&mut state, &pod, &other, node);
        let results_with_other = filter_results_of_state(&plugin, &state, &pod, &cluster.table);
        plugin.remove_pod(&mut state, &pod, &other, node);
        let results_without_other = filter_results_of_state(&plugin, &state, &pod, &cluster.table);
        prop_assert_eq!(results_without_other, filter_results(&plugin, &cluster.table, &pod));
        cluster.table.place(other, &node_name);
        prop_assert_eq!(results_with_other, filter_results(&plugin, &cluster.table, &pod));
    }
}

#[test]
fn a_pod_fits_only_the_domains_with_the_fewest_pods() {
    let node_in_zone =
        |name: &str, zone: &str| node(name, &json!({ "metadata": { "labels": { ZONE: zone } } }));
    let mut nodes = table(&[node_in_zone("a", "a"), node_in_zone("b", "b"), node("c", &json!({}))]);
    let web = json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } } }] } });
    let plugin = PodTopologySpread::default();
    let check = |nodes: &_, expected: [&str; 3]| {
        let filter_results = filter_results(&plugin, nodes, &info("p", &web));
        assert_eq!(filter_results.into_values().collect::<Vec<_>>(), expected);
    };
    let unlabelled =
        "node(s) didn't match pod topology spread constraints (missing required label)";
    let skewed = "node(s) didn't match pod topology spread constraints";
    check(&nodes, ["", "", unlabelled]);
    nodes.place(info("first", &web), "a");
    check(&nodes, [skewed, "", unlabelled]);
    nodes.place(info("second", &web), "b");
    check(&nodes, ["", "", unlabelled]);
}

#[test]
fn default_constraints_apply_only_to_pods_of_services_and_workloads() {
    let nodes = table(&[node("a", &json!({}))]);
    let hard = DefaultConstraint {
        max_skew: 1,
        topology_key: ZONE.into(),
        when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
    };
    let args = Args {
        default_constraints: vec![hard],
        defaulting_type: DefaultingType::List,
        ..Args::default()
    };
    for plugin in [PodTopologySpread::default(), PodTopologySpread::new(args)] {
        let filter_results = filter_results(&plugin, &nodes, &info("p", &json!({})));
        assert_eq!(filter_results.into_values().collect::<Vec<_>>(), [""]);
    }
}

#[test]
fn match_label_keys_can_be_disabled() {
    let mut nodes = table(&["a", "b"].map(|name| node(name, &json!({}))));
    let constraint = json!({ "maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } }, "matchLabelKeys": ["version"] });
    let pod = |name: &str, version: &str| {
        let labels = json!({ "app": "web", "version": version });
        let spec = json!({ "topologySpreadConstraints": [constraint] });
        info(name, &json!({ "metadata": { "labels": labels }, "spec": spec }))
    };
    nodes.place(pod("first", "1"), "a");
    for (match_label_keys, fits) in [(true, ["", ""]), (false, ["no", ""])] {
        let args = Args { match_label_keys, ..Args::default() };
        let filter_results = filter_results(&PodTopologySpread::new(args), &nodes, &pod("p", "2"));
        let found = filter_results.values().map(|reason| if reason.is_empty() { "" } else { "no" });
        assert_eq!(found.collect::<Vec<_>>(), fits, "{match_label_keys}");
    }
}

#[test]
fn nodes_with_taints_that_are_compared_count_with_the_feature_gate() {
    let tainted =
        json!({ "spec": { "taints": [{ "key": "sla", "value": "950", "effect": "NoSchedule" }] } });
    let mut nodes = table(&[node("a", &json!({})), node("b", &tainted)]);
    let constraint = json!({ "maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } }, "nodeTaintsPolicy": "Honor" });
    let pod = |name: &str| {
        let tolerations = json!([{ "key": "sla", "operator": "Gt", "value": "900" }]);
        let spec = json!({ "topologySpreadConstraints": [constraint], "tolerations": tolerations });
        info(name, &json!({ "metadata": { "labels": { "app": "web" } }, "spec": spec }))
    };
    nodes.place(pod("first"), "a");
    // The empty domain of `b` counts only if its taint is tolerated.
    for (enabled, fits) in [(true, ["no", ""]), (false, ["", ""])] {
        let toleration_operators = TolerationOperators::with_comparison(enabled);
        let args = Args { toleration_operators, ..Args::default() };
        let filter_results = filter_results(&PodTopologySpread::new(args), &nodes, &pod("p"));
        let found = filter_results.values().map(|reason| if reason.is_empty() { "" } else { "no" });
        assert_eq!(found.collect::<Vec<_>>(), fits, "{enabled}");
    }
}

#[test]
fn hints_queue_pods_after_changes_that_may_satisfy_a_constraint() {
    let plugin = PodTopologySpread::default();
    let constraint = |more: &Value| {
        let mut constraint = json!({ "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": { "matchLabels": { "app": "web" } } });
        merge(&mut constraint, more);
        json!({ "spec": { "topologySpreadConstraints": [constraint] } })
    };
    let waiting = info("p", &constraint(&json!({})));
    let labelled = |app: &str| info("o", &json!({ "metadata": { "labels": { "app": app } } }));
    let other_namespace =
        info("o", &json!({ "metadata": { "namespace": "bank", "labels": { "app": "web" } } }));
    for (n, (edit, expected)) in [
        (Delta::Added(labelled("web")), QueueingHint::Queue),
        (Delta::Added(labelled("db")), QueueingHint::Skip),
        (Delta::Added(other_namespace), QueueingHint::Skip),
        (Delta::Deleted(labelled("web")), QueueingHint::Queue),
        (Delta::Updated { old: labelled("web"), new: labelled("db") }, QueueingHint::Queue),
        (Delta::Updated { old: labelled("x"), new: labelled("db") }, QueueingHint::Skip),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(plugin.queueing_hint(&waiting, &Change::AssignedPod(edit)), expected, "{n}");
    }
    let zone = |zone: Option<&str>, taints: Value| {
        let labels = zone.map_or(json!({}), |zone| json!({ ZONE: zone }));
        node("a", &json!({ "metadata": { "labels": labels }, "spec": { "taints": taints } }))
    };
    let taint = || json!([{ "key": "k", "effect": "NoSchedule" }]);
    let (without_zone, in_z, in_y) =
        (zone(None, json!([])), zone(Some("z"), json!([])), zone(Some("y"), json!([])));
    let updated = |old: &std::sync::Arc<Node>, new: &std::sync::Arc<Node>| Delta::Updated {
        old: old.clone(),
        new: new.clone(),
    };
    for (n, (edit, expected)) in [
        (Delta::Added(in_z.clone()), QueueingHint::Queue),
        (Delta::Added(without_zone.clone()), QueueingHint::Skip),
        (Delta::Deleted(in_z.clone()), QueueingHint::Queue),
        (Delta::Deleted(without_zone.clone()), QueueingHint::Skip),
        (updated(&without_zone, &in_z), QueueingHint::Queue),
        (updated(&in_z, &without_zone), QueueingHint::Queue),
        (updated(&in_y, &in_z), QueueingHint::Queue),
        (updated(&in_z, &in_z), QueueingHint::Skip),
        (updated(&zone(Some("z"), taint()), &in_z), QueueingHint::Queue),
        (updated(&zone(None, taint()), &without_zone), QueueingHint::Skip),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(plugin.queueing_hint(&waiting, &Change::Node(edit)), expected, "{n}");
    }
    let before_and_with_toleration = |policy: &str| {
        let mut with_toleration = constraint(&json!({ "nodeTaintsPolicy": policy }));
        merge(
            &mut with_toleration,
            &json!({ "spec": { "tolerations": [{ "operator": "Exists" }] } }),
        );
        (
            info("p", &constraint(&json!({ "nodeTaintsPolicy": policy }))),
            info("p", &with_toleration),
        )
    };
    for (policy, expected) in [("Honor", QueueingHint::Queue), ("Ignore", QueueingHint::Skip)] {
        let (old, new) = before_and_with_toleration(policy);
        assert_eq!(
            plugin.queueing_hint(&new.clone(), &Change::TargetPodUpdate { old, new }),
            expected,
            "{policy}"
        );
    }
}
