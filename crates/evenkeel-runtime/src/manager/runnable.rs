//! Runnables of a manager, and the groups in which they start and stop.

use crate::{
    client::full_text,
    tasks::{TaskFailure, catch_panic, watch},
};
use futures::future::BoxFuture;
use std::{error::Error, sync::Arc};
use tokio_util::sync::CancellationToken;

/// Groups of runnables, in the order in which they start. They stop in reverse order. As in controller-runtime,
/// caches start after [`RunnableGroup::HttpServers`] and before [`RunnableGroup::Others`].
///
/// ```
/// # use evenkeel_runtime::prelude::*;
/// # evenkeel_test::example::starts(|manager| {
/// use evenkeel_runtime::manager::RunnableGroup;
///
/// manager.add(RunnableGroup::Others, "every replica", |running| async move {
///     running.stopped().await;
///     Ok(())
/// });
/// # });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunnableGroup {
    /// HTTP servers (metrics, health, webhooks), which start first and stop last. Later groups wait until all are
    /// ready.
    HttpServers,
    /// Other runnables that every replica runs, leader or not.
    Others,
    /// Runnables of the leader. Without leader election and sharding, runnables of every replica.
    LeaderElection,
}

/// Reason why a manager stopped before the future `shutdown` of [`Manager::run`](super::Manager::run) completed, or did
/// not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The lease was not renewed in time. Another process may lead now.
    #[error("leader election lost")]
    LeaderElectionLost,
    /// A runnable returned an error or panicked.
    #[error("{name} failed")]
    Runnable {
        /// Name of the runnable.
        name: String,
        /// Error of the runnable, or the message of its panic.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A long-lived task that the manager's supervisor watches panicked or returned, and cannot be restarted.
    #[error(transparent)]
    Task(#[from] TaskFailure),
    /// Caches did not fill in time.
    #[error(transparent)]
    CacheSync(#[from] super::CacheSyncError),
    /// A pass panicked of a controller that does not recover from panics.
    #[error(transparent)]
    ReconcilePanicked(#[from] crate::controller::ReconcilePanicked),
    /// Runnables did not stop within the grace period and were aborted.
    #[error("not stopped within the grace period: {}", .0.join(", "))]
    NotStopped(Vec<String>),
}

/// Stop and ready signals of one runnable.
pub struct RunContext {
    stop: CancellationToken,
    ready: Arc<watch::Sender<bool>>,
}

impl RunContext {
    /// Signals that the runnable is ready, so that the next group may start.
    pub fn ready(&self) {
        self.ready.send_replace(true);
    }

    /// Waits for the signal to stop.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Returns the token that is cancelled to stop the runnable.
    pub fn token(&self) -> CancellationToken {
        self.stop.clone()
    }
}

/// Function that runs until the runnable is stopped.
type Work = Box<
    dyn FnOnce(RunContext) -> BoxFuture<'static, Result<(), Box<dyn Error + Send + Sync>>> + Send,
>;

/// Work that the manager runs, with its group and name.
pub(super) struct Runnable {
    pub(super) group: RunnableGroup,
    pub(super) name: String,
    work: Work,
}

impl Runnable {
    pub(super) fn new<F, Fut>(group: RunnableGroup, name: &str, run: F) -> Self
    where
        F: FnOnce(RunContext) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        Self { group, name: name.to_owned(), work: Box::new(move |context| Box::pin(run(context))) }
    }

    /// Returns the future to spawn, and the ready signal. The future reports an error or a panic to `failed`. When it
    /// ends, the runnable counts as ready, so that the manager does not wait for it.
    pub(super) fn start(
        self,
        stop: CancellationToken,
        failed: tokio::sync::mpsc::UnboundedSender<ManagerError>,
    ) -> (impl Future<Output = ()> + Send + 'static, watch::Receiver<bool>) {
        let Self { name, work, .. } = self;
        let (ready, is_ready) = watch::channel(false);
        let ready = Arc::new(ready);
        let context = RunContext { stop, ready: Arc::clone(&ready) };
        let run = async move {
            let error = match catch_panic(async { work(context).await }).await {
                Ok(Ok(())) => None,
                Ok(Err(source)) => Some(source),
                Err(panic) => Some(format!("panic: {panic}").into()),
            };
            if let Some(source) = error {
                tracing::error!(%name, error = full_text(&*source), "runnable failed");
                // While the manager stops, it no longer receives failures.
                let _ = failed.send(ManagerError::Runnable { name, source });
            }
            ready.send_replace(true);
        };
        (run, is_ready)
    }
}
