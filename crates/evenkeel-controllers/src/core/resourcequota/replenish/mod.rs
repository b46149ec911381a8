//! Caches of the kinds that quotas count. Discovery starts and stops them. Their events enqueue quotas, whose usage is then
//! recalculated. Upstream: `replenishQuota`.

mod update_filter;

pub(super) use update_filter::may_decrease_usage;

use super::{SharedQuotaMonitor, monitor::QuotaMonitor};
use crate::wiring::monitors::{Follower, WithCache, with_cache};
use evenkeel_api::{Kind, View, views::ResourceQuota};
use evenkeel_component_helpers::quota::Evaluator;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Caches},
    clock::Clock,
    discovery::Resource,
    plan::Key,
    queue::{Priority, Queue},
};
use futures::future::BoxFuture;
use std::sync::Arc;
use update_filter::is_countable;

/// Watches the kinds that quotas count, and enqueues quotas when their usage may have decreased.
#[derive(Clone)]
pub(super) struct Replenisher {
    pub(super) caches: Caches,
    pub(super) quotas: Cache<ResourceQuota>,
    pub(super) monitor: SharedQuotaMonitor,
    pub(super) queue: Queue<Key>,
    pub(super) clock: Clock,
}

impl Replenisher {
    /// Enqueues the quotas of a namespace that limit this kind. If `namespace` is empty, enqueues the quotas of all
    /// namespaces. Upstream: `replenishQuota`.
    fn enqueue(&self, evaluator: &Evaluator, namespace: &str, priority: Priority) {
        let quotas = if namespace.is_empty() {
            self.quotas.list()
        } else {
            self.quotas.namespace(namespace)
        };
        if quotas.is_empty() {
            return;
        }
        let classes = self.monitor.read().classes();
        for quota in quotas {
            if quota.spec.hard.iter().any(|(name, _)| evaluator.matches_resource(name, &classes)) {
                self.queue.add(Key::of(&quota.meta), priority);
            }
        }
    }
}

impl Follower for Replenisher {
    fn wants(&self, resource: &Resource) -> bool {
        is_countable(resource)
    }

    fn start_watching(&self, kind: &Kind) -> BoxFuture<'static, ()> {
        match Evaluator::new(&kind.group, &kind.plural) {
            Some(evaluator) => {
                let attach = Attach { replenisher: self.clone(), evaluator };
                with_cache(&self.caches, kind, attach)
            }
            None => Box::pin(async {}),
        }
    }

    fn stop_watching(&self, kind: &Kind) {
        if let Some(evaluator) = Evaluator::new(&kind.group, &kind.plural) {
            self.monitor.change(|monitor| monitor.remove(&evaluator));
        }
    }

    fn on_settled(&self) {
        if !self.monitor.change(QuotaMonitor::mark_complete) {
            for quota in self.quotas.list() {
                self.queue.add(Key::of(&quota.meta), Priority::NORMAL);
            }
        }
    }
}

/// Adds a kind with its cache to the monitor, and subscribes to the cache's events.
struct Attach {
    replenisher: Replenisher,
    evaluator: Evaluator,
}

impl WithCache for Attach {
    type Out = BoxFuture<'static, ()>;

    fn with<V: View>(self, cache: Cache<V>) -> BoxFuture<'static, ()> {
        let Self { replenisher, evaluator } = self;
        let evaluator = Arc::new(evaluator);
        replenisher.monitor.change(|monitor| monitor.add(&evaluator, cache.clone()));
        let event_replenisher = replenisher.clone();
        let event_evaluator = evaluator.clone();
        cache.subscribe(move |event| {
            let may_decrease = match event {
                CacheEvent::Added { .. } => false,
                CacheEvent::Updated { old, new } => {
                    may_decrease_usage(&**old, &**new, event_replenisher.clock.now())
                }
                CacheEvent::Deleted(_) => true,
            };
            if may_decrease {
                let namespace = &event.object().meta().namespace;
                event_replenisher.enqueue(&event_evaluator, namespace, Priority::NORMAL);
            }
        });
        Box::pin(async move {
            cache.synced().await;
            replenisher.enqueue(&evaluator, "", Priority::LOW);
        })
    }
}
