//! Context of a request for a resource: the input of each verb.

use std::sync::Arc;

use http::header::USER_AGENT;
use http::{HeaderMap, Method};
use hyper::upgrade::OnUpgrade;
use jiff::Timestamp;
use tokio::sync::watch;

use super::query::Query;
use super::warnings::Warnings;
use crate::api::Api;
use crate::output::Format;
use crate::resource::{GroupVersionKind, ResourceType, Target};
use evenkeel_apimachinery::headers;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;

/// Request for a resource after authentication, impersonation, flow control and authorization, with its target,
/// parameters and user.
///
/// Upstream: `RequestScope` and `RequestInfo`.
pub(crate) struct RequestContext<'a> {
    /// Shared state of the server.
    pub(crate) api: &'a Arc<Api>,
    /// Object or collection of the request.
    pub(crate) target: Target<'a>,
    /// HTTP method of the request.
    pub(crate) method: &'a Method,
    /// Headers of the request.
    pub(crate) headers: &'a HeaderMap,
    /// Query parameters of the URL.
    pub(crate) query: &'a Query,
    /// Whether the path says that it is a watch, in the old way: below `watch`.
    pub(crate) is_watch_path: bool,
    /// The user, after impersonation.
    pub(crate) user: &'a User,
    /// Time at which the request arrived.
    pub(crate) now: Timestamp,
    /// Warnings for the client, in successful responses and errors.
    pub(crate) warnings: &'a Warnings,
    /// How to go on with another protocol; `None` where the connection cannot.
    pub(crate) upgrade: Option<&'a Upgrade>,
}

/// A connection that may go on with another protocol after the answer.
#[derive(Debug, Clone)]
pub(crate) struct Upgrade {
    /// The connection after the answer.
    pub(crate) connection: OnUpgrade,
    /// Changes to true when the listener of the connection stops.
    pub(crate) stopped: watch::Receiver<bool>,
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

    /// Returns the text of a header.
    pub(crate) fn header(&self, name: http::HeaderName) -> &str {
        headers::text(self.headers, name)
    }

    /// The negotiated form.
    pub(crate) fn format(&self) -> Result<Format, StatusError> {
        Format::negotiate(self.resource(), self.headers, &self.query.0)
    }

    /// Returns the kind of the request's and the response's object: the resource's, or that of a subresource with its
    /// own kind.
    pub(crate) fn kind(&self) -> GroupVersionKind {
        let resource = self.resource();
        resource
            .subresource(self.target.subresource)
            .map_or_else(|| resource.gvk.clone(), |part| part.kind.clone())
    }
}
