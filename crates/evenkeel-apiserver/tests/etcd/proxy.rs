//! A server whose connections to etcd are cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_tasks::watch;
use http::Method;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use super::{MAPS, Sent, body, connect, map, sent, server, start_etcd, version, watch as follow};

/// Writes of the test.
const WRITES: u64 = 150;

/// Forwards connections to etcd until they are cut. Returns its URL, and a sender that cuts all connections.
async fn proxy(etcd: &str) -> (String, watch::Sender<u64>) {
    let target = etcd.strip_prefix("http://").expect("http").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (cut, cuts) = watch::channel(0);
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (target, mut cuts) = (target.clone(), cuts.clone());
            cuts.mark_unchanged();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(target).await.expect("etcd");
                let copied = tokio::io::copy_bidirectional(&mut client, &mut server);
                tokio::select! {
                    _ = copied => {}
                    _ = cuts.changed() => {}
                }
            });
        }
    });
    (url, cut)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_connection_is_cut_is_never_a_wrong_success() {
    let Some(etcd) = start_etcd() else { return };
    let direct = server(&etcd.url).await;
    let (url, cut) = proxy(&etcd.url).await;
    let server = server(&url).await;
    let mut client = connect(&server).await;
    let created = body(client.ask(&Sent::post(MAPS, map("counter", json!({"n": "0"})))).await, 201);
    let path = format!("{MAPS}/counter");
    let mut events = follow(&server, &version(&created)).await;

    let (done, cutting) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let cuts = async {
        while !done.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(300)).await;
            cut.send_modify(|cuts| *cuts += 1);
            cutting.fetch_add(1, Ordering::Relaxed);
        }
    };
    let writes = async {
        let mut succeeded = Vec::new();
        // Whether etcd may still commit a write whose response was lost. It can until another write has a response,
        // because each write compares the revision that was read before.
        let mut is_pending = false;
        for n in 1..=WRITES {
            // Each write appends its number.
            let mut map = body(client.ask(&Sent::get(&path)).await, 200);
            map["data"][n.to_string()] = json!("x");
            let answer = client.ask(&sent(Method::PUT, &path, map)).await;
            match answer.code {
                200 => {
                    succeeded.push((n, version(&answer.body)));
                    is_pending = false;
                }
                // The write may be committed nevertheless, now or later.
                500 | 504 => is_pending = true,
                // The pending write was committed after the read.
                409 if is_pending => is_pending = false,
                code => panic!("{code}: {}", answer.body),
            }
        }
        done.store(true, Ordering::Relaxed);
        succeeded
    };
    let ((), succeeded) = tokio::join!(cuts, writes);
    assert!(cutting.load(Ordering::Relaxed) > 3, "the connection was hardly cut");
    assert!(succeeded.len() > 10, "hardly any write succeeded: {succeeded:?}");
    let stored = body(connect(&direct).await.ask(&Sent::get(&path)).await, 200);
    for (n, _) in &succeeded {
        assert_eq!(stored["data"][n.to_string()], "x", "{n}");
    }
    // The watch has every state in order, although the watch of etcd was cut.
    let mut seen = Vec::new();
    while seen.last() != Some(&version(&stored)) {
        let event = events.next().await.expect("an event");
        assert_eq!(event["type"], "MODIFIED");
        seen.push(version(&event["object"]));
    }
    assert!(seen.windows(2).all(|pair| pair[0].parse::<u64>().ok() < pair[1].parse().ok()));
    for (n, version) in &succeeded {
        assert!(seen.contains(version), "{n}");
    }
    assert_eq!(seen.len(), stored["data"].as_object().expect("data").len() - 1);
}
