//! Serves documents with revalidation and ranges of bytes, like Go's server of files. It serves one range. For several
//! ranges, it serves the whole document.
//!
//! Upstream: `ServeContent`, `checkPreconditions`, `parseRange` of Go's `net/http`.

use std::ops::Range;

use bytes::Bytes;
use evenkeel_apimachinery::headers::text;
use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MATCH, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Method, Response, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};

use super::recorded::decompressed;
use super::response::{gzip_response, plain, set_header};

/// Document to serve.
pub(super) struct Content<'a> {
    pub(super) content_type: &'a str,
    /// ETag in quotes; empty without one.
    pub(super) etag: &'a str,
    /// When the document was made.
    pub(super) modified: Timestamp,
    pub(super) bytes: Bytes,
    /// Whether the bytes are compressed by gzip.
    pub(super) is_packed: bool,
}

/// What a request gets of a document.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The document, or a range of it.
    Served,
    /// The client has the document already.
    Unchanged,
    /// The document is not what the client expects.
    Failed,
}

/// Serves a document.
pub(super) fn serve(method: &Method, headers: &HeaderMap, content: Content<'_>) -> Response<Bytes> {
    let Content { content_type, etag, modified, bytes, is_packed } = content;
    // Times in headers have no fractions of a second.
    let modified = Timestamp::from_second(modified.as_second()).unwrap_or(modified);
    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&modified).unwrap_or_default();
    let outcome = outcome(method, headers, etag, modified);
    if outcome != Outcome::Served {
        let mut response = Response::new(Bytes::new());
        let is_unchanged = outcome == Outcome::Unchanged;
        *response.status_mut() =
            if is_unchanged { StatusCode::NOT_MODIFIED } else { StatusCode::PRECONDITION_FAILED };
        // The handlers of documents with an ETag set the type before the conditions are checked.
        if !is_unchanged && !etag.is_empty() {
            set_header(&mut response, CONTENT_TYPE, content_type);
        }
        if !etag.is_empty() {
            set_header(&mut response, ETAG, etag);
        }
        if !is_unchanged || etag.is_empty() {
            set_header(&mut response, LAST_MODIFIED, &date);
        }
        return response;
    }
    let range = text(headers, RANGE);
    let is_whole = range.is_empty() || !matches_if_range(headers, etag, modified);
    let mut response = if is_whole {
        whole(bytes, is_packed, headers)
    } else {
        let bytes = if is_packed {
            decompressed(&bytes).map(Bytes::from).unwrap_or_default()
        } else {
            bytes
        };
        match parse_range(range, bytes.len()) {
            Ok(None) => whole(bytes, false, headers),
            Ok(Some(part)) => {
                let of = format!("bytes {}-{}/{}", part.start, part.end - 1, bytes.len());
                let mut response = Response::new(bytes.slice(part));
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                set_header(&mut response, CONTENT_RANGE, &of);
                response
            }
            Err(why) => return unsatisfiable(why, bytes.len()),
        }
    };
    set_header(&mut response, CONTENT_TYPE, content_type);
    if !etag.is_empty() {
        set_header(&mut response, ETAG, etag);
    }
    set_header(&mut response, LAST_MODIFIED, &date);
    set_header(&mut response, ACCEPT_RANGES, "bytes");
    if *method == Method::HEAD {
        let length = response.body().len().to_string();
        set_header(&mut response, CONTENT_LENGTH, &length);
    }
    response
}

fn whole(bytes: Bytes, is_packed: bool, headers: &HeaderMap) -> Response<Bytes> {
    if is_packed { gzip_response(bytes, headers) } else { Response::new(bytes) }
}

/// Returns the response to a range that the document does not have.
fn unsatisfiable(why: RangeError, size: usize) -> Response<Bytes> {
    let (text, has_size) = match why {
        RangeError::Invalid => ("invalid range\n", false),
        RangeError::NoOverlap => ("invalid range: failed to overlap\n", true),
    };
    let body = Bytes::from_static(text.as_bytes());
    let mut response = plain(StatusCode::RANGE_NOT_SATISFIABLE, "text/plain; charset=utf-8", body);
    set_header(&mut response, X_CONTENT_TYPE_OPTIONS, "nosniff");
    if has_size {
        set_header(&mut response, CONTENT_RANGE, &format!("bytes */{size}"));
    }
    response
}

/// Decides by the conditions in the headers.
fn outcome(method: &Method, headers: &HeaderMap, etag: &str, modified: Timestamp) -> Outcome {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let time = |name| {
        let text = text(headers, name);
        (!text.is_empty()).then(|| DateTimeParser::new().parse_timestamp(text).ok())?
    };
    let expected = text(headers, IF_MATCH);
    let is_expected = if expected.is_empty() {
        time(IF_UNMODIFIED_SINCE).is_none_or(|since| modified <= since)
    } else {
        expected.split(',').map(str::trim).any(|tag| tag == "*" || is_strong_match(tag, etag))
    };
    if !is_expected {
        return Outcome::Failed;
    }
    let known = text(headers, IF_NONE_MATCH);
    if known.is_empty() {
        let is_known = is_read && time(IF_MODIFIED_SINCE).is_some_and(|since| modified <= since);
        return if is_known { Outcome::Unchanged } else { Outcome::Served };
    }
    let is_known = known
        .split(',')
        .map(str::trim)
        .any(|tag| tag == "*" || !etag.is_empty() && tag.strip_prefix("W/").unwrap_or(tag) == etag);
    match (is_known, is_read) {
        (false, _) => Outcome::Served,
        (true, true) => Outcome::Unchanged,
        (true, false) => Outcome::Failed,
    }
}

fn is_strong_match(tag: &str, etag: &str) -> bool {
    tag.starts_with('"') && tag == etag
}

/// Returns whether a range is of the document that the client has a part of, by `If-Range`.
fn matches_if_range(headers: &HeaderMap, etag: &str, modified: Timestamp) -> bool {
    let known = text(headers, IF_RANGE);
    if known.is_empty() || is_strong_match(known, etag) {
        return true;
    }
    DateTimeParser::new().parse_timestamp(known).is_ok_and(|known| known == modified)
}

/// Why a range cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RangeError {
    Invalid,
    NoOverlap,
}

/// Parses a `Range` header; `None` for the whole document.
fn parse_range(header: &str, size: usize) -> Result<Option<Range<usize>>, RangeError> {
    let listed = header.strip_prefix("bytes=").ok_or(RangeError::Invalid)?;
    let number = |text: &str| text.parse::<usize>().map_err(|_| RangeError::Invalid);
    let (mut parts, mut has_no_overlap) = (Vec::new(), false);
    for part in listed.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (start, end) = part.split_once('-').ok_or(RangeError::Invalid)?;
        let (start, end) = (start.trim(), end.trim());
        if start.is_empty() {
            // The last bytes. A second sign is invalid.
            let count = number(end)?;
            parts.push(size.saturating_sub(count)..size);
            continue;
        }
        let start = number(start)?;
        if start >= size {
            has_no_overlap = true;
            continue;
        }
        let end = match end {
            "" => size,
            end => {
                let last = number(end)?;
                if start > last {
                    return Err(RangeError::Invalid);
                }
                last.saturating_add(1).min(size)
            }
        };
        parts.push(start..end);
    }
    match parts.as_slice() {
        [] if has_no_overlap => Err(RangeError::NoOverlap),
        [part] if !part.is_empty() => Ok(Some(part.clone())),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().cloned();
        pairs.map(|(name, value)| (name, http::HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn conditions_decide_in_upstreams_order() {
        let modified = "2026-01-01T00:00:00Z".parse().expect("a time");
        let (before, after) = ("Wed, 31 Dec 2025 23:59:59 GMT", "Fri, 02 Jan 2026 00:00:00 GMT");
        let (get, post) = (Method::GET, Method::POST);
        for (method, pairs, want) in [
            (&get, vec![], Outcome::Served),
            (&get, vec![(IF_NONE_MATCH, "\"a\"")], Outcome::Unchanged),
            (&get, vec![(IF_NONE_MATCH, "\"b\", W/\"a\"")], Outcome::Unchanged),
            (&get, vec![(IF_NONE_MATCH, "*")], Outcome::Unchanged),
            (&post, vec![(IF_NONE_MATCH, "*")], Outcome::Failed),
            (&get, vec![(IF_MATCH, "\"b\"")], Outcome::Failed),
            (&get, vec![(IF_MATCH, "W/\"a\"")], Outcome::Failed),
            (&get, vec![(IF_MATCH, "\"a\"")], Outcome::Served),
            (&get, vec![(IF_MODIFIED_SINCE, after)], Outcome::Unchanged),
            (&post, vec![(IF_MODIFIED_SINCE, after)], Outcome::Served),
            (&get, vec![(IF_MODIFIED_SINCE, before)], Outcome::Served),
            (&get, vec![(IF_UNMODIFIED_SINCE, before)], Outcome::Failed),
            (&get, vec![(IF_UNMODIFIED_SINCE, "x")], Outcome::Served),
            // The ETag counts more than the time.
            (&get, vec![(IF_NONE_MATCH, "\"b\""), (IF_MODIFIED_SINCE, after)], Outcome::Served),
        ] {
            let found = outcome(method, &headers(&pairs), "\"a\"", modified);
            assert_eq!(found, want, "{method} {pairs:?}");
        }
        let known = headers(&[(IF_NONE_MATCH, "\"\"")]);
        assert_eq!(outcome(&get, &known, "", modified), Outcome::Served);
    }

    #[test]
    fn one_range_is_served() {
        for (header, want) in [
            ("bytes=0-3", Ok(Some(0..4))),
            ("bytes=8-", Ok(Some(8..10))),
            ("bytes=8-99", Ok(Some(8..10))),
            ("bytes=-3", Ok(Some(7..10))),
            ("bytes=-99", Ok(Some(0..10))),
            ("bytes=", Ok(None)),
            ("bytes=0-1,3-4", Ok(None)),
            ("bytes=10-", Err(RangeError::NoOverlap)),
            ("bytes=3-1", Err(RangeError::Invalid)),
            ("bytes=x", Err(RangeError::Invalid)),
            ("items=0-1", Err(RangeError::Invalid)),
        ] {
            assert_eq!(parse_range(header, 10), want, "{header}");
        }
    }

    #[test]
    fn a_part_of_a_document_says_where_it_is() {
        let content = |etag| Content {
            content_type: "application/json",
            etag,
            modified: Timestamp::UNIX_EPOCH,
            bytes: Bytes::from_static(b"0123456789"),
            is_packed: false,
        };
        let asked = headers(&[(RANGE, "bytes=2-3")]);
        let response = serve(&Method::GET, &asked, content("\"a\""));
        assert_eq!((response.status().as_u16(), &**response.body()), (206, b"23".as_slice()));
        assert_eq!(response.headers()[CONTENT_RANGE], "bytes 2-3/10");
        assert_eq!(response.headers()[LAST_MODIFIED], "Thu, 01 Jan 1970 00:00:00 GMT");
        let other = headers(&[(RANGE, "bytes=2-3"), (IF_RANGE, "\"b\"")]);
        assert_eq!(serve(&Method::GET, &other, content("\"a\"")).body().len(), 10);
        let far = headers(&[(RANGE, "bytes=20-")]);
        let response = serve(&Method::GET, &far, content("\"a\""));
        assert_eq!(response.status(), 416);
        assert_eq!(response.headers()[CONTENT_RANGE], "bytes */10");
    }
}
