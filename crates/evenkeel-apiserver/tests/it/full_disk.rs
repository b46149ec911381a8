//! Requests while the disk is full. A limit on the size of files simulates the full disk, in a separate process.

use std::process::{Command, Stdio};
use std::time::Duration;

use evenkeel_apiserver::Server;
use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::{Client, events};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Variable with the folder of the process.
const FOLDER: &str = "EVENKEEL_TEST_FULL_FOLDER";
/// Maximum number of 512-byte blocks of a file: 8 MiB.
const BLOCKS: u32 = 16 * 1024;

#[expect(clippy::disallowed_methods, reason = "the child process is configured by its environment")]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

async fn health(client: &Client, path: &str) -> (StatusCode, String) {
    let response = client.send("GET", path, &[], bytes::Bytes::new()).await;
    let code = response.status();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, String::from_utf8_lossy(&bytes).into_owned())
}

async fn create(client: &Client, name: &str) -> (StatusCode, Value) {
    let body = json!({"metadata": {"name": name}, "data": {"a": "x".repeat(100_000)}});
    client.ask("POST", CONFIGMAPS, body).await
}

#[tokio::test(start_paused = true)]
#[ignore = "run by the test below, as a process of its own"]
async fn filler() {
    let Some(folder) = environment(FOLDER) else { return };
    let server = Server::builder().data_dir(Some(folder.clone().into())).build().await;
    let client = Client(server.expect("a new folder").service());
    let start = client.get(CONFIGMAPS).await["metadata"]["resourceVersion"].clone();
    assert_eq!(health(&client, "/readyz").await.0, 200);
    let mut n = 0;
    let (code, refused) = loop {
        let (code, answer) = create(&client, &format!("c{n}")).await;
        if code != 201 {
            break (code, answer);
        }
        n += 1;
    };
    assert!(n > 20, "{n}");
    assert_eq!((code.as_u16(), &refused["reason"]), (507, &json!("InsufficientStorage")));
    let message = refused["message"].as_str().expect("a text");
    assert!(message.contains(&folder) && message.contains("make room"), "{message}");
    let (code, text) = health(&client, "/readyz").await;
    assert!(code == 500 && text.contains("[-]etcd-readiness failed"), "{text}");
    let (code, text) = health(&client, "/readyz/etcd-readiness").await;
    assert!(code == 500 && text.contains(&folder), "{text}");
    assert_eq!(health(&client, "/livez").await.0, 200);
    // Reads, lists and watches continue, and show the acknowledged writes.
    let list = client.get(CONFIGMAPS).await;
    let names = list["items"].as_array().expect("a list").iter();
    let names = names.filter(|item| item["data"]["a"].is_string()).count();
    assert_eq!(names, n);
    assert_eq!(client.ask("GET", &format!("{CONFIGMAPS}/c{n}"), Value::Null).await.0, 404);
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={}", start.as_str().expect("text"));
    let mut watch = client.send("GET", &path, &[], bytes::Bytes::new()).await;
    assert_eq!(events(watch.body_mut()).await[0]["object"]["metadata"]["name"], "c0");
    for at in 0..n / 2 {
        let path = format!("{CONFIGMAPS}/c{at}");
        let (code, answer) = client.ask("DELETE", &path, Value::Null).await;
        assert_eq!(code, 200, "{answer}");
    }
    for _ in 0..10 {
        tokio::time::advance(Duration::from_secs(2)).await;
        if health(&client, "/readyz").await.0 == 200 {
            break;
        }
    }
    for at in 0..n / 4 {
        let (code, answer) = create(&client, &format!("again-{at}")).await;
        assert_eq!(code, 201, "{answer}");
    }
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room_again() {
    let folder = tempfile::tempdir().expect("a folder");
    // The signal of the limit would end the process; without it, writes fail as on a full disk.
    let script = format!("trap '' XFSZ; ulimit -f {BLOCKS}; exec \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().expect("this test"))
        .args(["full_disk::filler", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .expect("a shell");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{text}", String::from_utf8_lossy(&output.stdout));
}
