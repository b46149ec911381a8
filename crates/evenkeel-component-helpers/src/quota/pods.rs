//! Quota usage of pods.
//!
//! Upstream: `pkg/quota/v1/evaluator/core/pods.go`.

use super::Usage;
use crate::resource::{
    Amounts, add, aggregate, amounts, is_pod_level_resource, raise_to, replace_pod_level,
};
use evenkeel_api::{
    quantity::Quantity,
    time::{SignedDuration, Timestamp, saturating_add},
    views::{Container, Pod, PodAffinityTerm, ResourceRequirements, WeightedPodAffinityTerm},
};
use std::collections::{BTreeMap, BTreeSet};

/// Quota resources of pods, besides `count/pods`, huge pages and extended resources.
const COMPUTE_RESOURCES: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];

/// Quota resources that every container must specify if a quota limits them.
const REQUIRED_RESOURCES: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// Prefix of the implicit extended resources of device classes (KEP-5004). The name of the class follows it.
pub(super) const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

pub(super) fn matches_resource(name: &str) -> bool {
    COMPUTE_RESOURCES.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
        || is_extended(name)
}

/// Returns whether a quota resource is an extended one: `requests.` and a name outside of kubernetes.io.
///
/// Upstream: `isExtendedResourceNameForQuota`.
pub(super) fn is_extended(name: &str) -> bool {
    name.strip_prefix("requests.")
        .is_some_and(|resource| !is_native(name) || resource.starts_with(DEVICE_CLASS))
}

/// Returns whether a resource is native to Kubernetes.
///
/// Upstream: `IsNativeResource`.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns whether the pod has an `activeDeadlineSeconds`, which the quota scope `Terminating` selects.
///
/// Upstream: `IsTerminating`.
pub fn is_terminating(pod: &Pod) -> bool {
    pod.spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0)
}

/// Returns the time from which quotas no longer count a deleted pod: its deletion timestamp plus the grace
/// period. The timestamp already includes the period, but upstream adds it too.
pub fn grace_period_end(pod: &Pod) -> Option<Timestamp> {
    let seconds = pod.meta.deletion_grace_seconds?;
    Some(saturating_add(pod.meta.deletion?, SignedDuration::from_secs(seconds)))
}

/// Returns whether quotas count the pod: it has not finished, and its grace period has not ended.
///
/// Upstream: `QuotaV1Pod`.
pub fn is_charged(pod: &Pod, now: Timestamp) -> bool {
    !matches!(&*pod.status.phase, "Failed" | "Succeeded")
        && grace_period_end(pod).is_none_or(|end| now <= end)
}

/// Adds the requests and limits of a pod that quotas count.
pub(super) fn usage(pod: &Pod, now: Timestamp, usage: &mut Usage) {
    if is_charged(pod, now) {
        set_compute_usage(&requests(pod), &limits(pod), usage);
    }
}

/// Sets the usage of each quota resource from requests and limits.
///
/// Upstream: `podComputeUsageHelper`.
fn set_compute_usage(requests: &Amounts<'_>, limits: &Amounts<'_>, usage: &mut Usage) {
    usage.set("pods", Quantity::from_units(1));
    for (name, amount) in requests {
        match *name {
            "cpu" | "memory" | "ephemeral-storage" => {
                usage.set(*name, *amount);
                usage.set(format!("requests.{name}"), *amount);
            }
            _ if name.starts_with("hugepages-") => {
                usage.set(*name, *amount);
                usage.set(format!("requests.{name}"), *amount);
            }
            _ if !is_native(name) && !name.starts_with("requests.")
                || name.starts_with(DEVICE_CLASS) =>
            {
                usage.set(format!("requests.{name}"), *amount);
            }
            _ => {}
        }
    }
    for (name, amount) in limits {
        if matches!(*name, "cpu" | "memory" | "ephemeral-storage") {
            usage.set(format!("limits.{name}"), *amount);
        }
    }
}

/// Returns whether the kubelet has reported the pod's resize as infeasible (KEP-1287).
fn is_resize_infeasible(pod: &Pod) -> bool {
    let pending = pod.status.conditions.iter().find(|c| &*c.type_ == "PodResizePending");
    pending.is_some_and(|condition| &*condition.reason == "Infeasible")
}

/// Returns the pod's requests. During a resize, each is the maximum of the desired, allocated and actual
/// request.
///
/// Upstream: `PodRequests`.
fn requests(pod: &Pod) -> Amounts<'_> {
    let is_infeasible = is_resize_infeasible(pod);
    let desired = |container| if is_infeasible { Amounts::new() } else { spec_requests(container) };
    let mut total = aggregate(pod, |container, status| match status {
        Some(status) if !status.allocated_resources.is_empty() => {
            amounts(&status.allocated_resources)
        }
        _ => desired(container),
    });
    let actual = aggregate(pod, |container, status| {
        let Some(status) = status else { return desired(container) };
        match &status.resources {
            Some(resources) if !resources.requests.is_empty() => amounts(&resources.requests),
            _ if !status.allocated_resources.is_empty() => amounts(&status.allocated_resources),
            _ => desired(container),
        }
    });
    raise_to(&mut total, &actual);
    if !is_infeasible {
        raise_to(&mut total, &aggregate(pod, |container, _| spec_requests(container)));
    }
    if let Some(pod_resources) = &pod.spec.resources {
        replace_pod_level(&mut total, amounts(&pod_resources.requests));
    }
    add(&mut total, &amounts(&pod.spec.overhead));
    total
}

fn spec_requests(container: &Container) -> Amounts<'_> {
    amounts(&container.resources.requests)
}

/// Returns the pod's limits. During a resize, each is the maximum of the desired and the actual limit.
///
/// Upstream: `PodLimits`.
pub fn limits(pod: &Pod) -> Amounts<'_> {
    let is_infeasible = is_resize_infeasible(pod);
    let mut total = aggregate(pod, |container, status| {
        match status.and_then(|status| status.resources.as_ref()) {
            Some(resources) if !resources.limits.is_empty() => amounts(&resources.limits),
            _ if is_infeasible => Amounts::new(),
            _ => amounts(&container.resources.limits),
        }
    });
    if !is_infeasible {
        raise_to(&mut total, &aggregate(pod, |container, _| amounts(&container.resources.limits)));
    }
    if let Some(pod_resources) = &pod.spec.resources {
        replace_pod_level(&mut total, amounts(&pod_resources.limits));
    }
    // The overhead only raises existing limits: it must not limit a resource that the pod leaves unlimited.
    for (name, amount) in pod.spec.overhead.iter() {
        if total.iter().any(|(limited, limit)| *limited == name && !limit.is_zero()) {
            add(&mut total, &[(name, *amount)]);
        }
    }
    total
}

/// Returns whether the pod is best-effort: it has no requests and limits of CPU and memory.
pub(super) fn is_best_effort(pod: &Pod) -> bool {
    if !pod.status.qos_class.is_empty() {
        return &*pod.status.qos_class == "BestEffort";
    }
    let has_none = |resources: &ResourceRequirements| {
        let is_unset = |name| {
            let amounts = [resources.requests.get(name), resources.limits.get(name)];
            amounts.into_iter().flatten().all(|amount| amount.is_zero())
        };
        is_unset("cpu") && is_unset("memory")
    };
    match pod.spec.resources.as_deref().filter(|pod_resources| sets_pod_level(pod_resources)) {
        Some(pod_resources) => has_none(pod_resources),
        None => containers(pod).all(|container| has_none(&container.resources)),
    }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.containers.iter().chain(&*pod.spec.init_containers)
}

/// Returns whether the resources of a pod's spec contain a resource that is supported at pod level.
fn sets_pod_level(pod_resources: &ResourceRequirements) -> bool {
    let mut names = pod_resources.requests.iter().chain(pod_resources.limits.iter());
    names.any(|(name, _)| is_pod_level_resource(name))
}

/// Returns whether the pod has an affinity term across namespaces.
///
/// Upstream: `usesCrossNamespacePodAffinity`.
pub(super) fn uses_cross_namespace_affinity(pod: &Pod) -> bool {
    let Some(affinity) = &pod.spec.affinity else { return false };
    let crosses_namespaces = |term: &PodAffinityTerm| {
        !term.namespaces.is_empty() || term.namespace_selector != Default::default()
    };
    let any_crosses = |required: &[PodAffinityTerm], preferred: &[WeightedPodAffinityTerm]| {
        required.iter().any(crosses_namespaces)
            || preferred.iter().any(|weighted| crosses_namespaces(&weighted.pod_affinity_term))
    };
    let affinity_crosses = affinity.pod_affinity.as_deref().is_some_and(|affinity| {
        any_crosses(
            &affinity.required_during_scheduling_ignored_during_execution,
            &affinity.preferred_during_scheduling_ignored_during_execution,
        )
    });
    let anti_affinity_crosses = affinity.pod_anti_affinity.as_deref().is_some_and(|affinity| {
        any_crosses(
            &affinity.required_during_scheduling_ignored_during_execution,
            &affinity.preferred_during_scheduling_ignored_during_execution,
        )
    });
    affinity_crosses || anti_affinity_crosses
}

/// Returns the limited resources that containers neither request nor limit, with the containers' names. The
/// format is upstream's: `limits.cpu for: a,b; memory for: a`.
///
/// Upstream: `Constraints` of `podEvaluator`.
pub(super) fn missing<'n>(pod: &Pod, limited: impl Iterator<Item = &'n str>) -> Option<String> {
    if pod.spec.resources.as_deref().is_some_and(sets_pod_level) {
        return None;
    }
    let required: BTreeSet<&str> =
        limited.filter(|name| REQUIRED_RESOURCES.contains(name)).collect();
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in containers(pod) {
        let mut usage = Usage::default();
        let resources = &container.resources;
        set_compute_usage(&amounts(&resources.requests), &amounts(&resources.limits), &mut usage);
        for name in required.iter().filter(|name| usage.get(name).is_none()) {
            missing.entry(name).or_default().insert(&container.name);
        }
    }
    if missing.is_empty() {
        return None;
    }
    let mut texts = Vec::new();
    for (name, containers) in missing {
        let containers: Vec<&str> = containers.into_iter().collect();
        texts.push(format!("{name} for: {}", containers.join(",")));
    }
    Some(texts.join("; "))
}
