//! Large numbers of connections, streams, watches and aborted requests. The server must release all their resources.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::target::{JSON, Target};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Requests whose clients disconnect in the middle of the body.
pub(crate) async fn bodies_that_are_given_up(target: &Target) {
    let head = format!("POST {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\nContent-Type: {JSON}\r\nContent-Length: 1000\r\n\r\n{{\"metadata\":");
    let mut open = Vec::new();
    for _ in 0..100 {
        let mut stream = target.connect(None, b"http/1.1").await.expect("a connection");
        stream.write_all(head.as_bytes()).await.expect("sent");
        stream.flush().await.expect("sent");
        open.push(stream);
    }
    target.admin().get("/version").await.is(200, "");
    drop(open);
}

/// Watches whose clients disconnect.
pub(crate) async fn watches_that_are_given_up(target: &Target) {
    let head = format!("GET {CONFIGMAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\n\r\n");
    let mut open = Vec::new();
    for _ in 0..100 {
        let mut stream = target.connect(None, b"http/1.1").await.expect("a connection");
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut buffer = [0; 1024];
        assert!(stream.read(&mut buffer).await.expect("an answer") > 0);
        open.push(stream);
    }
    target.admin().make(CONFIGMAPS, json!({"metadata": {"name": target.fresh("seen")}})).await;
    drop(open);
}

/// Pods whose grace period ends after any representable time. Upstream's times overflow, and it deletes the pods as
/// usual.
pub(crate) async fn deletions_that_take_for_ever(target: &Target) {
    let admin = target.admin();
    let namespace = target.namespace("endless").await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let pod = |name: &str, grace: i64| {
        let containers = json!([{"name": "c", "image": "i"}]);
        json!({"metadata": {"name": name},
            "spec": {"nodeName": "n1", "containers": containers, "terminationGracePeriodSeconds": grace}})
    };
    for (name, grace, query) in [
        ("own", i64::MAX, ""),
        ("more", 30, "?gracePeriodSeconds=9000000000000000000"),
        ("less", i64::MAX, "?gracePeriodSeconds=9000000000000000000"),
        ("negative", 30, "?gracePeriodSeconds=-9000000000000000000"),
    ] {
        admin.make(&pods, pod(name, grace)).await;
        let marked = admin.send("DELETE", &format!("{pods}/{name}{query}"), &[], b"").await;
        marked.is(200, "deletionTimestamp");
        let at = marked.json()["metadata"]["deletionTimestamp"].clone();
        assert!(at.as_str().is_some_and(|at| at.parse::<jiff::Timestamp>().is_ok()), "{at}");
    }
    let shorter = format!("{pods}/own?gracePeriodSeconds=60");
    admin.send("DELETE", &shorter, &[], b"").await.is(200, "");
    admin.send("DELETE", &format!("{pods}/own?gracePeriodSeconds=0"), &[], b"").await.is(200, "");
    admin.get(&format!("{pods}/own")).await.is(404, "");
    // Finalize the namespace, as its controller would.
    let path = format!("/api/v1/namespaces/{namespace}");
    admin.send("DELETE", &path, &[], b"").await.is(200, "");
    admin.send("DELETE", &format!("{pods}?gracePeriodSeconds=0"), &[], b"").await.is(200, "");
    assert_eq!(admin.get(&pods).await.json()["items"], json!([]));
    let mut finalized = admin.get(&path).await.json();
    finalized["spec"]["finalizers"] = json!([]);
    admin.give("PUT", &format!("{path}/finalize"), JSON, finalized.to_string()).await.is(200, "");
    admin.get(&path).await.is(404, "");
}

/// Responses that no client reads.
pub(crate) async fn answers_that_nobody_reads(target: &Target) {
    let admin = target.admin();
    for _ in 0..4 {
        let data = json!({"metadata": {"name": target.fresh("large")}, "data": {"k": "x".repeat(900_000)}});
        admin.make(CONFIGMAPS, data).await;
    }
    let head = format!("GET {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\n\r\n");
    let mut open = Vec::new();
    for _ in 0..30 {
        let mut stream = target.connect(None, b"http/1.1").await.expect("a connection");
        stream.write_all(head.repeat(5).as_bytes()).await.expect("sent");
        open.push(stream);
    }
    admin.get("/version").await.is(200, "");
    drop(open);
}

/// Encodes a frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Encodes the headers of `GET https://localhost/version` in HPACK.
fn get_version() -> Vec<u8> {
    let mut block = vec![0x82, 0x87, 0x04, 8];
    block.extend_from_slice(b"/version");
    block.extend_from_slice(&[0x01, 9]);
    block.extend_from_slice(b"localhost");
    block
}

/// Sends frames after the preface, and reads until the server closes or sends nothing for a while.
async fn frames(target: &Target, frames: &[u8]) -> Vec<u8> {
    let stream = target.connect(None, b"h2").await.expect("a connection");
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut read = Vec::new();
    let writing = async {
        let _ = writer.write_all(PREFACE).await;
        let _ = writer.write_all(&frame(4, 0, 0, &[])).await;
        let _ = writer.write_all(frames).await;
        let _ = writer.flush().await;
    };
    let reading = async {
        let mut buffer = vec![0; 65536];
        while let Ok(Ok(n)) = tokio::time::timeout(std::time::Duration::from_secs(3), reader.read(&mut buffer)).await {
            if n == 0 {
                break;
            }
            read.extend_from_slice(&buffer[..n]);
        }
    };
    futures::join!(writing, reading);
    read
}

/// Returns whether the read bytes contain a frame of this kind.
fn has(read: &[u8], wanted: u8) -> bool {
    let mut rest = read;
    while let [a, b, c, kind, _, _, _, _, _, after @ ..] = rest {
        if *kind == wanted {
            return true;
        }
        let length = u32::from_be_bytes([0, *a, *b, *c]);
        rest = after.get(length as usize..).unwrap_or_default();
    }
    false
}

/// CVE-2023-44487: streams that are reset as soon as they are opened.
pub(crate) async fn streams_reset_at_once(target: &Target) {
    let mut all = Vec::new();
    for i in 0..5_000_u32 {
        all.extend_from_slice(&frame(1, 5, i * 2 + 1, &get_version()));
        all.extend_from_slice(&frame(3, 0, i * 2 + 1, &[0, 0, 0, 8]));
    }
    frames(target, &all).await;
}

/// CVE-2023-45288: headers that continue without end, although their stream was refused.
pub(crate) async fn headers_that_go_on(target: &Target) {
    let mut all = frame(1, 1, 1, &get_version());
    let mut more = vec![0x40, 1, b'x', 0x7f, 0x81, 0x7c];
    more.extend_from_slice(&[b'y'; 16_000]);
    for _ in 0..1_000 {
        all.extend_from_slice(&frame(9, 0, 1, &more));
    }
    let read = frames(target, &all).await;
    // The server sends GOAWAY or RST_STREAM, and does no more work.
    assert!(has(&read, 7) || has(&read, 3) || read.len() < 200, "{read:x?}");
}

/// Small frames that make work: settings, pings, windows, priorities, empty data.
pub(crate) async fn small_frames_without_end(target: &Target) {
    for small in [frame(4, 0, 0, &[]), frame(6, 0, 0, &[0; 8]), frame(8, 0, 0, &[0, 0, 0, 1]), frame(2, 0, 3, &[0, 0, 0, 0, 1]), frame(0xfa, 0, 0, b"x")] {
        frames(target, &small.repeat(20_000)).await;
        target.admin().get("/version").await.is(200, "");
    }
}

/// Frames that break the protocol end their connection.
pub(crate) async fn frames_that_are_wrong(target: &Target) {
    for wrong in [
        frame(1, 5, 2, &get_version()),
        frame(0, 0, 1, b"x"),
        frame(1, 5, 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        frame(1, 5, 1, &[0xbf, 0xff, 0xff, 0xff]),
        frame(8, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        frame(9, 4, 1, b""),
        vec![0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1],
    ] {
        let read = frames(target, &wrong).await;
        assert!(has(&read, 7) || has(&read, 3), "{wrong:x?}: {read:x?}");
    }
    // Pseudo-headers twice, after others, unknown, and names in upper case.
    for block in [
        [get_version(), vec![0x82]].concat(),
        [get_version(), b"\x00\x04:foo\x01x".to_vec()].concat(),
        [get_version(), b"\x00\x03X-A\x01x".to_vec()].concat(),
        [get_version(), b"\x00\x11transfer-encoding\x07chunked".to_vec()].concat(),
        [get_version(), b"\x00\x01x\x03a\r\n".to_vec()].concat(),
    ] {
        let read = frames(target, &frame(1, 5, 1, &block)).await;
        assert!(!String::from_utf8_lossy(&read).contains("gitVersion"), "{block:x?}");
    }
}

/// Creates that fail release their cluster IPs, so that others can use them.
pub(crate) async fn refused_services_keep_no_addresses(target: &Target) {
    let namespace = target.namespace("ips").await;
    let services = format!("/api/v1/namespaces/{namespace}/services");
    let admin = target.admin();
    for i in 0..50 {
        let bad = json!({"metadata": {"name": format!("s{i}")}, "spec": {"type": "NodePort", "clusterIP": "10.96.88.88", "ports": [{"port": 80, "nodePort": 31888}, {"port": 80, "nodePort": 31888}]}});
        admin.post(&services, &bad).await.is(422, "");
    }
    let good = json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "clusterIP": "10.96.88.88", "ports": [{"port": 80, "nodePort": 31888}]}});
    admin.post(&services, &good).await.is(201, "");
}
