//! Checks of upstream's router, which refuses methods and media types that no route has. Custom resources skip these
//! checks, because their handler receives every method.
//!
//! Upstream: `detectRoute` of go-restful.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method, StatusCode};

use crate::resource::{Verb, is_long_running_subresource};
use evenkeel_apimachinery::headers::text;
use evenkeel_apimachinery::status::StatusError;

/// Media types of responses. The last two are only for collections.
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

/// Refuses a request for a built-in resource whose media types no route has.
pub(super) fn check(
    method: &Method,
    verb: Verb,
    subresource: &str,
    headers: &HeaderMap,
) -> Result<(), StatusError> {
    // These subresources have other media types.
    if is_long_running_subresource(subresource) {
        return Ok(());
    }
    if *method == Method::PATCH && !names(text(headers, CONTENT_TYPE), &PATCHES) {
        let code = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let message = "415: Unsupported Media Type".to_owned();
        return Err(refusal(code, "UnsupportedMediaType", message));
    }
    let count = if matches!(verb, Verb::List | Verb::Watch) { PRODUCED.len() } else { 3 };
    accepts(headers, PRODUCED.get(..count).unwrap_or_default())
}

/// Refuses a request that accepts none of the media types that a route produces.
///
/// Upstream: `matchesAccept` of go-restful.
pub(crate) fn accepts(headers: &HeaderMap, produced: &[&str]) -> Result<(), StatusError> {
    let accept = text(headers, ACCEPT);
    if accept.is_empty() || names(accept, produced) || names(accept, &["*/*"]) {
        return Ok(());
    }
    let message =
        format!("406: Not Acceptable\n\nAvailable representations: {}", produced.join(", "));
    Err(refusal(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message))
}

/// Returns whether a header lists one of the media types. Ignores parameters, and does not expand wildcards.
fn names(header: &str, media_types: &[&str]) -> bool {
    let mut named = header.split(',').map(|part| part.split(';').next().unwrap_or_default().trim());
    named.any(|name| media_types.contains(&name))
}

fn refusal(code: StatusCode, reason: &'static str, message: String) -> StatusError {
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
        let patch = check(&Method::PATCH, Verb::Patch, "", &HeaderMap::new());
        assert_eq!(patch.expect_err("no content type").code(), 415);
    }
}
