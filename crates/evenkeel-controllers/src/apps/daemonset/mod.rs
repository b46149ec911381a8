//! DaemonSet controller: runs a pod on each node that fits. Upstream: `pkg/controller/daemon`.

mod backoff;
mod describe;
mod limits;
mod nodes;
mod observed;
mod plan;
mod pod_template;
mod rolling;
mod status;
#[cfg(test)]
mod tests;

use crate::{
    apps::MIN_STATUS_INTERVAL,
    children::on_child,
    options::Workers,
    owned::ByController,
    pods,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use backoff::Backoff;
use evenkeel_api::{
    StrMap,
    time::Timestamp,
    views::{ControllerRevision, DaemonSet, Node, Pod},
};
use evenkeel_component_helpers::scheduling::corev1::{COMPARISON_GATE, TolerationOperators};
use evenkeel_runtime::{
    cache::Cache,
    controller::Builder,
    introspect::Description,
    plan::{Key, Outcomes, Plan, Planner},
};
use observed::Observed;

/// Number of DaemonSets that are reconciled concurrently. Flag `--concurrent-daemonset-syncs`. Default: 2.
pub type Options = Workers<2>;

/// Name of the flag with the number of workers.
pub(crate) const WORKERS: &str = "concurrent-daemonset-syncs";

/// The controller of DaemonSets.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "daemonset-controller",
    aliases: &["daemonset"],
    queue: "daemonset",
    client: "daemon-set-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let caches = &context.env.caches;
    let sets = caches.of::<DaemonSet>();
    let revisions = caches.of::<ControllerRevision>();
    let pods = caches.of::<Pod>();
    let nodes = caches.of::<Node>();
    let operators = TolerationOperators::with_comparison(context.gates.enabled(COMPARISON_GATE));
    let planner = DaemonSets {
        sets: sets.clone(),
        pods: ByController::of(&pods),
        owned_revisions: ByController::of(&revisions),
        revisions: revisions.clone(),
        nodes: nodes.clone(),
        operators,
    };
    let pod_owners = sets.clone();
    let revision_owners = sets.clone();
    let affected_sets = nodes::AffectedSets::new(&sets, &nodes, &pods, operators);
    let builder = context
        .builder(&DESCRIPTOR, &sets)
        .event_source("daemonset-controller")
        .workers(context.options.daemonset.concurrent_syncs)
        .min_status_interval(MIN_STATUS_INTERVAL)
        .stale_skips_metric("daemonset_controller_stale_sync_skips_total")
        .watches(&revisions, move |event, enqueue| {
            on_child(
                &revision_owners,
                event,
                |set, revision| selects(set, &revision.meta.labels),
                // Every update of a revision may affect the set.
                |_, _| true,
                |key| enqueue.add(key),
            );
        })
        .watches(&pods, move |event, enqueue| {
            on_child(
                &pod_owners,
                event,
                |set, pod| selects(set, &pod.meta.labels),
                |old, new| {
                    old.spec.node_name != new.spec.node_name
                        || old.status.phase != new.status.phase
                        || pods::changes_owner_counts(old, new)
                },
                |key| enqueue.add(key),
            );
        })
        .reads(&nodes);
    let controller = builder.planned(planner);
    // Nodes have a queue of their own, because comparing a node with all DaemonSets takes too long for an event
    // handler. Upstream: `nodeUpdateQueue`.
    let node_updates =
        Builder::watching(&context.env, "daemonset-nodes", &nodes, |event, enqueue| {
            if nodes::may_affect_sets(event) {
                enqueue.add(Key::of(&event.object().meta));
            }
        })
        .queue("daemonset-node-updates")
        .client(context.client(&DESCRIPTOR))
        .component(DESCRIPTOR.client)
        .reads(&sets)
        .reads(&pods)
        .workers(context.options.daemonset.concurrent_syncs)
        .enqueues(controller.queue(), move |node, enqueue| {
            affected_sets.enqueue(&node.name, enqueue);
        });
    context.run(controller);
    context.run(node_updates);
    Ok(Started::Yes)
}

/// Returns whether the DaemonSet's selector matches these labels. An empty selector matches nothing.
fn selects(set: &DaemonSet, labels: &StrMap) -> bool {
    let selector = &set.spec.selector;
    !selector.is_empty() && selector.matches(labels)
}

/// Decides the pods, the revisions and the status of a DaemonSet.
struct DaemonSets {
    sets: Cache<DaemonSet>,
    pods: ByController<Pod>,
    owned_revisions: ByController<ControllerRevision>,
    revisions: Cache<ControllerRevision>,
    nodes: Cache<Node>,
    operators: TolerationOperators,
}

impl Planner for DaemonSets {
    type Observed = Observed;
    type Memory = Backoff;

    fn observe(&self, key: &Key, _: &Backoff) -> Option<Observed> {
        let set = self.sets.get(&key.namespace, &key.name)?;
        let pods = self.pods.owned_and_orphans(&set.meta.uid, &key.namespace);
        let revisions = self.owned_revisions.owned_and_orphans(&set.meta.uid, &key.namespace);
        let get_revision = |name: &str| self.revisions.get(&key.namespace, name);
        let observed = Observed::new(set, pods, revisions, self.nodes.list(), get_revision);
        Some(observed.matching(self.operators))
    }

    fn plan(&self, observed: &Observed, backoff: &Backoff, now: Timestamp) -> (Plan, Backoff) {
        let (plan, deleted_failed_pods) = plan::plan(observed, backoff, now);
        let mut backoff = backoff.clone();
        for key in deleted_failed_pods {
            backoff.record(key, now);
        }
        (plan, backoff)
    }

    fn status(
        &self,
        observed: &Observed,
        _: &Backoff,
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Plan {
        status::status(observed, outcomes, now)
    }

    fn describe(&self, observed: &Observed, now: Timestamp) -> Description {
        describe::describe(observed, now)
    }
}
