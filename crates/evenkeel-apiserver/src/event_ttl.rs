//! Expiry of events: an event is deleted when it was not written for the time that `--event-ttl` says.
//!
//! A queue holds each write of an event with the time at which it expires; the time is the same for all, so that the queue is
//! in order. After a restart the times in the objects say when they were written.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::watch;

use crate::api::Api;
use crate::store::{Change, Entry, Expect, Scope, Transaction, WriteError, changed};
use evenkeel_apimachinery::value::{list, text};

/// Where events of both API groups are stored.
pub(crate) const RESOURCE_PREFIX: &str = "/events";
/// Default of `--event-ttl`.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(3600);
/// Events that are deleted together.
const AT_ONCE: usize = 256;
/// When deletions that the store refused are tried again.
const RETRY: Duration = Duration::from_secs(60);

/// A write of an event that will expire.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expiring {
    at: Timestamp,
    key: Arc<str>,
    revision: u64,
}

/// The writes of events, by the time at which they expire.
#[derive(Debug, Default)]
struct Expiry {
    queue: VecDeque<Expiring>,
}

impl Expiry {
    /// Takes in all events as they are found; later ones come by [`Expiry::written`].
    fn found(
        &mut self,
        events: impl IntoIterator<Item = (Timestamp, Arc<str>, u64)>,
        ttl: SignedDuration,
    ) {
        let expiring = |(written, key, revision): (Timestamp, Arc<str>, u64)| Expiring {
            at: written.saturating_add(ttl).unwrap_or(Timestamp::MAX),
            key,
            revision,
        };
        let mut found: Vec<Expiring> = events.into_iter().map(expiring).collect();
        found.sort_by_key(|expiring| expiring.at);
        self.queue = found.into();
    }

    /// Takes in a write.
    fn written(&mut self, now: Timestamp, key: Arc<str>, revision: u64, ttl: SignedDuration) {
        let at = now.saturating_add(ttl).unwrap_or(Timestamp::MAX);
        // A clock that was set back does not put the queue out of order.
        let at = self.queue.back().map_or(at, |last| last.at.max(at));
        self.queue.push_back(Expiring { at, key, revision });
    }

    /// Takes the writes that are expired, a limited number of them.
    fn expired(&mut self, now: Timestamp) -> Vec<Expiring> {
        let due = self.queue.iter().take(AT_ONCE).take_while(|expiring| expiring.at <= now).count();
        self.queue.drain(..due).collect()
    }

    /// Takes back what could not be deleted, in its order.
    fn put_back(&mut self, expired: Vec<Expiring>) {
        expired.into_iter().rev().for_each(|expiring| self.queue.push_front(expiring));
    }

    /// Returns how long it is until the next one expires.
    fn next(&self, now: Timestamp) -> Option<Duration> {
        let remaining = self.queue.front()?.at.duration_since(now);
        Some(Duration::try_from(remaining).unwrap_or_default())
    }
}

/// When an event was last written, as far as it says.
fn written(event: &Value) -> Option<Timestamp> {
    let fields =
        ["metadata.creationTimestamp", "lastTimestamp", "eventTime", "series.lastObservedTime"];
    let managed = list(event, "metadata.managedFields").iter().map(|entry| text(entry, "time"));
    fields
        .into_iter()
        .map(|field| text(event, field))
        .chain(managed)
        .filter_map(|t| t.parse().ok())
        .max()
}

/// Deletes events whose time is over, until the server goes. `changes` tells of writes to events.
pub(crate) async fn run(api: Weak<Api>, mut changes: watch::Receiver<u64>, ttl: Duration) {
    let ttl = SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX);
    let mut expiry = Expiry::default();
    let mut seen = None;
    loop {
        changes.mark_unchanged();
        let again = match api.upgrade() {
            Some(api) => pass(&api, &mut expiry, &mut seen, ttl).await,
            None => return,
        };
        if !changed(&mut changes, again).await {
            return;
        }
    }
}

/// Takes in what was written since the revision that was seen last, and deletes what is expired. Returns when to look again.
async fn pass(
    api: &Arc<Api>,
    expiry: &mut Expiry,
    seen: &mut Option<u64>,
    ttl: SignedDuration,
) -> Option<Duration> {
    let now = api.clock.now();
    follow(api, expiry, seen, ttl, now);
    loop {
        let expired = expiry.expired(now);
        if expired.is_empty() {
            return expiry.next(now);
        }
        let deletions = expired.iter().map(|expiring| delete(api, expiring));
        let outcomes = futures::future::join_all(deletions).await;
        let mut failed = outcomes.into_iter().zip(expired).filter_map(|(outcome, expiring)| {
            // It was written again, or is gone, where the revision does not match.
            let refused = !matches!(outcome, Ok(_) | Err(WriteError::Mismatch { .. }));
            refused.then_some((outcome.err()?, expiring))
        });
        if let Some((error, first)) = failed.next() {
            tracing::error!(event = %first.key, %error, "expired events cannot be deleted");
            let others = failed.map(|(_, expiring)| expiring);
            expiry.put_back(std::iter::once(first).chain(others).collect());
            return Some(RETRY);
        }
    }
}

/// Deletes an event as it was when it expired.
async fn delete(api: &Arc<Api>, expiring: &Expiring) -> Result<Vec<Arc<Entry>>, WriteError> {
    let mut transaction = Transaction::deletion();
    let expect = Expect::At(expiring.revision);
    transaction.delete(&RESOURCE_PREFIX.into(), &expiring.key, expect);
    api.store.commit(transaction).await
}

fn follow(
    api: &Api,
    expiry: &mut Expiry,
    seen: &mut Option<u64>,
    ttl: SignedDuration,
    now: Timestamp,
) {
    let prefix = RESOURCE_PREFIX.into();
    while let Some(revision) = *seen {
        let Ok(mut cursor) = api.store.follow(&prefix, &Scope::All, revision) else { break };
        let Ok(events) = cursor.take() else { break };
        *seen = Some(cursor.at());
        if events.is_empty() {
            return;
        }
        for event in events.iter().filter(|event| event.entry.change != Change::Deleted) {
            expiry.written(now, event.entry.key.clone(), event.entry.revision, ttl);
        }
    }
    // At the start, or when more was written than the store keeps of it.
    *seen = Some(api.store.revision());
    let time = |entry: &Entry| entry.decode().ok().and_then(|event| written(&event)).unwrap_or(now);
    let stored = api.store.all(RESOURCE_PREFIX).into_iter();
    expiry
        .found(stored.map(|entry| (time(&entry).min(now), entry.key.clone(), entry.revision)), ttl);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    #[test]
    fn writes_expire_in_order() {
        let ttl = SignedDuration::from_secs(100);
        let mut expiry = Expiry::default();
        expiry.found([(at(30), "b".into(), 2), (at(10), "a".into(), 1)], ttl);
        expiry.written(at(50), "a".into(), 3, ttl);
        expiry.written(at(40), "c".into(), 4, ttl);
        assert_eq!(expiry.next(at(60)), Some(Duration::from_secs(50)));
        let keys = |expired: Vec<Expiring>| {
            expired.into_iter().map(|e| format!("{}@{}", e.key, e.revision)).collect::<Vec<_>>()
        };
        assert_eq!(keys(expiry.expired(at(109))), [""; 0]);
        assert_eq!(keys(expiry.expired(at(130))), ["a@1", "b@2"]);
        assert_eq!(keys(expiry.expired(at(150))), ["a@3", "c@4"]);
        assert_eq!(expiry.next(at(150)), None);
    }

    #[test]
    fn an_event_was_written_when_it_says() {
        let event = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"time": "2026-01-01T00:02:00Z"}]}, "lastTimestamp": "2026-01-01T00:01:00Z", "eventTime": null});
        assert_eq!(written(&event), "2026-01-01T00:02:00Z".parse().ok());
        assert_eq!(written(&json!({})), None);
    }
}
