//! Body of DefaultBinder's POST, and the next step after a POST failed.

use evenkeel_api::{Meta, views::Pod};
use evenkeel_runtime::client::ApiError;
use serde_json::json;
use std::time::Duration;

/// Delays before the repetitions of a POST.
const RETRY_DELAYS: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];

/// Failed POSTs of one binding.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// Number of repetitions so far.
    repeats: usize,
    /// Whether the pod may be bound in spite of the failures.
    may_be_bound: bool,
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
    pub(super) fn record(&mut self, error: &ApiError) -> Next {
        let retriable = may_have_run(error);
        // The connection may have repeated the POST itself, so the conflict may be with this binding.
        self.may_be_bound |= retriable || error.is_conflict();
        match RETRY_DELAYS.get(self.repeats).filter(|_| retriable) {
            Some(delay) => {
                self.repeats += 1;
                Next::Repeat(*delay)
            }
            None if self.may_be_bound => Next::Read,
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

/// Returns whether `current` is the pod that `meta` identifies, and is bound to this node.
pub(super) fn is_bound(current: &Pod, meta: &Meta, node: &str) -> bool {
    current.meta.uid == meta.uid && *current.spec.node_name == *node
}

/// Returns whether the API server may have executed the request in spite of the error.
fn may_have_run(error: &ApiError) -> bool {
    matches!(error, ApiError::Transport { .. } | ApiError::Decode { .. })
        || matches!(error.code(), 500 | 503 | 504)
}
