//! Authorizes a request, and makes the 403 for a refused request.

use super::User;
use super::authorization::{Answers, Decision};
use super::authorizer::Authorizer;
use super::rule::Attributes;
use crate::store::Store;
use evenkeel_apimachinery::group_version::GroupResource;
use evenkeel_apimachinery::status::{StatusError, quote};

/// Returns a 403 with upstream's message unless the authorizers allow the request. `answers` are the answers of
/// authorization webhooks so far.
///
/// Upstream: `withAuthorization`.
pub(crate) fn permit(
    authorizer: &Authorizer,
    store: &Store,
    user: &User,
    attributes: &Attributes<'_>,
    answers: &Answers,
) -> Result<(), StatusError> {
    if authorizer.decide(store, user, attributes, answers, false).is_allowed() {
        return Ok(());
    }
    // Decide again, now with the reason, which most requests do not need. A write since the first decision may allow
    // the request now.
    let decision = authorizer.decide(store, user, attributes, answers, true);
    if decision.is_allowed() { Ok(()) } else { Err(refusal(user, attributes, &decision)) }
}

/// Returns the error of a refused request: a 403, or a 500 if an authorizer failed.
pub(crate) fn refusal(
    user: &User,
    attributes: &Attributes<'_>,
    decision: &Decision,
) -> StatusError {
    match &decision.error {
        Some(error) => StatusError::internal(error),
        None => forbidden(user, attributes, &decision.reason),
    }
}

/// Returns a 403 that names the user and the request, with a reason if there is one.
///
/// Upstream: `ForbiddenStatusError`.
pub(crate) fn forbidden(user: &User, attributes: &Attributes<'_>, reason: &str) -> StatusError {
    let resource = if attributes.path.is_some() { "" } else { attributes.resource };
    let group_resource =
        GroupResource { group: attributes.group.into(), resource: resource.into() };
    let mut message = sanitize(&message(user, attributes));
    if !reason.is_empty() {
        message.push_str(": ");
        message.push_str(reason);
    }
    StatusError::forbidden(&group_resource, attributes.name, message)
}

/// Returns the message of a refusal without its reason.
///
/// Upstream: `forbiddenMessage`.
fn message(user: &User, attributes: &Attributes<'_>) -> String {
    let (user, verb) = (quote(&user.name), attributes.verb);
    if let Some(path) = attributes.path {
        return format!("User {user} cannot {verb} path {}", quote(path));
    }
    let mut resource = attributes.resource.to_owned();
    if !attributes.subresource.is_empty() {
        resource = format!("{resource}/{}", attributes.subresource);
    }
    let (resource, group) = (quote(&resource), quote(attributes.group));
    let scope = if attributes.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {}", quote(attributes.namespace))
    };
    format!("User {user} cannot {verb} resource {resource} in API group {group} {scope}")
}

/// Escapes the characters that a browser would read as HTML.
fn sanitize(message: &str) -> String {
    message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_user_request_and_reason() {
        let user = User::authenticated("we<ird&\"x\n", []);
        let named = Attributes {
            verb: "get",
            group: "apps",
            resource: "deployments",
            subresource: "scale",
            namespace: "a\u{a0}b",
            name: "<d>",
            ..Attributes::default()
        };
        let path = Attributes { verb: "get", path: Some("/a<b\"c"), ..Attributes::default() };
        let list = Attributes { verb: "list", resource: "nodes", ..Attributes::default() };
        let who = "User \"we&lt;ird&amp;\\\"x\\n\" cannot";
        for (attributes, reason, message) in [
            (
                &named,
                "rbac: <why>",
                format!(
                    "deployments.apps \"<d>\" is forbidden: {who} get resource \"deployments/scale\" in API group \
                     \"apps\" in the namespace \"a\\u00a0b\": rbac: <why>"
                ),
            ),
            (&path, "", format!("forbidden: {who} get path \"/a&lt;b\\\"c\"")),
            (
                &list,
                "",
                format!(
                    "nodes is forbidden: {who} list resource \"nodes\" in API group \"\" at the cluster scope"
                ),
            ),
        ] {
            assert_eq!(forbidden(&user, attributes, reason).message(), message);
        }
    }
}
