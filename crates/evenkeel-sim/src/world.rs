//! Control plane in virtual time.

use crate::{Cloud, PodWatch, metrics, part, parts::programs};
use evenkeel_api::views::Pod;
use evenkeel_nodes::{Delays, NodesOptions};
use evenkeel_runtime::{
    cache::{CacheEvent, Caches},
    client::Client,
    tasks::Tasks,
};
use evenkeel_test::{
    TestServer,
    simulation::{OBSERVER, Part, PartOptions, Simulation, SimulationOptions, in_virtual_time},
};
use prometheus::Registry;
use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

/// Options of a simulated world.
#[derive(Debug, Clone)]
pub struct Options {
    /// Seed of all random decisions.
    pub seed: u64,
    /// Maximum latency of a request, and of its response.
    pub latency: Duration,
    /// Time between a crash of a part and its restart.
    pub restart_delay: Duration,
    /// Options of the simulated nodes.
    pub nodes: NodesOptions,
    /// The cloud, if `parts` has [`part::CLOUD`].
    pub cloud: Cloud,
    /// Whether nodes get pod CIDRs (`--allocate-node-cidrs`).
    pub allocate_node_cidrs: bool,
    /// Parts to start.
    pub parts: Vec<Part>,
}

impl Default for Options {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        let delays = Delays { ready: second, termination: second / 2, ..Delays::default() };
        Self {
            seed: 0,
            latency: Duration::from_millis(2),
            restart_delay: second,
            nodes: NodesOptions {
                delays,
                // Shorter than the 50 s after which a node counts as unreachable, but cheap in a long run.
                lease_renewal: 30 * second,
                // Reports of an unchanged status would be writes of an idle cluster.
                status_report: Duration::MAX,
                ..NodesOptions::default()
            },
            cloud: Cloud::default(),
            allocate_node_cidrs: false,
            parts: vec![part::NODES, part::SCHEDULER, part::CONTROLLERS],
        }
    }
}

/// Runs `test` in a new world on this thread, and returns its result.
///
/// # Panics
/// If the world cannot be created, or if `test` panics.
pub fn simulate<T>(options: Options, test: impl AsyncFnOnce(&mut World) -> T) -> T {
    in_virtual_time(async {
        let mut world = World::new(options).await;
        test(&mut world).await
    })
}

/// Simulated control plane of a test. It derefs to the [`Simulation`] of its parts.
pub struct World {
    simulation: Simulation,
    /// Caches of the test's observer.
    caches: Caches,
    _observer: Tasks,
}

impl World {
    async fn new(options: Options) -> Self {
        let server = TestServer::builder()
            .enable_admission_plugin("ServiceAccount")
            .clock(Simulation::clock_of_run(options.seed))
            .seed(options.seed)
            .start()
            .await;
        let server = server.unwrap_or_else(|error| panic!("the server cannot start: {error}"));
        let Options { seed, latency, restart_delay, .. } = options;
        let simulated =
            SimulationOptions { seed, latency, restart_delay, ..SimulationOptions::default() };
        let mut simulation = Simulation::new(server, simulated);
        let clock = simulation.clock().clone();
        let client = Client::builder(simulation.observer(), clock.clone());
        let client = client.user_agent(OBSERVER.name()).build();
        let caches = Caches::new(client, clock, &Registry::new());
        let observer = Tasks::new();
        caches.start(&observer);
        for (part, program, delayed) in programs(&options) {
            simulation.add(part, program, PartOptions { delayed, ..PartOptions::default() });
        }
        for part in options.parts {
            simulation.start(part);
        }
        Self { simulation, caches, _observer: observer }
    }

    /// Starts to count the pods with this label in a namespace, at every change of a pod.
    pub async fn watch_pods(&self, namespace: &str, label: (&str, &str)) -> PodWatch {
        PodWatch::start(&self.caches, namespace, label).await
    }

    /// Calls `handler` with every change of a pod, in order and without delay, beginning with the existing pods.
    pub async fn on_pods(&self, handler: impl Fn(&CacheEvent<Pod>) + Send + Sync + 'static) {
        let pods = self.caches.of::<Pod>();
        pods.subscribe(handler);
        pods.synced().await;
    }

    /// Serves `metrics.k8s.io` with the usage of pods from now on.
    pub async fn serve_metrics(&self) {
        metrics::serve(self.server().server(), &self.caches, self.clock()).await;
    }
}

impl Deref for World {
    type Target = Simulation;

    fn deref(&self) -> &Simulation {
        &self.simulation
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Simulation {
        &mut self.simulation
    }
}
