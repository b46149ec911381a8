//! Malformed HTTP: requests hidden in others, lengths that disagree, headers without end.

use crate::target::{Answer, JSON, Target};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const BODY: &str = r#"{"metadata":{"name":"smuggled"}}"#;

/// Returns the codes of all responses on a connection that carries these bytes.
async fn codes(target: &Target, bytes: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(&target.exchange(bytes).await).into_owned();
    let answers = text.split("HTTP/1.1 ").chain(text.split("HTTP/1.0 ").skip(1)).skip(1);
    answers.filter_map(|answer| answer.get(..3)?.parse().ok()).collect()
}

/// Returns the head of a create by the administrator.
fn create(headers: &str) -> String {
    format!("POST {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\nContent-Type: {JSON}\r\n{headers}\r\n")
}

async fn made_nothing(target: &Target) {
    target.admin().get(&format!("{CONFIGMAPS}/smuggled")).await.is(404, "");
}

/// Two lengths: a proxy in between may use the other one.
pub(crate) async fn lengths_that_disagree(target: &Target) {
    for headers in [
        "Content-Length: 5\r\nContent-Length: 32\r\n",
        "Content-Length: +32\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x20\r\n",
        "Content-Length: 32, 5\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length:\r\n",
    ] {
        let codes = codes(target, format!("{}{BODY}", create(headers)).as_bytes()).await;
        assert_eq!(codes, [400], "{headers}");
        made_nothing(target).await;
    }
}

/// A length and chunks: the bytes after the chunks must count neither as another user's request nor as the body.
pub(crate) async fn a_length_and_chunks(target: &Target) {
    let hidden = format!("POST {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len());
    let headers = format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", hidden.len() + 5);
    let codes = codes(target, format!("{}0\r\n\r\n{hidden}", create(&headers)).as_bytes()).await;
    // An empty body is refused, and a request after it does not get the credentials of an earlier request.
    assert!(codes.iter().all(|code| matches!(code, 400 | 403)) && !codes.is_empty(), "{codes:?}");
    made_nothing(target).await;
}

pub(crate) async fn chunks_of_lengths_that_are_none(target: &Target) {
    for size in ["ffffffffffffffffff", "-1", "+20", "0x20", "20 20", "", "g", "80000000000000000000"] {
        let bytes = format!("{}{size}\r\n{BODY}\r\n0\r\n\r\n", create("Transfer-Encoding: chunked\r\n"));
        let codes = codes(target, bytes.as_bytes()).await;
        assert!(matches!(codes.first(), Some(400 | 500)), "{size}: {codes:?}");
        made_nothing(target).await;
    }
}

/// CVE-2023-39326: chunks of one byte with long extensions.
pub(crate) async fn chunks_with_long_extensions(target: &Target) {
    let mut bytes = create("Transfer-Encoding: chunked\r\n").into_bytes();
    for _ in 0..200 {
        bytes.extend_from_slice(b"1;");
        bytes.extend_from_slice(&[b'x'; 3000]);
        bytes.extend_from_slice(b"\r\n \r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    let codes = codes(target, &bytes).await;
    assert!(matches!(codes.first(), Some(400 | 500)), "{codes:?}");
}

pub(crate) async fn headers_without_end(target: &Target) {
    let long = "x".repeat(2 * 1024 * 1024);
    for head in [
        format!("GET /version HTTP/1.1\r\nHost: x\r\nX: {long}\r\n\r\n"),
        format!("GET /version HTTP/1.1\r\nHost: x\r\n{long}: x\r\n\r\n"),
        format!("GET /version HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(300_000)),
    ] {
        let answer = Answer::read(&target.exchange(head.as_bytes()).await);
        assert_eq!(answer.code, 431, "{}", answer.head());
    }
    let answer = Answer::read(&target.exchange(format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await);
    assert!(matches!(answer.code, 414 | 431), "{}", answer.head());
}

/// The server must not treat these headers as the headers that they resemble.
pub(crate) async fn headers_that_resemble_others(target: &Target) {
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    for header in ["Authorization_: Bearer admin", "X-Authorization: Bearer admin", "X-Remote-User: admin\r\nX-Remote-Group: system:masters",
        "Impersonate_User: admin", "Proxy-Authorization: Bearer admin", "Authorization: Basic YWRtaW46YWRtaW4=", "X-Forwarded-For: 127.0.0.1", "Cookie: token=admin"]
    {
        let request = format!("GET {secrets} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n\r\n");
        let answer = Answer::read(&target.exchange(request.as_bytes()).await);
        assert!(matches!(answer.code, 401 | 403), "{header}: {}", answer.head());
    }
    // Invalid names of headers, and values that end early.
    for header in [
        &b"Authorization : Bearer admin"[..],
        b"Authorization\0: Bearer admin",
        b"X: a\0b",
        b": x",
        b"Impersonate-User\t: admin",
    ] {
        let head = format!("GET {secrets} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ann\r\n");
        let request = [head.as_bytes(), header, b"\r\n\r\n"].concat();
        let answer = Answer::read(&target.exchange(&request).await);
        assert_eq!(answer.code, 400, "{}", header.escape_ascii());
    }
    // A continued line is part of the value above it, or refused.
    let folded = format!("GET {secrets} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer ann\r\n Impersonate-User: admin\r\n\r\n");
    let answer = Answer::read(&target.exchange(folded.as_bytes()).await);
    assert!(matches!(answer.code, 400 | 401 | 403), "{}", answer.head());
}

/// An administrator impersonates a user without permissions. A header that the server cannot read must not leave the
/// request to the administrator.
pub(crate) async fn impersonation_headers_beyond_ascii(target: &Target) {
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let get = async |headers: &[&[u8]]| {
        let head = format!("GET {secrets} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer admin\r\n");
        let mut request = head.into_bytes();
        for header in headers {
            request.extend_from_slice(header);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        Answer::read(&target.exchange(&request).await)
    };
    assert_eq!(get(&[]).await.code, 200, "the administrator may read them");
    let ann = &b"Impersonate-User: ann"[..];
    for headers in [
        &[&b"Impersonate-User: \xff"[..]][..],
        &[b"Impersonate-User: bob\xc3"],
        &[b"impersonate-user: \xed\xa0\x80"],
        &[b"Impersonate-User: \xff", ann],
        &[ann, b"Impersonate-User: \xff"],
        &[ann, b"Impersonate-Group: \xff"],
        &[ann, b"Impersonate-Group: dev", b"IMPERSONATE-GROUP: system:masters\x80"],
        &[ann, b"Impersonate-Uid: \xc0\x80"],
        &[ann, b"Impersonate-Extra-Scopes: \xff"],
        &[ann, b"Impersonate-Extra-%ff: x"],
        &[b"Impersonate-Group: \xff"],
        &[b"Impersonate-Extra-Scopes: \xff"],
        // The names of headers are ASCII.
        &[b"Impersonate-Us\xe9r: ann"],
        &[ann, b"Impersonate-Extra-\xff: x"],
        &[ann, b"Impersonate-Extra-\xc3\xa9: x"],
    ] {
        let answer = get(headers).await;
        let what = headers.join(&b", "[..]).escape_ascii().to_string();
        // Upstream takes values of any bytes for names, which have no permissions.
        let is_refused = answer.code == 400 || target.is_upstream() && answer.code == 403;
        assert!(is_refused, "{what}: {}", answer.head());
    }
    // Text beyond ASCII names a user, a group or a value like any other.
    for headers in [
        &["Impersonate-User: \u{e4}nn".as_bytes()][..],
        &[ann, "Impersonate-Group: d\u{e9}v".as_bytes()],
        &[ann, "Impersonate-Extra-Scopes: \u{4e16}".as_bytes()],
        &[ann, b"Impersonate-Extra-%c3%a9: x"],
    ] {
        let answer = get(headers).await;
        let what = headers.join(&b", "[..]).escape_ascii().to_string();
        assert_eq!(answer.code, 403, "{what}: {}", answer.head());
    }
}

pub(crate) async fn lines_that_are_no_request(target: &Target) {
    for line in [
        &b"GET / HTTP/0.9\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET\r\n\r\n",
        b"G\0T / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 not HTTP at all\r\n\r\n",
    ] {
        let answer = Answer::read(&target.exchange(line).await);
        assert!(matches!(answer.code, 0 | 400 | 505), "{}: {}", line.escape_ascii(), answer.head());
    }
}

/// The client cannot choose another host with an absolute URI: this server handles the request, with the client's
/// permissions.
pub(crate) async fn absolute_uris(target: &Target) {
    for uri in ["http://169.254.169.254/version", "https://other.example:1/version"] {
        let request = format!("GET {uri} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        Answer::read(&target.exchange(request.as_bytes()).await).is(200, "gitVersion");
    }
    let secrets = "GET http://localhost/api/v1/secrets HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    Answer::read(&target.exchange(secrets.as_bytes()).await).is(403, "");
}

pub(crate) async fn methods_that_are_not_served(target: &Target) {
    let admin = target.admin();
    for method in ["TRACE", "FOO", "PROPFIND", "get"] {
        let answer = admin.send(method, CONFIGMAPS, &[], b"").await;
        assert_eq!(answer.code, 405, "{method}: {}", answer.text());
    }
    let request = "CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\nConnection: close\r\n\r\n";
    let answer = Answer::read(&target.exchange(request.as_bytes()).await);
    assert!((400..500).contains(&answer.code), "{}", answer.head());
    // No method is chosen by a header.
    let answer = admin.send("GET", &format!("{CONFIGMAPS}/kube-root-ca.crt"), &[("X-HTTP-Method-Override", "DELETE")], b"").await;
    assert!(matches!(answer.code, 200 | 404), "{}", answer.text());
}

/// CVE-2018-1002105: a connection that failed to be upgraded carries nobody's requests.
pub(crate) async fn a_request_after_a_failed_upgrade(target: &Target) {
    let namespace = target.tenancy().await;
    let upgrade = format!(
        "GET /api/v1/namespaces/{namespace}/pods/none/exec?command=id HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ann\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\
         GET /api/v1/namespaces/kube-system/secrets HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    );
    let codes = codes(target, upgrade.as_bytes()).await;
    assert!(matches!(codes.as_slice(), [400 | 404] | [400 | 404, 401 | 403]), "{codes:?}");
}

/// Each request of a connection has its own credentials.
pub(crate) async fn requests_in_a_row_share_no_user(target: &Target) {
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let of = |headers: &str| format!("GET {secrets} HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
    let bytes = [of("Authorization: Bearer admin\r\n"), of(""), of("Authorization: Bearer ann\r\n"), of("Authorization: Bearer wrong\r\nConnection: close\r\n")].concat();
    assert_eq!(codes(target, bytes.as_bytes()).await, [200, 403, 403, 401]);
}
