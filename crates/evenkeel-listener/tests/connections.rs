//! Connections whose peers are slow, silent, or done, in virtual time over pipes.

#![expect(clippy::disallowed_methods, reason = "connections of a test, which ends with them")]

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_listener::{AbortResponse, ConnectionError, HttpOptions, Protocol, serve};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const HEAD: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

type Served = JoinHandle<(Result<(), ConnectionError>, Duration)>;

/// Serves one connection; the requests for `/slow` take five minutes.
fn start(
    protocol: Protocol,
    leave: impl Future<Output = ()> + Send + 'static,
) -> (DuplexStream, Served) {
    let (client, server) = tokio::io::duplex(64 * 1024);
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        Box::pin(async move {
            if request.uri().path() == "/slow" {
                tokio::time::sleep(Duration::from_secs(300)).await;
            }
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"done"))))
        })
    });
    let served = tokio::spawn(async move {
        let begun = Instant::now();
        let ended = serve(server, protocol, HttpOptions::default(), service, leave).await;
        (ended, begun.elapsed())
    });
    (client, served)
}

#[track_caller]
fn within(found: Duration, least: u64, most: u64) {
    assert!((least..=most).contains(&found.as_secs()), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_begin_ends_the_connection() {
    for (protocol, first) in [
        (Protocol::Http1, &b""[..]),
        (Protocol::Http1, b"G"),
        (Protocol::Http1, b"GET / HTTP/1.1\r\nhost: a\r\n"),
        (Protocol::Http2, b""),
        (Protocol::Http2, b"P"),
        (Protocol::Http2, PREFACE),
    ] {
        let (mut client, served) = start(protocol, std::future::pending());
        client.write_all(first).await.expect("a write");
        let (ended, after) = served.await.expect("it ends");
        assert!(
            matches!(ended, Err(ConnectionError::Overdue)),
            "{protocol:?} {first:?}: {ended:?}"
        );
        within(after, 24, 32);
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_drips_ends_the_connection() {
    let (mut client, served) = start(Protocol::Http1, std::future::pending());
    client.write_all(HEAD).await.expect("a write");
    let drip = tokio::spawn(async move {
        let mut answer = [0; 1024];
        assert!(client.read(&mut answer).await.expect("an answer") > 0);
        client.write_all(b"GET / HTTP/1.1\r\n").await.expect("a write");
        while client.write_all(b"a: b\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let (ended, after) = served.await.expect("it ends");
    assert!(matches!(ended, Err(ConnectionError::Overdue)), "{ended:?}");
    within(after, 24, 40);
    drip.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let (mut client, served) = start(Protocol::Http1, std::future::pending());
    for _ in 0..5 {
        client.write_all(HEAD).await.expect("a write");
        let mut answer = [0; 1024];
        assert!(client.read(&mut answer).await.expect("an answer") > 0);
        tokio::time::sleep(Duration::from_secs(80)).await;
    }
    client.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("a write");
    let mut answer = [0; 1024];
    assert!(client.read(&mut answer).await.expect("an answer") > 0);
    let (ended, after) = served.await.expect("it ends");
    assert!(ended.is_ok(), "{ended:?}");
    within(after, 5 * 80 + 300 + 85, 5 * 80 + 300 + 105);
    assert_eq!(client.read(&mut answer).await.expect("the end"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_to_leave_finishes_its_response() {
    let leave = async { tokio::time::sleep(Duration::from_secs(10)).await };
    let (mut client, served) = start(Protocol::Http1, leave);
    client.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("a write");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.ends_with("done"), "{answer}");
    let (ended, after) = served.await.expect("it ends");
    assert!(ended.is_ok(), "{ended:?}");
    within(after, 300, 301);
}

/// A body that has no end.
struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16 * 1024])))))
    }
}

/// Serves endless bodies, which are cut off after a minute.
fn start_endless(protocol: Protocol) -> (DuplexStream, Served) {
    let (client, server) = tokio::io::duplex(64 * 1024);
    let service = hyper::service::service_fn(|_: Request<Incoming>| {
        let abort = AbortResponse::default();
        let mut response = Response::new(Endless);
        response.extensions_mut().insert(abort.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            abort.abort();
        });
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let served = tokio::spawn(async move {
        let begun = Instant::now();
        let leave = std::future::pending();
        let ended = serve(server, protocol, HttpOptions::default(), service, leave).await;
        (ended, begun.elapsed())
    });
    (client, served)
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_cut_off_ends_its_connection() {
    let (mut client, served) = start_endless(Protocol::Http1);
    client.write_all(HEAD).await.expect("a write");
    let (ended, after) = served.await.expect("it ends");
    assert!(matches!(ended, Err(ConnectionError::Aborted)), "{ended:?}");
    within(after, 60, 60);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.expect("what was sent");
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}

/// Returns the next frame of a connection: its type, stream and length.
async fn frame(client: &mut DuplexStream) -> (u8, u32, usize) {
    let mut head = [0; 9];
    client.read_exact(&mut head).await.expect("a frame");
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let mut payload = vec![0; length];
    client.read_exact(&mut payload).await.expect("its payload");
    (head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), length)
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_cut_off_resets_its_stream_alone() {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const GOAWAY: u8 = 7;
    let (mut client, served) = start_endless(Protocol::Http2);
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("a write");
    client.write_all(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00").await.expect("settings");
    for stream in [1, 3] {
        // GET http /, with the end of headers and stream; the window of the stream is never opened again.
        let head = [0, 0, 3, HEADERS, 5, 0, 0, 0, stream, 0x82, 0x86, 0x84];
        client.write_all(&head).await.expect("a request");
        let mut data = 0;
        loop {
            let (kind, of, length) = frame(&mut client).await;
            assert_ne!(kind, GOAWAY);
            if of != u32::from(stream) {
                continue;
            }
            match kind {
                DATA => data += length,
                RST_STREAM => break,
                _ => assert_eq!(kind, HEADERS),
            }
        }
        assert!(data > 0, "{stream}");
        // The connection's window is opened for the next stream.
        let size = u32::try_from(data).expect("a window").to_be_bytes();
        client.write_all(&[0, 0, 4, 8, 0, 0, 0, 0, 0]).await.expect("a window");
        client.write_all(&size).await.expect("a window");
    }
    assert!(!served.is_finished());
}

#[tokio::test(start_paused = true)]
async fn frames_without_a_request_neither_end_nor_prolong_a_connection() {
    const HEADERS: u8 = 1;
    const GOAWAY: u8 = 7;
    let (mut client, served) = start(Protocol::Http2, std::future::pending());
    client.write_all(PREFACE).await.expect("a write");
    client
        .write_all(&[0, 0, 3, HEADERS, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84])
        .await
        .expect("a request");
    while frame(&mut client).await.0 != HEADERS {}
    let (mut reader, mut writer) = tokio::io::split(client);
    let pings = tokio::spawn(async move {
        // SETTINGS with ACK, WINDOW_UPDATE, and then a PING every 5 s.
        writer.write_all(&[0, 0, 0, 4, 1, 0, 0, 0, 0]).await.expect("settings");
        writer.write_all(&[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 4]).await.expect("a window");
        let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        while writer.write_all(&ping).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    });
    let mut received = Vec::new();
    reader.read_to_end(&mut received).await.expect("the end");
    let (ended, after) = served.await.expect("it ends");
    assert!(ended.is_ok(), "{ended:?}");
    within(after, 85, 115);
    let kinds: Vec<u8> = std::iter::successors(Some(received.as_slice()), |rest| {
        let length = u32::from_be_bytes([0, *rest.first()?, *rest.get(1)?, *rest.get(2)?]);
        rest.get(9 + usize::try_from(length).ok()?..)
    })
    .filter_map(|rest| rest.get(3).copied())
    .collect();
    assert!(kinds.contains(&GOAWAY), "{kinds:?}");
    pings.await.expect("no panic");
}
