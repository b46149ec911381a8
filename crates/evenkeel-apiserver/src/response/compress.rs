//! Large answers are compressed when the client accepts it, as upstream does from 128 KiB on.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Body as _;

use super::body::Body;
use evenkeel_apimachinery::headers::text;

/// Answers smaller than this go as they are.
pub(crate) const THRESHOLD: usize = 128 * 1024;

/// Whether the client takes gzip.
pub(crate) fn accepted(headers: &HeaderMap) -> bool {
    text(headers, ACCEPT_ENCODING).split(',').any(|part| {
        let (name, quality) = part.split_once(';').unwrap_or((part, ""));
        let quality = quality.trim().strip_prefix("q=").map(str::trim);
        name.trim() == "gzip" && !quality.is_some_and(|q| q.parse::<f64>() == Ok(0.0))
    })
}

/// Compresses a whole body where that is due; bodies in pieces see to it themselves.
pub(crate) fn apply(headers: &HeaderMap, response: &mut Response<Body>) {
    let due = response.status().is_success()
        && response.body().size_hint().exact().is_some_and(|size| size > THRESHOLD as u64)
        && !response.headers().contains_key(CONTENT_ENCODING)
        && accepted(headers);
    if !due {
        return;
    }
    let body = std::mem::replace(response.body_mut(), Body::empty());
    let Some(bytes) = body.into_whole() else { return };
    *response.body_mut() = Body::pieces(Gzip::new(std::iter::once(bytes)));
    mark(response);
}

/// Says that the body is compressed.
pub(crate) fn mark(response: &mut Response<Body>) {
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Compresses pieces as they are asked for.
pub(crate) struct Gzip<I> {
    pieces: I,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<I: Iterator<Item = Bytes>> Gzip<I> {
    /// Around an iterator of pieces.
    pub(crate) fn new(pieces: I) -> Self {
        Self { pieces, encoder: Some(GzEncoder::new(Vec::new(), Compression::new(1))) }
    }
}

impl<I: Iterator<Item = Bytes>> Iterator for Gzip<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let encoder = self.encoder.as_mut()?;
        for piece in self.pieces.by_ref() {
            // Writing into memory does not fail.
            let _ = encoder.write_all(&piece);
            if encoder.get_ref().len() >= THRESHOLD / 4 {
                return Some(std::mem::take(encoder.get_mut()).into());
            }
        }
        let rest = self.encoder.take()?.finish().unwrap_or_default();
        Some(rest.into())
    }
}
