//! Options of a scheduler.

use std::{sync::Arc, time::Duration};

use crate::framework::{Extender, Profile};

/// Default backoff after a pod's first failed attempt. Upstream: `DefaultPodInitialBackoffDuration`.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Default maximum backoff of a pod. Upstream: `DefaultPodMaxBackoffDuration`.
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// Default time after which an unschedulable pod is retried without an event.
///
/// Upstream: `DefaultPodMaxInUnschedulablePodsDuration`.
const MAX_IN_UNSCHEDULABLE_PODS: Duration = Duration::from_secs(5 * 60);

/// Options of [`crate::run()`]. The defaults are upstream's.
#[derive(Debug, Clone)]
pub struct SchedulerOptions {
    /// One profile for each `schedulerName`.
    pub profiles: Vec<Profile>,
    /// Extenders, in the order in which the scheduler calls them.
    pub extenders: Vec<Arc<dyn Extender>>,
    /// Backoff after a pod's first failed attempt, doubled by each further failure. Default: 1 s.
    pub pod_initial_backoff: Duration,
    /// Maximum backoff. Default: 10 s.
    pub pod_max_backoff: Duration,
    /// Feature gate `SchedulerPopFromBackoffQ`: retry pods before their backoff ends while the active queue is empty.
    /// Default: true.
    pub pop_from_backoff_q: bool,
    /// Feature gate `NominatedNodeNameForExpectation`: set `status.nominatedNodeName` before a binding that may take
    /// long. Default: true.
    pub nominated_node_name_for_expectation: bool,
    /// Feature gate `PodLevelResources`: resources of a whole pod count. Default: true.
    pub pod_level_resources: bool,
    /// Feature gate `InPlacePodLevelResourcesVerticalScaling`: during a resize of a whole pod, the resources that the
    /// kubelet reports count too. Default: true.
    pub pod_level_resize: bool,
    /// Flag `--pod-max-in-unschedulable-pods-duration`: time after which an unschedulable pod is retried without an
    /// event. Default: 5 min.
    pub pod_max_in_unschedulable_pods: Duration,
    /// Maximum number of concurrent bindings, not counting pods in Permit or PreBind. Default: 128.
    pub max_bindings: usize,
    /// Maximum number of concurrent victim deletions for one preemptor. Default: 16.
    pub parallelism: usize,
    /// Seed of the choice among nodes with equal scores. Default: 0.
    pub seed: u64,
    /// Name of this host, for the `reportingInstance` of events.
    pub host: String,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            profiles: vec![Profile::with_defaults(DEFAULT_SCHEDULER)],
            extenders: Vec::new(),
            pod_initial_backoff: INITIAL_BACKOFF,
            pod_max_backoff: MAX_BACKOFF,
            pop_from_backoff_q: true,
            nominated_node_name_for_expectation: true,
            pod_level_resources: true,
            pod_level_resize: true,
            pod_max_in_unschedulable_pods: MAX_IN_UNSCHEDULABLE_PODS,
            max_bindings: 128,
            parallelism: 16,
            seed: 0,
            host: "evenkeel".to_owned(),
        }
    }
}

impl SchedulerOptions {
    /// Iterates over the names of the profiles: the `spec.schedulerName` of the pods that the scheduler handles.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.profiles.iter().map(Profile::name)
    }

    /// Returns the `reportingInstance` of a profile's events: `<profile>-<host>`.
    ///
    /// Upstream: `NewRecorder`.
    pub(crate) fn reporting_instance(&self, profile: &Profile) -> String {
        format!("{}-{}", profile.name(), self.host)
    }
}

/// `spec.schedulerName` of pods that set none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_reports_under_its_own_name() {
        let options = SchedulerOptions {
            profiles: vec![Profile::with_defaults("one"), Profile::with_defaults("two")],
            host: "h".to_owned(),
            ..SchedulerOptions::default()
        };
        let names = options.profiles.iter().map(|profile| options.reporting_instance(profile));
        assert_eq!(names.collect::<Vec<_>>(), ["one-h", "two-h"]);
    }
}
