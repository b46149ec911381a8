//! Control plane in virtual time, and methods that let time pass.

use crate::{
    Cloud, Faults, Log, Part, PodWatch,
    faults::ArmedFaults,
    metrics,
    parts::RunningPart,
    requests::Requests,
    wire::{Network, Wire, WorldCall},
};
use evenkeel_api::{
    time::{SignedDuration, Timestamp},
    views::Pod,
};
use evenkeel_apiserver::Server;
use evenkeel_nodes::{Delays, NodesOptions};
use evenkeel_runtime::{cache::CacheEvent, client::Client, clock::Clock, tasks::TaskFailure};
use evenkeel_test::TestServer;
use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};
use tokio::{sync::mpsc, time::timeout};

/// Start time of every run: 2026-01-01.
const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// Duration of a pause or disconnection of a part.
const OUTAGE: Duration = Duration::from_secs(60);

/// Time within which a part must end after its wire is cut.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

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
    /// The cloud, if `parts` has `Part::Cloud`.
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
                // Below the 50 s after which a node counts as unreachable, but cheap in a long run.
                lease_renewal: 30 * second,
                // Reports of an unchanged status would be writes of an idle cluster.
                status_report: Duration::MAX,
                ..NodesOptions::default()
            },
            cloud: Cloud::default(),
            allocate_node_cidrs: false,
            parts: vec![Part::Nodes, Part::Scheduler, Part::Controllers],
        }
    }
}

/// Runs `test` in a new world on this thread, and returns its result.
///
/// # Panics
/// If the world cannot be created, or if `test` panics.
pub fn simulate<T>(options: Options, test: impl AsyncFnOnce(&mut World) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without drivers of its own can be built");
    runtime.block_on(async {
        let mut world = World::new(options).await;
        test(&mut world).await
    })
}

/// Simulated control plane of a test.
pub struct World {
    options: Options,
    network: Arc<Network>,
    running: BTreeMap<Part, RunningPart>,
    /// Requests of the wires, such as to restart a part.
    calls: mpsc::UnboundedReceiver<WorldCall>,
    crashed: u64,
    requests: Requests,
    observer: RunningPart,
    server: Server,
}

impl World {
    async fn new(options: Options) -> Self {
        let clock = Clock::seeded(START, options.seed);
        let server = TestServer::builder()
            .enable_admission_plugin("ServiceAccount")
            .clock(clock.clone())
            .seed(options.seed)
            .start()
            .await;
        let server = server.unwrap_or_else(|error| panic!("the server cannot start: {error}"));
        let server = server.server().clone();
        let (sender, calls) = mpsc::unbounded_channel();
        let network = Arc::new(Network {
            server: server.service(),
            clock: clock.clone(),
            log: Log::new(START),
            armed: ArmedFaults::default(),
            latency: options.latency,
            calls: sender,
            requests: AtomicU64::new(0),
        });
        let wire = |part| Wire::new(Arc::clone(&network), part);
        let user = Client::builder(wire(Part::User).kube(), clock.clone()).user_agent("user");
        let observer = RunningPart::start(Part::Observer, wire(Part::Observer), &clock, &options);
        let mut world = Self {
            requests: Requests(user.build()),
            observer,
            running: BTreeMap::new(),
            network,
            calls,
            crashed: 0,
            options,
            server,
        };
        for part in world.options.parts.clone() {
            world.start(part);
        }
        world
    }

    /// Returns the log of all writes so far.
    pub fn log(&self) -> &Log {
        &self.network.log
    }

    /// Returns the virtual clock of the simulation.
    pub fn clock(&self) -> &Clock {
        &self.network.clock
    }

    /// Returns the number of crashes so far.
    pub fn crashed(&self) -> u64 {
        self.crashed
    }

    /// Returns the tasks of running parts that failed and cannot be restarted, or whose restarts keep failing.
    pub fn failures(&self) -> Vec<TaskFailure> {
        self.running
            .values()
            .flat_map(|running_part| running_part.tasks.supervisor().failures())
            .collect()
    }

    /// Injects these faults from now on, and resets the counts of writes.
    pub fn arm(&self, faults: Faults) {
        self.network.armed.arm(faults);
    }

    /// Returns the number of writes of this part since faults were last armed, without leases and events.
    pub fn writes(&self, part: Part) -> u64 {
        self.network.armed.writes(part)
    }

    /// Starts to count the pods with this label in a namespace, at every change of a pod.
    pub async fn watch_pods(&self, namespace: &str, label: (&str, &str)) -> PodWatch {
        PodWatch::start(&self.observer.caches, namespace, label).await
    }

    /// Calls `handler` with every change of a pod, in order and without delay, beginning with the existing pods.
    pub async fn on_pods(&self, handler: impl Fn(&CacheEvent<Pod>) + Send + Sync + 'static) {
        let pods = self.observer.caches.of::<Pod>();
        pods.subscribe(handler);
        pods.synced().await;
    }

    /// Serves `metrics.k8s.io` with the usage of pods from now on.
    pub async fn serve_metrics(&self) {
        metrics::serve(&self.server, &self.observer.caches, self.clock()).await;
    }

    /// Starts a part that is not running.
    pub fn start(&mut self, part: Part) {
        let wire = Wire::new(Arc::clone(&self.network), part);
        let running_part = RunningPart::start(part, wire, &self.network.clock, &self.options);
        self.running.insert(part, running_part);
    }

    /// Ends a part as a crash does: none of its further requests reaches the server.
    ///
    /// # Panics
    /// If a task of the part still runs after a timeout.
    pub async fn kill(&mut self, part: Part) {
        let Some(running_part) = self.running.remove(&part) else { return };
        running_part.wire.cut();
        running_part.wire.halt.resume();
        let late = running_part.tasks.shut_down(SHUTDOWN_TIMEOUT).await;
        assert!(late.is_empty(), "{part:?} did not end: {late:?}");
    }

    /// Lets time pass. Meanwhile, it restarts parts that crash and ends pauses and disconnections.
    pub async fn pass(&mut self, time: Duration) {
        let end = self.clock().now() + time;
        loop {
            let remaining = end.duration_since(self.clock().now());
            let Ok(remaining) = Duration::try_from(remaining) else { return };
            match timeout(remaining, self.calls.recv()).await {
                Ok(Some(call)) => self.execute(call).await,
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Lets time pass until no part has written anything but leases for `quiet`.
    ///
    /// # Panics
    /// If that takes more than two hours.
    pub async fn settle(&mut self, quiet: Duration) {
        let limit = self.clock().now() + SignedDuration::from_hours(2);
        let from = self.clock().now();
        loop {
            let now = self.clock().now();
            let settled_at = self.log().last().max(from) + quiet;
            let Ok(left) = Duration::try_from(settled_at.duration_since(now)) else { return };
            if left.is_zero() {
                return;
            }
            assert!(now < limit, "still busy after two hours; last:\n{}", self.log().tail(20));
            self.pass(left).await;
        }
    }

    /// Lets time pass until `holds` returns true. Calls `holds` every 100 ms at first, later after each hundredth
    /// of the elapsed time.
    ///
    /// # Panics
    /// If `holds` does not return true within `limit`.
    pub async fn until(
        &mut self,
        what: &str,
        limit: Duration,
        mut holds: impl AsyncFnMut(&Requests) -> bool,
    ) {
        let begin = self.clock().now();
        while !holds(&self.requests).await {
            let elapsed = self.clock().now().duration_since(begin);
            let elapsed = Duration::try_from(elapsed).unwrap_or_default();
            assert!(
                elapsed < limit,
                "not within {limit:?}: {what}; last:\n{}",
                self.log().tail(20)
            );
            self.pass((elapsed / 100).max(Duration::from_millis(100))).await;
        }
    }

    /// Lets time pass, and checks that the parts write only leases and the end of event series observed before.
    ///
    /// # Panics
    /// If a part writes anything else.
    pub async fn stays_silent(&mut self, time: Duration) {
        let (before, begin) = (self.log().len(), self.clock().now());
        self.pass(time).await;
        let writes = self.log().since(before);
        let reactions = writes.iter().filter(|write| !write.finishes_series_of_before(begin));
        let written: Vec<String> = reactions.map(ToString::to_string).collect();
        assert!(written.is_empty(), "written at rest:\n{}", written.join("\n"));
    }

    /// Executes a request of a wire.
    async fn execute(&mut self, call: WorldCall) {
        let part = match call {
            WorldCall::Restart(part) => return self.restart(part).await,
            WorldCall::Resume(part) | WorldCall::Reconnect(part) => part,
        };
        self.clock().sleep(OUTAGE).await;
        let Some(running_part) = self.running.get(&part) else { return };
        running_part.wire.halt.resume();
        running_part.wire.connect(true);
    }

    async fn restart(&mut self, part: Part) {
        self.crashed += 1;
        self.kill(part).await;
        self.clock().sleep(self.options.restart_delay).await;
        self.start(part);
    }
}

impl Deref for World {
    type Target = Requests;

    fn deref(&self) -> &Requests {
        &self.requests
    }
}
