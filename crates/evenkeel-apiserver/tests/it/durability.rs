//! What is acknowledged is on disk: a server is killed amid writes, again and again, and its folder opened anew.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use evenkeel_apiserver::Server;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::Client;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Where the writer finds the folder and the number of its run.
const FOLDER: &str = "EVENKEEL_TEST_FOLDER";
const RUN: &str = "EVENKEEL_TEST_RUN";
const WRITERS: usize = 16;
/// Acknowledgements after which a writer is killed.
const ENOUGH: usize = 300;
const RUNS: usize = 3;

#[expect(clippy::disallowed_methods, reason = "a process of its own is told by its environment")]
fn told(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().expect("a version");
    text.parse().expect("a number")
}

/// Writes without end; a line for each acknowledged write: name, revision, and whether it was a deletion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run and killed by the test below, as a process of its own"]
async fn writer() {
    let Some(folder) = told(FOLDER) else { return };
    let run = told(RUN).expect("the number of the run");
    let server = Server::builder().data_dir(Some(folder.into())).build().await.expect("a server");
    let client = Client(server.service());
    let write = async |task: usize| {
        for at in 0.. {
            let name = format!("r{run}-{task}-{at}");
            let body = json!({"metadata": {"name": name}, "data": {"a": "x".repeat(at % 700)}});
            let (code, made) = client.ask("POST", CONFIGMAPS, body).await;
            assert_eq!(code, 201, "{made}");
            tell(&format!("{name} {} made", version(&made)));
            if at % 5 == 4 {
                let path = format!("{CONFIGMAPS}/{name}");
                assert_eq!(client.ask("DELETE", &path, Value::Null).await.0, 200);
                tell(&format!("{name} {} gone", server.revision()));
            }
        }
    };
    join_all((0..WRITERS).map(write)).await;
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@ {line}").and_then(|()| out.flush()).expect("somebody reads");
}

/// Lets a writer run until it has told enough, kills it, and gives all that it told: revision and whether gone, by name.
fn killed(folder: &Path, run: usize) -> BTreeMap<String, (u64, bool)> {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["durability::writer", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(RUN, run.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut all = BTreeMap::new();
    let mut told = 0;
    // After the kill comes what was in the pipe; the last line may be cut off.
    for line in BufReader::new(child.stdout.take().expect("a pipe")).split(b'\n') {
        let line = String::from_utf8(line.expect("readable")).expect("text");
        let words: Vec<&str> = line.split(' ').collect();
        let ["@", name, revision, what @ ("made" | "gone")] = words.as_slice() else { continue };
        all.insert((*name).to_owned(), (revision.parse().expect("a number"), *what == "gone"));
        told += 1;
        if told == ENOUGH {
            child.kill().expect("it runs");
        }
    }
    child.wait().expect("it ended");
    assert!(told >= ENOUGH, "the writer ended by itself after {told} writes");
    all
}

#[tokio::test]
async fn a_kill_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut told = BTreeMap::new();
    let mut latest = 0;
    for run in 0..RUNS {
        told.extend(killed(folder.path(), run));
        let server = Server::builder().data_dir(Some(folder.path().to_owned())).build().await;
        let client = Client(server.expect("the folder opens").service());
        let list = client.get(CONFIGMAPS).await;
        let there: BTreeMap<&str, u64> = list["items"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|item| (item["metadata"]["name"].as_str().expect("a name"), version(item)))
            .collect();
        for (name, (revision, gone)) in &told {
            latest = latest.max(*revision);
            match there.get(name.as_str()) {
                None if *gone => {}
                // A deletion may have happened and not been told.
                None => assert!(name.ends_with(['4', '9']), "{name} of {revision} is lost"),
                Some(found) => assert!(!gone && found == revision, "{name} is at {found}"),
            }
        }
        assert!(version(&list) > latest, "revisions go back to {}", version(&list));
        let name = format!("after-{run}");
        let (code, made) =
            client.ask("POST", CONFIGMAPS, json!({"metadata": {"name": name}})).await;
        assert_eq!(code, 201);
        assert!(version(&made) > version(&list));
        latest = version(&made);
    }
}
