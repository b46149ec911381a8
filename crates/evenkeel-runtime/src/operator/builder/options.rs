//! Options of a controller that few operators need: rate limiter, panics, leader election, priorities, permissions.

use super::ControllerBuilder;
use crate::{
    cache::{CacheEvent, Full},
    operator::{ApiObject, object::kind_of},
    plan::Key,
    queue::{Priority, RateLimiter},
};
use evenkeel_api::Kind;
use futures::{Stream, StreamExt as _};
use std::collections::BTreeMap;

/// Verbs that [`ControllerBuilder::writes`] declares.
const WRITE: [&str; 4] = ["create", "update", "patch", "delete"];

/// Options that few controllers need.
impl<K, S: Send + Sync + 'static> ControllerBuilder<'_, K, S> {
    /// Sets the rate limiter of failed keys. Default: one with [`Self::backoff`].
    #[doc(alias = "RateLimiter")]
    pub fn rate_limiter(self, limiter: impl RateLimiter<Key> + 'static) -> Self {
        self.change(|builder| builder.rate_limiter(limiter))
    }

    /// Sets whether a panic of a reconcile counts as a failure of its key, which is retried with backoff. Otherwise, a panic
    /// stops the manager gracefully with an error. In a controller of another [cluster](crate::clusters), it stops only this
    /// controller. Default: true.
    #[doc(alias = "RecoverPanic")]
    pub fn recover_panic(self, recover: bool) -> Self {
        self.change(|builder| builder.recover_panic(recover))
    }

    /// Sets whether the controller runs only in the leader. Otherwise, it runs in every replica, no lease fences its writes,
    /// and its reconciles must tolerate concurrent reconciles of the same key. Default: true.
    ///
    /// A sharded controller always runs in every replica, behind the fence of its shards.
    #[doc(alias = "NeedLeaderElection")]
    pub fn needs_leader_election(self, needs: bool) -> Self {
        self.change(|builder| builder.needs_leader_election(needs))
    }

    /// Like [`Self::watches`], with a priority of each key. Keys of an initial list or a resync get the lower of this priority
    /// and [`Priority::LOW`], so that a new leader handles changes first.
    ///
    /// Upstream: `handler.EnqueueRequestsFromMapFunc` with a priority queue.
    pub fn watches_with_priority<W: ApiObject>(
        self,
        map: impl Fn(&W) -> Vec<(Key, Priority)> + Send + Sync + 'static,
    ) -> Self {
        let cache = self.manager.cached::<W>();
        self.change(|builder| {
            builder.watches(&cache, move |event: &CacheEvent<Full<W>>, enqueue| {
                let mut keys = BTreeMap::new();
                let mut add = |object: &Full<W>| {
                    for (key, priority) in map(object) {
                        let known = keys.entry(key).or_insert(priority);
                        *known = priority.max(*known);
                    }
                };
                add(event.object());
                if let CacheEvent::Updated { old, .. } = event {
                    add(old);
                }
                for (key, priority) in keys {
                    enqueue.add_limited(key, priority);
                }
            })
        })
    }

    /// Like [`Self::source`], with a priority of each key.
    pub fn source_with_priority(
        self,
        keys: impl Stream<Item = (Key, Priority)> + Send + 'static,
    ) -> Self {
        self.change(|builder| builder.source_with_priority(keys.boxed()))
    }

    /// Declares that the controller creates, updates, patches and deletes objects of `W`, for [`Manager::permissions`]. Kinds that
    /// it [owns](Self::owns) need no such declaration.
    ///
    /// [`Manager::permissions`]: crate::manager::Manager::permissions
    pub fn writes<W: ApiObject>(self) -> Self {
        self.writes_only::<W>(&WRITE)
    }

    /// Like [`Self::writes`], but only with these verbs. For a kind that the controller owns, they replace the default verbs.
    pub fn writes_only<W: ApiObject>(self, verbs: &[&str]) -> Self {
        self.writes_kind(&kind_of::<W>(), verbs)
    }

    /// Like [`Self::writes_only`], for a kind that is known only at run time.
    pub fn writes_kind(self, kind: &Kind, verbs: &[&str]) -> Self {
        self.change(|mut builder| {
            builder.declared().writes(kind, verbs);
            builder
        })
    }
}
