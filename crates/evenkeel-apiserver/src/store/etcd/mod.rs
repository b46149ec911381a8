//! Store in etcd, in kube-apiserver's layout, which several servers may share. Memory is a watch cache: only the watch of
//! etcd (`feed`) changes it, in order, and the store's revision is etcd's.
//!
//! A commit (`commit`) checks its transaction against memory, sends one transaction to etcd, and waits until the watch has
//! brought memory to its revision. All keys of one transaction have the same revision. Commits of several requests run
//! concurrently; nothing is pending.
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
mod feed;
mod health;
mod lease;
mod options;
mod wire;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::{sleep, timeout};
use tonic::{Code, Status};

pub use self::options::EtcdOptions;

use self::client::{CALL_TIMEOUT, Client};
use self::lease::Leases;
use self::wire::{RangeRequest, WatchOperation, WatchProgressRequest, WatchRequest};
use super::entry::Encoded;
use super::handle::Store;
use super::index::IndexedResources;
use super::shared::Shared;
use super::transaction::WriteError;
use crate::clock::Clock;
use crate::resource::ResourcePrefix;

/// Message with which a stand-in for etcd refuses every call, because it stores nothing.
pub const STAND_IN_MESSAGE: &str = "this is a stand-in for etcd, which stores nothing";

/// Delay until the watch is asked for its progress, and between two such requests. Upstream: `progressRequestPeriod`.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Delay until the first request for progress. Usually the watch is only some milliseconds behind.
const FIRST_PROGRESS_DELAY: Duration = Duration::from_millis(10);

/// Delay before a read is repeated after an error. Reads change nothing, so that they are repeated until the time-out.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// Keys and values of objects in etcd.
pub(crate) trait Layout: Send + Sync {
    /// Returns the path of a resource's keys below the prefix, such as `/services/specs`.
    fn path(&self, resource_prefix: &str) -> String;

    /// Returns the resource prefix and the key of an object from its path below the prefix; `None` for a resource that
    /// this server does not know.
    fn locate<'p>(&self, path: &'p str) -> Option<(ResourcePrefix, &'p str)>;

    /// Encodes an object in upstream's storage version.
    fn encode(&self, resource_prefix: &str, object: &Value) -> Result<Vec<u8>, String>;

    /// Decodes a stored value.
    fn decode(&self, resource_prefix: &str, stored: &[u8]) -> Result<Encoded, String>;

    /// Returns the resources whose objects expire, each with the time to live after a write.
    fn expiring(&self) -> Vec<(ResourcePrefix, Duration)>;
}

/// Connection of a store to etcd.
pub(super) struct Etcd {
    client: Client,
    /// Prefix of all keys, with a slash at the end.
    prefix: String,
    layout: Arc<dyn Layout>,
    /// Leases of the resources whose objects expire.
    leases: Vec<(ResourcePrefix, Leases)>,
    compaction_interval: Duration,
    /// Requests of the current watch stream; `None` while there is none.
    watch_requests: Mutex<Option<UnboundedSender<WatchRequest>>>,
    /// Whether etcd answers, or the reason why not.
    health: Mutex<Result<(), String>>,
}

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

impl Etcd {
    /// Returns the key of an object.
    fn key(&self, resource_prefix: &str, key: &str) -> Vec<u8> {
        let path = self.layout.path(resource_prefix);
        let path = path.strip_prefix('/').unwrap_or(&path);
        format!("{}{path}/{key}", self.prefix).into_bytes()
    }

    /// Returns the resource prefix and the key of an object by its key in etcd.
    fn locate<'k>(&self, key: &'k [u8]) -> Option<(ResourcePrefix, &'k str)> {
        let path =
            std::str::from_utf8(key).ok()?.strip_prefix(self.prefix.trim_end_matches('/'))?;
        self.layout.locate(path)
    }

    /// Returns the first key after all keys with the prefix.
    fn range_end(&self) -> Vec<u8> {
        let mut end = self.prefix.clone().into_bytes();
        // The prefix ends with a slash, which the zero follows in ASCII.
        end.pop();
        end.push(b'0');
        end
    }

    /// Asks the watch for its progress, so that memory reaches a revision whose writes are not below the prefix.
    fn request_progress(&self) {
        let requests = self.watch_requests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(requests) = &*requests {
            let request = Some(WatchOperation::Progress(WatchProgressRequest {}));
            // A stream that has just ended takes no requests; the next one begins with memory's revision.
            let _ = requests.unbounded_send(WatchRequest { request });
        }
    }

    /// Returns the current revision of etcd.
    async fn current_revision(&self) -> Result<u64, client::CallError> {
        let key = self.prefix.clone().into_bytes();
        let request = RangeRequest { key, count_only: true, ..RangeRequest::default() };
        let response = self.client.range(request).await?;
        Ok(wire::revision(response.header.as_ref()))
    }
}

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

    /// Returns the tasks that a store in etcd needs; none of other stores.
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

    /// Waits until memory has all writes that were committed before the call, also those of other servers.
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

    /// Returns an error with the reason if the store is in etcd, which does not answer.
    pub(crate) fn etcd_health(&self) -> Result<(), String> {
        let Some(etcd) = &self.shared.etcd else { return Ok(()) };
        etcd.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the error of a call that etcd did not answer in time. Its text is that of Go's `context`.
fn timed_out() -> WriteError {
    WriteError::TimedOut("context deadline exceeded".into())
}

/// Returns the error of a failed call.
fn unavailable(error: &Status) -> WriteError {
    match error.code() {
        Code::DeadlineExceeded => WriteError::TimedOut(error.message().into()),
        Code::InvalidArgument if error.message() == "etcdserver: request is too large" => {
            WriteError::TooLarge
        }
        _ => WriteError::Etcd(error.message().into()),
    }
}

#[cfg(test)]
mod tests;
