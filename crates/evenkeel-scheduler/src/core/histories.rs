//! Property tests with random histories of a cluster.
//!
//! Steps add and delete nodes and pods, delay, fail or reject bindings, preempt pods, break watches, and crash the
//! scheduler. No history overcommits a node, binds a pod twice, or loses one.

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
    tests::{attempt, binding_error, bound},
};
use crate::{
    SchedulerOptions,
    fixtures::{at, merge, node, pod, with_requests},
    framework::{
        CycleState, NominatingInfo, Permit, PermitResult, Plugin, PluginRejection, PostBind,
        Profile, Reserve, Status, StatusResult,
    },
    pod::PodInfo,
};

/// CPUs of each node.
const CPUS: i64 = 4;

/// Plugin that reserves each pod, and delays those labelled `slow` in Permit.
#[derive(Default)]
struct Reservations(Mutex<BTreeSet<String>>);

impl Plugin for Reservations {
    fn name(&self) -> &'static str {
        "Reservations"
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
        assert!(self.0.lock().unwrap().insert(pod.uid().to_owned()), "reserved twice");
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
        assert!(self.0.lock().unwrap().remove(pod.uid()), "bound without a reservation");
    }
}

/// One step of a random history.
#[derive(Debug, Clone, Copy)]
enum Step {
    PodCreated {
        cpu: u8,
        priority: u8,
        slow: bool,
    },
    /// The pod with this index is deleted if it exists.
    PodDeleted(usize),
    /// The node with this index is deleted if it exists, and created otherwise.
    NodeToggled(usize),
    Attempt,
    /// The oldest pending binding ends.
    BindingEnded(BindingEnd),
    /// The cache receives the oldest pending event.
    Delivered,
    /// The cache receives the current version of the pod with this index, and of one node, once more.
    DeliveredAgain(usize),
    /// The watch breaks; a new list delivers the pending events in another order.
    Relisted,
    /// The scheduler restarts; every second pending binding still succeeds.
    Crashed,
}

/// End of a pending binding.
#[derive(Debug, Clone, Copy)]
enum BindingEnd {
    Bound,
    /// The binding succeeds, but its response is lost.
    BoundWithoutResponse,
    Failed,
    /// A Permit plugin rejects the pod.
    Rejected,
}

/// Generates a step of a history.
fn step() -> impl Strategy<Value = Step> {
    let created = (1_u8..4, 0_u8..3, proptest::bool::weighted(0.2));
    prop_oneof![
        6 => created.prop_map(|(cpu, priority, slow)| Step::PodCreated { cpu, priority, slow }),
        2 => (0_usize..20).prop_map(Step::PodDeleted),
        2 => (0_usize..3).prop_map(Step::NodeToggled),
        8 => Just(Step::Attempt),
        6 => prop_oneof![
            6 => Just(BindingEnd::Bound),
            1 => Just(BindingEnd::BoundWithoutResponse),
            1 => Just(BindingEnd::Failed),
            1 => Just(BindingEnd::Rejected),
        ].prop_map(Step::BindingEnded),
        4 => Just(Step::Delivered),
        2 => (0_usize..20).prop_map(Step::DeliveredAgain),
        1 => Just(Step::Relisted),
        1 => Just(Step::Crashed),
    ]
}

/// An event that the cache has not received, with the name of its pod.
enum PendingEvent {
    /// The pod was added or updated.
    Pod(String),
    Deleted(String),
}

/// API server and scheduler of a history.
struct Cluster {
    core: Core,
    reservations: Arc<Reservations>,
    nodes: BTreeSet<usize>,
    /// Fields and node of each pod that exists, by its name.
    pods: BTreeMap<String, (Value, Option<String>)>,
    /// Number of pods created so far.
    created: usize,
    pending_bindings: Vec<AssumedPod>,
    pending_events: Vec<PendingEvent>,
}

/// Returns a scheduler with the plugin `Reservations`.
fn core() -> (Core, Arc<Reservations>) {
    let reservations = Arc::new(Reservations::default());
    let plugin = Arc::clone(&reservations) as Arc<dyn Plugin>;
    let profile = Profile::with_defaults("default-scheduler").with(plugin, 0);
    let options = SchedulerOptions { profiles: vec![profile], ..SchedulerOptions::default() };
    (Core::new(&options), reservations)
}

impl Cluster {
    fn new() -> Self {
        let (core, reservations) = core();
        Self {
            core,
            reservations,
            nodes: BTreeSet::new(),
            pods: BTreeMap::new(),
            created: 0,
            pending_bindings: Vec::new(),
            pending_events: Vec::new(),
        }
    }

    /// Returns the pod as the API server has it; `None` if it was deleted.
    fn object(&self, name: &str) -> Option<Arc<Pod>> {
        let (spec, node) = self.pods.get(name)?;
        Some(pod(name, &node.as_ref().map_or_else(|| spec.clone(), |node| bound(spec, node))))
    }

    /// Returns the CPUs that the pods bound to each node request.
    fn load(&self) -> BTreeMap<&str, i64> {
        let mut load = BTreeMap::new();
        for (spec, node) in self.pods.values() {
            if let Some(node) = node {
                *load.entry(node.as_str()).or_default() += cpu(spec);
            }
        }
        load
    }

    /// Makes one step at this second.
    fn apply(&mut self, step: Step, now: i64) {
        let now = at(now);
        match step {
            Step::PodCreated { cpu, priority, slow } => {
                let name = format!("p{}", self.created);
                self.created += 1;
                let mut spec = with_requests(&cpu.to_string(), "1Mi");
                merge(&mut spec, &json!({ "spec": { "priority": priority } }));
                if slow {
                    merge(&mut spec, &json!({ "metadata": { "labels": { "slow": "yes" } } }));
                }
                self.pods.insert(name.clone(), (spec, None));
                self.pending_events.push(PendingEvent::Pod(name));
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
            Step::BindingEnded(end) if !self.pending_bindings.is_empty() => {
                let assumed = self.pending_bindings.remove(0);
                self.end_binding(assumed, end, now);
            }
            Step::Delivered if !self.pending_events.is_empty() => {
                let first = self.pending_events.remove(0);
                self.deliver(&first, now);
            }
            Step::DeliveredAgain(n) => self.deliver_again(n, now),
            Step::Relisted => {
                for event in std::mem::take(&mut self.pending_events).into_iter().rev() {
                    self.deliver(&event, now);
                }
            }
            Step::Crashed => self.crash(now),
            Step::BindingEnded(_) | Step::Delivered => {}
        }
    }

    /// Deletes a pod in the API server.
    fn delete(&mut self, name: &str) {
        if self.pods.remove(name).is_some() {
            self.pending_events.push(PendingEvent::Deleted(name.to_owned()));
        }
    }

    /// Delivers an event to the scheduler's cache.
    fn deliver(&mut self, event: &PendingEvent, now: Timestamp) {
        match event {
            PendingEvent::Deleted(name) => self.core.delete_pod(name, now),
            PendingEvent::Pod(name) => {
                if let Some(pod) = self.object(name) {
                    self.core.add_or_update_pod(&pod, now);
                }
            }
        }
    }

    /// Delivers the pod with this index, unless an event of it is pending, and one node.
    fn deliver_again(&mut self, index: usize, now: Timestamp) {
        let (name, node_index) = (format!("p{index}"), index % 3);
        let is_delivered = !self.pending_events.iter().any(|event| match event {
            PendingEvent::Pod(other) | PendingEvent::Deleted(other) => *other == name,
        });
        if is_delivered {
            match self.object(&name) {
                Some(pod) => self.core.add_or_update_pod(&pod, now),
                None => self.core.delete_pod(&name, now),
            }
        }
        if self.nodes.contains(&node_index) {
            self.core.add_or_update_node(&node(&format!("n{node_index}"), &json!({})), now);
        }
    }

    /// Makes one scheduling attempt, and carries out its preemption.
    fn attempt(&mut self, now: Timestamp) {
        match attempt(&mut self.core, now) {
            Some(AttemptResult::Bind(assumed)) => self.pending_bindings.push(assumed),
            Some(AttemptResult::Failed(failure)) => {
                let NominatingInfo::Node(node) = failure.nominating_info else { return };
                // The preemption deletes all pods of lower priority on the node, so at least the planned victims.
                let has_lower_priority = |spec: &Value| {
                    spec["spec"]["priority"].as_i64() < Some(failure.info.priority().into())
                };
                let is_on_node = |bound_to: &Option<String>| bound_to.as_deref() == Some(&*node);
                let victims = self.pods.iter().filter(|(_, (spec, bound_to))| {
                    is_on_node(bound_to) && has_lower_priority(spec)
                });
                let victims: Vec<String> = victims.map(|(name, _)| name.clone()).collect();
                victims.iter().for_each(|name| self.delete(name));
                for assumed in &self.pending_bindings {
                    if assumed.node == node {
                        self.core.waiting_pods().preempt_pod(&assumed.popped.uid, "Test");
                    }
                }
            }
            Some(AttemptResult::Deleting(_) | AttemptResult::AlreadyAssumed) | None => {}
        }
    }

    /// Ends a pending binding.
    fn end_binding(&mut self, assumed: AssumedPod, end: BindingEnd, now: Timestamp) {
        let (name, node) = (assumed.popped.uid.to_string(), assumed.node.to_string());
        let Some((_, bound_to)) = self.pods.get_mut(&name) else {
            // The pod was deleted, so its binding fails.
            drop(self.core.handle_binding_cycle_error(assumed, binding_error(), now));
            return;
        };
        match end {
            BindingEnd::Bound | BindingEnd::BoundWithoutResponse => {
                assert_eq!(*bound_to, None, "bound twice");
                *bound_to = Some(node);
                self.pending_events.push(PendingEvent::Pod(name));
                match end {
                    BindingEnd::Bound => self.core.finish_binding(&assumed),
                    // The cache shows the pod on its node before the error is handled.
                    _ => {
                        while !self.pending_events.is_empty() {
                            let first = self.pending_events.remove(0);
                            self.deliver(&first, now);
                        }
                        assert!(
                            self.core
                                .handle_binding_cycle_error(assumed, binding_error(), now)
                                .is_none()
                        );
                    }
                }
            }
            BindingEnd::Rejected if assumed.waiting.is_some() => {
                let plugin = self.core.profile(0).len() - 1;
                let rejection =
                    PluginRejection { plugin, status: Status::unschedulable("not now") };
                let failure = BindingFailure::Rejected(rejection);
                drop(self.core.handle_binding_cycle_error(assumed, failure, now));
            }
            BindingEnd::Failed | BindingEnd::Rejected => {
                drop(self.core.handle_binding_cycle_error(assumed, binding_error(), now));
            }
        }
    }

    /// Restarts the scheduler, which receives all objects again.
    fn crash(&mut self, now: Timestamp) {
        for (n, assumed) in std::mem::take(&mut self.pending_bindings).into_iter().enumerate() {
            if let Some((_, bound_to)) = self.pods.get_mut(&*assumed.popped.uid)
                && n % 2 == 0
            {
                assert_eq!(*bound_to, None, "bound twice");
                *bound_to = Some(assumed.node.to_string());
            }
        }
        (self.core, self.reservations) = core();
        self.pending_events.clear();
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

/// Returns the CPUs that a pod requests.
fn cpu(spec: &Value) -> i64 {
    let requests = &spec["spec"]["containers"][0]["resources"]["requests"];
    requests["cpu"].as_str().unwrap().parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn no_pod_is_bound_twice_or_lost_and_no_node_is_overcommitted(
        steps in proptest::collection::vec(step(), 0..150),
    ) {
        let mut cluster = Cluster::new();
        for (now, step) in (0..).zip(steps) {
            cluster.apply(step, now);
            for (node, cpu) in cluster.load() {
                prop_assert!(cpu <= CPUS, "{node} holds {cpu} of {CPUS}");
            }
            prop_assert_eq!(cluster.reservations.0.lock().unwrap().len(), cluster.pending_bindings.len());
        }
        // Once all nodes are back and faults have stopped, every pod that fits is scheduled.
        for n in 0..3 {
            if !cluster.nodes.contains(&n) {
                cluster.apply(Step::NodeToggled(n), 1000);
            }
        }
        for now in 1000..1800 {
            cluster.apply(Step::Attempt, now);
            cluster.apply(Step::BindingEnded(BindingEnd::Bound), now);
            cluster.apply(Step::Delivered, now);
        }
        prop_assert!(cluster.pending_bindings.is_empty() && cluster.core.n_assumed() == 0);
        let load = cluster.load();
        let free = |n: usize| CPUS - load.get(format!("n{n}").as_str()).copied().unwrap_or(0);
        let most_free = (0..3).map(free).max().unwrap();
        for (name, (spec, bound)) in &cluster.pods {
            prop_assert!(bound.is_some() || cpu(spec) > most_free, "{name} of {} waits with {most_free} free", cpu(spec));
        }
    }

    #[test]
    fn equal_histories_yield_equal_bindings(steps in proptest::collection::vec(step(), 0..60)) {
        let run = || {
            let mut cluster = Cluster::new();
            for (now, step) in (0..).zip(steps.iter().copied()) {
                cluster.apply(step, now);
            }
            cluster.pods.into_iter().map(|(name, (_, node))| (name, node)).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}
