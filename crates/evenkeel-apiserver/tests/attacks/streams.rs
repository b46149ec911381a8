//! Attacks by streams: `exec` over WebSocket, `exec` and `portforward` over SPDY.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::target::{Client, Target};

const V5: &str = "v5.channel.k8s.io";

/// Creates a pod that runs on a node. Returns the path of its `exec` subresource.
async fn pod(target: &Target) -> String {
    let (namespace, node) = (target.namespace("streams").await, target.fresh("node"));
    let admin = target.admin();
    admin.make("/api/v1/nodes", json!({"metadata": {"name": node}})).await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
    admin.make(&pods, json!({"metadata": {"name": "p"}, "spec": spec})).await;
    format!("{pods}/p/exec?command=cat&stdin=1&stdout=1")
}

/// Returns a client with only these verbs on `pods/exec`.
async fn somebody<'a>(target: &'a Target, verbs: &[&str]) -> Client<'a> {
    let rule = json!({"apiGroups": [""], "resources": ["pods/exec"], "verbs": verbs});
    target.somebody(json!([rule])).await
}

/// Encodes the start of a client's WebSocket frame: a header with this payload length, and these bytes of the payload.
fn frame(first: u8, length: u64, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first, 0x80 | 127];
    frame.extend(length.to_be_bytes());
    // A mask of zeros does not change the payload.
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// KEP-4006: WebSocket starts with GET. Without a further check, read access to `pods/exec` would be enough to execute
/// commands.
pub(crate) async fn to_exec_by_get_alone(target: &Target) {
    let path = pod(target).await;
    let reader = somebody(target, &["get"]).await;
    for protocol in [V5, "v4.channel.k8s.io", "channel.k8s.io", "none"] {
        let (answer, _) = reader.upgrade(&path, protocol).await;
        assert_eq!(answer.code, 403, "{protocol}: {}", answer.head());
    }
    let answer = reader.get(&path).await;
    answer.is(403, "pods \"p\" is forbidden: ");
    let writer = somebody(target, &["create"]).await;
    let (answer, _) = writer.upgrade(&path, V5).await;
    assert_eq!(answer.code, 403, "{}", answer.head());
    let spdy = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")];
    let answer = reader.send("POST", &path, &spdy, b"").await;
    assert_eq!(answer.code, 403, "{}", answer.text());
    for path in [path.clone(), path.replace("/p/", "/absent/")] {
        let answer = somebody(target, &["get", "create"]).await.get(&path).await;
        // Upstream looks up the node's address first.
        let codes = if target.is_upstream() { [500, 404] } else { [400, 404] };
        assert!(codes.contains(&answer.code), "{}", answer.text());
    }
}

/// A message with a large length, and a message without an end, end the stream.
pub(crate) async fn endless_messages(target: &Target) {
    if target.is_upstream() {
        // There is no kubelet behind its nodes.
        return;
    }
    let path = pod(target).await;
    let admin = target.admin();
    let (answer, mut stream) = admin.upgrade(&path, V5).await;
    assert_eq!(answer.code, 101, "{}", answer.head());
    stream.write_all(&frame(0x82, 1 << 40, b"\0a")).await.expect("it is written");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.len() < 100, "it is closed, with little more");

    let (_, mut stream) = admin.upgrade(&path, V5).await;
    let piece = vec![b'a'; 64 * 1024];
    let mut written = stream.write_all(&frame(0x02, 65536, &piece)).await;
    let mut pieces = 0;
    while written.is_ok() && pieces < 10_000 {
        pieces += 1;
        written = stream.write_all(&frame(0x00, 65536, &piece)).await;
    }
    assert!(pieces < 10_000, "it is closed");
}

/// Invalid messages end the stream, or are ignored. The server continues to serve.
pub(crate) async fn messages_that_break_the_protocol(target: &Target) {
    if target.is_upstream() {
        return;
    }
    let path = pod(target).await;
    let admin = target.admin();
    for bytes in [
        // Frames without a mask, of an invalid kind, with reserved bits, and a long control frame.
        vec![0x82, 0x01, 0],
        frame(0x83, 1, b"a"),
        frame(0xf2, 1, b"a"),
        frame(0x89, 65536, &[0; 1000]),
        // Closes a channel that does not exist.
        frame(0x82, 2, b"\xff\x09"),
        frame(0x82, 1, b"\xff"),
        // A text frame that is not UTF-8.
        frame(0x81, 2, b"\xff\xfe"),
        // A continuation without a first frame.
        frame(0x80, 1, b"a"),
    ] {
        let (answer, mut stream) = admin.upgrade(&path, V5).await;
        assert_eq!(answer.code, 101, "{}", answer.head());
        stream.write_all(&bytes).await.expect("it is written");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.len() < 200, "{bytes:?} ends the stream");
    }
    // Channels that are not read, and empty messages.
    let (_, mut stream) = admin.upgrade(&path, V5).await;
    for message in [b"".as_slice(), b"\x01a", b"\x03a", b"\x04{", b"\x7fa", b"\0still here"] {
        stream.write_all(&frame(0x82, message.len() as u64, message)).await.expect("it is written");
    }
    let expected = b"\x82\x01\x01\x82\x0b\x01still here";
    let mut read = vec![0; expected.len()];
    stream.read_exact(&mut read).await.expect("it goes on");
    assert_eq!(read, expected);
}

/// Idle streams stay open. A user gets a limited number, and other users still get theirs.
pub(crate) async fn idle_without_end(target: &Target) {
    if target.is_upstream() {
        return;
    }
    let path = pod(target).await;
    let (greedy, other) =
        (somebody(target, &["get", "create"]).await, somebody(target, &["get", "create"]).await);
    let mut open = Vec::new();
    let refused = loop {
        let (answer, stream) = greedy.upgrade(&path, V5).await;
        if answer.code != 101 {
            break answer;
        }
        open.push(stream);
        assert!(open.len() < 1000, "there is a limit");
    };
    assert_eq!(refused.code, 429, "{}", refused.head());
    assert!(refused.head().to_ascii_lowercase().contains("retry-after: 1"), "{}", refused.head());
    let (answer, stream) = other.upgrade(&path, V5).await;
    assert_eq!(answer.code, 101, "{}", answer.head());
    drop((open, stream));
}

/// Returns a control frame of SPDY.
fn control(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80, 3, 0, kind];
    frame.extend((payload.len() as u32).to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns a client that may forward ports of pods, and the path of a pod's ports.
async fn forwarder(target: &Target) -> (Client<'_>, String) {
    let path = pod(target).await;
    let path = path.replace("/exec?command=cat&stdin=1&stdout=1", "/portforward");
    let rule = json!({"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["create"]});
    (target.somebody(json!([rule])).await, path)
}

/// Frames with a larger length than their data, and headers that are invalid or grow without end.
pub(crate) async fn frames_that_break_the_protocol(target: &Target) {
    if target.is_upstream() {
        // There is no kubelet behind its nodes.
        return;
    }
    let (client, path) = forwarder(target).await;
    let bomb = include_bytes!("../../../evenkeel-fuzz/corpus/spdy_frames/bomb");
    for bytes in [
        bomb.to_vec(),
        // Settings and a stream of 16 MiB, of another version, or of an unknown type.
        b"\x80\x03\0\x04\0\xff\xff\xff".to_vec(),
        b"\x80\x03\0\x01\0\xff\xff\xff".to_vec(),
        b"\x80\x02\0\x06\0\0\0\x04\0\0\0\x01".to_vec(),
        control(77, b""),
        // 2^32 settings, uncompressed headers, data without a stream, and a window update of zero.
        control(4, &[0xff; 4]),
        control(1, &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
        vec![0; 8],
        control(9, &[0, 0, 0, 1, 0, 0, 0, 0]),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    ] {
        let (answer, mut stream) = client.upgrade_to_spdy(&path, "portforward.k8s.io").await;
        assert_eq!(answer.code, 101, "{}", answer.head());
        stream.write_all(&bytes).await.expect("it is written");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "{} ends it", bytes.escape_ascii());
    }
    // Windows that overflow, and data of unknown streams, also in large numbers: the server still replies to a ping.
    let (_, mut stream) = client.upgrade_to_spdy(&path, "portforward.k8s.io").await;
    let window = control(9, &[0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff]);
    let mut bytes = window.repeat(1000);
    bytes.extend([0, 0, 0, 9, 0, 0, 0, 1, b'x'].repeat(1000));
    bytes.extend(control(6, &[0, 0, 0, 5]));
    stream.write_all(&bytes).await.expect("it is written");
    let mut pong = [0; 12];
    stream.read_exact(&mut pong).await.expect("it goes on");
    assert_eq!(pong, *control(6, &[0, 0, 0, 5]));
}

/// A client that opens streams and does not read, and one that only pings.
pub(crate) async fn streams_without_end(target: &Target) {
    if target.is_upstream() {
        return;
    }
    let (client, path) = forwarder(target).await;
    let (_, mut stream) = client.upgrade_to_spdy(&path, "portforward.k8s.io").await;
    let ping = control(6, &[0, 0, 0, 1]).repeat(1000);
    let mut written = 0;
    // The server does not buffer unread data: it stops reading.
    while let Ok(done) =
        tokio::time::timeout(std::time::Duration::from_secs(5), stream.write_all(&ping)).await
    {
        done.expect("it is written");
        written += ping.len();
        assert!(written < 64 * 1024 * 1024, "it is held back");
    }
    client.get("/version").await.is(200, "");
}
