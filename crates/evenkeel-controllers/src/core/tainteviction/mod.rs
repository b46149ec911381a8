//! Taint eviction controller: deletes pods that do not tolerate a `NoExecute` taint of their node. Upstream:
//! `pkg/controller/tainteviction`.

mod plan;

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{
    time::Timestamp,
    views::{Node, Pod, Taint},
};
use evenkeel_component_helpers::scheduling::corev1::{self, COMPARISON_GATE, TolerationOperators};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Index},
    controller::Builder,
    metrics,
    plan::{Key, Outcomes, Pass, PassHandler, Plan, Planner},
};
use plan::{Observed, Verdict};
use prometheus::{Histogram, IntCounter};

/// Number of workers. No flag changes it. Upstream: `UpdateWorkerSize`.
const WORKERS: usize = 8;

/// Upstream's histogram buckets of the deletion latency, in seconds.
const LATENCY_BUCKETS: [f64; 12] =
    [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0];

/// The taint eviction controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "taint-eviction-controller",
    queue: "noexec_taint_pod",
    // Upstream's controller has no service account of its own.
    client: "node-controller",
    gates: &["SeparateTaintEvictionController"],
    start,
    ..Descriptor::DEFAULTS
};

/// Returns the index of pods by node.
pub(super) fn pods_by_node(pods: &Cache<Pod>) -> Index<Pod> {
    pods.index("node", corev1::node_key)
}

/// Starts the controller. Without the gate `SeparateTaintEvictionController`, the node lifecycle controller calls
/// this function.
fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let pods = context.env.caches.of::<Pod>();
    let nodes = context.env.caches.of::<Node>();
    let node_pods = pods_by_node(&pods);
    let help = "Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion via TaintEvictionController.";
    let name = "taint_eviction_controller_pod_deletion_duration_seconds";
    let latency = metrics::histogram(&context.registry, name, help, &LATENCY_BUCKETS);
    let deletions = IntCounter::new(
        "taint_eviction_controller_pod_deletions_total",
        "Total number of Pods deleted by TaintEvictionController since its start.",
    )
    .expect("the name is a valid literal");
    let metrics = Metrics { latency, deletions: metrics::register(&context.registry, deletions) };
    let operators = TolerationOperators::with_comparison(context.gates.enabled(COMPARISON_GATE));
    let planner = EvictionPlanner { pods: pods.clone(), nodes: nodes.clone(), operators };
    let builder = context
        .builder_watching(&DESCRIPTOR, &pods, |event, enqueue| {
            if let CacheEvent::Updated { old, new } = event
                && old.spec.node_name == new.spec.node_name
                && old.spec.tolerations == new.spec.tolerations
            {
                return;
            }
            let pod = event.object();
            if !pod.spec.node_name.is_empty() {
                enqueue.add(Key::of(&pod.meta));
            }
        })
        .reads(&nodes)
        .workers(WORKERS)
        .event_source(DESCRIPTOR.name);
    let controller = builder.planned_with(planner, metrics);
    // A separate queue of nodes, because a node may have many pods. Upstream: `nodeUpdateQueue`.
    let node_controller =
        Builder::watching(&context.env, "taint-eviction-nodes", &nodes, |event, enqueue| {
            if no_execute_taints_changed(event) {
                enqueue.add(Key::of(&event.object().meta));
            }
        })
        .queue("noexec_taint_node")
        .client(context.client(&DESCRIPTOR))
        .component(DESCRIPTOR.client)
        .reads(&pods)
        .enqueues(controller.queue(), move |node_key, enqueue| {
            node_pods.for_each(&node_key.name, |pod| enqueue(Key::of(&pod.meta)));
        });
    context.run(controller);
    context.run(node_controller);
    Ok(Started::Yes)
}

/// Returns whether the `NoExecute` taints of a node changed.
fn no_execute_taints_changed(event: &CacheEvent<Node>) -> bool {
    match event {
        CacheEvent::Added { object, .. } => {
            plan::no_execute_taints(&object.spec.taints).next().is_some()
        }
        CacheEvent::Updated { old, new } => {
            plan::no_execute_taints(&old.spec.taints).ne(plan::no_execute_taints(&new.spec.taints))
        }
        CacheEvent::Deleted(_) => false,
    }
}

/// Planner that evicts pods from nodes with `NoExecute` taints.
struct EvictionPlanner {
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    operators: TolerationOperators,
}

/// Counts evictions, and records the latency from their due time to their end.
struct Metrics {
    latency: Histogram,
    deletions: IntCounter,
}

impl PassHandler<EvictionPlanner> for Metrics {
    fn on_passed(&self, _: &Observed, pass: &Pass<'_, Verdict>) {
        if let Some(eviction) = pass.memory.eviction()
            && plan::is_evicted(pass.memory, pass.outcomes)
            && !pass.is_incomplete
        {
            self.deletions.inc();
            let latency = pass.planned_at.duration_since(eviction.due).as_secs_f64();
            self.latency.observe(latency + pass.took.as_secs_f64());
        }
    }
}

impl Planner for EvictionPlanner {
    type Observed = Observed;
    type Memory = Verdict;

    fn observe(&self, key: &Key, memory: &Verdict) -> Option<Observed> {
        let scheduled_eviction = memory.eviction();
        let pod = self.pods.get(&key.namespace, &key.name);
        if pod.is_none() && scheduled_eviction.is_none() {
            return None;
        }
        let taints: Option<Box<[Taint]>> = pod.as_ref().and_then(|pod| {
            let node = self.nodes.get("", &pod.spec.node_name)?;
            Some(plan::no_execute_taints(&node.spec.taints).cloned().collect())
        });
        let (key, operators) = (key.clone(), self.operators);
        Some(Observed { key, pod, taints, scheduled_eviction, operators })
    }

    fn plan(&self, observed: &Observed, _: &Verdict, now: Timestamp) -> (Plan, Verdict) {
        let verdict = plan::verdict(observed, now);
        (plan::plan(observed, verdict, now), verdict)
    }

    fn remember(
        &self,
        _: &Observed,
        verdict: &Verdict,
        outcomes: &Outcomes,
        _: Timestamp,
    ) -> Option<Verdict> {
        // Forgets a successful eviction. A failed one stays in the memory, so that it is retried.
        plan::is_evicted(verdict, outcomes).then_some(Verdict::default())
    }
}
