//! Context of a request for a resource, which each verb's handler receives.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use evenkeel_tasks::watch;
use http::header::USER_AGENT;
use http::{HeaderMap, Method, Uri};
use hyper::upgrade::OnUpgrade;
use jiff::Timestamp;

use super::query::Query;
use super::warnings::Warnings;
use crate::api::Api;
use crate::audit::RequestAudit;
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
    /// Path and query as the client sent them.
    pub(crate) uri: &'a Uri,
    /// Headers of the request.
    pub(crate) headers: &'a HeaderMap,
    /// Query parameters of the URL.
    pub(crate) query: &'a Query,
    /// Whether the path has the deprecated prefix `watch`.
    pub(crate) is_watch_path: bool,
    /// User of the request, after impersonation.
    pub(crate) user: &'a User,
    /// Time at which the request arrived.
    pub(crate) now: Timestamp,
    /// Warnings for the client. Successful responses and errors contain them.
    pub(crate) warnings: &'a Warnings,
    /// Audit event of the request.
    pub(crate) audit: &'a RequestAudit,
    /// Upgrade of the connection to another protocol; `None` if the connection cannot be upgraded.
    pub(crate) upgrade: Option<&'a Upgrade>,
    /// Negotiated format of the response, once it is known.
    pub(crate) format: OnceLock<Format>,
}

/// IP address that a connection comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemoteAddress(pub(crate) IpAddr);

/// Connection that can be upgraded to another protocol after the response.
#[derive(Debug, Clone)]
pub(crate) struct Upgrade {
    /// Connection after the response with status 101.
    pub(crate) connection: OnUpgrade,
    /// Becomes true when the listener of the connection stops.
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

    /// Returns the value of a header.
    pub(crate) fn header(&self, name: http::HeaderName) -> &str {
        headers::text(self.headers, name)
    }

    /// Negotiates the format of the response, once per request.
    pub(crate) fn format(&self) -> Result<Format, StatusError> {
        if let Some(format) = self.format.get() {
            return Ok(format.clone());
        }
        let format = {
            let subresource = self.target.subresource;
            Format::negotiate(self.resource(), subresource, self.headers, &self.query.0)?
        };
        Ok(self.format.get_or_init(|| format).clone())
    }

    /// Returns the kind of the object in the request and the response: the resource's kind, or the subresource's.
    pub(crate) fn kind(&self) -> GroupVersionKind {
        let resource = self.resource();
        resource
            .subresource(self.target.subresource)
            .map_or_else(|| resource.gvk.clone(), |part| part.kind.clone())
    }
}
