//! EndpointSlice controller: creates slices of at most 100 endpoints (by default) for each Service with a selector and
//! each IP family. Upstream: `pkg/controller/endpointslice` and `staging/src/k8s.io/endpointslice`.

mod desired;
mod hints;
mod metrics;
mod options;
pub(super) mod packing;
mod plan;
#[cfg(test)]
mod tests;
mod topology;
mod zones;

pub use options::Options;

use super::{
    OwnWrites,
    endpoints::MAX_RETRIES,
    pod,
    selected::{Selected, selects_pods},
    slice_index::ByService,
    trigger::{Times, TriggerTimes},
};
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError};
use evenkeel_api::{
    time::Timestamp,
    views::{EndpointSlice, Node, Pod, Service},
};
use evenkeel_component_helpers::scheduling::corev1;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    introspect::Description,
    plan::{Key, Outcomes, Pass, PassHandler, Plan, Planned, Planner},
    queue::Backoff,
};
use hints::{Hinted, Mode};
use metrics::Metrics;
use plan::{Decision, MANAGER, Observed};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use zones::Zones;

/// Node label with the zone. Upstream: `LabelTopologyZone`.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Descriptor of the EndpointSlice controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "endpointslice-controller",
    aliases: &["endpointslice"],
    queue: "endpoint_slice",
    client: "endpointslice-controller",
    start,
    ..Descriptor::ORDINARY
};

/// Backoff of failed passes. Upstream: `defaultSyncBackOff`, `maxSyncBackOff`.
const BACKOFF: Backoff = Backoff {
    base_delay: Duration::from_secs(1),
    max_delay: Duration::from_secs(1000),
    bucket: true,
};

/// Time within which other clients' changes of slices lead to one pass. Upstream: `endpointSliceChangeMinSyncDelay`.
const SLICE_CHANGE_DELAY: Duration = Duration::from_secs(1);

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let options = context.options.endpointslice;
    let caches = &context.env.caches;
    let (pods, services, nodes) = (caches.of::<Pod>(), caches.of::<Service>(), caches.of::<Node>());
    let slices = caches.of::<EndpointSlice>();
    let shared = Arc::new(Shared {
        selected: Selected::of(&pods, &services),
        slices: ByService::of(&slices, MANAGER),
        nodes: nodes.clone(),
        own: OwnWrites::default(),
        zones: Mutex::default(),
        hinted: Mutex::default(),
    });
    let planner = Controller {
        services: services.clone(),
        shared: Arc::clone(&shared),
        max: options.max_endpoints_per_slice,
    };
    let handler = Passes { shared: Arc::clone(&shared), metrics: Metrics::new(&context.registry) };
    let on_node = pods.index("node", corev1::node_key);
    let (for_pods, for_slices, for_nodes) = (Arc::clone(&shared), Arc::clone(&shared), shared);
    let builder = context
        .builder(&DESCRIPTOR, &services)
        .event_source("endpoint-slice-controller")
        .workers(options.concurrent_syncs)
        .max_retries(MAX_RETRIES)
        .backoff(BACKOFF)
        .watches(&pods, move |event, enqueue| {
            for key in for_pods.selected.concerned(event) {
                enqueue.add_within(key, options.batch_period);
            }
        })
        .watches(&slices, move |event, enqueue| {
            for key in for_slices.slices.concerned(event, &for_slices.own) {
                enqueue.add_after(key, options.batch_period.max(SLICE_CHANGE_DELAY));
            }
        })
        .watches(&nodes, move |event, enqueue| {
            for_nodes.overloaded_after(event).into_iter().for_each(|key| enqueue.add(key));
            if affects_endpoints(event) {
                for pod in on_node
                    .get(&event.object().meta.name)
                    .iter()
                    .filter(|pod| pod::belongs_in_endpoints(pod))
                {
                    for_nodes
                        .selected
                        .services_of(pod)
                        .into_iter()
                        .for_each(|key| enqueue.add(key));
                }
            }
        });
    context.run(builder.planned_with(planner, handler));
    Ok(())
}

/// Reports whether a node's event may change endpoints: their zone, or whether they exist. Endpoints whose node did
/// not exist were omitted.
fn affects_endpoints(event: &CacheEvent<Node>) -> bool {
    match event {
        CacheEvent::Added { initial, .. } => !initial,
        CacheEvent::Updated { old, new } => old.meta.labels.get(ZONE) != new.meta.labels.get(ZONE),
        CacheEvent::Deleted(_) => false,
    }
}

/// State that event handlers and passes share.
struct Shared {
    selected: Selected,
    slices: ByService,
    nodes: Cache<Node>,
    own: OwnWrites,
    zones: Mutex<Zones>,
    /// Services whose hints follow the annotation.
    hinted: Mutex<HashMap<Key, Hinted>>,
}

impl Shared {
    /// Records a node's event. Returns the Services that now have too few endpoints in a zone. Upstream:
    /// `checkNodeTopologyDistribution`.
    fn overloaded_after(&self, event: &CacheEvent<Node>) -> Vec<Key> {
        let mut zones = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = zones.record(event);
        let hinted = self.hinted();
        if !changed || hinted.is_empty() {
            return Vec::new();
        }
        let ratios = zones.ratios();
        let overloaded =
            hinted.iter().filter(|(_, hinted)| hinted.is_overloaded(ratios.as_deref()));
        let mut keys: Vec<Key> = overloaded.map(|(key, _)| key.clone()).collect();
        keys.sort_unstable();
        keys
    }

    fn hinted(&self) -> MutexGuard<'_, HashMap<Key, Hinted>> {
        self.hinted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, key: &Key, hinted: Hinted) {
        if hinted == Hinted::default() {
            self.hinted().remove(key);
        } else {
            self.hinted().insert(key.clone(), hinted);
        }
    }
}

struct Controller {
    services: Cache<Service>,
    shared: Arc<Shared>,
    max: usize,
}

/// State of a Service that is kept between passes.
#[derive(Debug, Clone, Default, PartialEq)]
struct Memory {
    times: TriggerTimes,
    hinted: Hinted,
    /// Decision of the current pass.
    decision: Option<Arc<Decision>>,
}

/// Pass handler. Records the writes of a plan, so that their events are recognized, and the topology hints of
/// Services. Updates the metrics after each pass.
struct Passes {
    shared: Arc<Shared>,
    metrics: Metrics,
}

impl PassHandler<Controller> for Passes {
    fn on_planned(&self, observed: &Option<Observed>, planned: Planned<'_, Memory>) {
        if let (Some(observed), Some(decision)) = (observed, &planned.memory.decision) {
            self.shared.own.expect(&observed.key, &decision.writes.marks);
            self.shared.remember(&observed.key, decision.hinted.clone());
        }
    }

    fn on_passed(&self, observed: &Option<Observed>, pass: &Pass<'_, Memory>) {
        if let (Some(observed), Some(decision)) = (observed, &pass.memory.decision) {
            self.metrics.passed(observed, decision, pass.outcomes);
        }
    }

    /// Removes the records of a deleted Service. The garbage collector deletes its slices.
    fn on_gone(&self, key: &Key) {
        self.shared.own.forget(key);
        self.shared.remember(key, Hinted::default());
        self.metrics.gone(key);
    }
}

impl Controller {
    fn observe_service(&self, key: &Key, service: Arc<Service>, memory: &Memory) -> Observed {
        let (shared, pods) = (&self.shared, self.shared.selected.pods(&service));
        let times = Arc::new(Times::of(&service, &pods));
        let node = |pod: &Pod| {
            let name = Some(&pod.spec.node_name).filter(|name| !name.is_empty())?;
            shared.nodes.get("", name)
        };
        let mut slices = shared.slices.get(key);
        slices.retain(|slice| !slice.meta.deleting());
        let has_topology_hints = hints::mode(&service) == Mode::Topology;
        let ratios = || shared.zones.lock().unwrap_or_else(PoisonError::into_inner).ratios();
        Observed {
            key: key.clone(),
            pods: pods.into_iter().map(|pod| (Arc::clone(&pod), node(&pod))).collect(),
            slices,
            times,
            before: memory.times.last(),
            ratios: if has_topology_hints { ratios() } else { None },
            hinted: memory.hinted.clone(),
            max: self.max,
            service,
        }
    }
}

impl Planner for Controller {
    /// Observed state; `None` for a Service whose slices this controller does not manage.
    type Observed = Option<Observed>;
    type Memory = Memory;

    fn observe(&self, key: &Key, memory: &Memory) -> Option<Option<Observed>> {
        let service = self.services.get(&key.namespace, &key.name)?;
        Some(selects_pods(&service).then(|| self.observe_service(key, service, memory)))
    }

    fn plan(&self, observed: &Option<Observed>, memory: &Memory, _: Timestamp) -> (Plan, Memory) {
        let Some(observed) = observed else {
            return (Plan::nothing(), Memory { decision: None, ..memory.clone() });
        };
        let decision = plan::decide(observed);
        let (times, hinted) = (memory.times.begin(&observed.times), decision.hinted.clone());
        (decision.plan(), Memory { times, hinted, decision: Some(Arc::new(decision)) })
    }

    fn remember(
        &self,
        _: &Option<Observed>,
        memory: &Memory,
        outcomes: &Outcomes,
        _: Timestamp,
    ) -> Option<Memory> {
        let times = memory.times.end(outcomes.first_error().is_none());
        let hinted = memory.hinted.clone();
        memory.decision.is_some().then_some(Memory { times, hinted, decision: None })
    }

    fn describe(&self, observed: &Option<Observed>, _: Timestamp) -> Description {
        observed.as_ref().map(plan::describe).unwrap_or_default()
    }
}
