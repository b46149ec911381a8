//! The handshake of WebSocket, and which protocol a stream speaks.

use http::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Response, StatusCode};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::protocol::ChannelProtocol;
use crate::response::Body;
use evenkeel_apimachinery::headers::text;
use evenkeel_apimachinery::status::{StatusError, quote};

/// A handshake that was accepted.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) protocol: ChannelProtocol,
    /// The answer: 101.
    pub(crate) response: Response<Body>,
}

/// Accepts a client's handshake.
///
/// Upstream: `UpgradeAwareHandler`, `hybiServerHandshaker.ReadHandshake`.
pub(crate) fn accept(headers: &HeaderMap) -> Result<Handshake, StatusError> {
    let is_upgrade = tokens(headers, CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    let wanted = text(headers, UPGRADE);
    if !is_upgrade || wanted.is_empty() {
        return Err(StatusError::bad_request("Upgrade request required"));
    }
    if !wanted.eq_ignore_ascii_case("websocket") {
        let why = format!("unable to upgrade to {}: only WebSocket is served", quote(wanted));
        return Err(StatusError::bad_request(why));
    }
    if text(headers, SEC_WEBSOCKET_VERSION) != "13" {
        return Err(StatusError::bad_request("missing or bad WebSocket Version"));
    }
    let key = text(headers, SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(StatusError::bad_request("mismatch challenge/response"));
    }
    let named: Vec<&str> = tokens(headers, SEC_WEBSOCKET_PROTOCOL).collect();
    let Some(protocol) = ChannelProtocol::choose(&named) else {
        let why = format!("requested protocol(s) are not supported: [{}]", named.join(" "));
        return Err(StatusError::new(StatusCode::FORBIDDEN, "Forbidden", why));
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = response.headers_mut();
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    let accepted = derive_accept_key(key.as_bytes());
    answer.insert(
        SEC_WEBSOCKET_ACCEPT,
        HeaderValue::try_from(accepted).map_err(StatusError::internal)?,
    );
    if !protocol.name.is_empty() {
        answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol.name));
    }
    Ok(Handshake { protocol, response })
}

/// The elements of all headers of a name.
fn tokens(headers: &HeaderMap, name: http::HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let parsed = lines.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), value.parse().expect("a value"))
        });
        parsed.collect()
    }

    const GOOD: [(&str, &str); 5] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "v4.channel.k8s.io, v5.channel.k8s.io"),
    ];

    #[test]
    fn a_handshake_is_answered() {
        let Handshake { protocol, response } = accept(&headers(&GOOD)).expect("accepted");
        assert_eq!(protocol.name, "v5.channel.k8s.io");
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        // The sample of RFC 6455.
        assert_eq!(response.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(response.headers()[SEC_WEBSOCKET_PROTOCOL], "v5.channel.k8s.io");
        let plain = accept(&headers(&GOOD[..4])).expect("accepted");
        assert!(!plain.response.headers().contains_key(SEC_WEBSOCKET_PROTOCOL));
    }

    #[test]
    fn other_requests_are_refused() {
        for (name, value, code, message) in [
            ("connection", "keep-alive", 400, "Upgrade request required"),
            ("upgrade", "", 400, "Upgrade request required"),
            (
                "upgrade",
                "SPDY/3.1",
                400,
                "unable to upgrade to \"SPDY/3.1\": only WebSocket is served",
            ),
            ("sec-websocket-version", "8", 400, "missing or bad WebSocket Version"),
            ("sec-websocket-key", "", 400, "mismatch challenge/response"),
            (
                "sec-websocket-protocol",
                "a, b",
                403,
                "requested protocol(s) are not supported: [a b]",
            ),
        ] {
            let mut lines = GOOD;
            for line in lines.iter_mut().filter(|line| line.0 == name) {
                line.1 = value;
            }
            let refused = accept(&headers(&lines)).expect_err("refused");
            assert_eq!((refused.code().as_u16(), refused.message()), (code, message));
        }
    }
}
