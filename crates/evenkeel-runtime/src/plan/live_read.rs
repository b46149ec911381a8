//! Live reads, and the API server's replies to them.

use super::OnError;
use crate::discovery::ServerResources;
use bytes::Bytes;
use http::HeaderMap;
use std::{sync::Arc, time::Duration};

/// Read from the API server, for decisions for which a cache is not sufficient: whether an object is really deleted, or the
/// result of a review.
///
/// Created by [`LiveRead::get`], [`LiveRead::list`], [`LiveRead::json`], [`LiveRead::shared_json`],
/// [`LiveRead::review`] and [`LiveRead::resources`]. A NotFound response (404) is not a failure: the pass
/// continues, and the outcome has the error and no reply.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveRead {
    /// The request to send.
    pub request: ReadRequest,
    /// Delay before the request is sent, for another attempt after a failure.
    pub delay: Duration,
    /// Effect of a failure on the rest of the pass.
    pub on_error: OnError,
}

/// Request of a live read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadRequest {
    /// GET with the controller's own client.
    Get {
        /// Path and query.
        path: String,
        /// `Accept` header, which names the encodings that can be decoded.
        accept: &'static str,
    },
    /// GET of JSON with the program's client, which fills the caches. It is used for reads that upstream's controller makes
    /// through a shared informer, because the role of the controller does not permit them.
    GetShared {
        /// Path and query.
        path: String,
    },
    /// POST of a review, such as a SubjectAccessReview. The reply contains its status.
    Review {
        /// Path of the review's collection.
        path: String,
        /// The review as JSON.
        body: Bytes,
    },
    /// Discovery of the API server's resources.
    Discovery {
        /// Maximum age at which the client's last discovery is used instead of a new one.
        max_age: Duration,
    },
}

impl LiveRead {
    /// Returns the path and query of the request. For a discovery, returns a path of its first requests.
    pub fn path(&self) -> &str {
        match &self.request {
            ReadRequest::Get { path, .. }
            | ReadRequest::GetShared { path }
            | ReadRequest::Review { path, .. } => path,
            ReadRequest::Discovery { .. } => "/apis",
        }
    }

    /// Returns whether this read discovers the API server's resources.
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
