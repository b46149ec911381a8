//! Encryption at rest: contents of the data folder's file, and restarts with other keys.

use std::path::Path;

use evenkeel_apiserver::{BuildError, OpenError, Server};
use serde_json::{Value, json};

use crate::{Client, events};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config(keys: &[(&str, &str)], last: &str) -> String {
    let keys: Vec<Value> = keys
        .iter()
        .map(|(name, letter)| json!({"name": name, "secret": format!("{}=", letter.repeat(43))}))
        .collect();
    let providers = match last {
        "" => json!([{"secretbox": {"keys": keys}}]),
        _ => json!([{"secretbox": {"keys": keys}}, {last: {}}]),
    };
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": providers}]})
    .to_string()
}

async fn start(folder: &Path, config: Option<String>) -> Result<Server, BuildError> {
    let mut builder = Server::builder().data_dir(Some(folder.to_owned()));
    if let Some(config) = config {
        builder = builder.encryption_provider_config(config);
    }
    builder.build().await
}

/// Returns how often a string occurs in the store's file.
fn found(folder: &Path, text: &str) -> usize {
    let bytes = std::fs::read(folder.join("evenkeel.redb")).expect("the file is there");
    bytes.windows(text.len()).filter(|part| *part == text.as_bytes()).count()
}

fn secret(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name}, "stringData": {"password": value}})
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[tokio::test]
async fn secrets_are_encrypted_and_keys_are_rotated() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (base64("first-password"), base64("second-password"));
    // Without encryption, stored values are readable.
    let server = start(folder.path(), None).await.expect("it starts");
    let client = Client(server.service());
    assert_eq!(client.ask("POST", SECRETS, secret("first", "first-password")).await.0, 201);
    drop((client, server));
    assert!(found(folder.path(), &first) > 0);

    // With encryption, new values are encrypted, and old values are still readable.
    let old = [("old", "A")];
    let server = start(folder.path(), Some(config(&old, "identity"))).await.expect("it starts");
    let client = Client(server.service());
    assert_eq!(client.ask("POST", SECRETS, secret("second", "second-password")).await.0, 201);
    let (code, _) = client
        .ask("POST", CONFIGMAPS, json!({"metadata": {"name": "c"}, "data": {"a": "open"}}))
        .await;
    assert_eq!(code, 201);
    // A write that changes nothing encrypts an unencrypted value.
    let stored = client.get(&format!("{SECRETS}/first")).await;
    assert_eq!(stored["data"]["password"], first.as_str());
    let (code, again) = client.ask("PUT", &format!("{SECRETS}/first"), stored.clone()).await;
    assert_eq!(code, 200);
    assert_ne!(again["metadata"]["resourceVersion"], stored["metadata"]["resourceVersion"]);
    let (_, once_more) = client.ask("PUT", &format!("{SECRETS}/first"), again.clone()).await;
    assert_eq!(once_more, again, "it is stored once");
    drop((client, server));
    assert_eq!(found(folder.path(), &second), 0);
    assert!(found(folder.path(), "\"a\":\"open\"") > 0, "only Secrets are encrypted");

    // The new key encrypts. Values of the old key are readable while the configuration contains it.
    let both = [("new", "B"), ("old", "A")];
    let server = start(folder.path(), Some(config(&both, ""))).await;
    let server = server.expect("it starts");
    let client = Client(server.service());
    for (name, value) in [("first", &first), ("second", &second)] {
        let path = format!("{SECRETS}/{name}");
        let stored = client.get(&path).await;
        assert_eq!(stored["data"]["password"], value.as_str(), "{name}");
        assert_eq!(client.ask("PUT", &path, stored).await.0, 200);
    }
    drop((client, server));

    // The old key is not needed any more, although the history has its values, because watches begin after them.
    let only_new = [("new", "B")];
    let server = start(folder.path(), Some(config(&only_new, ""))).await.expect("it starts");
    let client = Client(server.service());
    let list = client.get(SECRETS).await;
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let watch = |version: &str| format!("{SECRETS}?watch=1&resourceVersion={version}");
    let mut old = client.send("GET", &watch("2"), &[], bytes::Bytes::new()).await;
    assert_eq!(events(old.body_mut()).await[0]["object"]["code"], 410);
    let mut new = client.send("GET", &watch(version), &[], bytes::Bytes::new()).await;
    assert_eq!(client.ask("POST", SECRETS, secret("third", "x")).await.0, 201);
    assert_eq!(events(new.body_mut()).await[0]["object"]["metadata"]["name"], "third");
    drop((client, server, old, new));

    // Without the keys, no data is lost, and the error names the object and the key.
    for config in [None, Some(config(&[("other", "C")], "identity"))] {
        let Err(error) = start(folder.path(), config).await else { panic!("it cannot be read") };
        assert!(matches!(error, BuildError::Store(OpenError::Undecryptable { .. })), "{error}");
        let text = error.to_string();
        assert!(text.contains("default/") && text.contains("secretbox:v1:"), "{text}");
    }
    let server = start(folder.path(), Some(config(&both, "identity"))).await.expect("it starts");
    let list = Client(server.service()).get(SECRETS).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(3));
}
