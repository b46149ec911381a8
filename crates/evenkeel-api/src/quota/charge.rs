//! Quota admission: whether a write is within its quotas, and the usage charged for it.
//!
//! Upstream: `CheckRequest` of `k8s.io/apiserver/pkg/admission/plugin/resourcequota`.

use super::{Classes, Item, Tracked, Usage, pods};
use crate::text::Text;
use crate::{time::Timestamp, views::ResourceQuota};

/// A write that quotas have a say in.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What it is about.
    pub tracked: &'a Tracked,
    /// The object after it.
    pub new: Item<'a>,
    /// The object before it, unless it is new.
    pub old: Option<Item<'a>>,
    /// Whether it tells of what has happened, which cannot be refused any more.
    pub told: bool,
    /// The classes of devices there are.
    pub classes: &'a Classes,
    /// Time of the request, for scopes that depend on deadlines.
    pub now: Timestamp,
}

/// Why a write is refused, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A container has no figure for what the quota limits.
    #[error("failed quota: {quota}: must specify {unsaid}")]
    Unsaid {
        /// The quota's name.
        quota: Text,
        /// What of which containers.
        unsaid: String,
    },
    /// The quota controller has not written the usage yet.
    #[error("status unknown for quota: {quota}, resources: {names}")]
    Uncounted {
        /// The quota's name.
        quota: Text,
        /// What it limits of such objects.
        names: String,
    },
    /// The object would count less than nothing.
    #[error("quota usage is negative for resource(s): {names}")]
    Negative {
        /// What of.
        names: String,
    },
    /// There is not enough left.
    #[error("exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}")]
    Exceeded {
        /// The quota's name.
        quota: Text,
        /// What was asked for.
        requested: Usage,
        /// What is used already.
        used: Usage,
        /// What is allowed.
        limited: Usage,
    },
}

/// What each of a namespace's quotas has used after the write: `None` for those that it does not concern.
///
/// # Errors
/// When one of the quotas does not allow it.
pub fn charge(
    quotas: &[ResourceQuota],
    request: &Request<'_>,
) -> Result<Vec<Option<Usage>>, Refusal> {
    let concerned: Vec<bool> =
        quotas.iter().map(|quota| concerns(quota, request, &request.new)).collect();
    for (quota, _) in quotas.iter().zip(&concerned).filter(|(_, concerned)| **concerned) {
        check(quota, request)?;
    }
    let usage = request.new.usage(request.tracked, request.classes, request.now);
    let negative = usage.iter().filter(|(_, amount)| amount.sign() < 0);
    let negative: Vec<&str> = negative.map(|(name, _)| name).collect();
    if !negative.is_empty() {
        return Err(Refusal::Negative { names: negative.join(",") });
    }
    let before = request.old.map(|old| old.usage(request.tracked, request.classes, request.now));
    let more = before.map(|before| usage.beyond(&before));
    let of_quota = |(quota, concerned): (&ResourceQuota, bool)| {
        if !concerned {
            return Ok(None);
        }
        // What came into the quota's scope only now counts whole.
        let counted = request.old.is_some_and(|old| concerns(quota, request, &old));
        charged(quota, more.as_ref().filter(|_| counted).unwrap_or(&usage), request.told)
    };
    quotas.iter().zip(concerned).map(of_quota).collect()
}

fn concerns(quota: &ResourceQuota, request: &Request<'_>, item: &Item<'_>) -> bool {
    limited(quota, request).next().is_some() && item.is_within(&quota.spec)
}

/// Resources of such objects that the quota limits.
fn limited<'q>(
    quota: &'q ResourceQuota,
    request: &Request<'q>,
) -> impl Iterator<Item = &'q str> + use<'q> {
    let (tracked, classes) = (request.tracked, request.classes);
    quota.status.hard.iter().map(|(name, _)| name).filter(|name| tracked.tracks(name, classes))
}

/// Whether the quota can tell at all.
fn check(quota: &ResourceQuota, request: &Request<'_>) -> Result<(), Refusal> {
    let name = || quota.meta.name.clone();
    if let Item::Pod(pod) = request.new
        && let Some(unsaid) = pods::unsaid(pod, limited(quota, request))
    {
        return Err(Refusal::Unsaid { quota: name(), unsaid });
    }
    if limited(quota, request).any(|name| !quota.status.used.contains(name)) {
        let names = limited(quota, request).collect::<Vec<_>>().join(",");
        return Err(Refusal::Uncounted { quota: name(), names });
    }
    Ok(())
}

fn charged(quota: &ResourceQuota, more: &Usage, told: bool) -> Result<Option<Usage>, Refusal> {
    let hard = &quota.status.hard;
    let mut requested = more.only(|name| hard.contains(name));
    requested.retain(|_, amount| !amount.is_zero());
    if requested.is_empty() {
        return Ok(None);
    }
    let before = Usage::from(&quota.status.used);
    let mut after = before.clone();
    after.add(&requested);
    let too_much = |name: &str| {
        requested.get(name).is_some()
            && after.get(name).zip(hard.get(name)).is_some_and(|(after, hard)| after > *hard)
    };
    let exceeded = requested.only(too_much);
    if !told && !exceeded.is_empty() {
        return Err(Refusal::Exceeded {
            quota: quota.meta.name.clone(),
            used: before.only(too_much),
            limited: Usage::from(hard).only(too_much),
            requested: exceeded,
        });
    }
    Ok(Some(after))
}
