//! Body of DefaultBinder's POST, and the next step after a POST failed.

use evenkeel_api::{Meta, views::Pod};
use evenkeel_runtime::client::ApiError;
use serde_json::json;
use std::time::Duration;

/// Delays before the repetitions of a POST.
const WAITS: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];

/// Failed POSTs of one binding.
#[derive(Debug, Default)]
pub(super) struct Failures {
    n_waits: usize,
    /// Whether the pod may be bound in spite of the failures.
    open: bool,
}

/// Next step after a failed POST.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Repeat the POST after this delay.
    Repeat(Duration),
    /// Read the pod, which may be bound to the node.
    Read,
    /// The failure is final.
    Fail,
}

impl Failures {
    /// Records a failed POST and returns the next step.
    pub(super) fn after(&mut self, error: &ApiError) -> Next {
        let again = leaves_open(error);
        // The connection may have repeated the POST itself, so the conflict may be with this binding.
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

/// Reports whether the pod that was read is the scheduled one, on this node.
pub(super) fn is_bound(found: &Pod, meta: &Meta, node: &str) -> bool {
    found.meta.uid == meta.uid && *found.spec.node_name == *node
}

/// Reports whether the API server may have executed the request in spite of the error.
fn leaves_open(error: &ApiError) -> bool {
    matches!(error, ApiError::Transport { .. } | ApiError::Decode { .. })
        || matches!(error.code(), 500 | 503 | 504)
}
