//! Connections whose peers are slow, silent, or done, in virtual time over pipes.

#![expect(clippy::disallowed_methods, reason = "connections of a test, which ends with them")]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_listener::{ConnectionError, HttpOptions, Protocol, serve};
use http::{Request, Response};
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
