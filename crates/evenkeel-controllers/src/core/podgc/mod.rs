//! Pod garbage collector: deletes terminated pods beyond a threshold, and pods of missing or failed nodes. Upstream:
//! `pkg/controller/podgc`.

mod plan;

use crate::{
    options::Flags,
    wiring::descriptor::{ControllerContext, Descriptor, StartError},
};
use evenkeel_api::{
    Text, View,
    time::Timestamp,
    views::{Node, Pod},
};
use evenkeel_runtime::{
    cache::Cache,
    controller::{Builder, Context, Error, Outcome},
    metrics,
    plan::Key,
    queue::Priority,
};
use futures::StreamExt;
use plan::{Doomed, Observed, Quarantine};
use prometheus::IntCounterVec;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Period of the collection. Upstream: `gcCheckPeriod`.
const PERIOD: Duration = Duration::from_secs(20);

/// Pods deleted concurrently.
const AT_A_TIME: usize = 16;

/// Options of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Number of terminated pods that are kept, unlimited from 0 down; `--terminated-pod-gc-threshold`, default 12500.
    pub terminated: i64,
}

impl Default for Options {
    fn default() -> Self {
        Self { terminated: 12_500 }
    }
}

impl Options {
    /// Reads the options from the command-line flags.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        Self { terminated: flags.int("terminated-pod-gc-threshold") }
    }
}

/// The collector of pods.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "pod-garbage-collector-controller",
    aliases: &["podgc"],
    queue: "orphaned_pods_nodes",
    client: "pod-garbage-collector",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    const LABELS: &[&str] = &["namespace", "reason"];
    let (pods, nodes) = (context.env.caches.of::<Pod>(), context.env.caches.of::<Node>());
    let collector = Arc::new(Collector {
        pods: pods.clone(),
        nodes: nodes.clone(),
        threshold: context.options.podgc.terminated,
        quarantine: Mutex::default(),
        deleted: metrics::counters(
            &context.registry,
            "pod_gc_collector_force_delete_pods_total",
            "Number of pods that are being forcefully deleted since the Pod GC Controller started.",
            LABELS,
        ),
        failed: metrics::counters(
            &context.registry,
            "pod_gc_collector_force_delete_pod_errors_total",
            "Number of errors encountered when forcefully deleting the pods since the Pod GC Controller started.",
            LABELS,
        ),
    });
    let controller = Builder::of_keys(&context.env, DESCRIPTOR.name, Pod::kind())
        .queue(DESCRIPTOR.queue)
        .client((context.clients)(DESCRIPTOR.client))
        .component(DESCRIPTOR.client)
        .reads(&pods)
        .reads(&nodes)
        .reconcile(move |request, context: Context| {
            let collector = collector.clone();
            async move { collector.pass(&request.key, &context).await }
        });
    // The queue has a single key for the whole cluster.
    controller.queue().add(Key::new("", "all"), Priority::NORMAL);
    context.run(controller);
    Ok(())
}

struct Collector {
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    threshold: i64,
    quarantine: Mutex<Quarantine>,
    deleted: IntCounterVec,
    failed: IntCounterVec,
}

impl Collector {
    async fn pass(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let now = context.env.clock.now();
        let observed = Observed { pods: self.pods.list(), nodes: self.nodes.list() };
        let lost = self.lost(&observed, context, now).await;
        let doomed = plan::plan(&observed, &lost, self.threshold, now);
        futures::stream::iter(doomed)
            .for_each_concurrent(AT_A_TIME, |doomed| async move {
                self.delete(key, &doomed, context).await;
            })
            .await;
        Ok(Outcome::again(PERIOD))
    }

    /// Returns the nodes that are confirmed missing by a live read, after the quarantine. Upstream:
    /// `discoverDeletedNodes`.
    async fn lost(&self, observed: &Observed, context: &Context, now: Timestamp) -> BTreeSet<Text> {
        let missed = {
            let mut quarantine = self.quarantine.lock().unwrap_or_else(PoisonError::into_inner);
            quarantine.missed(observed, now)
        };
        let mut lost = BTreeSet::new();
        for name in missed {
            match context.env.client.get_metadata(&Node::kind(), "", &name).await {
                Err(error) if error.is_not_found() => drop(lost.insert(name)),
                Err(error) => tracing::warn!(node = &*name, %error, "Failed to read the node"),
                Ok(_) => {}
            }
        }
        lost
    }

    /// Deletes pods; a failed deletion does not block others.
    async fn delete(&self, key: &Key, doomed: &Doomed, context: &Context) {
        let labels = [&*doomed.pod.meta.namespace, doomed.reason];
        self.deleted.with_label_values(&labels).inc();
        if let Err(error) = context.act(key, &doomed.plan).await {
            let pod = &doomed.pod.meta;
            tracing::warn!(namespace = &*pod.namespace, pod = &*pod.name, %error, "Failed to delete the pod");
            self.failed.with_label_values(&labels).inc();
        }
    }
}
