//! Quota admission: whether a write stays within its quotas, and the usage that it adds.
//!
//! Upstream: `CheckRequest` of `k8s.io/apiserver/pkg/admission/plugin/resourcequota`.

use super::{Classes, Evaluator, Item, Usage, pods};
use evenkeel_api::text::Text;
use evenkeel_api::{time::Timestamp, views::ResourceQuota};

/// Write of an object whose resource usage quotas limit.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The evaluator of the object's kind.
    pub evaluator: &'a Evaluator,
    /// The object after the write.
    pub new: Item<'a>,
    /// The object before the write, or `None` on create.
    pub old: Option<Item<'a>>,
    /// Whether the write is a status update. A status update only reports an observation, so it may exceed the hard
    /// limits.
    pub is_status_update: bool,
    /// All device classes.
    pub classes: &'a Classes,
    /// Time of the request, for scopes that depend on deadlines.
    pub now: Timestamp,
}

/// Reason why a write is rejected, with upstream's messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A container lacks a request or limit that the quota requires.
    #[error("failed quota: {quota}: must specify {missing}")]
    MissingResources {
        /// The quota's name.
        quota: Text,
        /// Missing resources, each with its containers.
        missing: String,
    },
    /// The quota's status lacks the usage: the quota controller has not computed it.
    #[error("status unknown for quota: {quota}, resources: {names}")]
    StatusUnknown {
        /// The quota's name.
        quota: Text,
        /// Resources of the object that the quota limits.
        names: String,
    },
    /// The object requests a negative amount of resources.
    #[error("quota usage is negative for resource(s): {names}")]
    Negative {
        /// Resources with negative usage.
        names: String,
    },
    /// The quota is exceeded.
    #[error("exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}")]
    Exceeded {
        /// The quota's name.
        quota: Text,
        /// Usage that the request adds, of the exceeded resources.
        requested: Usage,
        /// Usage so far, of the exceeded resources.
        used: Usage,
        /// Hard limits of the exceeded resources.
        limited: Usage,
    },
}

/// Returns the usage of each quota of the namespace after the write, or `None` for a quota whose usage the write
/// leaves unchanged.
///
/// # Errors
/// Fails if a quota rejects the write.
pub fn charge(
    quotas: &[ResourceQuota],
    request: &Request<'_>,
) -> Result<Vec<Option<Usage>>, Refusal> {
    let applies_now: Vec<bool> =
        quotas.iter().map(|quota| applies_to(quota, request, &request.new)).collect();
    for (quota, _) in quotas.iter().zip(&applies_now).filter(|(_, applies)| **applies) {
        check_constraints(quota, request)?;
    }
    let usage = request.new.usage(request.evaluator, request.classes, request.now);
    let negative: Vec<&str> =
        usage.iter().filter(|(_, amount)| amount.sign() < 0).map(|(name, _)| name).collect();
    if !negative.is_empty() {
        return Err(Refusal::Negative { names: negative.join(",") });
    }
    let old_usage =
        request.old.map(|old| old.usage(request.evaluator, request.classes, request.now));
    let increase = old_usage.map(|old_usage| usage.saturating_sub(&old_usage));
    let charge_quota = |(quota, applies): (&ResourceQuota, bool)| {
        if !applies {
            return Ok(None);
        }
        // An object that newly matches the quota's scope is charged in full.
        let applied_before = request.old.is_some_and(|old| applies_to(quota, request, &old));
        let added = match &increase {
            Some(increase) if applied_before => increase,
            _ => &usage,
        };
        add_to_quota(quota, added, request.is_status_update)
    };
    quotas.iter().zip(applies_now).map(charge_quota).collect()
}

/// Returns whether the quota counts the object.
fn applies_to(quota: &ResourceQuota, request: &Request<'_>, item: &Item<'_>) -> bool {
    limited_resources(quota, request).next().is_some() && item.is_within(&quota.spec)
}

/// Returns the resources of objects of this kind that the quota limits.
fn limited_resources<'q>(
    quota: &'q ResourceQuota,
    request: &Request<'q>,
) -> impl Iterator<Item = &'q str> + use<'q> {
    let (evaluator, classes) = (request.evaluator, request.classes);
    quota
        .status
        .hard
        .iter()
        .map(|(name, _)| name)
        .filter(|name| evaluator.matches_resource(name, classes))
}

/// Checks that containers specify the limited resources, and that the quota's status contains their usage.
fn check_constraints(quota: &ResourceQuota, request: &Request<'_>) -> Result<(), Refusal> {
    let name = || quota.meta.name.clone();
    if let Item::Pod(pod) = request.new
        && let Some(missing) = pods::missing(pod, limited_resources(quota, request))
    {
        return Err(Refusal::MissingResources { quota: name(), missing });
    }
    if limited_resources(quota, request).any(|name| !quota.status.used.contains(name)) {
        let names = limited_resources(quota, request).collect::<Vec<_>>().join(",");
        return Err(Refusal::StatusUnknown { quota: name(), names });
    }
    Ok(())
}

/// Returns the quota's usage after `added` is added to it, or `None` if the usage stays the same. Only a status update
/// may exceed the hard limits.
fn add_to_quota(
    quota: &ResourceQuota,
    added: &Usage,
    is_status_update: bool,
) -> Result<Option<Usage>, Refusal> {
    let hard = &quota.status.hard;
    let mut requested = added.mask(|name| hard.contains(name));
    requested.retain(|_, amount| !amount.is_zero());
    if requested.is_empty() {
        return Ok(None);
    }
    let before = Usage::from(&quota.status.used);
    let mut after = before.clone();
    after.add(&requested);
    let is_exceeded = |name: &str| {
        requested.get(name).is_some()
            && after.get(name).zip(hard.get(name)).is_some_and(|(after, hard)| after > *hard)
    };
    let exceeded = requested.mask(is_exceeded);
    if !is_status_update && !exceeded.is_empty() {
        return Err(Refusal::Exceeded {
            quota: quota.meta.name.clone(),
            used: before.mask(is_exceeded),
            limited: Usage::from(hard).mask(is_exceeded),
            requested: exceeded,
        });
    }
    Ok(Some(after))
}
