//! Random histories: nodes and pods are added and deleted, bindings finish late, fail or are rejected, pods are
//! preempted, watches break, the scheduler crashes. In all of them no node is overcommitted, no pod is bound twice, and
//! none is lost.

use evenkeel_api::{time::Timestamp, views::Pod};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{
    AssumedPod, AttemptResult, BindingFailure, Core,
    tests::{attempt, bound, went_wrong},
};
use crate::{
    SchedulerOptions,
    fixtures::{asking, at, merge, node, pod},
    framework::{
        CycleState, Permit, PermitResult, Plugin, PostBind, Profile, Reserve, Status, StatusResult,
    },
    pod::PodInfo,
};

const CPUS: i64 = 4;

/// Plugin that reserves each pod, and delays those labelled `slow` in Permit.
#[derive(Default)]
struct Reservations(Mutex<BTreeSet<String>>);

impl Plugin for Reservations {
    fn name(&self) -> &'static str {
        "Books"
    }
    fn as_reserve(&self) -> Option<&dyn Reserve> {
        Some(self)
    }
    fn as_permit(&self) -> Option<&dyn Permit> {
        Some(self)
    }
    fn as_post_bind(&self) -> Option<&dyn PostBind> {
        Some(self)
    }
}

impl Reserve for Reservations {
    fn reserve(&self, _: &mut CycleState, pod: &PodInfo, _: &str) -> StatusResult {
        assert!(self.0.lock().unwrap().insert(pod.uid().to_owned()), "set aside twice");
        Ok(())
    }
    fn unreserve(&self, _: &mut CycleState, pod: &PodInfo, _: &str) {
        self.0.lock().unwrap().remove(pod.uid());
    }
}

impl Permit for Reservations {
    fn permit(&self, _: &CycleState, pod: &PodInfo, _: &str) -> PermitResult {
        match pod.pod.meta.labels.contains("slow") {
            true => PermitResult::Wait(Duration::from_secs(60)),
            false => PermitResult::Allow,
        }
    }
}

impl PostBind for Reservations {
    fn post_bind(&self, pod: &PodInfo, _: &str) {
        assert!(self.0.lock().unwrap().remove(pod.uid()), "bound what was not set aside");
    }
}

/// One step of a random history.
#[derive(Debug, Clone, Copy)]
enum Step {
    PodMade {
        cpu: u8,
        priority: u8,
        slow: bool,
    },
    PodDeleted(usize),
    NodeToggled(usize),
    Attempt,
    Answered(How),
    /// The cache receives the oldest pending event.
    Shown,
    /// The cache receives an event again.
    ShownAgain(usize),
    /// The watch breaks; a new list delivers the pending events in another order.
    Relisted,
    /// The scheduler restarts; every second pending binding still succeeds.
    Crashed,
}

/// Result of the oldest pending binding.
#[derive(Debug, Clone, Copy)]
enum How {
    Done,
    /// The binding succeeds, but its response is lost.
    DoneUnheard,
    Failed,
    /// A Permit plugin rejects the pod.
    Refused,
}

fn step() -> impl Strategy<Value = Step> {
    let made = (1_u8..4, 0_u8..3, proptest::bool::weighted(0.2));
    prop_oneof![
        6 => made.prop_map(|(cpu, priority, slow)| Step::PodMade { cpu, priority, slow }),
        2 => (0_usize..20).prop_map(Step::PodDeleted),
        2 => (0_usize..3).prop_map(Step::NodeToggled),
        8 => Just(Step::Attempt),
        6 => prop_oneof![
            6 => Just(How::Done),
            1 => Just(How::DoneUnheard),
            1 => Just(How::Failed),
            1 => Just(How::Refused),
        ].prop_map(Step::Answered),
        4 => Just(Step::Shown),
        2 => (0_usize..20).prop_map(Step::ShownAgain),
        1 => Just(Step::Relisted),
        1 => Just(Step::Crashed),
    ]
}

/// An event that the cache has not received.
enum Unshown {
    Pod(String),
    Gone(String),
}

/// API server and scheduler of a history.
struct World {
    core: Core,
    books: Arc<Reservations>,
    nodes: BTreeSet<usize>,
    pods: BTreeMap<String, (Value, Option<String>)>,
    made: usize,
    on_their_way: Vec<AssumedPod>,
    unshown: Vec<Unshown>,
}

fn core() -> (Core, Arc<Reservations>) {
    let books = Arc::new(Reservations::default());
    let plugin = Arc::clone(&books) as Arc<dyn Plugin>;
    let profile = Profile::with_defaults("default-scheduler").with(plugin, 0);
    let options = SchedulerOptions { profiles: vec![profile], ..SchedulerOptions::default() };
    (Core::new(&options), books)
}

impl World {
    fn new() -> Self {
        let (core, books) = core();
        Self {
            core,
            books,
            nodes: BTreeSet::new(),
            pods: BTreeMap::new(),
            made: 0,
            on_their_way: Vec::new(),
            unshown: Vec::new(),
        }
    }

    fn object(&self, name: &str) -> Option<Arc<Pod>> {
        let (spec, node) = self.pods.get(name)?;
        Some(pod(name, &node.as_ref().map_or_else(|| spec.clone(), |node| bound(spec, node))))
    }

    /// CPUs requested by the pods bound to each node.
    fn load(&self) -> BTreeMap<&str, i64> {
        let mut load = BTreeMap::new();
        for (spec, node) in self.pods.values() {
            if let Some(node) = node {
                *load.entry(node.as_str()).or_default() += cpu(spec);
            }
        }
        load
    }

    fn happen(&mut self, step: Step, now: i64) {
        let now = at(now);
        match step {
            Step::PodMade { cpu, priority, slow } => {
                let name = format!("p{}", self.made);
                self.made += 1;
                let mut spec = asking(&cpu.to_string(), "1Mi");
                merge(&mut spec, &json!({ "spec": { "priority": priority } }));
                if slow {
                    merge(&mut spec, &json!({ "metadata": { "labels": { "slow": "yes" } } }));
                }
                self.pods.insert(name.clone(), (spec, None));
                self.unshown.push(Unshown::Pod(name));
            }
            Step::PodDeleted(n) => self.delete(&format!("p{n}")),
            Step::NodeToggled(n) => {
                let object = node(&format!("n{n}"), &json!({}));
                if self.nodes.remove(&n) {
                    self.core.delete_node(&object, now);
                } else {
                    self.nodes.insert(n);
                    self.core.add_or_update_node(&object, now);
                }
            }
            Step::Attempt => self.attempt(now),
            Step::Answered(how) if !self.on_their_way.is_empty() => {
                let assumed = self.on_their_way.remove(0);
                self.answer(assumed, how, now);
            }
            Step::Shown if !self.unshown.is_empty() => {
                let first = self.unshown.remove(0);
                self.show(&first, now);
            }
            Step::ShownAgain(n) => self.show_again(n, now),
            Step::Relisted => {
                for unshown in std::mem::take(&mut self.unshown).into_iter().rev() {
                    self.show(&unshown, now);
                }
            }
            Step::Crashed => self.crash(now),
            Step::Answered(_) | Step::Shown => {}
        }
    }

    fn delete(&mut self, name: &str) {
        if self.pods.remove(name).is_some() {
            self.unshown.push(Unshown::Gone(name.to_owned()));
        }
    }

    fn show(&mut self, unshown: &Unshown, now: Timestamp) {
        match unshown {
            Unshown::Gone(name) => self.core.delete_pod(name, now),
            Unshown::Pod(name) => {
                if let Some(pod) = self.object(name) {
                    self.core.add_or_update_pod(&pod, now);
                }
            }
        }
    }

    fn show_again(&mut self, n: usize, now: Timestamp) {
        let (name, at) = (format!("p{n}"), n % 3);
        let is_shown = !self.unshown.iter().any(|unshown| match unshown {
            Unshown::Pod(other) | Unshown::Gone(other) => *other == name,
        });
        if is_shown {
            match self.object(&name) {
                Some(pod) => self.core.add_or_update_pod(&pod, now),
                None => self.core.delete_pod(&name, now),
            }
        }
        if self.nodes.contains(&at) {
            self.core.add_or_update_node(&node(&format!("n{at}"), &json!({})), now);
        }
    }

    fn attempt(&mut self, now: Timestamp) {
        match attempt(&mut self.core, now) {
            Some(AttemptResult::Bind(assumed)) => self.on_their_way.push(assumed),
            Some(AttemptResult::Failed(failure)) => {
                let Some(node) = failure.nominated.filter(|node| !node.is_empty()) else { return };
                // The preemption deletes at least the planned victims.
                let less = |spec: &Value| {
                    spec["spec"]["priority"].as_i64() < Some(failure.info.priority().into())
                };
                let there = |own: &Option<String>| own.as_deref() == Some(&*node);
                let victims = self.pods.iter().filter(|(_, (spec, own))| there(own) && less(spec));
                let victims: Vec<String> = victims.map(|(name, _)| name.clone()).collect();
                victims.iter().for_each(|name| self.delete(name));
                for assumed in &self.on_their_way {
                    if assumed.node == node {
                        self.core.waiting_pods().preempt_pod(&assumed.popped.uid, "Test");
                    }
                }
            }
            Some(AttemptResult::Deleting(_) | AttemptResult::Dropped) | None => {}
        }
    }

    fn answer(&mut self, assumed: AssumedPod, how: How, now: Timestamp) {
        let (name, node) = (assumed.popped.uid.to_string(), assumed.node.to_string());
        let Some((_, own)) = self.pods.get_mut(&name) else {
            // The cache may show the binding before or after the error is handled.
            drop(self.core.handle_binding_cycle_error(assumed, went_wrong(), now));
            return;
        };
        match how {
            How::Done | How::DoneUnheard => {
                assert_eq!(*own, None, "bound twice");
                *own = Some(node);
                self.unshown.push(Unshown::Pod(name));
                match how {
                    How::Done => self.core.finish_binding(&assumed),
                    // The cache shows the pod on its node before the error is handled.
                    _ => {
                        while !self.unshown.is_empty() {
                            let first = self.unshown.remove(0);
                            self.show(&first, now);
                        }
                        assert!(
                            self.core
                                .handle_binding_cycle_error(assumed, went_wrong(), now)
                                .is_none()
                        );
                    }
                }
            }
            How::Refused if assumed.waiting.is_some() => {
                let books = self.core.profile(0).len() - 1;
                let why = BindingFailure::Rejected(books, Status::unschedulable("not now"));
                drop(self.core.handle_binding_cycle_error(assumed, why, now));
            }
            How::Failed | How::Refused => {
                drop(self.core.handle_binding_cycle_error(assumed, went_wrong(), now));
            }
        }
    }

    fn crash(&mut self, now: Timestamp) {
        for (n, assumed) in std::mem::take(&mut self.on_their_way).into_iter().enumerate() {
            if let Some((_, own)) = self.pods.get_mut(&*assumed.popped.uid)
                && n % 2 == 0
            {
                assert_eq!(*own, None, "bound twice");
                *own = Some(assumed.node.to_string());
            }
        }
        (self.core, self.books) = core();
        self.unshown.clear();
        for n in &self.nodes {
            self.core.add_or_update_node(&node(&format!("n{n}"), &json!({})), now);
        }
        for name in self.pods.keys() {
            if let Some(pod) = self.object(name) {
                self.core.add_or_update_pod(&pod, now);
            }
        }
    }
}

fn cpu(spec: &Value) -> i64 {
    let requests = &spec["spec"]["containers"][0]["resources"]["requests"];
    requests["cpu"].as_str().unwrap().parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn no_pod_is_bound_twice_or_lost_and_no_node_over_its_capacity(
        steps in proptest::collection::vec(step(), 0..150),
    ) {
        let mut world = World::new();
        for (now, step) in (0..).zip(steps) {
            world.happen(step, now);
            for (node, cpu) in world.load() {
                prop_assert!(cpu <= CPUS, "{node} holds {cpu} of {CPUS}");
            }
            prop_assert_eq!(world.books.0.lock().unwrap().len(), world.on_their_way.len());
        }
        // Once all nodes are back and faults have stopped, every pod that fits is scheduled.
        for n in 0..3 {
            if !world.nodes.contains(&n) {
                world.happen(Step::NodeToggled(n), 1000);
            }
        }
        for now in 1000..1800 {
            world.happen(Step::Attempt, now);
            world.happen(Step::Answered(How::Done), now);
            world.happen(Step::Shown, now);
        }
        prop_assert!(world.on_their_way.is_empty() && world.core.n_assumed() == 0);
        let load = world.load();
        let free = |n: usize| CPUS - load.get(format!("n{n}").as_str()).copied().unwrap_or(0);
        let most_free = (0..3).map(free).max().unwrap();
        for (name, (spec, bound)) in &world.pods {
            prop_assert!(bound.is_some() || cpu(spec) > most_free, "{name} of {} waits with {most_free} free", cpu(spec));
        }
    }

    #[test]
    fn equal_histories_give_equal_choices(steps in proptest::collection::vec(step(), 0..60)) {
        let run = || {
            let mut world = World::new();
            for (now, step) in (0..).zip(steps.iter().copied()) {
                world.happen(step, now);
            }
            world.pods.into_iter().map(|(name, (_, node))| (name, node)).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}
