//! Auditing of a request: the header `Audit-ID`, and the parts of its audit events that come from the request's URL and
//! headers.

use std::net::IpAddr;

use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;
use http::header::Entry;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;

use crate::api::Api;
use crate::audit::{AuditAttributes, Level, Received, RequestAudit};
use crate::request::RequestInfo;
use crate::resource::{ResourceType, is_long_running_subresource};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Returns the audit ID of a request: the client's valid ID, or else a new one.
///
/// Upstream: `WithAuditInit`.
pub(super) fn audit_id(api: &Api, request: &HeaderMap) -> HeaderValue {
    match request.get(AUDIT_ID).filter(|id| is_valid(id)) {
        Some(id) => id.clone(),
        None => HeaderValue::try_from(api.uid()).unwrap_or_else(|_| HeaderValue::from_static("-")),
    }
}

/// Sets the audit ID in the response's headers. A proxied response keeps its own ID.
pub(super) fn set_audit_id(id: HeaderValue, response: &mut HeaderMap) {
    if let Entry::Vacant(vacant) = response.entry(AUDIT_ID) {
        vacant.insert(id);
    }
}

/// Audit event of a request, and the parts of it that come from the request's URL and headers.
pub(super) struct Audited<'a> {
    pub(super) audit: RequestAudit,
    /// Audit ID of the request.
    pub(super) id: &'a HeaderValue,
    /// Path and query as the client sent them.
    pub(super) uri: &'a str,
    pub(super) headers: &'a HeaderMap,
    /// IP address of the client.
    pub(super) remote: Option<IpAddr>,
    /// Time at which the request arrived.
    pub(super) at: Timestamp,
    pub(super) info: RequestInfo<'a>,
    pub(super) path: &'a str,
}

impl Audited<'_> {
    /// Evaluates the audit policy for the request's user, and writes the first event.
    pub(super) async fn receive(&self, user: &User) -> Result<(), StatusError> {
        if !self.audit.is_configured() {
            return Ok(());
        }
        let id = String::from_utf8_lossy(self.id.as_bytes());
        if self.audit.receive(&self.received(&id), user, &self.attributes()).await {
            return Ok(());
        }
        Err(StatusError::plain_internal("failed to store audit event"))
    }

    /// Evaluates the audit policy for a request without a valid user.
    pub(super) fn refuse(&self) {
        if self.audit.is_configured() {
            let id = String::from_utf8_lossy(self.id.as_bytes());
            self.audit.refuse(&self.received(&id), &self.attributes());
        }
    }

    fn received<'r>(&'r self, audit_id: &'r str) -> Received<'r> {
        let Self { uri, headers, remote, at, .. } = *self;
        Received { audit_id, uri, headers, remote, at }
    }

    fn attributes(&self) -> AuditAttributes<'_> {
        let (info, path) = (&self.info, self.path);
        if !info.is_resource {
            return AuditAttributes { verb: info.verb, path, ..AuditAttributes::default() };
        }
        AuditAttributes {
            verb: info.verb,
            is_resource: true,
            group: info.group,
            version: info.version,
            resource: info.resource,
            subresource: info.subresource,
            namespace: info.namespace,
            name: info.name,
            path,
        }
    }

    /// Annotates the event of a request for a deprecated resource.
    ///
    /// Upstream: `MonitorRequest`.
    pub(super) fn annotate_deprecation(&self, resource: &ResourceType) {
        if self.audit.wants(Level::Metadata) && resource.deprecation().is_some() {
            self.audit.annotate("k8s.io/deprecated", "true");
        }
    }

    /// Returns whether the body of the response is an API object, which audit events may contain. Logs and streams are
    /// not.
    pub(super) fn has_object(&self) -> bool {
        if self.info.is_resource {
            return !is_long_running_subresource(self.info.subresource);
        }
        // Discovery documents are API objects, OpenAPI documents are not.
        ["/api", "/apis"].iter().any(|root| {
            let rest = self.path.strip_prefix(root);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// Returns whether a client's audit ID is a string that is not blank. Its length has no limit.
fn is_valid(id: &HeaderValue) -> bool {
    std::str::from_utf8(id.as_bytes()).is_ok_and(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_some_text() {
        for (id, valid) in [
            (&b"6a1b2c3d-0000-4000-8000-000000000001"[..], true),
            (b"mine", true),
            ("\u{e9}".as_bytes(), true),
            (b"", false),
            (b"  ", false),
            (b"\xe9", false),
        ] {
            let id = HeaderValue::from_bytes(id).unwrap();
            assert_eq!(is_valid(&id), valid, "{id:?}");
        }
    }
}
