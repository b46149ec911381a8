//! Request headers that name the authenticated user to an extension API server.

use evenkeel_apimachinery::user::User;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use crate::proxy::headers::names_remote_user;

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA: &str = "x-remote-extra-";

/// Replaces the headers that name the user. The error names the value that cannot be sent in a header.
///
/// Upstream: `SetAuthProxyHeaders`.
pub(super) fn put(headers: &mut HeaderMap, user: &User) -> Result<(), String> {
    let previous = headers.keys().filter(|name| names_remote_user(name));
    let previous: Vec<HeaderName> = previous.cloned().collect();
    for name in previous {
        headers.remove(name);
    }
    headers.insert(USER, value(&user.name)?);
    if !user.uid.is_empty() {
        headers.insert(UID, value(&user.uid)?);
    }
    for group in &user.groups {
        headers.append(GROUP, value(group)?);
    }
    for (key, values) in &user.extra {
        let name = HeaderName::try_from(format!("{EXTRA}{}", escaped(key)))
            .map_err(|_| format!("the key {key:?} of the user's extra is too long"))?;
        for text in values {
            headers.append(name.clone(), value(text)?);
        }
    }
    Ok(())
}

/// Returns a string as the value of a header, or upstream's error if the string is not a valid value.
fn value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_bytes(text.as_bytes())
        .map_err(|_| format!("net/http: invalid header field value for {text:?}"))
}

/// Percent-encodes a key of the user's extra, so that it can be part of a header's name.
///
/// Upstream: `headerKeyEscape`.
fn escaped(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte != b'%' && (byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte)) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_the_client_are_replaced() {
        let user = User {
            name: "jürgen".into(),
            uid: "7".into(),
            groups: ["a".into(), "b".into()].into(),
            extra: [("example.com/a b%".into(), ["1".into(), "2".into()].into())].into(),
        };
        let mut headers = HeaderMap::new();
        for name in ["x-remote-user", "x-remote-uid", "x-remote-group", "x-remote-extra-z", "a"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("admin"));
        }
        put(&mut headers, &user).expect("headers");
        let all = |name: &str| -> Vec<&[u8]> {
            headers.get_all(name).iter().map(HeaderValue::as_bytes).collect()
        };
        assert_eq!(all("x-remote-user"), ["jürgen".as_bytes()]);
        assert_eq!(all("x-remote-uid"), [b"7"]);
        assert_eq!(all("x-remote-group"), [b"a", b"b"]);
        assert_eq!(all("x-remote-extra-example.com%2fa%20b%25"), [b"1", b"2"]);
        assert_eq!((all("x-remote-extra-z").len(), all("a").len()), (0, 1));
        let anonymous = User { uid: "".into(), ..User::anonymous() };
        let mut headers = HeaderMap::new();
        put(&mut headers, &anonymous).expect("headers");
        assert!(!headers.contains_key("x-remote-uid"));
        let hostile = User { name: "a\r\nx-remote-group: system:masters".into(), ..anonymous };
        assert!(put(&mut headers, &hostile).is_err());
    }
}
