//! The secure port from the view of clients. `recorded.json` has the responses of upstream's kube-controller-manager v1.37.1 to
//! the same requests, in a cluster with the same permissions.

use crate::{
    client::{Answer, Ca, Credential, connect, send},
    world::World,
};
use serde_json::Value;
use std::{net::SocketAddr, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const RECORDED: &str = include_str!("recorded.json");

#[tokio::test]
async fn answers_are_upstreams() {
    let world = World::new().await;
    let program = world.program(&world.options()).await;
    let identities = world.identities();
    let rows: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    assert_eq!(rows.len(), 82);
    for row in rows {
        let text = |name: &str| row[name].as_str();
        let (credential, headers) = &identities[text("as").unwrap()];
        let mut headers = headers.clone();
        for (name, field) in [("accept", "accept"), ("user-agent", "agent")] {
            headers.extend(text(field).map(|value| (name, value)));
        }
        let (method, path) = (text("method").unwrap(), text("path").unwrap());
        let body = text("sent").unwrap_or_default();
        let answer = send(program.address, credential.as_ref(), method, path, &headers, body).await;
        let got = (u64::from(answer.status), answer.header("content-type"), answer.text());
        let wanted = (
            row["status"].as_u64().unwrap(),
            text("type"),
            row["body"].as_str().unwrap().to_owned(),
        );
        assert_eq!(got, wanted, "{row}");
        assert_eq!(answer.header("location"), text("location"), "{row}");
        assert_eq!(answer.header("cache-control"), Some("no-cache, private"), "{row}");
    }
    program.end().await;
    world.end().await;
}

async fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Answer {
    let headers = [&[("authorization", "Bearer reader-token")], headers].concat();
    send(address, None, "GET", path, &headers, "").await
}

#[tokio::test]
async fn a_program_that_stands_by_tells_of_itself() {
    let world = World::new().await;
    let program = world.program(&world.options()).await;
    let address = program.address;
    for path in ["/livez", "/readyz"] {
        assert_eq!(send(address, None, "GET", path, &[], "").await.text(), "ok");
    }
    let ready = send(address, None, "GET", "/readyz?verbose", &[], "").await.text();
    assert_eq!(ready, "[+]informer-sync ok\n[+]leaderElection ok\nreadyz check passed\n");
    let healthy = send(address, None, "GET", "/healthz?verbose", &[], "").await.text();
    assert_eq!(healthy, "[+]leaderElection ok\n[+]tasks ok\nhealthz check passed\n");

    let configz = get(address, "/configz", &[]).await;
    let config: Value = serde_json::from_str(&configz.text()).unwrap();
    assert_eq!(config["group"]["kind"], "Configuration");
    let smaller = get(address, "/configz", &[("accept-encoding", "gzip")]).await;
    assert_eq!(smaller.header("content-encoding"), Some("gzip"));
    assert!(smaller.body.len() < 1000);
    assert!(get(address, "/flagz", &[]).await.text().ends_with("only.\nv=2\n"));
    let status = get(address, "/statusz", &[]).await.text();
    let paths = "Paths: /configz /flagz /healthz /livez /metrics /readyz\n";
    assert!(status.ends_with(paths), "{status}");
    let controllers: Value =
        serde_json::from_str(&get(address, "/debug/controllers", &[]).await.text()).unwrap();
    assert!(controllers["controllers"].is_array(), "{controllers}");
    assert_eq!(get(address, "/debug/controllers/nothing", &[]).await.status, 404);
    let tasks = get(address, "/debug/pprof/goroutine?debug=1", &[]).await.text();
    assert!(tasks.contains(" @ secure connection\n"), "{tasks}");
    let profile = get(address, "/debug/pprof/goroutine", &[]).await;
    assert_eq!(profile.header("content-type"), Some("application/octet-stream"));
    assert!(get(address, "/metrics", &[]).await.text().contains("authentication_attempts{"));
    program.end().await;
    world.end().await;
}

/// Repeats a request until the response has this status.
async fn until(address: SocketAddr, who: &Credential, status: u16) {
    let asked = async {
        while send(address, Some(who), "GET", "/nowhere", &[], "").await.status != status {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asked).await.expect("a change that is noticed");
}

#[tokio::test]
async fn what_the_cluster_says_counts_from_then_on() {
    let world = World::new().await;
    let program = world.program(&world.options()).await;
    let (old, new_ca) = (world.clients.sign("alice", ""), Ca::new("new-ca"));
    let new = new_ca.sign("alice", "");
    until(program.address, &old, 404).await;
    until(program.address, &new, 401).await;
    // On a persistent connection, the server authenticates each request again.
    let mut stays = connect(program.address, "localhost", Some(&old)).await;
    assert!(ask(&mut stays).await.starts_with("HTTP/1.1 404 "));
    world.believe(&new_ca).await;
    until(program.address, &new, 404).await;
    until(program.address, &old, 401).await;
    assert!(ask(&mut stays).await.starts_with("HTTP/1.1 401 "));
    program.end().await;
    world.end().await;
}

/// Sends a request over a persistent connection, and reads the immediate response.
async fn ask(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin)) -> String {
    stream.write_all(b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut text = String::new();
    let mut chunk = [0; 4096];
    // Either response ends with a line feed.
    while !(text.contains("\r\n\r\n") && text.ends_with('\n') && !text.ends_with("\r\n\r\n")) {
        let n = stream.read(&mut chunk).await.unwrap();
        assert!(n > 0, "the connection ended: {text}");
        text.push_str(&String::from_utf8_lossy(&chunk[..n]));
    }
    text
}

#[tokio::test]
async fn a_header_that_cannot_be_read_refuses_the_request() {
    let world = World::new().await;
    let program = world.program(&world.options()).await;
    for header in [&b"Authorization: Bearer reader-token\xff"[..], b"X-Remote-User: j\xfcrgen"] {
        let mut stream = connect(program.address, "localhost", None).await;
        let request = [b"GET /livez HTTP/1.1\r\nhost: x\r\n", header, b"\r\n\r\n"].concat();
        stream.write_all(&request).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 400", "{}", header.escape_ascii());
    }
    program.end().await;
    world.end().await;
}

#[tokio::test]
async fn a_stop_lets_go_of_connections_that_wait() {
    let world = World::new().await;
    let mut program = world.program(&world.options()).await;
    let alice = world.clients.sign("alice", "");
    until(program.address, &alice, 404).await;
    let mut idle = connect(program.address, "localhost", Some(&alice)).await;
    assert!(ask(&mut idle).await.starts_with("HTTP/1.1 404 "));
    program.stop();
    let mut rest = Vec::new();
    // The end of the connection, with or without TLS's `close_notify`.
    let _ = idle.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
    program.end().await;
    world.end().await;
}

#[tokio::test]
async fn http_without_tls_is_reported_so() {
    let world = World::new().await;
    let program = world.program(&world.options()).await;
    let mut plain = tokio::net::TcpStream::connect(program.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut text = String::new();
    // The response is sent before the request was read, which may reset the connection.
    let _ = plain.read_to_string(&mut text).await;
    assert_eq!(
        text,
        "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
    );
    program.end().await;
    world.end().await;
}

#[tokio::test]
async fn without_lookup_certificates_are_not_believed() {
    let world = World::new().await;
    let mut options = world.options();
    options.skip_lookup = true;
    options.authorization_kubeconfig = None;
    let program = world.program(&options).await;
    let alice = world.clients.sign("alice", "system:masters");
    let answer = send(program.address, Some(&alice), "GET", "/nowhere", &[], "").await;
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("system:anonymous"), "{}", answer.text());
    program.end().await;
    world.end().await;
}

/// The first kubeconfig's user may not create TokenReviews.
#[tokio::test]
async fn kubeconfigs_for_reviews_are_read_again() {
    let world = World::new().await;
    let mut options = world.options();
    let path = world.folder.path().join("reviewer");
    let good = std::fs::read_to_string(world.folder.path().join("kubeconfig")).unwrap();
    let (before, after) = good.split_once("client-certificate-data").expect("a certificate");
    let (_, after) = after.split_once("\ncontexts").expect("contexts");
    std::fs::write(&path, format!("{before}token: nobody-token\ncontexts{after}")).unwrap();
    options.authentication_kubeconfig = Some(path.to_string_lossy().into_owned());
    options.skip_lookup = true;
    let program = world.program(&options).await;
    assert_eq!(get(program.address, "/metrics", &[]).await.status, 401);
    std::fs::write(&path, &good).unwrap();
    let asked = async {
        while get(program.address, "/metrics", &[]).await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asked).await.expect("it is read again");
    program.end().await;
    world.end().await;
}
