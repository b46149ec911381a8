//! Whole histories: nodes and pods come and go, bindings are answered late or fail, and capacity is never exceeded.

use evenkeel_api::views::Pod;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Assigned, Attempted, Core, NotBound, Step};
use crate::{
    SchedulerOptions,
    fixtures::{asking, at, merge, node, pod},
};
use futures::FutureExt;

fn core() -> Core {
    Core::new(&SchedulerOptions::default())
}

/// One attempt; there are no extenders to be waited for.
fn attempt(core: &mut Core, now: evenkeel_api::time::Timestamp) -> Option<Step> {
    let attempted = core.attempt(now).now_or_never().unwrap();
    attempted.map(|Attempted { step, .. }| step)
}

fn went_wrong() -> NotBound {
    NotBound::Failed("the API server is away".to_owned())
}

fn bound(pod: &Value, node: &str) -> Value {
    let mut bound = pod.clone();
    merge(&mut bound, &json!({ "spec": { "nodeName": node } }));
    bound
}

fn assigned(step: Option<Step>) -> Assigned {
    match step {
        Some(Step::Bind(assigned)) => assigned,
        Some(Step::Failed(failure)) => panic!("{}", failure.message),
        _ => panic!("nothing was tried"),
    }
}

fn failure(step: Option<Step>) -> String {
    match step {
        Some(Step::Failed(failure)) => failure.message,
        _ => panic!("it was not to be placed"),
    }
}

#[test]
fn an_assumed_pod_takes_its_room_until_the_binding_fails() {
    let mut core = core();
    core.node_seen(&node("a", &json!({})), at(0));
    for name in ["p", "q"] {
        core.pod_seen(&pod(name, &asking("3", "1Gi")), at(0));
    }
    let first = assigned(attempt(&mut core, at(0)));
    assert_eq!(failure(attempt(&mut core, at(0))), "0/1 nodes are available: 1 Insufficient cpu.");
    assert!(core.not_bound(first, went_wrong(), at(1)).is_some());
    // The room is free again and q was told; p backs off.
    let second = assigned(attempt(&mut core, at(1)));
    assert_eq!(&*second.popped.uid, "q");
}

#[test]
fn without_nodes_a_pod_waits_for_the_first() {
    let mut core = core();
    core.pod_seen(&pod("p", &json!({})), at(0));
    assert_eq!(failure(attempt(&mut core, at(0))), "no nodes available to schedule pods");
    assert!(attempt(&mut core, at(5)).is_none());
    core.node_seen(&node("a", &json!({})), at(5));
    assert_eq!(&*assigned(attempt(&mut core, at(5))).node, "a");
}

#[test]
fn pods_of_other_schedulers_and_deleted_ones_are_left_alone() {
    let mut core = core();
    core.node_seen(&node("a", &json!({})), at(0));
    core.pod_seen(&pod("p", &json!({ "spec": { "schedulerName": "mine" } })), at(0));
    core.pod_seen(
        &pod("q", &json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } })),
        at(0),
    );
    core.pod_seen(&pod("r", &json!({ "spec": { "schedulingGates": [{ "name": "g" }] } })), at(0));
    assert!(matches!(attempt(&mut core, at(0)), Some(Step::Deleting(pod)) if pod.uid() == "q"));
    assert!(attempt(&mut core, at(0)).is_none());
    core.pod_seen(&pod("r", &json!({ "metadata": { "generation": 2 } })), at(1));
    assert_eq!(&*assigned(attempt(&mut core, at(1))).popped.uid, "r");
}

#[test]
fn a_pod_that_ends_makes_room_and_its_own_condition_does_not() {
    let mut core = core();
    core.node_seen(&node("a", &json!({})), at(0));
    let first = bound(&asking("3", "1Gi"), "a");
    core.pod_seen(&pod("first", &first), at(0));
    core.pod_seen(&pod("p", &asking("2", "1Gi")), at(0));
    assert_eq!(failure(attempt(&mut core, at(0))), "0/1 nodes are available: 1 Insufficient cpu.");
    let mut told = asking("2", "1Gi");
    merge(
        &mut told,
        &json!({ "status": { "conditions": [{ "type": "PodScheduled", "status": "False" }] } }),
    );
    core.pod_seen(&pod("p", &told), at(20));
    assert!(
        attempt(&mut core, at(20)).is_none(),
        "the condition it was given is no reason to try again"
    );
    let mut ended = first;
    merge(&mut ended, &json!({ "status": { "phase": "Succeeded" } }));
    core.pod_seen(&pod("first", &ended), at(21));
    assert_eq!(&*assigned(attempt(&mut core, at(21))).node, "a");
}

#[test]
fn only_a_node_change_that_helps_wakes_a_pod() {
    let mut core = core();
    let tainted = json!({ "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] } });
    core.node_seen(&node("a", &tainted), at(0));
    core.pod_seen(&pod("p", &json!({})), at(0));
    assert_eq!(
        failure(attempt(&mut core, at(0))),
        "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
    );
    let mut relabelled = tainted;
    merge(&mut relabelled, &json!({ "metadata": { "labels": { "x": "y" } } }));
    core.node_seen(&node("a", &relabelled), at(20));
    assert!(attempt(&mut core, at(20)).is_none());
    core.node_seen(&node("a", &json!({})), at(21));
    assert_eq!(&*assigned(attempt(&mut core, at(21))).node, "a");
}

/// One thing that happens.
#[derive(Debug, Clone, Copy)]
enum Happening {
    PodMade {
        cpu: u8,
        priority: u8,
    },
    PodDeleted(usize),
    NodeToggled(usize),
    Attempt,
    /// The oldest binding on its way is answered; `true`: done.
    Answered(bool),
    /// The cache shows the oldest bound pod on its node.
    Shown,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => (1_u8..4, 0_u8..3).prop_map(|(cpu, priority)| Happening::PodMade { cpu, priority }),
        1 => (0_usize..20).prop_map(Happening::PodDeleted),
        1 => (0_usize..3).prop_map(Happening::NodeToggled),
        4 => Just(Happening::Attempt),
        3 => proptest::bool::weighted(0.8).prop_map(Happening::Answered),
        2 => Just(Happening::Shown),
    ]
}

/// The API server's side of a history.
#[derive(Default)]
struct World {
    nodes: BTreeSet<usize>,
    pods: BTreeMap<String, (Value, Option<String>)>,
    made: usize,
    on_their_way: Vec<Assigned>,
    unshown: Vec<(String, String)>,
}

impl World {
    fn object(&self, name: &str) -> Option<Arc<Pod>> {
        let (spec, node) = self.pods.get(name)?;
        Some(pod(name, &node.as_ref().map_or_else(|| spec.clone(), |node| bound(spec, node))))
    }

    /// What pods bound to each node ask for, in CPUs.
    fn load(&self) -> BTreeMap<&str, i64> {
        let mut load = BTreeMap::new();
        for (spec, node) in self.pods.values() {
            let cpu =
                spec["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str().unwrap();
            if let Some(node) = node {
                *load.entry(node.as_str()).or_default() += cpu.parse::<i64>().unwrap();
            }
        }
        load
    }

    fn happen(&mut self, core: &mut Core, happening: Happening, now: i64) {
        let now = at(now);
        match happening {
            Happening::PodMade { cpu, priority } => {
                let name = format!("p{}", self.made);
                self.made += 1;
                let mut spec = asking(&cpu.to_string(), "1Mi");
                merge(&mut spec, &json!({ "spec": { "priority": priority } }));
                self.pods.insert(name.clone(), (spec, None));
                core.pod_seen(&self.object(&name).unwrap(), now);
            }
            Happening::PodDeleted(n) => {
                if self.pods.remove(&format!("p{n}")).is_some() {
                    core.pod_gone(&format!("p{n}"), now);
                }
            }
            Happening::NodeToggled(n) => {
                let name = format!("n{n}");
                if self.nodes.remove(&n) {
                    core.node_gone(&node(&name, &json!({})), now);
                } else {
                    self.nodes.insert(n);
                    core.node_seen(&node(&name, &json!({})), now);
                }
            }
            Happening::Attempt => {
                if let Some(Step::Bind(assigned)) = attempt(core, now) {
                    self.on_their_way.push(assigned);
                }
            }
            Happening::Answered(done) if !self.on_their_way.is_empty() => {
                let assigned = self.on_their_way.remove(0);
                self.answer(core, assigned, done, now);
            }
            Happening::Shown if !self.unshown.is_empty() => {
                let (name, _) = self.unshown.remove(0);
                if let Some(pod) = self.object(&name) {
                    core.pod_seen(&pod, now);
                }
            }
            Happening::Answered(_) | Happening::Shown => {}
        }
    }

    fn answer(
        &mut self,
        core: &mut Core,
        assigned: Assigned,
        done: bool,
        now: evenkeel_api::time::Timestamp,
    ) {
        let (name, node) = (assigned.popped.uid.to_string(), assigned.node.to_string());
        match self.pods.get_mut(&name) {
            None => assert!(core.not_bound(assigned, went_wrong(), now).is_none()),
            Some(_) if !done => assert!(core.not_bound(assigned, went_wrong(), now).is_some()),
            Some((_, bound)) => {
                assert_eq!(*bound, None, "bound twice");
                *bound = Some(node.clone());
                core.bound(&assigned);
                self.unshown.push((name, node));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_node_is_given_more_than_it_has_and_no_pod_is_bound_twice(
        happenings in proptest::collection::vec(happening(), 0..120),
    ) {
        let (mut core, mut world) = (core(), World::default());
        for (now, happening) in (0..).zip(happenings) {
            world.happen(&mut core, happening, now);
            for (node, cpu) in world.load() {
                prop_assert!(cpu <= 4, "{node} holds {cpu} of 4");
            }
        }
        // Left in peace with three empty enough nodes, everything that fits somewhere gets placed.
        for n in 0..3 {
            if !world.nodes.contains(&n) {
                world.happen(&mut core, Happening::NodeToggled(n), 1000);
            }
        }
        for now in 1000..1400 {
            world.happen(&mut core, Happening::Attempt, now);
            world.happen(&mut core, Happening::Answered(true), now);
            world.happen(&mut core, Happening::Shown, now);
        }
        let load = world.load();
        let most_free = (0..3).map(|n| 4 - load.get(format!("n{n}").as_str()).copied().unwrap_or(0)).max().unwrap();
        for (name, (spec, bound)) in &world.pods {
            let cpu = spec["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str().unwrap();
            prop_assert!(bound.is_some() || cpu.parse::<i64>().unwrap() > most_free, "{name} of {cpu} waits with {most_free} free");
        }
    }

    #[test]
    fn equal_histories_give_equal_choices(happenings in proptest::collection::vec(happening(), 0..60)) {
        let run = || {
            let (mut core, mut world) = (core(), World::default());
            for (now, happening) in (0..).zip(happenings.iter().copied()) {
                world.happen(&mut core, happening, now);
            }
            world.pods.into_iter().map(|(name, (_, node))| (name, node)).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}
