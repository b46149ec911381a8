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
    selected::{SelectorIndex, selects_pods},
    slice_index::SlicesByService,
    trigger::{TriggerTimeTracker, TriggerTimes},
};
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use desired::PlacedPod;
use evenkeel_api::{
    time::Timestamp,
    views::{EndpointSlice, Node, Pod, Service},
};
use evenkeel_component_helpers::scheduling::corev1;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    introspect::Description,
    plan::{Key, Outcomes, Pass, PassHandler, Plan, Planned, Planner},
    queue::{Backoff, Bucket},
};
use hints::{Mode, TopologyHints};
use metrics::Metrics;
use plan::{Decision, MANAGED_BY, Observed};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use zones::Zones;

/// Node label whose value is the node's zone. Upstream: `LabelTopologyZone`.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Descriptor of the EndpointSlice controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "endpointslice-controller",
    aliases: &["endpointslice"],
    queue: "endpoint_slice",
    client: "endpointslice-controller",
    start,
    ..Descriptor::DEFAULTS
};

/// Backoff of Services whose reconciliation failed. Upstream: `defaultSyncBackOff`, `maxSyncBackOff`.
const BACKOFF: Backoff = Backoff {
    base_delay: Duration::from_secs(1),
    max_delay: Duration::from_secs(1000),
    // The token bucket of upstream's default rate limiter also limits all keys together.
    bucket: Some(Bucket::DEFAULT),
};

/// Minimum delay from another client's change of a slice to the reconciliation. Changes within this time lead to a
/// single reconciliation. Upstream: `endpointSliceChangeMinSyncDelay`.
const SLICE_CHANGE_DELAY: Duration = Duration::from_secs(1);

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let options = context.options.endpointslice;
    let caches = &context.env.caches;
    let pods = caches.of::<Pod>();
    let services = caches.of::<Service>();
    let nodes = caches.of::<Node>();
    let slices = caches.of::<EndpointSlice>();
    let shared = Arc::new(Shared {
        selected: SelectorIndex::of(&pods, &services),
        slices: SlicesByService::of(&slices, MANAGED_BY),
        nodes: nodes.clone(),
        own_writes: OwnWrites::default(),
        zones: Mutex::default(),
        topology_hints: Mutex::default(),
    });
    let planner = Controller {
        services: services.clone(),
        shared: Arc::clone(&shared),
        max_endpoints_per_slice: options.max_endpoints_per_slice,
    };
    let handler =
        PassRecorder { shared: Arc::clone(&shared), metrics: Metrics::new(&context.registry) };
    let pods_by_node = pods.index("node", corev1::node_key);
    let state_for_pods = Arc::clone(&shared);
    let state_for_slices = Arc::clone(&shared);
    let state_for_nodes = shared;
    let builder = context
        .builder(&DESCRIPTOR, &services)
        .event_source("endpoint-slice-controller")
        .workers(options.concurrent_syncs)
        .max_retries(MAX_RETRIES)
        .backoff(BACKOFF)
        .watches(&pods, move |event, enqueue| {
            for key in state_for_pods.selected.affected_services(event) {
                enqueue.add_within(key, options.batch_period);
            }
        })
        .watches(&slices, move |event, enqueue| {
            let Shared { slices, own_writes, .. } = &*state_for_slices;
            for key in slices.affected_services(event, own_writes) {
                enqueue.add_after(key, options.batch_period.max(SLICE_CHANGE_DELAY));
            }
        })
        .watches(&nodes, move |event, enqueue| {
            for key in state_for_nodes.record_node_event(event) {
                enqueue.add(key);
            }
            if !affects_endpoints(event) {
                return;
            }
            let mut pods = pods_by_node.get(&event.object().meta.name);
            pods.retain(|pod| pod::belongs_in_endpoints(pod));
            for key in pods.iter().flat_map(|pod| state_for_nodes.selected.services_of(pod)) {
                enqueue.add(key);
            }
        });
    context.run(builder.planned_with(planner, handler));
    Ok(Started::Yes)
}

/// Returns whether a node's event may change the endpoints of its pods. They have the node's zone, and are omitted
/// while the node is not in the cache.
fn affects_endpoints(event: &CacheEvent<Node>) -> bool {
    match event {
        CacheEvent::Added { initial, .. } => !initial,
        CacheEvent::Updated { old, new } => {
            old.meta.labels.get(ZONE_LABEL) != new.meta.labels.get(ZONE_LABEL)
        }
        CacheEvent::Deleted(_) => false,
    }
}

/// State that event handlers and reconciliations share.
struct Shared {
    /// Pods by the Services that select them.
    selected: SelectorIndex,
    /// Slices that this controller manages.
    slices: SlicesByService,
    nodes: Cache<Node>,
    /// Recent writes of this controller, whose events need no reconciliation.
    own_writes: OwnWrites,
    /// CPU of the nodes in each zone, for topology hints.
    zones: Mutex<Zones>,
    /// Topology hints of the Services with the topology annotation, by Service.
    topology_hints: Mutex<HashMap<Key, TopologyHints>>,
}

impl Shared {
    /// Records a node's event. Returns the Services that now have too few endpoints in a zone. Upstream:
    /// `checkNodeTopologyDistribution`.
    fn record_node_event(&self, event: &CacheEvent<Node>) -> Vec<Key> {
        let mut zones = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        let may_change_ratios = zones.record(event);
        let topology_hints = self.topology_hints();
        if !may_change_ratios || topology_hints.is_empty() {
            return Vec::new();
        }
        let ratios = zones.ratios();
        let overloaded =
            topology_hints.iter().filter(|(_, hints)| hints.is_overloaded(ratios.as_deref()));
        let mut keys: Vec<Key> = overloaded.map(|(key, _)| key.clone()).collect();
        keys.sort_unstable();
        keys
    }

    /// Locks the topology hints of all Services.
    fn topology_hints(&self) -> MutexGuard<'_, HashMap<Key, TopologyHints>> {
        self.topology_hints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the topology hints of a Service. Default hints are not stored.
    fn set_topology_hints(&self, key: &Key, topology_hints: TopologyHints) {
        if topology_hints == TopologyHints::default() {
            self.topology_hints().remove(key);
        } else {
            self.topology_hints().insert(key.clone(), topology_hints);
        }
    }
}

/// Decides the EndpointSlices of a Service.
struct Controller {
    services: Cache<Service>,
    shared: Arc<Shared>,
    max_endpoints_per_slice: usize,
}

/// State of a Service that is kept between reconciliations.
#[derive(Debug, Clone, Default, PartialEq)]
struct Memory {
    trigger_times: TriggerTimeTracker,
    topology_hints: TopologyHints,
    /// Decision of the reconciliation in progress, for [`PassRecorder`].
    decision: Option<Arc<Decision>>,
}

/// Records the writes of each plan before they are sent, so that the event handler recognizes their events. Also
/// records the topology hints of Services, and updates the metrics after each reconciliation.
struct PassRecorder {
    shared: Arc<Shared>,
    metrics: Metrics,
}

impl PassHandler<Controller> for PassRecorder {
    fn on_planned(&self, observed: &Option<Observed>, planned: Planned<'_, Memory>) {
        if let (Some(observed), Some(decision)) = (observed, &planned.memory.decision) {
            self.shared.own_writes.record(&observed.key, &decision.writes.hashes);
            self.shared.set_topology_hints(&observed.key, decision.topology_hints.clone());
        }
    }

    fn on_passed(&self, observed: &Option<Observed>, pass: &Pass<'_, Memory>) {
        if let (Some(observed), Some(decision)) = (observed, &pass.memory.decision) {
            self.metrics.record_pass(observed, decision, pass.outcomes);
        }
    }

    /// Removes the records of a deleted Service. The garbage collector deletes its slices.
    fn on_gone(&self, key: &Key) {
        self.shared.own_writes.forget(key);
        self.shared.set_topology_hints(key, TopologyHints::default());
        self.metrics.remove_service(key);
    }
}

impl Controller {
    /// Returns a Service with the pods, nodes and slices on which its slices depend.
    fn observe_service(&self, key: &Key, service: Arc<Service>, memory: &Memory) -> Observed {
        let shared = &self.shared;
        let pods = shared.selected.pods_of(&service);
        let trigger_times = Arc::new(TriggerTimes::of(&service, &pods));
        let node_of = |pod: &Pod| match &*pod.spec.node_name {
            "" => None,
            name => shared.nodes.get("", name),
        };
        let mut slices = shared.slices.get(key);
        slices.retain(|slice| !slice.meta.deleting());
        let ratios = if hints::mode(&service) == Mode::Topology {
            shared.zones.lock().unwrap_or_else(PoisonError::into_inner).ratios()
        } else {
            None
        };
        Observed {
            key: key.clone(),
            pods: pods.into_iter().map(|pod| PlacedPod { node: node_of(&pod), pod }).collect(),
            slices,
            trigger_times,
            previous_trigger_times: memory.trigger_times.last(),
            ratios,
            topology_hints: memory.topology_hints.clone(),
            max_endpoints_per_slice: self.max_endpoints_per_slice,
            service,
        }
    }
}

impl Planner for Controller {
    /// Observed state. `None` for a Service whose slices this controller does not manage.
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
        let trigger_times = memory.trigger_times.begin(&observed.trigger_times);
        let topology_hints = decision.topology_hints.clone();
        let plan = decision.plan();
        (plan, Memory { trigger_times, topology_hints, decision: Some(Arc::new(decision)) })
    }

    fn remember(
        &self,
        _: &Option<Observed>,
        memory: &Memory,
        outcomes: &Outcomes,
        _: Timestamp,
    ) -> Option<Memory> {
        let trigger_times = memory.trigger_times.end(outcomes.first_error().is_none());
        let topology_hints = memory.topology_hints.clone();
        memory.decision.is_some().then_some(Memory {
            trigger_times,
            topology_hints,
            decision: None,
        })
    }

    fn describe(&self, observed: &Option<Observed>, _: Timestamp) -> Description {
        observed.as_ref().map(plan::describe).unwrap_or_default()
    }
}
