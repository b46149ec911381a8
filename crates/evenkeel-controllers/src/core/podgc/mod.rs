//! Pod garbage collector: deletes terminated pods beyond a threshold, and pods of missing or failed nodes. Upstream:
//! `pkg/controller/podgc`.

mod plan;

use crate::{
    options::Flags,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{
    Kind,
    time::Timestamp,
    views::{Node, Pod},
};
use evenkeel_component_helpers::scheduling::corev1;
use evenkeel_runtime::{
    cache::{Cache, Index},
    controller::Builder,
    metrics,
    plan::{Key, Outcomes, Pass, PassHandler, Plan, Planner, Steps},
    queue::Priority,
};
use plan::{Deletion, Memory, Observed};
use prometheus::IntCounterVec;
use std::collections::BTreeSet;

/// Options of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Number of terminated pods that are kept. Zero or a negative number disables the limit. Flag
    /// `--terminated-pod-gc-threshold`. Default: 12500.
    pub terminated_pod_threshold: i64,
}

impl Default for Options {
    fn default() -> Self {
        Self { terminated_pod_threshold: 12_500 }
    }
}

impl Options {
    /// Reads the options from the command-line flags.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        Self { terminated_pod_threshold: flags.int("terminated-pod-gc-threshold") }
    }
}

/// The pod garbage collector.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "pod-garbage-collector-controller",
    aliases: &["podgc"],
    queue: "orphaned_pods_nodes",
    client: "pod-garbage-collector",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    const LABELS: &[&str] = &["namespace", "reason"];
    let pods = context.env.caches.of::<Pod>();
    let nodes = context.env.caches.of::<Node>();
    let threshold = context.options.podgc.terminated_pod_threshold;
    let planner = Collector {
        pods_by_node: pods.index("node", corev1::node_key),
        observed_pods: pods.index("podgc", plan::keys),
        nodes: nodes.clone(),
        threshold,
    };
    let metrics = Metrics {
        threshold,
        deletions: metrics::counters(
            &context.registry,
            "pod_gc_collector_force_delete_pods_total",
            "Number of pods that are being forcefully deleted since the Pod GC Controller started.",
            LABELS,
        ),
        deletion_errors: metrics::counters(
            &context.registry,
            "pod_gc_collector_force_delete_pod_errors_total",
            "Number of errors encountered when forcefully deleting the pods since the Pod GC Controller started.",
            LABELS,
        ),
    };
    // The queue's only key represents the whole cluster, so it has no kind.
    let no_kind = Kind::new("", "", "", "", false);
    let controller = Builder::of_keys(&context.env, DESCRIPTOR.name, no_kind)
        .queue(DESCRIPTOR.queue)
        .client(context.client(&DESCRIPTOR))
        .component(DESCRIPTOR.client)
        .reads(&pods)
        .reads(&nodes)
        .planned_with(planner, metrics);
    controller.queue().add(cluster_key(), Priority::NORMAL);
    context.run(controller);
    Ok(Started::Yes)
}

/// Returns the queue's only key. It stands for the whole cluster.
fn cluster_key() -> Key {
    Key::new("", "all")
}

/// Planner that deletes the pods of the cluster that are no longer needed.
struct Collector {
    pods_by_node: Index<Pod>,
    /// Pods by [`plan::keys`].
    observed_pods: Index<Pod>,
    nodes: Cache<Node>,
    threshold: i64,
}

impl Planner for Collector {
    type Observed = Observed;
    type Memory = Memory;

    fn observe(&self, _: &Key, _: &Memory) -> Option<Observed> {
        let count = self.observed_pods.count(plan::TERMINATED);
        let is_over = usize::try_from(self.threshold).is_ok_and(|threshold| count > threshold);
        let terminating = self.observed_pods.get(plan::TERMINATING);
        let names: BTreeSet<&str> = terminating.iter().map(|pod| &*pod.spec.node_name).collect();
        let nodes = names.into_iter().filter_map(|name| self.nodes.get("", name)).collect();
        let mut missing = self.pods_by_node.keys();
        missing.retain(|(node, _)| self.nodes.get("", node).is_none());
        missing.sort();
        Some(Observed {
            terminated: if is_over { self.observed_pods.get(plan::TERMINATED) } else { Vec::new() },
            terminating,
            orphaned: missing.iter().flat_map(|(node, _)| self.pods_by_node.get(node)).collect(),
            nodes,
        })
    }

    fn plan(&self, observed: &Observed, memory: &Memory, now: Timestamp) -> (Plan, Memory) {
        let memory = memory.updated(observed, now);
        let first = self.first_step(observed, &memory, now);
        (first, memory)
    }

    fn next(
        &self,
        observed: &Observed,
        memory: &Memory,
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Option<Plan> {
        let threshold = self.threshold;
        Steps::next(outcomes, |steps| plan::plan(observed, memory, threshold, now, steps))
    }
}

/// Counts deletions, and logs their errors.
struct Metrics {
    threshold: i64,
    deletions: IntCounterVec,
    deletion_errors: IntCounterVec,
}

impl PassHandler<Collector> for Metrics {
    fn on_passed(&self, observed: &Observed, pass: &Pass<'_, Memory>) {
        let Pass { memory, outcomes, planned_at, .. } = *pass;
        // The first outcomes belong to the live reads of these nodes.
        for (node, read) in memory.presumed_deleted_nodes.iter().zip(&outcomes.0) {
            if let Some(error) = read.error.as_ref().filter(|error| !error.is_not_found()) {
                tracing::warn!(node = &**node, %error, "Failed to read the node");
            }
        }
        let steps = &mut Steps::of(outcomes);
        let deletions = plan::collect_garbage(observed, memory, self.threshold, planned_at, steps);
        for Deletion { pod, reason, error } in deletions.unwrap_or_default() {
            let labels = [&*pod.meta.namespace, reason];
            self.deletions.with_label_values(&labels).inc();
            if let Some(error) = error {
                let namespace = &*pod.meta.namespace;
                let pod = &*pod.meta.name;
                tracing::warn!(namespace, pod, %error, "Failed to delete the pod");
                self.deletion_errors.with_label_values(&labels).inc();
            }
        }
    }
}
