//! Starts and stops the simulated nodes.

use evenkeel_api::views::Node;
use evenkeel_runtime::{
    cache::Caches, client::Client, clock::Clock, events::EventRecorder, queue::Queue, tasks::Tasks,
};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

use crate::{
    NodeFaults, NodesOptions,
    behaviors::Behaviors,
    heartbeats::Heartbeats,
    pod_workers::PodWorkers,
    stages::{NodeWorkers, StageController, Stages},
    storage::Storage,
    volumes_in_use,
};

/// Number of nodes that register or send heartbeats concurrently.
const NODE_WORKERS: usize = 16;

/// Number of nodes that follow Stages concurrently.
const STAGE_WORKERS: usize = 4;

/// Runs the nodes of `options` until `shutdown` is cancelled. Node and Pod objects then stay as they are, and a later
/// run recovers its state from their status. The caller starts the caches, before or after this call. The nodes begin
/// once the caches have synced.
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
    let behaviors = options.behaviors.then(|| Behaviors::watch(&caches));
    let faults = NodeFaults::of(behaviors.clone());
    let stages = options.stages.then(|| Stages::watch(&caches));
    let heartbeats = Heartbeats::new(
        client.clone(),
        clock.clone(),
        options.clone(),
        &nodes,
        faults.clone(),
        stages.clone(),
        node_queue.clone(),
    );
    let workers = options.workers.max(1);
    volumes_in_use::start(&client, &caches, &options, &faults, &tasks);
    if let Some(storage) = options.storage.clone() {
        Storage::start(&client, &caches, &clock, storage, &tasks);
    }
    let kubelets = options.kubelets.clone();
    if let Some(behaviors) = &behaviors {
        behaviors.start_status(&client, &tasks);
    }
    let stage_controller = stages.clone().map(|stages| {
        stages.start_status(&client, &tasks);
        Arc::new(StageController::new(client.clone(), clock.clone(), recorder.clone(), stages))
    });
    let stage_queue = Queue::unnamed(&clock);
    if let Some(stage_controller) = &stage_controller {
        let queue = stage_queue.clone();
        let node_workers = NodeWorkers::new(stage_controller, &options, &nodes, &faults, queue);
        for _ in 0..STAGE_WORKERS {
            let node_workers = Arc::clone(&node_workers);
            tasks.spawn_restarting_until_cancelled("node-stages", move || {
                let node_workers = Arc::clone(&node_workers);
                async move { node_workers.work().await }
            });
        }
    }
    let steering = (behaviors.clone(), stage_controller);
    let pod_workers = PodWorkers::new(
        client.clone(),
        clock,
        recorder,
        options,
        &caches,
        steering,
        pod_queue.clone(),
    );
    kubelets.set(&pod_workers);
    // Wait for the caches: they determine which nodes are partitioned, and therefore must not write, and how the pods
    // run.
    let known = async {
        nodes.synced().await;
        if let Some(behaviors) = &behaviors {
            behaviors.synced(&client).await;
        }
        if let Some(stages) = &stages {
            stages.synced(&client).await;
        }
    };
    if shutdown.run_until_cancelled(known).await.is_some() {
        spawn_workers(&tasks, &heartbeats, &pod_workers, workers);
        heartbeats.enqueue_all();
    }
    shutdown.cancelled().await;
    pod_queue.shut_down();
    node_queue.shut_down();
    stage_queue.shut_down();
    tasks.join().await;
}

/// Starts the tasks that process the queues of nodes and pods.
fn spawn_workers(
    tasks: &Tasks,
    heartbeats: &Arc<Heartbeats>,
    pod_workers: &Arc<PodWorkers>,
    workers: usize,
) {
    for _ in 0..NODE_WORKERS {
        let heartbeats = Arc::clone(heartbeats);
        tasks.spawn_restarting_until_cancelled("node-heartbeats", move || {
            let heartbeats = Arc::clone(&heartbeats);
            async move { heartbeats.work().await }
        });
    }
    for _ in 0..workers {
        let pod_workers = Arc::clone(pod_workers);
        tasks.spawn_restarting_until_cancelled("pod-workers", move || {
            let pod_workers = Arc::clone(&pod_workers);
            async move { pod_workers.work().await }
        });
    }
}
