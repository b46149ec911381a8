//! Store in etcd, in kube-apiserver's layout, which several servers may share. Memory is a watch cache: only the watch of
//! etcd (`feed`) changes it, in order, and the store's revision is etcd's.
//!
//! A commit (`commit`) checks its transaction against memory, sends one transaction to etcd, and waits until the watch
//! has brought memory to its revision. All keys of one transaction have the same revision. Commits of several requests
//! run concurrently, without pending writes in memory.
//!
//! | part | module |
//! |---|---|
//! | messages and calls of etcd's API | `wire`, `client` |
//! | start and watch | `feed` |
//! | transactions | `commit` |
//! | leases of events | `lease` |
//! | removal of etcd's old revisions | `compaction` |

mod client;
mod commit;
mod compaction;
pub(super) mod connection;
mod feed;
mod health;
mod lease;
mod options;
mod wire;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::{sleep, timeout};
use tonic::Code;

pub(crate) use self::connection::Layout;
pub use self::options::EtcdOptions;

use self::client::{CALL_TIMEOUT, Client};
use self::connection::{Etcd, timed_out, unavailable};
use self::lease::Leases;
use super::handle::Store;
use super::index::IndexedResources;
use super::shared::Shared;
use super::transaction::WriteError;
use crate::clock::Clock;

/// Error message of a stand-in for etcd, which refuses every call because it stores nothing.
pub const STAND_IN_MESSAGE: &str = "this is a stand-in for etcd, which stores nothing";

/// Delay between two requests for the progress of the watch. Upstream: `progressRequestPeriod`.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Delay before the first such request. Usually the watch is only some milliseconds behind.
const FIRST_PROGRESS_DELAY: Duration = Duration::from_millis(10);

/// Delay before a read is repeated after an error. Reads change nothing, so they are repeated until the timeout.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// Reason why a store in etcd could not be opened.
pub(crate) enum ConnectError {
    /// The server is a stand-in, which stores nothing.
    StandIn,
    /// etcd cannot be used.
    Failed(String),
}

/// Task of a store, with its name.
pub(crate) type BackgroundTask =
    (&'static str, Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>);

impl Shared {
    /// Waits until memory has a revision of etcd.
    pub(super) async fn wait_for_etcd(&self, etcd: &Etcd, revision: u64) -> Result<(), WriteError> {
        if self.read().revision >= revision {
            return Ok(());
        }
        let mut settled = self.settled.subscribe();
        let reached = async {
            let mut delay = FIRST_PROGRESS_DELAY;
            loop {
                let reached = settled.wait_for(|settled| *settled >= revision);
                match timeout(delay, reached).await {
                    Ok(_) => return,
                    Err(_) => etcd.request_progress(),
                }
                delay = PROGRESS_INTERVAL;
            }
        };
        timeout(CALL_TIMEOUT, reached).await.map_err(|_| timed_out())
    }
}

impl Store {
    /// Opens a store in etcd: loads all objects, and the changes since etcd's last compaction. The caller must run the
    /// tasks of [`background`](Self::background) from then on.
    pub(crate) async fn connect(
        options: &EtcdOptions,
        layout: Arc<dyn Layout>,
        indexed_resources: IndexedResources,
        clock: &Clock,
    ) -> Result<Self, ConnectError> {
        let client = Client::new(options).map_err(ConnectError::Failed)?;
        let leases = layout.expiring().into_iter();
        let leases = leases.map(|(prefix, ttl)| (prefix, Leases::new(ttl, clock.clone())));
        let etcd = Etcd {
            client,
            prefix: format!("/{}/", options.prefix.trim_matches('/')),
            leases: leases.collect(),
            layout,
            compaction_interval: options.compaction_interval,
            watch_requests: Mutex::default(),
            health: Mutex::new(Ok(())),
        };
        let state = feed::load(&etcd, indexed_resources).await.map_err(|error| {
            if error.code() == Code::Unimplemented && error.message() == STAND_IN_MESSAGE {
                return ConnectError::StandIn;
            }
            ConnectError::Failed(format!(
                "etcd at {} does not answer: {}",
                options.servers.join(", "),
                error.message()
            ))
        })?;
        let shared = Shared::of_etcd(state, etcd, indexed_resources);
        Ok(Self::of(Arc::new(shared)))
    }

    /// Returns the tasks that a store in etcd needs; empty for other stores.
    pub(crate) fn background(&self) -> Vec<BackgroundTask> {
        let Some(etcd) = &self.shared.etcd else { return Vec::new() };
        let mut tasks: Vec<BackgroundTask> = Vec::new();
        let shared = self.shared.clone();
        tasks.push(("watch of etcd", Box::new(move || Box::pin(feed::run(shared.clone())))));
        let shared = self.shared.clone();
        tasks.push(("health of etcd", Box::new(move || Box::pin(health::run(shared.clone())))));
        if !etcd.compaction_interval.is_zero() {
            let shared = self.shared.clone();
            let run =
                move || -> BoxFuture<'static, ()> { Box::pin(compaction::run(shared.clone())) };
            tasks.push(("compaction of etcd", Box::new(run)));
        }
        tasks
    }

    /// Returns whether other servers may write to the same store.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.etcd.is_some()
    }

    /// Waits until memory has all writes that were committed before the call, including writes of other servers.
    pub(crate) async fn catch_up(&self) -> Result<(), WriteError> {
        let Some(etcd) = &self.shared.etcd else { return Ok(()) };
        let revision = async {
            loop {
                match etcd.current_revision().await {
                    Err(error) if client::is_temporary(&error) => sleep(RETRY_DELAY).await,
                    result => return result.map_err(|error| unavailable(&error)),
                }
            }
        };
        let revision = timeout(CALL_TIMEOUT, revision).await.map_err(|_| timed_out())??;
        self.shared.wait_for_etcd(etcd, revision).await
    }

    /// Returns an error with the reason if the store is in etcd and etcd does not respond.
    pub(crate) fn etcd_health(&self) -> Result<(), String> {
        let Some(etcd) = &self.shared.etcd else { return Ok(()) };
        etcd.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests;
