//! Which old tokens are marked, and which are deleted.

use crate::core::serviceaccounttoken::Claim;
use evenkeel_api::{
    View,
    time::{SignedDuration, Timestamp},
    views::ServiceAccount,
};
use evenkeel_runtime::cache::Full;
use jiff::{civil::Date, tz::TimeZone};
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// Label with the day on which a token was last used.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// Label with the day since which a token is no longer taken.
pub(super) const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// What becomes of an old token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is marked as invalid since this day.
    Mark(Date),
    /// It was marked long enough ago.
    Delete,
}

/// When things count as old.
pub(super) struct Age {
    now: Timestamp,
    /// What was made or used from then on is kept.
    since: Timestamp,
}

impl Age {
    /// `None` while the server has not kept track of uses for as long as `period`. It began on the day `tracked`, at the
    /// latest at its end.
    pub(super) fn new(
        now: Timestamp,
        period: Duration,
        tracked: &str,
    ) -> Result<Option<Self>, String> {
        let tracked = day(tracked).ok_or_else(|| format!("{tracked:?} is not a day"))?;
        let begun = tracked.tomorrow().ok().and_then(|day| day.to_zoned(TimeZone::UTC).ok());
        let begun = begun.ok_or_else(|| format!("nothing comes after {tracked}"))?.timestamp();
        let period = SignedDuration::try_from(period).unwrap_or(SignedDuration::MAX);
        let since = now.checked_sub(period).unwrap_or(Timestamp::MIN);
        Ok((since >= begun).then_some(Self { now, since }))
    }
}

/// Whether this token may be old and out of use, as far as it shows by itself.
pub(super) fn is_candidate(
    secret: &Full<Secret>,
    account: Option<&Arc<ServiceAccount>>,
    age: &Age,
) -> bool {
    let meta = secret.meta();
    let Some(claim) = Claim::of(secret) else { return false };
    let old = meta.creation.is_some_and(|made| made < age.since) && !meta.deleting();
    // One that is not referred to was made by hand, and is its maker's to delete.
    let made_for_account = account.is_some_and(|account| {
        claim.means(account) && account.secrets.iter().any(|one| one.name == meta.name)
    });
    let unused = match meta.labels.get(LAST_USED) {
        None => true,
        // What is no day says nothing of when it was used.
        Some(used) => day(used).is_some_and(|used| used < on(age.since)),
    };
    old && made_for_account && unused
}

/// What becomes of a candidate that no pod mounts.
pub(super) fn plan(secret: &Full<Secret>, age: &Age) -> Option<Step> {
    match secret.meta().labels.get(INVALID_SINCE).and_then(day) {
        None => Some(Step::Mark(on(age.now))),
        Some(since) => (since < on(age.since)).then_some(Step::Delete),
    }
}

/// The names of all Secrets that a pod refers to, in whichever place.
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
                    // A projected volume's source; a plain volume says `secretName`.
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
    // Exactly year, month and day; a parser of more would take a time of the day as well.
    Date::strptime("%Y-%m-%d", text).ok()
}

fn on(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests;
