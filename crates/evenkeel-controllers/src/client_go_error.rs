//! Error messages of client-go for responses without a Status. Users search for these messages.

use evenkeel_runtime::plan::Failure;

/// Returns the failure's message as upstream writes it in events and conditions. `request` is client-go's name for the request,
/// such as `get pods.metrics.k8s.io`. If it is empty, the message does not name the request.
///
/// Upstream: `NewGenericServerResponse`.
pub(crate) fn message(failure: &Failure, request: &str) -> String {
    let Failure { code, reason, message, .. } = failure;
    let has_status = !reason.is_empty();
    if *code == 0 || has_status {
        return message.clone();
    }
    // The runtime's client sets this message if the response has none.
    let is_default_text = *message == format!("the API server answered {code}");
    let body = if is_default_text { "" } else { message };
    let text = match *code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 | 406 | 415 => body.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned(),
        500.. => format!(
            "an error on the server ({body:?}) has prevented the request from succeeding"
        ),
        code => format!(
            "the server responded with the status code {code} but did not return more information"
        ),
    };
    if request.is_empty() { text } else { format!("{text} ({request})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_without_status_is_described_by_its_code() {
        let text = |code, reason: &str, message: &str| {
            let failure = Failure { code, reason: reason.to_owned(), ..Failure::local(message) };
            super::message(&failure, "get pods.metrics.k8s.io")
        };
        assert_eq!(
            text(404, "", "404 page not found"),
            "the server could not find the requested resource (get pods.metrics.k8s.io)"
        );
        assert_eq!(
            text(502, "", "bad gateway"),
            "an error on the server (\"bad gateway\") has prevented the request from succeeding (get pods.metrics.k8s.io)"
        );
        assert_eq!(text(404, "NotFound", "pods \"a\" not found"), "pods \"a\" not found");
    }
}
