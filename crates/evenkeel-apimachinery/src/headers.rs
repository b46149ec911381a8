//! HTTP headers of a request as text.

use http::header::AsHeaderName;
use http::{HeaderMap, HeaderValue};

use crate::status::StatusError;

/// Rejects a request with a header that is not UTF-8. Every header of an accepted request is readable, so none is
/// mistaken for an absent one.
pub fn check(headers: &HeaderMap) -> Result<(), StatusError> {
    match headers.iter().find(|(_, value)| std::str::from_utf8(value.as_bytes()).is_err()) {
        None => Ok(()),
        Some((name, _)) => Err(StatusError::bad_request(format!(
            "header \"{name}\" cannot be read: its value is not UTF-8; encode it or leave it out"
        ))),
    }
}

/// Returns the first value of a header; empty where there is none.
pub fn text(headers: &HeaderMap, name: impl AsHeaderName) -> &str {
    headers.get(name).map_or("", value)
}

/// Returns a header's value as text; empty where it is not UTF-8.
pub fn value(value: &HeaderValue) -> &str {
    std::str::from_utf8(value.as_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_header_that_is_no_text_is_named() {
        let mut headers = HeaderMap::new();
        headers.insert("impersonate-user", HeaderValue::from_bytes("jürgen".as_bytes()).unwrap());
        assert_eq!(check(&headers), Ok(()));
        assert_eq!(text(&headers, "impersonate-user"), "jürgen");
        for name in ["impersonate-user", "authorization", "impersonate-extra-a", "x-unknown"] {
            let mut headers = headers.clone();
            headers.append(name, HeaderValue::from_bytes(b"j\xfcrgen").unwrap());
            let error = check(&headers).expect_err(name);
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
