//! The simulated kubelets, as an API server asks them for logs.

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

/// How far ahead the next line of a followed log is computed.
const HORIZON: Duration = Duration::from_secs(60);

/// The kubelets of the simulated nodes; without any until [`run`](crate::run()) starts them.
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

    /// Returns what the container has printed by now; `None` if no kubelet here has run it.
    pub fn log(&self, container: &ContainerRef) -> Option<Vec<LogLine>> {
        let workers = self.workers()?;
        let run = workers.logged_run(container)?;
        Some(run.lines(&container.name, workers.now()))
    }

    /// Returns the lines after the first `seen` ones as they are printed, until the run ends.
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

/// Somebody who reads along.
struct Follower {
    kubelets: Kubelets,
    container: ContainerRef,
    seen: usize,
    /// The run that is followed, as it was last interpreted.
    known: Option<InterpretedRun>,
}

/// Lines of a run, those to come included.
struct InterpretedRun {
    run: LoggedRun,
    /// Time up to which the lines are known.
    until: Timestamp,
    lines: Vec<LogLine>,
}

impl Follower {
    /// The next lines, and the follower unless they were the last.
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

    /// The lines that were printed since the last time, and when to look again. Pods change often: a run whose outcome is the
    /// same is not interpreted again.
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
