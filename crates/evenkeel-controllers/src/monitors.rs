//! Watches every kind of object that the server has, as kinds come and go: once, for all controllers that want to.

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
    discovery::{Discovered, Resource},
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

/// How often new and gone resources are looked for.
const DISCOVERY: Duration = Duration::from_secs(30);

/// How long the start waits for every watch; a broken custom resource must not hold up all others.
const SYNC: Duration = Duration::from_secs(30);

/// A controller that watches many kinds.
pub(crate) trait Follower: Send + Sync + 'static {
    /// Whether it wants to watch this resource.
    fn wants(&self, resource: &Resource) -> bool;

    /// Begins to watch a kind; done when all that there is of it has been seen. Called again when the kind went and came
    /// back.
    fn take_up(&self, kind: &Kind) -> BoxFuture<'static, ()>;

    /// Ceases to watch a kind, which the server does not have any more.
    fn put_down(&self, _kind: &Kind) {}

    /// What there is could not be found out, or not all of it can be watched yet.
    fn failed(&self) {}

    /// What there is has been taken up and seen, or has been waited for long enough.
    fn settled(&self) {}
}

/// The watches. Clones share them.
#[derive(Clone)]
pub struct Monitors(Arc<Shared>);

struct Shared {
    env: Env,
    found: Mutex<Arc<Discovered>>,
    followers: Mutex<Vec<Arc<Following>>>,
    joined: Notify,
}

struct Following {
    follower: Box<dyn Follower>,
    watched: Mutex<BTreeSet<Kind>>,
}

impl Monitors {
    /// No watches yet.
    pub(crate) fn new(env: &Env) -> Self {
        Self(Arc::new(Shared {
            env: env.clone(),
            found: Mutex::default(),
            followers: Mutex::default(),
            joined: Notify::new(),
        }))
    }

    /// From now on `follower` is told of kinds. The first one starts the watches, which end with `tasks`.
    pub(crate) fn follow(&self, tasks: &Tasks, follower: impl Follower) {
        let following = Following { follower: Box::new(follower), watched: Mutex::default() };
        let first = {
            let mut followers = lock(&self.0.followers);
            followers.push(Arc::new(following));
            followers.len() == 1
        };
        if first {
            let (this, stop) = (self.clone(), tasks.token());
            tasks.spawn("monitors", async move { this.run(stop).await });
        } else {
            self.0.joined.notify_one();
        }
    }

    /// The resources that were found last.
    pub(crate) fn discovered(&self) -> Arc<Discovered> {
        lock(&self.0.found).clone()
    }

    async fn run(&self, stop: CancellationToken) {
        // What was taken up last, and for how many.
        let mut taken: Option<(Arc<Discovered>, usize)> = None;
        loop {
            let found = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                found = self.0.env.client.api_resources() => found,
            };
            match found {
                Ok(found) if !found.resources.is_empty() => {
                    let followers = lock(&self.0.followers).clone();
                    let is_taken = taken.as_ref().is_some_and(|(before, followed)| {
                        Arc::ptr_eq(before, &found) && *followed == followers.len()
                    });
                    if is_taken {
                        followers.iter().for_each(|following| following.follower.settled());
                    } else {
                        self.update(&followers, &found, &stop).await;
                        taken = Some((found, followers.len()));
                    }
                }
                Ok(_) => {
                    self.failed();
                    tracing::warn!("Discovery found no resources; watching those known before");
                }
                Err(error) => {
                    self.failed();
                    tracing::warn!(%error, "Discovery failed; watching the resources known before");
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.0.joined.notified() => {}
                () = self.0.env.clock.sleep(DISCOVERY) => {}
            }
        }
    }

    async fn update(
        &self,
        followers: &[Arc<Following>],
        found: &Arc<Discovered>,
        stop: &CancellationToken,
    ) {
        *lock(&self.0.found) = found.clone();
        self.drop_gone(followers, found);
        let mut syncing: FuturesUnordered<BoxFuture<'static, ()>> =
            followers.iter().flat_map(|following| following.take_up(found)).collect();
        let all = async { while syncing.next().await.is_some() {} };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = all => {}
            () = self.0.env.clock.sleep(SYNC) => {
                self.failed();
                tracing::warn!("Some resources cannot be watched yet");
            }
        }
        for following in followers {
            following.follower.settled();
        }
    }

    fn failed(&self) {
        lock(&self.0.followers).iter().for_each(|following| following.follower.failed());
    }

    fn drop_gone(&self, followers: &[Arc<Following>], found: &Discovered) {
        let mut gone: BTreeSet<Kind> = BTreeSet::new();
        for following in followers {
            let wanted = following.wanted(found);
            // A group that did not answer is unknown, not gone.
            let failed = |kind: &Kind| found.failed.iter().any(|f| *f.group == *kind.group);
            let watched = lock(&following.watched);
            gone.extend(watched.iter().filter(|k| !wanted.contains(k) && !failed(k)).cloned());
        }
        for kind in gone {
            // Another controller's cache stays, and its events still come: when the kind is back, nothing is to be done.
            if self.0.env.caches.stop(&kind) {
                for following in followers {
                    if lock(&following.watched).remove(&kind) {
                        following.follower.put_down(&kind);
                    }
                }
            }
        }
    }
}

impl Following {
    fn wanted(&self, found: &Discovered) -> BTreeSet<Kind> {
        let wanted = found.preferred().filter(|resource| self.follower.wants(resource));
        wanted.map(|resource| resource.kind.clone()).collect()
    }

    fn take_up(&self, found: &Discovered) -> Vec<BoxFuture<'static, ()>> {
        let wanted = self.wanted(found);
        let mut watched = lock(&self.watched);
        let new: Vec<Kind> = wanted.difference(&watched).cloned().collect();
        let syncing = new.iter().map(|kind| self.follower.take_up(kind)).collect();
        watched.extend(new);
        syncing
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is to be done with the cache of a kind, whatever is read of its objects.
pub(crate) trait WithCache {
    /// What comes of it.
    type Out;

    /// Does it.
    fn with<V: View>(self, cache: Cache<V>) -> Self::Out;
}

/// Kinds that other controllers read are taken from their caches, all others by metadata alone.
pub(crate) fn with_cache<W: WithCache>(caches: &Caches, kind: &Kind, what: W) -> W::Out {
    macro_rules! shared {
        ($($view:ty),* $(,)?) => {$(
            if *kind == <$view>::kind() {
                return what.with(caches.of::<$view>());
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
    what.with(caches.metadata(kind.clone()))
}
