//! Compresses responses above 128 KiB, as upstream does, for clients that accept gzip.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Body as _;

use super::body::{Body, BodyError};
use evenkeel_apimachinery::headers::text;

/// Size in bytes above which a response is compressed.
pub(crate) const THRESHOLD: usize = 128 * 1024;

/// Returns whether the client accepts gzip. As in upstream, an encoding with a quality, such as `gzip;q=1`, is ignored.
///
/// Upstream: `responseContentEncodingSupported`.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    text(headers, ACCEPT_ENCODING).split(',').any(|coding| coding.trim() == "gzip")
}

/// Compresses a complete body if it is larger than [`THRESHOLD`]. The handlers of chunked bodies compress them with
/// [`Gzip`].
pub(crate) fn compress(headers: &HeaderMap, response: &mut Response<Body>) {
    let should_compress = response.status().is_success()
        && response.body().size_hint().exact().is_some_and(|size| size > THRESHOLD as u64)
        && !response.headers().contains_key(CONTENT_ENCODING)
        && accepts_gzip(headers);
    if !should_compress {
        return;
    }
    let body = std::mem::replace(response.body_mut(), Body::empty());
    let Some(bytes) = body.into_whole() else { return };
    *response.body_mut() = Body::pieces(Gzip::new(std::iter::once(Ok(bytes))));
    set_gzip_headers(response);
}

/// Sets the headers of a compressed response.
pub(crate) fn set_gzip_headers(response: &mut Response<Body>) {
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Minimum size in bytes of a compressed chunk, except for the last one.
const MIN_CHUNK_BYTES: usize = THRESHOLD / 4;

/// Iterator that compresses the chunks of a body on demand.
pub(crate) struct Gzip<I> {
    chunks: I,
    /// Encoder, with the compressed bytes that were not returned yet; `None` after the last chunk.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<I: Iterator<Item = Result<Bytes, BodyError>>> Gzip<I> {
    /// Creates an iterator that compresses `chunks`.
    pub(crate) fn new(chunks: I) -> Self {
        // The fastest level, as in upstream (`defaultGzipContentEncodingLevel`).
        let level = Compression::new(1);
        Self { chunks, encoder: Some(GzEncoder::new(Vec::new(), level)) }
    }
}

impl<I: Iterator<Item = Result<Bytes, BodyError>>> Iterator for Gzip<I> {
    type Item = Result<Bytes, BodyError>;

    fn next(&mut self) -> Option<Self::Item> {
        let encoder = self.encoder.as_mut()?;
        for chunk in self.chunks.by_ref() {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => {
                    self.encoder = None;
                    return Some(Err(error));
                }
            };
            // Writes to memory do not fail.
            let _ = encoder.write_all(&chunk);
            if encoder.get_ref().len() >= MIN_CHUNK_BYTES {
                return Some(Ok(std::mem::take(encoder.get_mut()).into()));
            }
        }
        let rest = self.encoder.take()?.finish().unwrap_or_default();
        Some(Ok(rest.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gzip_without_a_quality_is_accepted() {
        for (value, is_accepted) in [
            ("gzip", true),
            ("br, gzip", true),
            (" gzip ,x", true),
            ("gzip;q=0", false),
            ("gzip;q=1", false),
            ("GZIP", false),
            ("x-gzip", false),
            ("*", false),
        ] {
            let headers =
                HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(value))]);
            assert_eq!(accepts_gzip(&headers), is_accepted, "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
