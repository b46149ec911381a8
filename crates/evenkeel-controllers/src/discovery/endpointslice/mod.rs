//! EndpointSlice controller: slices of at most 100 endpoints for each Service with a selector and each IP family.
//! Upstream: `pkg/controller/endpointslice` and `staging/src/k8s.io/endpointslice`.

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
    endpoints::MAX_RETRIES,
    pod,
    selected::{Selected, selects_pods},
    slice::{ByService, OwnWrites},
    trigger::{Known, Times},
};
use crate::descriptor::{ControllerContext, Descriptor, StartError};
use evenkeel_api::{
    placement,
    time::Timestamp,
    views::{EndpointSlice, Node, Pod, Service},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    introspect::Description,
    plan::{Key, Outcomes, Plan, Planner},
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

/// Label with a node's zone. Upstream: `LabelTopologyZone`.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The controller of EndpointSlices.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "endpointslice-controller",
    aliases: &["endpointslice"],
    queue: "endpoint_slice",
    client: "endpointslice-controller",
    start,
    ..Descriptor::ORDINARY
};

/// Backoff of failed reconciliations. Upstream: `defaultSyncBackOff`, `maxSyncBackOff`.
const BACKOFF: Backoff = Backoff {
    base_delay: Duration::from_secs(1),
    max_delay: Duration::from_secs(1000),
    bucket: true,
};

/// Changes of slices by other clients within this time lead to one reconciliation. Upstream:
/// `endpointSliceChangeMinSyncDelay`.
const SLICES_SETTLE: Duration = Duration::from_secs(1);

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
        known: Known::default(),
        passing: Mutex::default(),
        metrics: Metrics::new(&context.registry),
        max: options.max_endpoints,
    };
    let on_node = pods.index("node", placement::node_key);
    let (of_pods, of_slices, of_nodes) = (Arc::clone(&shared), Arc::clone(&shared), shared);
    let builder = context
        .builder(&DESCRIPTOR, &services)
        .event_source("endpoint-slice-controller")
        .workers(options.concurrent_syncs)
        .max_retries(MAX_RETRIES)
        .backoff(BACKOFF)
        .watches(&pods, move |event, enqueue| {
            for key in of_pods.selected.concerned(event) {
                enqueue.add_within(key, options.batch_period);
            }
        })
        .watches(&slices, move |event, enqueue| {
            for key in of_slices.slices.concerned(event, &of_slices.own) {
                enqueue.add_after(key, options.batch_period.max(SLICES_SETTLE));
            }
        })
        .watches(&nodes, move |event, enqueue| {
            of_nodes.see_node(event).into_iter().for_each(|key| enqueue.add(key));
            if is_placed_anew(event) {
                for pod in on_node
                    .get(&event.object().meta.name)
                    .iter()
                    .filter(|pod| pod::belongs_in_endpoints(pod))
                {
                    of_nodes.selected.services_of(pod).into_iter().for_each(|key| enqueue.add(key));
                }
            }
        });
    context.run(builder.planned(planner));
    Ok(())
}

/// Whether a node's event may change the zone of endpoints, or restore endpoints that were omitted without the node.
fn is_placed_anew(event: &CacheEvent<Node>) -> bool {
    match event {
        CacheEvent::Added { initial, .. } => !initial,
        CacheEvent::Updated { old, new } => old.meta.labels.get(ZONE) != new.meta.labels.get(ZONE),
        CacheEvent::Deleted(_) => false,
    }
}

/// State shared by event handlers and reconciliations.
struct Shared {
    selected: Selected,
    slices: ByService,
    nodes: Cache<Node>,
    own: OwnWrites,
    zones: Mutex<Zones>,
    /// Services with hints by annotation.
    hinted: Mutex<HashMap<Key, Hinted>>,
}

impl Shared {
    /// Returns the Services whose hints overload a zone after a node's event. Upstream:
    /// `checkNodeTopologyDistribution`.
    fn see_node(&self, event: &CacheEvent<Node>) -> Vec<Key> {
        let mut zones = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = zones.see(event);
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
    known: Known,
    /// Decisions of running reconciliations.
    passing: Mutex<HashMap<Key, Decision>>,
    metrics: Metrics,
    max: usize,
}

/// A key and its observed state; `None` if the Service is deleted or has no slices of this controller.
struct Looked {
    key: Key,
    exists: bool,
    observed: Option<Observed>,
}

impl Controller {
    fn see(&self, key: &Key, service: Arc<Service>) -> Observed {
        let (shared, pods) = (&self.shared, self.shared.selected.pods(&service));
        let times = Arc::new(Times::of(&service, &pods));
        let node = |pod: &Pod| {
            let name = Some(&pod.spec.node_name).filter(|name| !name.is_empty())?;
            shared.nodes.get("", name)
        };
        let mut slices = shared.slices.get(key);
        slices.retain(|slice| !slice.meta.deleting());
        let asks = hints::mode(&service) == Mode::Topology;
        let ratios = || shared.zones.lock().unwrap_or_else(PoisonError::into_inner).ratios();
        Observed {
            key: key.clone(),
            pods: pods.into_iter().map(|pod| (Arc::clone(&pod), node(&pod))).collect(),
            slices,
            times,
            before: self.known.get(key),
            ratios: if asks { ratios() } else { None },
            hinted: shared.hinted().get(key).cloned().unwrap_or_default(),
            max: self.max,
            service,
        }
    }

    fn passing(&self) -> MutexGuard<'_, HashMap<Key, Decision>> {
        self.passing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Planner for Controller {
    type Seen = Looked;

    fn observe(&self, key: &Key) -> Option<Looked> {
        let service = self.services.get(&key.namespace, &key.name);
        let exists = service.is_some();
        let observed =
            service.filter(|service| selects_pods(service)).map(|service| self.see(key, service));
        Some(Looked { key: key.clone(), exists, observed })
    }

    fn plan(&self, looked: &Looked, _: Timestamp) -> Plan {
        let Some(observed) = &looked.observed else {
            return Plan::nothing();
        };
        let decision = plan::decide(observed);
        self.shared.own.expect(&looked.key, &decision.writes.marks);
        self.shared.remember(&looked.key, decision.hinted.clone());
        self.known.begin(&looked.key, &observed.times);
        let plan = decision.plan();
        self.passing().insert(looked.key.clone(), decision);
        plan
    }

    fn preview(&self, looked: &Looked, _: Timestamp) -> Plan {
        looked.observed.as_ref().map(|observed| plan::decide(observed).plan()).unwrap_or_default()
    }

    fn status(&self, looked: &Looked, outcomes: &Outcomes, _: Timestamp) -> Plan {
        let passed = self.passing().remove(&looked.key);
        match (&looked.observed, passed) {
            (Some(observed), Some(decision)) => {
                self.known.end(&looked.key, outcomes.first_error().is_none());
                self.metrics.passed(observed, &decision, outcomes);
            }
            // The garbage collector deletes the slices of a deleted Service.
            (None, _) if !looked.exists => {
                self.known.forget(&looked.key);
                self.shared.own.forget(&looked.key);
                self.shared.remember(&looked.key, Hinted::default());
                self.metrics.gone(&looked.key);
            }
            _ => {}
        }
        Plan::nothing()
    }

    fn describe(&self, looked: &Looked, _: Timestamp) -> Description {
        looked.observed.as_ref().map(plan::describe).unwrap_or_default()
    }
}
