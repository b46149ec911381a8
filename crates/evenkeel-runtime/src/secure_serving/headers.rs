//! Values of request headers as strings.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Returns the first header whose value is not UTF-8. A request with such a header is refused, because ignoring
/// the header could change its meaning.
pub(super) fn unreadable(headers: &HeaderMap) -> Option<&HeaderName> {
    headers.iter().find(|(_, value)| text(value).is_none()).map(|(name, _)| name)
}

/// Returns a header's value if it is UTF-8.
pub(super) fn text(value: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf8_is_read_and_other_bytes_are_named() {
        let mut headers = HeaderMap::new();
        let name = HeaderValue::from_bytes("jürgen".as_bytes()).unwrap();
        headers.insert("x-remote-user", name);
        assert_eq!(unreadable(&headers), None);
        assert_eq!(headers.get("x-remote-user").and_then(text), Some("jürgen"));
        headers.append("x-remote-user", HeaderValue::from_bytes(b"j\xfcrgen").unwrap());
        assert_eq!(unreadable(&headers).map(HeaderName::as_str), Some("x-remote-user"));
    }
}
