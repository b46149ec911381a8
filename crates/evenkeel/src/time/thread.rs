//! A thread whose tasks have their own time, which can run fast and jump.
//!
//! Its runtime's time is paused, and a task advances it in steps. All timers of the components follow it, so that leases,
//! back-offs, schedules and deadlines keep their order at any speed.

use super::{
    steps::{Elapsed, TimeSettings},
    wire::{InFlight, Wire},
};
use evenkeel_api::time::{Timestamp, saturating_add};
use evenkeel_apiserver::Service;
use evenkeel_runtime::clock::Clock;
use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tokio::{
    runtime::{EnterGuard, Handle},
    sync::Notify,
};

/// Thread of components that have their own time.
pub(crate) struct TimeThread {
    time: ClusterTime,
    clock: Clock,
    runtime: Handle,
    thread: Option<JoinHandle<()>>,
}

/// Handle of a cluster's time. Clones share the time.
#[derive(Debug, Clone)]
pub(crate) struct ClusterTime(Arc<Shared>);

/// State that the thread with the cluster's time shares with the server.
#[derive(Debug)]
struct Shared {
    start: Timestamp,
    started_at: Instant,
    /// Nanoseconds of the cluster's time since the start.
    elapsed: AtomicU64,
    settings: Mutex<TimeSettings>,
    in_flight: InFlight,
    tick: Notify,
    stopped: AtomicBool,
}

impl ClusterTime {
    /// Returns the cluster's time.
    pub(crate) fn now(&self) -> Timestamp {
        saturating_add(self.0.start, self.0.elapsed().cluster)
    }

    /// Returns speed and jump.
    pub(crate) fn settings(&self) -> TimeSettings {
        *self.0.lock()
    }

    /// Returns the remaining duration of a jump.
    pub(crate) fn remaining_jump(&self) -> Duration {
        self.settings().jump_to.saturating_sub(self.0.elapsed().cluster)
    }

    /// Returns the time by which the cluster is ahead of the system once its jump has ended.
    pub(crate) fn ahead(&self) -> Duration {
        self.0.elapsed().ahead() + self.remaining_jump()
    }

    /// Sets the speed: a factor from 0 to [`MAX_SPEED`](super::steps::MAX_SPEED).
    pub(crate) fn set_speed(&self, speed: f64) {
        self.0.lock().speed = speed;
    }

    /// Makes the time jump ahead by this further duration, as fast as the components can follow.
    pub(crate) fn jump(&self, by: Duration) {
        let elapsed = self.0.elapsed().cluster;
        let mut settings = self.0.lock();
        settings.jump_to = settings.jump_to.max(elapsed).saturating_add(by);
    }
}

impl Shared {
    #[expect(clippy::disallowed_methods, reason = "the cluster's time is made of the system's")]
    fn elapsed(&self) -> Elapsed {
        Elapsed {
            cluster: Duration::from_nanos(self.elapsed.load(Ordering::Acquire)),
            system: Instant::now().saturating_duration_since(self.started_at),
        }
    }

    fn lock(&self) -> MutexGuard<'_, TimeSettings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

impl TimeThread {
    /// Starts the thread, whose time is `start` now and passes at `speed`.
    ///
    /// # Errors
    /// Fails if the thread or its runtime cannot start.
    #[expect(clippy::disallowed_methods, reason = "the cluster's time is made of the system's")]
    pub(crate) fn start(start: Timestamp, speed: f64) -> io::Result<Self> {
        let time = ClusterTime(Arc::new(Shared {
            start,
            started_at: Instant::now(),
            elapsed: AtomicU64::new(0),
            settings: Mutex::new(TimeSettings { speed, jump_to: Duration::ZERO }),
            in_flight: InFlight::default(),
            tick: Notify::new(),
            stopped: AtomicBool::new(false),
        }));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()?;
        let handle = runtime.handle().clone();
        let (ready, is_ready) = mpsc::channel();
        let shared = Arc::clone(&time.0);
        let thread =
            std::thread::Builder::new().name("cluster time".to_owned()).spawn(move || {
                runtime.block_on(async {
                    // While a blocking call is running, tokio does not advance a paused time by itself.
                    let ticker = Arc::clone(&shared);
                    let ticker = tokio::task::spawn_blocking(move || tick(&ticker));
                    // The receiver waits.
                    let _ = ready.send(Clock::seeded(start, seed(start)));
                    advance(&shared).await;
                    drop(ticker);
                });
            })?;
        let clock = is_ready.recv().map_err(|_| io::Error::other("its thread has ended"))?;
        Ok(Self { time, clock, runtime: handle, thread: Some(thread) })
    }

    pub(crate) fn time(&self) -> &ClusterTime {
        &self.time
    }

    /// Returns the clock of the components on this thread.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Enters the thread's runtime: tasks that are spawned until the guard is dropped run there.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Returns a client of an API server for components on this thread. Call it within the server's runtime.
    pub(crate) fn client(&self, server: Service) -> kube::Client {
        let wire = Wire::new(server, Handle::current(), self.time.0.in_flight.clone());
        let _context = self.enter();
        kube::Client::new(wire, "default")
    }
}

impl Drop for TimeThread {
    /// Stops the thread, and waits for its end. Tasks that still run on it are aborted.
    fn drop(&mut self) {
        self.time.0.stopped.store(true, Ordering::Release);
        self.time.0.tick.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the cluster's time panicked");
        }
    }
}

/// Returns the seed of draws for jitter, which differs from start to start.
fn seed(start: Timestamp) -> u64 {
    u64::try_from(start.as_nanosecond() & i128::from(u64::MAX)).unwrap_or_default()
}

/// Ticks in the system's time until the thread is stopped.
fn tick(shared: &Shared) {
    while !shared.is_stopped() {
        let elapsed = Duration::from_nanos(shared.elapsed.load(Ordering::Acquire));
        let interval = shared.lock().tick(elapsed);
        std::thread::sleep(interval);
        shared.tick.notify_one();
    }
}

/// Advances the runtime's time at each tick until the thread is stopped.
async fn advance(shared: &Shared) {
    let mut last = shared.elapsed().system;
    loop {
        shared.tick.notified().await;
        if shared.is_stopped() {
            return;
        }
        let elapsed = shared.elapsed();
        let since_last = elapsed.system.saturating_sub(last);
        let settings = *shared.lock();
        let Some(step) = settings.step(elapsed, since_last, shared.in_flight.count()) else {
            continue;
        };
        last = elapsed.system;
        // Advance the API server's time first, so that no component is ahead of it.
        shared.elapsed.fetch_add(nanos(step), Ordering::AcqRel);
        tokio::time::advance(step).await;
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::tasks::Tasks;

    fn thread(speed: f64) -> TimeThread {
        TimeThread::start("2026-01-01T00:00:00Z".parse().expect("a time"), speed).expect("starts")
    }

    /// Starts to wait on the thread for this time of the cluster. The receiver gets the clock's time then.
    fn sleep(thread: &TimeThread, duration: Duration) -> mpsc::Receiver<Timestamp> {
        let (sender, receiver) = mpsc::channel();
        let clock = thread.clock().clone();
        let _context = thread.enter();
        Tasks::new().spawn_finite("sleeper", async move {
            clock.sleep(duration).await;
            let _ = sender.send(clock.now());
        });
        receiver
    }

    #[test]
    fn timers_follow_the_speed_and_the_clock_shows_their_time() {
        let thread = thread(1000.0);
        let start = thread.time().now();
        let woken = sleep(&thread, Duration::from_secs(60)).recv().expect("it wakes");
        let passed = woken.duration_since(start).unsigned_abs();
        assert!(passed >= Duration::from_secs(60), "{passed:?}");
        assert!(thread.time().now() >= woken);
    }

    #[test]
    fn a_jump_fires_what_is_due_and_then_ends() {
        let thread = thread(0.0);
        let start = thread.time().now();
        let [minutes, later] =
            [Duration::from_mins(10), Duration::from_mins(11)].map(|it| sleep(&thread, it));
        thread.time().jump(Duration::from_secs(601));
        let woken = minutes.recv().expect("it wakes").duration_since(start).unsigned_abs();
        assert!((600..=601).contains(&woken.as_secs()), "{woken:?}");
        while !thread.time().remaining_jump().is_zero() {
            std::thread::yield_now();
        }
        let passed = thread.time().now().duration_since(start).unsigned_abs();
        assert_eq!(passed, Duration::from_secs(601), "it stands still afterwards");
        assert!(later.try_recv().is_err());
    }
}
