//! Compares the plugin's results with upstream's rules, which the tests apply to each pod separately.

use evenkeel_api::views::{Node, Pod, PodAffinityTerm};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

use super::{Args, InterPodAffinity, hint};
use crate::{
    fixtures::{info, node, pod, table},
    framework::{Change, CycleState, Delta, PreFilter, QueueingHint},
    nodes::{RuleKind, terms},
    plugins::random_cluster::{
        HOST, RandomCluster, ZONE, filter_results, filter_results_of_state, pod_of, scores, steps,
    },
    pod::PodInfo,
};

/// Returns a term by number. The number selects its namespaces, topology key and selector.
fn term(n: u8) -> Value {
    let key = [HOST, ZONE, "rack"][usize::from(n) % 3];
    let mut term = json!({
        "topologyKey": key,
        "labelSelector": match n / 3 % 4 {
            0 => json!({ "matchLabels": { "app": "web" } }),
            1 => json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["db"] }] }),
            2 => json!({}),
            _ => json!({ "matchLabels": { "app": "db" } }),
        },
    });
    match n / 12 % 5 {
        0 => term["namespaces"] = json!(["bank"]),
        1 => term["namespaceSelector"] = json!({ "matchLabels": { "team": "red" } }),
        2 => term["namespaceSelector"] = json!({}),
        _ => {}
    }
    term
}

/// Returns a pod by number, with or without affinity.
fn numbered_pod(n: u8) -> Value {
    let preferred = |weight: u8, n: u8| json!([{ "weight": weight, "podAffinityTerm": term(n) }]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred_terms = "preferredDuringSchedulingIgnoredDuringExecution";
    let affinity = match n % 7 {
        0 => json!({}),
        1 => json!({ "podAffinity": { required: [term(n)] } }),
        2 => json!({ "podAffinity": { required: [term(n), term(n / 2)] } }),
        3 => json!({ "podAntiAffinity": { required: [term(n)] } }),
        4 => json!({ "podAntiAffinity": { required: [term(n), term(n / 3)] } }),
        5 => json!({ "podAffinity": { preferred_terms: preferred(n % 100 + 1, n) } }),
        _ => {
            let affinity = json!({ preferred_terms: preferred(3, n / 2) });
            let anti_affinity =
                json!({ preferred_terms: preferred(n % 10 + 1, n), required: [term(n / 5)] });
            json!({ "podAffinity": affinity, "podAntiAffinity": anti_affinity })
        }
    };
    pod_of(n, &json!({ "spec": { "affinity": affinity } }))
}

/// Returns the topology key of the term and the node's value of it.
fn topology_pair<'a>(node: &'a Node, term: &PodAffinityTerm) -> Option<(String, &'a str)> {
    Some((term.topology_key.to_string(), node.meta.labels.get(&term.topology_key)?))
}

/// Returns the pod's terms of this kind.
fn terms_of_kind(pod: &Pod, wanted_kind: RuleKind) -> Vec<&PodAffinityTerm> {
    terms(pod).filter(|(kind, _)| *kind == wanted_kind).map(|(_, term)| term).collect()
}

/// Returns the message that rejects each node, or an empty one, computed from the objects alone.
fn expected(cluster: &RandomCluster, pod: &Pod) -> BTreeMap<String, String> {
    let (affinity, anti_affinity) =
        (terms_of_kind(pod, RuleKind::Affinity), terms_of_kind(pod, RuleKind::AntiAffinity));
    let matches_affinity = |other: &Pod| {
        !affinity.is_empty() && affinity.iter().all(|term| cluster.matches(term, pod, other))
    };
    let (mut affinity_pairs, mut anti_affinity_pairs, mut excluded_pairs) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (other, node) in cluster.placed() {
        if matches_affinity(other) {
            affinity_pairs.extend(affinity.iter().filter_map(|term| topology_pair(node, term)));
        }
        for term in anti_affinity.iter().filter(|term| cluster.matches(term, pod, other)) {
            anti_affinity_pairs.extend(topology_pair(node, term));
        }
        for term in terms_of_kind(other, RuleKind::AntiAffinity) {
            if cluster.matches(term, other, pod) {
                excluded_pairs.extend(topology_pair(node, term));
            }
        }
    }
    let rejection = |node: &Node| {
        let pairs = |terms: &[&PodAffinityTerm]| -> Vec<_> {
            terms.iter().filter_map(|term| topology_pair(node, term)).collect()
        };
        let has_topology_keys = pairs(&affinity).len() == affinity.len();
        let has_affinity = pairs(&affinity).iter().all(|pair| affinity_pairs.contains(pair));
        let is_first_of_group = affinity_pairs.is_empty() && matches_affinity(pod);
        if !has_topology_keys || !(has_affinity || is_first_of_group) {
            return "node(s) didn't match pod affinity rules";
        }
        if pairs(&anti_affinity).iter().any(|pair| anti_affinity_pairs.contains(pair)) {
            return "node(s) didn't match pod anti-affinity rules";
        }
        let mut labels = node.meta.labels.iter().map(|(key, value)| (key.to_owned(), value));
        if labels.any(|pair| excluded_pairs.contains(&pair)) {
            return "node(s) didn't satisfy existing pods anti-affinity rules";
        }
        ""
    };
    cluster.nodes.iter().map(|(name, node)| (name.clone(), rejection(node).to_owned())).collect()
}

/// Returns the score of each node, computed from the objects alone.
fn expected_scores(
    cluster: &RandomCluster,
    pod: &Pod,
    args: &Args,
) -> Option<BTreeMap<String, i64>> {
    let own_terms: Vec<_> = terms(pod).collect();
    let has_preferences = own_terms.iter().any(|(kind, _)| matches!(kind, RuleKind::Preference(_)));
    if args.ignore_preferred_terms_of_existing_pods && !has_preferences {
        return None;
    }
    let mut sums: BTreeMap<(String, &str), i64> = BTreeMap::new();
    let mut add = |pair: Option<(String, _)>, weight: i32| {
        pair.into_iter().for_each(|pair| *sums.entry(pair).or_insert(0) += i64::from(weight));
    };
    for (other, node) in cluster.placed() {
        for (kind, term) in &own_terms {
            if let RuleKind::Preference(weight) = kind
                && cluster.matches(term, pod, other)
            {
                add(topology_pair(node, term), *weight);
            }
        }
        for (kind, term) in terms(other) {
            let weight = match kind {
                RuleKind::Preference(weight) => weight,
                RuleKind::Affinity if args.hard_pod_affinity_weight > 0 => {
                    args.hard_pod_affinity_weight
                }
                _ => continue,
            };
            if cluster.matches(term, other, pod) {
                add(topology_pair(node, term), weight);
            }
        }
    }
    if sums.is_empty() {
        return None;
    }
    let sum = |node: &Node| -> i64 {
        let pairs = node.meta.labels.iter().map(|(key, value)| (key.to_owned(), value));
        pairs.filter_map(|pair| sums.get(&pair)).sum()
    };
    let raw: BTreeMap<String, i64> =
        cluster.nodes.iter().map(|(name, node)| (name.clone(), sum(node))).collect();
    let (min, max) = (raw.values().min().copied()?, raw.values().max().copied()?);
    let scaled = |raw: i64| match max - min {
        0 => 0,
        range => (100.0 * ((raw - min) as f64 / range as f64)) as i64,
    };
    Some(raw.into_iter().map(|(name, raw)| (name, scaled(raw))).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// After any history, the plugin gives each node the result that a check of every pod gives.
    #[test]
    fn counts_equal_those_of_a_new_table(steps in steps(), n in any::<u8>(), ignore_preferred_terms in any::<bool>(), weight in 0_i32..3) {
        let cluster = RandomCluster::after(&steps, numbered_pod);
        let args = Args { hard_pod_affinity_weight: weight, ignore_preferred_terms_of_existing_pods: ignore_preferred_terms };
        let plugin = InterPodAffinity::new(args.clone());
        let pod = info("new", &numbered_pod(n));
        prop_assert_eq!(filter_results(&plugin, &cluster.table, &pod), expected(&cluster, &pod.pod));
        if !cluster.nodes.is_empty() {
            prop_assert_eq!(scores(&plugin, &cluster.table, &pod), expected_scores(&cluster, &pod.pod, &args));
        }
    }

    /// `add_pod` and `remove_pod` have the same effect as pods on their nodes.
    #[test]
    fn add_pod_equals_a_pod_on_the_node(steps in steps(), n in any::<u8>(), other in any::<u8>(), node in 0_u8..4) {
        let mut cluster = RandomCluster::after(&steps, numbered_pod);
        let (pod, other) = (info("new", &numbered_pod(n)), info("other", &numbered_pod(other)));
        let plugin = InterPodAffinity::default();
        let node_name = format!("n{node}");
        let mut state = CycleState::default();
        let pre_filter_result = PreFilter::pre_filter(&plugin, &mut state, &pod, &cluster.table).unwrap();
        let is_filtered = pre_filter_result == crate::framework::PreFilterResult::All;
        let Some(node) = cluster.table.get(&node_name).filter(|_| is_filtered) else { return Ok(()) };
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
fn the_first_pod_of_a_group_fits_every_node_with_the_topology_key() {
    let node_in_zone = node("a", &json!({ "metadata": { "labels": { ZONE: "z" } } }));
    let mut nodes = table(&[node_in_zone, node("b", &json!({}))]);
    let pod_near_web = |app: &str| {
        let term =
            json!({ "topologyKey": ZONE, "labelSelector": { "matchLabels": { "app": "web" } } });
        json!({ "metadata": { "labels": { "app": app } }, "spec": { "affinity": { "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [term] } } } })
    };
    let rejections = |nodes: &_, app| {
        let plugin = InterPodAffinity::default();
        filter_results(&plugin, nodes, &info("p", &pod_near_web(app)))
            .into_values()
            .collect::<Vec<_>>()
    };
    let mismatch = "node(s) didn't match pod affinity rules";
    assert_eq!(rejections(&nodes, "web"), ["", mismatch]);
    assert_eq!(rejections(&nodes, "other"), [mismatch, mismatch]);
    nodes.place(info("first", &pod_near_web("web")), "a");
    assert_eq!(rejections(&nodes, "other"), ["", mismatch]);
}

#[test]
fn hints_queue_pods_after_changes_that_may_satisfy_their_terms() {
    let term = |app: &str| json!({ "topologyKey": ZONE, "labelSelector": { "matchLabels": { "app": app } } });
    let pod_with_term = |kind: &str, app: &str| json!({ "spec": { "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": [term(app)] } } } });
    let labelled = |app: &str| info("o", &json!({ "metadata": { "labels": { "app": app } } }));
    let (near, away) = (
        pod("p", &pod_with_term("podAffinity", "web")),
        pod("p", &pod_with_term("podAntiAffinity", "web")),
    );
    let updated = |old: &str, new: &str| Delta::Updated { old: labelled(old), new: labelled(new) };
    let pods: [(&Pod, Delta<PodInfo>, QueueingHint); 8] = [
        (&near, Delta::Added(labelled("web")), QueueingHint::Queue),
        (&near, Delta::Added(labelled("db")), QueueingHint::Skip),
        (&near, updated("db", "web"), QueueingHint::Queue),
        (&near, Delta::Deleted(labelled("web")), QueueingHint::Skip),
        (&away, Delta::Deleted(labelled("web")), QueueingHint::Queue),
        (&away, Delta::Added(labelled("web")), QueueingHint::Skip),
        (&away, updated("web", "db"), QueueingHint::Queue),
        (&away, updated("db", "web"), QueueingHint::Skip),
    ];
    for (n, (pod, edit, expected)) in pods.into_iter().enumerate() {
        assert_eq!(hint::hint(pod, &Change::AssignedPod(edit)), expected, "{n}");
    }
    let zone = |zone: Option<&str>| match zone {
        Some(zone) => node("a", &json!({ "metadata": { "labels": { ZONE: zone } } })),
        None => node("a", &json!({})),
    };
    let moved = |old, new| Delta::Updated { old: zone(old), new: zone(new) };
    let nodes = [
        (&near, Delta::Added(zone(Some("z"))), QueueingHint::Queue),
        (&near, Delta::Added(zone(None)), QueueingHint::Skip),
        (&near, moved(None, Some("z")), QueueingHint::Queue),
        (&near, moved(Some("z"), None), QueueingHint::Skip),
        (&near, moved(Some("y"), Some("z")), QueueingHint::Queue),
        (&away, Delta::Added(zone(None)), QueueingHint::Queue),
        (&away, moved(Some("z"), None), QueueingHint::Queue),
        (&away, moved(None, Some("z")), QueueingHint::Skip),
        (&away, moved(Some("z"), Some("z")), QueueingHint::Skip),
    ];
    for (n, (pod, edit, expected)) in nodes.into_iter().enumerate() {
        assert_eq!(hint::hint(pod, &Change::Node(edit)), expected, "{n}");
    }
}
