//! Snapshots of a data folder.

use std::path::Path;

use evenkeel_apiserver::snapshot::{self, SnapshotError};
use evenkeel_apiserver::{BuildError, OpenError, Server};
use serde_json::{Value, json};

use crate::{Client, events};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn server(folder: &Path) -> Server {
    Server::builder().data_dir(Some(folder.to_owned())).build().await.expect("a server")
}

async fn names(client: &Client) -> Vec<String> {
    let list = client.get(CONFIGMAPS).await;
    let items = list["items"].as_array().expect("a list").iter();
    items.map(|item| item["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test]
async fn a_snapshot_is_saved_verified_and_restored() {
    let home = tempfile::tempdir().expect("a folder");
    let (folder, other) = (home.path().join("cluster"), home.path().join("other"));
    let (online, offline) = (home.path().join("online"), home.path().join("offline"));
    let first = server(&folder).await;
    let client = Client(first.service());
    for name in ["a", "b", "c"] {
        client.make(CONFIGMAPS, json!({"metadata": {"name": name}})).await;
    }
    client.ask("DELETE", &format!("{CONFIGMAPS}/b"), Value::Null).await;
    first.snapshot(&online).expect("a new file");
    let in_use = snapshot::save(&folder, &offline);
    assert!(matches!(in_use, Err(SnapshotError::Open(OpenError::Locked(_)))), "{in_use:?}");
    let at = first.revision();
    client.make(CONFIGMAPS, json!({"metadata": {"name": "later"}})).await;
    drop((client, first));
    let saved = snapshot::save(&folder, &offline).expect("nobody uses it");
    let again = snapshot::save(&folder, &offline);
    assert!(matches!(again, Err(SnapshotError::Exists(_))), "{again:?}");
    assert_eq!(snapshot::verify(&offline).expect("whole"), saved);
    let summary = snapshot::verify(&online).expect("whole");
    assert_eq!((summary.revision, summary.n_objects + 1), (at, saved.n_objects));

    snapshot::restore(&online, &other).expect("an empty folder");
    assert!(matches!(snapshot::restore(&online, &other), Err(SnapshotError::Exists(_))));
    let restored = server(&other).await;
    let client = Client(restored.service());
    // The list also has the three ConfigMaps of every cluster.
    let all = names(&client).await;
    assert!(all.contains(&"a".to_owned()) && all.contains(&"c".to_owned()), "{all:?}");
    assert!(!all.contains(&"later".to_owned()) && !all.contains(&"b".to_owned()), "{all:?}");
    assert!(restored.revision() > saved.revision, "clients may have seen later revisions");
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={at}");
    let mut watch = client.send("GET", &path, &[], bytes::Bytes::new()).await;
    assert_eq!(events(watch.body_mut()).await[0]["object"]["code"], 410);
    client.make(CONFIGMAPS, json!({"metadata": {"name": "new"}})).await;
}

#[tokio::test]
async fn a_damaged_file_refuses_to_start_and_says_how_to_restore_it() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("cluster");
    let (file, backup) = (folder.join("evenkeel.redb"), home.path().join("backup"));
    drop(server(&folder).await);
    snapshot::save(&folder, &backup).expect("nobody uses it");
    let mut bytes = std::fs::read(&file).expect("a file");
    let place = bytes.windows(5).position(|part| part == b"admin").expect("an object");
    bytes[place] ^= 1;
    std::fs::write(&file, &bytes).expect("written");
    let build = || Server::builder().data_dir(Some(folder.clone())).build();
    let Err(BuildError::Store(error)) = build().await else { panic!("it was taken") };
    let text = error.to_string();
    assert!(text.contains(&format!("{} is damaged", file.display())), "{text}");
    assert!(text.contains("evenkeel snapshot restore"), "{text}");
    let error = snapshot::verify(&file).expect_err("damaged").to_string();
    assert!(error.contains("is damaged"), "{error}");
    assert!(std::fs::read(&file).expect("a file") == bytes, "it is left as it is");
    std::fs::rename(&file, home.path().join("damaged")).expect("moved");
    snapshot::restore(&backup, &folder).expect("a folder without a state");
    build().await.expect("whole again");
}

#[tokio::test]
async fn what_is_no_snapshot_is_not_called_damaged() {
    let home = tempfile::tempdir().expect("a folder");
    let (manifest, folder) = (home.path().join("web.yaml"), home.path().join("cluster"));
    std::fs::write(&manifest, "kind: Pod\n").expect("written");
    for result in [snapshot::verify(&manifest), snapshot::restore(&manifest, &folder)] {
        let error = result.expect_err("a manifest").to_string();
        assert!(error.contains("web.yaml is not a snapshot: `evenkeel snapshot save"), "{error}");
    }
    assert!(!folder.exists());
}
