//! Node lifecycle controller: sets the conditions of unreachable nodes to `Unknown`, marks their pods as not ready, and
//! taints nodes by their conditions. The scheduler avoids tainted nodes, and taint eviction deletes their pods.
//!
//! Upstream: `pkg/controller/nodelifecycle`.

mod act;
mod heartbeats;
mod metrics;
mod options;
mod plan;
mod state;

pub use heartbeats::Heartbeats;
pub use options::Options;

use super::tainteviction;
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use act::Monitor;
use evenkeel_api::{
    time::Timestamp,
    views::{Lease, Node, Pod},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    clock::Clock,
    controller::Builder,
    introspect::Description,
    plan::{Key, Outcomes, Plan, Planner, Steps},
};
use plan::{
    condition_taints,
    health::{Moment, Now},
    pods::{self, PodOnNode},
};
use state::State;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// Number of workers that taint nodes. No flag changes it. Upstream: `scheduler.UpdateWorkerSize`.
const NODE_WORKERS: usize = 8;
/// Number of workers that mark pods as not ready. No flag changes it. Upstream: `podUpdateWorkerSize`.
const POD_WORKERS: usize = 4;

/// The node lifecycle controller. Upstream: `newNodeLifecycleControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "node-lifecycle-controller",
    aliases: &["nodelifecycle"],
    queue: "node_lifecycle_controller",
    client: "node-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let caches = &context.env.caches;
    let nodes = caches.of::<Node>();
    let pods = caches.of::<Pod>();
    let leases = caches.of::<Lease>();
    let options = context.options.nodelifecycle;
    let state = SharedState::new(context.env.clock.clone());
    let builder = context.builder(&DESCRIPTOR, &nodes).workers(NODE_WORKERS);
    let tainter = NodeTainter { nodes: nodes.clone(), options, state: state.clone() };
    context.run(builder.planned(tainter));
    start_pod_controller(context, &pods, &nodes, &state);
    let monitor = Monitor {
        pods_by_node: tainteviction::pods_by_node(&pods),
        nodes,
        leases,
        pods,
        client: context.client(&DESCRIPTOR),
        clock: context.env.clock.clone(),
        events: context.recorder(&DESCRIPTOR, DESCRIPTOR.client),
        options,
        heartbeats: context.options.heartbeats.clone(),
        state,
        metrics: metrics::Metrics::new(&context.registry),
        confirms_with_live_lease: context.gates.enabled("NodeControllerLeaseCircuitBreaker"),
    };
    monitor.start(context);
    if !context.gates.enabled("SeparateTaintEvictionController") {
        return (tainteviction::DESCRIPTOR.start)(context);
    }
    Ok(Started::Yes)
}

/// Starts the controller that marks pods as not ready if their node is not ready.
fn start_pod_controller(
    context: &ControllerContext,
    pods: &Cache<Pod>,
    nodes: &Cache<Node>,
    state: &SharedState,
) {
    let builder = Builder::watching(&context.env, "node-lifecycle-pods", pods, |event, enqueue| {
        let has_new_node_name = match event {
            CacheEvent::Added { .. } => true,
            CacheEvent::Updated { old, new } => old.spec.node_name != new.spec.node_name,
            CacheEvent::Deleted(_) => false,
        };
        let pod = event.object();
        if has_new_node_name && !pod.spec.node_name.is_empty() {
            enqueue.add(Key::of(&pod.meta));
        }
    });
    let controller = builder
        .queue("node_lifecycle_controller_pods")
        .client(context.client(&DESCRIPTOR))
        .component(DESCRIPTOR.client)
        .reads(nodes)
        .workers(POD_WORKERS)
        .planned(PodReadinessPlanner { pods: pods.clone(), state: state.clone() });
    context.run(controller);
}

/// State that the monitor, the planner of taints and the planner of pods share. Clones refer to the same state.
#[derive(Clone)]
struct SharedState {
    clock: Clock,
    /// Time of the controller's start, from which [`Now::steady`] counts.
    start: Instant,
    state: Arc<Mutex<State>>,
}

impl SharedState {
    fn new(clock: Clock) -> Self {
        Self { start: clock.instant(), clock, state: Arc::default() }
    }

    /// Returns the current time, both since the controller's start and on the wall clock.
    fn now(&self) -> Now {
        let passed = self.clock.instant().saturating_duration_since(self.start);
        Now { steady: Moment::try_from(passed).unwrap_or(Moment::MAX), wall: self.clock.now() }
    }

    /// Locks the state. A panic under the lock does not invalidate it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides the `NoSchedule` taints and the derived labels of a node. Upstream: `doNodeProcessingPassWorker`.
struct NodeTainter {
    nodes: Cache<Node>,
    options: Options,
    state: SharedState,
}

impl Planner for NodeTainter {
    type Observed = Arc<Node>;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Arc<Node>> {
        self.nodes.get("", &key.name)
    }

    fn describe(&self, node: &Arc<Node>, _: Timestamp) -> Description {
        let mut description = condition_taints::describe(node);
        let now = self.state.now();
        self.state.lock().describe(&node.meta.name, &self.options, now, &mut description);
        description
    }

    fn plan(&self, node: &Arc<Node>, (): &(), now: Timestamp) -> (Plan, ()) {
        (condition_taints::plan(node, now), ())
    }
}

/// Planner that sets the condition `Ready` of pods on unready nodes to `False`.
struct PodReadinessPlanner {
    pods: Cache<Pod>,
    state: SharedState,
}

impl Planner for PodReadinessPlanner {
    type Observed = PodOnNode;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<PodOnNode> {
        let pod = self.pods.get(&key.namespace, &key.name)?;
        let node_ready = self.state.lock().ready_status(&pod.spec.node_name);
        Some(PodOnNode { pod, node_ready })
    }

    fn plan(&self, observed: &PodOnNode, (): &(), now: Timestamp) -> (Plan, ()) {
        // `next` decides about all steps, including the first one.
        (self.first_step(observed, &(), now), ())
    }

    fn next(
        &self,
        observed: &PodOnNode,
        (): &(),
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Option<Plan> {
        Steps::next(outcomes, |steps| pods::process_pod(observed, now, steps))
    }
}
