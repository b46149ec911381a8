//! The simulated kubelets, as an API server asks them for logs.

use evenkeel_shell::later;
use futures::{Stream, stream};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use crate::{
    logs::{ContainerRef, LogLine},
    pod_workers::PodWorkers,
};

/// So far ahead the next line of a log is looked for.
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

    fn workers(&self) -> Option<Arc<PodWorkers>> {
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
        let follower = Follower { kubelets: self.clone(), container, seen, run: None };
        let batches = stream::unfold(Some(follower), |follower| async move {
            let (lines, follower) = follower?.next().await?;
            Some((stream::iter(lines), follower))
        });
        futures::StreamExt::flatten(batches)
    }
}

/// Somebody who reads along.
struct Follower {
    kubelets: Kubelets,
    container: ContainerRef,
    seen: usize,
    /// The run that is followed.
    run: Option<String>,
}

impl Follower {
    /// The next lines, and the follower unless they were the last.
    async fn next(mut self) -> Option<(Vec<LogLine>, Option<Self>)> {
        loop {
            let workers = self.kubelets.workers()?;
            let changed = workers.changed();
            let changed = changed.notified();
            let run = workers.logged_run(&self.container)?;
            if self.run.get_or_insert_with(|| run.id.clone()) != &run.id {
                return None;
            }
            let now = workers.now();
            let mut lines = run.lines(&self.container.name, later(now, HORIZON));
            let printed = lines.partition_point(|line| line.time <= now);
            let next = lines.get(printed).map_or(later(now, HORIZON), |line| line.time);
            lines.truncate(printed);
            let new = lines.split_off(self.seen.min(lines.len()));
            self.seen += new.len();
            if run.end.is_some() {
                return Some((new, None));
            }
            if !new.is_empty() {
                return Some((new, Some(self)));
            }
            let wait = Duration::try_from(next.duration_since(now)).unwrap_or_default();
            let clock = workers.clock().clone();
            drop(workers);
            tokio::select! {
                () = clock.sleep(wait) => {}
                () = changed => {}
            }
        }
    }
}
