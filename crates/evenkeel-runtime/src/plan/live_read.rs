//! Live reads, and what the API server replies to them.

use super::OnError;
use crate::discovery::ServerResources;
use bytes::Bytes;
use http::HeaderMap;
use std::{sync::Arc, time::Duration};

/// Reads from the API server what a cache must not be trusted with: whether an object is really gone, or what a review says.
///
/// Made by [`LiveRead::get`], [`LiveRead::list`], [`LiveRead::json`], [`LiveRead::review`] and [`LiveRead::resources`]. That
/// nothing is there (404) is no failure: the pass goes on, and the outcome has the error and no reply.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveRead {
    /// Path and query.
    pub path: String,
    /// Encodings of the reply that can be decoded, as in `Accept`.
    pub accept: &'static str,
    /// JSON object that is posted, for a review; none for a GET.
    pub body: Option<Bytes>,
    /// Discovery rather than a request of this path: the client's last one, unless it is older than this.
    pub resources: Option<Duration>,
    /// Pause before it is sent, for another attempt at what failed.
    pub delay: Duration,
    /// Whether it is sent by the program's client, which fills the caches, rather than by the controller's own: for what
    /// upstream's controller reads through a shared informer, so that its role does not grant it.
    pub shared: bool,
    /// What a failure means for the rest of the pass.
    pub on_error: OnError,
}

/// The API server's reply to a live read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) resources: Option<Arc<ServerResources>>,
}
