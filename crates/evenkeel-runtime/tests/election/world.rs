//! Processes of a run, and their disturbances: pauses, cut links, lost requests and responses, slow and late requests, errors,
//! crashes, graceful stops, and restarts with the same or another identity.

use crate::network::{Condition, Link, Network};
use evenkeel_runtime::{
    clock::Clock,
    manager::Manager,
    tasks::{Halt, Tasks},
};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum time between two checks of the processes.
const MAX_TICK: Duration = Duration::from_millis(250);

/// What befalls a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Disturbance {
    Pause,
    Cut,
    LostRequests,
    LostAnswers,
    Refusals,
    Slow,
    Late,
    /// The process stops gracefully, and another one replaces it.
    Stop,
    /// The process stops gracefully, and is not replaced during the run.
    Leave,
    /// The process crashes, and starts again with another identity.
    Crash,
    /// The process crashes, and starts again with the same identity.
    CrashSameIdentity,
}

impl Disturbance {
    const ALL: [Self; 11] = [
        Self::Pause,
        Self::Cut,
        Self::LostRequests,
        Self::LostAnswers,
        Self::Refusals,
        Self::Slow,
        Self::Late,
        Self::Stop,
        Self::Leave,
        Self::Crash,
        Self::CrashSameIdentity,
    ];

    /// Graceful disturbances: requests arrive in time, and processes end gracefully.
    const ORDERLY: [Self; 2] = [Self::Stop, Self::Leave];

    fn condition(self) -> Condition {
        let quiet = Condition::default();
        match self {
            Self::Cut => Condition { cut: true, ..quiet },
            Self::LostRequests => Condition { lose_request: 0.6, ..quiet },
            Self::LostAnswers => Condition { lose_answer: 0.6, ..quiet },
            Self::Refusals => Condition { refuse: 0.6, ..quiet },
            Self::Slow => Condition { slow: Duration::from_secs(6), ..quiet },
            Self::Late => Condition { late: 0.8, ..quiet },
            _ => quiet,
        }
    }
}

/// A disturbance of one process, for some time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Episode {
    pub(crate) place: usize,
    pub(crate) kind: Disturbance,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

/// Disturbances of the processes of a run.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    pub(crate) episodes: Vec<Episode>,
    /// End of the run. Nothing happens for the time `calm` before it.
    pub(crate) end: Duration,
}

impl Schedule {
    /// Draws up to 8 episodes within `span`, followed by `calm`. One run in five has only graceful stops.
    pub(crate) fn draw(rng: &mut SmallRng, places: usize, span: Duration, calm: Duration) -> Self {
        let kinds: &[Disturbance] =
            if rng.random_bool(0.2) { &Disturbance::ORDERLY } else { &Disturbance::ALL };
        let n = rng.random_range(1..=8);
        let episodes = (0..n).map(|_| {
            let from = span.mul_f64(rng.random());
            // Most are about as long as a lease.
            let length = Duration::from_secs_f64(rng.random_range(0.5..30.0));
            let kind = kinds[rng.random_range(0..kinds.len())];
            Episode { place: rng.random_range(0..places), kind, from, to: from + length }
        });
        let episodes: Vec<_> = episodes.collect();
        let last = episodes.iter().map(|episode| episode.to).max().unwrap_or_default();
        Self { episodes, end: last.max(span) + calm }
    }
}

/// Process between its start and its end.
pub(crate) struct Process<P> {
    pub(crate) number: usize,
    pub(crate) place: usize,
    pub(crate) identity: String,
    pub(crate) program: P,
    pub(crate) started: Instant,
    /// Time at which the process last resumed from a pause, or started.
    pub(crate) resumed: Instant,
    pub(crate) paused: bool,
    /// Whether the process was requested to stop.
    pub(crate) stopping: bool,
    link: Link,
    halt: Halt,
    stop: CancellationToken,
    ended: Arc<AtomicBool>,
}

/// Identity, clock and link of a process that starts.
pub(crate) struct Start {
    pub(crate) number: usize,
    pub(crate) place: usize,
    pub(crate) identity: String,
    pub(crate) link: Link,
    pub(crate) clock: Clock,
}

/// Program that the processes of a run execute.
pub(crate) trait Program: Sized {
    /// Returns the lease duration, in seconds, that the process at this index writes, and the one that it reads.
    fn seconds(&self, place: usize) -> (i64, i64);
    /// Part of a process that the checks read.
    type Handle;
    fn start(&self, start: Start) -> (Manager, Self::Handle);
}

/// Processes of a run, and its network.
pub(crate) struct World<M: Program> {
    pub(crate) net: Arc<Network>,
    pub(crate) processes: Vec<Process<M::Handle>>,
    pub(crate) counts: BTreeMap<String, u64>,
    /// Time of the last disturbance of a process, or arrival of a disturbed request.
    pub(crate) disturbed: Instant,
    /// Time of the last crash, or of the last disturbance that was not a graceful stop.
    pub(crate) unplanned: Instant,
    program: M,
    seed: u64,
    tasks: Tasks,
    next_number: usize,
    rng: SmallRng,
    /// Places to fill: time, place, identity.
    restarts: Vec<(Instant, usize, Option<String>)>,
}

impl<M: Program> World<M> {
    pub(crate) fn new(seed: u64, net: Arc<Network>, tasks: Tasks, program: M) -> Self {
        let now = net.clock.instant();
        Self {
            net,
            processes: Vec::new(),
            counts: BTreeMap::new(),
            disturbed: now,
            unplanned: now,
            program,
            seed,
            tasks,
            next_number: 0,
            rng: SmallRng::seed_from_u64(seed ^ 0xd15),
            restarts: Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.net.clock.instant()
    }

    pub(crate) fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
    }

    fn start(&mut self, place: usize, identity: Option<String>) {
        let number = self.next_number;
        self.next_number += 1;
        let identity = identity.unwrap_or_else(|| format!("process-{number}"));
        let (written, read) = self.program.seconds(place);
        let link = Link::new(&self.net, number, written, read);
        // Wall clocks differ by up to a day; nothing depends on that.
        let skew = Duration::from_secs(self.rng.random_range(0..86_400));
        let start = self.net.clock.now() + skew;
        let clock = Clock::seeded(start, self.seed ^ number as u64);
        let starting =
            Start { number, place, identity: identity.clone(), link: link.clone(), clock };
        let halt = Halt::default();
        let (manager, program) = self.program.start(starting);
        let (stop, ended) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let (stopped, at_end) = (stop.clone(), Arc::clone(&ended));
        self.tasks.spawn_finite(
            "process",
            halt.over(async move {
                let _ = manager.run(stopped.cancelled_owned()).await;
                at_end.store(true, Ordering::Relaxed);
            }),
        );
        let now = self.now();
        let (started, resumed, paused, stopping) = (now, now, false, false);
        self.processes.push(Process {
            number,
            place,
            identity,
            program,
            started,
            resumed,
            paused,
            stopping,
            link,
            halt,
            stop,
            ended,
        });
        self.disturbed = now;
    }

    /// Runs the schedule, and calls `look` in each tick.
    pub(crate) async fn run(&mut self, schedule: &Schedule, mut look: impl FnMut(&mut Self)) {
        let begin = self.now();
        for place in 0..self.places(schedule) {
            self.start(place, None);
        }
        let (mut pending, mut active) = (schedule.episodes.clone(), Vec::<Episode>::new());
        while self.now() < begin + schedule.end {
            let passed = self.now() - begin;
            for episode in pending.extract_if(.., |episode| episode.from <= passed) {
                self.begin(episode, begin + schedule.end);
                active.push(episode);
            }
            let over: Vec<Episode> =
                active.extract_if(.., |episode| episode.to <= passed).collect();
            for episode in over {
                if episode.kind == Disturbance::Pause {
                    self.resume(episode.place);
                }
            }
            self.apply(&active);
            self.replace_ended();
            if active.iter().any(|episode| !Disturbance::ORDERLY.contains(&episode.kind)) {
                self.unplanned = self.now();
            }
            self.unplanned = self.unplanned.max(self.net.last_late());
            if !active.is_empty() {
                self.disturbed = self.now();
            }
            self.disturbed = self.disturbed.max(self.unplanned);
            look(self);
            let tick = MAX_TICK.mul_f64(self.rng.random_range(0.2..1.0));
            self.net.clock.sleep(tick).await;
        }
    }

    fn places(&self, schedule: &Schedule) -> usize {
        // A schedule always names its last place or not; the program knows how many there are.
        let named = schedule.episodes.iter().map(|episode| episode.place + 1).max();
        named.unwrap_or(1).max(self.program_places())
    }

    fn program_places(&self) -> usize {
        (0..).take_while(|place| self.program.seconds(*place).0 != 0).count()
    }

    fn begin(&mut self, episode: Episode, end: Instant) {
        let Episode { place, kind, .. } = episode;
        let now = self.now();
        let delay = Duration::from_secs_f64(self.rng.random_range(0.1..8.0));
        let Some(index) = self.processes.iter().position(|process| process.place == place) else {
            return;
        };
        self.count(&format!("{kind:?}"));
        let process = &mut self.processes[index];
        match kind {
            Disturbance::Pause => {
                process.halt.halt();
                process.paused = true;
            }
            Disturbance::Stop | Disturbance::Leave => {
                process.stop.cancel();
                process.stopping = true;
                let at = if kind == Disturbance::Leave { end } else { now + delay };
                self.restarts.push((at, place, None));
            }
            Disturbance::Crash | Disturbance::CrashSameIdentity => {
                process.halt.halt();
                let identity = process.identity.clone();
                process.link.set(Condition { cut: self.rng.random(), ..Condition::default() });
                self.processes.remove(index);
                let identity = (kind == Disturbance::CrashSameIdentity).then_some(identity);
                self.restarts.retain(|(_, replaced, _)| *replaced != place);
                self.restarts.push((now + delay, place, identity));
                self.unplanned = now;
            }
            _ => {}
        }
        self.disturbed = now;
    }

    fn resume(&mut self, place: usize) {
        let now = self.now();
        for process in self.processes.iter_mut().filter(|process| process.place == place) {
            process.halt.resume();
            if process.paused {
                process.resumed = now;
            }
            process.paused = false;
        }
    }

    /// Sets the condition of each link to the sum of the active episodes.
    fn apply(&self, active: &[Episode]) {
        for process in &self.processes {
            let mut sum = Condition::default();
            for episode in active.iter().filter(|episode| episode.place == process.place) {
                let one = episode.kind.condition();
                sum = Condition {
                    cut: sum.cut || one.cut,
                    lose_request: sum.lose_request.max(one.lose_request),
                    lose_answer: sum.lose_answer.max(one.lose_answer),
                    refuse: sum.refuse.max(one.refuse),
                    late: sum.late.max(one.late),
                    slow: sum.slow.max(one.slow),
                };
            }
            process.link.set(sum);
        }
    }

    /// Starts processes that are due, and removes those that ended. A process that ended by itself is restarted.
    fn replace_ended(&mut self) {
        let now = self.now();
        let ended: Vec<_> = self
            .processes
            .extract_if(.., |process| process.ended.load(Ordering::Relaxed))
            .collect();
        for process in ended {
            self.disturbed = now;
            if !process.stopping {
                self.count("ended unasked");
                let delay = Duration::from_secs_f64(self.rng.random_range(0.1..8.0));
                let identity = self.rng.random_bool(0.5).then_some(process.identity);
                self.restarts.push((now + delay, process.place, identity));
            }
        }
        let due: Vec<_> = self.restarts.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, place, identity) in due {
            // A stopping process may still exist.
            if self.processes.iter().any(|process| process.place == place && !process.stopping) {
                continue;
            }
            self.start(place, identity);
        }
    }
}
