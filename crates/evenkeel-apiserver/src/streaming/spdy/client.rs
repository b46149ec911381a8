//! SPDY client for tests.

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::frame::{Decoder, Encoder, Frame};
use super::headers::Headers;
use crate::streaming::transport::Transport;

/// Client's end of a connection.
pub(crate) struct Client {
    pub(crate) io: DuplexStream,
    encoder: Encoder,
    decoder: Decoder,
}

impl Client {
    /// Returns a client and the server's end of its connection.
    pub(crate) fn new() -> (Self, Transport) {
        let (io, server) = tokio::io::duplex(8 * 1024);
        let client = Self { io, encoder: Encoder::default(), decoder: Decoder::default() };
        (client, Transport::Plain(Box::new(server)))
    }

    pub(crate) async fn send(&mut self, frame: Frame) {
        let bytes = self.encoder.encode(&frame).expect("it is encoded");
        self.io.write_all(&bytes).await.expect("it is written");
    }

    /// Opens a stream with these headers, and leaves the server's reply unread.
    pub(crate) async fn open(&mut self, stream: u32, headers: &[(&str, &str)]) {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.send(Frame::SynStream { stream, fin: false, headers: headers.collect() }).await;
    }

    /// Opens a stream, and asserts that the server accepts it.
    pub(crate) async fn open_accepted(&mut self, stream: u32, headers: &[(&str, &str)]) {
        self.open(stream, headers).await;
        assert_eq!(self.receive().await, reply(stream));
    }

    pub(crate) async fn data(&mut self, stream: u32, bytes: &'static [u8], fin: bool) {
        self.send(Frame::Data { stream, fin, bytes: Bytes::from_static(bytes) }).await;
    }

    /// Returns the next frame, or `None` at the end of the connection.
    pub(crate) async fn receive(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.next().expect("a frame") {
                return Some(frame);
            }
            let mut buffer = [0; 1024];
            match self.io.read(&mut buffer).await.expect("it is read") {
                0 => return None,
                size => self.decoder.push(&buffer[..size]),
            }
        }
    }
}

pub(crate) fn reply(stream: u32) -> Option<Frame> {
    Some(Frame::SynReply { stream, fin: false, headers: Headers::new() })
}

pub(crate) fn reset(stream: u32, status: u32) -> Option<Frame> {
    Some(Frame::Reset { stream, status })
}

pub(crate) fn data(stream: u32, bytes: &'static [u8], fin: bool) -> Option<Frame> {
    Some(Frame::Data { stream, fin, bytes: Bytes::from_static(bytes) })
}

pub(crate) fn go_away() -> Option<Frame> {
    Some(Frame::GoAway { last: 0, status: 0 })
}
