//! Classifies errors of a step's requests.

use evenkeel_runtime::client::ApiError;

/// Class of an error that the server returned to a request about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The object no longer exists.
    Gone,
    /// The same request may succeed later.
    Later,
    /// The request fails until the object or the Stage changes: a policy, a webhook or a validation rule refuses it.
    Never,
}

/// Classifies the error of a request about the object with this name.
pub(super) fn classify(error: &ApiError, name: &str) -> Refusal {
    // The server also returns a 404 if the subresource does not exist. The message then names no object.
    let names_object = || error.to_string().contains(&format!("\"{name}\""));
    if error.is_other_uid() || error.is_not_found() && names_object() {
        return Refusal::Gone;
    }
    match error {
        ApiError::Transport { .. } | ApiError::Fenced { .. } => Refusal::Later,
        ApiError::Status(status) if matches!(status.code, 409 | 429 | 500..) => Refusal::Later,
        _ => Refusal::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::client::Status;

    #[test]
    fn refusals_are_distinguished() {
        for (code, message, want) in [
            (404, "pods \"web\" not found", Refusal::Gone),
            (404, "the server could not find the requested resource", Refusal::Never),
            (404, "namespaces \"web-2\" not found", Refusal::Never),
            (409, "the UID in the precondition (a) does not match", Refusal::Gone),
            (409, "the object has been modified", Refusal::Later),
            (429, "too many requests", Refusal::Later),
            (500, "a webhook does not answer", Refusal::Later),
            (503, "the server is starting", Refusal::Later),
            (504, "timeout", Refusal::Later),
            (400, "a bad request", Refusal::Never),
            (401, "unauthorized", Refusal::Never),
            (403, "pods \"web\" is forbidden: a policy denies it", Refusal::Never),
            (422, "Pod \"web\" is invalid", Refusal::Never),
        ] {
            let status = Status { code, message: message.into(), ..Status::default() };
            let error = ApiError::Status(Box::new(status));
            assert_eq!(classify(&error, "web"), want, "{code} {message}");
        }
    }
}
