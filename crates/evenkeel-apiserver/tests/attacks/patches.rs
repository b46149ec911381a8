//! Patches that grow, nest or repeat without end.

use serde_json::{Value, json};

use crate::target::{APPLY, Client, JSON_PATCH, MERGE, STRATEGIC, Target};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Creates a custom object without a fixed schema. Returns its path.
async fn thing(target: &Target, spec: Value) -> String {
    let things = target.define("default", |_| {}).await;
    let plural = things.rsplit('/').next().unwrap_or_default();
    let object = json!({"apiVersion": "attacks.example/v1", "kind": format!("Kind{plural}"), "metadata": {"name": "x"}, "spec": spec});
    target.admin().make(&things, object).await;
    format!("{things}/x")
}

async fn configmap(target: &Target, admin: &Client<'_>) -> String {
    let name = target.fresh("patched");
    admin.make(CONFIGMAPS, json!({"metadata": {"name": name}, "data": {"k": "v"}})).await;
    format!("{CONFIGMAPS}/{name}")
}

/// CVE-2019-1002100: copies that double.
pub(crate) async fn copies_that_double(target: &Target) {
    let path = thing(target, json!({"k": "0123456789"})).await;
    let copies: Vec<Value> = (0..64).map(|i| json!({"op": "copy", "from": "/spec", "path": format!("/spec/{i}")})).collect();
    target.admin().patch(&path, JSON_PATCH, &json!(copies)).await.is(422, "");
}

/// CVE-2019-1002100: more operations than upstream accepts.
pub(crate) async fn ten_thousand_and_one_operations(target: &Target) {
    let admin = target.admin();
    let path = configmap(target, &admin).await;
    let operations = vec![json!({"op": "test", "path": "/data/k", "value": "v"}); 10_001];
    admin.patch(&path, JSON_PATCH, &json!(operations)).await.is(413, "maximum operations");
    admin.patch(&path, JSON_PATCH, &json!(operations[1..])).await.is(200, "");
}

pub(crate) async fn moves_into_themselves(target: &Target) {
    let path = thing(target, json!({"a": {"b": 1}})).await;
    let admin = target.admin();
    let within = json!([{"op": "move", "from": "/spec", "path": "/spec/a"}]);
    admin.patch(&path, JSON_PATCH, &within).await.is(422, "");
    for at in ["/spec/l/9223372036854775807", "/spec/a/-9223372036854775808", "/spec/~2", "//", "/spec/a/b/c"] {
        let answer = admin.patch(&path, JSON_PATCH, &json!([{"op": "remove", "path": at}])).await;
        assert_eq!(answer.code, 422, "{at}: {}", answer.text());
    }
    // A patch cannot remove the type or the metadata of the object.
    for at in ["/metadata", "/kind", "/apiVersion"] {
        let answer = admin.patch(&path, JSON_PATCH, &json!([{"op": "remove", "path": at}])).await;
        assert!(matches!(answer.code, 400 | 422 | 500), "{at}: {} {}", answer.code, answer.text());
    }
}

pub(crate) async fn patches_that_are_none(target: &Target) {
    let admin = target.admin();
    let path = configmap(target, &admin).await;
    for media in [MERGE, STRATEGIC, JSON_PATCH] {
        for body in ["", "1", "\"x\"", "[[", "{\"data\":", "[{\"op\":1}]"] {
            let answer = admin.give("PATCH", &path, media, body).await;
            assert_eq!(answer.code, 400, "{media} {body}: {}", answer.text());
        }
    }
}

pub(crate) async fn deep_patches(target: &Target) {
    let admin = target.admin();
    let path = configmap(target, &admin).await;
    let nest = format!("{}1{}", r#"{"data":"#.repeat(100_000), "}".repeat(100_000));
    for media in [MERGE, STRATEGIC] {
        admin.give("PATCH", &path, media, &nest).await.is(400, "");
    }
    admin.give("PATCH", &format!("{path}?fieldManager=m"), APPLY, &nest).await.is(400, "");
}

/// A list that is merged by key, with as many items as fit in a body.
pub(crate) async fn long_lists_merged_by_key(target: &Target) {
    let admin = target.admin();
    let name = target.fresh("merged");
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let secrets = |from: usize| -> Vec<Value> { (from..from + 20_000).map(|i| json!({"name": format!("s{i}")})).collect() };
    admin.make(accounts, json!({"metadata": {"name": name}, "secrets": secrets(0)})).await;
    let path = format!("{accounts}/{name}");
    // Upstream compares each item with every other one, and may time out.
    let codes: &[u16] = if target.is_upstream() { &[200, 504] } else { &[200] };
    let answer = admin.patch(&path, STRATEGIC, &json!({"secrets": secrets(10_000)})).await;
    assert!(codes.contains(&answer.code), "{}", answer.text());
    let order = json!({"$setElementOrder/secrets": secrets(0), "secrets": secrets(0)});
    let answer = admin.patch(&path, STRATEGIC, &order).await;
    assert!(codes.contains(&answer.code), "{}", answer.text());
    admin.send("DELETE", &path, &[], b"").await.is(200, "");
}

pub(crate) async fn long_lists_applied_by_key(target: &Target) {
    let admin = target.admin();
    let name = target.fresh("applied");
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let secrets: Vec<Value> = (0..10_000).map(|i| json!({"name": format!("s{i}")})).collect();
    let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}, "secrets": secrets});
    for (manager, code) in [("a", 201), ("b", 200), ("a", 200)] {
        let path = format!("{accounts}/{name}?fieldManager={manager}");
        admin.give("PATCH", &path, APPLY, body.to_string()).await.is(code, "");
    }
    admin.send("DELETE", &format!("{accounts}/{name}"), &[], b"").await.is(200, "");
}

/// Long lists of many types: no write, read or change takes quadratic time.
pub(crate) async fn long_lists_of_every_sort(target: &Target) {
    let namespace = target.namespace("long").await;
    let admin = target.admin();
    let base = format!("/api/v1/namespaces/{namespace}");
    let items = |n: usize, item: &dyn Fn(usize) -> Value| -> Value { (0..n).map(item).collect() };
    let pod = |field: &str, list: Value| {
        let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
        match field {
            "env" | "ports" | "volumeMounts" | "envFrom" => spec["containers"][0][field] = list,
            _ => spec[field] = list,
        }
        json!({"spec": spec})
    };
    let n = 5_000;
    for (kind, mut object) in [
        ("configmaps", json!({"metadata": {"finalizers": items(n, &|i| json!(format!("a.example/f{i}")))}})),
        ("pods", pod("tolerations", items(n, &|i| json!({"key": format!("k{i}"), "operator": "Exists"})))),
        ("pods", pod("env", items(n, &|i| json!({"name": format!("E{i}"), "value": "v"})))),
        ("pods", pod("envFrom", items(n, &|i| json!({"configMapRef": {"name": format!("c{i}")}})))),
        ("pods", pod("ports", items(n, &|i| json!({"name": format!("p{i}"), "containerPort": i + 1})))),
        ("pods", pod("volumes", items(n, &|i| json!({"name": format!("v{i}"), "emptyDir": {}})))),
        ("pods", pod("imagePullSecrets", items(n, &|i| json!({"name": format!("s{i}")})))),
        ("pods", pod("schedulingGates", items(n, &|i| json!({"name": format!("a.example/g{i}")})))),
        ("pods", pod("hostAliases", items(n, &|i| json!({"ip": format!("10.1.{}.{}", i / 250, i % 250), "hostnames": ["h"]})))),
        ("pods", pod("initContainers", items(1_000, &|i| json!({"name": format!("i{i}"), "image": "i"})))),
        ("services", json!({"spec": {"ports": items(n, &|i| json!({"name": format!("p{i}"), "port": i + 1})), "clusterIP": "None"}})),
        ("serviceaccounts", json!({"imagePullSecrets": items(n, &|i| json!({"name": format!("s{i}")}))})),
    ] {
        let name = target.fresh("long");
        object["metadata"]["name"] = json!(name);
        let sort: String = object.to_string().chars().take(120).collect();
        let path = format!("{base}/{kind}");
        let made = admin.post(&path, &object).await;
        assert_eq!(made.code, 201, "{sort}: {}", made.message().chars().take(300).collect::<String>());
        for media in [MERGE, STRATEGIC] {
            let patch = json!({"metadata": {"labels": {"patched-by": media.replace(['/', '+'], ".")}}});
            let answer = admin.patch(&format!("{path}/{name}"), media, &patch).await;
            assert_eq!(answer.code, 200, "{media} {sort}: {}", answer.message().chars().take(300).collect::<String>());
        }
    }
}

/// A Service with more ports than the range of node ports, and a Service that releases all of them.
pub(crate) async fn more_ports_than_there_are(target: &Target) {
    let namespace = target.namespace("ports").await;
    let services = format!("/api/v1/namespaces/{namespace}/services");
    let ports = |n: usize| -> Vec<Value> { (0..n).map(|i| json!({"name": format!("p{i}"), "port": i + 1})).collect() };
    let service = |n: usize| json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports(n)}});
    let admin = target.admin();
    admin.post(&services, &service(10_000)).await.is(500, "failed to allocate a nodePort: range is full");
    admin.post(&services, &service(1_000)).await.is(201, "");
    let plain = json!({"spec": {"type": "ClusterIP"}});
    admin.patch(&format!("{services}/s"), MERGE, &plain).await.is(200, "");
    admin.send("DELETE", &format!("{services}/s"), &[], b"").await.is(200, "");
}

pub(crate) async fn long_lists_of_owners(target: &Target) {
    let admin = target.admin();
    let name = target.fresh("owned");
    let owners: Vec<Value> = (0..10_000).map(|i| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{i}"), "uid": format!("u{i}")})).collect();
    admin.make(CONFIGMAPS, json!({"metadata": {"name": name, "ownerReferences": owners, "finalizers": []}})).await;
    let path = format!("{CONFIGMAPS}/{name}");
    let fewer: Vec<Value> = (0..10_000).map(|i| json!({"$patch": "delete", "uid": format!("u{i}")})).collect();
    admin.patch(&path, STRATEGIC, &json!({"metadata": {"ownerReferences": fewer}})).await.is(200, "");
}

