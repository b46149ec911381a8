//! The context of a request for a resource: what each verb gets.

use std::sync::Arc;

use http::header::USER_AGENT;
use http::{HeaderMap, Method};
use jiff::Timestamp;

use super::query::Query;
use super::warnings::Warnings;
use crate::api::Api;
use crate::output::Format;
use crate::resource::{GroupVersionKind, ResourceType, Target};
use evenkeel_apimachinery::headers;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;

/// A request for a resource after authentication, impersonation, flow control and authorization: its target, its parameters
/// and its user. Each verb takes one.
///
/// Upstream: `RequestScope` and `RequestInfo`.
pub(crate) struct RequestContext<'a> {
    /// The state of the server.
    pub(crate) api: &'a Arc<Api>,
    /// Object or collection of the request.
    pub(crate) target: Target<'a>,
    /// HTTP method of the request.
    pub(crate) method: &'a Method,
    /// Headers of the request.
    pub(crate) headers: &'a HeaderMap,
    /// Parameters of the URL.
    pub(crate) query: &'a Query,
    /// Whether the path says that it is a watch, in the old way: below `watch`.
    pub(crate) is_watch_path: bool,
    /// The user, after impersonation.
    pub(crate) user: &'a User,
    /// When it came.
    pub(crate) now: Timestamp,
    /// Warnings for the client, whether it is served or refused.
    pub(crate) warnings: &'a Warnings,
}

impl RequestContext<'_> {
    /// Returns the resource that the path names.
    pub(crate) fn resource(&self) -> &Arc<ResourceType> {
        &self.target.resource
    }

    /// Returns the `User-Agent` header.
    pub(crate) fn user_agent(&self) -> &str {
        headers::text(self.headers, USER_AGENT)
    }

    /// A header's text.
    pub(crate) fn header(&self, name: http::HeaderName) -> &str {
        headers::text(self.headers, name)
    }

    /// The negotiated form.
    pub(crate) fn format(&self) -> Result<Format, StatusError> {
        Format::negotiate(self.resource(), self.headers, &self.query.0)
    }

    /// Returns the kind that the path takes and answers: the resource's, or that of a sub-resource which is a view.
    pub(crate) fn kind(&self) -> GroupVersionKind {
        let resource = self.resource();
        resource
            .subresource(self.target.subresource)
            .map_or_else(|| resource.gvk.clone(), |part| part.kind.clone())
    }
}
