//! Result of a command, which the server sends on the error channel.

use evenkeel_apimachinery::status::StatusError;
use serde_json::json;

use super::protocol::Version;

/// Result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The process exited with this code.
    Exited(i32),
    /// The process could not be started or observed; the error message.
    Failed(String),
}

/// Returns the message on the error channel, or `None` if the version of the protocol sends none.
///
/// Upstream: `ServeExec`, `v4WriteStatusFunc`, `v1WriteStatusFunc`.
pub(super) fn error_channel_message(outcome: &Outcome, version: Version) -> Option<Vec<u8>> {
    let (message, status) = match outcome {
        Outcome::Exited(0) => (None, json!({"metadata": {}, "status": "Success"})),
        Outcome::Exited(code) => {
            let message = format!(
                "command terminated with non-zero exit code: command terminated with exit code {code}"
            );
            let cause = json!({"reason": "ExitCode", "message": code.to_string()});
            let status = json!({"metadata": {}, "status": "Failure", "message": message,
                "reason": "NonZeroExitCode", "details": {"causes": [cause]}});
            (Some(message), status)
        }
        Outcome::Failed(why) => {
            let error = StatusError::internal(why);
            return Some(match version {
                Version::V1 | Version::V3 => error.message().as_bytes().to_vec(),
                Version::V4 | Version::V5 => error.to_json(),
            });
        }
    };
    match version {
        Version::V1 | Version::V3 => message.map(String::into_bytes),
        Version::V4 | Version::V5 => Some(status.to_string().into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_channel_carries_a_status_or_a_text() {
        let text = |outcome: &Outcome, version| {
            error_channel_message(outcome, version)
                .map(|bytes| String::from_utf8(bytes).expect("text"))
        };
        assert_eq!(text(&Outcome::Exited(0), Version::V1), None);
        let success = text(&Outcome::Exited(0), Version::V4).expect("a status");
        assert_eq!(success, r#"{"metadata":{},"status":"Success"}"#);
        let failure = text(&Outcome::Exited(3), Version::V5).expect("a status");
        let failure: serde_json::Value = serde_json::from_str(&failure).expect("JSON");
        assert_eq!(failure["reason"], "NonZeroExitCode");
        assert_eq!(failure["details"]["causes"][0], json!({"reason": "ExitCode", "message": "3"}));
        let plain = text(&Outcome::Exited(3), Version::V1).expect("a text");
        assert_eq!(failure["message"], plain);
        let internal = text(&Outcome::Failed("no".to_owned()), Version::V5).expect("a status");
        let internal: serde_json::Value = serde_json::from_str(&internal).expect("JSON");
        assert_eq!(internal["message"], "Internal error occurred: no");
        assert_eq!(internal["code"], 500);
    }
}
