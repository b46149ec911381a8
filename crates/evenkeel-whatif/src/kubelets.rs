//! Liveness of simulated kubelets, for a node monitor that needs no heartbeats.

use evenkeel_api::views::Node;
use evenkeel_controllers::core::nodelifecycle::Heartbeats;
use evenkeel_nodes::{NodeFaults, SILENT};
use evenkeel_runtime::clock::Clock;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Kubelets of a simulation. Clones share them.
#[derive(Clone)]
pub(crate) struct Kubelets {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

/// State of the simulated kubelets.
#[derive(Default)]
struct State {
    /// Names of the nodes with a kubelet.
    nodes: BTreeSet<String>,
    /// Faults of the nodes. Before the components start, only the faults of annotations.
    faults: NodeFaults,
}

impl Kubelets {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self { clock: clock.clone(), state: Arc::default() }
    }

    /// Adds the kubelets of these nodes.
    pub(crate) fn add(&self, nodes: impl IntoIterator<Item = String>) {
        self.lock().nodes.extend(nodes);
    }

    /// Follows the faults of the running nodes.
    pub(crate) fn follow(&self, faults: &NodeFaults) {
        self.lock().faults = faults.clone();
    }

    /// Returns the heartbeats of kubelets that no fault partitions from the API server. A node that is created in the
    /// simulation has no kubelet and no heartbeats.
    pub(crate) fn heartbeats(&self) -> Heartbeats {
        let kubelets = self.clone();
        Heartbeats::known_by(move |node| kubelets.is_alive(node))
    }

    fn is_alive(&self, node: &Node) -> bool {
        let state = self.lock();
        state.nodes.contains(&*node.meta.name)
            && state.faults.fault(node, SILENT, self.clock.now()).is_none()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
