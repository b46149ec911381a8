//! Normalization of a request's path and query.

use std::borrow::Cow;

use evenkeel_apimachinery::status::{StatusError, quote};
use http::header::CONNECTION;
use http::{HeaderValue, Response, StatusCode, Uri};
use percent_encoding::percent_decode_str;

use crate::request::Query;
use crate::response::{Body, plain_text, plain_text_nosniff};

/// Decoded path and query of a request.
pub(super) struct Normalized<'a> {
    /// Path with its deprecated prefix `watch`, if it has one.
    pub(super) full_path: Cow<'a, str>,
    /// Path without that prefix; `None` if the path does not have it.
    without_watch: Option<String>,
    /// Parameters. Those of a path with the prefix contain `watch=1`.
    pub(super) query: Query,
}

impl Normalized<'_> {
    /// Returns the path that names what is served.
    pub(super) fn path(&self) -> &str {
        self.without_watch.as_deref().unwrap_or(&self.full_path)
    }

    /// Returns whether the path has the deprecated prefix `watch`.
    pub(super) fn is_watch_path(&self) -> bool {
        self.without_watch.is_some()
    }
}

/// Decodes the path and the query of a request. Empty segments of a proxy's path are dropped. Other paths keep them.
pub(super) fn normalize<'a>(path: &'a str, query: Option<&str>) -> Normalized<'a> {
    let path = percent_decode_str(path).decode_utf8_lossy();
    let full_path: Cow<'_, str> = match (path.find("//"), path.find("/proxy/")) {
        (Some(empty), Some(proxy)) if proxy < empty => Cow::Owned(merge_slashes(&path)),
        _ => path,
    };
    let without_watch = strip_watch_prefix(&full_path);
    let mut query = Query::parse(query);
    if without_watch.is_some() {
        query.0.push(("watch".to_owned(), "1".to_owned()));
    }
    Normalized { full_path, without_watch, query }
}

/// Returns the response to a request whose path ends after a special verb.
///
/// Upstream: `WithRequestInfo`, `InternalError`.
pub(super) fn no_resource(uri: &Uri) -> Response<Body> {
    let uri = uri.path_and_query().map_or("", |uri| uri.as_str());
    let text = format!(
        "Internal Server Error: {}: failed to create RequestInfo: unable to determine kind and namespace from url, {uri}\n",
        quote(uri)
    );
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    plain_text_nosniff(StatusCode::INTERNAL_SERVER_ERROR, text)
}

/// Returns the response of Go's HTTP/1 server to a request that it cannot read.
pub(super) fn bad_request() -> Response<Body> {
    let mut response = plain_text(StatusCode::BAD_REQUEST, "400 Bad Request".to_owned());
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Rejects a path with an invalid percent encoding. Go rejects it before any handler.
pub(super) fn check(path: &str) -> Result<(), StatusError> {
    let has_invalid_escape = path.match_indices('%').any(|(index, _)| {
        let digits = path.as_bytes().get(index + 1..index + 3);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    if has_invalid_escape {
        return Err(StatusError::bad_request(
            "the path cannot be read: a '%' in it is not followed by two hexadecimal digits",
        ));
    }
    Ok(())
}

/// Replaces each sequence of slashes with one slash.
fn merge_slashes(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        if c != '/' || !out.ends_with('/') {
            out.push(c);
        }
    }
    out
}

/// Strips the deprecated prefix: `/api/v1/watch/pods` watches `/api/v1/pods`. Returns `None` for a path without it.
fn strip_watch_prefix(path: &str) -> Option<String> {
    // Index of the slash after the version.
    let slash_index = if path.starts_with("/api/") {
        2
    } else if path.starts_with("/apis/") {
        3
    } else {
        return None;
    };
    let (index, _) = path.match_indices('/').nth(slash_index)?;
    let (version, rest) = path.split_at(index);
    Some(format!("{version}/{}", rest.strip_prefix("/watch/")?))
}
