//! Leader election: two or three managers, whose leader writes continuously.
//!
//! | promise | checked by |
//! |---|---|
//! | the fences of two processes are never open at the same time | `Leaders::look` |
//! | a leader sends a write only within its renew deadline after it sent a renewal that the server accepted | `History::sent` |
//! | all writes of one leader are sent before the first write of the next one | `History::sent` |
//! | writes with a precondition are accepted in the order of the leaders | `History::served` |
//! | a write without a precondition that arrives late was sent before the next leader's first write | `History::served` |
//! | a process that cannot renew stops its work | `Leaders::look` |
//! | without disturbances, a process leads within the bound | `Leaders::look` |
//! | a released lease is acquired within one retry | `Leaders::look` |
//!
//! A process whose clock is faster or slower is one whose durations are shorter or longer by the server's clock.

use crate::{
    network::{Check, LEASES, Network, Sent},
    seeds::{Run, Seeds, count_failures, run_all, run_one},
    world::{Program, Schedule, Start, World},
};
use evenkeel_api::{Kind, time::Timestamp};
use evenkeel_runtime::{
    client::{Client, LeaderFence, Metadata},
    clock::Clock,
    leaderelection::Config,
    manager::{Manager, RunContext, RunnableGroup},
    plan::PatchType,
    tasks::Tasks,
};
use http::Method;
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

const MAPS: Kind = Kind::new("", "v1", "ConfigMap", "configmaps", true);

/// In the known seeds, a paused leader acquired the lease again after another process had acquired and released it.
const SEEDS: Seeds = Seeds { name: "ELECTION", runs: 300, known: &[848, 7265] };

/// Object that the leader replaces, with its resourceVersion as precondition.
const GUARDED: &str = "guarded";
/// Object that the leader patches without a precondition.
const UNGUARDED: &str = "unguarded";

/// A planted defect, to show that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// The leader writes with a client that has no fence.
    NoFence,
    /// The leader continues for three renew deadlines.
    RenewDeadlineIgnored,
    /// A candidate waits for a fifth of the lease duration.
    EarlyTakeover,
    /// One clock is twice as fast as another, which exceeds the bound of 1.5.
    ClocksTooDifferent,
}

/// Candidates of a run.
struct Candidates {
    defect: Defect,
    /// Lease duration of each place in seconds by the server's clock. The other durations have the same ratio.
    seconds: Vec<u64>,
    history: Arc<Mutex<Shared>>,
}

/// Parts of the history that both the checks of requests and the periodic checks need.
#[derive(Default)]
struct Shared {
    violations: Vec<String>,
    /// Time at which each process sent its last accepted renewal.
    renewals: BTreeMap<usize, Instant>,
    /// Renew deadline of each process.
    deadlines: BTreeMap<usize, Duration>,
    /// Time at which the lease was last released; `None` once a process leads.
    released: Option<Instant>,
    history: DefaultHasher,
    leaders: BTreeSet<usize>,
    late_writes: u64,
}

impl Shared {
    fn violated(&mut self, what: String) {
        if self.violations.len() < 5 {
            self.violations.push(what);
        }
    }
}

/// Order of the processes in one series of writes.
#[derive(Default)]
struct Terms {
    current: Option<usize>,
    ended: BTreeSet<usize>,
}

impl Terms {
    /// Returns whether a write of this process continues the order.
    fn add(&mut self, process: usize) -> bool {
        if self.current == Some(process) {
            return true;
        }
        self.ended.extend(self.current);
        self.current = Some(process);
        !self.ended.contains(&process)
    }
}

struct History {
    shared: Arc<Mutex<Shared>>,
    sent: Terms,
    accepted: Terms,
    /// Time at which the first write of the current leader was sent.
    first_sent: Instant,
    begin: Instant,
}

fn is_write(request: &Sent) -> bool {
    request.path.resource == "v1/configmaps" && request.method != Method::GET
}

impl Check for History {
    fn sent(&mut self, request: &Sent) {
        if !is_write(request) {
            return;
        }
        let (process, at) = (request.process, request.at);
        let mut shared = self.shared.lock().unwrap();
        let known = self.sent.current;
        if known != Some(process) {
            self.first_sent = at;
        }
        let passed = at - self.begin;
        if !self.sent.add(process) {
            shared.violated(format!("{passed:?}: {process} sends after the leader {known:?}"));
        }
        shared.leaders.insert(process);
        shared.released = None;
        let renewal = shared.renewals.get(&process).copied();
        let deadline = shared.deadlines.get(&process).copied().unwrap_or_default();
        if renewal.is_none_or(|renewal| at >= renewal + deadline) {
            let age = renewal.map(|renewal| at - renewal);
            shared.violated(format!("{passed:?}: {process} writes {age:?} after its last renewal"));
        }
    }

    fn served(&mut self, request: &Sent, code: u16) {
        let process = request.process;
        let mut shared = self.shared.lock().unwrap();
        let passed = Clock::system().instant() - self.begin;
        (process, request.method.as_str(), request.path.key(), code).hash(&mut shared.history);
        passed.hash(&mut shared.history);
        if code >= 300 {
            return;
        }
        if request.path.resource == LEASES && request.method != Method::GET {
            if request.body["spec"]["holderIdentity"] == "" {
                shared.released = Some(self.begin + passed);
            } else {
                let renewal = shared.renewals.entry(process).or_insert(request.at);
                *renewal = request.at.max(*renewal);
            }
        }
        if !is_write(request) {
            return;
        }
        let is_guarded = request.path.name.as_deref() == Some(GUARDED);
        let known = self.accepted.current;
        if is_guarded && !self.accepted.add(process) {
            shared.violated(format!("{passed:?}: {process} is accepted after {known:?}"));
        }
        if !is_guarded && self.sent.current != Some(process) {
            shared.late_writes += 1;
            if request.at >= self.first_sent {
                let sent = request.at - self.begin;
                shared.violated(format!("{passed:?}: {process} sent at {sent:?}, too late"));
            }
        }
    }
}

/// Part of a candidate that the periodic checks read.
struct Handle {
    fence: LeaderFence,
    /// Milliseconds since the epoch of the run at which the work of the leader last ran a step; 0 for never.
    worked: Arc<AtomicU64>,
    config: Config,
}

impl Program for Candidates {
    type Handle = Handle;

    fn seconds(&self, place: usize) -> (i64, i64) {
        let Some(seconds) = self.seconds.get(place) else { return (0, 0) };
        let seconds = i64::try_from(*seconds).unwrap();
        match self.defect {
            Defect::EarlyTakeover => (seconds, seconds / 5),
            // The process writes the common duration, but continues for its own.
            Defect::RenewDeadlineIgnored => (3 * seconds, seconds),
            _ => (seconds, seconds),
        }
    }

    fn start(&self, start: Start) -> (Manager, Handle) {
        let Start { number, place, identity, link, clock } = start;
        let own = Duration::from_secs(self.seconds[place]);
        let slower = if self.defect == Defect::RenewDeadlineIgnored { 3 } else { 1 };
        let config = Config {
            lease_duration: own * slower,
            renew_deadline: own * slower * 2 / 3,
            retry_period: own * 2 / 15,
            ..Config::new("system", "test", &identity)
        };
        self.history.lock().unwrap().deadlines.insert(number, own * 2 / 3);
        let manager = Manager::builder(link.kube())
            .clock(clock.clone())
            .election(config.clone())
            .build()
            .unwrap();
        let worked = Arc::new(AtomicU64::new(0));
        let client = match self.defect {
            Defect::NoFence => manager.unfenced_client().clone(),
            _ => manager.env().client.clone(),
        };
        let handle = Handle { fence: manager.fence(), worked: Arc::clone(&worked), config };
        manager.add(RunnableGroup::LeaderElection, "writer", move |context| async move {
            lead(&context, &client, &worked).await;
            Ok(())
        });
        (manager, handle)
    }
}

/// Work of the leader: writes to both objects repeatedly.
async fn lead(context: &RunContext, client: &Client, worked: &AtomicU64) {
    let mut known = None::<String>;
    for n in 1_u64.. {
        worked.store(n, Ordering::Relaxed);
        if known.is_none() {
            let read = client.get_metadata(&MAPS, "system", GUARDED).await;
            known = read.ok().map(|map| map.meta.resource_version.to_string());
        }
        if let Some(version) = known.take() {
            let metadata =
                json!({"namespace": "system", "name": GUARDED, "resourceVersion": version});
            let body = json!({"metadata": metadata, "data": {"n": n.to_string()}}).to_string();
            let written =
                client.update::<Metadata>(&MAPS, "system", GUARDED, "", body.into()).await;
            known = written.ok().map(|map| map.meta.resource_version.to_string());
        }
        let body = json!({"data": {"n": n.to_string()}}).to_string();
        let form = PatchType::Merge;
        // A lost response needs no second attempt.
        let _ = client.patch::<Metadata>(&MAPS, "system", UNGUARDED, "", form, body.into()).await;
        let pause = client.clock().sleep(Duration::from_millis(700));
        if context.token().run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}

/// Checks the processes in each tick.
struct Leaders {
    shared: Arc<Mutex<Shared>>,
    begin: Instant,
    /// Maximum lease duration of the candidates.
    longest: Duration,
    /// The last step of each leader's work, and the time when it was observed.
    steps: BTreeMap<usize, (u64, Instant)>,
    /// Time since which no process leads.
    vacant: Instant,
}

impl Leaders {
    fn look(&mut self, world: &mut World<Candidates>) {
        let now = world.now();
        let passed = now - self.begin;
        let open: Vec<usize> = world
            .processes
            .iter()
            .filter(|process| process.program.fence.allows_writes())
            .map(|process| process.number)
            .collect();
        let mut shared = self.shared.lock().unwrap();
        if open.len() > 1 {
            shared.violated(format!("{passed:?}: the fences of {open:?} are open"));
        }
        if !open.is_empty() || !world.processes.iter().any(|process| !process.stopping) {
            self.vacant = now;
        }
        let (lease, retry) = (self.longest, self.longest * 2 / 15);
        let longest_wait = retry.mul_f64(2.2);
        // A request may hang for half the renew deadline, twice; the lease is observed, expires, and is acquired.
        let bound = lease * 2 / 3 + longest_wait * 2 + lease + Duration::from_secs(2);
        if now - self.vacant.max(world.disturbed) > bound {
            shared
                .violated(format!("{passed:?}: nobody leads {bound:?} after the last disturbance"));
            self.vacant = now;
        }
        let standby = world.processes.iter().any(|process| {
            !process.stopping && now - process.started > longest_wait + Duration::from_secs(1)
        });
        if let Some(released) = shared.released
            && standby
            && open.is_empty()
            && released.min(self.vacant) > world.unplanned
            && now - released > longest_wait + Duration::from_secs(2)
        {
            shared.violated(format!("{passed:?}: nobody acquired the released lease"));
            shared.released = None;
        }
        for process in &world.processes {
            let step = process.program.worked.load(Ordering::Relaxed);
            let seen = self.steps.entry(process.number).or_insert((step, now));
            if seen.0 == step || process.paused {
                continue;
            }
            *seen = (step, now);
            let Config { renew_deadline, retry_period, .. } = &process.program.config;
            let limit = renew_deadline.mul_f64(1.5) + *retry_period + Duration::from_secs(2);
            let renewal = shared.renewals.get(&process.number).copied();
            let since = renewal.unwrap_or(process.started).max(process.resumed);
            if now - since > limit {
                let number = process.number;
                shared.violated(format!("{passed:?}: {number} works {limit:?} without renewal"));
            }
        }
    }
}

async fn simulate(seed: u64, defect: Defect) -> Run {
    let mut rng = SmallRng::seed_from_u64(seed);
    // Less than 1.5 between the fastest and the slowest clock.
    let clocks = if defect == Defect::ClocksTooDifferent { 12..=24 } else { 13..=19 };
    let n = rng.random_range(2..=3);
    let mut seconds: Vec<u64> = (0..n).map(|_| rng.random_range(clocks.clone())).collect();
    if defect == Defect::ClocksTooDifferent {
        (seconds[0], seconds[1]) = (24, 12);
    }
    let clock = Clock::seeded(Timestamp::from_second(1_767_225_600).unwrap(), seed);
    let tasks = Tasks::new();
    let (begin, shared) = (clock.instant(), Arc::new(Mutex::new(Shared::default())));
    let check = History {
        shared: Arc::clone(&shared),
        sent: Terms::default(),
        accepted: Terms::default(),
        first_sent: begin,
        begin,
    };
    let net = Network::new(seed, clock, &tasks, Box::new(check));
    for name in [GUARDED, UNGUARDED] {
        let map = json!({"metadata": {"namespace": "system", "name": name}});
        net.store.lock().unwrap().put("v1/configmaps", map);
    }
    let schedule = Schedule::draw(&mut rng, n, Duration::from_secs(150), Duration::from_secs(90));
    let longest = Duration::from_secs(seconds.iter().copied().max().unwrap_or_default());
    let candidates = Candidates { defect, seconds, history: Arc::clone(&shared) };
    let mut world = World::new(seed, Arc::clone(&net), tasks.clone(), candidates);
    let (steps, vacant) = (BTreeMap::new(), begin);
    let mut leaders = Leaders { shared: Arc::clone(&shared), begin, longest, steps, vacant };
    world.run(&schedule, |world| leaders.look(world)).await;
    let shared = shared.lock().unwrap();
    let mut counts = std::mem::take(&mut world.counts);
    let requests = net.requests.load(Ordering::Relaxed);
    for (what, count) in [
        ("leaders", shared.leaders.len() as u64),
        ("late writes", shared.late_writes),
        ("requests", requests),
    ] {
        counts.insert(what.to_owned(), count);
    }
    Run { violations: shared.violations.clone(), counts, history: shared.history.finish() }
}

#[test]
fn there_is_one_leader_whatever_happens() {
    let counts = run_all(&SEEDS, async |seed| simulate(seed, Defect::None).await);
    for what in ["Crash", "Pause", "Cut", "Stop", "late writes", "ended unasked"] {
        let is_long = counts.get("requests").is_some_and(|requests| *requests > 150_000);
        assert!(!is_long || counts.contains_key(what), "{what} never happened");
    }
}

#[test]
fn a_run_repeats_by_its_seed() {
    for seed in 0..5 {
        let run = || run_one(seed, &async |seed| simulate(seed, Defect::None).await).history;
        assert_eq!(run(), run(), "seed {seed}");
    }
}

#[test]
fn planted_defects_are_found() {
    for defect in [
        Defect::NoFence,
        Defect::RenewDeadlineIgnored,
        Defect::EarlyTakeover,
        Defect::ClocksTooDifferent,
    ] {
        let failures = count_failures(60, async |seed| simulate(seed, defect).await);
        println!("{defect:?}: found in {failures} of 60 runs");
        assert!(failures > 0, "{defect:?} is not found");
    }
}
