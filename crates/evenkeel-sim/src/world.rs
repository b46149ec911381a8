//! Control plane in virtual time.

use crate::{Cloud, PodWatch, invariants::Invariants, metrics, part, parts::programs};
use evenkeel_api::views::Pod;
use evenkeel_nodes::{Delays, NodesOptions};
use evenkeel_runtime::{
    cache::{CacheEvent, Caches},
    client::Client,
    tasks::Tasks,
};
use evenkeel_test::{
    TestServer,
    explore::{Changes, EndState, objects_before},
    simulation::{
        Faults, OBSERVER, Part, PartOptions, Simulation, SimulationOptions, USER, in_virtual_time,
    },
};
use prometheus::Registry;
use serde_json::Value;
use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

/// Time in which a part recovers from a restart or an outage. It is longer than the stale reads after a stale restart, and
/// longer than the backoff of watches after several gaps (half a minute and its jitter).
const RECOVERY: Duration = Duration::from_secs(90);

/// Fields that follow from the node that the scheduler chooses for a pod.
const OF_CHOSEN_NODES: [&str; 6] = [
    "Node/status/addresses",
    "Node/status/volumesAttached",
    "Node/status/volumesInUse",
    "PersistentVolumeClaim/metadata/annotations/volume.kubernetes.io~1selected-node",
    "Pod/metadata/labels/topology.kubernetes.io~1region",
    "Pod/metadata/labels/topology.kubernetes.io~1zone",
];

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
    /// Upstream's name of a controller that runs, and crashes, as a part of its own: [`part::ALONE`]. The part
    /// [`part::CONTROLLERS`] then has all others.
    pub alone: Option<&'static str>,
    /// Fields that differ legitimately from a run without faults, as JSON pointers, each with the reason.
    pub ignored: Vec<(&'static str, &'static str)>,
    /// Reason why runs are not compared with a run without faults; `None` if they are compared.
    pub uncompared: Option<&'static str>,
}

impl Options {
    /// Lets this controller run, and crash, as a part of its own.
    #[must_use]
    pub fn alone(mut self, controller: &'static str) -> Self {
        self.alone = Some(controller);
        self.parts.push(part::ALONE);
        self
    }

    /// Lets runs differ from the one without faults, for a reason. The scenario checks what matters.
    #[must_use]
    pub fn uncompared(mut self, reason: &'static str) -> Self {
        self.uncompared = Some(reason);
        self
    }

    /// Leaves a field out of comparisons with the run without faults, for a reason.
    #[must_use]
    pub fn ignores(mut self, pointer: &'static str, reason: &'static str) -> Self {
        self.ignored.push((pointer, reason));
        self
    }
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
            alone: None,
            ignored: Vec::new(),
            uncompared: None,
        }
    }
}

/// Runs `test` in a new world on this thread, and returns its result.
///
/// # Panics
/// Panics if the world cannot be created, or if `test` panics.
pub fn simulate<T>(options: Options, test: impl AsyncFnOnce(&mut World) -> T) -> T {
    simulate_compared(options, None, test)
}

/// Runs `test` as [`simulate`] does. When the world settles, its objects must be those of the run without faults.
pub(crate) fn simulate_compared<T>(
    options: Options,
    without_fault: Option<Vec<EndState>>,
    test: impl AsyncFnOnce(&mut World) -> T,
) -> T {
    in_virtual_time(async {
        let mut world = World::new(options).await;
        world.without_fault = without_fault;
        test(&mut world).await
    })
}

/// Simulated control plane of a test. It derefs to the [`Simulation`] of its parts.
pub struct World {
    simulation: Simulation,
    /// Caches of the test's observer.
    caches: Caches,
    _observer: Tasks,
    invariants: Invariants,
    /// Objects that existed before the first part was started.
    before: Vec<Value>,
    /// Objects with generated names of the states in which the world has settled.
    named: Vec<Value>,
    /// JSON pointers of the fields that comparisons leave out.
    ignored: Vec<String>,
    /// Number of writes when faults were armed; `None` before.
    armed: Option<usize>,
    /// States in which the world has settled since faults were armed.
    states: Vec<EndState>,
    /// States in which the world of the run without faults has settled.
    without_fault: Option<Vec<EndState>>,
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
        let simulated = SimulationOptions { seed, latency, restart_delay, recovery: RECOVERY };
        let mut simulation = Simulation::new(server, simulated);
        let before = objects_before(&simulation).await;
        let before = before.unwrap_or_else(|error| panic!("{error}"));
        let clock = simulation.clock().clone();
        let client = Client::builder(simulation.observer(), clock.clone());
        let client = client.user_agent(OBSERVER.name()).build();
        let caches = Caches::new(client, clock, &Registry::new());
        let observer = Tasks::new();
        let invariants = Invariants::observe(&caches);
        caches.start(&observer);
        for (part, program, delayed) in programs(&options) {
            simulation.add(part, program, PartOptions { delayed, ..PartOptions::default() });
        }
        for part in options.parts {
            simulation.start(part);
        }
        let ignored = options.ignored.iter().map(|(pointer, _)| *pointer);
        let ignored = ignored.chain(OF_CHOSEN_NODES).map(str::to_owned).collect();
        Self {
            simulation,
            caches,
            _observer: observer,
            invariants,
            before,
            named: Vec::new(),
            ignored,
            armed: None,
            states: Vec::new(),
            without_fault: None,
        }
    }

    /// Injects these faults from now on, and resets the counts of writes. Each state in which the world settles from now on
    /// is compared with the corresponding state of the run without faults.
    pub fn arm(&mut self, faults: Faults) {
        self.armed = Some(self.simulation.log().len());
        self.simulation.arm(faults);
    }

    /// Lets time pass until, for the duration `quiet`, no part has written anything but leases, and all parts have recovered.
    ///
    /// # Panics
    /// Panics if that takes more than two hours, or if the objects then differ from those of the run without faults.
    pub async fn settle(&mut self, quiet: Duration) {
        self.simulation.settle(quiet).await;
        self.compare().await;
    }

    /// Lets time pass, and checks that the parts write only leases and the end of event series observed before.
    ///
    /// # Panics
    /// Panics if a part writes anything else, or an invariant was violated.
    pub async fn stays_silent(&mut self, time: Duration) {
        self.simulation.stays_silent(time).await;
        self.check_invariants();
    }

    /// Checks the invariants that must hold at every instant.
    ///
    /// # Panics
    /// Panics if an invariant was violated.
    fn check_invariants(&self) {
        let (first, seen) = (self.invariants.checked(), self.log().len());
        let broken = self.invariants.check(&self.log().since(first), seen);
        assert!(broken.is_empty(), "{}\nlast:\n{}", broken.join("\n"), self.log().tail(40));
    }

    /// Compares the present objects with those of the run without faults.
    async fn compare(&mut self) {
        self.check_invariants();
        if self.armed.is_none() {
            return;
        }
        let (before, named) = (&self.before, &mut self.named);
        let state = EndState::observe(&self.simulation, before, named, &self.ignored).await;
        let state = state.unwrap_or_else(|error| panic!("{error}"));
        let wanted = self.without_fault.as_ref().and_then(|states| states.get(self.states.len()));
        if let Some(wanted) = wanted {
            let differences = state.differences(wanted);
            assert!(
                differences.is_empty(),
                "settled as it would not without faults (state {}):\n{}\nlast:\n{}",
                self.states.len(),
                differences.join("\n"),
                self.log().tail(30)
            );
        }
        self.states.push(state);
    }

    /// Returns the states in which the world has settled since faults were armed, including the current one, and the objects
    /// that were created and deleted since then.
    pub(crate) async fn observed(&mut self) -> (Vec<EndState>, Changes) {
        self.compare().await;
        let writes = self.log().since(self.armed.unwrap_or_default());
        let by_parts = writes.iter().filter(|write| write.part != USER);
        (self.states.clone(), Changes::of(by_parts))
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
