//! Reads headers of an HTTP request as strings.

use http::header::{AsHeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue};

use crate::status::StatusError;

/// Rejects a request with a header that is not UTF-8, because [`value`] would treat it as absent. Also rejects transfer
/// codings other than `chunked`, because a proxy might read such a body differently.
pub fn check(headers: &HeaderMap) -> Result<(), StatusError> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next()
        && (codings.next().is_some() || !value(coding).eq_ignore_ascii_case("chunked"))
    {
        return Err(StatusError::bad_request(
            "the only transfer coding of a body that can be read is \"chunked\"",
        ));
    }
    match headers.iter().find(|(_, value)| std::str::from_utf8(value.as_bytes()).is_err()) {
        None => Ok(()),
        Some((name, _)) => Err(StatusError::bad_request(format!(
            "header \"{name}\" cannot be read: its value is not UTF-8; encode it or leave it out"
        ))),
    }
}

/// Returns the first value of a header; empty if it is absent.
pub fn text(headers: &HeaderMap, name: impl AsHeaderName) -> &str {
    headers.get(name).map_or("", value)
}

/// Returns a header's value as a string; empty if it is not UTF-8.
pub fn value(value: &HeaderValue) -> &str {
    std::str::from_utf8(value.as_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfer_codings_other_than_chunked_are_refused() {
        for (codings, good) in [
            (&["chunked"][..], true),
            (&["Chunked"], true),
            (&["gzip, chunked"], false),
            (&["chunked", "identity"], false),
            (&["identity"], false),
        ] {
            let mut headers = HeaderMap::new();
            for coding in codings {
                headers.append(TRANSFER_ENCODING, HeaderValue::from_static(coding));
            }
            assert_eq!(check(&headers).is_ok(), good, "{codings:?}");
        }
    }

    #[test]
    fn the_error_names_a_header_that_is_not_utf8() {
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
