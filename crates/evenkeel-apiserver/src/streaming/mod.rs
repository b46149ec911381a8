//! Streams over WebSocket: `exec` and `attach` of pods. A stream is what remains of a request after its upgrade.
//!
//! | documented | where |
//! |---|---|
//! | Sub-protocols `v5.channel.k8s.io`, `v4.channel.k8s.io`, `channel.k8s.io`, each but the first in base64, too | `protocol::ChannelProtocol` |
//! | The WebSocket handshake | `handshake::accept` |
//! | Channels: 0 stdin, 1 stdout, 2 stderr, 3 error, 4 resize; v5's CLOSE signal | `protocol::decode`, `protocol::encode` |
//! | Status on the error channel: success, `NonZeroExitCode` with cause `ExitCode`, internal errors | `outcome::on_error_channel` |
//! | A stream is idle for four hours at most | `session::run` |
//! | Streams at once, in total and per user | `limits::StreamLimits` |
//!
//! Upstream: `StreamTranslatorHandler`, `wsstream.Conn`, and the kubelet's `remotecommand`.

#![deny(clippy::indexing_slicing)]

mod handshake;
mod limits;
mod outcome;
mod protocol;
mod session;

pub(crate) use handshake::{Handshake, accept};
pub(crate) use limits::StreamLimits;
pub(crate) use outcome::Outcome;
pub(crate) use protocol::Channels;
pub(crate) use session::{Session, run};
