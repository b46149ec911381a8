//! Samples of pods, and the groups of pods by usability of their samples.

use super::Options;
use evenkeel_api::{
    Text,
    time::{Timestamp, saturating_add},
    views::{Container, Pod},
};
use evenkeel_component_helpers::resource;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Sample of one pod. Upstream: `PodMetric`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// Value in thousandths.
    pub(super) value: i64,
    /// Time of the measurement.
    pub(super) at: Timestamp,
    /// Window of the measurement.
    pub(super) window: Duration,
}

/// Samples by pod name. Upstream: `PodMetricsInfo`.
pub(super) type Samples = BTreeMap<Text, Sample>;

/// Groups of pods. Upstream: `groupPods`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Groups<'a> {
    /// Number of pods whose samples count.
    pub(super) ready: usize,
    /// Pods that are pending or starting; their samples do not count.
    pub(super) unready: BTreeSet<&'a str>,
    /// Pods without a sample.
    pub(super) missing: BTreeSet<&'a str>,
    /// Pods that are terminating or failed.
    pub(super) ignored: BTreeSet<&'a str>,
}

impl<'a> Groups<'a> {
    /// Groups the pods; `resource` is empty unless the metric is a resource metric. Upstream: `groupPods`.
    pub(super) fn new(
        pods: &'a [Arc<Pod>],
        samples: &Samples,
        resource: &str,
        options: &Options,
        now: Timestamp,
    ) -> Self {
        let mut groups = Self::default();
        for pod in pods {
            let name = &*pod.meta.name;
            if pod.meta.deleting() || &*pod.status.phase == "Failed" {
                groups.ignored.insert(name);
            } else if &*pod.status.phase == "Pending" {
                groups.unready.insert(name);
            } else if let Some(sample) = samples.get(name) {
                if resource == "cpu" && is_starting(pod, sample, options, now) {
                    groups.unready.insert(name);
                } else {
                    groups.ready += 1;
                }
            } else {
                groups.missing.insert(name);
            }
        }
        groups
    }
}

/// Whether the pod's CPU sample may show its initialization. Upstream: `groupPods`.
fn is_starting(pod: &Pod, sample: &Sample, options: &Options, now: Timestamp) -> bool {
    let ready = pod.status.conditions.iter().find(|condition| &*condition.type_ == "Ready");
    let (Some(ready), Some(start)) = (ready, pod.status.start_time) else { return true };
    let unready = &*ready.status == "False";
    let since = ready.last_transition_time.unwrap_or(Timestamp::UNIX_EPOCH);
    if saturating_add(start, options.cpu_initialization_period) > now {
        // The sample must be taken a full window after the pod became ready.
        unready || sample.at < saturating_add(since, sample.window)
    } else {
        // A pod whose readiness never changed after the initial delay was never ready.
        unready && saturating_add(start, options.initial_readiness_delay) > since
    }
}

/// Returns the requests of a resource by pod, in thousandths, of one container or of all. Upstream:
/// `calculateRequests`.
pub(super) fn calculate_requests(
    pods: &[Arc<Pod>],
    container: &str,
    resource: &str,
    options: &Options,
) -> Result<BTreeMap<Text, i64>, String> {
    let of_pod = |pod: &Arc<Pod>| {
        let pod_resources = pod.spec.resources.as_deref().filter(|_| options.pod_level);
        let is_set = pod_resources.is_some_and(|pod_resources| {
            pod_resources
                .requests
                .iter()
                .any(|(name, _)| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-"))
        });
        let amount = if is_set && container.is_empty() {
            pod_level_request(pod, resource)?
        } else {
            container_requests(pod, container, resource)?
        };
        Ok((pod.meta.name.clone(), amount))
    };
    pods.iter().map(of_pod).collect()
}

/// Returns pod-level requests (KEP-2837). Upstream: `calculatePodLevelRequests`.
fn pod_level_request(pod: &Pod, resource: &str) -> Result<i64, String> {
    let explicit_request = pod
        .spec
        .resources
        .as_ref()
        .and_then(|pod_resources| pod_resources.requests.get(resource))
        .copied();
    let summed = || {
        let each = |container, _: Option<_>| resource::amounts(requests_of(container));
        let all = resource::aggregate(pod, each);
        all.into_iter().find(|(name, _)| *name == resource).map(|(_, amount)| amount)
    };
    let amount = explicit_request.or_else(summed).ok_or_else(|| {
        format!("missing pod-level request for {resource} in Pod {}", pod.meta.name)
    })?;
    let overhead = pod.spec.overhead.get(resource).copied().unwrap_or_default();
    Ok(amount.plus(overhead).milli_value())
}

fn requests_of(container: &Container) -> &evenkeel_api::map::Map<evenkeel_api::quantity::Quantity> {
    &container.resources.requests
}

/// Returns the sum of the requests of containers and sidecars; each must have one. Upstream:
/// `calculatePodRequestsFromContainers`.
fn container_requests(pod: &Pod, container: &str, resource: &str) -> Result<i64, String> {
    let sidecars = pod.spec.init_containers.iter().filter(|c| &*c.restart_policy == "Always");
    let mut sum = 0_i64;
    for candidate in pod.spec.containers.iter().chain(sidecars) {
        if !container.is_empty() && *candidate.name != *container {
            continue;
        }
        let amount = candidate.resources.requests.get(resource).ok_or_else(|| {
            format!(
                "missing request for {resource} in container {} of Pod {}",
                candidate.name, pod.meta.name
            )
        })?;
        sum = sum.saturating_add(amount.milli_value());
        if !container.is_empty() {
            return Ok(sum);
        }
    }
    if container.is_empty() {
        Ok(sum)
    } else {
        Err(format!("container {container} not found in Pod {}", pod.meta.name))
    }
}
