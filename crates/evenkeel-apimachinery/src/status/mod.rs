//! Error responses: `metav1.Status` with upstream's codes, reasons and messages.

mod field;

use std::borrow::Cow;
use std::collections::HashSet;

pub use evenkeel_api::quote::{is_print, quote};
pub use field::{BadValue, FieldError, FieldErrorKind};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::group_version::{GroupKind, GroupResource};

/// An error response. The status is boxed to keep `Result<_, StatusError>` small.
///
/// Upstream: `StatusError`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}", .0.message)]
pub struct StatusError(pub Box<Status>);

/// The body of a [`StatusError`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    pub(crate) kind: &'static str,
    #[serde(rename = "apiVersion")]
    pub(crate) api_version: &'static str,
    /// List metadata, which carries a continue token.
    pub metadata: Metadata,
    pub(crate) status: &'static str,
    /// Message for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Machine-readable reason, such as `NotFound`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    /// Object, causes and retry delay of the error, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
    /// HTTP status code.
    pub code: u16,
}

/// List metadata of an error: empty, or a token to continue an expired list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Metadata {
    /// Token that continues the list.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub token: String,
}

/// Object and causes of an error.
///
/// Upstream: `StatusDetails`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) causes: Vec<Cause>,
    /// Seconds after which the client should retry; 0 if not specified.
    #[serde(rename = "retryAfterSeconds", skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}

/// One of possibly several causes of an error.
///
/// Upstream: `StatusCause`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Cause {
    #[serde(rename = "reason", skip_serializing_if = "str::is_empty")]
    pub(crate) reason: Cow<'static, str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) field: String,
}

impl StatusError {
    /// Returns an error with an HTTP code, a reason and a message.
    pub fn new(
        code: StatusCode,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self(Box::new(Status {
            kind: "Status",
            api_version: "v1",
            metadata: Metadata::default(),
            status: "Failure",
            message: message.into(),
            reason: reason.into(),
            details: None,
            code: code.as_u16(),
        }))
    }

    /// Returns the HTTP status code.
    pub fn code(&self) -> StatusCode {
        StatusCode::from_u16(self.0.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the machine-readable reason, such as `NotFound`.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Returns the message for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Encodes the status as a JSON object of kind `Status`.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).unwrap_or_default()
    }

    /// Returns the details, and creates them if absent.
    pub fn details_mut(&mut self) -> &mut Details {
        self.0.details.get_or_insert_default()
    }

    /// Sets group, resource (or kind) and name of the details.
    #[must_use]
    pub(crate) fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details_mut();
        details.group = group.to_owned();
        details.kind = kind.to_owned();
        details.name = name.to_owned();
        self
    }

    /// Adds a cause.
    #[must_use]
    pub fn cause(
        mut self,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
        field: impl Into<String>,
    ) -> Self {
        self.details_mut().causes.push(Cause {
            reason: reason.into(),
            message: message.into(),
            field: field.into(),
        });
        self
    }

    /// Sets the number of seconds after which the client should retry, as in the header `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details_mut().retry_after_seconds = seconds;
        self
    }

    /// Returns a 404: the object does not exist.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{resource} \"{name}\" not found"))
            .about(&resource.group, &resource.resource, name)
    }

    /// Returns a 404: the group has no such resource ("the server could not find the requested resource").
    pub fn resource_not_found() -> Self {
        let mut error = Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        );
        error.details_mut();
        error
    }

    /// Returns a 409: an object of that name already exists.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "AlreadyExists",
            format!("{resource} \"{name}\" already exists"),
        )
        .about(&resource.group, &resource.resource, name)
    }

    /// Returns a 409: no free name was found for a `generateName`.
    pub fn generate_name_conflict(resource: &GroupResource, name: &str) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "AlreadyExists",
            format!("{resource} \"{name}\" already exists, the server was not able to generate a unique name for the object"),
        )
        .about(&resource.group, &resource.resource, name)
        .retry_after(1)
    }

    /// Returns a 401 `Unauthorized`: the request has no valid credentials.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// Returns a 403: the user may not access a resource, or one object if `name` is not empty.
    pub fn forbidden(resource: &GroupResource, name: &str, why: impl std::fmt::Display) -> Self {
        let message = if resource.group.is_empty() && resource.resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} \"{name}\" is forbidden: {why}")
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(
            &resource.group,
            &resource.resource,
            name,
        )
    }

    /// Returns a 409: the stored object differs from the one that the client expects.
    pub fn conflict(resource: &GroupResource, name: &str, why: impl std::fmt::Display) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "Conflict",
            format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}"),
        )
        .about(&resource.group, &resource.resource, name)
    }

    /// Returns a 409 with upstream's message for an outdated resourceVersion.
    pub fn modified(resource: &GroupResource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Returns the 409 of a server-side apply that conflicts with other managers. Causes have the reason
    /// `FieldManagerConflict`.
    pub(crate) fn apply_conflict(message: impl Into<String>, causes: Vec<Cause>) -> Self {
        let mut error = Self::new(StatusCode::CONFLICT, "Conflict", message);
        error.details_mut().causes = causes;
        error
    }

    /// Returns a 410 with reason `Expired`: the resourceVersion or continue token is too old.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// Returns a 422 with validation errors about an object. `name` may be empty.
    pub fn invalid(kind: &GroupKind, name: &str, errors: &[FieldError]) -> Self {
        let mut message = format!("{kind} \"{name}\" is invalid");
        // Lists errors until their total size exceeds the limit.
        let mut size = 0;
        let mut n_listed = 0;
        for error in errors {
            if size >= FieldError::MAX_TOTAL_SIZE {
                break;
            }
            size += error.size();
            n_listed += 1;
        }
        let placeholder = (n_listed < errors.len()).then(FieldError::not_all_listed);
        let listed = || errors.iter().take(n_listed).chain(&placeholder);
        let mut seen = HashSet::new();
        let texts: Vec<String> =
            listed().map(ToString::to_string).filter(|text| seen.insert(text.clone())).collect();
        match texts.as_slice() {
            [] => {}
            [text] => {
                message.push_str(": ");
                message.push_str(text);
            }
            texts => {
                message.push_str(": [");
                message.push_str(&texts.join(", "));
                message.push(']');
            }
        }
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(
            &kind.group,
            &kind.kind,
            name,
        );
        error.details_mut().causes = listed()
            .map(|e| Cause {
                reason: Cow::Borrowed(e.kind.reason()),
                message: e.body(),
                field: e.field.clone(),
            })
            .collect();
        error
    }

    /// Returns a 400 `BadRequest`: the request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// Returns a 405: the path does not support the HTTP method.
    pub fn method_not_allowed() -> Self {
        let mut error = Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        error.details_mut();
        error
    }

    /// Returns a 405: a resource does not support an action.
    ///
    /// Upstream: `NewMethodNotSupported`.
    pub fn method_not_supported(resource: &GroupResource, action: &str) -> Self {
        let message = format!(
            "{action} is not supported on resources of kind {}",
            quote(&resource.to_string())
        );
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).about(
            &resource.group,
            &resource.resource,
            "",
        )
    }

    /// Returns a 406: the server supports none of the media types that the client accepts. `accepted` lists the
    /// supported ones.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        Self::new(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            format!("only the following media types are accepted: {}", accepted.join(", ")),
        )
    }

    /// Returns a 415: the media type of the body is not among `accepted`.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            ),
        )
    }

    /// Returns a 413 `RequestEntityTooLarge`: the body exceeds its limit.
    pub fn too_large(message: &str) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Request entity too large: {message}"),
        )
    }

    /// Returns a 500 with upstream's prefix before the message.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {message}"),
        )
        .cause("", message.to_string(), "")
    }

    /// Returns a 500 with only the message and no reason, for an error that upstream does not convert to a Status.
    pub fn plain_internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// Returns a 503 `ServiceUnavailable`: the server is not ready.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// Returns a 507 `InsufficientStorage`: the server cannot store anything now. The message should name the remedy
    /// for an administrator.
    pub fn insufficient_storage(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", message)
    }

    /// Returns a 504: the requested resourceVersion is newer than the server's.
    pub fn timeout(message: impl std::fmt::Display, retry_after_seconds: u32) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", format!("Timeout: {message}"))
            .retry_after(retry_after_seconds)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn an_invalid_error_lists_each_cause_in_message_and_details() {
        let kind = GroupKind { group: "apps".into(), kind: "Deployment".into() };
        let one = [FieldError::required("spec.selector", "")];
        let error = StatusError::invalid(&kind, "web", &one);
        assert_eq!(
            error.message(),
            "Deployment.apps \"web\" is invalid: spec.selector: Required value"
        );
        let two = [
            FieldError::invalid("spec.replicas", -1, "must be greater than or equal to 0"),
            FieldError::not_supported("spec.policy", "x", &["A", "B"]),
        ];
        let error = StatusError::invalid(&kind, "web", &two);
        assert_eq!(
            error.message(),
            "Deployment.apps \"web\" is invalid: [spec.replicas: Invalid value: -1: must be greater than or equal to 0, \
             spec.policy: Unsupported value: \"x\": supported values: \"A\", \"B\"]"
        );
        let json: Value = serde_json::from_slice(&error.to_json()).expect("a Status is JSON");
        assert_eq!(json["details"]["causes"][1]["reason"], "FieldValueNotSupported");
        assert_eq!(json["code"], 422);
    }
}
