//! Tests of the selection of candidates and victims.

use evenkeel_api::{
    Encoding, View as _,
    views::{Node, PodDisruptionBudget},
};
use futures::FutureExt as _;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

use super::{Args, DefaultPreemption, plan};
use crate::{
    fixtures::{info, merge, node, table, with_requests},
    framework::{Candidate, CycleState, NominatingInfo, Profile},
    nodes::NodeTable,
    pod::PodInfo,
    schedule::{Cycle, Nominator, View, schedule_pod},
};

/// Returns a pod with a priority and a CPU request, with `more` merged into it.
fn pod(name: &str, priority: i32, cpu: &str, more: &Value) -> PodInfo {
    let mut spec = with_requests(cpu, "1Mi");
    merge(&mut spec, &json!({ "spec": { "priority": priority } }));
    merge(&mut spec, more);
    info(name, &spec)
}

/// Returns a pod with this priority and CPU request.
fn simple_pod(name: &str, priority: i32, cpu: &str) -> PodInfo {
    pod(name, priority, cpu, &json!({}))
}

/// Returns a PodDisruptionBudget for pods with these labels.
fn budget(labels: &Value, allowed: i32) -> Arc<PodDisruptionBudget> {
    let budget = json!({
        "metadata": { "name": "b", "namespace": "shop" },
        "spec": { "selector": { "matchLabels": labels } },
        "status": { "disruptionsAllowed": allowed },
    });
    Arc::new(PodDisruptionBudget::decode(budget.to_string().as_bytes(), Encoding::Json).unwrap())
}

/// Returns a table with these nodes, and these pods on them by node name.
fn table_with(nodes: &[Arc<Node>], pods: Vec<(&str, PodInfo)>) -> NodeTable {
    let mut table = table(nodes);
    for (node, pod) in pods {
        table.place(pod, node);
    }
    table
}

/// Returns a table with nodes `a` and `b` of 4 CPUs each.
fn two_nodes(pods: Vec<(&str, PodInfo)>) -> NodeTable {
    table_with(&[node("a", &json!({})), node("b", &json!({}))], pods)
}

/// Returns the candidates for a pod that fits on no node, or the message that explains why there are none.
fn find_candidates(
    nodes: &mut NodeTable,
    pod: &PodInfo,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Result<Vec<Candidate>, String> {
    let profile = Profile::with_defaults("default-scheduler");
    let (nominator, mut state) = (Nominator::default(), CycleState::default());
    let view = View { profile: &profile, nodes, nominator: &nominator, start_node_index: 0 };
    let mut cycle = Cycle::new(view, pod, 7, &[]);
    let outcome = schedule_pod(&mut cycle, &mut state, None).now_or_never().unwrap();
    let fit_error = outcome.result.expect_err("the pod fits no node");
    if let Some(reason) = plan::ineligible_to_preempt_others(&cycle, &fit_error) {
        return Err(reason.to_owned());
    }
    plan::find_candidates(&mut cycle, &state, &fit_error, budgets, &Args::default())
        .map_err(|not_helpful| not_helpful.to_string())
}

/// Checks the best candidate (node, victims, PDB violations), or the message that explains why there is none.
#[track_caller]
fn check(
    mut nodes: NodeTable,
    pod: &PodInfo,
    budgets: &[Arc<PodDisruptionBudget>],
    expected: Result<(&str, &[&str], usize), &str>,
) {
    let chosen = find_candidates(&mut nodes, pod, budgets)
        .map(|candidates| plan::pick_one_node_for_preemption(&candidates).unwrap().clone());
    let chosen = chosen.map(|candidate| {
        let names: Vec<String> =
            candidate.pods.iter().map(|pod| pod.meta.name.to_string()).collect();
        (candidate.node.to_string(), names, candidate.num_pdb_violations)
    });
    let expected = expected.map(|(node, names, num_pdb_violations)| {
        (node.to_owned(), names.iter().map(|name| (*name).to_owned()).collect(), num_pdb_violations)
    });
    assert_eq!(chosen, expected.map_err(str::to_owned));
}

#[test]
fn the_fewest_and_least_important_pods_are_victims() {
    let one_node = [node("a", &json!({}))];
    let nodes = table_with(
        &one_node,
        vec![
            ("a", simple_pod("low", 1, "1")),
            ("a", simple_pod("mid", 2, "2")),
            ("a", simple_pod("tiny", 1, "1")),
        ],
    );
    check(nodes, &simple_pod("p", 10, "1"), &[], Ok(("a", &["tiny"], 0)));
    let nodes = table_with(
        &one_node,
        vec![("a", simple_pod("low", 1, "1")), ("a", simple_pod("mid", 2, "3"))],
    );
    check(nodes, &simple_pod("p", 10, "3"), &[], Ok(("a", &["mid"], 0)));
}

#[test]
fn among_equal_pods_victims_of_an_earlier_preemption_are_chosen() {
    let disruption_target = json!({ "status": { "conditions": [{
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
    }] } });
    let one_node = [node("a", &json!({}))];
    for marked in ["x", "y"] {
        let pods = ["x", "y", "z"].map(|name| {
            let more = if name == marked { disruption_target.clone() } else { json!({}) };
            ("a", pod(name, 1, "1", &more))
        });
        check(
            table_with(&one_node, pods.to_vec()),
            &simple_pod("p", 10, "2"),
            &[],
            Ok(("a", &[marked], 0)),
        );
    }
    for (marked, other) in [("a", "b"), ("b", "a")] {
        let nodes = two_nodes(vec![
            (marked, pod("x", 1, "4", &disruption_target)),
            (other, simple_pod("y", 1, "4")),
        ]);
        check(nodes, &simple_pod("p", 10, "4"), &[], Ok((marked, &["x"], 0)));
    }
    // The uid decides, not the order of arrival.
    for names in [["x", "y"], ["y", "x"]] {
        let pods = names.map(|name| ("a", simple_pod(name, 1, "2")));
        check(
            table_with(&one_node, pods.to_vec()),
            &simple_pod("p", 10, "2"),
            &[],
            Ok(("a", &["y"], 0)),
        );
    }
}

#[test]
fn a_criterion_decides_if_all_criteria_before_it_are_equal() {
    // The highest priority among the victims decides.
    let nodes = two_nodes(vec![("a", simple_pod("x", 5, "4")), ("b", simple_pod("y", 3, "4"))]);
    check(nodes, &simple_pod("p", 10, "4"), &[], Ok(("b", &["y"], 0)));
    // The sum of priorities decides. Each victim adds to it.
    let nodes = two_nodes(vec![
        ("a", simple_pod("x1", -5, "2")),
        ("a", simple_pod("x2", -5, "2")),
        ("b", simple_pod("y", -5, "4")),
    ]);
    check(nodes, &simple_pod("p", 10, "4"), &[], Ok(("b", &["y"], 0)));
    // The latest start decides.
    let started_at = |minute: u32| json!({ "status": { "startTime": format!("2027-01-15T08:{minute:02}:00Z") } });
    let nodes = two_nodes(vec![
        ("a", pod("x", 1, "4", &started_at(1))),
        ("b", pod("y", 1, "4", &started_at(2))),
    ]);
    check(nodes, &simple_pod("p", 10, "4"), &[], Ok(("b", &["y"], 0)));
}

#[test]
fn preemption_avoids_violating_disruption_budgets() {
    let labelled = json!({ "metadata": { "labels": { "app": "db" } } });
    let db = json!({ "app": "db" });
    let nodes =
        || two_nodes(vec![("a", pod("x", 1, "4", &labelled)), ("b", simple_pod("y", 5, "4"))]);
    check(nodes(), &simple_pod("p", 10, "4"), &[budget(&db, 0)], Ok(("b", &["y"], 0)));
    check(nodes(), &simple_pod("p", 10, "4"), &[budget(&db, 1)], Ok(("a", &["x"], 0)));
    check(nodes(), &simple_pod("p", 10, "4"), &[budget(&json!({}), 0)], Ok(("a", &["x"], 0)));
    // The budget allows the eviction of the more important pod. The eviction of the other one violates it, so that pod
    // is reprieved first.
    let one_node = [node("a", &json!({}))];
    let two_pods = vec![("a", pod("x", 2, "2", &labelled)), ("a", pod("y", 1, "2", &labelled))];
    check(
        table_with(&one_node, two_pods.clone()),
        &simple_pod("p", 10, "2"),
        &[budget(&db, 1)],
        Ok(("a", &["x"], 0)),
    );
    check(
        table_with(&one_node, two_pods),
        &simple_pod("p", 10, "4"),
        &[budget(&db, 1)],
        Ok(("a", &["x", "y"], 1)),
    );
}

#[test]
fn reasons_against_preemption_are_reported() {
    let tainted = json!({ "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] } });
    let nodes = table_with(
        &[node("a", &json!({})), node("b", &tainted)],
        vec![("a", simple_pod("x", 10, "4")), ("b", simple_pod("y", 1, "4"))],
    );
    let not_helpful = "0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.";
    check(nodes, &simple_pod("p", 10, "1"), &[], Err(not_helpful));
    let nodes = two_nodes(vec![("a", simple_pod("x", 1, "4")), ("b", simple_pod("y", 1, "4"))]);
    let never = pod("p", 10, "1", &json!({ "spec": { "preemptionPolicy": "Never" } }));
    check(nodes, &never, &[], Err("not eligible due to preemptionPolicy=Never."));
    let terminating = json!({
        "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" },
        "status": { "conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        }] },
    });
    let nodes =
        || two_nodes(vec![("a", pod("x", 1, "4", &terminating)), ("b", simple_pod("y", 2, "4"))]);
    let nominated_to_a = pod("p", 10, "1", &json!({ "status": { "nominatedNodeName": "a" } }));
    let waiting = "not eligible due to a terminating pod on the nominated node.";
    check(nodes(), &nominated_to_a, &[], Err(waiting));
    let nominated_to_b = pod("p", 10, "1", &json!({ "status": { "nominatedNodeName": "b" } }));
    check(nodes(), &nominated_to_b, &[], Ok(("a", &["x"], 0)));
}

#[test]
fn the_failure_names_the_node_with_the_victims() {
    let mut core = crate::core::Core::new(&crate::SchedulerOptions {
        profiles: vec![
            Profile::with_defaults("default-scheduler"),
            Profile::new("bare").with(Arc::new(DefaultPreemption::default()), 0),
        ],
        ..crate::SchedulerOptions::default()
    });
    let now = crate::fixtures::at(0);
    core.add_or_update_node(&node("a", &json!({})), now);
    let mut low = with_requests("4", "1Gi");
    merge(&mut low, &json!({ "spec": { "nodeName": "a" } }));
    core.add_or_update_pod(&crate::fixtures::pod("low", &low), now);
    core.add_or_update_pod(&simple_pod("high", 5, "1").pod, now);
    let attempted = core.schedule_one(now).now_or_never().unwrap().unwrap();
    let crate::core::AttemptResult::Failed(failure) = attempted.result else {
        panic!("the attempt did not fail")
    };
    assert_eq!(
        failure.message,
        "0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for pod on node a, preempting 1 victims"
    );
    assert_eq!(failure.nominating_info, NominatingInfo::Node("a".into()));
    assert_eq!(core.queue().nominator().nominated_pods_for_node("a").len(), 1);
    // The nominated pod uses resources of the node, so another pod does not fit.
    core.delete_pod("low", now);
    core.add_or_update_pod(&simple_pod("other", 5, "4").pod, now);
    core.queue_mut().remove("high");
    core.queue_mut().nominator_mut().add_nominated_pod(&simple_pod("high", 5, "1"), "a");
    let attempted = core.schedule_one(now).now_or_never().unwrap().unwrap();
    assert!(
        matches!(attempted.result, crate::core::AttemptResult::Failed(failure) if !failure.is_error)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_victim_is_needed_and_the_nodes_stay_unchanged(
        pods in proptest::collection::vec((0u8..3, 0i32..4, 1u8..4), 1..10),
        (priority, cpu) in (1i32..5, 1u8..5),
    ) {
        let names = ["a", "b", "c"];
        let mut nodes = table(&names.map(|name| node(name, &json!({}))));
        for (index, (node, pod_priority, pod_cpu)) in pods.iter().enumerate() {
            let name = names[usize::from(*node)];
            let free_cpu = nodes.get(name).map_or(0, |node| node.allocatable_cpu() - node.requested_cpu());
            if i64::from(*pod_cpu) * 1000 <= free_cpu {
                nodes.place(simple_pod(&format!("v{index}"), *pod_priority, &pod_cpu.to_string()), name);
            }
        }
        let usage = |nodes: &NodeTable| -> Vec<(i64, usize)> {
            names.map(|name| nodes.get(name).unwrap()).map(|node| (node.requested_cpu(), node.pods().len())).to_vec()
        };
        let before = usage(&nodes);
        let requested = i64::from(cpu) * 1000;
        prop_assume!(before.iter().all(|(used, _)| 4000 - used < requested));
        let candidates = find_candidates(&mut nodes, &simple_pod("p", priority, &cpu.to_string()), &[]);
        prop_assert_eq!(usage(&nodes), before.clone());
        for candidate in candidates.unwrap_or_default() {
            let node = nodes.get(&candidate.node).unwrap();
            let freed: i64 = candidate.pods.iter().map(|pod| PodInfo::new(Arc::clone(pod)).requirements.requests.cpu).sum();
            prop_assert!(node.allocatable_cpu() - node.requested_cpu() + freed >= requested, "the victims suffice");
            for victim in &candidate.pods {
                let victim = PodInfo::new(Arc::clone(victim));
                prop_assert!(victim.priority() < priority);
                let without_victim = node.allocatable_cpu() - node.requested_cpu() + freed - victim.requirements.requests.cpu;
                prop_assert!(without_victim < requested, "each victim is needed");
            }
        }
    }
}
