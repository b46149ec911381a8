//! Checks of upstream's router, which refuses methods and media types that no route has. Custom resources skip these
//! checks, because their handler receives every method.
//!
//! Upstream: `detectRoute` of go-restful.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method, StatusCode};

use crate::resource::{Verb, is_long_running_subresource};
use evenkeel_apimachinery::headers::text;
use evenkeel_apimachinery::status::StatusError;

/// Number of media types at the start of [`PRODUCED`] that all routes produce.
const N_PRODUCED_BY_ALL: usize = 3;

/// Media types of responses.
const PRODUCED: [&str; 5] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    // Only for collections:
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// Media types of patches.
const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// Refuses a request for a built-in resource if no route supports its `Content-Type` or `Accept`.
pub(super) fn check(
    method: &Method,
    verb: Verb,
    subresource: &str,
    headers: &HeaderMap,
) -> Result<(), StatusError> {
    // Connections and logs have other media types.
    if is_long_running_subresource(subresource) {
        return Ok(());
    }
    if *method == Method::PATCH && !lists_any(text(headers, CONTENT_TYPE), &PATCHES) {
        return Err(unsupported_media_type());
    }
    let is_collection = matches!(verb, Verb::List | Verb::Watch);
    let count = if is_collection { PRODUCED.len() } else { N_PRODUCED_BY_ALL };
    accepts(headers, PRODUCED.get(..count).unwrap_or_default())
}

/// Refuses a request with a `Content-Type` if a route of reads consumes none of its media types.
///
/// Upstream: `matchesContentType` of go-restful.
pub(crate) fn consumes(headers: &HeaderMap, consumed: &[&str]) -> Result<(), StatusError> {
    let content_type = text(headers, CONTENT_TYPE);
    if content_type.is_empty() || lists_any(content_type, consumed) {
        return Ok(());
    }
    Err(unsupported_media_type())
}

fn unsupported_media_type() -> StatusError {
    let code = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    router_error(code, "UnsupportedMediaType", "415: Unsupported Media Type".to_owned())
}

/// Refuses a request that accepts none of the media types that a route produces.
///
/// Upstream: `matchesAccept` of go-restful.
pub(crate) fn accepts(headers: &HeaderMap, produced: &[&str]) -> Result<(), StatusError> {
    let accept = text(headers, ACCEPT);
    if accept.is_empty() || lists_any(accept, produced) || lists_any(accept, &["*/*"]) {
        return Ok(());
    }
    let message =
        format!("406: Not Acceptable\n\nAvailable representations: {}", produced.join(", "));
    Err(router_error(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message))
}

/// Returns whether a header lists one of the media types. Ignores parameters, and does not expand wildcards.
fn lists_any(header: &str, media_types: &[&str]) -> bool {
    header.split(',').any(|part| {
        let media_type = part.split(';').next().unwrap_or_default().trim();
        media_types.contains(&media_type)
    })
}

/// Returns an error of the router, which has details without fields.
fn router_error(code: StatusCode, reason: &'static str, message: String) -> StatusError {
    let mut error = StatusError::new(code, reason, message);
    error.details_mut();
    error
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn wildcards_of_subtypes_are_not_accepted() {
        for (accept, is_taken) in [
            ("", true),
            ("*/*", true),
            ("text/html, */*;q=0.1", true),
            ("application/json;as=Table", true),
            ("application/*", false),
            ("text/html", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            let checked = check(&Method::GET, Verb::Get, "", &headers);
            assert_eq!(checked.is_ok(), is_taken, "{accept}");
        }
        for (content_type, is_taken) in [
            ("", true),
            ("application/json; charset=utf-8", true),
            ("text/plain, application/json", true),
            ("text/plain", false),
            ("*/*", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            let checked = consumes(&headers, &["application/json"]);
            assert_eq!(checked.is_ok(), is_taken, "{content_type}");
        }
        let patch = check(&Method::PATCH, Verb::Patch, "", &HeaderMap::new());
        assert_eq!(patch.expect_err("no content type").code(), 415);
    }
}
