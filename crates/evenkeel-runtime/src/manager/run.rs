//! Starts the groups of runnables in order, and stops them in reverse order.
//!
//! The loss of the leader's lease has these effects, in order:
//!
//! 1. The [`LeaderFence`](crate::client::LeaderFence) closes, so that the leader sends no further write. It closes a
//!    fixed time after the last renewal, before another candidate may acquire the lease.
//! 2. `LeaderElector::renew` sets the metric `leader_election_master_status` to 0 and returns. Then
//!    [`Manager::run_groups`] returns.
//! 3. [`Manager::stop_leading`] aborts the leader's runnables; the other groups stop within the grace period.
//! 4. [`LeaderElector::step_down`] releases the lease if this process still holds it, and records the event.
//! 5. [`Manager::run`] returns [`ManagerError::LeaderElectionLost`], and the program exits with an error.
//!
//! Upstream: `OnStoppedLeading`.

use super::{Manager, ManagerError, RunnableGroup, caches::wait_for_cache_sync};
use crate::{
    leaderelection::{Candidate, LeaderElector},
    tasks::Tasks,
};
use futures::future::BoxFuture;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

/// Minimum time for each group to stop.
const MIN_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Time that aborted tasks have to end.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Task groups of the runnables, and of the parts of the manager that start between them.
struct Groups {
    serving: Tasks,
    caches: Tasks,
    others: Tasks,
    leader: Tasks,
    /// Contains the task that acquires and renews the lease. The task ends when the lease is lost.
    lease: Tasks,
    /// Contains the task that acquires and releases shards. It stops after the controllers.
    shards: Tasks,
    /// Writes events. Stops last, because stepping down records an event.
    events: Tasks,
}

impl Manager {
    /// Starts all runnables and waits for `shutdown`. Then it stops the runnables in reverse order within the
    /// grace period, and releases the lease.
    ///
    /// ```
    /// # use evenkeel_test::TestServer;
    /// use evenkeel_runtime::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let manager = Manager::builder(TestServer::start().await?.client()).build()?;
    /// // Or `shutdown_signal()`.
    /// manager.run(tokio::time::sleep(Duration::from_secs(3600))).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a runnable fails, a task that cannot be restarted fails, or the lease is lost. The manager then stops the
    /// other runnables. Also fails if a runnable does not stop in time.
    pub fn run<'a>(
        self,
        shutdown: impl Future<Output = ()> + Send + 'a,
    ) -> BoxFuture<'a, Result<(), ManagerError>> {
        Box::pin(self.run_all(Box::pin(shutdown)))
    }

    async fn run_all(self, shutdown: BoxFuture<'_, ()>) -> Result<(), ManagerError> {
        let (failed, mut failures) = mpsc::unbounded_channel();
        let groups = Groups {
            serving: Tasks::of(&self.supervisor),
            caches: Tasks::of(&self.supervisor),
            others: Tasks::of(&self.supervisor),
            leader: Tasks::of(&self.supervisor),
            lease: Tasks::of(&self.supervisor),
            shards: Tasks::of(&self.supervisor),
            events: Tasks::of(&self.supervisor),
        };
        self.events.start(&groups.events);
        let result = {
            let run_groups = self.run_groups(&groups, &failed);
            tokio::select! {
                biased;
                Some(failure) = failures.recv() => Err(failure),
                failure = self.supervisor.failed() => Err(failure.into()),
                () = shutdown => Ok(()),
                error = run_groups => Err(error),
            }
        };
        let is_lease_lost = matches!(result, Err(ManagerError::LeaderElectionLost));
        let not_stopped = self.stop(&groups, is_lease_lost).await;
        result?;
        if let Ok(failure) = failures.try_recv() {
            return Err(failure);
        }
        if not_stopped.is_empty() { Ok(()) } else { Err(ManagerError::NotStopped(not_stopped)) }
    }

    /// Starts the groups one after the other. Returns only when the lease is lost or the caches do not fill.
    async fn run_groups(
        &self,
        groups: &Groups,
        failed: &mpsc::UnboundedSender<ManagerError>,
    ) -> ManagerError {
        self.start(RunnableGroup::HttpServers, &groups.serving, failed).await;
        self.env.caches.start(&groups.caches);
        if let Err(error) = wait_for_cache_sync(&self.env.caches, self.cache_sync_timeout).await {
            return error.into();
        }
        if let Some(member) = self.member.clone() {
            let stop = groups.shards.token();
            groups.shards.spawn("shards", async move { member.run(stop).await });
        }
        self.start(RunnableGroup::Others, &groups.others, failed).await;
        let Some(election) = &self.elector else {
            self.start(RunnableGroup::LeaderElection, &groups.leader, failed).await;
            self.elected.set();
            return std::future::pending().await;
        };
        if self.member.is_some() {
            // Sharded controllers need no leader.
            self.runnables.added_to(RunnableGroup::LeaderElection).await;
        }
        if let Some(config) = self.candidate.clone() {
            // The candidate ends before the lease is released, so that the server does not choose this process again.
            let candidate = Candidate::new(&self.unfenced_client, config);
            groups.others.spawn_until_cancelled("lease candidate", candidate.run());
        }
        // The lease has its own task, because stopping the program must not cancel a request for the lease that
        // is in flight.
        let (candidate, stop) = (Arc::clone(election), groups.lease.token());
        let (elected_sender, elected) = oneshot::channel();
        groups.lease.spawn_finite("lease", async move {
            if candidate.acquire_until(&stop).await && elected_sender.send(()).is_ok() {
                stop.run_until_cancelled(candidate.renew()).await;
            }
        });
        if elected.await.is_ok() {
            self.start(RunnableGroup::LeaderElection, &groups.leader, failed).await;
            self.elected.set();
        }
        groups.lease.join().await;
        ManagerError::LeaderElectionLost
    }

    /// Starts the runnables of a group. For HTTP servers, also waits until all are ready.
    async fn start(
        &self,
        group: RunnableGroup,
        tasks: &Tasks,
        failed: &mpsc::UnboundedSender<ManagerError>,
    ) {
        let ready_signals = self.runnables.start(group, tasks, failed);
        if group != RunnableGroup::HttpServers {
            return;
        }
        for mut ready in ready_signals {
            // An error means that the runnable has ended, which `failed` reports.
            let _ = ready.wait_for(|ready| *ready).await;
        }
    }

    /// Stops all groups. Returns the names of the tasks that did not stop in time.
    async fn stop(&self, groups: &Groups, is_lease_lost: bool) -> Vec<String> {
        tracing::info!("stopping");
        self.runnables.close();
        let deadline = self.env.clock.instant() + self.grace_period;
        if let Some(member) = &self.member {
            member.retire();
        }
        if groups.leader.running().is_empty() {
            // This process is a standby, or a leader without runnables.
            groups.lease.token().cancel();
        }
        let mut not_stopped = Vec::new();
        not_stopped.extend(self.stop_leading(groups, is_lease_lost).await);
        not_stopped.extend(groups.others.shut_down(self.remaining_grace(deadline)).await);
        not_stopped.extend(groups.shards.shut_down(self.remaining_grace(deadline)).await);
        if let Some(election) = &self.elector {
            self.step_down(election, groups, is_lease_lost).await;
        }
        for tasks in [&groups.caches, &groups.serving, &groups.events] {
            not_stopped.extend(tasks.shut_down(self.remaining_grace(deadline)).await);
        }
        not_stopped.into_iter().map(std::borrow::Cow::into_owned).collect()
    }

    /// Stops the leader's runnables: within the grace period while the lease is renewed, immediately when it is lost.
    async fn stop_leading(
        &self,
        groups: &Groups,
        is_lease_lost: bool,
    ) -> Vec<std::borrow::Cow<'static, str>> {
        if !is_lease_lost {
            let holds_lease =
                !groups.leader.running().is_empty() && !groups.lease.running().is_empty();
            tokio::select! {
                biased;
                // The lease was lost while the runnables stopped: abort the rest.
                () = groups.lease.join(), if holds_lease => {}
                not_stopped = groups.leader.shut_down(self.grace_period) => return not_stopped,
            }
        }
        let stopped = groups.leader.shut_down(Duration::ZERO).await;
        tracing::warn!(?stopped, "leader lease lost, runnables of the leader were aborted");
        Vec::new()
    }

    /// Returns the rest of the grace period, at least [`MIN_STOP_TIMEOUT`], so that a slow group leaves time for the
    /// next group.
    fn remaining_grace(&self, deadline: Instant) -> Duration {
        deadline.saturating_duration_since(self.env.clock.instant()).max(MIN_STOP_TIMEOUT)
    }

    /// Releases the lease, or stops the attempt to acquire it. Releases it only if the leader's runnables have ended or
    /// the lease was lost. Otherwise keeps it until it expires, because a runnable may still write.
    ///
    /// After the loss of the lease, no runnable can write: the fence is closed. `LeaderElector::step_down` only changes
    /// a lease that this process still holds.
    async fn step_down(&self, election: &LeaderElector, groups: &Groups, is_lease_lost: bool) {
        // The task ends immediately while it renews the lease, and after its request while it acquires the lease.
        groups.lease.shut_down(election.request_timeout()).await;
        // An aborted task ends at its next await, and may still write before that.
        let have_ended = tokio::time::timeout(ABORT_TIMEOUT, groups.leader.join()).await.is_ok();
        if (election.is_leader() && have_ended) || is_lease_lost {
            election.step_down().await;
        } else if have_ended {
            election.withdraw().await;
        }
    }
}
