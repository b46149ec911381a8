//! Responses: text, bytes, and errors in apimachinery's words.

use super::{guard::Rejection, headers::text, negotiate};
pub use crate::response::{answer, plain};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde::Serialize;
use std::io::Write as _;

/// Minimum size of a compressed response in bytes.
///
/// Upstream: `defaultGzipThresholdBytes`.
const GZIP_THRESHOLD: usize = 16 * 1024;

/// Failure as a `Status` object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: Empty,
    status: &'a str,
    message: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Empty>,
    code: u16,
}

#[derive(Serialize)]
struct Empty {}

/// Returns a failure `Status`, encoded as the request accepts.
pub fn status(
    code: StatusCode,
    reason: &str,
    message: &str,
    request: &http::request::Parts,
) -> Response<Bytes> {
    let details = (code == StatusCode::FORBIDDEN).then_some(Empty {});
    let status = Status {
        kind: "Status",
        api_version: "v1",
        metadata: Empty {},
        status: "Failure",
        message,
        reason,
        details,
        code: code.as_u16(),
    };
    let format = negotiate::for_errors(&request.headers, request.uri.query().unwrap_or_default());
    match format.write(&status) {
        Ok(body) => answer(code, format.media_type(), body),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error),
    }
}

/// Returns the response to a rejected request.
///
/// Upstream: `Forbidden`, `InternalError` (apiserver/pkg/endpoints/handlers/responsewriters)
pub(super) fn rejection_response(
    rejection: &Rejection,
    request: &http::request::Parts,
    path: &str,
) -> Response<Bytes> {
    match rejection {
        Rejection::Unauthorized => {
            status(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", request)
        }
        Rejection::Forbidden { user, reason } => {
            let verb = request.method.as_str().to_lowercase();
            let subject = escape_html(&format!("User {user:?} cannot {verb} path {path:?}"));
            let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            let message = format!("forbidden: {subject}{because}");
            status(StatusCode::FORBIDDEN, "Forbidden", &message, request)
        }
        Rejection::Unavailable(error) => {
            let uri = request.uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
            let text = escape_html(&format!("Internal Server Error: {uri:?}: {error}"));
            plain(StatusCode::INTERNAL_SERVER_ERROR, &text)
        }
    }
}

/// Escapes the special characters of HTML.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Completes a response: adds the common headers, compresses a large body if the client accepts that, and
/// removes the body for HEAD.
pub(super) fn complete_response(
    mut response: Response<Bytes>,
    method: &Method,
    request_headers: &HeaderMap,
) -> Response<Bytes> {
    if response.body().len() >= GZIP_THRESHOLD
        && accepts_gzip(request_headers)
        && !response.headers().contains_key(header::CONTENT_ENCODING)
        && let Some(smaller) = gzip(response.body())
    {
        *response.body_mut() = smaller;
        let gzip = HeaderValue::from_static("gzip");
        response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
    }
    let length = response.body().len().into();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, length);
    let no_cache = HeaderValue::from_static("no-cache, private");
    headers.entry(header::CACHE_CONTROL).or_insert(no_cache);
    if method == Method::HEAD {
        response.body_mut().clear();
    }
    response
}

fn accepts_gzip(request_headers: &HeaderMap) -> bool {
    let values = request_headers.get_all(header::ACCEPT_ENCODING).into_iter();
    let mut codings = values.filter_map(text).flat_map(|value| value.split(','));
    codings.any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let refused =
            parameters.trim().strip_prefix("q=").and_then(|q| q.parse().ok()) == Some(0.0);
        name.trim() == "gzip" && !refused
    })
}

/// Compresses a body. Writing to memory cannot fail, so `None` is never returned.
fn gzip(body: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn parts(accept: &str) -> http::request::Parts {
        Request::get("/a%3Cb%3E?x=1").header("accept", accept).body(()).unwrap().into_parts().0
    }

    #[test]
    fn refusals_are_worded_as_upstream_does() {
        let forbidden = |reason: &str| Rejection::Forbidden {
            user: "system:anonymous".to_owned(),
            reason: reason.to_owned(),
        };
        let text = |rejection: &Rejection, path: &str, accept: &str| {
            String::from_utf8(rejection_response(rejection, &parts(accept), path).body().to_vec())
                .unwrap()
        };
        assert_eq!(
            text(&forbidden(""), "/configz", "application/json"),
            "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"forbidden: User \
             \\\"system:anonymous\\\" cannot get path \\\"/configz\\\"\",\"reason\":\"Forbidden\",\"details\":{},\"code\":403}\n"
        );
        assert!(
            text(&forbidden("RBAC: x"), "/configz", "").contains("\\\"/configz\\\": RBAC: x\"")
        );
        assert!(
            text(&forbidden(""), "/a<b>&c\"d", "")
                .contains("path \\\"/a\\u0026lt;b\\u0026gt;\\u0026amp;c\\\\\\\"d\\\"")
        );
        assert_eq!(
            text(&Rejection::Unavailable("no <answer>".to_owned()), "/a", ""),
            "Internal Server Error: \"/a%3Cb%3E?x=1\": no &lt;answer&gt;\n"
        );
        let yaml = text(&Rejection::Unauthorized, "/a", "application/yaml");
        assert!(yaml.contains("code: 401") && yaml.contains("reason: Unauthorized"), "{yaml}");
    }

    #[test]
    fn large_responses_are_compressed_for_clients_that_accept_it() {
        let table = [
            ("gzip, deflate", GZIP_THRESHOLD, true),
            ("br;q=1, gzip;q=0.5", GZIP_THRESHOLD, true),
            ("gzip;q=0", GZIP_THRESHOLD, false),
            ("br", GZIP_THRESHOLD, false),
            ("gzip", GZIP_THRESHOLD - 1, false),
        ];
        for (encoding, size, expected) in table {
            let mut request_headers = HeaderMap::new();
            request_headers.insert(header::ACCEPT_ENCODING, encoding.parse().unwrap());
            let body = answer(StatusCode::OK, "text/plain", vec![b'a'; size]);
            let response = complete_response(body, &Method::GET, &request_headers);
            assert_eq!(response.headers().contains_key("content-encoding"), expected, "{encoding}");
            assert_eq!(response.headers()["content-length"], response.body().len().to_string());
        }
    }

    #[test]
    fn a_head_response_has_the_length_but_no_body() {
        let body = answer(StatusCode::OK, "text/plain", "body");
        let response = complete_response(body, &Method::HEAD, &HeaderMap::new());
        assert_eq!(response.headers()["content-length"], "4");
        assert!(response.body().is_empty());
        assert_eq!(response.headers()["cache-control"], "no-cache, private");
    }
}
