//! Responses in plain text.

use http::{HeaderValue, Response, StatusCode};

use super::{Body, answer};

/// Returns a plain-text response.
pub(crate) fn plain_text(status: StatusCode, text: String) -> Response<Body> {
    let media = HeaderValue::from_static("text/plain; charset=utf-8");
    answer(status, media, Body::whole(text.into()))
}

/// Returns a plain-text response with `X-Content-Type-Options: nosniff`, so that browsers do not guess another media
/// type.
pub(crate) fn plain_text_nosniff(status: StatusCode, text: String) -> Response<Body> {
    let mut response = plain_text(status, text);
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}
