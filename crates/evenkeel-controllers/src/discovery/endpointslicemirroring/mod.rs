//! EndpointSlice mirroring controller: copies the Endpoints of Services without a selector to slices. Upstream:
//! `pkg/controller/endpointslicemirroring`.

mod metrics;
mod options;
mod plan;
#[cfg(test)]
mod tests;

pub use options::Options;

use super::{OwnWrites, endpoints::MAX_RETRIES, slice_index::SlicesByService};
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{
    time::Timestamp,
    views::{EndpointSlice, Endpoints, Service},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    plan::{Key, Outcomes, Pass, PassHandler, Plan, Planned, Planner},
    queue::{Backoff, Bucket},
};
use metrics::Metrics;
use plan::{Decision, MANAGED_BY, Observed};
use std::{sync::Arc, time::Duration};

/// Descriptor of the EndpointSlice mirroring controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "endpointslice-mirroring-controller",
    aliases: &["endpointslicemirroring"],
    queue: "endpoint_slice_mirroring",
    client: "endpointslicemirroring-controller",
    start,
    ..Descriptor::DEFAULTS
};

/// Backoff of keys whose reconciliation failed. Upstream: `defaultSyncBackOff`, `maxSyncBackOff`.
const BACKOFF: Backoff = Backoff {
    base_delay: Duration::from_secs(1),
    max_delay: Duration::from_secs(100),
    // The token bucket of upstream's default rate limiter also limits all keys together.
    bucket: Some(Bucket::DEFAULT),
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let options = context.options.endpointslicemirroring;
    let caches = &context.env.caches;
    let endpoints = caches.of::<Endpoints>();
    let services = caches.of::<Service>();
    let slices = caches.of::<EndpointSlice>();
    let shared = Arc::new(Shared {
        services: services.clone(),
        slices: SlicesByService::of(&slices, MANAGED_BY),
        own_writes: OwnWrites::default(),
    });
    let planner = Mirror {
        endpoints: endpoints.clone(),
        services: services.clone(),
        slices: shared.slices.clone(),
        max_addresses_per_subset: options.max_endpoints_per_subset,
    };
    let handler =
        PassRecorder { shared: Arc::clone(&shared), metrics: Metrics::new(&context.registry) };
    let state_for_endpoints = Arc::clone(&shared);
    let state_for_slices = shared;
    let builder = context
        .builder_watching(&DESCRIPTOR, &endpoints, move |event, enqueue| {
            if state_for_endpoints.needs_reconciliation(event) {
                enqueue.add(Key::of(&event.object().meta));
            }
        })
        .event_source("endpoint-slice-mirroring-controller")
        .workers(options.concurrent_syncs)
        .max_retries(MAX_RETRIES)
        .backoff(BACKOFF)
        .watches(&services, |event, enqueue| {
            if starts_or_ends_mirroring(event) {
                enqueue.add(Key::of(&event.object().meta));
            }
        })
        .watches(&slices, move |event, enqueue| {
            let Shared { slices, own_writes, .. } = &*state_for_slices;
            for key in slices.affected_services(event, own_writes) {
                enqueue.add_within(key, options.batch_period);
            }
        });
    context.run(builder.planned_with(planner, handler));
    Ok(Started::Yes)
}

/// Returns whether a Service's event starts or ends mirroring, because a Service without a selector appears or
/// disappears.
fn starts_or_ends_mirroring(event: &CacheEvent<Service>) -> bool {
    let lacks_selector = |service: &Service| service.spec.selector.is_empty();
    match event {
        CacheEvent::Added { object, .. } => lacks_selector(object),
        CacheEvent::Updated { old, new } => lacks_selector(old) != lacks_selector(new),
        CacheEvent::Deleted(service) => lacks_selector(service),
    }
}

/// State that event handlers and reconciliations share.
struct Shared {
    services: Cache<Service>,
    /// Slices that this controller manages.
    slices: SlicesByService,
    /// Recent writes of this controller, whose events need no reconciliation.
    own_writes: OwnWrites,
}

impl Shared {
    /// Returns whether an event of Endpoints needs a reconciliation. Most Endpoints belong to a Service with a
    /// selector, and need one only while a slice mirrors them.
    fn needs_reconciliation(&self, event: &CacheEvent<Endpoints>) -> bool {
        let endpoints = event.object();
        let may_be_mirrored = match event {
            CacheEvent::Updated { old, new } => {
                plan::may_be_mirrored(old) || plan::may_be_mirrored(new)
            }
            _ => plan::may_be_mirrored(endpoints),
        };
        if !may_be_mirrored {
            return false;
        }
        let key = Key::of(&endpoints.meta);
        let service = self.services.get(&key.namespace, &key.name);
        let has_selector = service.is_some_and(|service| !service.spec.selector.is_empty());
        !has_selector || !self.slices.get(&key).is_empty()
    }
}

/// Decides the EndpointSlices that mirror an Endpoints object.
struct Mirror {
    endpoints: Cache<Endpoints>,
    services: Cache<Service>,
    slices: SlicesByService,
    max_addresses_per_subset: usize,
}

/// Decision of the reconciliation in progress, for [`PassRecorder`]. `None` between reconciliations.
type Memory = Option<Arc<Decision>>;

/// Records the writes of each plan before they are sent, so that the event handler recognizes their events. Updates the
/// metrics after each reconciliation.
struct PassRecorder {
    shared: Arc<Shared>,
    metrics: Metrics,
}

impl PassHandler<Mirror> for PassRecorder {
    fn on_planned(&self, observed: &Observed, planned: Planned<'_, Memory>) {
        let Some(decision) = planned.memory else { return };
        if decision.is_mirrored() {
            self.shared.own_writes.record(&observed.key, &decision.writes.hashes);
        } else {
            self.shared.own_writes.forget(&observed.key);
        }
    }

    fn on_passed(&self, observed: &Observed, pass: &Pass<'_, Memory>) {
        if let Some(decision) = pass.memory {
            self.metrics.record_pass(&observed.key, decision, pass.outcomes, pass.took);
        }
    }
}

impl Planner for Mirror {
    type Observed = Observed;
    type Memory = Memory;

    fn observe(&self, key: &Key, _: &Memory) -> Option<Observed> {
        Some(Observed {
            key: key.clone(),
            endpoints: self.endpoints.get(&key.namespace, &key.name),
            service: self.services.get(&key.namespace, &key.name),
            slices: self.slices.get(key),
            max_addresses_per_subset: self.max_addresses_per_subset,
        })
    }

    fn plan(&self, observed: &Observed, _: &Memory, _: Timestamp) -> (Plan, Memory) {
        let decision = plan::decide(observed);
        (decision.plan(), Some(Arc::new(decision)))
    }

    fn remember(&self, _: &Observed, _: &Memory, _: &Outcomes, _: Timestamp) -> Option<Memory> {
        // Forgets the decision, because no later reconciliation needs it.
        Some(None)
    }
}
