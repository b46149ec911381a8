//! ConfigMap with the date since which the server tracks the use of legacy service account tokens. The legacy service
//! account token cleaner reads it.
//!
//! Upstream: `controlplane/controller/legacytokentracking`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_tasks::watch;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::Api;
use crate::loopback;
use crate::store::{
    Encoded, Expect, SelectionAttributes, Transaction, WriteError, wait_for_change,
};
use evenkeel_apimachinery::patch::{self, Writer};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::value::{set, text};

/// Resource prefix of ConfigMaps.
pub(crate) const RESOURCE_PREFIX: &str = "/configmaps";
const NAMESPACE: &str = "kube-system";
const NAME: &str = "kube-apiserver-legacy-service-account-token-tracking";
/// Minimum interval between creations of a ConfigMap that is deleted again.
const MIN_CREATION_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// Adds the creation of the ConfigMap to a transaction, unless it exists.
pub(crate) fn install(api: &Api, transaction: &mut Transaction) {
    let Some(configmaps) = api.table.get("v1", "configmaps") else { return };
    let now = api.clock.now();
    let map =
        json!({"metadata": {"name": NAME, "namespace": NAMESPACE}, "data": {"since": date(now)}});
    loopback::create_if_absent(api, &configmaps, map, &seconds(now), transaction);
}

/// Keeps the ConfigMap valid until the server shuts down. `changes` signals writes to ConfigMaps.
pub(crate) async fn run(api: Weak<Api>, mut changes: watch::Receiver<u64>) {
    let Some(mut last_creation) = api.upgrade().map(|api| api.clock.instant()) else { return };
    loop {
        changes.mark_unchanged();
        let max_wait = match api.upgrade() {
            Some(api) => reconcile(&api, &mut last_creation).await.unwrap_or_else(|error| {
                tracing::error!(%error, "the start date of the tracking of tokens cannot be recorded");
                Some(MIN_CREATION_INTERVAL)
            }),
            None => return,
        };
        if !wait_for_change(&mut changes, max_wait).await {
            return;
        }
    }
}

/// Creates or repairs the ConfigMap. Returns the maximum delay until the next call.
async fn reconcile(
    api: &Arc<Api>,
    last_creation: &mut Instant,
) -> Result<Option<Duration>, StatusError> {
    let Some(entry) = api.store.get(RESOURCE_PREFIX, &format!("{NAMESPACE}/{NAME}")) else {
        let age = api.clock.instant().saturating_duration_since(*last_creation);
        let remaining = MIN_CREATION_INTERVAL.saturating_sub(age);
        if !remaining.is_zero() {
            return Ok(Some(remaining));
        }
        let mut transaction = Transaction::default();
        install(api, &mut transaction);
        api.store.commit(transaction).await?;
        *last_creation = api.clock.instant();
        return Ok(None);
    };
    let old = entry.decode().map_err(StatusError::internal)?;
    if is_date(text(&old, "data.since")) {
        return Ok(None);
    }
    let Some(configmaps) = api.table.get("v1", "configmaps") else { return Ok(None) };
    let now = api.clock.now();
    let mut new = old.clone();
    set(&mut new, "data.since", date(now));
    let writer = Writer { manager: "kube-apiserver", subresource: "", now };
    let schema = configmaps.schema(&configmaps.gvk);
    patch::update_managed_fields(schema.as_ref(), Some(&old), &mut new, &writer);
    let encoded = Encoded::new(&new, SelectionAttributes::new(&new, |_| ()));
    match api
        .store
        .put(&configmaps.resource_prefix, &entry.key, Expect::At(entry.revision), encoded)
        .await
    {
        // A conflicting write triggers the next call.
        Ok(_) | Err(WriteError::Mismatch { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the date of a time in UTC, such as `2026-07-21`.
fn date(now: jiff::Timestamp) -> Value {
    Value::from(now.strftime("%Y-%m-%d").to_string())
}

fn is_date(text: &str) -> bool {
    text.len() == "2006-01-02".len() && text.parse::<jiff::civil::Date>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_days_in_iso_format_are_dates() {
        for (text, good) in
            [("2026-07-21", true), ("2026-02-30", false), ("20260721", false), ("", false)]
        {
            assert_eq!(is_date(text), good, "{text}");
        }
    }
}
