//! The thread that runs a program's tasks, and how soon it looks for work again.
//!
//! A look costs a system call and a switch of threads, and a message that comes alone costs more than one of ten: each is
//! decrypted, handed on and woken for by itself. A program that makes hundreds of requests a second is woken thousands of
//! times, each time for one answer or one event of a watch. A worker that rests a little before it looks finds several, as
//! network cards do that moderate their interrupts, and sends what follows from them together.

use std::{cell::Cell, io, time::Duration};
use tokio::runtime::{Builder, Runtime};

/// How soon the one thread looks for work when it has none. (One is enough for several thousand writes a second, and spares
/// what waking others costs: a sixth of the CPU of making pods.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worker {
    /// At once, for programs whose users wait for every answer.
    Eager,
    /// After a rest that grows with the work that there was, and is over before anybody notices: a chain of requests with
    /// little else beside is as quick as without.
    Frugal,
}

/// A frugal worker rests so many times as long as it worked. One that would be busy for a twentieth of the time finds more and
/// more to do at once, until it rests for the longest; one with less to do soon looks again at once.
const TIMES: u32 = 20;
/// It rests this long at the most: less than an API server takes for a few writes.
const LONGEST: Duration = Duration::from_millis(15);
/// Shorter ones are left out: the system takes about as long to wake a thread.
const SHORTEST: Duration = Duration::from_micros(200);

impl Worker {
    /// A runtime with this worker. Timers and sockets are served.
    ///
    /// # Errors
    /// As the system has it, when there is no thread to be had.
    pub fn runtime(self) -> io::Result<Runtime> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).enable_all();
        if self == Self::Frugal {
            builder.on_thread_unpark(begin).on_thread_park(end);
        }
        builder.build()
    }
}

/// How long to rest after so much work; none where it is not worth it.
fn rest(worked: Duration) -> Option<Duration> {
    let rest = worked.saturating_mul(TIMES).min(LONGEST);
    (rest >= SHORTEST).then_some(rest)
}

thread_local! {
    /// When the thread began to work.
    static BEGUN: Cell<Option<std::time::Instant>> = const { Cell::new(None) };
}

#[expect(clippy::disallowed_methods, reason = "how long this thread really was at work")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

fn begin() {
    BEGUN.set(Some(now()));
}

fn end() {
    if let Some(rest) = BEGUN.take().and_then(|begun| rest(now().duration_since(begun))) {
        std::thread::sleep(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_with_the_work_up_to_a_limit() {
        let micros = Duration::from_micros;
        let table = [(0, None), (9, None), (10, Some(200)), (150, Some(3_000)), (499, Some(9_980))];
        for (worked, expected) in table {
            assert_eq!(rest(micros(worked)), expected.map(micros), "{worked} µs");
        }
        assert_eq!(rest(Duration::from_secs(3600)), Some(LONGEST));
        assert_eq!(rest(Duration::MAX), Some(LONGEST));
    }

    #[test]
    fn whatever_the_worker_tasks_and_other_threads_get_their_turn() {
        for worker in [Worker::Eager, Worker::Frugal] {
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
