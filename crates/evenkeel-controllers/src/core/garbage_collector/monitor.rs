//! Watches everything that can be deleted, as kinds come and go.

use super::{DISCOVERY, GarbageCollector, SYNC};
use evenkeel_api::{
    Kind, Meta, View,
    views::{Deployment, Namespace, Node, Pod, ReplicaSet, ReplicationController, ServiceAccount},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    discovery::{Discovered, Resource},
};
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::{collections::BTreeSet, sync::PoisonError};
use tokio_util::sync::CancellationToken;

/// Groups whose `events` are not collected: they expire by themselves.
const EVENTS: [&str; 2] = ["", "events.k8s.io"];

impl GarbageCollector {
    /// Finds out what there is, and follows it until `stop`.
    pub(super) async fn monitor(&self, stop: CancellationToken) {
        let mut watched = BTreeSet::new();
        loop {
            let found = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                found = self.0.client.api_resources() => found,
            };
            match found {
                Ok(found) if !found.resources.is_empty() => {
                    self.follow(found, &mut watched, &stop).await;
                }
                Ok(_) => {
                    self.0.sync_errors.inc();
                    tracing::warn!("Discovery found no resources; watching those known before");
                }
                Err(error) => {
                    self.0.sync_errors.inc();
                    tracing::warn!(%error, "Discovery failed; watching the resources known before");
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.0.env.clock.sleep(DISCOVERY) => {}
            }
        }
    }

    async fn follow(
        &self,
        found: Discovered,
        watched: &mut BTreeSet<Kind>,
        stop: &CancellationToken,
    ) {
        let wanted: BTreeSet<Kind> =
            found.preferred().filter(|r| collectable(r)).map(|r| r.kind.clone()).collect();
        let failed = |kind: &Kind| found.failed.iter().any(|group| *group.group == *kind.group);
        // A group that did not answer is unknown, not gone.
        let gone: Vec<Kind> = watched
            .iter()
            .filter(|kind| !wanted.contains(kind) && !failed(kind))
            .cloned()
            .collect();
        for kind in gone {
            // Another controller's cache stays, and its events still come here: when the kind is back, nothing is to be done.
            if self.0.env.caches.stop(&kind) {
                watched.remove(&kind);
            }
        }
        let new: Vec<Kind> = wanted.difference(watched).cloned().collect();
        *self.0.discovered.lock().unwrap_or_else(PoisonError::into_inner) = found.into();
        let mut syncing: FuturesUnordered<BoxFuture<'static, ()>> =
            new.iter().map(|kind| self.watch(kind)).collect();
        watched.extend(new);
        let all = async { while syncing.next().await.is_some() {} };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = all => {}
            () = self.0.env.clock.sleep(SYNC) => {
                self.0.sync_errors.inc();
                tracing::warn!("Some resources are not in the garbage collector's sight yet");
            }
        }
    }

    /// Kinds that other controllers read are taken from their caches, all others by metadata alone.
    fn watch(&self, kind: &Kind) -> BoxFuture<'static, ()> {
        macro_rules! shared {
            ($($view:ty),*) => {$(
                if *kind == <$view>::kind() {
                    return self.attach(self.0.env.caches.of::<$view>());
                }
            )*};
        }
        shared!(
            Pod,
            ReplicaSet,
            ReplicationController,
            Deployment,
            Namespace,
            Node,
            ServiceAccount
        );
        self.attach(self.0.env.caches.metadata(kind.clone()))
    }

    fn attach<V: View>(&self, cache: Cache<V>) -> BoxFuture<'static, ()> {
        let (this, kind) = (self.clone(), cache.kind().clone());
        cache.subscribe(move |event| {
            let work = match event {
                CacheEvent::Added { object, .. } => this.graph().observed(&kind, object.meta()),
                CacheEvent::Updated { old, new } if concerns_owners(old.meta(), new.meta()) => {
                    this.graph().observed(&kind, new.meta())
                }
                CacheEvent::Updated { .. } => return,
                CacheEvent::Deleted(object) => this.graph().gone(&object.meta().uid),
            };
            this.enqueue(work);
        });
        Box::pin(async move { cache.synced().await })
    }
}

/// Whether objects of this resource are collected.
pub(super) fn collectable(resource: &Resource) -> bool {
    let is_event = resource.kind.plural == "events" && EVENTS.contains(&&*resource.kind.group);
    !is_event && ["delete", "list", "watch"].iter().all(|verb| resource.can(verb))
}

/// Whether a change can matter to the graph. Most are changes of status, and do not.
fn concerns_owners(old: &Meta, new: &Meta) -> bool {
    old.uid != new.uid
        || old.owners != new.owners
        || old.deletion != new.deletion
        || old.finalizers != new.finalizers
}
