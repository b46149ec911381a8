//! A server beside upstream's kube-apiserver on the same etcd: each reads the objects of the other one, and both store
//! the same keys and values.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use serde_json::{Value, json};

use super::etcd::keys;
use super::examples::{EXAMPLES, objects};
use super::parity::kube_apiserver::Upstream;
use super::parity::{self};
use super::shared::{SERVICES, increment};
use super::{Connection, MAPS, Oracle, Sent, body, map, sent, server, version};

const NAMESPACE: &str = "parity";

/// Kinds that the other files lack.
const MORE_EXAMPLES: &str = include_str!("examples.yaml");

/// Who writes an object. The names have the same length, so that the stored values do, too.
const WRITERS: [&str; 2] = ["ours", "peer"];

/// Kinds that upstream stores without some defaults, which it sets at each read: the phase of a PersistentVolumeClaim,
/// and the labels that a Job has from its template. This server stores them.
const STORED_WITH_DEFAULTS: &[&str] = &["PersistentVolumeClaim", "Job"];

/// Kinds whose values do not always have the same length: the cluster IP of a Service is random, and controllers write
/// the status of the other kinds soon after their creation.
const OF_ANY_LENGTH: [&str; 4] =
    ["Service", "CustomResourceDefinition", "FlowSchema", "PriorityLevelConfiguration"];

/// Returns upstream's server and ours on its etcd; `None` without upstream's programs.
async fn both() -> Option<(Arc<Upstream>, [Oracle; 2])> {
    let binaries = parity::binaries("etcd beside upstream")?;
    let upstream = Arc::new(Upstream::start(&binaries));
    let theirs = Oracle::Upstream(upstream.clone());
    theirs.ready().await;
    let ours = Oracle::Embedded(server(&upstream.etcd.url).await);
    Some((upstream, [ours, theirs]))
}

/// An example, and where its objects are.
struct Example {
    kind: String,
    collection: String,
    object: Value,
}

async fn examples(client: &mut Connection) -> Vec<Example> {
    let mut examples = Vec::new();
    for object in EXAMPLES.into_iter().chain([MORE_EXAMPLES]).flat_map(objects) {
        let text = |name: &str| object[name].as_str().expect(name).to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let root = if api_version.contains('/') { "apis" } else { "api" };
        let group = format!("/{root}/{api_version}");
        let served = body(client.ask(&Sent::get(&group)).await, 200);
        let served = served["resources"].as_array().expect("resources").clone();
        let is_kind = |resource: &&Value| {
            resource["kind"] == *kind && !resource["name"].to_string().contains('/')
        };
        let resource =
            served.iter().find(is_kind).unwrap_or_else(|| panic!("{kind} is not served"));
        let plural = resource["name"].as_str().expect("a name");
        let collection = match resource["namespaced"] == true {
            true => format!("{group}/namespaces/{NAMESPACE}/{plural}"),
            false => format!("{group}/{plural}"),
        };
        examples.push(Example { kind, collection, object });
    }
    examples
}

impl Example {
    /// Returns the object that a writer makes, and its name.
    fn of(&self, index: usize, writer: &str) -> (Value, String) {
        let mut object = self.object.clone();
        let name = match &*self.kind {
            "IPAddress" => format!("10.96.9.1{}", writer.len() + usize::from(writer == "peer")),
            "CustomResourceDefinition" => {
                let text = object.to_string().replace("idget", &format!("idget{writer}"));
                object = serde_json::from_str(&text).expect("a definition");
                let names = &mut object["spec"]["names"];
                *names = json!({"plural": format!("widget{writer}s"), "singular": format!("widget{writer}"),
                    "kind": format!("Widget{writer}"), "listKind": format!("Widget{writer}List")});
                format!("widget{writer}s.{}", object["spec"]["group"].as_str().expect("a group"))
            }
            "APIService" => {
                let group = format!("{writer}.example.com");
                object["spec"]["group"] = json!(group);
                format!("v1.{group}")
            }
            "ClusterTrustBundle" => format!("example.com:signer:{writer}-{index}"),
            _ => format!("{writer}-{index}"),
        };
        object["metadata"]["name"] = json!(name);
        (object, name)
    }
}

/// Returns the type of a stored value, and the value's length.
fn envelope(value: &[u8]) -> (Vec<u8>, usize) {
    let head = match value.strip_prefix(b"k8s\0") {
        // The type is the first field, with its length in the second byte.
        Some(message) => message[..2 + usize::from(message[1])].to_vec(),
        None => {
            let object: Value = serde_json::from_slice(value).expect("JSON");
            format!("{} {}", object["apiVersion"], object["kind"]).into_bytes()
        }
    };
    (head, value.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_store_the_same_keys_and_values() {
    let Some((upstream, oracles)) = both().await else { return };
    let mut clients = [oracles[0].connect().await, oracles[1].connect().await];
    clients[1].make_namespace(NAMESPACE).await;
    let mut differences = Vec::new();
    let mut kinds = BTreeSet::new();
    for (index, example) in examples(&mut clients[1]).await.into_iter().enumerate() {
        let place = format!("{} {index}", example.kind);
        let mut stored = Vec::new();
        for (writer, writer_name) in WRITERS.into_iter().enumerate() {
            let before: BTreeSet<String> = all_keys(&upstream).await;
            let (object, name) = example.of(index, writer_name);
            let made = clients[writer].ask(&Sent::post(&example.collection, object)).await;
            if made.code != 201 {
                differences.push(format!("{place}: {writer_name} is refused: {}", made.body));
                continue;
            }
            let path = format!("{}/{name}", example.collection);
            let [ours, theirs] = read_by_both(&mut clients, &path).await;
            if ours != theirs {
                differences
                    .push(format!("{place} by {writer_name}:\n  ours   {ours}\n  theirs {theirs}"));
            }
            let found = keys(&upstream.etcd.url, "/registry/").await;
            let is_new = |(key, _): &&(String, Vec<u8>)| {
                !before.contains(key) && key.ends_with(&format!("/{name}"))
            };
            match found.iter().find(is_new) {
                Some((key, value)) => {
                    stored.push((key.replace(writer_name, "*"), envelope(value), value.clone()));
                }
                None => differences.push(format!("{place} by {writer_name} has no key")),
            }
        }
        if let [(our_key, ours, our_value), (their_key, theirs, their_value)] = &stored[..] {
            kinds.insert(example.kind.clone());
            // The names of IPAddresses differ.
            let same_key = our_key == their_key || example.kind == "IPAddress";
            let may_differ = [STORED_WITH_DEFAULTS, &OF_ANY_LENGTH].concat();
            let same_length = ours.1 == theirs.1 || may_differ.contains(&&*example.kind);
            let same_value = ours.0 == theirs.0 && same_length;
            if !same_key || !same_value {
                let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
                differences.push(format!(
                    "{place}: {our_key} {} bytes, {their_key} {} bytes\n  ours   {:?}\n  theirs {:?}",
                    ours.1, theirs.1, text(our_value), text(their_value)
                ));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(kinds.len() >= 55, "{kinds:?}");
}

/// Reads an object from both, in the same state: the servers' controllers may write its status.
async fn read_by_both(clients: &mut [Connection; 2], path: &str) -> [Value; 2] {
    for _ in 0..50 {
        let request = Sent::get(path);
        let answers = [clients[0].ask(&request).await, clients[1].ask(&request).await];
        let bodies = answers.map(|answer| body(answer, 200));
        if version(&bodies[0]) == version(&bodies[1]) {
            return bodies;
        }
    }
    panic!("{path} changes all the time");
}

async fn all_keys(upstream: &Upstream) -> BTreeSet<String> {
    keys(&upstream.etcd.url, "/registry/").await.into_iter().map(|(key, _)| key).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_change_the_same_objects() {
    let Some((_upstream, oracles)) = both().await else { return };
    let mut client = oracles[0].connect().await;
    body(client.ask(&Sent::post(MAPS, map("counter", json!({"n": "0"})))).await, 201);
    let clients = (0..5).flat_map(|_| &oracles).map(async |oracle| {
        let mut client = oracle.connect().await;
        for _ in 0..10 {
            increment(&mut client).await;
        }
    });
    join_all(clients).await;
    let counter = body(client.ask(&Sent::get(&format!("{MAPS}/counter"))).await, 200);
    assert_eq!(counter["data"]["n"], "100");

    let made = join_all((0..5).flat_map(|_| &oracles).enumerate().map(async |(index, oracle)| {
        let mut client = oracle.connect().await;
        let mut made = Vec::new();
        for service in 0..4 {
            let spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
            let service =
                json!({"metadata": {"name": format!("s{index}-{service}")}, "spec": spec});
            made.push(body(client.ask(&Sent::post(SERVICES, service)).await, 201));
        }
        made
    }))
    .await;
    let made: Vec<Value> = made.into_iter().flatten().collect();
    for pointer in ["/spec/clusterIP", "/spec/ports/0/nodePort"] {
        let values =
            made.iter().map(|service| service.pointer(pointer).expect(pointer).to_string());
        assert_eq!(values.collect::<BTreeSet<_>>().len(), made.len(), "{pointer}");
    }
    // A server may allocate an address that the other one has released.
    for (index, service) in made.iter().enumerate() {
        let mut clients =
            [oracles[index % 2].connect().await, oracles[(index + 1) % 2].connect().await];
        let path = format!("{SERVICES}/{}", service["metadata"]["name"].as_str().expect("a name"));
        body(clients[0].ask(&sent(http::Method::DELETE, &path, Value::Null)).await, 200);
        let spec = json!({"type": "NodePort", "clusterIP": service["spec"]["clusterIP"],
            "ports": [{"port": 80, "nodePort": service["spec"]["ports"][0]["nodePort"]}]});
        let again = json!({"metadata": {"name": format!("again-{index}")}, "spec": spec});
        body(clients[1].ask(&Sent::post(SERVICES, again)).await, 201);
    }
}
