//! What a manager runs, and in which group.

use crate::{client::full_text, tasks::panic_text};
use futures::{FutureExt, future::BoxFuture};
use std::{error::Error, panic::AssertUnwindSafe};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// When something is started; stopped in reverse. Caches are filled after [`Group::Serving`] and before the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// HTTP servers (metrics, health, webhooks): first up, last down. Later groups wait until these are ready.
    Serving,
    /// What every replica runs, leader or not.
    Others,
    /// What only the leader runs; all replicas where there is no election.
    Leader,
}

/// Why a manager stopped other than by its shutdown future.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The lease was not renewed in time: another process may lead now.
    #[error("leader election lost")]
    LeaderElectionLost,
    /// Something that was run failed.
    #[error("{name} failed")]
    Runnable {
        /// What.
        name: String,
        /// How.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// Something did not stop within the grace period and was aborted.
    #[error("not stopped within the grace period: {}", .0.join(", "))]
    Late(Vec<String>),
}

/// What something that is run is told, and tells.
pub struct Running {
    stop: CancellationToken,
    ready: watch::Sender<bool>,
}

impl Running {
    /// It is up: what waits for it may start.
    pub fn ready(&self) {
        self.ready.send_replace(true);
    }

    /// Waits until it is to stop.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Cancelled when it is to stop.
    pub fn token(&self) -> CancellationToken {
        self.stop.clone()
    }
}

type Work =
    Box<dyn FnOnce(Running) -> BoxFuture<'static, Result<(), Box<dyn Error + Send + Sync>>> + Send>;

pub(super) struct Runnable {
    pub(super) group: Group,
    pub(super) name: String,
    work: Work,
}

impl Runnable {
    pub(super) fn new<F, Fut>(group: Group, name: &str, run: F) -> Self
    where
        F: FnOnce(Running) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        Self { group, name: name.to_owned(), work: Box::new(move |running| Box::pin(run(running))) }
    }

    /// Its work, which tells `failed` of an error or a panic, and the signal that it is ready. It counts as ready, too,
    /// when it has ended.
    pub(super) fn start(
        self,
        stop: CancellationToken,
        failed: tokio::sync::mpsc::UnboundedSender<ManagerError>,
    ) -> (impl Future<Output = ()> + Send + 'static, watch::Receiver<bool>) {
        let Self { name, work, .. } = self;
        let (ready, is_ready) = watch::channel(false);
        let running = Running { stop, ready: ready.clone() };
        let run = async move {
            // Its state goes with it; nothing of it is looked at after a panic.
            let ended = AssertUnwindSafe(async { work(running).await }).catch_unwind().await;
            let error = match ended {
                Ok(Ok(())) => None,
                Ok(Err(source)) => Some(source),
                Err(panic) => Some(format!("panic: {}", panic_text(&*panic)).into()),
            };
            if let Some(source) = error {
                tracing::error!(%name, error = full_text(&*source), "a part of the program failed");
                // The manager may have stopped listening, since it is stopping.
                let _ = failed.send(ManagerError::Runnable { name, source });
            }
            ready.send_replace(true);
        };
        (run, is_ready)
    }
}
