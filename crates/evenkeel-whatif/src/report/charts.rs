//! Time series of a recording: the input of plots.

use super::Fold;
use crate::recording::Recording;
use std::time::Duration;

/// Time series of a recording. Times are counted from the change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Charts {
    /// Workloads that had fewer ready pods than before the change, by name.
    pub workloads: Vec<ReadyPods>,
    /// Times of evictions, in order.
    pub evictions: Vec<Duration>,
    /// Budgets that allowed no disruption, by name.
    pub budgets: Vec<BudgetSpans>,
}

/// Number of ready pods of a workload over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyPods {
    /// Kind, namespace and name of the workload.
    pub workload: String,
    /// Number before the change.
    pub before: usize,
    /// Values, each with the time from which it holds. The first value holds from the change on.
    pub history: Vec<(Duration, usize)>,
}

/// Periods during which a budget allowed no disruption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetSpans {
    /// Namespace and name of the budget.
    pub budget: String,
    /// Start and end of each period, in order.
    pub spans: Vec<(Duration, Duration)>,
}

/// Returns the time series of a recording.
pub fn charts(recording: &Recording) -> Charts {
    Fold::after(recording).charts(recording.duration)
}
