//! Starts and stops the simulated nodes.

use evenkeel_api::views::Node;
use evenkeel_runtime::{
    cache::Caches, client::Client, clock::Clock, events::EventRecorder, queue::Queue, tasks::Tasks,
};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

use crate::{
    NodesOptions, behaviors::Behaviors, heartbeats::Heartbeats, pod_workers::PodWorkers,
    storage::Storage, volumes_in_use,
};

/// Number of nodes that register or send heartbeats concurrently.
const NODE_WORKERS: usize = 16;

/// Runs the nodes of `options` until `shutdown` is cancelled. Node and Pod objects then stay as they are, and a later
/// run recovers its state from their status. The caller starts the caches, before or after this call.
pub async fn run(
    client: Client,
    caches: Caches,
    clock: Clock,
    options: NodesOptions,
    shutdown: CancellationToken,
) {
    let tasks = Tasks::under(shutdown.clone());
    let recorder = EventRecorder::new(client.clone(), "kubelet", clock.clone());
    recorder.start(&tasks);
    let nodes = caches.of::<Node>();
    let (pod_queue, node_queue) = (Queue::unnamed(&clock), Queue::unnamed(&clock));
    let heartbeats =
        Heartbeats::new(client.clone(), clock.clone(), options.clone(), &nodes, node_queue.clone());
    let workers = options.workers.max(1);
    let takes_over = options.nodes.iter().any(|node| node.existing);
    volumes_in_use::start(&client, &caches, &options, &tasks);
    if let Some(storage) = options.storage.clone() {
        Storage::start(&client, &caches, &clock, storage, &tasks);
    }
    let kubelets = options.kubelets.clone();
    let behaviors = options.behaviors.then(|| Behaviors::watch(&caches));
    if let Some(behaviors) = &behaviors {
        behaviors.start_status(&client, &tasks);
    }
    let pod_workers =
        PodWorkers::new(client, clock, recorder, options, &caches, behaviors, pod_queue.clone());
    kubelets.set(&pod_workers);
    for _ in 0..NODE_WORKERS {
        let heartbeats = Arc::clone(&heartbeats);
        tasks.spawn_restarting_until_cancelled("node-heartbeats", move || {
            let heartbeats = Arc::clone(&heartbeats);
            async move { heartbeats.work().await }
        });
    }
    for _ in 0..workers {
        let pod_workers = Arc::clone(&pod_workers);
        tasks.spawn_restarting_until_cancelled("pod-workers", move || {
            let pod_workers = Arc::clone(&pod_workers);
            async move { pod_workers.work().await }
        });
    }
    // Only the cache knows which existing nodes are partitioned, and must not report.
    if !takes_over || shutdown.run_until_cancelled(nodes.synced()).await.is_some() {
        heartbeats.enqueue_all();
    }
    shutdown.cancelled().await;
    pod_queue.shut_down();
    node_queue.shut_down();
    tasks.join().await;
}
