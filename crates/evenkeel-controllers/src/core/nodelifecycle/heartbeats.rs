//! Heartbeats that are known without Leases.

use evenkeel_api::views::Node;
use std::{fmt, sync::Arc};

/// Returns whether a node's kubelet is alive.
type IsAlive = dyn Fn(&Node) -> bool + Send + Sync;

/// Heartbeats of nodes whose kubelets run in the same process as the controllers, and need not renew Leases for them: in a
/// simulation of a thousand nodes, a day has nine million renewals. By default, only Leases and statuses are heartbeats.
#[derive(Clone, Default)]
pub struct Heartbeats(Option<Arc<IsAlive>>);

impl Heartbeats {
    /// Each check of a node counts as its heartbeat if `is_alive` reports that its kubelet runs and reaches the API server.
    pub fn known_by(is_alive: impl Fn(&Node) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_alive)))
    }

    /// Returns whether the node is known to be alive now.
    pub(super) fn come_from(&self, node: &Node) -> bool {
        self.0.as_ref().is_some_and(|is_alive| is_alive(node))
    }
}

impl PartialEq for Heartbeats {
    /// Compares the sources themselves, not the values that they report.
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }
}

impl fmt::Debug for Heartbeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Heartbeats").field(&self.0.is_some()).finish()
    }
}
