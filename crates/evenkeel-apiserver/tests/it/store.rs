//! What is kept in a data folder.

use evenkeel_apiserver::{BuildError, Server};
use serde_json::json;

use crate::Client;

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
    client.ask("DELETE", &format!("{path}/c7"), serde_json::Value::Null).await;
    let before = client.get(path).await;
    let token = server.admin_token().to_owned();
    drop((client, server));
    let server = build().await.expect("the same folder");
    let after = Client(server.service()).get(path).await;
    assert_eq!(after["items"], before["items"]);
    assert_eq!(server.admin_token(), token);
    let version = |list: &serde_json::Value| {
        list["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|v| v.parse::<u64>().ok())
            .expect("a version")
    };
    assert!(version(&after) > version(&before));
}
