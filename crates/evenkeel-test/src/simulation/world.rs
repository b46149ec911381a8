//! Server and programs in virtual time, and methods that let time pass.

use super::{
    FaultKind, Faults, Log, OBSERVER, Part, Requests, USER,
    network::{Network, OUTAGE, Settling, WorldCall},
    wire::{Watches, Wire},
};
use crate::{Program, TestServer};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::{
    client::{Client, full_text},
    clock::Clock,
    manager::Setup,
    tasks::{TaskFailure, Tasks, catch_panic},
};
use std::{collections::BTreeMap, fmt::Debug, ops::Deref, pin::pin, sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::timeout};

/// Start time of every run: 2026-01-01.
const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// Timeout for a part to end after its wire is cut.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Options of a simulation.
#[derive(Debug, Clone)]
pub struct SimulationOptions {
    /// Seed of all random decisions.
    pub seed: u64,
    /// Maximum latency of a request, and of its response.
    pub latency: Duration,
    /// Time between a crash of a part and its restart.
    pub restart_delay: Duration,
    /// Time after a restart or an outage in which the world does not count as settled, such as until an old lease
    /// expires.
    pub recovery: Duration,
}

impl Default for SimulationOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            latency: Duration::from_millis(2),
            restart_delay: Duration::from_secs(1),
            recovery: Duration::ZERO,
        }
    }
}

/// Treatment of a part by faults.
#[derive(Debug, Clone, Copy)]
pub struct PartOptions {
    /// Part under whose name writes are counted, such as one for all replicas. Default: the part itself.
    pub counted_as: Option<Part>,
    /// Whether [`Faults::max_watch_delay`] delays its watches. Default: true.
    pub delayed: bool,
}

impl Default for PartOptions {
    fn default() -> Self {
        Self { counted_as: None, delayed: true }
    }
}

/// End of a program that was not stopped. It was started again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Part whose program ended.
    pub part: Part,
    /// Time of the end.
    pub at: Timestamp,
    /// Text of the program's error.
    pub error: String,
}

/// A program, and the number of its starts.
struct Entry {
    program: Arc<dyn Program>,
    options: PartOptions,
    starts: u32,
}

/// State of a part between its start and its crash.
struct RunningPart {
    wire: Wire,
    tasks: Tasks,
}

/// Runs `test` on this thread, in a new runtime whose time is paused.
///
/// # Panics
/// Panics if `test` panics.
pub fn in_virtual_time<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without drivers of its own can be built");
    runtime.block_on(test)
}

/// Runs a scenario once per write of `part`, with a fault of this kind at that write, until a run has fewer writes. `run`
/// returns the number of the part's writes. Returns the number of runs.
pub fn each_write(part: Part, kind: FaultKind, mut run: impl FnMut(Faults) -> u64) -> u64 {
    let mut at = 0;
    loop {
        at += 1;
        if run(Faults::single(part, at, kind)) < at {
            return at;
        }
    }
}

/// An API server with programs around it. It derefs to the requests of the test's user.
pub struct Simulation {
    options: SimulationOptions,
    network: Arc<Network>,
    programs: BTreeMap<Part, Entry>,
    running: BTreeMap<Part, RunningPart>,
    /// Requests of the wires, such as to restart a part.
    calls: mpsc::UnboundedReceiver<WorldCall>,
    crashed: u64,
    exits: Vec<Exit>,
    requests: Requests,
    server: TestServer,
}

impl Simulation {
    /// Returns the clock that the server of a simulation with this seed needs. Call it in the runtime of the run.
    pub fn clock_of_run(seed: u64) -> Clock {
        Clock::seeded(START, seed)
    }

    /// Creates a simulation of a server that has the clock of [`Simulation::clock_of_run`], without programs.
    pub fn new(server: TestServer, options: SimulationOptions) -> Self {
        let clock = server.clock().clone();
        let (sender, calls) = mpsc::unbounded_channel();
        let (api, log) = (server.server().clone(), Log::new(START));
        let SimulationOptions { latency, recovery, .. } = options;
        let network = Network::new(api, clock.clone(), log, latency, recovery, sender);
        let network = Arc::new(network);
        let wire = Wire::new(Arc::clone(&network), USER, USER, Watches::Untouched);
        let user = Client::builder(wire.kube(), clock).user_agent(USER.name());
        Self {
            options,
            network,
            programs: BTreeMap::new(),
            running: BTreeMap::new(),
            calls,
            crashed: 0,
            exits: Vec::new(),
            requests: Requests(user.build()),
            server,
        }
    }

    /// Returns the server.
    pub fn server(&self) -> &TestServer {
        &self.server
    }

    /// Returns the requests of the test's user.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Returns a client of the test's user. Its writes are logged, and no fault hits it.
    pub fn client(&self) -> kube::Client {
        self.client_of(USER)
    }

    /// Returns a client of an observer, which only reads.
    pub fn observer(&self) -> kube::Client {
        self.client_of(OBSERVER)
    }

    fn client_of(&self, part: Part) -> kube::Client {
        Wire::new(Arc::clone(&self.network), part, part, Watches::Untouched).kube()
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

    /// Returns the programs that ended by themselves so far.
    pub fn exits(&self) -> &[Exit] {
        &self.exits
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

    /// Adds a program without starting it.
    pub fn add(&mut self, part: Part, program: Arc<dyn Program>, options: PartOptions) {
        self.programs.insert(part, Entry { program, options, starts: 0 });
    }

    /// Starts a part that is not running, without state of earlier starts. Each start has its own identity in leader
    /// election.
    ///
    /// # Panics
    /// Panics if no program was added for the part.
    pub fn start(&mut self, part: Part) {
        let entry = self.programs.get_mut(&part);
        let entry = entry.unwrap_or_else(|| panic!("there is no program {part}"));
        entry.starts += 1;
        let watches = if entry.options.delayed { Watches::Delayed } else { Watches::Breakable };
        let counted_as = entry.options.counted_as.unwrap_or(part);
        let wire = Wire::new(Arc::clone(&self.network), part, counted_as, watches);
        let identity = format!("{part}_{}", entry.starts);
        let setup = Setup::simulated(self.network.clock.clone(), &identity);
        let tasks = Tasks::new();
        let (program, client, stop) = (Arc::clone(&entry.program), wire.kube(), tasks.token());
        let run = {
            let (wire, stop) = (wire.clone(), stop.clone());
            async move {
                let started = async { program.start(client, setup, stop.clone()).await };
                let error = match catch_panic(started).await {
                    Ok(Ok(())) => "it ended".to_owned(),
                    Ok(Err(error)) => full_text(&*error),
                    Err(panic) => format!("panic: {panic}"),
                };
                if !stop.is_cancelled() {
                    wire.ended(error);
                }
            }
        };
        tasks.spawn_finite(part.name(), wire.halt.over(run));
        self.running.insert(part, RunningPart { wire, tasks });
    }

    /// Ends a part like a crash: none of its further requests reaches the server.
    ///
    /// # Panics
    /// Panics if a task of the part still runs after half a minute.
    pub async fn kill(&mut self, part: Part) {
        let Some(running_part) = self.running.remove(&part) else { return };
        running_part.wire.cut();
        running_part.wire.halt.resume();
        let late = running_part.tasks.shut_down(SHUTDOWN_TIMEOUT).await;
        assert!(late.is_empty(), "{part} did not end: {late:?}");
    }

    /// Advances the time. Meanwhile, restarts parts that crash or end, and ends pauses and disconnections.
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

    /// Lets time pass until no part has written anything but leases for `quiet`, and all have recovered.
    ///
    /// # Panics
    /// Panics if that takes more than two hours.
    pub async fn settle(&mut self, quiet: Duration) {
        let from = self.clock().now();
        loop {
            let left = self.network.unsettled(from, quiet);
            if left.is_zero() {
                return;
            }
            self.pass(left).await;
        }
    }

    /// Returns a handle that waits until the simulation has settled, for work of [`Simulation::beside`].
    pub fn settling(&self) -> Settling {
        Settling(Arc::clone(&self.network))
    }

    /// Performs this work of the user. Meanwhile, restarts parts as [`Simulation::pass`] does.
    pub async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            let call = tokio::select! {
                biased;
                result = &mut work => return result,
                call = self.calls.recv() => call,
            };
            // The network of this simulation has the sender.
            let Some(call) = call else { return work.await };
            let mut execution = pin!(self.execute(call));
            let early = tokio::select! {
                biased;
                result = &mut work => Some(result),
                () = &mut execution => None,
            };
            if let Some(result) = early {
                execution.await;
                return result;
            }
        }
    }

    /// Lets time pass until `holds` returns true. Calls `holds` every 100 ms at first, later after each hundredth
    /// of the elapsed time.
    ///
    /// # Panics
    /// Panics if `holds` does not return true within `limit`.
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
    /// Panics if a part writes anything else.
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
        match call {
            WorldCall::Restart(part) => self.restart(part).await,
            WorldCall::RestartStale(part, revision) => {
                self.restart(part).await;
                if let Some(running_part) = self.running.get(&part) {
                    running_part.wire.begin_stale(revision);
                }
            }
            WorldCall::Ended(part, error) => {
                self.exits.push(Exit { part, at: self.clock().now(), error });
                self.restart(part).await;
            }
            WorldCall::Resume(part) | WorldCall::Reconnect(part) => {
                self.clock().sleep(OUTAGE).await;
                if let Some(running_part) = self.running.get(&part) {
                    running_part.wire.halt.resume();
                    running_part.wire.connect(true);
                }
            }
        }
        self.network.note_executed();
    }

    async fn restart(&mut self, part: Part) {
        self.crashed += 1;
        self.kill(part).await;
        self.clock().sleep(self.options.restart_delay).await;
        self.start(part);
    }
}

impl Deref for Simulation {
    type Target = Requests;

    fn deref(&self) -> &Requests {
        &self.requests
    }
}
