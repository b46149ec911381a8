//! Expiry of events: the server deletes an event that has not been written for `--event-ttl`.
//!
//! A queue holds each event with its expiry. After a restart, the server derives the time of an event's last write from
//! the event's timestamps.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_api::time::{SignedDuration, Timestamp, saturating_add};
use evenkeel_tasks::watch;
use serde_json::Value;

use crate::api::Api;
use crate::store::{Change, Entry, Expect, Scope, Transaction, WriteError, wait_for_change};
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
struct QueuedEvent {
    expires_at: Timestamp,
    key: Arc<str>,
    revision: u64,
}

/// Position in the queue: the time of expiry and the revision of the last write, which is unique.
type Position = (Timestamp, u64);

/// Queue of events by expiry. A write moves the event, so that each event is in the queue once.
#[derive(Debug, Default)]
struct ExpiryQueue {
    /// Keys of the events by position.
    queue: BTreeMap<Position, Arc<str>>,
    /// Position of each event in the queue, by the event's key.
    positions: HashMap<Arc<str>, Position>,
}

impl ExpiryQueue {
    /// Replaces the queue with all stored events and the times of their last writes.
    fn replace_all(
        &mut self,
        events: impl IntoIterator<Item = (Timestamp, Arc<str>, u64)>,
        ttl: SignedDuration,
    ) {
        *self = Self::default();
        for (written, key, revision) in events {
            self.record_write(written, key, revision, ttl);
        }
    }

    /// Records a write of an event.
    fn record_write(&mut self, now: Timestamp, key: Arc<str>, revision: u64, ttl: SignedDuration) {
        self.insert(QueuedEvent { expires_at: saturating_add(now, ttl), key, revision });
    }

    /// Adds an event, or moves it to its new position.
    fn insert(&mut self, QueuedEvent { expires_at, key, revision }: QueuedEvent) {
        let position = (expires_at, revision);
        if let Some(old_position) = self.positions.insert(key.clone(), position) {
            self.queue.remove(&old_position);
        }
        self.queue.insert(position, key);
    }

    /// Removes a deleted event.
    fn record_deletion(&mut self, key: &str) {
        if let Some(position) = self.positions.remove(key) {
            self.queue.remove(&position);
        }
    }

    /// Removes up to [`MAX_CONCURRENT_DELETIONS`] expired events from the queue, and returns them.
    fn take_expired(&mut self, now: Timestamp) -> Vec<QueuedEvent> {
        let mut expired = Vec::new();
        while expired.len() < MAX_CONCURRENT_DELETIONS
            && let Some(first) = self.queue.first_entry()
            && let (expires_at, revision) = *first.key()
            && expires_at <= now
        {
            let key = first.remove();
            self.positions.remove(&key);
            expired.push(QueuedEvent { expires_at, key, revision });
        }
        expired
    }

    /// Puts events that could not be deleted back into the queue.
    fn put_back(&mut self, expired: Vec<QueuedEvent>) {
        expired.into_iter().for_each(|event| self.insert(event));
    }

    /// Returns the time until the next event expires, or `None` if the queue is empty.
    fn time_to_next_expiry(&self, now: Timestamp) -> Option<Duration> {
        let ((expires_at, _), _) = self.queue.first_key_value()?;
        // A time in the past has a negative difference, which becomes zero.
        Some(Duration::try_from(expires_at.duration_since(now)).unwrap_or_default())
    }
}

/// Returns the latest of an event's timestamps, which is the time of its last write.
fn last_write_time(event: &Value) -> Option<Timestamp> {
    let fields =
        ["metadata.creationTimestamp", "lastTimestamp", "eventTime", "series.lastObservedTime"];
    let managed = list(event, "metadata.managedFields").iter().map(|entry| text(entry, "time"));
    fields
        .into_iter()
        .map(|field| text(event, field))
        .chain(managed)
        .filter_map(|time| time.parse().ok())
        .max()
}

/// Deletes expired events until the server shuts down. `changes` signals writes to events.
pub(crate) async fn run(api: Weak<Api>, mut changes: watch::Receiver<u64>, ttl: Duration) {
    let ttl = SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX);
    let mut expiry = ExpiryQueue::default();
    let mut last_revision = None;
    loop {
        changes.mark_unchanged();
        let next_sync = match api.upgrade() {
            Some(api) => sync(&api, &mut expiry, &mut last_revision, ttl).await,
            None => return,
        };
        if !wait_for_change(&mut changes, next_sync).await {
            return;
        }
    }
}

/// Records the writes since `last_revision`, and deletes expired events. Returns the delay until the next sync.
async fn sync(
    api: &Arc<Api>,
    expiry: &mut ExpiryQueue,
    last_revision: &mut Option<u64>,
    ttl: SignedDuration,
) -> Option<Duration> {
    let now = api.clock.now();
    apply_changes(api, expiry, last_revision, ttl, now);
    loop {
        let expired = expiry.take_expired(now);
        if expired.is_empty() {
            return expiry.time_to_next_expiry(now);
        }
        let deletions = expired.iter().map(|event| delete(api, event));
        let outcomes = futures::future::join_all(deletions).await;
        let mut first_error = None;
        let mut failed_events = Vec::new();
        for (outcome, event) in outcomes.into_iter().zip(expired) {
            match outcome {
                // A mismatch means that the event was written again or deleted.
                Ok(_) | Err(WriteError::Mismatch { .. }) => {}
                Err(error) => {
                    first_error.get_or_insert(error);
                    failed_events.push(event);
                }
            }
        }
        if let (Some(error), Some(first)) = (first_error, failed_events.first()) {
            tracing::error!(event = %first.key, %error, "expired events cannot be deleted");
            expiry.put_back(failed_events);
            return Some(RETRY_DELAY);
        }
    }
}

/// Deletes an event unless it was written after it entered the queue.
async fn delete(api: &Arc<Api>, event: &QueuedEvent) -> Result<Vec<Arc<Entry>>, WriteError> {
    let mut transaction = Transaction::deletion();
    let expect = Expect::At(event.revision);
    transaction.delete(&RESOURCE_PREFIX.into(), &event.key, expect);
    api.store.commit(transaction).await
}

/// Applies the store's changes since `last_revision` to the queue.
fn apply_changes(
    api: &Api,
    expiry: &mut ExpiryQueue,
    last_revision: &mut Option<u64>,
    ttl: SignedDuration,
    now: Timestamp,
) {
    let prefix = RESOURCE_PREFIX.into();
    while let Some(revision) = *last_revision {
        let Ok(mut cursor) = api.store.follow(&prefix, &Scope::All, revision) else { break };
        let Ok(events) = cursor.take() else { break };
        *last_revision = Some(cursor.at());
        if events.is_empty() {
            return;
        }
        for event in &events {
            let entry = &event.entry;
            if entry.change == Change::Deleted {
                expiry.record_deletion(&entry.key);
            } else {
                expiry.record_write(now, entry.key.clone(), entry.revision, ttl);
            }
        }
    }
    // This is the first sync, or the store no longer has all changes since `last_revision`.
    *last_revision = Some(api.store.revision());
    let written_at = |entry: &Entry| {
        let event = entry.decode().ok();
        let time = event.and_then(|event| last_write_time(&event)).unwrap_or(now);
        // The timestamps come from clients, and may be in the future.
        time.min(now)
    };
    let stored = api.store.all(RESOURCE_PREFIX).into_iter();
    let events = stored.map(|entry| (written_at(&entry), entry.key.clone(), entry.revision));
    expiry.replace_all(events, ttl);
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
        let mut expiry = ExpiryQueue::default();
        expiry.replace_all([(at(30), "b".into(), 2), (at(10), "a".into(), 1)], ttl);
        expiry.record_write(at(50), "a".into(), 3, ttl);
        expiry.record_write(at(40), "c".into(), 4, ttl);
        assert_eq!(expiry.time_to_next_expiry(at(60)), Some(Duration::from_secs(70)));
        let keys = |expired: Vec<QueuedEvent>| {
            expired.into_iter().map(|e| format!("{}@{}", e.key, e.revision)).collect::<Vec<_>>()
        };
        assert_eq!(keys(expiry.take_expired(at(129))), [""; 0]);
        assert_eq!(keys(expiry.take_expired(at(130))), ["b@2"]);
        assert_eq!(keys(expiry.take_expired(at(150))), ["c@4", "a@3"]);
        assert_eq!(expiry.time_to_next_expiry(at(150)), None);
    }

    #[test]
    fn an_event_that_is_written_often_is_in_the_queue_once() {
        let ttl = SignedDuration::from_secs(100);
        let mut expiry = ExpiryQueue::default();
        for (second, revision) in (0..10_000).zip(1..) {
            expiry.record_write(at(second), "a".into(), revision, ttl);
            expiry.record_write(at(second), "b".into(), revision + 20_000, ttl);
        }
        assert_eq!((expiry.queue.len(), expiry.positions.len()), (2, 2));
        expiry.record_deletion("a");
        expiry.record_deletion("c");
        let expired = expiry.take_expired(at(20_000));
        assert_eq!(expired.iter().map(|e| &*e.key).collect::<Vec<_>>(), ["b"]);
        expiry.put_back(expired);
        assert_eq!(expiry.time_to_next_expiry(at(10_000)), Some(Duration::from_secs(99)));
    }

    #[test]
    fn the_last_write_is_the_latest_timestamp_of_an_event() {
        let event = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"time": "2026-01-01T00:02:00Z"}]}, "lastTimestamp": "2026-01-01T00:01:00Z", "eventTime": null});
        assert_eq!(last_write_time(&event), "2026-01-01T00:02:00Z".parse().ok());
        assert_eq!(last_write_time(&json!({})), None);
    }
}
