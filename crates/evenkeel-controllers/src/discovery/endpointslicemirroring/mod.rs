//! EndpointSlice mirroring controller: mirrors Endpoints of Services without a selector into slices. Upstream:
//! `pkg/controller/endpointslicemirroring`.

mod metrics;
mod options;
mod plan;
#[cfg(test)]
mod tests;

pub use options::Options;

use super::{
    endpoints::MAX_RETRIES,
    slice::{ByService, OwnWrites},
};
use crate::descriptor::{ControllerContext, Descriptor, StartError};
use evenkeel_api::{
    time::Timestamp,
    views::{EndpointSlice, Endpoints, Service},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    plan::{Key, Outcomes, Plan, Planner},
    queue::Backoff,
};
use metrics::Metrics;
use plan::{Decision, MANAGER, Observed};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// The controller of mirrored slices.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "endpointslice-mirroring-controller",
    aliases: &["endpointslicemirroring"],
    queue: "endpoint_slice_mirroring",
    client: "endpointslicemirroring-controller",
    start,
    ..Descriptor::ORDINARY
};

/// Backoff of failed reconciliations. Upstream: `defaultSyncBackOff`, `maxSyncBackOff`.
const BACKOFF: Backoff = Backoff {
    base_delay: Duration::from_secs(1),
    max_delay: Duration::from_secs(100),
    bucket: true,
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let options = context.options.endpointslicemirroring;
    let caches = &context.env.caches;
    let (endpoints, services) = (caches.of::<Endpoints>(), caches.of::<Service>());
    let slices = caches.of::<EndpointSlice>();
    let shared = Arc::new(Shared {
        services: services.clone(),
        slices: ByService::of(&slices, MANAGER),
        own: OwnWrites::default(),
    });
    let planner = Mirror {
        endpoints: endpoints.clone(),
        shared: Arc::clone(&shared),
        passing: Mutex::default(),
        metrics: Metrics::new(&context.registry),
        max: options.max_endpoints,
    };
    let (of_endpoints, of_slices) = (Arc::clone(&shared), shared);
    let builder = context
        .builder_watching(&DESCRIPTOR, &endpoints, move |event, enqueue| {
            if of_endpoints.is_looked_at(event) {
                enqueue.add(Key::of(&event.object().meta));
            }
        })
        .event_source("endpoint-slice-mirroring-controller")
        .workers(options.concurrent_syncs)
        .max_retries(MAX_RETRIES)
        .backoff(BACKOFF)
        .watches(&services, |event, enqueue| {
            if changes_hands(event) {
                enqueue.add(Key::of(&event.object().meta));
            }
        })
        .watches(&slices, move |event, enqueue| {
            for key in of_slices.slices.concerned(event, &of_slices.own) {
                enqueue.add_within(key, options.batch_period);
            }
        });
    context.run(builder.planned(planner));
    Ok(())
}

/// Whether a Service's event starts or ends mirroring: the Service or its selector appears or disappears.
fn changes_hands(event: &CacheEvent<Service>) -> bool {
    let has_none = |service: &Service| service.spec.selector.is_empty();
    match event {
        CacheEvent::Added { object, .. } => has_none(object),
        CacheEvent::Updated { old, new } => has_none(old) != has_none(new),
        CacheEvent::Deleted(service) => has_none(service),
    }
}

/// State shared by event handlers and reconciliations.
struct Shared {
    services: Cache<Service>,
    slices: ByService,
    own: OwnWrites,
}

impl Shared {
    /// Whether an event of Endpoints needs a reconciliation. Most Endpoints belong to a Service with a selector, and
    /// need none while no slice mirrors them.
    fn is_looked_at(&self, event: &CacheEvent<Endpoints>) -> bool {
        let endpoints = event.object();
        let mirrored = match event {
            CacheEvent::Updated { old, new } => {
                plan::may_be_mirrored(old) || plan::may_be_mirrored(new)
            }
            _ => plan::may_be_mirrored(endpoints),
        };
        let key = Key::of(&endpoints.meta);
        let service = || self.services.get(&key.namespace, &key.name);
        let selects = || service().is_some_and(|service| !service.spec.selector.is_empty());
        mirrored && !(selects() && self.slices.get(&key).is_empty())
    }
}

struct Mirror {
    endpoints: Cache<Endpoints>,
    shared: Arc<Shared>,
    /// Decisions of running reconciliations, and their start times.
    passing: Mutex<HashMap<Key, (Decision, Instant)>>,
    metrics: Metrics,
    max: usize,
}

impl Mirror {
    fn passing(&self) -> MutexGuard<'_, HashMap<Key, (Decision, Instant)>> {
        self.passing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Planner for Mirror {
    type Seen = Observed;

    fn observe(&self, key: &Key) -> Option<Observed> {
        let shared = &self.shared;
        Some(Observed {
            key: key.clone(),
            endpoints: self.endpoints.get(&key.namespace, &key.name),
            service: shared.services.get(&key.namespace, &key.name),
            slices: shared.slices.get(key),
            max: self.max,
        })
    }

    fn plan(&self, observed: &Observed, _: Timestamp) -> Plan {
        let start = Instant::now();
        let decision = plan::decide(observed);
        match decision.counts {
            Some(_) => self.shared.own.expect(&observed.key, &decision.writes.marks),
            None => self.shared.own.forget(&observed.key),
        }
        let plan = decision.plan();
        self.passing().insert(observed.key.clone(), (decision, start));
        plan
    }

    fn preview(&self, observed: &Observed, _: Timestamp) -> Plan {
        plan::decide(observed).plan()
    }

    fn status(&self, observed: &Observed, outcomes: &Outcomes, _: Timestamp) -> Plan {
        let passed = self.passing().remove(&observed.key);
        if let Some((decision, start)) = passed {
            self.metrics.passed(&observed.key, &decision, outcomes, start.elapsed());
        }
        Plan::nothing()
    }
}
