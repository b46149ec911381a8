//! What the controller remembers of all nodes.

use super::{
    Options,
    plan::{
        health::{Health, Moment, Now, Ready},
        refusal::Refusal,
        zones::Zones,
    },
};
use evenkeel_api::{
    Text,
    views::{Lease, Node},
};
use evenkeel_runtime::{clock::Clock, introspect::Description};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::time::Instant;

/// Shared by the monitor and those who want to know what it knows.
#[derive(Clone)]
pub(super) struct Memory {
    clock: Clock,
    began: Instant,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) nodes: BTreeMap<Text, Known>,
    pub(super) zones: Zones,
    /// The version of leases that the cache must have before any node is judged.
    pub(super) behind: Option<u64>,
}

/// One node.
pub(super) struct Known {
    pub(super) uid: Text,
    pub(super) zone: Text,
    pub(super) health: Option<Health>,
    /// Its pods still have to be marked.
    pub(super) pods_to_mark: bool,
    /// Its taints were not to be changed.
    pub(super) refused: Option<Refusal>,
}

impl Known {
    /// Somebody wrote of it that nothing is known of it.
    pub(super) fn is_silent(&mut self) {
        if let Some(health) = &mut self.health {
            health.ready = Some(Ready::Unknown);
        }
    }
}

impl Memory {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, began: Instant::now(), state: Arc::default() }
    }

    pub(super) fn now(&self) -> Now {
        let steady = Moment::try_from(self.began.elapsed()).unwrap_or(Moment::MAX);
        Now { steady, wall: self.clock.now() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is remembered of a node.
    pub(super) fn change(&self, name: &str, change: impl FnOnce(&mut Known)) {
        if let Some(known) = self.lock().nodes.get_mut(name) {
            change(known);
        }
    }

    /// Whether the node's taints are not to be tried again yet.
    pub(super) fn is_refused(&self, node: &Node) -> bool {
        let (version, now) = (node.meta.version(), self.now().steady);
        let state = self.lock();
        let refused = state.nodes.get(&node.meta.name).and_then(|known| known.refused);
        refused.is_some_and(|refused| refused.holds(version, now))
    }

    /// The node's taints were refused as they came.
    pub(super) fn refuse(&self, node: &Node) {
        let (version, now) = (node.meta.version(), self.now().steady);
        self.change(&node.meta.name, |known| {
            known.refused = Some(Refusal::after(known.refused, version, now));
        });
    }

    /// What the node was last seen to be.
    pub(super) fn ready(&self, name: &str) -> Option<Ready> {
        self.lock().nodes.get(name)?.health?.ready
    }

    /// Takes note of a node and its lease as they are.
    pub(super) fn look(&self, node: &Node, lease: Option<&Lease>) -> Health {
        let now = self.now();
        let mut state = self.lock();
        let known = state.nodes.get_mut(&node.meta.name);
        let before = known.as_ref().and_then(|known| known.health);
        let health = Health::after(before, node, lease, now);
        if let Some(known) = known {
            known.health = Some(health);
        }
        health
    }

    /// Tells what is remembered of a node.
    pub(super) fn describe(&self, name: &str, options: &Options, told: &mut Description) {
        let now = self.now();
        let state = self.lock();
        let Some(known) = state.nodes.get(name) else { return };
        if let Some(health) = known.health {
            told.fact(
                "last sign of life",
                format!("{} s ago", (now.steady - health.heard).as_secs()),
            );
            if health.is_overdue(options, now) {
                told.waits("its kubelet to report or to renew the node's lease");
            }
        }
        told.fact("state of its zone", format!("{:?}", state.zones.state(&known.zone)));
    }
}
