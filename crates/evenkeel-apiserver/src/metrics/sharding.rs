//! Metrics of watches with a `shardSelector`, by resource.
//!
//! Upstream: `storage/cacher/metrics`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_apimachinery::group_version::GroupResource;

/// Group and plural of a resource.
type Resource = (Arc<str>, Arc<str>);

/// Counters of all resources that had a sharded watch.
#[derive(Default)]
pub(super) struct ShardedWatches(Mutex<BTreeMap<Resource, Arc<Counters>>>);

/// Counters of one resource.
#[derive(Default)]
struct Counters {
    /// Number of open watches.
    watches: AtomicI64,
    /// Number of states of objects that these watches excluded.
    filtered: AtomicU64,
}

/// Open watch of some shards. Dropping it ends the watch.
pub(crate) struct ShardedWatch(Arc<Counters>);

impl ShardedWatch {
    /// Counts a state of an object that is in another shard. As in upstream, an update has two states.
    ///
    /// Upstream: `RecordWatchFilteredEvent`.
    pub(crate) fn record_filtered_event(&self) {
        self.0.filtered.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for ShardedWatch {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ShardedWatches {
    /// Counts a watch until the result drops.
    ///
    /// Upstream: `RecordShardedWatchStarted`, `RecordShardedWatchStopped`.
    pub(super) fn begin(&self, resource: &GroupResource) -> ShardedWatch {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (resource.group.clone(), resource.resource.clone());
        let counters = all.entry(key).or_default();
        counters.watches.fetch_add(1, Ordering::Relaxed);
        ShardedWatch(counters.clone())
    }

    /// Writes the metrics. Writes nothing if the feature gate is off.
    pub(super) fn render(&self, out: &mut String) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            return;
        }
        out.push_str("# HELP apiserver_watch_filtered_events_total [ALPHA] Counter of events filtered out by shard selector during watch dispatch, broken by resource type.\n# TYPE apiserver_watch_filtered_events_total counter\n");
        for ((group, resource), counters) in all.iter() {
            let filtered = counters.filtered.load(Ordering::Relaxed);
            let _ = writeln!(
                out,
                "apiserver_watch_filtered_events_total{{group=\"{group}\",resource=\"{resource}\"}} {filtered}"
            );
        }
        out.push_str("# HELP apiserver_watch_shards_total [ALPHA] Number of active sharded watch connections broken by resource type.\n# TYPE apiserver_watch_shards_total gauge\n");
        for ((group, resource), counters) in all.iter() {
            let watches = counters.watches.load(Ordering::Relaxed);
            let _ = writeln!(
                out,
                "apiserver_watch_shards_total{{group=\"{group}\",resource=\"{resource}\"}} {watches}"
            );
        }
    }
}
