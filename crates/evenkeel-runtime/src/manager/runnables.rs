//! Runnables of a manager by group, before and after the group's start.

use super::{ManagerError, RunnableGroup, runnable::Runnable};
use crate::tasks::{Tasks, watch};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc};

/// Runnables that wait for the start of their group, and the groups that have started.
#[derive(Default)]
pub(super) struct Runnables {
    state: Mutex<State>,
    /// Notified when a runnable waits for its group to start.
    added: Notify,
}

/// Runnables by state: waiting for the start of their group, or started.
#[derive(Default)]
struct State {
    waiting: Vec<Runnable>,
    started: Vec<StartedGroup>,
    /// Whether the manager is stopping, so that no more runnables start.
    closed: bool,
}

/// Group that has started, with the means to start another runnable in it.
struct StartedGroup {
    group: RunnableGroup,
    tasks: Tasks,
    failed: mpsc::UnboundedSender<ManagerError>,
}

impl StartedGroup {
    fn start(&self, runnable: Runnable) -> watch::Receiver<bool> {
        let name = runnable.name.clone();
        let (run, ready) = runnable.start(self.tasks.token(), self.failed.clone());
        self.tasks.spawn_finite(name, run);
        ready
    }
}

impl Runnables {
    /// Adds a runnable. If its group has started, it starts immediately. While the manager stops, it is dropped.
    pub(super) fn add(&self, runnable: Runnable) {
        let mut state = self.lock();
        if state.closed {
            tracing::warn!(runnable = runnable.name, "not started, because the manager stops");
            return;
        }
        match state.started.iter().find(|started| started.group == runnable.group) {
            Some(started) => {
                started.start(runnable);
            }
            None => {
                state.waiting.push(runnable);
                self.added.notify_waiters();
            }
        }
    }

    /// Waits until a runnable waits for this group to start.
    pub(super) async fn added_to(&self, group: RunnableGroup) {
        loop {
            let added = self.added.notified();
            if self.lock().waiting.iter().any(|runnable| runnable.group == group) {
                return;
            }
            added.await;
        }
    }

    /// Starts the runnables of a group, in the order in which they were added. Returns their ready signals.
    pub(super) fn start(
        &self,
        group: RunnableGroup,
        tasks: &Tasks,
        failed: &mpsc::UnboundedSender<ManagerError>,
    ) -> Vec<watch::Receiver<bool>> {
        let mut state = self.lock();
        let started = StartedGroup { group, tasks: tasks.clone(), failed: failed.clone() };
        let of_group = state.waiting.extract_if(.., |runnable| runnable.group == group);
        let ready = of_group.map(|runnable| started.start(runnable)).collect();
        state.started.push(started);
        ready
    }

    /// Drops the runnables that have not started, and all later ones.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let (waiting, started) =
            (std::mem::take(&mut state.waiting), std::mem::take(&mut state.started));
        drop(state);
        // A runnable may hold the manager, so it must not be dropped under the lock.
        drop((waiting, started));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
