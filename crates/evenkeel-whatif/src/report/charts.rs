//! What changed in the course of time: the input of plots.

use super::Fold;
use crate::recording::Recording;
use std::time::Duration;

/// Courses of a recording. All times are since the change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Charts {
    /// Workloads that had fewer ready pods than before the change, by name.
    pub workloads: Vec<ReadyPods>,
    /// Times of evictions, in order.
    pub evictions: Vec<Duration>,
    /// Budgets that allowed no disruption, by name.
    pub budgets: Vec<BudgetSpans>,
}

/// Number of ready pods of a workload in the course of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyPods {
    /// Kind, namespace and name of the workload.
    pub workload: String,
    /// Number before the change.
    pub before: usize,
    /// Numbers, each from a time on. The first is from the change on.
    pub history: Vec<(Duration, usize)>,
}

/// Times at which a budget allowed no disruption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetSpans {
    /// Namespace and name of the budget.
    pub budget: String,
    /// Begin and end of each time, in order.
    pub spans: Vec<(Duration, Duration)>,
}

/// Returns the courses of a recording.
pub fn charts(recording: &Recording) -> Charts {
    Fold::after(recording).charts(recording.duration)
}
