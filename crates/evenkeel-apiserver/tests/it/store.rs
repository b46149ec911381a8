//! Contents of a data folder.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use evenkeel_apiserver::{BuildError, Server};
use serde_json::{Value, json};

use crate::{Client, events};

#[tokio::test]
async fn a_restart_finds_everything() {
    let folder = tempfile::tempdir().expect("a folder");
    let build = || Server::builder().data_dir(Some(folder.path().to_owned())).build();
    let server = build().await.expect("a new folder");
    assert!(matches!(build().await, Err(BuildError::Store(_))), "it is locked");
    let path = "/api/v1/namespaces/default/configmaps";
    let client = Client(server.service());
    for at in 0..20 {
        client.ask("POST", path, json!({"metadata": {"name": format!("c{at}")}})).await;
    }
    client.ask("DELETE", &format!("{path}/c7"), Value::Null).await;
    let before = client.get(path).await;
    let version = before["metadata"]["resourceVersion"].as_str().expect("a version");
    let middle = version.parse::<u64>().expect("a number") - 5;
    let token = server.admin_token().to_owned();
    drop((client, server));
    let server = build().await.expect("the same folder");
    let after = Client(server.service()).get(path).await;
    assert_eq!(after["items"], before["items"]);
    assert_eq!(after["metadata"], before["metadata"]);
    assert_eq!(server.admin_token(), token);
    // A watch continues where the watch before the restart ended.
    let client = Client(server.service());
    let since = format!("{path}?watch=1&resourceVersion={middle}");
    let mut watch = client.send("GET", &since, &[], bytes::Bytes::new()).await;
    let seen = events(watch.body_mut()).await;
    let seen: Vec<_> = seen
        .iter()
        .map(|event| (event["type"].as_str(), event["object"]["metadata"]["name"].as_str()))
        .collect();
    let made = |name| (Some("ADDED"), Some(name));
    let gone = (Some("DELETED"), Some("c7"));
    assert_eq!(seen, [made("c16"), made("c17"), made("c18"), made("c19"), gone]);
}

/// Sends Services that are refused after their cluster IP was allocated and shown.
async fn be_refused(client: &Client) {
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, port: i64| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": port}]}});
    assert_eq!(client.ask("POST", services, service("web", 80)).await.0, 201);
    for (name, port, code) in [("web", 80, 409), ("web", 0, 422), ("Other_", 80, 422)] {
        assert_eq!(
            client.ask("POST", services, service(name, port)).await.0,
            code,
            "{name} {port}"
        );
        let list = client.get("/apis/networking.k8s.io/v1/ipaddresses").await;
        let names: Vec<&Value> = list["items"].as_array().expect("a list").iter().collect();
        assert_eq!(names.len(), 2, "that of kubernetes and that of web: {names:?}");
    }
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"services": "1"}},
        "status": {"hard": {"services": "1"}, "used": {"services": "1"}}});
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    assert_eq!(client.ask("POST", quotas, quota.clone()).await.0, 201);
    assert_eq!(client.ask("PUT", &format!("{quotas}/q/status"), quota).await.0, 200);
    assert_eq!(client.ask("POST", services, service("more", 80)).await.0, 403);
    // The list is of the latest revision, and a watch from there begins.
    let list = client.get(services).await;
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let path = format!("{services}?watch=1&allowWatchBookmarks=1&resourceVersion={version}");
    let mut watch = client.send("GET", &path, &[], bytes::Bytes::new()).await;
    client.ask("DELETE", &format!("{services}/web"), Value::Null).await;
    assert_eq!(events(watch.body_mut()).await[0]["type"], "DELETED");
}

#[tokio::test(start_paused = true)]
async fn reads_go_on_after_refused_writes() {
    be_refused(&Client::start().await).await;
}

#[tokio::test]
async fn reads_of_a_data_folder_go_on_after_refused_writes() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::builder().data_dir(Some(folder.path().to_owned())).build().await;
    be_refused(&Client(server.expect("a new folder").service())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_a_log_with_a_thread_go_on_after_refused_writes() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::builder().data_dir(Some(folder.path().to_owned())).build().await;
    be_refused(&Client(server.expect("a new folder").service())).await;
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("it is there").permissions().mode() & 0o777
}

#[tokio::test]
async fn a_data_folder_is_its_owners_alone() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("cluster");
    let build =
        async || Server::builder().data_dir(Some(folder.clone())).build().await.expect("built");
    let check = || {
        assert_eq!((mode(&folder), mode(&folder.join("pki"))), (0o700, 0o700));
        let files = [&folder, &folder.join("pki")].map(|f| std::fs::read_dir(f).expect("read"));
        let files = files.into_iter().flatten().map(|entry| entry.expect("an entry").path());
        let files: Vec<_> = files.filter(|path| path.is_file()).collect();
        assert!(files.len() > 5, "{files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    };
    drop(build().await);
    check();
    // Permissions that an earlier version set.
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("changed");
    };
    for (path, mode) in
        [("", 0o755), ("pki", 0o755), ("evenkeel.redb", 0o644), ("pki/ca.key", 0o644)]
    {
        open(&folder.join(path), mode);
    }
    drop(build().await);
    check();
}

#[tokio::test]
async fn a_damaged_file_is_named() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("cluster");
    let build = async || Server::builder().data_dir(Some(folder.clone())).build().await;
    drop(build().await.expect("built"));
    for name in [
        "ca.key",
        "ca.crt",
        "admin.key",
        "admin.crt",
        "admin.token",
        "apiserver.key",
        "service-accounts.key",
    ] {
        let path = folder.join("pki").join(name);
        let whole = std::fs::read(&path).expect("read");
        for cut in [0, whole.len() / 2] {
            std::fs::write(&path, &whole[..cut]).expect("cut");
            let error = build().await.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(
                error.contains(&*path.to_string_lossy()) && error.contains("restore it"),
                "{name}: {error}"
            );
        }
        std::fs::write(&path, whole).expect("restored");
    }
    // A certificate of another authority.
    let (ca, admin) = (folder.join("pki/ca.crt"), folder.join("pki/admin.crt"));
    let whole = std::fs::read(&ca).expect("read");
    std::fs::copy(&admin, &ca).expect("copied");
    let error = build().await.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("ca.crt") && error.contains("key beside it"), "{error}");
    std::fs::write(&ca, whole).expect("restored");
    build().await.expect("whole again");
}
