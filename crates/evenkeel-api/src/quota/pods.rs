//! Quota usage of pods.

use super::Usage;
use crate::{
    quantity::Quantity,
    requests::{Amounts, add, aggregate, amounts, pod_level, raise, replace_pod_level},
    time::{SignedDuration, Timestamp},
    views::{Container, Pod, PodAffinityTerm, ResourceRequirements},
};
use std::collections::{BTreeMap, BTreeSet};

/// Names under which quotas limit pods, besides `count/pods` and those of huge pages and extended resources.
const NAMES: [&str; 10] = [
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

/// Names that every container must have a figure for once a quota limits them.
const DEMANDED: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// Prefix of the extended resources that stand for classes of devices (KEP-5004).
pub(super) const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

pub(super) fn tracks(name: &str) -> bool {
    NAMES.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
        || is_extended(name)
}

/// Whether a quota's name is that of an extended resource: `requests.` and a name outside of kubernetes.io.
pub(super) fn is_extended(name: &str) -> bool {
    name.strip_prefix("requests.")
        .is_some_and(|resource| !is_native(name) || resource.starts_with(DEVICE_CLASS))
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether the pod has a deadline.
pub fn is_terminating(pod: &Pod) -> bool {
    pod.spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0)
}

/// When a pod that is being deleted should be gone; nobody is charged for it from then on.
pub fn grace_ends(pod: &Pod) -> Option<Timestamp> {
    let seconds = pod.meta.deletion_grace_seconds?;
    pod.meta.deletion?.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Whether the pod counts for more than its presence: it has not ended, and is not overdue.
pub fn is_charged(pod: &Pod, now: Timestamp) -> bool {
    !matches!(&*pod.status.phase, "Failed" | "Succeeded")
        && grace_ends(pod).is_none_or(|end| now <= end)
}

pub(super) fn usage(pod: &Pod, now: Timestamp, usage: &mut Usage) {
    if is_charged(pod, now) {
        compute(&requests(pod), &limits(pod), usage);
    }
}

/// The names that quotas have for these amounts.
fn compute(requests: &Amounts<'_>, limits: &Amounts<'_>, usage: &mut Usage) {
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

/// Whether the node has said that it cannot resize the pod as asked (KEP-1287).
fn is_infeasible(pod: &Pod) -> bool {
    let pending = pod.status.conditions.iter().find(|c| &*c.type_ == "PodResizePending");
    pending.is_some_and(|condition| &*condition.reason == "Infeasible")
}

/// Requests: of what is asked for, set aside and in force the most, where the pod is being resized.
fn requests(pod: &Pod) -> Amounts<'_> {
    let infeasible = is_infeasible(pod);
    let asked = |container| if infeasible { Amounts::new() } else { spec_requests(container) };
    let mut total = aggregate(pod, |container, status| match status {
        Some(status) if !status.allocated_resources.is_empty() => {
            amounts(&status.allocated_resources)
        }
        _ => asked(container),
    });
    let in_force = aggregate(pod, |container, status| {
        let Some(status) = status else { return asked(container) };
        match &status.resources {
            Some(resources) if !resources.requests.is_empty() => amounts(&resources.requests),
            _ if !status.allocated_resources.is_empty() => amounts(&status.allocated_resources),
            _ => asked(container),
        }
    });
    raise(&mut total, &in_force);
    if !infeasible {
        raise(&mut total, &aggregate(pod, |container, _| spec_requests(container)));
    }
    if let Some(whole) = &pod.spec.resources {
        replace_pod_level(&mut total, amounts(&whole.requests));
    }
    add(&mut total, &amounts(&pod.spec.overhead));
    total
}

fn spec_requests(container: &Container) -> Amounts<'_> {
    amounts(&container.resources.requests)
}

/// The most that a whole pod may use, of the resources that have a limit.
pub fn limits(pod: &Pod) -> Amounts<'_> {
    let infeasible = is_infeasible(pod);
    let mut total = aggregate(pod, |container, status| {
        match status.and_then(|status| status.resources.as_ref()) {
            Some(resources) if !resources.limits.is_empty() => amounts(&resources.limits),
            _ if infeasible => Amounts::new(),
            _ => amounts(&container.resources.limits),
        }
    });
    if !infeasible {
        raise(&mut total, &aggregate(pod, |container, _| amounts(&container.resources.limits)));
    }
    if let Some(whole) = &pod.spec.resources {
        replace_pod_level(&mut total, amounts(&whole.limits));
    }
    for (name, amount) in pod.spec.overhead.iter() {
        if total.iter().any(|(own, limit)| *own == name && !limit.is_zero()) {
            add(&mut total, &[(name, *amount)]);
        }
    }
    total
}

/// Whether the pod is best-effort: without requests and limits of CPU and memory.
pub(super) fn is_best_effort(pod: &Pod) -> bool {
    if !pod.status.qos_class.is_empty() {
        return &*pod.status.qos_class == "BestEffort";
    }
    let none = |resources: &ResourceRequirements| {
        let zero = |name| {
            let of = [resources.requests.get(name), resources.limits.get(name)];
            of.into_iter().flatten().all(|amount| amount.is_zero())
        };
        zero("cpu") && zero("memory")
    };
    match pod.spec.resources.as_deref().filter(|whole| is_pod_level(whole)) {
        Some(whole) => none(whole),
        None => containers(pod).all(|container| none(&container.resources)),
    }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.containers.iter().chain(&*pod.spec.init_containers)
}

fn is_pod_level(whole: &ResourceRequirements) -> bool {
    let mut names = whole.requests.iter().chain(whole.limits.iter());
    names.any(|(name, _)| pod_level(name))
}

/// Whether a term of its affinity reaches beyond its own namespace.
pub(super) fn looks_into_other_namespaces(pod: &Pod) -> bool {
    let Some(affinity) = &pod.spec.affinity else { return false };
    let reaches = |term: &PodAffinityTerm| {
        !term.namespaces.is_empty() || term.namespace_selector != Default::default()
    };
    let near = affinity.pod_affinity.iter().any(|near| {
        near.required_during_scheduling_ignored_during_execution.iter().any(reaches)
            || near
                .preferred_during_scheduling_ignored_during_execution
                .iter()
                .any(|weighted| reaches(&weighted.pod_affinity_term))
    });
    near || affinity.pod_anti_affinity.iter().any(|away| {
        away.required_during_scheduling_ignored_during_execution.iter().any(reaches)
            || away
                .preferred_during_scheduling_ignored_during_execution
                .iter()
                .any(|weighted| reaches(&weighted.pod_affinity_term))
    })
}

/// What of the limited names the pod's containers do not say, as upstream words it: `limits.cpu for: a,b; memory for: a`.
pub(super) fn unsaid<'n>(pod: &Pod, limited: impl Iterator<Item = &'n str>) -> Option<String> {
    if pod.spec.resources.as_deref().is_some_and(is_pod_level) {
        return None;
    }
    let demanded: BTreeSet<&str> = limited.filter(|name| DEMANDED.contains(name)).collect();
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in containers(pod) {
        let mut said = Usage::default();
        let resources = &container.resources;
        compute(&amounts(&resources.requests), &amounts(&resources.limits), &mut said);
        for name in demanded.iter().filter(|name| said.get(name).is_none()) {
            missing.entry(name).or_default().insert(&container.name);
        }
    }
    let texts: Vec<String> = missing
        .into_iter()
        .map(|(name, containers)| {
            format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}
