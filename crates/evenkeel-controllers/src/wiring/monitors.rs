//! Watches of all resources, which the garbage collector and the quota controller share. They follow discovery.
//!
//! The module discovers resources, and starts and stops watches by [`WatchChanges`]. It does not decide about objects.

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

/// Maximum wait for all watches to sync after a change: a broken custom resource must not block the other resources.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);

/// A controller that watches many resources.
pub(crate) trait Follower: Send + Sync + 'static {
    /// Whether the controller watches the resource.
    fn wants(&self, resource: &Resource) -> bool;

    /// Starts to watch a kind, and resolves when its cache has synced. Called again for a kind that was removed and
    /// restored.
    fn start_watching(&self, kind: &Kind) -> BoxFuture<'static, ()>;

    /// Stops watching a kind that the server no longer serves.
    fn stop_watching(&self, _kind: &Kind) {}

    /// Called when discovery or a watch failed.
    fn failed(&self) {}

    /// Called when all followed kinds have synced, or the wait timed out.
    fn settled(&self) {}
}

/// The shared watches; clones refer to the same watches.
#[derive(Clone)]
pub struct Monitors(Arc<Shared>);

struct Shared {
    env: Env,
    found: Mutex<Arc<ServerResources>>,
    followers: Mutex<Vec<Arc<Following>>>,
    joined: Notify,
}

struct Following {
    follower: Box<dyn Follower>,
    watched: Mutex<BTreeSet<Kind>>,
}

impl Monitors {
    /// Builds the monitors without watches.
    pub(crate) fn new(env: &Env) -> Self {
        Self(Arc::new(Shared {
            env: env.clone(),
            found: Mutex::default(),
            followers: Mutex::default(),
            joined: Notify::new(),
        }))
    }

    /// Registers a follower. The first follower starts the watches, which stop with `tasks`.
    pub(crate) fn follow(&self, tasks: &Tasks, follower: impl Follower) {
        let following = Following { follower: Box::new(follower), watched: Mutex::default() };
        let first = {
            let mut followers = lock(&self.0.followers);
            followers.push(Arc::new(following));
            followers.len() == 1
        };
        if first {
            let (this, stop) = (self.clone(), tasks.token());
            // Do not restart this task: a second run would treat watches that have not synced as complete.
            tasks.spawn("monitors", async move { this.run(stop).await });
        } else {
            self.0.joined.notify_one();
        }
    }

    /// Returns the result of the last successful discovery.
    pub(crate) fn discovered(&self) -> Arc<ServerResources> {
        lock(&self.0.found).clone()
    }

    async fn run(&self, stop: CancellationToken) {
        // The last discovery that was applied, and the number of followers then.
        let mut applied: Option<(Arc<ServerResources>, usize)> = None;
        loop {
            let found = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                found = self.0.env.client.api_resources() => found,
            };
            match found {
                Ok(found) if !found.resources.is_empty() => {
                    let followers = lock(&self.0.followers).clone();
                    let is_applied = applied.as_ref().is_some_and(|(before, followed)| {
                        Arc::ptr_eq(before, &found) && *followed == followers.len()
                    });
                    if is_applied {
                        followers.iter().for_each(|following| following.follower.settled());
                    } else {
                        self.update(&followers, &found, &stop).await;
                        applied = Some((found, followers.len()));
                    }
                }
                Ok(_) => {
                    self.failed();
                    tracing::warn!("Discovery found no resources; keeping the known watches");
                }
                Err(error) => {
                    self.failed();
                    tracing::warn!(%error, "Discovery failed; keeping the known watches");
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.0.joined.notified() => {}
                () = self.0.env.clock.sleep(DISCOVERY_INTERVAL) => {}
            }
        }
    }

    async fn update(
        &self,
        followers: &[Arc<Following>],
        found: &Arc<ServerResources>,
        stop: &CancellationToken,
    ) {
        *lock(&self.0.found) = found.clone();
        self.stop_removed(followers, found);
        let mut syncing: FuturesUnordered<BoxFuture<'static, ()>> =
            followers.iter().flat_map(|following| following.start_watching(found)).collect();
        let all = async { while syncing.next().await.is_some() {} };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = all => {}
            () = self.0.env.clock.sleep(SYNC_TIMEOUT) => {
                self.failed();
                tracing::warn!("Timed out waiting for caches to sync; continuing without the resources");
            }
        }
        for following in followers {
            following.follower.settled();
        }
    }

    fn failed(&self) {
        lock(&self.0.followers).iter().for_each(|following| following.follower.failed());
    }

    fn stop_removed(&self, followers: &[Arc<Following>], found: &ServerResources) {
        let mut removed: BTreeSet<Kind> = BTreeSet::new();
        for following in followers {
            removed.extend(following.changes(found, &lock(&following.watched)).stop);
        }
        for kind in removed {
            // The cache stays if another controller uses it. It then delivers events after the kind is restored.
            if self.0.env.caches.stop(&kind) {
                for following in followers {
                    if lock(&following.watched).remove(&kind) {
                        following.follower.stop_watching(&kind);
                    }
                }
            }
        }
    }
}

impl Following {
    fn changes(&self, found: &ServerResources, watched: &BTreeSet<Kind>) -> WatchChanges {
        WatchChanges::new(found, watched, |resource| self.follower.wants(resource))
    }

    fn start_watching(&self, found: &ServerResources) -> Vec<BoxFuture<'static, ()>> {
        let mut watched = lock(&self.watched);
        let new = self.changes(found, &watched).start;
        let syncing = new.iter().map(|kind| self.follower.start_watching(kind)).collect();
        watched.extend(new);
        syncing
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A generic operation on the cache of a kind.
pub(crate) trait WithCache {
    /// Result of the operation.
    type Out;

    /// Performs the operation.
    fn with<V: View>(self, cache: Cache<V>) -> Self::Out;
}

/// Calls the operation with the cache of a kind: the typed cache if controllers share one, else a cache of metadata.
pub(crate) fn with_cache<W: WithCache>(caches: &Caches, kind: &Kind, operation: W) -> W::Out {
    macro_rules! shared {
        ($($view:ty),* $(,)?) => {$(
            if *kind == <$view>::kind() {
                return operation.with(caches.of::<$view>());
            }
        )*};
    }
    shared!(
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
