//! Accepts the upgrade handshakes of WebSocket and SPDY, and negotiates the protocol of the connection.

use http::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Response, StatusCode};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::protocol::{ChannelProtocol, Purpose, Version, choose_spdy, choose_tunnel};
use crate::response::Body;
use evenkeel_apimachinery::headers::text;
use evenkeel_apimachinery::status::{StatusError, quote};

/// Header with the subprotocols that a SPDY client supports.
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Protocol of a connection after the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// WebSocket messages. Each message belongs to a channel.
    Channels(ChannelProtocol),
    /// SPDY streams, without WebSocket.
    Spdy(Version),
    /// SPDY streams whose bytes are sent in WebSocket messages.
    Tunnel,
}

/// Accepted handshake, with the response to send.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) protocol: Protocol,
    /// Response with the status 101, Switching Protocols.
    pub(crate) response: Response<Body>,
}

/// Accepts a client's handshake.
///
/// Upstream: `UpgradeAwareHandler`, `TunnelingHandler`.
pub(crate) fn accept(headers: &HeaderMap, purpose: Purpose) -> Result<Handshake, StatusError> {
    let is_upgrade = tokens(headers, CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    let upgrade = text(headers, UPGRADE);
    if !is_upgrade || upgrade.is_empty() {
        return Err(StatusError::bad_request("Upgrade request required"));
    }
    if upgrade.eq_ignore_ascii_case("websocket") {
        accept_websocket(headers, purpose)
    } else if upgrade.eq_ignore_ascii_case("SPDY/3.1") {
        accept_spdy(headers, purpose)
    } else {
        let message = format!("unable to upgrade to {}: it is not served", quote(upgrade));
        Err(StatusError::bad_request(message))
    }
}

/// Accepts a WebSocket handshake of version 13, and chooses the protocol.
///
/// Upstream: `hybiServerHandshaker.ReadHandshake`.
fn accept_websocket(headers: &HeaderMap, purpose: Purpose) -> Result<Handshake, StatusError> {
    if text(headers, SEC_WEBSOCKET_VERSION) != "13" {
        return Err(StatusError::bad_request("missing or bad WebSocket Version"));
    }
    let key = text(headers, SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(StatusError::bad_request("mismatch challenge/response"));
    }
    let requested: Vec<&str> = tokens(headers, SEC_WEBSOCKET_PROTOCOL).collect();
    let (protocol, name) = if let Some(name) = choose_tunnel(purpose, &requested) {
        (Protocol::Tunnel, name)
    } else if purpose == Purpose::RemoteCommand
        && let Some(protocol) = ChannelProtocol::choose(&requested)
    {
        (Protocol::Channels(protocol), protocol.name)
    } else {
        let message = format!("requested protocol(s) are not supported: [{}]", requested.join(" "));
        return Err(StatusError::new(StatusCode::FORBIDDEN, "Forbidden", message));
    };
    let mut response = switching_protocols("websocket");
    let response_headers = response.headers_mut();
    let accept_key = derive_accept_key(key.as_bytes());
    let accept_key = HeaderValue::try_from(accept_key).map_err(StatusError::internal)?;
    response_headers.insert(SEC_WEBSOCKET_ACCEPT, accept_key);
    if !name.is_empty() {
        let name = HeaderValue::try_from(name).map_err(StatusError::internal)?;
        response_headers.insert(SEC_WEBSOCKET_PROTOCOL, name);
    }
    Ok(Handshake { protocol, response })
}

/// Accepts a SPDY handshake, and chooses the protocol among `X-Stream-Protocol-Version`.
///
/// Upstream: `Handshake` of `httpstream`.
fn accept_spdy(headers: &HeaderMap, purpose: Purpose) -> Result<Handshake, StatusError> {
    let requested: Vec<&str> = tokens(headers, PROTOCOL_VERSION).collect();
    if requested.is_empty() {
        let name = "X-Stream-Protocol-Version";
        let message = format!(
            "unable to upgrade: header {name} does not exist in request with {} headers",
            headers.keys_len()
        );
        return Err(StatusError::bad_request(message));
    }
    let Some((name, version)) = choose_spdy(purpose, &requested) else {
        let message = format!(
            "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]",
            requested.join(" "),
            purpose.spdy_protocols().join(" ")
        );
        return Err(StatusError::new(StatusCode::FORBIDDEN, "Forbidden", message));
    };
    let mut response = switching_protocols("SPDY/3.1");
    response.headers_mut().insert(PROTOCOL_VERSION, HeaderValue::from_static(name));
    Ok(Handshake { protocol: Protocol::Spdy(version), response })
}

/// Returns the response that switches to a protocol.
fn switching_protocols(protocol: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static(protocol));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response
}

/// Returns the comma-separated elements of all headers with a name.
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
        let accept = |lines: &[_]| accept(&headers(lines), Purpose::RemoteCommand);
        let Handshake { protocol, response } = accept(&GOOD).expect("accepted");
        assert!(matches!(protocol, Protocol::Channels(p) if p.name == "v5.channel.k8s.io"));
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        // The sample of RFC 6455.
        assert_eq!(response.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(response.headers()[SEC_WEBSOCKET_PROTOCOL], "v5.channel.k8s.io");
        let plain = accept(&GOOD[..4]).expect("accepted");
        assert!(!plain.response.headers().contains_key(SEC_WEBSOCKET_PROTOCOL));
    }

    #[test]
    fn other_requests_are_refused() {
        for (name, value, code, message) in [
            ("connection", "keep-alive", 400, "Upgrade request required"),
            ("upgrade", "", 400, "Upgrade request required"),
            ("upgrade", "SPDY/2", 400, "unable to upgrade to \"SPDY/2\": it is not served"),
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
            let refused = accept(&headers(&lines), Purpose::RemoteCommand).expect_err("refused");
            assert_eq!((refused.code().as_u16(), refused.message()), (code, message));
        }
    }

    #[test]
    fn ports_are_tunnelled_or_come_over_spdy() {
        let mut lines = GOOD;
        lines[4].1 = "SPDY/3.1+portforward.k8s.io";
        let tunnel = accept(&headers(&lines), Purpose::PortForward).expect("accepted");
        assert_eq!(tunnel.protocol, Protocol::Tunnel);
        assert_eq!(tunnel.response.headers()[SEC_WEBSOCKET_PROTOCOL], lines[4].1);
        assert!(accept(&headers(&lines), Purpose::RemoteCommand).is_err());
        assert!(accept(&headers(&GOOD), Purpose::PortForward).is_err());

        let mut lines = [
            ("connection", "Upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "portforward.k8s.io"),
        ];
        let spdy = accept(&headers(&lines), Purpose::PortForward).expect("accepted");
        assert!(matches!(spdy.protocol, Protocol::Spdy(_)));
        assert_eq!(spdy.response.headers()[UPGRADE], "SPDY/3.1");
        assert_eq!(spdy.response.headers()[PROTOCOL_VERSION], "portforward.k8s.io");
        let refused = accept(&headers(&lines), Purpose::RemoteCommand).expect_err("refused");
        assert_eq!(
            refused.message(),
            "unable to upgrade: unable to negotiate protocol: client supports [portforward.k8s.io], server accepts [v4.channel.k8s.io v3.channel.k8s.io v2.channel.k8s.io channel.k8s.io]"
        );
        let refused = accept(&headers(&lines[..2]), Purpose::PortForward).expect_err("refused");
        assert_eq!(
            refused.message(),
            "unable to upgrade: header X-Stream-Protocol-Version does not exist in request with 2 headers"
        );
        lines[2].1 = "x, v3.channel.k8s.io";
        let older = accept(&headers(&lines), Purpose::RemoteCommand).expect("accepted");
        assert_eq!(older.protocol, Protocol::Spdy(Version::V3));
    }
}
