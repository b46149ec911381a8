//! Messages of the channel protocols.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};

/// Channel of standard input.
pub(super) const STDIN: u8 = 0;
/// Channel of standard output.
pub(super) const STDOUT: u8 = 1;
/// Channel of standard error.
pub(super) const STDERR: u8 = 2;
/// Channel of the status at the end.
pub(super) const ERROR: u8 = 3;
/// Channel of the terminal's size.
pub(super) const RESIZE: u8 = 4;

/// In place of a channel: the message closes the channel that follows.
const CLOSE: u8 = 255;

/// Version of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// The error channel carries a text, and nothing on success.
    V1,
    /// There is a channel for the terminal's size.
    V3,
    /// The error channel carries a Status.
    V4,
    /// The client can close channels.
    V5,
}

/// A sub-protocol of WebSocket that carries channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChannelProtocol {
    /// Its name; empty for a client that names none.
    pub(crate) name: &'static str,
    pub(crate) version: Version,
    /// Whether messages are text: a digit for the channel, and base64.
    pub(crate) base64: bool,
}

const fn protocol(name: &'static str, version: Version, base64: bool) -> ChannelProtocol {
    ChannelProtocol { name, version, base64 }
}

/// The protocols that are served.
const PROTOCOLS: [ChannelProtocol; 6] = [
    protocol("v5.channel.k8s.io", Version::V5, false),
    protocol("v4.channel.k8s.io", Version::V4, false),
    protocol("v4.base64.channel.k8s.io", Version::V4, true),
    protocol("channel.k8s.io", Version::V1, false),
    protocol("base64.channel.k8s.io", Version::V1, true),
    protocol("", Version::V1, false),
];

impl ChannelProtocol {
    /// Chooses among the protocols that a client names: v5 if it is one of them, else the first that is known.
    ///
    /// Upstream: `IsWebSocketRequestWithStreamCloseProtocol`, `handshake` of `wsstream`.
    pub(super) fn choose(named: &[&str]) -> Option<Self> {
        let [v5, others @ ..] = PROTOCOLS;
        if named.contains(&v5.name) {
            return Some(v5);
        }
        let named = if named.is_empty() { &[""] } else { named };
        named.iter().find_map(|name| others.iter().find(|known| known.name == *name)).copied()
    }
}

/// The protocols of commands over SPDY, with a stream for each channel.
const SPDY_PROTOCOLS: [(&str, Version); 4] = [
    ("v4.channel.k8s.io", Version::V4),
    ("v3.channel.k8s.io", Version::V3),
    ("v2.channel.k8s.io", Version::V1),
    ("channel.k8s.io", Version::V1),
];

/// The protocol of port-forwards over SPDY.
const PORT_FORWARD: &str = "portforward.k8s.io";

/// What a sub-protocol of WebSocket begins with that carries SPDY.
const TUNNEL: &str = "SPDY/3.1+";

/// What a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A command, or the process of a container.
    RemoteCommand,
    /// Ports of a pod.
    PortForward,
}

impl Purpose {
    /// The protocols over SPDY, in upstream's order.
    pub(super) fn spdy_protocols(self) -> Vec<&'static str> {
        match self {
            Self::RemoteCommand => SPDY_PROTOCOLS.iter().map(|(name, _)| *name).collect(),
            Self::PortForward => vec![PORT_FORWARD],
        }
    }
}

/// Chooses the first protocol over SPDY that a client names and the server knows.
///
/// Upstream: `negotiateProtocol`.
pub(super) fn choose_spdy(purpose: Purpose, named: &[&str]) -> Option<(&'static str, Version)> {
    let known = purpose.spdy_protocols();
    let name = named.iter().find_map(|name| known.iter().find(|known| *known == name))?;
    let version = SPDY_PROTOCOLS.iter().find(|(known, _)| known == name);
    Some((name, version.map_or(Version::V4, |(_, version)| *version)))
}

/// Chooses the sub-protocol of a client that tunnels SPDY through WebSocket.
///
/// Upstream: `spdyProtocolsFromWebsocketProtocols`.
pub(super) fn choose_tunnel<'a>(purpose: Purpose, named: &[&'a str]) -> Option<&'a str> {
    let known = purpose.spdy_protocols();
    let of = |name: &&str| name.strip_prefix(TUNNEL).is_some_and(|name| known.contains(&name));
    named.iter().find(|name| purpose == Purpose::PortForward && of(name)).copied()
}

/// Which standard streams a request connects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Channels {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}

impl Channels {
    /// The lowest channel that the server writes to.
    pub(super) fn lowest(self) -> u8 {
        if self.stdout {
            STDOUT
        } else if self.stderr {
            STDERR
        } else {
            ERROR
        }
    }
}

/// What a message of the client means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Received {
    /// A piece of standard input.
    Stdin(Bytes),
    /// Standard input has ended.
    StdinClosed,
    /// Nothing: it is for a channel that is not read.
    Ignored,
    /// The message breaks the protocol, and ends the stream.
    Broken,
}

/// Decodes a message.
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

/// Encodes a message.
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
        for (named, chosen) in [
            (&[] as &[&str], Some("")),
            (&["v4.channel.k8s.io", "v5.channel.k8s.io"], Some("v5.channel.k8s.io")),
            (
                &["x", "v4.base64.channel.k8s.io", "channel.k8s.io"],
                Some("v4.base64.channel.k8s.io"),
            ),
            (&["v3.channel.k8s.io"], None),
            (&["SPDY/3.1+portforward.k8s.io"], None),
        ] {
            let protocol = ChannelProtocol::choose(named);
            assert_eq!(protocol.map(|protocol| protocol.name), chosen, "{named:?}");
        }
    }

    #[test]
    fn a_protocol_over_spdy_is_chosen() {
        let (command, forward) = (Purpose::RemoteCommand, Purpose::PortForward);
        for (purpose, named, chosen) in [
            (command, &["v4.channel.k8s.io", "channel.k8s.io"][..], Some(Version::V4)),
            (command, &["v5.channel.k8s.io", "v3.channel.k8s.io"], Some(Version::V3)),
            (command, &["v2.channel.k8s.io"], Some(Version::V1)),
            (command, &["portforward.k8s.io"], None),
            (forward, &["x", "portforward.k8s.io"], Some(Version::V4)),
            (forward, &["v4.channel.k8s.io"], None),
            (forward, &[], None),
        ] {
            let found = choose_spdy(purpose, named).map(|(_, version)| version);
            assert_eq!(found, chosen, "{purpose:?} {named:?}");
        }
        let tunnel = "SPDY/3.1+portforward.k8s.io";
        assert_eq!(choose_tunnel(forward, &["x", tunnel]), Some(tunnel));
        assert_eq!(choose_tunnel(forward, &["portforward.k8s.io", "SPDY/3.1+x.k8s.io"]), None);
        assert_eq!(choose_tunnel(command, &[tunnel, "SPDY/3.1+v4.channel.k8s.io"]), None);
    }

    #[test]
    fn messages_are_decoded() {
        let of = |name| ChannelProtocol::choose(&[name]).expect("a protocol");
        let (v5, v4) = (of("v5.channel.k8s.io"), of("v4.channel.k8s.io"));
        let base64 = of("v4.base64.channel.k8s.io");
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
