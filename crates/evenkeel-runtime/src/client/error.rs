//! Errors of API requests.

use crate::plan::Failure;
use evenkeel_api::{DecodeError, Text};
use std::{error::Error, time::Duration};

/// Error of an API request.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server responded with a `metav1.Status` of failure.
    #[doc(alias = "StatusError")]
    #[error("{0}")]
    Status(Box<Status>),
    /// No complete response arrived: the connection, TLS or the credentials failed, or the body was truncated. See
    /// `source`.
    #[error("{method} {path}: no answer from the API server")]
    Transport {
        /// HTTP method of the request.
        method: http::Method,
        /// Path of the request without its query.
        path: Text,
        /// Error of the transport.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The leader fence is closed: the write was not sent, or its response was not awaited. See
    /// [`super::LeaderFence`].
    #[error("{method} {path}: abandoned, since this process does not lead (any more)")]
    Fenced {
        /// HTTP method of the request.
        method: http::Method,
        /// Path of the request without its query.
        path: Text,
    },
    /// The response could not be decoded.
    #[error("{method} {path}: the answer cannot be read")]
    Decode {
        /// HTTP method of the request.
        method: http::Method,
        /// Path of the request without its query.
        path: Text,
        /// Error of the decoder.
        #[source]
        source: DecodeError,
    },
    /// The request could not be built, for example because a name contains characters that a path cannot contain.
    #[error("request for {path}: {reason}")]
    Request {
        /// The path that was built so far.
        path: Text,
        /// The rule that the request breaks.
        reason: Text,
    },
}

/// The fields of a `metav1.Status` that programs act on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason, such as `AlreadyExists`, or empty.
    pub reason: Text,
    /// Human-readable message, or empty.
    pub message: Text,
    /// Causes in `details.causes`, such as invalid fields.
    pub causes: Box<[Cause]>,
    /// Time that the client should wait before a retry, from the `Retry-After` header or `details.retryAfterSeconds`.
    pub retry_after: Option<Duration>,
}

/// An entry of a Status's `details.causes`.
#[doc(alias = "StatusCause")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cause {
    /// Machine-readable reason, such as `FieldValueInvalid` or `NamespaceTerminating`.
    pub reason: Text,
    /// Human-readable description of the cause.
    pub message: Text,
    /// JSON path of the field that caused the error.
    pub field: Text,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&*self.message, &*self.reason) {
            ("", "") => write!(f, "the API server answered {}", self.code),
            ("", reason) => write!(f, "the API server answered {} {reason}", self.code),
            (message, _) => f.write_str(message),
        }
    }
}

impl ApiError {
    /// Returns the HTTP status code, or 0 without a Status.
    pub fn code(&self) -> u16 {
        self.status().map_or(0, |status| status.code)
    }

    /// Returns the Status's reason, or an empty string without a Status.
    pub fn reason(&self) -> &str {
        self.status().map_or("", |status| &status.reason)
    }

    /// Returns the Status if the server sent one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            Self::Transport { .. }
            | Self::Fenced { .. }
            | Self::Decode { .. }
            | Self::Request { .. } => None,
        }
    }

    /// Returns whether the object or the resource does not exist (404).
    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// Returns whether a precondition failed because of another write (409, `Conflict`).
    pub fn is_conflict(&self) -> bool {
        self.code() == 409 && !self.is_already_exists()
    }

    /// Returns whether a precondition on the uid failed, because another object of the same name replaced the object.
    /// Only the message shows the reason, in two forms (`registry/rest/delete.go`, `storage/interfaces.go`).
    pub fn is_other_uid(&self) -> bool {
        const MESSAGES: [&str; 2] = ["the UID in the precondition (", "UID in precondition: "];
        self.is_conflict()
            && self.status().is_some_and(|status| {
                MESSAGES.iter().any(|message| status.message.contains(message))
            })
    }

    /// Returns whether the object of the request no longer exists, or another one has its name.
    pub fn is_not_found_or_replaced(&self) -> bool {
        self.is_not_found() || self.is_other_uid()
    }

    /// Returns whether an object of this name already exists (409, `AlreadyExists`).
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// Returns whether the server forbids the request (403).
    pub fn is_forbidden(&self) -> bool {
        self.code() == 403
    }

    /// Returns whether the request is invalid, so that a retry cannot succeed (400 `BadRequest`, 422
    /// `Invalid`).
    pub fn is_invalid(&self) -> bool {
        matches!(self.code(), 400 | 422)
    }

    /// Returns whether the requested resourceVersion or continue token has expired (410).
    pub fn is_expired(&self) -> bool {
        self.code() == 410 || matches!(self.reason(), "Expired" | "Gone")
    }

    /// Returns whether the requested resourceVersion is too large: the server lags behind, or was restored from
    /// a backup.
    pub fn is_version_too_large(&self) -> bool {
        self.code() == 504
            && self.status().is_some_and(|status| {
                status.causes.iter().any(|cause| &*cause.reason == "ResourceVersionTooLarge")
            })
    }

    /// Returns whether the server refuses the request because of its load (429).
    pub fn is_too_many_requests(&self) -> bool {
        self.code() == 429
    }

    /// Returns whether nothing can be created because the namespace is terminating.
    pub fn is_namespace_terminating(&self) -> bool {
        self.code() == 403
            && self.status().is_some_and(|status| {
                status.causes.iter().any(|cause| &*cause.reason == "NamespaceTerminating")
            })
    }

    /// Returns whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Status(status) => !matches!(status.code, 400 | 405 | 406 | 415 | 422),
            Self::Transport { .. } | Self::Fenced { .. } => true,
            Self::Decode { .. } | Self::Request { .. } => false,
        }
    }
}

impl From<&ApiError> for Failure {
    fn from(error: &ApiError) -> Self {
        Self {
            code: error.code(),
            reason: error.reason().to_owned(),
            message: full_text(error),
            namespace_terminating: error.is_namespace_terminating(),
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::from(&error)
    }
}

/// Formats an error with all its sources, for a message.
pub fn full_text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // Some libraries repeat the source's message in their own.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, reason: &str) -> ApiError {
        ApiError::Status(Box::new(Status { code, reason: reason.into(), ..Status::default() }))
    }

    #[test]
    fn errors_are_classified_by_code_and_reason() {
        assert!(status(404, "NotFound").is_not_found());
        assert!(status(409, "Conflict").is_conflict());
        assert!(!status(409, "AlreadyExists").is_conflict());
        assert!(status(409, "AlreadyExists").is_already_exists());
        assert!(status(410, "Expired").is_expired());
        assert!(!status(422, "Invalid").is_retryable());
        assert!(status(500, "").is_retryable());
    }

    #[test]
    fn a_replaced_object_is_distinguished_from_a_changed_one() {
        let conflict = |message: &str| {
            let (reason, message) = ("Conflict".into(), message.into());
            ApiError::Status(Box::new(Status { code: 409, reason, message, ..Status::default() }))
        };
        // The message of a v1.37 server.
        let prefix = "Operation cannot be fulfilled on ConfigMap \"p\":";
        assert!(conflict(&format!("{prefix} the UID in the precondition (other) does not match the UID in record (142db527). The object might have been deleted and then recreated")).is_other_uid());
        assert!(conflict(&format!("{prefix} StorageError: invalid object, Code: 4, AdditionalErrorMsg: Precondition failed: UID in precondition: a, UID in object meta: b")).is_other_uid());
        assert!(!conflict(&format!("{prefix} the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (217). The object might have been modified")).is_other_uid());
        assert!(!status(409, "AlreadyExists").is_other_uid());
    }

    #[test]
    fn terminating_namespaces_are_distinguished_from_other_refusals() {
        let cause = Cause { reason: "NamespaceTerminating".into(), ..Cause::default() };
        let error = ApiError::Status(Box::new(Status {
            code: 403,
            causes: Box::new([cause]),
            ..Status::default()
        }));
        assert!(error.is_namespace_terminating());
        assert!(Failure::from(&error).namespace_terminating);
        assert!(!status(403, "Forbidden").is_namespace_terminating());
    }

    #[test]
    fn a_transport_error_includes_its_causes() {
        let error = ApiError::Transport {
            method: http::Method::GET,
            path: "/api/v1/pods".into(),
            source: "connection refused".into(),
        };
        assert_eq!(
            full_text(&error),
            "GET /api/v1/pods: no answer from the API server: connection refused"
        );
        assert_eq!(Failure::from(error).code, 0);
    }
}
