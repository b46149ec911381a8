//! Watches of all resources, which the garbage collector and the quota controller share.
//!
//! The module discovers the resources periodically, and starts and stops watches as [`WatchChanges`] requires. It makes
//! no decisions about objects.

use super::watch_changes::WatchChanges;
use evenkeel_api::{
    Kind, View,
    views::{
        ControllerRevision, CronJob, DaemonSet, Deployment, HorizontalPodAutoscaler, Job, Lease,
        Namespace, Node, PersistentVolumeClaim, Pod, PodDisruptionBudget, ReplicaSet,
        ReplicationController, ResourceClaim, ResourceQuota, Service, ServiceAccount, StatefulSet,
    },
};
use evenkeel_runtime::{
    cache::{Cache, Caches},
    controller::Env,
    discovery::{Resource, ServerResources},
    tasks::Tasks,
};
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Interval between discoveries.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum wait for all watches to sync after a change. It prevents a broken custom resource from blocking the other resources.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);

/// A controller that watches many resources.
pub(crate) trait Follower: Send + Sync + 'static {
    /// Returns whether the controller watches the resource.
    fn wants(&self, resource: &Resource) -> bool;

    /// Starts to watch a kind. The future resolves when the kind's cache has synced. Called again if the server serves
    /// the kind again.
    fn start_watching(&self, kind: &Kind) -> BoxFuture<'static, ()>;

    /// Stops watching a kind that the server no longer serves.
    fn stop_watching(&self, _kind: &Kind) {}

    /// Called after discovery failed, or a watch did not sync in time.
    fn on_failed(&self) {}

    /// Called after each successful discovery, once all watched kinds have synced or the wait timed out.
    fn on_settled(&self) {}
}

/// The shared watches. Clones refer to the same watches.
#[derive(Clone)]
pub struct Monitors(Arc<Shared>);

/// State that all clones of [`Monitors`] share.
struct Shared {
    env: Env,
    /// Result of the last successful discovery.
    discovered: Mutex<Arc<ServerResources>>,
    followers: Mutex<Vec<Arc<FollowerWatches>>>,
    follower_added: Notify,
}

/// A follower, and the kinds that it watches.
struct FollowerWatches {
    follower: Box<dyn Follower>,
    watched: Mutex<BTreeSet<Kind>>,
}

/// A discovery to which the watches were adapted.
struct AppliedDiscovery {
    discovered: Arc<ServerResources>,
    /// Number of followers at that time.
    n_followers: usize,
}

impl Monitors {
    /// Builds the monitors without watches.
    pub(crate) fn new(env: &Env) -> Self {
        Self(Arc::new(Shared {
            env: env.clone(),
            discovered: Mutex::default(),
            followers: Mutex::default(),
            follower_added: Notify::new(),
        }))
    }

    /// Registers a follower. The first follower starts the watches, which stop with `tasks`.
    pub(crate) fn follow(&self, tasks: &Tasks, follower: impl Follower) {
        let watches = FollowerWatches { follower: Box::new(follower), watched: Mutex::default() };
        let is_first = {
            let mut followers = lock(&self.0.followers);
            followers.push(Arc::new(watches));
            followers.len() == 1
        };
        if is_first {
            let monitors = self.clone();
            let stop = tasks.token();
            // Do not restart this task: a second run would treat watches that have not synced as complete.
            tasks.spawn("monitors", async move { monitors.run(stop).await });
        } else {
            self.0.follower_added.notify_one();
        }
    }

    /// Returns the result of the last successful discovery.
    pub(crate) fn discovered(&self) -> Arc<ServerResources> {
        lock(&self.0.discovered).clone()
    }

    /// Discovers the resources and adapts the watches, until `stop` is cancelled.
    async fn run(&self, stop: CancellationToken) {
        let mut last_applied: Option<AppliedDiscovery> = None;
        loop {
            let result = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                result = self.0.env.client.api_resources() => result,
            };
            match result {
                Ok(discovered) if !discovered.resources.is_empty() => {
                    let followers = lock(&self.0.followers).clone();
                    let n_followers = followers.len();
                    let is_applied = last_applied.as_ref().is_some_and(|last| {
                        Arc::ptr_eq(&last.discovered, &discovered)
                            && last.n_followers == n_followers
                    });
                    if is_applied {
                        // The watches are already adapted to this discovery and these followers.
                        followers.iter().for_each(|watches| watches.follower.on_settled());
                    } else {
                        self.apply(&followers, &discovered, &stop).await;
                        last_applied = Some(AppliedDiscovery { discovered, n_followers });
                    }
                }
                Ok(_) => {
                    self.report_failure();
                    tracing::warn!("Discovery found no resources; keeping the known watches");
                }
                Err(error) => {
                    self.report_failure();
                    tracing::warn!(%error, "Discovery failed; keeping the known watches");
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.0.follower_added.notified() => {}
                () = self.0.env.clock.sleep(DISCOVERY_INTERVAL) => {}
            }
        }
    }

    /// Adapts the watches to a discovery, and waits until they have synced.
    async fn apply(
        &self,
        followers: &[Arc<FollowerWatches>],
        discovered: &Arc<ServerResources>,
        stop: &CancellationToken,
    ) {
        *lock(&self.0.discovered) = discovered.clone();
        self.stop_removed(followers, discovered);
        let new_watches = followers.iter().flat_map(|watches| watches.start_watching(discovered));
        let mut syncing: FuturesUnordered<BoxFuture<'static, ()>> = new_watches.collect();
        let all_synced = async { while syncing.next().await.is_some() {} };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = all_synced => {}
            () = self.0.env.clock.sleep(SYNC_TIMEOUT) => {
                self.report_failure();
                tracing::warn!("Timed out waiting for caches to sync; continuing without the resources");
            }
        }
        for watches in followers {
            watches.follower.on_settled();
        }
    }

    /// Reports a failed discovery or sync to all followers.
    fn report_failure(&self) {
        lock(&self.0.followers).iter().for_each(|watches| watches.follower.on_failed());
    }

    /// Stops the watches of kinds that the server no longer serves.
    fn stop_removed(&self, followers: &[Arc<FollowerWatches>], discovered: &ServerResources) {
        let mut removed: BTreeSet<Kind> = BTreeSet::new();
        for watches in followers {
            removed.extend(watches.changes(discovered, &lock(&watches.watched)).stop);
        }
        for kind in removed {
            // A cache that another controller uses is not stopped. It delivers events once the server serves the kind
            // again.
            if self.0.env.caches.stop(&kind) {
                for watches in followers {
                    if lock(&watches.watched).remove(&kind) {
                        watches.follower.stop_watching(&kind);
                    }
                }
            }
        }
    }
}

impl FollowerWatches {
    /// Compares a discovery with the watched kinds.
    fn changes(&self, discovered: &ServerResources, watched: &BTreeSet<Kind>) -> WatchChanges {
        WatchChanges::new(discovered, watched, |resource| self.follower.wants(resource))
    }

    /// Starts the missing watches. Each future resolves when a kind has synced.
    fn start_watching(&self, discovered: &ServerResources) -> Vec<BoxFuture<'static, ()>> {
        let mut watched = lock(&self.watched);
        let new = self.changes(discovered, &watched).start;
        let syncing = new.iter().map(|kind| self.follower.start_watching(kind)).collect();
        watched.extend(new);
        syncing
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An operation on the cache of a kind, generic over the cached type.
pub(crate) trait WithCache {
    /// Result of the operation.
    type Out;

    /// Performs the operation.
    fn with<V: View>(self, cache: Cache<V>) -> Self::Out;
}

/// Performs the operation on the cache of a kind. Kinds for which other controllers have a typed cache share this
/// cache. For all other kinds, the cache contains only metadata.
pub(crate) fn with_cache<W: WithCache>(caches: &Caches, kind: &Kind, operation: W) -> W::Out {
    macro_rules! try_typed_caches {
        ($($view:ty),* $(,)?) => {$(
            if *kind == <$view>::kind() {
                return operation.with(caches.of::<$view>());
            }
        )*};
    }
    try_typed_caches!(
        Pod,
        ReplicaSet,
        ReplicationController,
        ControllerRevision,
        Deployment,
        StatefulSet,
        DaemonSet,
        Job,
        CronJob,
        HorizontalPodAutoscaler,
        PodDisruptionBudget,
        Lease,
        Namespace,
        Node,
        PersistentVolumeClaim,
        ResourceClaim,
        ResourceQuota,
        Service,
        ServiceAccount,
    );
    operation.with(caches.metadata(kind.clone()))
}
