//! What was measured, and which pods that says something of.

use super::Options;
use evenkeel_api::{
    Text, requests,
    time::{SignedDuration, Timestamp},
    views::{Container, Pod},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// One pod's figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// Thousandths.
    pub(super) value: i64,
    /// When it was measured.
    pub(super) at: Timestamp,
    /// Over how long.
    pub(super) window: Duration,
}

/// Figures by the pods' names.
pub(super) type Samples = BTreeMap<Text, Sample>;

/// Pods as far as figures are concerned.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Groups<'a> {
    /// Those whose figures count.
    pub(super) ready: usize,
    /// Those that are not yet at work; what they use says nothing.
    pub(super) unready: BTreeSet<&'a str>,
    /// Those without a figure.
    pub(super) missing: BTreeSet<&'a str>,
    /// Those that are terminating (a `deletionTimestamp` is set), or have failed.
    pub(super) ignored: BTreeSet<&'a str>,
}

impl<'a> Groups<'a> {
    /// Sorts pods; `resource` is empty where the figures are of no resource.
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

fn after(time: Timestamp, span: Duration) -> Timestamp {
    SignedDuration::try_from(span)
        .ok()
        .and_then(|span| time.checked_add(span).ok())
        .unwrap_or(Timestamp::MAX)
}

/// Whether what the pod uses of the CPU may be what its start takes.
fn is_starting(pod: &Pod, sample: &Sample, options: &Options, now: Timestamp) -> bool {
    let ready = pod.status.conditions.iter().find(|condition| &*condition.type_ == "Ready");
    let (Some(ready), Some(start)) = (ready, pod.status.start_time) else { return true };
    let unready = &*ready.status == "False";
    let since = ready.last_transition_time.unwrap_or(Timestamp::UNIX_EPOCH);
    if after(start, options.cpu_initialization_period) > now {
        // One window must have passed since it became ready.
        unready || sample.at < after(since, sample.window)
    } else {
        // It has never been ready if that did not change after its first moments.
        unready && after(start, options.initial_readiness_delay) > since
    }
}

/// What each pod requests of a resource, in thousandths: of one container where one is named.
pub(super) fn requested(
    pods: &[Arc<Pod>],
    container: &str,
    resource: &str,
    options: &Options,
) -> Result<BTreeMap<Text, i64>, String> {
    let of_pod = |pod: &Arc<Pod>| {
        let whole = pod.spec.resources.as_deref().filter(|_| options.pod_level);
        let is_set = whole.is_some_and(|whole| {
            whole
                .requests
                .iter()
                .any(|(name, _)| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-"))
        });
        let amount = if is_set && container.is_empty() {
            of_whole(pod, resource)?
        } else {
            of_containers(pod, container, resource)?
        };
        Ok((pod.meta.name.clone(), amount))
    };
    pods.iter().map(of_pod).collect()
}

/// What a pod requests that says so for itself as a whole (KEP-2837).
fn of_whole(pod: &Pod, resource: &str) -> Result<i64, String> {
    let named = pod.spec.resources.as_ref().and_then(|whole| whole.requests.get(resource)).copied();
    let summed = || {
        let each = |container, _: Option<_>| requests::amounts(amounts_of(container));
        let all = requests::aggregate(pod, each);
        all.into_iter().find(|(name, _)| *name == resource).map(|(_, amount)| amount)
    };
    let amount = named.or_else(summed).ok_or_else(|| {
        format!("missing pod-level request for {resource} in Pod {}", pod.meta.name)
    })?;
    let overhead = pod.spec.overhead.get(resource).copied().unwrap_or_default();
    Ok(amount.plus(overhead).milli_value())
}

fn amounts_of(container: &Container) -> &evenkeel_api::map::Map<evenkeel_api::quantity::Quantity> {
    &container.resources.requests
}

/// What the containers request that run all along, sidecars among them; each must say so.
fn of_containers(pod: &Pod, container: &str, resource: &str) -> Result<i64, String> {
    let sidecars = pod.spec.init_containers.iter().filter(|c| &*c.restart_policy == "Always");
    let mut sum = 0_i64;
    for one in pod.spec.containers.iter().chain(sidecars) {
        if !container.is_empty() && *one.name != *container {
            continue;
        }
        let amount = one.resources.requests.get(resource).ok_or_else(|| {
            format!(
                "missing request for {resource} in container {} of Pod {}",
                one.name, pod.meta.name
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
