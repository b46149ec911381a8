//! Rules for marking and deleting legacy tokens.

use crate::core::serviceaccounttoken::Claim;
use evenkeel_api::{
    View,
    time::{SignedDuration, Timestamp, saturating_sub},
    views::ServiceAccount,
};
use evenkeel_runtime::cache::Full;
use jiff::{civil::Date, tz::TimeZone};
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// Label with the date of a token's last use. Upstream: `LastUsedLabelKey`.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// Label with the date since which a token is invalid. Upstream: `InvalidSinceLabelKey`.
pub(super) const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// Decision about a legacy token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Mark the token as invalid since this date.
    Mark(Date),
    /// Delete the token, which was marked a period ago.
    Delete,
}

/// Cutoff between tokens to clean and tokens to keep.
pub(super) struct Age {
    now: Timestamp,
    /// Tokens created or used after this time are kept.
    since: Timestamp,
}

impl Age {
    /// Returns the cutoff `period` before `now`; `None` until the API server has tracked the use of tokens for
    /// `period`. Tracking began on the date `tracked`.
    ///
    /// Fails if `tracked` is not a date.
    pub(super) fn new(
        now: Timestamp,
        period: Duration,
        tracked: &str,
    ) -> Result<Option<Self>, String> {
        let tracked = day(tracked).ok_or_else(|| format!("{tracked:?} is not a day"))?;
        let begun = tracked.tomorrow().ok().and_then(|day| day.to_zoned(TimeZone::UTC).ok());
        let begun = begun.ok_or_else(|| format!("nothing comes after {tracked}"))?.timestamp();
        let period = SignedDuration::try_from(period).unwrap_or(SignedDuration::MAX);
        let since = saturating_sub(now, period);
        Ok((since >= begun).then_some(Self { now, since }))
    }
}

/// Whether the token is auto-generated, old and unused.
pub(super) fn is_candidate(
    secret: &Full<Secret>,
    account: Option<&Arc<ServiceAccount>>,
    age: &Age,
) -> bool {
    let meta = secret.meta();
    let Some(claim) = Claim::of(secret) else { return false };
    let old = meta.creation.is_some_and(|made| made < age.since) && !meta.deleting();
    // A token that no service account refers to was created by a user, and is kept.
    let made_for_account = account.is_some_and(|account| {
        claim.is_for(account) && account.secrets.iter().any(|one| one.name == meta.name)
    });
    let unused = match meta.labels.get(LAST_USED) {
        None => true,
        // An invalid date does not show when the token was used, so the token is kept.
        Some(used) => day(used).is_some_and(|used| used < on(age.since)),
    };
    old && made_for_account && unused
}

/// Decides about a candidate that no pod uses.
pub(super) fn verdict(secret: &Full<Secret>, age: &Age) -> Option<Verdict> {
    match secret.meta().labels.get(INVALID_SINCE).and_then(day) {
        None => Some(Verdict::Mark(on(age.now))),
        Some(since) => (since < on(age.since)).then_some(Verdict::Delete),
    }
}

/// Calls `name` with each Secret that a pod refers to.
pub(super) fn secrets_of(pod: &Value, name: &mut impl FnMut(&str)) {
    let named = |value: &Value| value.get("name").and_then(Value::as_str).map(str::to_owned);
    match pod {
        Value::Object(fields) => {
            for (field, value) in fields {
                match field.as_str() {
                    "secretName" => value.as_str().into_iter().for_each(&mut *name),
                    "imagePullSecrets" => {
                        let all = value.as_array().into_iter().flatten();
                        all.filter_map(named).for_each(|found| name(&found));
                    }
                    // A projected volume's source; a Secret volume has `secretName`.
                    "secret" | "secretRef" | "secretKeyRef" | "nodePublishSecretRef" => {
                        named(value).into_iter().for_each(|found| name(&found));
                    }
                    _ => {}
                }
                secrets_of(value, name);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| secrets_of(item, name)),
        _ => {}
    }
}

fn day(text: &str) -> Option<Date> {
    // Year, month and day only: other formats also accept a time.
    Date::strptime("%Y-%m-%d", text).ok()
}

fn on(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests;
