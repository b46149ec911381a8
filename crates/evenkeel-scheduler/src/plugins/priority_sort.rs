//! PrioritySort: orders pods by priority, highest first, then by the time at which they were queued.
//!
//! Upstream: `plugins/queuesort`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | pending pods are ordered by priority, then by the time they were queued | `priority_sort_key`, `sort_key` |
//! | `spec.priority`, 0 without one | `pod::priority` |

use evenkeel_api::time::Timestamp;

use crate::{
    framework::{ClusterEvent, Plugin, QueueSort, SortKey},
    pod::PodInfo,
};

/// The PrioritySort plugin.
#[derive(Debug, Clone, Copy)]
pub struct PrioritySort;

impl Plugin for PrioritySort {
    fn name(&self) -> &'static str {
        "PrioritySort"
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        Vec::new()
    }

    fn as_queue_sort(&self) -> Option<&dyn QueueSort> {
        Some(self)
    }
}

impl QueueSort for PrioritySort {
    fn sort_key(&self, pod: &PodInfo, queued: Timestamp) -> SortKey {
        priority_sort_key(pod, queued)
    }
}

/// Returns the sort key of the default order, also used by profiles without a QueueSort plugin.
pub(crate) fn priority_sort_key(pod: &PodInfo, queued: Timestamp) -> SortKey {
    let queued_at = i64::try_from(queued.as_nanosecond()).unwrap_or(i64::MAX);
    [-i64::from(pod.priority()), queued_at]
}
