//! Live reads, and what the API server replies to them.

use super::OnError;
use crate::discovery::ServerResources;
use bytes::Bytes;
use http::HeaderMap;
use std::{sync::Arc, time::Duration};

/// Reads from the API server what a cache must not be trusted with: whether an object is really gone, or what a review says.
///
/// Made by [`LiveRead::get`], [`LiveRead::list`], [`LiveRead::json`], [`LiveRead::shared_json`], [`LiveRead::review`] and
/// [`LiveRead::resources`]. That nothing is there (404) is no failure: the pass goes on, and the outcome has the error and no
/// reply.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveRead {
    /// Which request it is.
    pub request: ReadRequest,
    /// Pause before it is sent, for another attempt at what failed.
    pub delay: Duration,
    /// What a failure means for the rest of the pass.
    pub on_error: OnError,
}

/// The kinds of live reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadRequest {
    /// GET by the controller's own client.
    Get {
        /// Path and query.
        path: String,
        /// Encodings of the reply that can be decoded, as in `Accept`.
        accept: &'static str,
    },
    /// GET of JSON by the program's client, which fills the caches: for what upstream's controller reads through a shared
    /// informer, so that its role does not grant it.
    GetShared {
        /// Path and query.
        path: String,
    },
    /// POST of a review, such as a SubjectAccessReview, whose status is the reply.
    Review {
        /// Path of the review's collection.
        path: String,
        /// The review, JSON.
        body: Bytes,
    },
    /// Discovery of the API server's resources.
    Discovery {
        /// The client's last discovery will do, unless it is older than this.
        max_age: Duration,
    },
}

impl LiveRead {
    /// Returns the path and query of the request; of a discovery, that of its first request.
    pub fn path(&self) -> &str {
        match &self.request {
            ReadRequest::Get { path, .. }
            | ReadRequest::GetShared { path }
            | ReadRequest::Review { path, .. } => path,
            ReadRequest::Discovery { .. } => "/apis",
        }
    }

    /// Whether it discovers the API server's resources.
    pub fn is_discovery(&self) -> bool {
        matches!(self.request, ReadRequest::Discovery { .. })
    }
}

/// The API server's reply to a live read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) resources: Option<Arc<ServerResources>>,
}
