//! Judges refused requests of steps.

use evenkeel_runtime::client::ApiError;

/// What a refusal of a request on an object means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The object does not exist any more.
    Gone,
    /// The same request may succeed later.
    Later,
    /// The request does not succeed while object and Stage are as they are: a policy, a webhook or a rule refuses it.
    Never,
}

/// Judges an error of a request on an object of this name.
pub(super) fn judge(error: &ApiError, name: &str) -> Refusal {
    // A subresource that does not exist is not found, either. Then the message names no object.
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
            assert_eq!(judge(&error, "web"), want, "{code} {message}");
        }
    }
}
