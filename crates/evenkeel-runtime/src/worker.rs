//! Worker thread of a program, with coalesced wake-ups.
//!
//! Each wake-up costs a system call and a context switch. A program with hundreds of requests a second is woken thousands
//! of times, each time for one response or watch event. A worker that pauses before it polls finds several in one poll, as
//! network cards that coalesce interrupts do, and sends the resulting writes together.

use std::{cell::Cell, io, time::Duration};
use tokio::runtime::{Builder, Runtime};

/// Number of worker threads, and whether an idle single worker pauses before it polls. One thread is enough for
/// several thousand writes per second. Waking more threads would cost a sixth more CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worker {
    /// One thread that polls immediately, for programs whose users wait for every response.
    Eager,
    /// One thread that polls after a pause, which grows with the last work. A chain of requests without other
    /// work is as fast as without pauses.
    Frugal,
    /// One thread for each processor, for servers.
    Parallel,
}

/// Length of a pause as a multiple of the work before it. If a worker is busy for more than a twentieth of the
/// time, its pauses and batches grow up to [`MAX_PAUSE`]. With less work the pauses shrink, until it polls
/// immediately.
const PAUSE_FACTOR: u32 = 20;
/// Maximum pause. An API server needs longer for a few writes.
const MAX_PAUSE: Duration = Duration::from_millis(15);
/// Minimum pause, about the time that the system takes to wake a thread.
const MIN_PAUSE: Duration = Duration::from_micros(200);

impl Worker {
    /// Creates a tokio runtime with these workers, timers and sockets.
    ///
    /// # Errors
    /// Fails if the system cannot start a thread.
    pub fn runtime(self) -> io::Result<Runtime> {
        let mut builder = Builder::new_multi_thread();
        builder.enable_all();
        match self {
            Self::Eager => builder.worker_threads(1),
            Self::Frugal => {
                builder.worker_threads(1).on_thread_unpark(begin_work).on_thread_park(end_work)
            }
            Self::Parallel => &mut builder,
        };
        builder.build()
    }
}

/// Returns the pause after this much work, or `None` if it would be too short.
fn pause(worked: Duration) -> Option<Duration> {
    let pause = worked.saturating_mul(PAUSE_FACTOR).min(MAX_PAUSE);
    (pause >= MIN_PAUSE).then_some(pause)
}

thread_local! {
    /// Time when the thread began to work.
    static WORK_START: Cell<Option<std::time::Instant>> = const { Cell::new(None) };
}

#[expect(clippy::disallowed_methods, reason = "measures the real working time of this thread")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Called when the thread wakes up.
fn begin_work() {
    WORK_START.set(Some(now()));
}

/// Called before the thread polls for events: pauses after longer work.
fn end_work() {
    let Some(start) = WORK_START.take() else { return };
    if let Some(pause) = pause(now().duration_since(start)) {
        std::thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_the_work_up_to_a_limit() {
        let micros = Duration::from_micros;
        let table = [(0, None), (9, None), (10, Some(200)), (150, Some(3_000)), (499, Some(9_980))];
        for (worked, expected) in table {
            assert_eq!(pause(micros(worked)), expected.map(micros), "{worked} µs");
        }
        assert_eq!(pause(Duration::from_secs(3600)), Some(MAX_PAUSE));
        assert_eq!(pause(Duration::MAX), Some(MAX_PAUSE));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "what the runtimes under test run")]
    fn tasks_and_blocking_threads_run_with_each_worker() {
        for worker in [Worker::Eager, Worker::Frugal, Worker::Parallel] {
            let runtime = worker.runtime().expect("a thread");
            let sum = runtime.block_on(async {
                let (send, mut receive) = tokio::sync::mpsc::channel(1);
                let mut set = tokio::task::JoinSet::new();
                for n in 0..20u64 {
                    let send = send.clone();
                    set.spawn(async move {
                        tokio::task::yield_now().await;
                        let n = tokio::task::spawn_blocking(move || n).await.expect("no panic");
                        send.send(n).await.expect("it is received");
                    });
                }
                drop(send);
                let mut sum = 0;
                while let Some(n) = receive.recv().await {
                    sum += n;
                }
                sum
            });
            assert_eq!(sum, 190, "{worker:?}");
        }
    }
}
