//! Runs the authorization checks of CEL expressions with the server's authorizers.
//!
//! Upstream: `NewAuthorizerVal` of `cel/library/authz.go`.

use std::fmt;

use evenkeel_cel::authorization::{AccessRequest, Authorize, Decision, Subject};

use crate::api::Context;
use crate::auth::serviceaccount::user_of;
use crate::auth::{Attributes, FieldRequirements, LabelRequirements};
use crate::resource::ResourceType;

/// Authorizer for the expressions that are evaluated for one request.
pub(super) struct RequestAuthorizer<'a> {
    cx: &'a Context<'a>,
}

impl<'a> RequestAuthorizer<'a> {
    pub(super) fn new(cx: &'a Context<'a>) -> Self {
        Self { cx }
    }
}

impl fmt::Debug for RequestAuthorizer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestAuthorizer").field("user", &self.cx.user.name).finish()
    }
}

impl Authorize for RequestAuthorizer<'_> {
    fn authorize(&self, subject: &Subject, request: &AccessRequest) -> Decision {
        decide(self.cx, subject, request)
    }
}

/// Decides whether the subject has the permission that `request` describes.
fn decide(cx: &Context<'_>, subject: &Subject, request: &AccessRequest) -> Decision {
    let service_account = match subject {
        Subject::Requester => None,
        Subject::ServiceAccount { namespace, name } => Some(user_of(namespace, name)),
    };
    let attributes = Attributes {
        verb: &request.verb,
        group: &request.group,
        resource: &request.resource,
        subresource: &request.subresource,
        namespace: &request.namespace,
        name: &request.name,
        path: request.path.as_deref(),
        version: "*",
        field_selector: FieldRequirements::Raw(&request.field_selector),
        label_selector: LabelRequirements::Raw(&request.label_selector),
    };
    let user = service_account.as_ref().unwrap_or(cx.user);
    let decision = cx.api.authorizer.decide(&cx.api.store, user, &attributes, cx.answers, true);
    Decision { allowed: decision.is_allowed(), reason: decision.reason, error: decision.error }
}

/// Returns the access request for the request's own resource (`authorizer.requestResource`), in the group of the
/// request.
///
/// Upstream: `NewResourceAuthorizerVal`.
pub(super) fn request_resource(cx: &Context<'_>) -> AccessRequest {
    let requested: &ResourceType = cx.requested;
    AccessRequest {
        group: requested.group().to_owned(),
        resource: requested.plural().to_owned(),
        subresource: cx.subresource.to_owned(),
        namespace: cx.namespace.to_owned(),
        name: cx.name.to_owned(),
        ..AccessRequest::default()
    }
}
