//! Rules for marking and deleting legacy tokens.

use crate::core::serviceaccounttoken::AccountRef;
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
pub(super) struct Cutoff {
    now: Timestamp,
    /// Tokens created or used after this time are kept.
    time: Timestamp,
}

impl Cutoff {
    /// Returns the cutoff `period` before `now`; `None` until the API server has tracked the use of tokens for
    /// `period`. Tracking began on the date `tracked_since`.
    ///
    /// Fails if `tracked_since` is not a date.
    pub(super) fn new(
        now: Timestamp,
        period: Duration,
        tracked_since: &str,
    ) -> Result<Option<Self>, String> {
        let first_day =
            parse_date(tracked_since).ok_or_else(|| format!("{tracked_since:?} is not a day"))?;
        // Tracking may have begun at any time of its first day.
        let next_day = first_day.tomorrow().ok().and_then(|day| day.to_zoned(TimeZone::UTC).ok());
        let begun_by =
            next_day.ok_or_else(|| format!("nothing comes after {first_day}"))?.timestamp();
        let period = SignedDuration::try_from(period).unwrap_or(SignedDuration::MAX);
        let time = saturating_sub(now, period);
        Ok((time >= begun_by).then_some(Self { now, time }))
    }
}

/// Returns whether the token is auto-generated, old and unused.
pub(super) fn is_candidate(
    secret: &Full<Secret>,
    account: Option<&Arc<ServiceAccount>>,
    cutoff: &Cutoff,
) -> bool {
    let meta = secret.meta();
    let Some(reference) = AccountRef::of(secret) else { return false };
    let is_old = meta.creation.is_some_and(|created| created < cutoff.time) && !meta.deleting();
    // A token that no service account refers to was created by a user, and is kept.
    let is_auto_generated = account.is_some_and(|account| {
        let mut secrets = account.secrets.iter();
        reference.is_for(account) && secrets.any(|secret| secret.name == meta.name)
    });
    let is_unused = match meta.labels.get(LAST_USED) {
        None => true,
        // An invalid date does not show when the token was used, so the token is kept.
        Some(used) => parse_date(used).is_some_and(|used| used < date_of(cutoff.time)),
    };
    is_old && is_auto_generated && is_unused
}

/// Decides about a candidate that no pod uses.
pub(super) fn verdict(secret: &Full<Secret>, cutoff: &Cutoff) -> Option<Verdict> {
    match secret.meta().labels.get(INVALID_SINCE).and_then(parse_date) {
        None => Some(Verdict::Mark(date_of(cutoff.now))),
        Some(since) => (since < date_of(cutoff.time)).then_some(Verdict::Delete),
    }
}

/// Calls `visit` with the name of each Secret to which a pod, or any JSON that contains pods, refers.
pub(super) fn visit_secret_names(json: &Value, visit: &mut impl FnMut(&str)) {
    let name_of = |value: &Value| value.get("name").and_then(Value::as_str).map(str::to_owned);
    match json {
        Value::Object(fields) => {
            for (field, value) in fields {
                match field.as_str() {
                    "secretName" => value.as_str().into_iter().for_each(&mut *visit),
                    "imagePullSecrets" => {
                        let references = value.as_array().into_iter().flatten();
                        references.filter_map(name_of).for_each(|name| visit(&name));
                    }
                    // A projected volume's source; a Secret volume has `secretName`.
                    "secret" | "secretRef" | "secretKeyRef" | "nodePublishSecretRef" => {
                        name_of(value).into_iter().for_each(|name| visit(&name));
                    }
                    _ => {}
                }
                visit_secret_names(value, visit);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| visit_secret_names(item, visit)),
        _ => {}
    }
}

/// Parses a date such as `2026-01-31`.
fn parse_date(text: &str) -> Option<Date> {
    // jiff's other parsers of dates also accept a time after the date.
    Date::strptime("%Y-%m-%d", text).ok()
}

/// Returns the UTC date of a time.
fn date_of(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests;
