//! Authorization stage: decides whether the user may make the request.

use crate::api::Api;
use crate::auth::{Attributes, FieldRequirements, permit};
use crate::request::RequestInfo;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;

/// Refuses requests that the user may not make. All users may read the server's health.
///
/// Upstream: `WithAuthorization`.
pub(super) fn authorize(
    api: &Api,
    user: &User,
    attributes: &Attributes<'_>,
) -> Result<(), StatusError> {
    if matches!(attributes.path, Some("/healthz" | "/livez" | "/readyz")) {
        return Ok(());
    }
    permit(&api.authorizer, &api.store, user, attributes)
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
