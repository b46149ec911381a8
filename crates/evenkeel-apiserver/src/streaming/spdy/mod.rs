//! SPDY/3.1, over which clients multiplex streams: `port-forward`, and `exec` and `attach` of older clients.

#[cfg(test)]
pub(super) mod client;
mod connection;
mod dictionary;
mod error;
mod frame;
mod headers;

pub(super) use connection::{Received, Receiver, Sender, Stream, serve};

pub(crate) use frame::{Decoder, Encoder, Frame};
pub(super) use headers::Headers;
