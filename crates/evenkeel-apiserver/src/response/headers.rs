//! Answers and refusals, with the headers that go with them.

use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING, WWW_AUTHENTICATE};
use http::{HeaderMap, Response, StatusCode};

use super::body::Body;
use crate::output::Format;
use evenkeel_apimachinery::status::StatusError;

/// A refusal in the form that the client accepts.
pub(crate) fn refusal(error: &StatusError, headers: &HeaderMap) -> Response<Body> {
    let (content_type, bytes) = Format::status(headers, &error.to_json());
    let mut response = Response::new(Body::whole(bytes));
    *response.status_mut() = error.code();
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    if error.code() == StatusCode::UNAUTHORIZED {
        let realm = HeaderValue::from_static("Bearer realm=\"kubernetes-master\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, realm);
    }
    if let Some(seconds) =
        error.0.details.as_ref().map(|d| d.retry_after_seconds).filter(|s| *s > 0)
    {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// An answer of bytes.
pub(crate) fn answer(code: StatusCode, content_type: HeaderValue, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Adds `Warning` headers: `299 - "text"`.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::try_from(format!("299 - \"{escaped}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}
