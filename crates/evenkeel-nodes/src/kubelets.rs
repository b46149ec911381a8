//! Container logs of the simulated kubelets, for an API server.

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

/// Time ahead of now up to which the lines of a followed log are computed.
const HORIZON: Duration = Duration::from_secs(60);

/// Handle of the simulated kubelets; it has no logs until [`run`](crate::run()) starts them.
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

    /// Returns the lines that the container has printed by now; `None` if no simulated kubelet has run it.
    pub fn log(&self, container: &ContainerRef) -> Option<Vec<LogLine>> {
        let workers = self.workers()?;
        let run = workers.logged_run(container)?;
        Some(run.lines(&container.name, workers.now()))
    }

    /// Streams the lines after the first `seen` ones as the container prints them, until the run ends.
    pub fn follow(
        &self,
        container: ContainerRef,
        seen: usize,
    ) -> impl Stream<Item = LogLine> + Send + use<> {
        let follower = Follower { kubelets: self.clone(), container, seen, known: None };
        let batches = stream::unfold(Some(follower), |follower| async move {
            let (lines, follower) = follower?.next().await?;
            Some((stream::iter(lines), follower))
        });
        futures::StreamExt::flatten(batches)
    }
}

/// Runs and commands that are interpreted at once.
static INTERPRETED: Semaphore = Semaphore::const_new(2);

/// Interprets a run or a command beside the tasks: it may take hundreds of thousands of steps. Nothing comes of it when the
/// runtime ends.
pub(crate) async fn beside<T: Send + 'static>(
    interpret: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    // It is never closed.
    let permit = INTERPRETED.acquire().await.ok();
    #[expect(clippy::disallowed_methods, reason = "its panic goes on in whoever waits")]
    let interpreted = tokio::task::spawn_blocking(move || {
        // Also where nobody waits for the outcome any more.
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
    seen: usize,
    /// The followed run, as last interpreted.
    known: Option<InterpretedRun>,
}

/// Run with its lines, including those that it will print up to `until`.
struct InterpretedRun {
    run: LoggedRun,
    /// Time up to which the lines are computed.
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
            if self.known.as_ref().is_some_and(|known| known.run.id != run.id) {
                return None;
            }
            let ended = run.end.is_some();
            let (new, next) = self.read(run, now).await;
            if ended {
                return Some((new, None));
            }
            if !new.is_empty() {
                return Some((new, Some(self)));
            }
            let wait = Duration::try_from(next.duration_since(now)).unwrap_or_default();
            tokio::select! {
                () = clock.sleep(wait) => {}
                () = changed => {}
            }
        }
    }

    /// Returns the lines printed since the last call, and when to look again. Pods change often, so a run is
    /// interpreted again only if its inputs changed.
    async fn read(&mut self, run: LoggedRun, now: Timestamp) -> (Vec<LogLine>, Timestamp) {
        let is_current =
            |known: &InterpretedRun| known.until > now && known.run.prints_the_same_as(&run);
        let known = match self.known.take().filter(is_current) {
            Some(known) => known,
            None => {
                let until = later(now, HORIZON);
                let (its, container) = (run.clone(), self.container.name.clone());
                let lines = beside(move || its.lines(&container, until)).await.unwrap_or_default();
                InterpretedRun { lines, until, run }
            }
        };
        let printed = known.lines.partition_point(|line| line.time <= now);
        let next = known.lines.get(printed).map_or(known.until, |line| line.time);
        let new = known.lines.get(self.seen..printed).unwrap_or_default().to_vec();
        self.seen += new.len();
        self.known = Some(known);
        (new, next)
    }
}
