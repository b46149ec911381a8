//! Resource quota controller: computes `status.used` of quotas. Upstream: `pkg/controller/resourcequota`.
//!
//! The API server reserves quota when objects are created. This controller recalculates the usage when objects are deleted,
//! when a quota changes, and in periodic full resyncs.

mod monitor;
mod plan;
mod replenish;
#[cfg(test)]
mod tests;

use crate::{
    options::Periodic,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{time::Timestamp, views::ResourceQuota};
use evenkeel_component_helpers::quota::Usage;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::Enqueue,
    introspect::Description,
    plan::{Key, Plan, Planner},
    queue::Priority,
};
use monitor::QuotaMonitor;
use plan::Observed;
use replenish::Replenisher;
use std::sync::{Arc, PoisonError, RwLock};

/// Priority of quotas without a status. They come first, because nothing can be created in their namespaces.
/// Upstream: `missingUsageQueue`.
const MISSING_USAGE_PRIORITY: Priority = Priority(100);

/// Options of the controller: the number of quotas that are reconciled concurrently, by default 5, and the period of full
/// resyncs.
pub type Options = Periodic<5>;

/// Names of the flags with the number of workers and with the resync period.
pub(crate) const FLAGS: [&str; 2] =
    ["concurrent-resource-quota-syncs", "resource-quota-sync-period"];

/// The resource quota controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "resourcequota-controller",
    aliases: &["resourcequota"],
    queue: "resourcequota_primary",
    client: "resourcequota-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let options = context.options.resourcequota;
    let quotas = context.env.caches.of::<ResourceQuota>();
    quotas.resync_every(options.sync_period);
    let monitor = SharedQuotaMonitor::new(QuotaMonitor::new(&context.env.caches));
    let event_monitor = monitor.clone();
    let controller = context
        .builder_watching(&DESCRIPTOR, &quotas, move |event, enqueue| {
            enqueue_quota(&event_monitor, event, enqueue);
        })
        .workers(options.concurrent_syncs)
        .planned(Quotas { quotas: quotas.clone(), monitor: monitor.clone() });
    let replenish = Replenisher {
        caches: context.env.caches.clone(),
        quotas,
        monitor,
        queue: controller.queue(),
        clock: context.env.clock.clone(),
    };
    context.monitors.follow(&context.tasks, replenish);
    context.run(controller);
    Ok(Started::Yes)
}

/// Enqueues a quota, except after an update that does not change `spec.hard`. Most of these updates are writes of
/// `status.used` by this controller or the API server. A resync event has the same resource version twice, and enqueues
/// the quota.
fn enqueue_quota(
    monitor: &SharedQuotaMonitor,
    event: &CacheEvent<ResourceQuota>,
    enqueue: &Enqueue,
) {
    let quota = event.object();
    if let CacheEvent::Updated { old, new } = event
        && old.meta.resource_version != new.meta.resource_version
        && old.spec.hard == new.spec.hard
    {
        return;
    }
    let key = Key::of(&quota.meta);
    if lacks_usage(monitor, quota) {
        enqueue.add_with(key, MISSING_USAGE_PRIORITY);
    } else {
        enqueue.add(key);
    }
}

/// Returns whether the status lacks the current limits, or the usage of a resource that this controller counts.
fn lacks_usage(monitor: &SharedQuotaMonitor, quota: &ResourceQuota) -> bool {
    let status = &quota.status;
    let mut without_usage = status.hard.iter().filter(|(name, _)| !status.used.contains(name));
    Usage::from(&quota.spec.hard) != Usage::from(&status.hard)
        || without_usage.any(|(name, _)| monitor.read().is_counted(name))
}

/// Quota monitor that the planner, the event handlers and the watches share. Clones refer to the same monitor. `read` releases
/// the lock before it returns, because its callers lock caches.
#[derive(Clone)]
struct SharedQuotaMonitor(Arc<RwLock<Arc<QuotaMonitor>>>);

impl SharedQuotaMonitor {
    fn new(monitor: QuotaMonitor) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(monitor))))
    }

    /// Returns the current monitor without holding the lock.
    fn read(&self) -> Arc<QuotaMonitor> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the monitor under the write lock.
    fn change<T>(&self, change: impl FnOnce(&mut QuotaMonitor) -> T) -> T {
        change(Arc::make_mut(&mut self.0.write().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Decides the update of a quota's `status.used` and `status.hard`.
struct Quotas {
    quotas: Cache<ResourceQuota>,
    monitor: SharedQuotaMonitor,
}

impl Planner for Quotas {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let quota: Arc<ResourceQuota> = self.quotas.get(&key.namespace, &key.name)?;
        self.monitor.read().observe(quota)
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        plan::describe(observed)
    }

    fn plan(&self, observed: &Observed, (): &(), now: Timestamp) -> (Plan, ()) {
        (plan::plan(observed, now), ())
    }
}
