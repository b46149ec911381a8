//! What DefaultBinder posts, and what follows from a failed POST.

use evenkeel_api::{Meta, views::Pod};
use evenkeel_runtime::client::ApiError;
use serde_json::json;
use std::time::Duration;

/// Delay before a repeated POST.
const WAITS: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];

/// POSTs that failed so far.
#[derive(Debug, Default)]
pub(super) struct Failures {
    n_waits: usize,
    /// The pod may be bound.
    open: bool,
}

/// What to do after a failed POST.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Repeat the POST after this delay.
    Repeat(Duration),
    /// Read the pod: it may be bound to the node.
    Read,
    /// The failure is final.
    Fail,
}

impl Failures {
    /// Counts a failed POST.
    pub(super) fn after(&mut self, error: &ApiError) -> Next {
        let again = leaves_open(error);
        // The connection may have repeated the POST by itself, so a conflict may be with this binding.
        self.open |= again || error.is_conflict();
        match WAITS.get(self.n_waits).filter(|_| again) {
            Some(wait) => {
                self.n_waits += 1;
                Next::Repeat(*wait)
            }
            None if self.open => Next::Read,
            None => Next::Fail,
        }
    }
}

/// Returns the Binding of the pod to the node.
pub(super) fn binding(meta: &Meta, node: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "name": meta.name, "namespace": meta.namespace, "uid": meta.uid },
        "target": { "kind": "Node", "name": node },
    })
    .to_string()
}

/// Reports whether this is the pod, on this node.
pub(super) fn is_bound(found: &Pod, meta: &Meta, node: &str) -> bool {
    found.meta.uid == meta.uid && *found.spec.node_name == *node
}

/// Reports whether the API server may have executed the request.
fn leaves_open(error: &ApiError) -> bool {
    matches!(error, ApiError::Transport { .. } | ApiError::Decode { .. })
        || matches!(error.code(), 500 | 503 | 504)
}
