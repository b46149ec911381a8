//! HTTP responses of plain text, or of a body with its media type.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

/// Returns a response of one line of text.
pub fn plain(code: StatusCode, text: &str) -> Response<Bytes> {
    answer(code, "text/plain; charset=utf-8", format!("{text}\n"))
}

/// Returns a response with a body that browsers must not sniff.
pub fn answer(code: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
