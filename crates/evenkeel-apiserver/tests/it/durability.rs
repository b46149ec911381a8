//! Acknowledged writes are on disk: the test repeatedly kills a server during writes, and opens its folder again.
//! Objects must have their acknowledged state, transactions must be whole, and a watch must resume at any revision
//! before the kill.
//!
//! `EVENKEEL_KILLS=300 cargo test -p evenkeel-apiserver --test it durability` kills more often.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use evenkeel_apiserver::Server;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::{Client, events};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
/// Variable with the writer's folder and the number of its run.
const FOLDER: &str = "EVENKEEL_TEST_FOLDER";
const RUN: &str = "EVENKEEL_TEST_RUN";
/// Variable with the number of writers to kill.
const KILLS: &str = "EVENKEEL_KILLS";
const WRITERS: usize = 16;
/// Minimum number of acknowledgments before a writer is killed, and its increment in the next runs.
const ENOUGH: usize = 200;
const LATER: usize = 37;
/// Number of kills of an ordinary test run.
const FEW: usize = 3;

#[expect(clippy::disallowed_methods, reason = "the child process is configured by its environment")]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().expect("a version");
    text.parse().expect("a number")
}

/// Writes without end. Prints a line before each write, and a line after its acknowledgment: name, revision and value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run and killed by the test below, as a process of its own"]
async fn writer() {
    let Some(folder) = environment(FOLDER) else { return };
    let run = environment(RUN).expect("the number of the run");
    let server = Server::builder().data_dir(Some(folder.into())).build().await.expect("a server");
    let client = Client(server.service());
    let write = async |task: usize| {
        for at in 0.. {
            let name = format!("r{run}-{task}-{at}");
            if at % 7 == 6 {
                // A Service is committed together with its IPAddress.
                let body = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
                let (code, made) = client.ask("POST", SERVICES, body).await;
                assert_eq!(code, 201, "{made}");
                if at % 2 == 0 {
                    let path = format!("{SERVICES}/{name}");
                    assert_eq!(client.ask("DELETE", &path, Value::Null).await.0, 200);
                }
                continue;
            }
            let path = format!("{CONFIGMAPS}/{name}");
            let mut body = json!({"metadata": {"name": name}, "data": {"a": "x".repeat(at % 700)}});
            tell(&name, 0, "tried");
            let (code, made) = client.ask("POST", CONFIGMAPS, body.clone()).await;
            assert_eq!(code, 201, "{made}");
            tell(&name, version(&made), "made");
            if at % 3 == 2 {
                body["data"]["b"] = json!("changed");
                tell(&name, 0, "tried");
                let (code, made) = client.ask("PUT", &path, body).await;
                assert_eq!(code, 200, "{made}");
                tell(&name, version(&made), "made");
            }
            if at % 5 == 4 {
                tell(&name, 0, "tried");
                assert_eq!(client.ask("DELETE", &path, Value::Null).await.0, 200);
                tell(&name, 0, "gone");
            }
        }
    };
    join_all((0..WRITERS).map(write)).await;
}

fn tell(name: &str, revision: u64, what: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@ {name} {revision} {what}")
        .and_then(|()| out.flush())
        .expect("somebody reads");
}

/// Writes that the killed server acknowledged.
#[derive(Default)]
struct AcknowledgedWrites {
    /// The last line of each object: revision and value.
    last: BTreeMap<String, (u64, String)>,
    /// Every acknowledged revision of an object.
    revisions: BTreeMap<u64, String>,
    /// Every object whose deletion was acknowledged.
    gone: BTreeSet<String>,
}

impl AcknowledgedWrites {
    /// Lets a writer run until it has reported enough, kills it, and adds its reports.
    fn kill(&mut self, folder: &Path, run: usize) {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["durability::writer", "--exact", "--ignored", "--nocapture"])
            .env(FOLDER, folder)
            .env(RUN, run.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let (mut n, enough) = (0, ENOUGH + run % 9 * LATER);
        // After the kill, the pipe still has lines; the last one may be cut off.
        for line in BufReader::new(child.stdout.take().expect("a pipe")).split(b'\n') {
            let line = String::from_utf8(line.expect("readable")).expect("text");
            let words: Vec<&str> = line.split(' ').collect();
            let ["@", name, revision, what @ ("tried" | "made" | "gone")] = words.as_slice() else {
                continue;
            };
            let revision = revision.parse().expect("a number");
            self.last.insert((*name).to_owned(), (revision, (*what).to_owned()));
            match *what {
                "made" => drop(self.revisions.insert(revision, (*name).to_owned())),
                "gone" => drop(self.gone.insert((*name).to_owned())),
                _ => {}
            }
            n += usize::from(*what != "tried");
            if n == enough {
                child.kill().expect("it runs");
            }
        }
        child.wait().expect("it ended");
        assert!(n >= enough, "the writer ended by itself after {n} writes");
    }

    /// Compares the stored objects with the acknowledged writes.
    fn check(&self, list: &Value) {
        let items = list["items"].as_array().expect("a list").iter();
        let there: BTreeMap<&str, u64> = items
            .map(|item| (item["metadata"]["name"].as_str().expect("a name"), version(item)))
            .collect();
        for (name, (revision, what)) in &self.last {
            let found = there.get(name.as_str()).copied();
            match &**what {
                "made" => assert_eq!(found, Some(*revision), "{name}"),
                "gone" => assert_eq!(found, None, "{name}"),
                // The last write may or may not be committed.
                _ => {}
            }
        }
        let latest = self.revisions.keys().next_back().copied().unwrap_or_default();
        assert!(version(list) >= latest, "revisions go back to {}", version(list));
    }
}

/// A Service has its IPAddress, and an IPAddress its Service.
async fn check_transactions(client: &Client) {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let (services, addresses) = (client.get(SERVICES).await, client.get(ADDRESSES).await);
    let of = |list: &Value, read: &dyn Fn(&Value) -> String| -> BTreeSet<String> {
        list["items"].as_array().expect("a list").iter().map(read).collect()
    };
    let ips = of(&services, &|service| text(&service["spec"]["clusterIP"]));
    assert_eq!(of(&addresses, &|address| text(&address["metadata"]["name"])), ips);
}

/// Watches from a revision on, until `last` was added. The watch must have every acknowledged write after the revision,
/// in order.
async fn check_watch(client: &Client, acknowledged: &AcknowledgedWrites, since: u64, last: &str) {
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={since}");
    let mut watch = client.send("GET", &path, &[], bytes::Bytes::new()).await;
    let (mut seen, mut deleted) = (BTreeMap::new(), BTreeSet::new());
    let mut latest = since;
    while seen.values().all(|name| name != last) {
        for event in events(watch.body_mut()).await {
            let object = &event["object"];
            let name = object["metadata"]["name"].as_str().unwrap_or_else(|| panic!("{event}"));
            assert!(version(object) > latest, "{} after {latest}", version(object));
            latest = version(object);
            if event["type"] == "DELETED" {
                deleted.insert(name.to_owned());
            }
            seen.insert(latest, name.to_owned());
        }
    }
    for (revision, name) in acknowledged.revisions.range(since + 1..) {
        assert_eq!(seen.get(revision), Some(name), "since {since}");
        assert!(
            !acknowledged.gone.contains(name) || deleted.contains(name),
            "{name} since {since}"
        );
    }
}

#[tokio::test]
async fn a_kill_loses_nothing_that_was_acknowledged() {
    let kills = environment(KILLS).and_then(|kills| kills.parse().ok()).unwrap_or(FEW);
    let folder = tempfile::tempdir().expect("a folder");
    let mut acknowledged = AcknowledgedWrites::default();
    let mut latest = 0;
    for run in 0..kills {
        acknowledged.kill(folder.path(), run);
        let server = Server::builder().data_dir(Some(folder.path().to_owned())).build().await;
        let client = Client(server.expect("the folder opens").service());
        let list = client.get(CONFIGMAPS).await;
        acknowledged.check(&list);
        assert!(version(&list) >= latest);
        check_transactions(&client).await;
        let name = format!("after-{run}");
        let (code, made) =
            client.ask("POST", CONFIGMAPS, json!({"metadata": {"name": name}})).await;
        assert_eq!(code, 201);
        assert!(version(&made) > version(&list));
        // The ring of one resource holds more than a run writes.
        let since =
            acknowledged.revisions.range(latest + 1..).nth(run % 50).map_or(latest, |(it, _)| *it);
        check_watch(&client, &acknowledged, since, &name).await;
        latest = version(&made);
    }
}
