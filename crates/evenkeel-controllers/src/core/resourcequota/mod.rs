//! Counts what namespaces use of what their quotas allow.
//!
//! The API server charges quotas as objects are made; this controller counts anew what there is when objects go, when a
//! quota changes, and every so often. Upstream: `pkg/controller/resourcequota`.

mod contents;
mod plan;
mod replenish;
#[cfg(test)]
mod tests;

use crate::{
    descriptor::{ControllerContext, Descriptor, StartError},
    options::Periodic,
};
use contents::Contents;
use evenkeel_api::{quota::Usage, time::Timestamp, views::ResourceQuota};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::Enqueue,
    introspect::Description,
    plan::{Key, Plan, Planner},
    queue::Priority,
};
use plan::Observed;
use replenish::Replenish;
use std::sync::Arc;

/// Quotas without figures come before others: nothing can be made in their namespaces.
const FIRST: Priority = Priority(100);

/// How many quotas are counted at the same time, and how often all are counted anew.
pub type Options = Periodic<5>;

/// The flags that say so.
pub(crate) const FLAGS: [&str; 2] =
    ["concurrent-resource-quota-syncs", "resource-quota-sync-period"];

/// The controller of quotas.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "resourcequota-controller",
    aliases: &["resourcequota"],
    queue: "resourcequota_primary",
    client: "resourcequota-controller",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let options = context.options.resourcequota;
    let quotas = context.env.caches.of::<ResourceQuota>();
    quotas.resync_every(options.sync_period);
    let contents = Contents::new(&context.env.caches);
    let of_event = contents.clone();
    let controller = context
        .builder_watching(&DESCRIPTOR, &quotas, move |event, enqueue| {
            on_quota(&of_event, event, enqueue);
        })
        .workers(options.concurrent_syncs)
        .planned(Quotas { quotas: quotas.clone(), contents: contents.clone() });
    let replenish = Replenish {
        caches: context.env.caches.clone(),
        quotas,
        contents,
        queue: controller.queue(),
        clock: context.env.clock.clone(),
    };
    context.monitors.follow(&context.tasks, replenish);
    context.run(controller);
    Ok(())
}

/// What is used is written by this controller and by the API server; neither need be looked at again. A resync is.
fn on_quota(contents: &Contents, event: &CacheEvent<ResourceQuota>, enqueue: &Enqueue) {
    let quota = event.object();
    if let CacheEvent::Updated { old, new } = event
        && old.meta.resource_version != new.meta.resource_version
        && old.spec.hard == new.spec.hard
    {
        return;
    }
    let key = Key::of(&quota.meta);
    if lacks_figures(contents, quota) {
        enqueue.add_with(key, FIRST);
    } else {
        enqueue.add(key);
    }
}

fn lacks_figures(contents: &Contents, quota: &ResourceQuota) -> bool {
    let status = &quota.status;
    let mut unused = status.hard.iter().filter(|(name, _)| !status.used.contains(name));
    Usage::from(&quota.spec.hard) != Usage::from(&status.hard)
        || unused.any(|(name, _)| contents.counts(name))
}

struct Quotas {
    quotas: Cache<ResourceQuota>,
    contents: Contents,
}

impl Planner for Quotas {
    type Seen = Observed;

    fn observe(&self, key: &Key) -> Option<Observed> {
        let quota: Arc<ResourceQuota> = self.quotas.get(&key.namespace, &key.name)?;
        self.contents.of(quota)
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        plan::describe(observed)
    }

    fn plan(&self, observed: &Observed, now: Timestamp) -> Plan {
        plan::plan(observed, now)
    }
}
