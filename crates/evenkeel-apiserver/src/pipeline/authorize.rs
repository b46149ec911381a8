//! Authorization stage: decides whether the user may make the request.

use http::header::X_CONTENT_TYPE_OPTIONS;
use http::{HeaderMap, HeaderValue, Response};

use crate::api::Api;
use crate::audit::{Level, RequestAudit};
use crate::auth::{
    Answers, Attributes, FieldRequirements, LabelRequirements, permit, refusal, settled,
};
use crate::request::{Query, RequestInfo};
use crate::response::{self, Body};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;

/// Annotation of a request's audit event: `allow` or `forbid`.
const DECISION: &str = "authorization.k8s.io/decision";
/// Annotation of a request's audit event with the reason of the decision.
const REASON: &str = "authorization.k8s.io/reason";

/// Reason in the audit event of a request if an authorizer failed.
const INTERNAL_ERROR: &str = "internal error";

/// Refuses requests that the user may not make. All users may get the server's health.
///
/// Upstream: `WithAuthorization`.
pub(super) async fn authorize(
    api: &Api,
    user: &User,
    attributes: &Attributes<'_>,
    audit: &RequestAudit,
) -> Result<(), StatusError> {
    let is_health = matches!(attributes.path, Some("/healthz" | "/livez" | "/readyz"));
    if is_health && attributes.verb == "get" {
        allowed(audit, String::new());
        return Ok(());
    }
    let answers = Answers::default();
    let (authorizer, store) = (&api.authorizer, &api.store);
    if !audit.wants(Level::Metadata) {
        let permit = || permit(authorizer, store, user, attributes, &answers);
        return settled(&answers, permit).await;
    }
    let decide = || authorizer.decide(store, user, attributes, &answers, true);
    let decision = settled(&answers, decide).await;
    if decision.is_allowed() {
        allowed(audit, decision.reason);
        return Ok(());
    }
    if decision.error.is_some() {
        audit.annotate(REASON, INTERNAL_ERROR);
    } else {
        audit.annotate(DECISION, "forbid");
        audit.annotate(REASON, decision.reason.as_str());
    }
    Err(refusal(user, attributes, &decision))
}

/// Returns the response to a request that its user may not make. Browsers must not guess its media type, because it
/// contains what the client sent.
///
/// Upstream: `Forbidden`.
pub(super) fn refused(error: &StatusError, headers: &HeaderMap, query: &Query) -> Response<Body> {
    let mut response = response::refusal(error, headers, &query.0);
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    response
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
        version: info.version,
        resource: info.resource,
        subresource: info.subresource,
        namespace: info.namespace,
        name: info.name,
        path: None,
        field_selector: FieldRequirements::Raw(info.field_selector),
        label_selector: LabelRequirements::Raw(info.label_selector),
    }
}
