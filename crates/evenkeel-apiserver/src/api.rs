//! The server's inside: what verbs and hooks share, and what they are told about the request they serve.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde_json::Value;

use crate::auth::User;
use crate::resource::ResourceType;
use crate::status::StatusError;

/// What a hook is told about the write that it prepares.
pub(crate) struct Context<'a> {
    /// The server.
    pub(crate) api: &'a Api,
    /// The resource, in its stored version.
    pub(crate) resource: &'a ResourceType,
    /// When the request came.
    pub(crate) now: Timestamp,
    /// Who asks.
    pub(crate) user: &'a User,
    /// Namespace, empty for cluster-scoped objects.
    pub(crate) namespace: &'a str,
    /// Name, empty until one is generated.
    pub(crate) name: &'a str,
    /// Sub-resource, empty for the object itself.
    pub(crate) subresource: &'a str,
    /// Whether nothing will be stored.
    pub(crate) dry_run: bool,
    /// Whether the resource has a `status` sub-resource.
    pub(crate) has_status: bool,
}

/// A call of what is no plain verb: see [`crate::kinds::KindHooks::connect`].
pub(crate) struct Call<'a> {
    /// As for a write.
    pub(crate) cx: Context<'a>,
    /// HTTP method.
    pub(crate) method: &'a http::Method,
    /// Headers of the request.
    pub(crate) headers: &'a HeaderMap,
    /// Query parameters, decoded, in order.
    pub(crate) query: &'a [(String, String)],
    /// The decoded body, `Null` where there was none.
    pub(crate) body: Value,
    /// What follows the sub-resource in the path.
    pub(crate) rest: &'a str,
}

/// What a call answers.
pub(crate) enum Answer {
    /// An object, to be encoded as the client asked.
    Object(StatusCode, Value),
    /// Bytes of a media type of their own, such as a log.
    Raw(StatusCode, &'static str, Bytes),
}

/// The server's shared state.
pub(crate) struct Api {
    /// The resources.
    pub(crate) table: crate::resource::Table,
}

impl Api {
    /// A stored object, in its stored version; `None` when it is not there.
    pub(crate) fn read(
        &self,
        _resource: &ResourceType,
        _namespace: &str,
        _name: &str,
    ) -> Result<Option<Value>, StatusError> {
        Ok(None)
    }
}

/// A time as `metadata` has it: whole seconds.
pub(crate) fn seconds(time: Timestamp) -> String {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(time);
    whole.to_string()
}
