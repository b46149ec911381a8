//! Response of a proxied service, as the client gets it.

use std::io::Read as _;

use bytes::{Bytes, BytesMut};
use evenkeel_apimachinery::headers::text;
use evenkeel_apimachinery::status::StatusError;
use flate2::Compression;
use futures::StreamExt as _;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Response};
use hyper::body::Incoming;

use super::html;
use super::links::Links;
use crate::proxy::{headers, pieces};
use crate::response::Body;

/// Maximum size in bytes of an HTML page whose links are rewritten. A larger page is sent unchanged.
const MAX_PAGE_BYTES: usize = 8 * 1024 * 1024;

/// Converts the response of a service to the client's: rewrites the header `Location`, or the links of an HTML page.
///
/// Upstream: `Transport.RoundTrip`.
pub(super) async fn respond(
    response: Response<Incoming>,
    links: &Links,
) -> Result<Response<Body>, StatusError> {
    let (mut head, body) = response.into_parts();
    headers::of_answer(&mut head.headers);
    if let Some(link) = head.headers.get(LOCATION).and_then(|link| link.to_str().ok()) {
        if let Some(link) = links.rewrite(link) {
            let link = HeaderValue::try_from(link).map_err(StatusError::internal)?;
            head.headers.insert(LOCATION, link);
        }
        return Ok(Response::from_parts(head, Body::relay(pieces(body))));
    }
    let media_type = text(&head.headers, CONTENT_TYPE).split(';').next();
    let encoding = text(&head.headers, CONTENT_ENCODING);
    let is_page = media_type.is_some_and(|media_type| media_type.trim() == "text/html");
    if !is_page || !matches!(encoding, "" | "gzip") {
        return Ok(Response::from_parts(head, Body::relay(pieces(body))));
    }
    let mut pieces = Box::pin(pieces(body));
    let mut page = BytesMut::new();
    while page.len() <= MAX_PAGE_BYTES {
        let Some(piece) = pieces.next().await else {
            let rewritten = rewrite_page(&page, encoding == "gzip", links);
            let page = rewritten.unwrap_or_else(|| page.freeze());
            head.headers.remove(CONTENT_LENGTH);
            return Ok(Response::from_parts(head, Body::whole(page)));
        };
        page.extend_from_slice(&piece.map_err(StatusError::internal)?);
    }
    let start = futures::stream::iter([Ok(page.freeze())]);
    Ok(Response::from_parts(head, Body::relay(start.chain(pieces))))
}

/// Rewrites the links of an HTML page. Returns `None` if its gzip is invalid or the uncompressed page is too large.
fn rewrite_page(page: &[u8], is_compressed: bool, links: &Links) -> Option<Bytes> {
    let rewrite_link = |link: &str| links.rewrite(link);
    if !is_compressed {
        return Some(html::rewrite(page, &rewrite_link).into());
    }
    let mut plain = Vec::new();
    let limit = MAX_PAGE_BYTES as u64 + 1;
    flate2::read::GzDecoder::new(page).take(limit).read_to_end(&mut plain).ok()?;
    if plain.len() > MAX_PAGE_BYTES {
        return None;
    }
    let plain = html::rewrite(&plain, &rewrite_link);
    let mut page = Vec::new();
    flate2::read::GzEncoder::new(&*plain, Compression::fast()).read_to_end(&mut page).ok()?;
    Some(page.into())
}
