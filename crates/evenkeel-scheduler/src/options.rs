//! What can be set about the scheduler.

use std::{sync::Arc, time::Duration};

use crate::framework::{Extender, Profile};

/// Settings of [`crate::run`]. The defaults are upstream's.
#[derive(Debug, Clone)]
pub struct SchedulerOptions {
    /// One for each `schedulerName` that is served.
    pub profiles: Vec<Profile>,
    /// Programs beside the scheduler that have a say, in the order in which they are asked.
    pub extenders: Vec<Arc<dyn Extender>>,
    /// Back-off after a pod's first failed attempt; doubles with each.
    pub pod_initial_backoff: Duration,
    /// The longest back-off.
    pub pod_max_backoff: Duration,
    /// A pod that backs off from being unschedulable is tried early when no other waits.
    pub pops_early: bool,
    /// A pod whose binding takes a while says in its status which node it will get.
    pub nominates: bool,
    /// A pod that nothing seems to help is tried again after so long.
    pub max_in_unschedulable: Duration,
    /// So many bindings are on their way at a time, beside pods that plugins make wait or prepare nodes for.
    pub max_bindings: usize,
    /// So many victims are evicted at a time for one pod's sake.
    pub parallelism: usize,
    /// Decides between nodes of equal score.
    pub seed: u64,
    /// Reported with events; upstream: `<scheduler>-<hostname>`.
    pub instance: String,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            profiles: vec![Profile::with_defaults(DEFAULT_SCHEDULER)],
            extenders: Vec::new(),
            pod_initial_backoff: Duration::from_secs(1),
            pod_max_backoff: Duration::from_secs(10),
            pops_early: true,
            nominates: true,
            max_in_unschedulable: Duration::from_secs(300),
            max_bindings: 128,
            parallelism: 16,
            seed: 0,
            instance: format!("{DEFAULT_SCHEDULER}-evenkeel"),
        }
    }
}

/// The `schedulerName` of pods that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";
