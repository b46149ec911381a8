//! Sharding: two or three managers that split twelve objects, and write for each object continuously.
//!
//! | promise | checked by |
//! |---|---|
//! | no two processes hold the shard of an object at the same time | `Looks::look` |
//! | no pass continues after a pass of another process has begun for the same object | `Shared::step`, at each step and each write |
//! | a write is sent only while the shard's Lease names its process | `History::sent` |
//! | a write is sent only within the renew deadline after the process sent a renewal that the server accepted | `History::sent` |
//! | without disturbances, each object is served within the bound | `Looks::look` |
//! | in a graceful hand-over, each object is served again within a lease duration | `Looks::look` |
//!
//! In every other run, caches hold only the served objects: a process must list the objects of a shard before it serves them.
//! In some runs one process has another number of shards. A process whose clock is faster or slower is one whose durations are
//! shorter or longer by the server's clock.

use crate::{
    network::{Check, LEASES, Network, Sent},
    seeds::{Run, Seeds, first_failure, run_all, run_one},
    world::{Disturbance, Episode, Program, Schedule, Start, World},
};
use evenkeel_api::{Kind, time::Timestamp};
use evenkeel_runtime::{
    client::Metadata,
    clock::Clock,
    plan::PatchType,
    prelude::*,
    sharding::{Defect, Shards},
    tasks::Tasks,
};
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use serde_json::json;
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, atomic::Ordering},
};
use tokio::time::Instant;

const SECRETS: Kind = Kind::new("", "v1", "Secret", "secrets", true);
const SEEDS: Seeds = Seeds { name: "SHARDING", runs: 8, known: &[5366, 1273] };
const OBJECTS: usize = 12;

/// Maximum number of runs with each planted defect.
const RUNS_WITH_DEFECT: u64 = 60;

/// A planted defect, to show that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planted {
    None,
    In(Defect),
    /// One clock is twice as fast as another, which exceeds the bound of 1.5.
    ClocksTooDifferent,
}

/// A process and its pass over an object.
type Pass = (usize, u64);

/// State that the programs and the checks of a run share.
struct Shared {
    violations: Vec<String>,
    begin: Instant,
    /// Each process' identity, shards and renew deadline.
    processes: BTreeMap<usize, (String, Shards, Duration)>,
    /// Time at which each process sent its last accepted renewal.
    renewals: BTreeMap<usize, Instant>,
    /// Holder of each shard's Lease.
    holders: BTreeMap<String, String>,
    /// The latest pass over each object.
    passes: BTreeMap<String, Pass>,
    /// Time at which a write for each object was last sent.
    served: BTreeMap<String, Instant>,
    next_pass: u64,
    history: DefaultHasher,
    hand_overs: u64,
    late_writes: u64,
}

impl Shared {
    fn violated(&mut self, what: &str) {
        if self.violations.len() < 5 {
            let passed = Clock::system().instant() - self.begin;
            self.violations.push(format!("{passed:?}: {what}"));
        }
    }

    /// Records that a pass continues.
    fn step(&mut self, object: &str, pass: Pass) {
        let last = self.passes.get(object).copied();
        if last != Some(pass) {
            self.violated(&format!("{pass:?} goes on at {object} after {last:?} has begun"));
        }
    }

    /// Returns whether the Lease of the object's shard names the process.
    fn is_held(&self, object: &str, process: usize) -> bool {
        let Some((identity, shards, _)) = self.processes.get(&process) else { return false };
        let shard = shards.shard_of(&Key::new("system", object));
        self.holders.get(&format!("test-shard-{shard}")) == Some(identity)
    }
}

/// State that the passes of one process share.
struct Worker {
    process: usize,
    shared: Arc<Mutex<Shared>>,
}

impl Worker {
    fn begin(&self, object: &str) -> u64 {
        let mut shared = self.shared.lock().unwrap();
        shared.next_pass += 1;
        let pass = (self.process, shared.next_pass);
        let last = shared.passes.insert(object.to_owned(), pass);
        shared.hand_overs += u64::from(last.is_some_and(|last| last.0 != pass.0));
        pass.1
    }

    fn step(&self, object: &str, pass: u64) {
        self.shared.lock().unwrap().step(object, (self.process, pass));
    }
}

/// Pass that writes several times, for milliseconds or for as long as a lease.
async fn reconcile(map: Arc<ConfigMap>, cx: Context<Worker>) -> Result<Outcome> {
    let (worker, object) = (cx.state(), map.metadata.name.clone().unwrap_or_default());
    let pass = worker.begin(&object);
    let length = cx.clock().draw(&(&object, pass));
    let (steps, pause) = match length {
        ..0.8 => (2, 0.2),
        ..0.95 => (3, 1.5),
        _ => (6, 3.0),
    };
    for step in 0..steps {
        worker.step(&object, pass);
        let body = json!({"data": {"process": worker.process, "pass": pass, "step": step}});
        let (client, form) = (&cx.inner().env.client, PatchType::Merge);
        let body = body.to_string().into();
        // A lost response needs no second attempt.
        let _ = client.patch::<Metadata>(&SECRETS, "system", &object, "", form, body).await;
        worker.step(&object, pass);
        cx.clock().sleep(Duration::from_secs_f64(pause)).await;
    }
    worker.step(&object, pass);
    Ok(Outcome::again(Duration::from_millis(700)))
}

/// Members of a run.
struct Members {
    planted: Planted,
    /// Lease duration of each place in seconds by the server's clock. The other durations have the same ratio.
    seconds: Vec<u64>,
    /// Number of shards of each place.
    counts: Vec<u32>,
    /// Whether caches hold only the served objects.
    sharded_watch: bool,
    shared: Arc<Mutex<Shared>>,
}

impl Program for Members {
    type Handle = Shards;

    fn seconds(&self, place: usize) -> (i64, i64) {
        let seconds = self.seconds.get(place).copied().unwrap_or_default();
        let seconds = i64::try_from(seconds).unwrap();
        (seconds, seconds)
    }

    fn start(&self, start: Start) -> (Manager, Shards) {
        let Start { number, place, identity, link, clock } = start;
        let own = Duration::from_secs(self.seconds[place]);
        let mut sharding = Sharding::new("test", self.counts[place])
            .by(ShardBy::Object)
            .lease_duration(own)
            .renew_deadline(own * 2 / 3)
            .retry_period(own * 2 / 15);
        if self.sharded_watch {
            sharding = sharding.sharded_watch::<ConfigMap>();
        }
        if let Planted::In(defect) = self.planted {
            sharding = sharding.plant(defect);
        }
        let manager = Manager::builder(link.kube())
            .setup(Setup::simulated(clock, &identity))
            .sharding(sharding)
            .build()
            .unwrap();
        let shards = manager.env().shards.clone().unwrap();
        self.shared
            .lock()
            .unwrap()
            .processes
            .insert(number, (identity, shards.clone(), own * 2 / 3));
        manager
            .controller::<ConfigMap>()
            .max_concurrent(OBJECTS)
            .state(Worker { process: number, shared: Arc::clone(&self.shared) })
            .reconcile(reconcile);
        (manager, shards)
    }
}

/// Checks of the requests.
struct History(Arc<Mutex<Shared>>);

impl Check for History {
    fn sent(&mut self, request: &Sent) {
        if request.path.resource != "v1/secrets" || request.method == Method::GET {
            return;
        }
        let mut shared = self.0.lock().unwrap();
        let (process, at) = (request.process, request.at);
        let object = request.path.name.clone().unwrap_or_default();
        let pass = request.body["data"]["pass"].as_u64().unwrap_or_default();
        shared.step(&object, (process, pass));
        if !shared.is_held(&object, process) {
            shared
                .violated(&format!("{process} writes for {object}, whose shard it does not hold"));
        }
        let renewal = shared.renewals.get(&process).copied();
        let deadline = shared.processes.get(&process).map(|(.., deadline)| *deadline);
        if renewal.zip(deadline).is_none_or(|(renewal, deadline)| at >= renewal + deadline) {
            let age = renewal.map(|renewal| at - renewal);
            shared.violated(&format!("{process} writes {age:?} after its last renewal"));
        }
        shared.served.insert(object, at);
    }

    fn served(&mut self, request: &Sent, code: u16) {
        let mut shared = self.0.lock().unwrap();
        let passed = Clock::system().instant() - shared.begin;
        let key = request.path.key();
        (request.process, request.method.as_str(), &key, code, passed).hash(&mut shared.history);
        if code >= 300 || request.method == Method::GET {
            return;
        }
        let object = request.path.name.clone();
        if request.path.resource == LEASES {
            let created = request.body["metadata"]["name"].as_str().map(str::to_owned);
            let name = object.or(created).unwrap_or_default();
            if name.starts_with("test-shard-") {
                let holder = request.body["spec"]["holderIdentity"].as_str().unwrap_or_default();
                shared.holders.insert(name, holder.to_owned());
            } else if request.method != Method::DELETE {
                let renewal = shared.renewals.entry(request.process).or_insert(request.at);
                *renewal = request.at.max(*renewal);
            }
        } else if !shared.is_held(&object.unwrap_or_default(), request.process) {
            shared.late_writes += 1;
        }
    }
}

/// Checks the processes in each tick.
struct Looks {
    shared: Arc<Mutex<Shared>>,
    /// Maximum lease duration of the members.
    longest: Duration,
    /// Whether all members have the same number of shards.
    is_uniform: bool,
    /// Time since which a process runs that is not stopping.
    staffed: Option<Instant>,
}

impl Looks {
    fn look(&mut self, world: &mut World<Members>) {
        let now = world.now();
        let mut shared = self.shared.lock().unwrap();
        let longest = self.longest;
        let is_staffed = world.processes.iter().any(|process| !process.stopping);
        self.staffed = if is_staffed { self.staffed.or(Some(now)) } else { None };
        let held: Vec<(usize, Shards, Vec<u32>)> = world
            .processes
            .iter()
            .map(|process| (process.number, process.program.clone(), process.program.held()))
            .collect();
        // A request may hang for half the renew deadline, and fail late; the lease is observed, and expires; a pass ends.
        let bound = longest * 3 + Duration::from_secs(35);
        for object in (0..OBJECTS).map(name) {
            let key = Key::new("system", &object);
            let holders: Vec<usize> = held
                .iter()
                .filter(|(_, shards, held)| held.contains(&shards.shard_of(&key)))
                .map(|(number, ..)| *number)
                .collect();
            if holders.len() > 1 {
                shared.violated(&format!("{holders:?} hold the shard of {object}"));
            }
            let Some(staffed) = self.staffed else { continue };
            let begin = shared.begin;
            let served = shared.served.get(&object).copied();
            let since = served.unwrap_or(begin);
            if now - since.max(world.disturbed).max(staffed) > bound {
                let since = since - begin;
                shared.violated(&format!("{object} was last served at {since:?}"));
                shared.served.insert(object, now);
            } else if self.is_uniform
                && served.is_some()
                && since > world.unplanned + bound
                && since > staffed + bound
                && now - since > longest
            {
                let since = since - begin;
                shared.violated(&format!("{object} was last served at {since:?}, in all order"));
                shared.served.insert(object, now);
            }
        }
    }
}

fn name(n: usize) -> String {
    format!("object-{n}")
}

async fn simulate(seed: u64, planted: Planted) -> Run {
    let mut rng = SmallRng::seed_from_u64(seed);
    // Less than 1.5 between the fastest and the slowest clock.
    let clocks = if planted == Planted::ClocksTooDifferent { 12..=24 } else { 13..=19 };
    let n = rng.random_range(2..=3);
    let mut seconds: Vec<u64> = (0..n).map(|_| rng.random_range(clocks.clone())).collect();
    if planted == Planted::ClocksTooDifferent {
        (seconds[0], seconds[1]) = (24, 12);
    }
    let mut counts = vec![6; n];
    if rng.random_bool(0.15) {
        counts[0] = 4;
    }
    let is_uniform = counts.iter().all(|count| *count == counts[0]);
    let clock = Clock::seeded(Timestamp::from_second(1_767_225_600).unwrap(), seed);
    let (tasks, begin) = (Tasks::new(), clock.instant());
    let shared = Arc::new(Mutex::new(Shared {
        violations: Vec::new(),
        begin,
        processes: BTreeMap::new(),
        renewals: BTreeMap::new(),
        holders: BTreeMap::new(),
        passes: BTreeMap::new(),
        served: BTreeMap::new(),
        next_pass: 0,
        history: DefaultHasher::new(),
        hand_overs: 0,
        late_writes: 0,
    }));
    let net = Network::new(seed, clock, &tasks, Box::new(History(Arc::clone(&shared))));
    for object in (0..OBJECTS).map(name) {
        let object = json!({"metadata": {"namespace": "system", "name": object}});
        let mut store = net.store.lock().unwrap();
        store.put("v1/configmaps", object.clone());
        store.put("v1/secrets", object);
    }
    let mut schedule =
        Schedule::draw(&mut rng, n, Duration::from_secs(150), Duration::from_secs(120));
    if planted == Planted::In(Defect::ExpiryFromAnswer) {
        // The responses to renewals arrive late, or not at all.
        let (from, to) = (Duration::from_secs(20), Duration::from_secs(140));
        for place in 0..n {
            let kinds = [Disturbance::Slow, Disturbance::LostAnswers];
            schedule.episodes.extend(kinds.map(|kind| Episode { place, kind, from, to }));
        }
    }
    let longest = Duration::from_secs(seconds.iter().copied().max().unwrap_or_default());
    // In every other run, caches hold only the served objects.
    let sharded_watch = seed % 2 == 1 && planted == Planted::None;
    let members = Members { planted, seconds, counts, sharded_watch, shared: Arc::clone(&shared) };
    let mut world = World::new(seed, Arc::clone(&net), tasks.clone(), members);
    let mut looks = Looks { shared: Arc::clone(&shared), longest, is_uniform, staffed: None };
    world.run(&schedule, |world| looks.look(world)).await;
    let shared = shared.lock().unwrap();
    let mut counts = std::mem::take(&mut world.counts);
    let requests = net.requests.load(Ordering::Relaxed);
    for (what, count) in [
        ("passes", shared.next_pass),
        ("hand-overs", shared.hand_overs),
        ("late writes", shared.late_writes),
        ("requests", requests),
    ] {
        counts.insert(what.to_owned(), count);
    }
    Run { violations: shared.violations.clone(), counts, history: shared.history.finish() }
}

#[test]
fn no_two_work_on_one_object_whatever_happens() {
    let counts = run_all(&SEEDS, async |seed| simulate(seed, Planted::None).await);
    for what in ["Crash", "Pause", "Cut", "Stop", "late writes", "hand-overs"] {
        let is_long = counts.get("requests").is_some_and(|requests| *requests > 300_000);
        assert!(!is_long || counts.contains_key(what), "{what} never happened");
    }
}

#[test]
fn a_run_of_shards_repeats_by_its_seed() {
    for seed in 0..2 {
        let run = || run_one(seed, &async |seed| simulate(seed, Planted::None).await).history;
        assert_eq!(run(), run(), "seed {seed}");
    }
}

#[test]
fn planted_defects_of_sharding_are_found() {
    for planted in [
        Planted::In(Defect::NoFence),
        Planted::In(Defect::ReleaseBeforeDrain),
        Planted::In(Defect::ExpiryFromAnswer),
        Planted::In(Defect::TermsOutliveLapse),
        Planted::In(Defect::EarlyTakeover),
        Planted::In(Defect::NoReplay),
        Planted::ClocksTooDifferent,
    ] {
        let failure = first_failure(RUNS_WITH_DEFECT, async |seed| simulate(seed, planted).await);
        println!("{planted:?}: found with seed {failure:?}");
        assert!(failure.is_some(), "{planted:?} is not found");
    }
}
