//! Requests as bytes on a connection, which no well-behaved client sends.

use std::net::SocketAddr;

use evenkeel_apiserver::Server;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Starts a server that listens on a port. Returns the server's address and its administrator's token.
async fn listen() -> (SocketAddr, String) {
    let server = Server::builder().build().await.expect("a server in memory");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, token) =
        (listener.local_addr().expect("an address"), server.admin_token().to_owned());
    #[expect(clippy::disallowed_methods, reason = "the server of a test, which ends with it")]
    tokio::spawn(async move { server.serve_plain(listener, std::future::pending()).await });
    (address, token)
}

/// Sends bytes and reads until the server closes the connection.
async fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(request).await.expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("read");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends a GET request on its own connection, and returns the response.
async fn get(address: SocketAddr, path: &str, headers: &[u8]) -> String {
    let mut request =
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n").into_bytes();
    request.extend_from_slice(headers);
    request.extend_from_slice(b"\r\n\r\n");
    exchange(address, &request).await
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_header_that_cannot_be_read_refuses_the_request() {
    let (address, token) = listen().await;
    let admin = format!("Authorization: Bearer {token}\r\n");
    let path = "/api/v1/namespaces/kube-system/secrets";
    let with = async |header: &[u8]| get(address, path, &[admin.as_bytes(), header].concat()).await;
    assert_eq!(status(&with(b"X: y").await), "200");
    for header in [
        &b"Impersonate-User: j\xfcrgen"[..],
        b"Impersonate-User: ann\r\nImpersonate-Group: \xff",
        b"Impersonate-User: ann\r\nImpersonate-Uid: \xff",
        b"Impersonate-User: ann\r\nImpersonate-Extra-Scope: \xff",
        b"Impersonate-User: ann\r\nImpersonate-Extra-%ff: x",
        b"Accept: application/json\xff",
        b"User-Agent: \xc3",
    ] {
        let answer = with(header).await;
        assert_eq!(status(&answer), "400", "{}", header.escape_ascii());
        assert!(answer.contains("cannot be read"), "{answer}");
    }
    // A name in UTF-8 is valid: it names a user without permissions.
    let answer = with("Impersonate-User: jürgen".as_bytes()).await;
    assert_eq!(status(&answer), "403");
    assert!(answer.contains("User \\\"jürgen\\\" cannot list"), "{answer}");
    let answer = get(address, path, b"Authorization: Bearer \xff").await;
    assert_eq!(status(&answer), "400", "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_is_answered_before_its_body_has_come() {
    let (address, token) = listen().await;
    let post = |headers: &str| {
        format!(
            "POST /api/v1/namespaces/default/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n{headers}\r\n{{"
        )
    };
    // The response arrives, and then the connection closes although 99 bytes are missing.
    let answer = exchange(address, post("").as_bytes()).await;
    assert_eq!(status(&answer), "403", "{answer}");
    // A user with the permission to create has a minute to send the body.
    let admin = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    let answer = exchange(address, post(&admin).as_bytes()).await;
    assert_eq!(status(&answer), "504", "{answer}");
    // A body that arrives is read, and the connection stays open.
    let both = format!(
        "{}{}GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n",
        post(""),
        "x".repeat(99)
    );
    let answer = exchange(address, both.as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 2, "{answer}");
    assert!(answer.contains("gitVersion"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn clients_choose_no_labels_of_metrics() {
    let (address, token) = listen().await;
    let admin = format!("Authorization: Bearer {token}");
    let evil = "x%0Aapiserver_request_total%7Bcode=%22200%22%7D%2099";
    for at in 0..20 {
        for path in [
            format!("/apis/{evil}{at}/v1/things"),
            format!("/apis/apps/{evil}{at}/deployments"),
            format!("/api/v1/{evil}{at}"),
            format!("/api/v1/namespaces/default/pods/p/{evil}{at}"),
            format!("/{evil}{at}"),
        ] {
            for headers in ["X: y", &admin] {
                let code = status(&get(address, &path, headers.as_bytes()).await).to_owned();
                assert!(matches!(&*code, "403" | "404"), "{path}: {code}");
            }
        }
        let pod = format!("/api/v1/namespaces/n{at}/pods/p{at}");
        assert_eq!(status(&get(address, &pod, admin.as_bytes()).await), "404");
    }
    let metrics = get(address, "/metrics", admin.as_bytes()).await;
    let counted: Vec<&str> =
        metrics.lines().filter(|line| line.starts_with("apiserver_request_total")).collect();
    // Pods that do not exist, and non-resource paths.
    assert_eq!(counted.len(), 2, "{counted:?}");
    assert!(counted.iter().any(|line| line.contains("resource=\"pods\"") && line.ends_with(" 20")));
    assert!(!metrics.contains("%0A") && !metrics.contains("{code=\"200\"} 99"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_loses_its_connection() {
    let (address, token) = listen().await;
    let admin = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    let path = "/api/v1/namespaces/default/configmaps";
    // More than the sockets buffer.
    let data = "x".repeat(1024 * 1024);
    for at in 0..24 {
        let object = format!(r#"{{"metadata":{{"name":"c{at}"}},"data":{{"a":"{data}"}}}}"#);
        let length = object.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{admin}\r\n{object}"
        );
        assert_eq!(status(&exchange(address, request.as_bytes()).await), "201");
    }
    let in_flight = async || {
        let text = get(address, "/metrics", admin.as_bytes()).await;
        let name = "apiserver_current_inflight_requests{request_kind=\"readOnly\"} ";
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("none").to_owned()
    };
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(64 * 1024).expect("a size");
    let mut stream = socket.connect(address).await.expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{admin}\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.expect("the head of an answer");
    assert_eq!(&first, b"HTTP/1.1 200");
    assert_eq!(in_flight().await, "2");
    tokio::time::sleep(std::time::Duration::from_secs(61)).await;
    assert_eq!(in_flight().await, "1");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.len() < 24 * data.len(), "the answer is cut off: {}", rest.len());
    assert!(!rest.ends_with(b"0\r\n\r\n"));
}
