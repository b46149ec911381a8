//! Endpoints controller: maintains an Endpoints object for each Service with a selector. Upstream:
//! `pkg/controller/endpoint`.

mod capacity;
mod options;
mod plan;
#[cfg(test)]
mod tests;

pub use options::Options;
pub(super) use plan::is_leader_election_lock;

use super::{
    selected::{SelectorIndex, selects_pods},
    trigger::{TriggerTimeTracker, TriggerTimes},
};
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{
    time::Timestamp,
    views::{Endpoints, Pod, Service},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    introspect::Description,
    plan::{Key, Outcomes, Plan, Planner},
};
use plan::Observed;
use std::sync::Arc;

/// Descriptor of the Endpoints controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "endpoints-controller",
    aliases: &["endpoint"],
    queue: "endpoint",
    client: "endpoint-controller",
    start,
    ..Descriptor::DEFAULTS
};

/// Maximum number of retries for a Service until its next event. Upstream: `maxRetries`.
pub(super) const MAX_RETRIES: u32 = 15;

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let options = context.options.endpoints;
    let caches = &context.env.caches;
    let pods = caches.of::<Pod>();
    let services = caches.of::<Service>();
    let endpoints = caches.of::<Endpoints>();
    let selected = SelectorIndex::of(&pods, &services);
    let planner = Controller {
        services: services.clone(),
        endpoints: endpoints.clone(),
        selected: selected.clone(),
    };
    let existing_services = services.clone();
    let builder = context
        .builder(&DESCRIPTOR, &services)
        .workers(options.concurrent_syncs)
        .max_retries(MAX_RETRIES)
        .watches(&pods, move |event, enqueue| {
            for key in selected.affected_services(event) {
                enqueue.add_within(key, options.batch_period);
            }
        })
        .watches(&endpoints, move |event, enqueue| {
            if needs_reconciliation(event, &existing_services) {
                enqueue.add(Key::of(&event.object().meta));
            }
        });
    context.run(builder.planned(planner));
    Ok(Started::Yes)
}

/// Returns whether an event of Endpoints enqueues their Service. This is the case if the Endpoints were deleted,
/// existed when the controller started, or were created by this controller although their Service no longer exists.
/// Upstream: `onEndpointsDelete`, `checkLeftoverEndpoints`.
fn needs_reconciliation(event: &CacheEvent<Endpoints>, services: &Cache<Service>) -> bool {
    match event {
        CacheEvent::Deleted(_) => true,
        CacheEvent::Added { object, initial: true } => !plan::is_leader_election_lock(object),
        CacheEvent::Added { object, .. } => {
            plan::is_managed(object)
                && services.get(&object.meta.namespace, &object.meta.name).is_none()
        }
        CacheEvent::Updated { .. } => false,
    }
}

/// Decides the Endpoints of a Service.
struct Controller {
    services: Cache<Service>,
    endpoints: Cache<Endpoints>,
    /// Pods by the Services that select them.
    selected: SelectorIndex,
}

impl Planner for Controller {
    type Observed = Observed;
    type Memory = TriggerTimeTracker;

    fn observe(&self, key: &Key, memory: &TriggerTimeTracker) -> Option<Observed> {
        let service = self.services.get(&key.namespace, &key.name);
        let endpoints = self.endpoints.get(&key.namespace, &key.name);
        let pods =
            service.as_ref().map(|service| self.selected.pods_of(service)).unwrap_or_default();
        let with_selector = service.as_ref().filter(|service| selects_pods(service));
        let trigger_times = with_selector.map(|service| Arc::new(TriggerTimes::of(service, &pods)));
        let previous_trigger_times = memory.last();
        Some(Observed {
            key: key.clone(),
            service,
            pods,
            endpoints,
            trigger_times,
            previous_trigger_times,
        })
    }

    fn plan(
        &self,
        observed: &Observed,
        memory: &TriggerTimeTracker,
        _: Timestamp,
    ) -> (Plan, TriggerTimeTracker) {
        let tracker = observed.trigger_times.as_ref().map(|times| memory.begin(times));
        (plan::plan(observed), tracker.unwrap_or_default())
    }

    fn remember(
        &self,
        _: &Observed,
        memory: &TriggerTimeTracker,
        outcomes: &Outcomes,
        _: Timestamp,
    ) -> Option<TriggerTimeTracker> {
        Some(memory.end(outcomes.first_error().is_none()))
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        plan::describe(observed)
    }
}
