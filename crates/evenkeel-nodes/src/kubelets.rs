//! Handle that gives an API server access to the simulated kubelets: container logs, commands and ports.

use evenkeel_api::time::Timestamp;
use evenkeel_shell::later;
use futures::{Stream, stream};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tokio::{sync::Semaphore, task::JoinError};

use crate::{
    logs::{ContainerRef, LogLine, LoggedRun},
    pod_workers::PodWorkers,
};

/// How far ahead of the current time the lines of a followed log are computed.
const HORIZON: Duration = Duration::from_secs(60);

/// Handle of the simulated kubelets. Without effect until [`run`](crate::run()) starts them.
#[derive(Clone, Default)]
pub struct Kubelets(Arc<Mutex<Weak<PodWorkers>>>);

impl fmt::Debug for Kubelets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubelets").field("run", &self.workers().is_some()).finish()
    }
}

impl Kubelets {
    pub(crate) fn set(&self, workers: &Arc<PodWorkers>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(workers);
    }

    pub(crate) fn workers(&self) -> Option<Arc<PodWorkers>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Returns the lines that the container has printed so far; `None` if no simulated kubelet has run it.
    pub fn log(&self, container: &ContainerRef) -> Option<Vec<LogLine>> {
        let workers = self.workers()?;
        let run = workers.logged_run(container)?;
        Some(run.lines(&container.name, workers.now()))
    }

    /// Streams the lines after the first `n_sent` ones as the container prints them, until the run ends.
    pub fn follow(
        &self,
        container: ContainerRef,
        n_sent: usize,
    ) -> impl Stream<Item = LogLine> + Send + use<> {
        let follower = Follower { kubelets: self.clone(), container, n_sent, known: None };
        let batches = stream::unfold(Some(follower), |follower| async move {
            let (lines, follower) = follower?.next().await?;
            Some((stream::iter(lines), follower))
        });
        futures::StreamExt::flatten(batches)
    }
}

/// Limits the number of runs and commands that are interpreted concurrently.
static INTERPRETER_PERMITS: Semaphore = Semaphore::const_new(2);

/// Interprets a run or a command on a thread for blocking work, because it may take hundreds of thousands of steps.
/// Returns `None` if the runtime shuts down.
pub(crate) async fn interpret_blocking<T: Send + 'static>(
    interpret: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    // Never fails, because nothing closes the semaphore.
    let permit = INTERPRETER_PERMITS.acquire().await.ok();
    #[expect(clippy::disallowed_methods, reason = "its panic goes on in whoever waits")]
    let interpreted = tokio::task::spawn_blocking(move || {
        // Occupy the permit until the end, even if the caller has stopped waiting.
        let _permit = permit;
        interpret()
    });
    match interpreted.await.map_err(JoinError::try_into_panic) {
        Ok(outcome) => Some(outcome),
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_)) => None,
    }
}

/// Position of one client that follows a log.
struct Follower {
    kubelets: Kubelets,
    container: ContainerRef,
    /// Number of lines that the client has received or skipped.
    n_sent: usize,
    /// The followed run, as last interpreted.
    known: Option<InterpretedRun>,
}

/// Run with its lines, including those that it will print up to `until`.
struct InterpretedRun {
    run: LoggedRun,
    /// End of the computed lines.
    until: Timestamp,
    lines: Vec<LogLine>,
}

impl Follower {
    /// Returns the next lines, and the follower unless these lines are the last.
    async fn next(mut self) -> Option<(Vec<LogLine>, Option<Self>)> {
        loop {
            let workers = self.kubelets.workers()?;
            let changed = workers.changed();
            let changed = changed.notified();
            let run = workers.logged_run(&self.container)?;
            let (clock, now) = (workers.clock().clone(), workers.now());
            drop(workers);
            // The container has restarted.
            if self.known.as_ref().is_some_and(|known| known.run.id != run.id) {
                return None;
            }
            let ended = run.end.is_some();
            let (new_lines, next_time) = self.new_lines(run, now).await;
            if ended {
                return Some((new_lines, None));
            }
            if !new_lines.is_empty() {
                return Some((new_lines, Some(self)));
            }
            let wait = Duration::try_from(next_time.duration_since(now)).unwrap_or_default();
            tokio::select! {
                () = clock.sleep(wait) => {}
                () = changed => {}
            }
        }
    }

    /// Returns the lines printed since the last call, and the time of the next call. Pods change often, so a run is
    /// interpreted again only if its inputs have changed.
    async fn new_lines(&mut self, run: LoggedRun, now: Timestamp) -> (Vec<LogLine>, Timestamp) {
        let is_current =
            |known: &InterpretedRun| known.until > now && known.run.prints_the_same_as(&run);
        let known = match self.known.take().filter(is_current) {
            Some(known) => known,
            None => {
                let until = later(now, HORIZON);
                let (logged_run, container) = (run.clone(), self.container.name.clone());
                let lines = interpret_blocking(move || logged_run.lines(&container, until)).await;
                let lines = lines.unwrap_or_default();
                InterpretedRun { lines, until, run }
            }
        };
        let n_printed = known.lines.partition_point(|line| line.time <= now);
        let next_time = known.lines.get(n_printed).map_or(known.until, |line| line.time);
        let new_lines = known.lines.get(self.n_sent..n_printed).unwrap_or_default().to_vec();
        self.n_sent += new_lines.len();
        self.known = Some(known);
        (new_lines, next_time)
    }
}
