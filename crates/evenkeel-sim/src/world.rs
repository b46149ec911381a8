//! A control plane in virtual time, and the passing of that time.

use crate::{
    Cloud, Faults, Log, Part, PodWatch,
    faults::Armed,
    metrics,
    parts::Life,
    requests::Requests,
    wire::{Call, Exchange, Wire},
};
use evenkeel_api::{
    time::{SignedDuration, Timestamp},
    views::Pod,
};
use evenkeel_apiserver::Server;
use evenkeel_nodes::{Delays, NodesOptions};
use evenkeel_runtime::{cache::CacheEvent, client::Client, clock::Clock, tasks::TaskFailure};
use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};
use tokio::{sync::mpsc, time::timeout};

/// When every run begins.
const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// How long a part is paused or cut off.
const AWAY: Duration = Duration::from_secs(60);

/// How long a part may take to end once its wire is cut.
const LAST_BREATH: Duration = Duration::from_secs(30);

/// How a run is to be.
#[derive(Debug, Clone)]
pub struct Options {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// The longest that a request is on its way, and its answer.
    pub latency: Duration,
    /// How long a part is away after a crash.
    pub down: Duration,
    /// Options of the simulated nodes.
    pub nodes: NodesOptions,
    /// The cloud, where its part runs.
    pub cloud: Cloud,
    /// Whether nodes are given ranges of addresses; `--allocate-node-cidrs`.
    pub node_ranges: bool,
    /// The parts that run.
    pub parts: Vec<Part>,
}

impl Default for Options {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        let delays = Delays { ready: second, termination: second / 2, ..Delays::default() };
        Self {
            seed: 0,
            latency: Duration::from_millis(2),
            down: second,
            nodes: NodesOptions {
                delays,
                // Within the 50 s after which a node counts as lost, and cheap in a long run.
                lease_renewal: 30 * second,
                // A report of an unchanged status would be a write at rest.
                status_report: Duration::MAX,
                ..NodesOptions::default()
            },
            cloud: Cloud::default(),
            node_ranges: false,
            parts: vec![Part::Nodes, Part::Scheduler, Part::Controllers],
        }
    }
}

/// Runs `test` in a world of its own, on this thread, and returns what it returns.
///
/// # Panics
/// When the world cannot be made, and when `test` does.
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
    exchange: Arc<Exchange>,
    lives: BTreeMap<Part, Life>,
    calls: mpsc::UnboundedReceiver<Call>,
    crashed: u64,
    requests: Requests,
    observer: Life,
    server: Server,
}

impl World {
    async fn new(options: Options) -> Self {
        let clock = Clock::seeded(START, options.seed);
        let of_server = clock.clone();
        let server = Server::builder()
            .clock(evenkeel_apiserver::Clock::new(move || of_server.now()))
            .seed(options.seed)
            .build()
            .await;
        let server = server.unwrap_or_else(|error| panic!("the server cannot be built: {error}"));
        let (sender, calls) = mpsc::unbounded_channel();
        let exchange = Arc::new(Exchange {
            server: server.service(),
            clock: clock.clone(),
            log: Log::new(START),
            armed: Armed::default(),
            latency: options.latency,
            calls: sender,
            requests: AtomicU64::new(0),
        });
        let wire = |part| Wire::new(Arc::clone(&exchange), part);
        let user = Client::builder(wire(Part::User).kube(), clock.clone()).user_agent("user");
        let observer = Life::start(Part::Observer, wire(Part::Observer), &clock, &options);
        let mut world = Self {
            requests: Requests(user.build()),
            observer,
            lives: BTreeMap::new(),
            exchange,
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

    /// Writes so far.
    pub fn log(&self) -> &Log {
        &self.exchange.log
    }

    /// Returns the virtual clock of the simulation.
    pub fn clock(&self) -> &Clock {
        &self.exchange.clock
    }

    /// How many parts have crashed so far.
    pub fn crashed(&self) -> u64 {
        self.crashed
    }

    /// Returns the tasks of running parts that failed and cannot be restarted, or whose restarts keep failing.
    pub fn failures(&self) -> Vec<TaskFailure> {
        self.lives.values().flat_map(|life| life.tasks.supervisor().failures()).collect()
    }

    /// From now on these faults happen; writes are counted from here.
    pub fn arm(&self, faults: Faults) {
        self.exchange.armed.arm(faults);
    }

    /// How much this part has written, leases and events aside, since faults were last armed.
    pub fn writes(&self, part: Part) -> u64 {
        self.exchange.armed.writes(part)
    }

    /// Counts the pods of a namespace that have this label, from now on, at every change.
    pub async fn watch_pods(&self, namespace: &str, label: (&str, &str)) -> PodWatch {
        PodWatch::start(&self.observer.caches, namespace, label).await
    }

    /// Tells `seen` of every change of a pod, in order and without delay, and first of the pods that there are.
    pub async fn on_pods(&self, seen: impl Fn(&CacheEvent<Pod>) + Send + Sync + 'static) {
        let pods = self.observer.caches.of::<Pod>();
        pods.subscribe(seen);
        pods.synced().await;
    }

    /// From now on the server tells what nodes and pods use.
    pub async fn serve_metrics(&self) {
        metrics::serve(&self.server, &self.observer.caches, self.clock()).await;
    }

    /// Starts a part that does not run.
    pub fn start(&mut self, part: Part) {
        let wire = Wire::new(Arc::clone(&self.exchange), part);
        let life = Life::start(part, wire, &self.exchange.clock, &self.options);
        self.lives.insert(part, life);
    }

    /// Ends a part at once, as a crash does: nothing that it still wants to do reaches the server.
    ///
    /// # Panics
    /// When it goes on after its end.
    pub async fn kill(&mut self, part: Part) {
        let Some(life) = self.lives.remove(&part) else { return };
        life.wire.cut();
        life.wire.halt.resume();
        let late = life.tasks.shut_down(LAST_BREATH).await;
        assert!(late.is_empty(), "{part:?} did not end: {late:?}");
    }

    /// Lets time pass, in which parts that crash are started anew.
    pub async fn pass(&mut self, time: Duration) {
        let until = self.clock().now() + time;
        loop {
            let left = until.duration_since(self.clock().now());
            let Ok(left) = Duration::try_from(left) else { return };
            match timeout(left, self.calls.recv()).await {
                Ok(Some(call)) => self.answer(call).await,
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Lets time pass until nothing but leases has been written for `quiet`.
    ///
    /// # Panics
    /// When there is no end of it within two hours.
    pub async fn settle(&mut self, quiet: Duration) {
        let limit = self.clock().now() + SignedDuration::from_hours(2);
        let from = self.clock().now();
        loop {
            let now = self.clock().now();
            let quiet_at = self.log().last().max(from) + quiet;
            let Ok(left) = Duration::try_from(quiet_at.duration_since(now)) else { return };
            if left.is_zero() {
                return;
            }
            assert!(now < limit, "still busy after two hours; last:\n{}", self.log().tail(20));
            self.pass(left).await;
        }
    }

    /// Lets time pass until `holds`, which is asked again after every little while, less often the longer it takes.
    ///
    /// # Panics
    /// When it still does not hold after `limit`.
    pub async fn until(
        &mut self,
        what: &str,
        limit: Duration,
        mut holds: impl AsyncFnMut(&Requests) -> bool,
    ) {
        let begin = self.clock().now();
        while !holds(&self.requests).await {
            let taken: Duration =
                self.clock().now().duration_since(begin).try_into().unwrap_or_default();
            assert!(taken < limit, "not within {limit:?}: {what}; last:\n{}", self.log().tail(20));
            self.pass((taken / 100).max(Duration::from_millis(100))).await;
        }
    }

    /// Lets time pass in which nothing but leases must be written, and the ends of event series that were observed before.
    ///
    /// # Panics
    /// When something is.
    pub async fn stays_silent(&mut self, time: Duration) {
        let (before, begin) = (self.log().len(), self.clock().now());
        self.pass(time).await;
        let writes = self.log().since(before);
        let reactions = writes.iter().filter(|write| !write.finishes_series_of_before(begin));
        let written: Vec<String> = reactions.map(ToString::to_string).collect();
        assert!(written.is_empty(), "written at rest:\n{}", written.join("\n"));
    }

    async fn answer(&mut self, call: Call) {
        let part = match call {
            Call::Revive(part) => return self.revive(part).await,
            Call::Resume(part) | Call::Heal(part) => part,
        };
        self.clock().sleep(AWAY).await;
        let Some(life) = self.lives.get(&part) else { return };
        life.wire.halt.resume();
        life.wire.connect(true);
    }

    async fn revive(&mut self, part: Part) {
        self.crashed += 1;
        self.kill(part).await;
        self.clock().sleep(self.options.down).await;
        self.start(part);
    }
}

impl Deref for World {
    type Target = Requests;

    fn deref(&self) -> &Requests {
        &self.requests
    }
}
