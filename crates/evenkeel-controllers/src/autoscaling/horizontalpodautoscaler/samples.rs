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
    /// Time of the measurement, at the end of the window.
    pub(super) at: Timestamp,
    /// Time that the value covers.
    pub(super) window: Duration,
}

/// Samples by pod name. Upstream: `PodMetricsInfo`.
pub(super) type Samples = BTreeMap<Text, Sample>;

/// Names of pods, in groups by the usability of their samples. Upstream: `groupPods`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Groups<'a> {
    /// Number of pods whose samples count.
    pub(super) ready: usize,
    /// Pods that are pending or starting. Their samples do not count.
    pub(super) unready: BTreeSet<&'a str>,
    /// Pods without a sample.
    pub(super) missing: BTreeSet<&'a str>,
    /// Pods that are terminating or failed.
    pub(super) ignored: BTreeSet<&'a str>,
}

impl<'a> Groups<'a> {
    /// Groups the pods. `resource` is empty unless the metric is a resource metric. Upstream: `groupPods`.
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

/// Returns whether the pod's CPU sample may include CPU time of the pod's initialization. Upstream: `groupPods`.
fn is_starting(pod: &Pod, sample: &Sample, options: &Options, now: Timestamp) -> bool {
    let ready = pod.status.conditions.iter().find(|condition| &*condition.type_ == "Ready");
    let (Some(ready), Some(start)) = (ready, pod.status.start_time) else { return true };
    let is_unready = &*ready.status == "False";
    let since = ready.last_transition_time.unwrap_or(Timestamp::UNIX_EPOCH);
    if saturating_add(start, options.cpu_initialization_period) > now {
        // The sample must be taken a full window after the pod became ready.
        is_unready || sample.at < saturating_add(since, sample.window)
    } else {
        // A pod whose readiness never changed after the initial delay was never ready.
        is_unready && saturating_add(start, options.initial_readiness_delay) > since
    }
}

/// Returns the requests of a resource by pod name, in thousandths. If `container` is not empty, only this container of
/// each pod counts. Upstream: `calculateRequests`.
pub(super) fn calculate_requests(
    pods: &[Arc<Pod>],
    container: &str,
    resource: &str,
    options: &Options,
) -> Result<BTreeMap<Text, i64>, String> {
    let with_name = |pod: &Arc<Pod>| {
        let uses_pod_level = options.pod_level_resources && has_pod_level_requests(pod);
        let request = if uses_pod_level && container.is_empty() {
            pod_level_request(pod, resource)?
        } else {
            container_requests(pod, container, resource)?
        };
        Ok((pod.meta.name.clone(), request))
    };
    pods.iter().map(with_name).collect()
}

/// Returns whether the pod itself requests a resource that pods may request (KEP-2837). Upstream:
/// `IsPodLevelRequestsSet`.
fn has_pod_level_requests(pod: &Pod) -> bool {
    let is_supported =
        |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    pod.spec
        .resources
        .as_deref()
        .is_some_and(|resources| resources.requests.iter().any(|(name, _)| is_supported(name)))
}

/// Returns the request of a pod with pod-level requests: its own, or else the sum over its containers, with the
/// overhead. Upstream: `calculatePodLevelRequests`.
fn pod_level_request(pod: &Pod, resource: &str) -> Result<i64, String> {
    let explicit_request = pod
        .spec
        .resources
        .as_ref()
        .and_then(|pod_resources| pod_resources.requests.get(resource))
        .copied();
    let sum_of_containers = || {
        let requests = |container, _: Option<_>| resource::amounts(requests_of(container));
        let sums = resource::aggregate(pod, requests);
        sums.into_iter().find(|(name, _)| *name == resource).map(|(_, sum)| sum)
    };
    let request = explicit_request.or_else(sum_of_containers).ok_or_else(|| {
        format!("missing pod-level request for {resource} in Pod {}", pod.meta.name)
    })?;
    let overhead = pod.spec.overhead.get(resource).copied().unwrap_or_default();
    Ok(request.plus(overhead).milli_value())
}

/// Returns the resource requests of a container.
fn requests_of(container: &Container) -> &evenkeel_api::map::Map<evenkeel_api::quantity::Quantity> {
    &container.resources.requests
}

/// Returns the sum of the requests of containers and sidecars, or the request of one of them if `container` is not
/// empty. Each of these must have a request. Upstream: `calculatePodRequestsFromContainers`.
fn container_requests(pod: &Pod, container: &str, resource: &str) -> Result<i64, String> {
    let sidecars =
        pod.spec.init_containers.iter().filter(|container| &*container.restart_policy == "Always");
    let mut sum = 0_i64;
    for candidate in pod.spec.containers.iter().chain(sidecars) {
        if !container.is_empty() && *candidate.name != *container {
            continue;
        }
        let request = candidate.resources.requests.get(resource).ok_or_else(|| {
            format!(
                "missing request for {resource} in container {} of Pod {}",
                candidate.name, pod.meta.name
            )
        })?;
        sum = sum.saturating_add(request.milli_value());
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
