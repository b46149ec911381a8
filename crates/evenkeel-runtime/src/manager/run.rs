//! Start in order, wait, stop in reverse.

use super::{Group, Manager, ManagerError, runnable::Runnable};
use crate::{cache::Caches, lease::LeaderElection, tasks::Tasks};
use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

/// How often it is said which caches are still waited for.
const REMINDER: Duration = Duration::from_secs(10);

/// The least time that each group has to stop.
const GOODBYE: Duration = Duration::from_secs(1);

struct Groups {
    serving: Tasks,
    caches: Tasks,
    others: Tasks,
    leader: Tasks,
    /// Acquires and renews the lease; its only task ends when the lease is lost.
    lease: Tasks,
    /// Writes events; last to stop, since even the end of the leadership is told.
    events: Tasks,
}

impl Manager {
    /// Starts everything, waits for `shutdown`, stops everything in reverse order within the grace period, and gives the
    /// lease back at the end.
    ///
    /// # Errors
    /// When a part fails or the lease is lost (everything else is stopped then, too), or when something does not stop.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ManagerError> {
        let (failed, mut failures) = mpsc::unbounded_channel();
        let groups = Groups {
            serving: Tasks::new(),
            caches: Tasks::new(),
            others: Tasks::new(),
            leader: Tasks::new(),
            lease: Tasks::new(),
            events: Tasks::new(),
        };
        self.events.start(&groups.events);
        let ended = {
            let life = self.live(&groups, &failed);
            tokio::select! {
                biased;
                Some(failure) = failures.recv() => Err(failure),
                () = shutdown => Ok(()),
                lost = life => Err(lost),
            }
        };
        let lost = matches!(ended, Err(ManagerError::LeaderElectionLost));
        let late = self.stop(&groups, lost).await;
        ended?;
        if let Ok(failure) = failures.try_recv() {
            return Err(failure);
        }
        if late.is_empty() { Ok(()) } else { Err(ManagerError::Late(late)) }
    }

    /// Starts the groups one after the other; returns only when the lease is lost.
    async fn live(
        &self,
        groups: &Groups,
        failed: &mpsc::UnboundedSender<ManagerError>,
    ) -> ManagerError {
        self.start(Group::Serving, &groups.serving, failed).await;
        self.env.caches.start(&groups.caches);
        synced(&self.env.caches).await;
        self.start(Group::Others, &groups.others, failed).await;
        let Some(election) = &self.election else {
            self.start(Group::Leader, &groups.leader, failed).await;
            return std::future::pending().await;
        };
        // In a task of its own, since a request that is under way when the program stops must not be cut.
        let (candidate, stop) = (Arc::clone(election), groups.lease.token());
        let (elected, leads) = oneshot::channel();
        groups.lease.spawn("lease", async move {
            if candidate.acquire_until(&stop).await && elected.send(()).is_ok() {
                stop.run_until_cancelled(candidate.hold()).await;
            }
        });
        if leads.await.is_ok() {
            self.start(Group::Leader, &groups.leader, failed).await;
        }
        groups.lease.join().await;
        ManagerError::LeaderElectionLost
    }

    async fn start(
        &self,
        group: Group,
        tasks: &Tasks,
        failed: &mpsc::UnboundedSender<ManagerError>,
    ) {
        let started: Vec<_> = self
            .take(group)
            .into_iter()
            .map(|runnable| {
                let name = runnable.name.clone();
                let (run, ready) = runnable.start(tasks.token(), failed.clone());
                tasks.spawn(name, run);
                ready
            })
            .collect();
        if group != Group::Serving {
            return;
        }
        for mut ready in started {
            // An error means that it has ended, which is told elsewhere.
            let _ = ready.wait_for(|ready| *ready).await;
        }
    }

    fn take(&self, group: Group) -> Vec<Runnable> {
        let mut all = self.runnables.lock().unwrap_or_else(PoisonError::into_inner);
        all.extract_if(.., |runnable| runnable.group == group).collect()
    }

    /// Names of what did not stop in time.
    async fn stop(&self, groups: &Groups, lost: bool) -> Vec<String> {
        tracing::info!("stopping");
        let deadline = Instant::now() + self.grace;
        if groups.leader.running().is_empty() {
            // A candidate, or a leader with nothing left to do.
            groups.lease.token().cancel();
        }
        let mut late = Vec::new();
        late.extend(self.stop_leading(groups, lost).await);
        late.extend(groups.others.shut_down(left(deadline)).await);
        if let Some(election) = &self.election {
            self.step_down(election, groups, lost).await;
        }
        for tasks in [&groups.caches, &groups.serving, &groups.events] {
            late.extend(tasks.shut_down(left(deadline)).await);
        }
        late.into_iter().map(std::borrow::Cow::into_owned).collect()
    }

    /// Stops what runs under the lease: in peace while the lease is renewed, at once when it is lost, however much there
    /// is left to finish.
    async fn stop_leading(
        &self,
        groups: &Groups,
        lost: bool,
    ) -> Vec<std::borrow::Cow<'static, str>> {
        if !lost {
            let renewed = !groups.leader.running().is_empty() && !groups.lease.running().is_empty();
            tokio::select! {
                biased;
                () = groups.lease.join(), if renewed => {}
                late = groups.leader.shut_down(self.grace) => return late,
            }
        }
        let stopped = groups.leader.shut_down(Duration::ZERO).await;
        tracing::warn!(?stopped, "leader lease lost, work under it was cut short");
        Vec::new()
    }

    async fn step_down(&self, election: &LeaderElection, groups: &Groups, lost: bool) {
        // A renewal ends at once, an attempt to acquire with its request.
        groups.lease.shut_down(election.patience()).await;
        // An aborted task ends at its next await; one that does not even get there could still write.
        let ended =
            tokio::time::timeout(Duration::from_secs(1), groups.leader.join()).await.is_ok();
        if (election.is_leader() && ended) || lost {
            election.step_down().await;
        } else if ended {
            election.withdraw().await;
        }
    }
}

/// What is left of the grace period, but never too little to say goodbye: a part is not to blame for the one before it.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(GOODBYE)
}

/// Waits until the caches are filled, and says from time to time which are not.
async fn synced(caches: &Caches) {
    while tokio::time::timeout(REMINDER, caches.synced()).await.is_err() {
        let missing = caches.unsynced();
        let names: Vec<&str> = missing.iter().map(|kind| &*kind.plural).collect();
        tracing::warn!(caches = ?names, "still waiting for caches");
    }
}
