//! Status of a quota. Upstream: `syncResourceQuota`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `status.hard`, `status.used` | `plan`, `calculate_usage` |
//! | `scopes`, `scopeSelector` | `calculate_usage`, `../../../../evenkeel-component-helpers/src/quota/scope.rs` |
//! | `requests.*`, `limits.*`, `count/*`, `pods`, `services.nodeports`, `persistentvolumeclaims`, claims of a class | `calculate_usage`, `../../../../evenkeel-component-helpers/src/quota/mod.rs` |
//! | terminal pods, and pods past their grace period | `delay_until_overdue`, `../../../../evenkeel-component-helpers/src/quota/pods.rs` |
//! | changes that decrease usage before `--resource-quota-sync-period` passes | `replenish/update_filter.rs` |
//! | no object is created beyond `hard` | `../../../../evenkeel-apiserver/src/admission/quota.rs` |

use crate::wire;
use evenkeel_api::{
    quantity::Quantity,
    time::Timestamp,
    views::{PersistentVolumeClaim, Pod, ResourceClaim, ResourceQuota, Service},
};
use evenkeel_component_helpers::quota::{
    Classes, Evaluator, Item, Usage, grace_period_end, is_claim_of,
};
use evenkeel_runtime::{
    introspect::Description,
    plan::{Plan, Update},
};
use serde::{Serialize, Serializer};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Delay of the recalculation after a write: at the write, the caches may have lacked objects that were being created.
const RECOUNT_DELAY: Duration = Duration::from_secs(10);

/// A quota, and the kinds that it limits.
pub(super) struct Observed {
    pub(super) quota: Arc<ResourceQuota>,
    pub(super) classes: Classes,
    pub(super) limited_kinds: Vec<LimitedKind>,
}

/// A kind that the quota limits, and its objects in the quota's namespace.
pub(super) struct LimitedKind {
    pub(super) evaluator: Arc<Evaluator>,
    pub(super) content: Content,
}

/// The objects, or only their number.
pub(super) enum Content {
    Pods(Vec<Arc<Pod>>),
    Services(Vec<Arc<Service>>),
    VolumeClaims(Vec<Arc<PersistentVolumeClaim>>),
    /// Claims of devices. Those that the scheduler created for a pod's extended resources count towards that pod.
    DeviceClaims {
        claims: Vec<Arc<ResourceClaim>>,
        pods: Vec<Arc<Pod>>,
    },
    Count(usize),
}

/// A quota's status as JSON.
#[derive(Serialize)]
struct Status<'a> {
    #[serde(serialize_with = "serialize_usage", skip_serializing_if = "Usage::is_empty")]
    hard: &'a Usage,
    #[serde(serialize_with = "serialize_usage", skip_serializing_if = "Usage::is_empty")]
    used: &'a Usage,
}

/// Serializes a usage as a map of quantities.
fn serialize_usage<S: Serializer>(usage: &Usage, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(usage.iter().map(|(name, amount)| (name, amount.to_string())))
}

/// Updates the status if limits or usage changed. A resource that cannot be counted keeps its recorded usage.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let quota = &observed.quota;
    let hard = Usage::from(&quota.spec.hard);
    let hard_before = Usage::from(&quota.status.hard);
    let used_before = Usage::from(&quota.status.used);
    let mut used = used_before.mask(|name| hard.get(name).is_some());
    for (name, amount) in calculate_usage(observed, now).iter() {
        used.set(name, amount);
    }
    let mut plan = Plan::nothing();
    if hard != hard_before || used != used_before {
        let status = Status { hard: &hard, used: &used };
        let body = wire::status_body(&**quota, &quota.meta.annotations, &status);
        plan.push(Update::status(wire::target(&**quota), body));
        plan.requeue_after(RECOUNT_DELAY);
    }
    if let Some(delay) = delay_until_overdue(observed, now) {
        plan.requeue_after(delay);
    }
    plan
}

/// Describes the limits, and resources whose usage is unknown.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    let status = &observed.quota.status;
    for (name, limit) in observed.quota.spec.hard.iter() {
        let used = status.used.get(name).map_or_else(|| "?".to_owned(), ToString::to_string);
        description.fact(name, format!("{used} of {limit}"));
        let mut evaluators = observed.limited_kinds.iter().map(|kind| &kind.evaluator);
        if !evaluators.any(|evaluator| evaluator.matches_resource(name, &observed.classes)) {
            description.fact("not counted", name);
        }
    }
    description
}

/// Returns the usage of all limited resources that can be counted. Upstream: `CalculateUsage`.
fn calculate_usage(observed: &Observed, now: Timestamp) -> Usage {
    let spec = &observed.quota.spec;
    let mut total = Usage::default();
    for kind in &observed.limited_kinds {
        let evaluator = &*kind.evaluator;
        let limited: BTreeSet<&str> = spec
            .hard
            .iter()
            .map(|(name, _)| name)
            .filter(|name| evaluator.matches_resource(name, &observed.classes))
            .collect();
        let mut used: Usage = limited.iter().map(|name| (*name, Quantity::ZERO)).collect();
        let mut count = |item: Item<'_>, times: usize| {
            if item.is_within(spec) {
                let mut usage = item.usage(evaluator, &observed.classes, now);
                usage.retain(|name, _| limited.contains(name));
                used.add(&usage.times(times));
            }
        };
        match &kind.content {
            Content::Pods(pods) => pods.iter().for_each(|pod| count(Item::Pod(pod), 1)),
            Content::Services(services) => {
                services.iter().for_each(|service| count(Item::Service(service), 1));
            }
            Content::VolumeClaims(claims) => {
                claims.iter().for_each(|claim| count(Item::VolumeClaim(claim), 1));
            }
            Content::DeviceClaims { claims, pods } => {
                for claim in claims {
                    count(Item::DeviceClaim(claim, pod_of(claim, claims, pods)), 1);
                }
            }
            Content::Count(number) => count(Item::Plain, *number),
        }
        total.add(&used);
    }
    total
}

/// Returns the pod for whose extended resources the scheduler created the claim.
fn pod_of<'p>(
    claim: &ResourceClaim,
    claims: &[Arc<ResourceClaim>],
    pods: &'p [Arc<Pod>],
) -> Option<&'p Pod> {
    let owner = claim.meta.controller()?;
    let pod = pods.iter().find(|pod| pod.meta.uid == owner.uid)?;
    is_claim_of(claim, pod, claims.iter().map(|claim| &**claim)).then_some(&**pod)
}

/// Returns the delay until the next terminating pod exceeds its grace period. The pod then no longer counts.
fn delay_until_overdue(observed: &Observed, now: Timestamp) -> Option<Duration> {
    let pods = observed.limited_kinds.iter().filter_map(|kind| match &kind.content {
        Content::Pods(pods) => Some(pods),
        _ => None,
    });
    let ends = pods.flatten().filter_map(|pod| grace_period_end(pod)).filter(|end| *end >= now);
    let remaining = Duration::try_from(ends.min()?.duration_since(now)).ok()?;
    Some(remaining + Duration::from_secs(1))
}
