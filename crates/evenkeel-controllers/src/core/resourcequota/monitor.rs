//! Quota monitor: one cache for each kind that quotas can limit. Upstream: `QuotaMonitor`.

use super::plan::{Content, LimitedKind, Observed};
use evenkeel_api::{
    Text, View,
    views::{DeviceClass, PersistentVolumeClaim, Pod, ResourceClaim, ResourceQuota, Service},
};
use evenkeel_component_helpers::quota::{Classes, Evaluator, EvaluatorKind};
use evenkeel_runtime::cache::{Cache, Caches};
use std::{any::Any, collections::BTreeMap, sync::Arc};

/// The kinds that quotas count, and the caches of their objects. Upstream: `QuotaMonitor`.
#[derive(Clone)]
pub(super) struct QuotaMonitor {
    caches: Caches,
    /// Kinds by the quota resource that counts them, such as `count/pods`.
    kinds: BTreeMap<Text, Arc<CountedKind>>,
    /// Whether all kinds that the server had at the start are synced.
    complete: bool,
    /// Device classes. Watched once claims of devices are counted.
    classes: Option<Cache<DeviceClass>>,
}

/// A kind that quotas count, and the cache of its objects.
struct CountedKind {
    evaluator: Arc<Evaluator>,
    cache: Box<dyn CountedCache>,
}

/// A cache of any view.
trait CountedCache: Send + Sync {
    /// Returns the namespace's objects, or only their number if the evaluator needs no more.
    fn content(&self, evaluator_kind: EvaluatorKind, namespace: &str) -> Content;
    /// Returns whether the cache holds all objects that the server had at the start.
    fn has_synced(&self) -> bool;
}

impl<V: View> CountedCache for Cache<V> {
    fn content(&self, evaluator_kind: EvaluatorKind, namespace: &str) -> Content {
        let this: &dyn Any = self;
        let objects = match evaluator_kind {
            EvaluatorKind::Pods => this
                .downcast_ref::<Cache<Pod>>()
                .map(|cache| Content::Pods(cache.namespace(namespace))),
            EvaluatorKind::Services => this
                .downcast_ref::<Cache<Service>>()
                .map(|cache| Content::Services(cache.namespace(namespace))),
            EvaluatorKind::VolumeClaims => this
                .downcast_ref::<Cache<PersistentVolumeClaim>>()
                .map(|cache| Content::VolumeClaims(cache.namespace(namespace))),
            EvaluatorKind::DeviceClaims => {
                this.downcast_ref::<Cache<ResourceClaim>>().map(|cache| {
                    // `QuotaMonitor::observe` adds the pods.
                    let claims = cache.namespace(namespace);
                    let pods = Vec::new();
                    Content::DeviceClaims { claims, pods }
                })
            }
            EvaluatorKind::Plain => None,
        };
        objects.unwrap_or_else(|| Content::Count(self.count(namespace)))
    }

    fn has_synced(&self) -> bool {
        Self::has_synced(self)
    }
}

impl QuotaMonitor {
    pub(super) fn new(caches: &Caches) -> Self {
        Self { caches: caches.clone(), kinds: BTreeMap::new(), complete: false, classes: None }
    }

    /// Adds a kind that quotas count, with the cache of its objects.
    pub(super) fn add<V: View>(&mut self, evaluator: &Arc<Evaluator>, cache: Cache<V>) {
        if evaluator.kind() == EvaluatorKind::DeviceClaims {
            self.classes.get_or_insert_with(|| self.caches.of());
        }
        let kind = CountedKind { evaluator: evaluator.clone(), cache: Box::new(cache) };
        self.kinds.insert(evaluator.count().into(), Arc::new(kind));
    }

    /// Removes a kind that the server no longer serves.
    pub(super) fn remove(&mut self, evaluator: &Evaluator) {
        self.kinds.remove(evaluator.count());
    }

    /// Records that the initial kinds are synced. Returns whether they already were.
    pub(super) fn mark_complete(&mut self) -> bool {
        std::mem::replace(&mut self.complete, true)
    }

    /// Returns whether a kind counts towards the quota resource `name`.
    pub(super) fn is_counted(&self, name: &str) -> bool {
        let classes = self.classes();
        self.kinds.values().any(|kind| kind.evaluator.matches_resource(name, &classes))
    }

    /// Returns a quota and the objects of synced kinds that it limits, or `None` before the initial kinds are synced.
    pub(super) fn observe(&self, quota: Arc<ResourceQuota>) -> Option<Observed> {
        if !self.complete {
            return None;
        }
        let classes = self.classes();
        let namespace = quota.meta.namespace.clone();
        let mut limited_kinds = Vec::new();
        for kind in self.kinds.values() {
            let evaluator = kind.evaluator.clone();
            let limits =
                quota.spec.hard.iter().any(|(name, _)| evaluator.matches_resource(name, &classes));
            if limits && kind.cache.has_synced() {
                let mut content = kind.cache.content(evaluator.kind(), &namespace);
                if let Content::DeviceClaims { pods, .. } = &mut content {
                    *pods = self.caches.of::<Pod>().namespace(&namespace);
                }
                limited_kinds.push(LimitedKind { evaluator, content });
            }
        }
        Some(Observed { quota, classes, limited_kinds })
    }

    /// Returns the device classes.
    pub(super) fn classes(&self) -> Classes {
        let classes = self.classes.as_ref().map(Cache::list).unwrap_or_default();
        classes.iter().map(|class| &**class).collect()
    }
}
