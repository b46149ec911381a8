//! Removal of a controller from a manager, before it starts or while it runs.

use super::{caches, runnable::ManagerError};
use crate::{
    cache::{Caches, Informer},
    controller::Controller,
    latch::Latch,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Place of a controller in its manager, from which it can be removed. Clones share it.
#[derive(Clone)]
pub(crate) struct Removal {
    inner: Arc<Inner>,
}

/// State that the clones of the handle share.
struct Inner {
    state: Mutex<State>,
    caches: Caches,
    /// Set once the controller has ended.
    ended: Latch,
}

/// State of a controller that can be removed.
enum State {
    /// The controller has not started.
    Waiting(Box<Controller>),
    /// The controller runs until this token is cancelled.
    Running(CancellationToken),
    /// The controller was removed, or never starts.
    Removed,
}

/// Sets the latch of a controller's end, in whatever way it ends.
struct EndGuard(Latch);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.set();
    }
}

impl Removal {
    pub(super) fn of(controller: Controller, caches: &Caches) -> Self {
        let state = Mutex::new(State::Waiting(Box::new(controller)));
        let inner = Inner { state, caches: caches.clone(), ended: Latch::default() };
        Self { inner: Arc::new(inner) }
    }

    /// Runs the controller until `stop` is cancelled or it is removed. `timeout` is the maximum time to wait until its caches
    /// have synced.
    ///
    /// # Errors
    /// Fails if the caches do not sync in time, or a pass of a controller that does not recover from panics panicked.
    pub(super) async fn run(
        self,
        stop: CancellationToken,
        timeout: Option<Duration>,
    ) -> Result<(), ManagerError> {
        let token = stop.child_token();
        let Some(controller) = self.start(&token) else { return Ok(()) };
        let _guard = EndGuard(self.inner.ended.clone());
        let synced = caches::wait_for_controller(controller.required_caches(), timeout);
        let informers = match token.run_until_cancelled(synced).await {
            Some(Ok(())) => controller.run_to_end(token).await?,
            Some(Err(error)) => {
                controller.end();
                return Err(error.into());
            }
            None => controller.end(),
        };
        // The manager's caches end with it.
        if !stop.is_cancelled() {
            self.stop_caches(&informers);
        }
        Ok(())
    }

    /// Removes the controller. Completes when its last pass has ended.
    pub(crate) async fn remove(&self) {
        let waiting = match std::mem::replace(&mut *self.lock(), State::Removed) {
            State::Waiting(controller) => Some(controller),
            State::Running(token) => {
                token.cancel();
                None
            }
            State::Removed => None,
        };
        if let Some(controller) = waiting {
            self.stop_caches(&controller.end());
            self.inner.ended.set();
        }
        self.inner.ended.wait().await;
    }

    /// Takes the controller, unless it was removed.
    fn start(&self, token: &CancellationToken) -> Option<Controller> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Removed) {
            State::Waiting(controller) => {
                *state = State::Running(token.clone());
                Some(*controller)
            }
            State::Running(_) | State::Removed => None,
        }
    }

    fn stop_caches(&self, informers: &[Arc<Informer>]) {
        informers.iter().for_each(|informer| self.inner.caches.stop_unread(informer));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
