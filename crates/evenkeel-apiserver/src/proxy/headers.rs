//! Headers of proxied requests and of their responses.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Request};

use evenkeel_apimachinery::headers::text;

/// Hop-by-hop headers: they concern one connection, and are not passed on.
///
/// Upstream: `hopHeaders` of Go's `httputil`.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Response headers of cross-origin resource sharing. They would let pages of other origins use the client's
/// credentials for the API server.
///
/// Upstream: `removeCORSHeaders`.
const CORS: [&str; 4] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];

/// Prefix of a WebSocket subprotocol that carries a bearer token.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Removes the hop-by-hop headers, including those that the header `Connection` lists.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in listed.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Returns whether a header names the user that a front proxy has authenticated.
pub(crate) fn names_remote_user(name: &HeaderName) -> bool {
    let name = name.as_str();
    matches!(name, "x-remote-user" | "x-remote-uid" | "x-remote-group")
        || name.starts_with("x-remote-extra-")
}

/// Removes the headers that identify the user to this server, because another server could misuse them.
///
/// Upstream: `WithAuthentication`, `WithImpersonation` and the request header authenticator, which remove the headers
/// that they have read.
pub(crate) fn remove_credentials(headers: &mut HeaderMap) {
    let identifies_user = |name: &HeaderName| {
        *name == AUTHORIZATION
            || name.as_str().starts_with("impersonate-")
            || names_remote_user(name)
    };
    let names: Vec<HeaderName> =
        headers.keys().filter(|name| identifies_user(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
    let protocols = text(headers, SEC_WEBSOCKET_PROTOCOL);
    if protocols.contains(TOKEN_PROTOCOL) {
        let others = protocols.split(',').map(str::trim);
        let others: Vec<&str> = others.filter(|name| !name.starts_with(TOKEN_PROTOCOL)).collect();
        match HeaderValue::try_from(others.join(",")) {
            Ok(others) if !others.is_empty() => headers.insert(SEC_WEBSOCKET_PROTOCOL, others),
            _ => headers.remove(SEC_WEBSOCKET_PROTOCOL),
        };
    }
}

/// Removes headers that the client must not receive from a server's response: headers of the connection, and headers of
/// cross-origin resource sharing.
pub(crate) fn of_answer(headers: &mut HeaderMap) {
    remove_hop_by_hop(headers);
    remove_cors(headers);
}

fn remove_cors(headers: &mut HeaderMap) {
    for name in CORS {
        headers.remove(name);
    }
}

/// Sets the headers of `request` from those of the client's request. With `is_upgrade`, keeps the headers that request
/// another protocol.
pub(crate) fn of_request<T>(
    client: &HeaderMap,
    host: &str,
    forwarded_uri: &str,
    is_upgrade: bool,
    request: &mut Request<T>,
) {
    let mut headers = client.clone();
    remove_credentials(&mut headers);
    let protocol = headers.get(UPGRADE).filter(|_| is_upgrade).cloned();
    remove_hop_by_hop(&mut headers);
    // The HTTP client sets this header, because it sends the whole body at once.
    headers.remove(CONTENT_LENGTH);
    if let Some(protocol) = protocol {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    if let Ok(host) = HeaderValue::try_from(host) {
        headers.insert(HOST, host);
    }
    if let Ok(uri) = HeaderValue::try_from(forwarded_uri) {
        headers.insert(HeaderName::from_static("x-forwarded-uri"), uri);
    }
    *request.headers_mut() = headers;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let parsed = lines.iter().map(|(name, value)| {
            (HeaderName::from_static(name), value.parse::<HeaderValue>().expect("a value"))
        });
        parsed.collect()
    }

    #[test]
    fn a_service_gets_no_credentials_and_nothing_of_the_connection() {
        let client = headers(&[
            ("accept", "text/html"),
            ("authorization", "Bearer secret"),
            ("connection", "Upgrade, X-Mine"),
            ("cookie", "a=b"),
            ("host", "localhost:6443"),
            ("impersonate-user", "admin"),
            ("impersonate-extra-scopes", "all"),
            ("keep-alive", "300"),
            ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.c2VjcmV0, chat"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("x-mine", "1"),
            ("x-remote-user", "admin"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-a", "b"),
        ]);
        for (is_upgrade, more) in
            [(false, &[][..]), (true, &[("connection", "Upgrade"), ("upgrade", "websocket")])]
        {
            let mut request = Request::new(());
            of_request(&client, "localhost:8001", "/p/a", is_upgrade, &mut request);
            let kept = [
                ("accept", "text/html"),
                ("cookie", "a=b"),
                ("host", "localhost:8001"),
                ("sec-websocket-protocol", "chat"),
                ("x-forwarded-uri", "/p/a"),
            ];
            assert_eq!(*request.headers(), headers(&[&kept[..], more].concat()));
        }
    }

    #[test]
    fn pages_of_other_origins_get_no_access() {
        let mut answer = headers(&[
            ("access-control-allow-origin", "*"),
            ("access-control-allow-credentials", "true"),
            ("access-control-max-age", "1"),
        ]);
        remove_cors(&mut answer);
        assert_eq!(answer, headers(&[("access-control-max-age", "1")]));
    }
}
