//! Serves `exec`, `attach` and `portforward` of pods on upgraded connections, over WebSocket or SPDY.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | Sub-protocols `v5.channel.k8s.io`, `v4.channel.k8s.io`, `channel.k8s.io`, except for v5 also in base64 | `protocol::ChannelProtocol` |
//! | SPDY/3.1, with `v4.channel.k8s.io` and older, and with `portforward.k8s.io` | `protocol::choose_spdy`, `spdy/connection.rs` |
//! | SPDY/3.1 tunneled through WebSocket | `protocol::choose_tunnel`, `transport::Transport` |
//! | Upgrade handshakes | `handshake::accept` |
//! | Channels: 0 stdin, 1 stdout, 2 stderr, 3 error, 4 resize; v5's CLOSE signal | `protocol::decode`, `protocol::encode` |
//! | Status on the error channel: success, `NonZeroExitCode` with cause `ExitCode`, internal errors | `outcome::error_channel_message` |
//! | Connections to ports of a pod | `port_forward::run` |
//! | An idle connection ends after four hours | `session::run`, `spdy/connection.rs` |
//! | Maximum number of connections, in total and per tenant | `limits::StreamLimits` |
//!
//! Upstream: `StreamTranslatorHandler`, `TunnelingHandler`, `wsstream.Conn`, `httpstream`, and the kubelet's `remotecommand` and
//! `portforward`.

#![deny(clippy::indexing_slicing)]

mod handshake;
mod limits;
mod outcome;
mod port_forward;
mod protocol;
mod remote_command;
mod session;
mod spdy;
mod transport;

use hyper::upgrade::OnUpgrade;

use crate::kubelet::{PodConnection, Streams};
use session::Session;
use transport::Transport;

pub(crate) use handshake::{Handshake, Protocol, accept};
pub(crate) use limits::StreamLimits;
pub(crate) use outcome::Outcome;
pub(crate) use port_forward::ForwardedPod;
pub(crate) use protocol::{Channels, Purpose};
pub(crate) use spdy::{Decoder, Encoder, Frame};

/// Waits for the upgrade and serves a command until its process exits. `start` starts the process with its streams.
pub(crate) async fn remote_command<F>(
    protocol: Protocol,
    channels: Channels,
    tty: bool,
    upgrade: OnUpgrade,
    start: impl FnOnce(Streams) -> F + Send,
) where
    F: Future<Output = Outcome> + Send,
{
    let Some(io) = transport::upgraded(upgrade).await else { return };
    match protocol {
        Protocol::Channels(protocol) => {
            let session = Session { protocol, channels, tty };
            session::run(session, transport::websocket(io).await, start).await;
        }
        Protocol::Spdy(version) => {
            let transport = Transport::Plain(Box::new(io));
            remote_command::run(transport, version, channels, tty, start).await;
        }
        // The handshake accepts tunnels only for port-forwards.
        Protocol::Tunnel => {}
    }
}

/// Waits for the upgrade and forwards ports of a pod until the client disconnects.
pub(crate) async fn port_forward<D>(protocol: Protocol, upgrade: OnUpgrade, pod: ForwardedPod<D>)
where
    D: Fn(u16) -> Result<PodConnection, String> + Send + Sync,
{
    let Some(io) = transport::upgraded(upgrade).await else { return };
    let transport = match protocol {
        Protocol::Spdy(_) => Transport::Plain(Box::new(io)),
        Protocol::Tunnel => Transport::Tunnel(Box::new(transport::websocket(io).await)),
        // The handshake accepts channels only for commands.
        Protocol::Channels(_) => return,
    };
    port_forward::run(transport, pod).await;
}
