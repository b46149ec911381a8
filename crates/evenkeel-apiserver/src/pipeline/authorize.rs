//! Authorization stage: decides whether the user may make the request.

use crate::api::Api;
use crate::audit::{Level, RequestAudit};
use crate::auth::{Attributes, FieldRequirements, forbidden, permit};
use crate::request::RequestInfo;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;

/// Annotation of a request's audit event: `allow` or `forbid`.
const DECISION: &str = "authorization.k8s.io/decision";
/// Annotation of a request's audit event with the reason of the decision.
const REASON: &str = "authorization.k8s.io/reason";

/// Refuses requests that the user may not make. All users may read the server's health.
///
/// Upstream: `WithAuthorization`.
pub(super) fn authorize(
    api: &Api,
    user: &User,
    attributes: &Attributes<'_>,
    audit: &RequestAudit,
) -> Result<(), StatusError> {
    if matches!(attributes.path, Some("/healthz" | "/livez" | "/readyz")) {
        allowed(audit, String::new());
        return Ok(());
    }
    if !audit.wants(Level::Metadata) {
        return permit(&api.authorizer, &api.store, user, attributes);
    }
    match api.authorizer.authorize_with_reason(&api.store, user, attributes) {
        Ok(reason) => {
            allowed(audit, reason);
            Ok(())
        }
        Err(reason) => {
            audit.annotate(DECISION, "forbid");
            audit.annotate(REASON, reason.as_str());
            Err(forbidden(user, attributes, &reason))
        }
    }
}

fn allowed(audit: &RequestAudit, reason: String) {
    audit.annotate(DECISION, "allow");
    audit.annotate(REASON, reason);
}

/// Returns a request's attributes for authorization.
///
/// Upstream: `GetAuthorizerAttributes`.
pub(super) fn attributes<'a>(info: &RequestInfo<'a>, path: &'a str) -> Attributes<'a> {
    if !info.is_resource {
        return Attributes { verb: info.verb, path: Some(path), ..Attributes::default() };
    }
    Attributes {
        verb: info.verb,
        group: info.group,
        resource: info.resource,
        subresource: info.subresource,
        namespace: info.namespace,
        name: info.name,
        path: None,
        field_selector: FieldRequirements::Raw(info.field_selector),
    }
}
