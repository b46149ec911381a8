//! Normalization of a request's path and query.

use std::borrow::Cow;

use evenkeel_apimachinery::status::StatusError;
use percent_encoding::percent_decode_str;

use crate::request::Query;

/// Returns the decoded path and the query of a request, and whether the path had the deprecated prefix `watch`. Empty
/// segments of a proxy's path are dropped. Other paths keep them, so that they match no resource.
pub(super) fn normalize<'a>(path: &'a str, query: Option<&str>) -> (Cow<'a, str>, Query, bool) {
    let path = percent_decode_str(path).decode_utf8_lossy();
    let path: Cow<'_, str> = match (path.find("//"), path.find("/proxy/")) {
        (Some(empty), Some(proxy)) if proxy < empty => Cow::Owned(merge_slashes(&path)),
        _ => path,
    };
    let (path, is_watch_path) = strip_watch_prefix(path);
    let mut query = Query::parse(query);
    if is_watch_path {
        query.0.push(("watch".to_owned(), "1".to_owned()));
    }
    (path, query, is_watch_path)
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

/// Strips the deprecated prefix: `/api/v1/watch/pods` watches `/api/v1/pods`. Returns whether the path had it.
fn strip_watch_prefix(path: Cow<'_, str>) -> (Cow<'_, str>, bool) {
    // Index of the slash after the version.
    let slash_index = if path.starts_with("/api/") {
        2
    } else if path.starts_with("/apis/") {
        3
    } else {
        return (path, false);
    };
    let Some((index, _)) = path.match_indices('/').nth(slash_index) else { return (path, false) };
    match path[index..].strip_prefix("/watch/") {
        Some(rest) => {
            let rest = format!("{}/{rest}", &path[..index]);
            (Cow::Owned(rest), true)
        }
        None => (path, false),
    }
}
