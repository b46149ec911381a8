//! Responses and errors with their headers.

use std::collections::HashSet;

use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::{HeaderMap, Response, StatusCode};

use super::body::Body;
use crate::output::Format;
use evenkeel_apimachinery::status::StatusError;

/// Returns the response for an error, in a media type that the client accepts.
pub(crate) fn refusal(
    error: &StatusError,
    headers: &HeaderMap,
    query: &[(String, String)],
) -> Response<Body> {
    let (content_type, bytes) = Format::status(headers, query, &error.to_json());
    let mut response = Response::new(Body::whole(bytes));
    *response.status_mut() = error.code();
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    let retry_after = error.0.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if retry_after > 0 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after));
    }
    response
}

/// Returns a response with a code, a content type and a body.
pub(crate) fn answer(code: StatusCode, content_type: HeaderValue, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Maximum total length of a response's warnings in characters. If the warnings are longer, each one is truncated.
///
/// Upstream: `truncateAtTotalRunes`.
const MAX_TOTAL_WARNING_LENGTH: usize = 4 * 1024;

/// Maximum length of a truncated warning in characters.
///
/// Upstream: `truncateItemRunes`.
const MAX_WARNING_LENGTH: usize = 256;

/// Adds a `Warning` header for each distinct warning: `299 - "message"`.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in truncated_warnings(warnings) {
        let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::try_from(format!("299 - \"{escaped}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// Returns the warnings that fit in a response's headers: all, or truncated ones up to the limit.
///
/// Upstream: `AddWarning`.
fn truncated_warnings(warnings: &[String]) -> Vec<&str> {
    let mut seen = HashSet::new();
    let mut distinct: Vec<&str> = warnings.iter().map(String::as_str).collect();
    distinct.retain(|warning| !warning.is_empty() && seen.insert(*warning));
    let length = |text: &str| text.chars().count();
    let total: usize = distinct.iter().map(|warning| length(warning)).sum();
    if total <= MAX_TOTAL_WARNING_LENGTH {
        return distinct;
    }
    let mut remaining = MAX_TOTAL_WARNING_LENGTH;
    let mut truncated = Vec::new();
    for warning in distinct {
        if remaining == 0 {
            break;
        }
        let end = warning.char_indices().nth(MAX_WARNING_LENGTH).map_or(warning.len(), |(i, _)| i);
        let warning = &warning[..end];
        remaining = remaining.saturating_sub(length(warning));
        truncated.push(warning);
    }
    truncated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_truncated_to_a_total_length() {
        let warnings_of = |count: usize, length: usize| -> Vec<String> {
            (0..count).map(|i| format!("{i:03}{}", "é".repeat(length - 3))).collect()
        };
        for (warnings, count, length) in [
            (warnings_of(3, 10), 3, 10),
            (warnings_of(1, MAX_TOTAL_WARNING_LENGTH), 1, MAX_TOTAL_WARNING_LENGTH),
            (warnings_of(1, MAX_TOTAL_WARNING_LENGTH + 1), 1, MAX_WARNING_LENGTH),
            (warnings_of(100, 300), 16, MAX_WARNING_LENGTH),
            (warnings_of(500, 10), 410, 10),
        ] {
            let warnings = truncated_warnings(&warnings);
            assert_eq!(warnings.len(), count, "{length}");
            assert!(warnings.iter().all(|text| text.chars().count() == length));
        }
        assert_eq!(truncated_warnings(&["a".to_owned(), String::new(), "a".to_owned()]), ["a"]);
    }
}
