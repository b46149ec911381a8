//! Node IPAM controller: allocates pod CIDRs to nodes, one for each IP family. Upstream: the range allocator in
//! `pkg/controller/nodeipam`.
//!
//! It runs only with the flag `--allocate-node-cidrs`. Upstream's other allocators belong to cloud controller managers.

mod metrics;
mod options;
mod plan;

pub use options::Options;

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{time::Timestamp, views::Node};
use evenkeel_runtime::{
    cache::Cache,
    plan::{Key, Outcomes, Pass, PassHandler, Plan, Planned, Planner, Steps},
};
use metrics::Metrics;
use plan::{
    allocator::{Allocator, Verdict},
    assign::{self, Allocations, Observed},
    config::Config,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of workers. No flag changes it. Upstream: `cidrUpdateWorkers`.
const WORKERS: usize = 30;

/// The node IPAM controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "node-ipam-controller",
    aliases: &["nodeipam"],
    queue: "cidrallocator_node",
    client: "node-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let options = &context.options.nodeipam;
    if !options.enabled {
        return Ok(Started::No("--allocate-node-cidrs is off"));
    }
    let start_error = |reason| StartError { controller: DESCRIPTOR.name, reason };
    let config = Config::new(options).map_err(start_error)?;
    let nodes = context.env.caches.of::<Node>();
    let metrics = Metrics::new(&context.registry);
    let allocator = Allocator::new(&config).map_err(|problem| start_error(problem.to_string()))?;
    let state = Arc::new(Mutex::new(State { allocator, list_state: ListState::NotStarted }));
    let planner = Nodes { nodes: nodes.clone(), state: state.clone() };
    // Nodes are planned one after another, because each decision depends on the allocations before it.
    let builder = context
        .builder(&DESCRIPTOR, &nodes)
        .event_source("cidrAllocator")
        .workers(WORKERS)
        .plans_in_turn();
    context.run(builder.planned_with(planner, Recorder { state, metrics }));
    Ok(Started::Yes)
}

/// The allocator, and the progress of its start. [`Nodes`] reads this state, and [`Recorder`] changes it.
struct State {
    allocator: Allocator,
    list_state: ListState,
}

/// Progress of the first live list of all nodes. After the list, the allocator records the CIDRs of these nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListState {
    NotStarted,
    /// A reconciliation is listing the nodes.
    Underway,
    Done,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Decides the pod CIDRs of a node.
struct Nodes {
    nodes: Cache<Node>,
    state: Arc<Mutex<State>>,
}

impl Planner for Nodes {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let node = self.nodes.get("", &key.name);
        let state = lock(&self.state);
        let allocations = match state.list_state {
            ListState::NotStarted => Allocations::Unlisted,
            ListState::Underway => Allocations::Listing,
            ListState::Done => {
                Allocations::Recorded(state.allocator.verdict(&key.name, node.as_ref()?))
            }
        };
        Some(Observed { node, allocations })
    }

    fn plan(&self, observed: &Observed, (): &(), now: Timestamp) -> (Plan, ()) {
        (self.first_step(observed, &(), now), ())
    }

    fn next(
        &self,
        observed: &Observed,
        (): &(),
        outcomes: &Outcomes,
        _: Timestamp,
    ) -> Option<Plan> {
        Steps::next(outcomes, |steps| assign::sync_node(observed, steps))
    }
}

/// Records the CIDRs of nodes in the allocator, and updates the metrics.
struct Recorder {
    state: Arc<Mutex<State>>,
    metrics: Metrics,
}

impl Recorder {
    /// Updates the gauges of all CIDR sets.
    fn update_gauges(&self, state: &State) {
        state.allocator.sets.iter().for_each(|set| self.metrics.update_gauges(set));
    }

    /// Records how many CIDRs of each set the allocator tried for an allocation.
    fn observe_tries(&self, state: &State, verdict: &Verdict) {
        if let Verdict::Allocate { tries_per_set, .. } = verdict {
            for (set, tries) in state.allocator.sets.iter().zip(tries_per_set) {
                self.metrics.observe_tries(set, *tries);
            }
        }
    }

    /// Records the CIDRs of the nodes that a reconciliation listed. Upstream: `NewCIDRRangeAllocator`.
    fn record_listed_nodes(&self, outcomes: &Outcomes) {
        let mut state = lock(&self.state);
        // The outer error is the error of the step, the inner one the error of the list.
        let Ok(Ok(nodes)) = assign::list_nodes(&mut Steps::of(outcomes)) else {
            state.list_state = ListState::NotStarted;
            return;
        };
        for node in nodes.iter().filter(|node| !node.spec.pod_cidrs.is_empty()) {
            let name = &*node.meta.name;
            if let Verdict::Invalid(problem) = state.allocator.decide_and_record(name, node) {
                tracing::warn!(
                    node = name,
                    problem,
                    "Node has a podCIDR that does not belong to the cluster CIDR"
                );
            }
        }
        state.list_state = ListState::Done;
        self.update_gauges(&state);
    }
}

impl PassHandler<Nodes> for Recorder {
    fn on_planned(&self, observed: &Observed, _: Planned<'_, ()>) {
        let mut state = lock(&self.state);
        match (&observed.allocations, &observed.node) {
            (Allocations::Unlisted, _) => state.list_state = ListState::Underway,
            (Allocations::Recorded(verdict), Some(node)) => {
                state.allocator.record_verdict(&node.meta.name, node, verdict);
                self.update_gauges(&state);
                self.observe_tries(&state, verdict);
            }
            _ => {}
        }
    }

    fn on_passed(&self, observed: &Observed, pass: &Pass<'_>) {
        if observed.allocations == Allocations::Unlisted {
            self.record_listed_nodes(pass.outcomes);
        }
        if let Some(node) = &observed.node
            && assign::is_rejected(observed, pass.outcomes)
        {
            let mut state = lock(&self.state);
            state.allocator.release(&node.meta.name);
            self.update_gauges(&state);
        }
    }

    fn on_gone(&self, key: &Key) {
        let mut state = lock(&self.state);
        state.allocator.release(&key.name);
        self.update_gauges(&state);
    }
}
