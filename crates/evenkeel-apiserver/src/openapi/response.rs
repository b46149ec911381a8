//! Responses with documents, compressed or not.

use bytes::Bytes;
use evenkeel_apimachinery::headers::text;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::recorded::decompressed;

/// Returns a response with this body.
pub(super) fn plain(code: StatusCode, content_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Sets a header, unless its value cannot be sent.
pub(super) fn set_header(response: &mut Response<Bytes>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Responds with a compressed body. Decompresses it for clients that do not accept gzip.
pub(super) fn gzip_response(compressed: Bytes, headers: &HeaderMap) -> Response<Bytes> {
    if accepts_gzip(text(headers, ACCEPT_ENCODING)) {
        let mut response = Response::new(compressed);
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        return response;
    }
    match decompressed(&compressed) {
        Ok(body) => Response::new(body.into()),
        Err(error) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain; charset=utf-8",
            format!("unpacking a document: {error}\n").into(),
        ),
    }
}

/// Returns whether `Accept-Encoding` names gzip with a quality above 0.
///
/// Upstream: `acceptsGzip` of gziphandler.
fn accepts_gzip(encodings: &str) -> bool {
    encodings.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let quality = parts.find_map(|part| part.strip_prefix("q="));
        is_gzip
            && quality
                .is_none_or(|quality| quality.parse::<f64>().is_ok_and(|quality| quality > 0.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_accepted_with_a_quality_above_zero() {
        for (encodings, is_accepted) in [
            ("gzip", true),
            ("GZIP", true),
            ("br, gzip;q=0.5, x", true),
            ("gzip; q=1", true),
            ("gzip;q=0", false),
            ("gzip;q=x", false),
            ("x-gzip", false),
            ("*", false),
            ("", false),
        ] {
            assert_eq!(accepts_gzip(encodings), is_accepted, "{encodings}");
        }
    }
}
