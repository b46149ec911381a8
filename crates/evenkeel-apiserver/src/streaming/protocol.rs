//! Names and versions of the streaming protocols, and messages of the channel protocols over WebSocket.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};

/// Channel of standard input.
pub(super) const STDIN: u8 = 0;
/// Channel of standard output.
pub(super) const STDOUT: u8 = 1;
/// Channel of standard error.
pub(super) const STDERR: u8 = 2;
/// Channel of the command's final status.
pub(super) const ERROR: u8 = 3;
/// Channel of changes to the terminal's size.
pub(super) const RESIZE: u8 = 4;

/// Close signal of v5, in the position of the channel number. The next byte is the channel to close.
const CLOSE: u8 = 255;

/// Version of a remote command protocol. Each version includes the features of earlier versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// The error channel carries a plain-text message on failure, and nothing on success.
    V1,
    /// Adds a channel for the terminal's size.
    V3,
    /// The error channel carries a Status object.
    V4,
    /// The client can close channels.
    V5,
}

/// WebSocket subprotocol whose messages belong to channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChannelProtocol {
    /// Name; empty for a client that requests no subprotocol.
    pub(crate) name: &'static str,
    pub(crate) version: Version,
    /// Whether messages are text: the channel as a digit, then the data in base64.
    pub(crate) base64: bool,
}

const fn channel_protocol(name: &'static str, version: Version, base64: bool) -> ChannelProtocol {
    ChannelProtocol { name, version, base64 }
}

/// Supported channel protocols.
const CHANNEL_PROTOCOLS: [ChannelProtocol; 6] = [
    channel_protocol("v5.channel.k8s.io", Version::V5, false),
    channel_protocol("v4.channel.k8s.io", Version::V4, false),
    channel_protocol("v4.base64.channel.k8s.io", Version::V4, true),
    channel_protocol("channel.k8s.io", Version::V1, false),
    channel_protocol("base64.channel.k8s.io", Version::V1, true),
    channel_protocol("", Version::V1, false),
];

impl ChannelProtocol {
    /// Chooses among the protocols that a client requests: v5 if requested, otherwise the first supported one.
    ///
    /// Upstream: `IsWebSocketRequestWithStreamCloseProtocol`, `handshake` of `wsstream`.
    pub(super) fn choose(requested: &[&str]) -> Option<Self> {
        let [v5, others @ ..] = CHANNEL_PROTOCOLS;
        if requested.contains(&v5.name) {
            return Some(v5);
        }
        let requested = if requested.is_empty() { &[""] } else { requested };
        requested.iter().find_map(|name| others.iter().find(|known| known.name == *name)).copied()
    }
}

/// Supported protocols of commands over SPDY, which have one stream for each channel.
const SPDY_PROTOCOLS: [(&str, Version); 4] = [
    ("v4.channel.k8s.io", Version::V4),
    ("v3.channel.k8s.io", Version::V3),
    ("v2.channel.k8s.io", Version::V1),
    ("channel.k8s.io", Version::V1),
];

/// Protocol of port-forwards over SPDY.
const PORT_FORWARD: &str = "portforward.k8s.io";

/// Prefix of WebSocket subprotocols that tunnel SPDY.
const TUNNEL_PREFIX: &str = "SPDY/3.1+";

/// Request that a connection serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Process of a container (`exec` or `attach`).
    RemoteCommand,
    /// Connections to ports of a pod (`portforward`).
    PortForward,
}

impl Purpose {
    /// Returns the supported protocols over SPDY, in upstream's order.
    pub(super) fn spdy_protocols(self) -> Vec<&'static str> {
        match self {
            Self::RemoteCommand => SPDY_PROTOCOLS.iter().map(|(name, _)| *name).collect(),
            Self::PortForward => vec![PORT_FORWARD],
        }
    }
}

/// Returns the first supported protocol over SPDY that a client requests. Port-forwards ignore the version.
///
/// Upstream: `negotiateProtocol`.
pub(super) fn choose_spdy(purpose: Purpose, requested: &[&str]) -> Option<(&'static str, Version)> {
    let supported = purpose.spdy_protocols();
    let name = supported_name(&supported, requested)?;
    let protocol = SPDY_PROTOCOLS.iter().find(|(protocol, _)| *protocol == name);
    Some((name, protocol.map_or(Version::V4, |(_, version)| *version)))
}

/// Returns the first requested name that is supported.
fn supported_name(supported: &[&'static str], requested: &[&str]) -> Option<&'static str> {
    requested.iter().find_map(|name| supported.iter().find(|known| *known == name)).copied()
}

/// Chooses the subprotocol of a client that tunnels SPDY through WebSocket. Only port-forwards may use a tunnel.
///
/// Upstream: `spdyProtocolsFromWebsocketProtocols`.
pub(super) fn choose_tunnel<'a>(purpose: Purpose, requested: &[&'a str]) -> Option<&'a str> {
    if purpose != Purpose::PortForward {
        return None;
    }
    let supported = purpose.spdy_protocols();
    let is_supported = |name: &&&str| {
        name.strip_prefix(TUNNEL_PREFIX).is_some_and(|tunneled| supported.contains(&tunneled))
    };
    requested.iter().find(is_supported).copied()
}

/// Standard streams that a request connects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Channels {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}

impl Channels {
    /// Returns the lowest channel that the server writes to.
    pub(super) fn lowest_output(self) -> u8 {
        if self.stdout {
            STDOUT
        } else if self.stderr {
            STDERR
        } else {
            ERROR
        }
    }
}

/// Decoded message of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Received {
    /// Data for standard input.
    Stdin(Bytes),
    /// Standard input has ended.
    StdinClosed,
    /// The message needs no action, because the server does not read its channel.
    Ignored,
    /// The message violates the protocol; the server ends the connection.
    Broken,
}

/// Decodes a message of the client.
///
/// Upstream: `Conn.handle` of `wsstream`.
pub(super) fn decode(
    protocol: ChannelProtocol,
    channels: Channels,
    mut message: Bytes,
) -> Received {
    let Some(channel) = message.first().copied() else { return Received::Ignored };
    if protocol.version == Version::V5 && channel == CLOSE {
        return match *message {
            [_, STDIN] if channels.stdin => Received::StdinClosed,
            [_, STDIN..=RESIZE] => Received::Ignored,
            _ => Received::Broken,
        };
    }
    let channel = if protocol.base64 { channel.wrapping_sub(b'0') } else { channel };
    if channel != STDIN || !channels.stdin {
        return Received::Ignored;
    }
    let data = message.split_off(1);
    if !protocol.base64 {
        return Received::Stdin(data);
    }
    BASE64_STANDARD.decode(&data).map_or(Received::Ignored, |data| Received::Stdin(data.into()))
}

/// Encodes a message to the client.
pub(super) fn encode(protocol: ChannelProtocol, channel: u8, data: &[u8]) -> Bytes {
    if protocol.base64 {
        let mut text = String::from(char::from(b'0'.wrapping_add(channel)));
        BASE64_STANDARD.encode_string(data, &mut text);
        return text.into();
    }
    let mut message = BytesMut::with_capacity(data.len() + 1);
    message.put_u8(channel);
    message.extend_from_slice(data);
    message.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_chosen() {
        for (requested, chosen) in [
            (&[] as &[&str], Some("")),
            (&["v4.channel.k8s.io", "v5.channel.k8s.io"], Some("v5.channel.k8s.io")),
            (
                &["x", "v4.base64.channel.k8s.io", "channel.k8s.io"],
                Some("v4.base64.channel.k8s.io"),
            ),
            (&["v3.channel.k8s.io"], None),
            (&["SPDY/3.1+portforward.k8s.io"], None),
        ] {
            let protocol = ChannelProtocol::choose(requested);
            assert_eq!(protocol.map(|protocol| protocol.name), chosen, "{requested:?}");
        }
    }

    #[test]
    fn a_protocol_over_spdy_is_chosen() {
        let (command, forward) = (Purpose::RemoteCommand, Purpose::PortForward);
        for (purpose, requested, chosen) in [
            (command, &["v4.channel.k8s.io", "channel.k8s.io"][..], Some(Version::V4)),
            (command, &["v5.channel.k8s.io", "v3.channel.k8s.io"], Some(Version::V3)),
            (command, &["v2.channel.k8s.io"], Some(Version::V1)),
            (command, &["portforward.k8s.io"], None),
            (forward, &["x", "portforward.k8s.io"], Some(Version::V4)),
            (forward, &["v4.channel.k8s.io"], None),
            (forward, &[], None),
        ] {
            let found = choose_spdy(purpose, requested).map(|(_, version)| version);
            assert_eq!(found, chosen, "{purpose:?} {requested:?}");
        }
        let tunnel = "SPDY/3.1+portforward.k8s.io";
        assert_eq!(choose_tunnel(forward, &["x", tunnel]), Some(tunnel));
        assert_eq!(choose_tunnel(forward, &["portforward.k8s.io", "SPDY/3.1+x.k8s.io"]), None);
        assert_eq!(choose_tunnel(command, &[tunnel, "SPDY/3.1+v4.channel.k8s.io"]), None);
    }

    #[test]
    fn messages_are_decoded() {
        let protocol = |name| ChannelProtocol::choose(&[name]).expect("a protocol");
        let (v5, v4) = (protocol("v5.channel.k8s.io"), protocol("v4.channel.k8s.io"));
        let base64 = protocol("v4.base64.channel.k8s.io");
        let stdin = |text: &'static str| Received::Stdin(Bytes::from_static(text.as_bytes()));
        let all = Channels { stdin: true, stdout: true, stderr: true };
        let table: [(_, &[u8], _); 12] = [
            (v5, b"", Received::Ignored),
            (v5, b"\0ls\n", stdin("ls\n")),
            (v5, b"\0", stdin("")),
            (v5, b"\x01x", Received::Ignored),
            (v5, b"\x04{\"Width\":80}", Received::Ignored),
            (v5, b"\x09x", Received::Ignored),
            (v5, b"\xff\0", Received::StdinClosed),
            (v5, b"\xff", Received::Broken),
            (v5, b"\xff\x09", Received::Broken),
            (v4, b"\xff\0", Received::Ignored),
            (base64, b"0bHMK", stdin("ls\n")),
            (base64, b"0!", Received::Ignored),
        ];
        for (protocol, message, received) in table {
            let message = Bytes::from_static(message);
            assert_eq!(decode(protocol, all, message.clone()), received, "{message:?}");
            let without = decode(protocol, Channels::default(), message);
            assert!(!matches!(without, Received::Stdin(_) | Received::StdinClosed));
        }
        assert_eq!(&*encode(v5, STDOUT, b"a"), b"\x01a");
        assert_eq!(&*encode(base64, STDERR, b"a\n"), b"2YQo=");
    }
}
