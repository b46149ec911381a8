//! Connection of a store to etcd, and the layout of the objects in it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use serde_json::Value;
use tonic::{Code, Status};

use super::client::{CallError, Client};
use super::lease::Leases;
use super::wire::{self, RangeRequest, WatchOperation, WatchProgressRequest, WatchRequest};
use crate::resource::ResourcePrefix;
use crate::store::entry::Encoded;
use crate::store::transaction::WriteError;

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
pub(in crate::store) struct Etcd {
    pub(super) client: Client,
    /// Prefix of all keys, with a slash at the end.
    pub(super) prefix: String,
    pub(super) layout: Arc<dyn Layout>,
    /// Leases of the resources whose objects expire.
    pub(super) leases: Vec<(ResourcePrefix, Leases)>,
    pub(super) compaction_interval: Duration,
    /// Requests of the current watch stream; `None` without a stream.
    pub(super) watch_requests: Mutex<Option<UnboundedSender<WatchRequest>>>,
    /// Whether etcd responds, or the reason why it does not.
    pub(super) health: Mutex<Result<(), String>>,
}

impl Etcd {
    /// Returns the key of an object.
    pub(super) fn key(&self, resource_prefix: &str, key: &str) -> Vec<u8> {
        let path = self.layout.path(resource_prefix);
        let path = path.strip_prefix('/').unwrap_or(&path);
        format!("{}{path}/{key}", self.prefix).into_bytes()
    }

    /// Returns the resource prefix and the key of an object by its key in etcd.
    pub(super) fn locate<'k>(&self, key: &'k [u8]) -> Option<(ResourcePrefix, &'k str)> {
        let path =
            std::str::from_utf8(key).ok()?.strip_prefix(self.prefix.trim_end_matches('/'))?;
        self.layout.locate(path)
    }

    /// Returns the first key after all keys with the prefix.
    pub(super) fn range_end(&self) -> Vec<u8> {
        let mut end = self.prefix.clone().into_bytes();
        // The prefix ends with a slash, which the zero follows in ASCII.
        end.pop();
        end.push(b'0');
        end
    }

    /// Requests a progress notification of the watch, so that memory reaches a revision whose writes are not below the
    /// prefix.
    pub(super) fn request_progress(&self) {
        let requests = self.watch_requests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(requests) = &*requests {
            let request = Some(WatchOperation::Progress(WatchProgressRequest {}));
            // A stream that has just ended takes no requests; the next one begins with memory's revision.
            let _ = requests.unbounded_send(WatchRequest { request });
        }
    }

    /// Returns the current revision of etcd.
    pub(super) async fn current_revision(&self) -> Result<u64, CallError> {
        let key = self.prefix.clone().into_bytes();
        let request = RangeRequest { key, count_only: true, ..RangeRequest::default() };
        let response = self.client.range(request).await?;
        Ok(wire::revision(response.header.as_ref()))
    }
}

/// Returns the error of a call whose response from etcd did not arrive in time. It has the message of Go's `context`.
pub(super) fn timed_out() -> WriteError {
    WriteError::TimedOut("context deadline exceeded".into())
}

/// Returns the error of a failed call.
pub(super) fn unavailable(error: &Status) -> WriteError {
    match error.code() {
        Code::DeadlineExceeded => WriteError::TimedOut(error.message().into()),
        Code::InvalidArgument if error.message() == "etcdserver: request is too large" => {
            WriteError::TooLarge
        }
        _ => WriteError::Etcd(error.message().into()),
    }
}
