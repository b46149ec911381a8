//! Expiry of events: the server deletes an event that nobody has written for `--event-ttl`.
//!
//! A queue holds each event with its expiry. After a restart, the server derives the time of an event's last write from
//! the event's timestamps.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_api::time::{SignedDuration, Timestamp, saturating_add};
use serde_json::Value;
use tokio::sync::watch;

use crate::api::Api;
use crate::store::{Change, Entry, Expect, Scope, Transaction, WriteError, changed};
use evenkeel_apimachinery::value::{list, text};

/// Resource prefix of events of both API groups.
pub(crate) const RESOURCE_PREFIX: &str = "/events";
/// Default of `--event-ttl`.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(3600);
/// Maximum number of events that are deleted in parallel.
const MAX_CONCURRENT_DELETIONS: usize = 256;
/// Delay before the retry of deletions that the store refused.
const RETRY_DELAY: Duration = Duration::from_secs(60);

/// Event in the queue, with its expiry and the revision of its last write.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expiring {
    at: Timestamp,
    key: Arc<str>,
    revision: u64,
}

/// Queue of events by expiry. A write moves the event, so that each event is in the queue once.
#[derive(Debug, Default)]
struct Expiry {
    queue: BTreeMap<(Timestamp, u64), Arc<str>>,
    /// Position of each event in the queue.
    positions: HashMap<Arc<str>, (Timestamp, u64)>,
}

impl Expiry {
    /// Replaces the queue with all stored events and the times of their last writes.
    fn replace_all(
        &mut self,
        events: impl IntoIterator<Item = (Timestamp, Arc<str>, u64)>,
        ttl: SignedDuration,
    ) {
        *self = Self::default();
        for (written, key, revision) in events {
            self.written(written, key, revision, ttl);
        }
    }

    /// Records a write of an event.
    fn written(&mut self, now: Timestamp, key: Arc<str>, revision: u64, ttl: SignedDuration) {
        self.put(Expiring { at: saturating_add(now, ttl), key, revision });
    }

    fn put(&mut self, Expiring { at, key, revision }: Expiring) {
        if let Some(before) = self.positions.insert(key.clone(), (at, revision)) {
            self.queue.remove(&before);
        }
        self.queue.insert((at, revision), key);
    }

    /// Removes a deleted event.
    fn deleted(&mut self, key: &str) {
        if let Some(position) = self.positions.remove(key) {
            self.queue.remove(&position);
        }
    }

    /// Removes up to [`MAX_CONCURRENT_DELETIONS`] expired events from the queue, and returns them.
    fn expired(&mut self, now: Timestamp) -> Vec<Expiring> {
        let mut expired = Vec::new();
        while expired.len() < MAX_CONCURRENT_DELETIONS
            && let Some(first) = self.queue.first_entry()
            && first.key().0 <= now
        {
            let ((at, revision), key) = first.remove_entry();
            self.positions.remove(&key);
            expired.push(Expiring { at, key, revision });
        }
        expired
    }

    /// Puts events that could not be deleted back into the queue.
    fn put_back(&mut self, expired: Vec<Expiring>) {
        expired.into_iter().for_each(|expiring| self.put(expiring));
    }

    /// Returns the time until the next event expires, or `None` if the queue is empty.
    fn next(&self, now: Timestamp) -> Option<Duration> {
        let ((at, _), _) = self.queue.first_key_value()?;
        Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
    }
}

/// Returns the latest of an event's timestamps, which is the time of its last write.
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

/// Deletes expired events until the server shuts down. `changes` signals writes to events.
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

/// Records the writes since the revision `seen`, and deletes expired events. Returns the delay until the next pass.
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
            // A mismatch means that the event was written again or deleted.
            let refused = !matches!(outcome, Ok(_) | Err(WriteError::Mismatch { .. }));
            refused.then_some((outcome.err()?, expiring))
        });
        if let Some((error, first)) = failed.next() {
            tracing::error!(event = %first.key, %error, "expired events cannot be deleted");
            let others = failed.map(|(_, expiring)| expiring);
            expiry.put_back(std::iter::once(first).chain(others).collect());
            return Some(RETRY_DELAY);
        }
    }
}

/// Deletes an event unless it was written after it entered the queue.
async fn delete(api: &Arc<Api>, expiring: &Expiring) -> Result<Vec<Arc<Entry>>, WriteError> {
    let mut transaction = Transaction::deletion();
    let expect = Expect::At(expiring.revision);
    transaction.delete(&RESOURCE_PREFIX.into(), &expiring.key, expect);
    api.store.commit(transaction).await
}

/// Applies the store's changes since the revision `seen` to the queue.
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
        for event in &events {
            let entry = &event.entry;
            if entry.change == Change::Deleted {
                expiry.deleted(&entry.key);
            } else {
                expiry.written(now, entry.key.clone(), entry.revision, ttl);
            }
        }
    }
    // This is the first pass, or the store no longer has all changes since `seen`.
    *seen = Some(api.store.revision());
    let time = |entry: &Entry| entry.decode().ok().and_then(|event| written(&event)).unwrap_or(now);
    let stored = api.store.all(RESOURCE_PREFIX).into_iter();
    expiry.replace_all(
        stored.map(|entry| (time(&entry).min(now), entry.key.clone(), entry.revision)),
        ttl,
    );
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    #[test]
    fn events_expire_in_the_order_of_their_last_writes() {
        let ttl = SignedDuration::from_secs(100);
        let mut expiry = Expiry::default();
        expiry.replace_all([(at(30), "b".into(), 2), (at(10), "a".into(), 1)], ttl);
        expiry.written(at(50), "a".into(), 3, ttl);
        expiry.written(at(40), "c".into(), 4, ttl);
        assert_eq!(expiry.next(at(60)), Some(Duration::from_secs(70)));
        let keys = |expired: Vec<Expiring>| {
            expired.into_iter().map(|e| format!("{}@{}", e.key, e.revision)).collect::<Vec<_>>()
        };
        assert_eq!(keys(expiry.expired(at(129))), [""; 0]);
        assert_eq!(keys(expiry.expired(at(130))), ["b@2"]);
        assert_eq!(keys(expiry.expired(at(150))), ["c@4", "a@3"]);
        assert_eq!(expiry.next(at(150)), None);
    }

    #[test]
    fn an_event_that_is_written_often_is_in_the_queue_once() {
        let ttl = SignedDuration::from_secs(100);
        let mut expiry = Expiry::default();
        for (second, revision) in (0..10_000).zip(1..) {
            expiry.written(at(second), "a".into(), revision, ttl);
            expiry.written(at(second), "b".into(), revision + 20_000, ttl);
        }
        assert_eq!((expiry.queue.len(), expiry.positions.len()), (2, 2));
        expiry.deleted("a");
        expiry.deleted("c");
        let expired = expiry.expired(at(20_000));
        assert_eq!(expired.iter().map(|e| &*e.key).collect::<Vec<_>>(), ["b"]);
        expiry.put_back(expired);
        assert_eq!(expiry.next(at(10_000)), Some(Duration::from_secs(99)));
    }

    #[test]
    fn the_last_write_is_the_latest_timestamp_of_an_event() {
        let event = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"time": "2026-01-01T00:02:00Z"}]}, "lastTimestamp": "2026-01-01T00:01:00Z", "eventTime": null});
        assert_eq!(written(&event), "2026-01-01T00:02:00Z".parse().ok());
        assert_eq!(written(&json!({})), None);
    }
}
