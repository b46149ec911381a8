//! Contents of namespaces: a cache for each kind that quotas can limit. Upstream: `QuotaMonitor`.

use super::plan::{Content, Observed, Part};
use evenkeel_api::{
    Text, View,
    views::{DeviceClass, PersistentVolumeClaim, Pod, ResourceClaim, ResourceQuota, Service},
};
use evenkeel_component_helpers::quota::{Classes, Evaluator, EvaluatorKind};
use evenkeel_runtime::cache::{Cache, Caches};
use std::{any::Any, collections::BTreeMap, sync::Arc};

/// The counted kinds, and the caches of their objects.
#[derive(Clone)]
pub(super) struct Contents {
    caches: Caches,
    /// Caches by resource name in quotas.
    kinds: BTreeMap<Text, Arc<Counted>>,
    /// Whether all kinds that the server had at the start are synced.
    complete: bool,
    classes: Option<Cache<DeviceClass>>,
}

/// A counted kind.
struct Counted {
    evaluator: Arc<Evaluator>,
    cache: Box<dyn CountedCache>,
}

/// A cache of any view.
trait CountedCache: Send + Sync {
    fn content(&self, sort: EvaluatorKind, namespace: &str) -> Content;
    fn has_synced(&self) -> bool;
}

impl<V: View> CountedCache for Cache<V> {
    fn content(&self, sort: EvaluatorKind, namespace: &str) -> Content {
        let any: &dyn Any = self;
        let objects = match sort {
            EvaluatorKind::Pods => any
                .downcast_ref::<Cache<Pod>>()
                .map(|cache| Content::Pods(cache.namespace(namespace))),
            EvaluatorKind::Services => any
                .downcast_ref::<Cache<Service>>()
                .map(|cache| Content::Services(cache.namespace(namespace))),
            EvaluatorKind::VolumeClaims => any
                .downcast_ref::<Cache<PersistentVolumeClaim>>()
                .map(|cache| Content::VolumeClaims(cache.namespace(namespace))),
            EvaluatorKind::DeviceClaims => any
                .downcast_ref::<Cache<ResourceClaim>>()
                .map(|cache| Content::DeviceClaims(cache.namespace(namespace), Vec::new())),
            EvaluatorKind::Plain => None,
        };
        objects.unwrap_or_else(|| Content::Number(self.count(namespace)))
    }

    fn has_synced(&self) -> bool {
        Self::has_synced(self)
    }
}

impl Contents {
    pub(super) fn new(caches: &Caches) -> Self {
        Self { caches: caches.clone(), kinds: BTreeMap::new(), complete: false, classes: None }
    }

    /// Adds a kind.
    pub(super) fn add<V: View>(&mut self, evaluator: &Arc<Evaluator>, cache: Cache<V>) {
        if evaluator.kind() == EvaluatorKind::DeviceClaims {
            self.classes.get_or_insert_with(|| self.caches.of());
        }
        let counted = Counted { evaluator: evaluator.clone(), cache: Box::new(cache) };
        self.kinds.insert(evaluator.count().into(), Arc::new(counted));
    }

    /// Removes a kind.
    pub(super) fn remove(&mut self, evaluator: &Evaluator) {
        self.kinds.remove(evaluator.count());
    }

    /// Records that the initial kinds are complete. Returns whether they already were.
    pub(super) fn complete(&mut self) -> bool {
        std::mem::replace(&mut self.complete, true)
    }

    /// Whether a kind counts towards the resource `name`.
    pub(super) fn counts(&self, name: &str) -> bool {
        let classes = self.classes();
        self.kinds.values().any(|counted| counted.evaluator.matches_resource(name, &classes))
    }

    /// Returns a quota and the content that it limits, of synced kinds; `None` before the initial kinds are complete.
    pub(super) fn of(&self, quota: Arc<ResourceQuota>) -> Option<Observed> {
        if !self.complete {
            return None;
        }
        let (classes, namespace) = (self.classes(), quota.meta.namespace.clone());
        let mut parts = Vec::new();
        for counted in self.kinds.values() {
            let evaluator = counted.evaluator.clone();
            let limits =
                quota.spec.hard.iter().any(|(name, _)| evaluator.matches_resource(name, &classes));
            if limits && counted.cache.has_synced() {
                let mut content = counted.cache.content(evaluator.kind(), &namespace);
                if let Content::DeviceClaims(_, pods) = &mut content {
                    *pods = self.caches.of::<Pod>().namespace(&namespace);
                }
                parts.push(Part { evaluator, content });
            }
        }
        Some(Observed { quota, classes, parts })
    }

    /// Returns the device classes.
    pub(super) fn classes(&self) -> Classes {
        let classes = self.classes.as_ref().map(Cache::list).unwrap_or_default();
        classes.iter().map(|class| &**class).collect()
    }
}
