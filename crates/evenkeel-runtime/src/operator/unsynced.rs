//! Reads of caches that have not synced: they return an error, and the key is requeued once the cache has synced.

use super::Result;
use crate::{
    cache::Informer,
    controller::{LateWatches, Outcome},
    plan::Key,
};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

/// Delay of a reconcile that waits for a cache, if the cache is stopped instead.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Error of reading a cache whose initial list is not complete: the cache of a watch that was added while the controller runs,
/// or of an [optional](super::ControllerBuilder::optional) kind. An object that the cache lacks may exist on the server.
///
/// A reconcile that returns this error is repeated when the cache has synced. It does not count as failed unless the server has
/// refused the list. [`Error::downcast_ref`](crate::controller::Error::downcast_ref) finds it in an error.
/// [`Context::has_synced`](super::Context::has_synced) checks for it in advance.
///
/// Upstream: `ErrCacheNotStarted`, and `meta.NoKindMatchError` for a kind that is not served.
#[doc(alias = "NoKindMatchError")]
#[derive(Clone)]
pub struct NotSynced {
    /// Kind of the cache.
    pub kind: String,
    /// Reason why the server does not list the kind, for example because its CustomResourceDefinition is not installed. `None`
    /// while the list is in progress.
    pub reason: Option<String>,
    informer: Arc<Informer>,
}

impl fmt::Display for NotSynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cache of {} has not synced yet", self.kind)?;
        self.reason.iter().try_for_each(|reason| write!(f, ": {reason}"))
    }
}

impl fmt::Debug for NotSynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotSynced")
            .field("kind", &self.kind)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl std::error::Error for NotSynced {}

impl NotSynced {
    /// Returns the error if the cache of the informer has not synced.
    pub(super) fn check(informer: &Arc<Informer>) -> Result<(), Self> {
        if informer.has_synced() {
            return Ok(());
        }
        let kind = informer.scope().kind.kind.to_string();
        Err(Self { kind, reason: informer.state().trouble, informer: Arc::clone(informer) })
    }
}

/// Requeues keys whose reconciles read a cache that had not synced.
#[derive(Clone, Default)]
pub(super) struct Postponed(Arc<State>);

/// Keys that wait for caches that have not synced.
#[derive(Default)]
struct State {
    controller: OnceLock<LateWatches>,
    /// Keys that wait, each for one cache. A key is forgotten when its reconcile ends otherwise, such as that of a deleted
    /// object: a kind may never be served.
    waiting: Mutex<HashMap<Key, Arc<Informer>>>,
}

impl Postponed {
    /// Sets the controller of the keys once the controller is built.
    pub(super) fn begin(&self, controller: LateWatches) {
        // It is built once.
        let _ = self.0.controller.set(controller);
    }

    /// Returns the result of a pass. If the pass read a cache that has not synced, its key is requeued once that cache has synced.
    pub(super) fn result(&self, key: &Key, result: Result<Outcome>) -> Result<Outcome> {
        let Some(controller) = self.0.controller.get() else { return result };
        let not_synced = result.as_ref().err().and_then(|error| error.downcast_ref::<NotSynced>());
        let informer = not_synced.map(|not_synced| &not_synced.informer);
        let former = {
            let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            match informer {
                Some(informer) => waiting.insert(key.clone(), Arc::clone(informer)),
                None => waiting.remove(key),
            }
        };
        let caller = || format!("{} {key}", controller.name());
        if let Some(former) = former
            && informer.is_none_or(|informer| !Arc::ptr_eq(informer, &former))
        {
            former.forget_waiting(&caller());
        }
        let Some(not_synced) = not_synced else { return result };
        let (controller, waiting_key) = (controller.clone(), key.clone());
        not_synced.informer.when_synced(caller(), move || controller.enqueue(waiting_key));
        if not_synced.reason.is_some() {
            return result;
        }
        tracing::debug!(kind = not_synced.kind, "the pass waits for a cache that has not synced");
        Ok(Outcome::again(RECHECK_INTERVAL))
    }
}
