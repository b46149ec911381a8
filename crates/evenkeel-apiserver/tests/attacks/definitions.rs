//! Definitions of custom resources that try to cost much, to shadow other kinds, or to fill objects without end.

use serde_json::{Value, json};

use crate::target::{DEFINITIONS, MERGE, Target, definition};

fn schema(definition: &mut Value) -> &mut Value {
    &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

/// Creates a CustomResourceDefinition whose `spec` has this schema, and returns the path of its objects.
async fn with_spec(target: &Target, spec: Value) -> String {
    target.define("default", |d| *schema(d) = json!({"type": "object", "properties": {"spec": spec}})).await
}

fn thing(things: &str, name: &str, spec: &Value) -> Value {
    let plural = things.rsplit('/').next().unwrap_or_default();
    json!({"apiVersion": "attacks.example/v1", "kind": format!("Kind{plural}"), "metadata": {"name": name}, "spec": spec})
}

/// Sends a definition, which must be refused with this message.
async fn refused(target: &Target, words: &str, change: impl FnOnce(&mut Value)) {
    let (definition, _) = definition(&target.fresh("bad").replace('-', ""), "default", change);
    let answer = target.admin().post(DEFINITIONS, &definition).await;
    answer.is(422, words);
}

/// Patterns that take exponential time in a backtracking matcher.
pub(crate) async fn patterns_that_backtrack(target: &Target) {
    for (pattern, text) in [
        ("^(a+)+$", format!("{}!", "a".repeat(100_000))),
        ("^(a|a)*$", format!("{}!", "a".repeat(100_000))),
        ("^(.*)*x$", "a".repeat(100_000)),
        ("(x+x+)+y", "x".repeat(100_000)),
        ("^([a-z]+[0-9]*)+$", format!("{}-", "a1".repeat(50_000))),
    ] {
        let things = with_spec(target, json!({"type": "string", "pattern": pattern})).await;
        target.admin().post(&things, &thing(&things, "x", &json!(text))).await.is(422, "should match");
    }
}

/// Sets and maps. A slow server compares each item with every other one.
pub(crate) async fn long_sets(target: &Target) {
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let things = with_spec(target, set).await;
    let admin = target.admin();
    let mut items: Vec<Value> = (0..30_000).map(|i| json!(format!("{i}"))).collect();
    admin.post(&things, &thing(&things, "x", &json!(items))).await.is(201, "");
    items.push(json!("29999"));
    admin.post(&things, &thing(&things, "y", &json!(items))).await.is(422, "Duplicate value");
    let item = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}});
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item});
    let things = with_spec(target, map).await;
    let mut items: Vec<Value> = (0..10_000).map(|i| json!({"k": format!("{i}")})).collect();
    admin.post(&things, &thing(&things, "x", &json!(items))).await.is(201, "");
    items.push(json!({"k": "9999"}));
    admin.post(&things, &thing(&things, "y", &json!(items))).await.is(422, "Duplicate value");
}

/// An update looks up the old item of each new item.
pub(crate) async fn updates_of_long_maps(target: &Target) {
    let item = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}});
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item});
    let things = with_spec(target, map).await;
    let items = |v: i64| -> Value { (0..10_000).map(|i| json!({"k": format!("{i}"), "v": v})).collect() };
    let admin = target.admin();
    admin.post(&things, &thing(&things, "x", &items(0))).await.is(201, "");
    admin.patch(&format!("{things}/x"), MERGE, &json!({"spec": items(1)})).await.is(200, "");
}

/// Lists of a definition itself.
pub(crate) async fn long_lists_in_definitions(target: &Target) {
    let n = if target.is_upstream() { 200 } else { 5_000 };
    let names = |prefix: &str| -> Vec<String> { (0..n).map(|i| format!("{prefix}{i}")).collect() };
    refused(target, "exactly one version marked as storage", |d| {
        let version = d["spec"]["versions"][0].clone();
        let versions = names("v").into_iter().map(|name| {
            let mut version = version.clone();
            version["name"] = json!(name);
            version
        });
        d["spec"]["versions"] = versions.collect();
    })
    .await;
    refused(target, "list-map-keys", |d| {
        let items = json!({"type": "object", "properties": {"k": {"type": "string"}}});
        *schema(d) = json!({"type": "object", "properties": {"spec": {"type": "array", "items": items,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": names("k")}}});
    })
    .await;
    refused(target, "spec.conversion", |d| {
        let versions = [names("v"), names("v")].concat();
        let webhook = json!({"conversionReviewVersions": versions, "clientConfig": {"url": "https://localhost:1/x"}});
        d["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": webhook});
    })
    .await;
}

/// A definition cannot replace a built-in kind.
pub(crate) async fn definitions_in_the_place_of_others(target: &Target) {
    for (group, plural) in [("apps", "deployments"), ("", "pods"), ("rbac.authorization.k8s.io", "roles"), ("x.k8s.io", "things"), ("kubernetes.io", "things"), ("metrics.k8s.io", "pods")] {
        let (definition, _) = definition(plural, "default", |d| {
            d["metadata"]["name"] = json!(format!("{plural}.{group}"));
            d["spec"]["group"] = json!(group);
        });
        let answer = target.admin().post(DEFINITIONS, &definition).await;
        assert_eq!(answer.code, 422, "{group}: {}", answer.text());
    }
    refused(target, "", |d| d["metadata"]["name"] = json!("other.attacks.example")).await;
    refused(target, "", |d| d["spec"]["names"]["plural"] = json!("../secrets")).await;
    refused(target, "", |d| d["spec"]["scope"] = json!("Everywhere")).await;
    refused(target, "", |d| d["spec"]["versions"][0]["name"] = json!("v1/namespaces")).await;
}

/// Paths of columns, selectable fields and scales.
pub(crate) async fn paths_in_definitions(target: &Target) {
    for path in [".spec[", "spec", "..", ".spec..a", ".spec[?(@.a==1)", "{.spec}", ".metadata.annotations"] {
        let change = |d: &mut Value| d["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": path}]);
        refused(target, "", change).await;
    }
    for path in [".spec[0]", ".status.replicas", "..", "", ".spec[*]"] {
        let scale = json!({"scale": {"specReplicasPath": path, "statusReplicasPath": ".status.replicas"}});
        refused(target, "", |d| d["spec"]["versions"][0]["subresources"] = scale).await;
    }
    // Columns may be unusual, but the server must return a table with them.
    let things = target.define("default", |d| {
        let columns = [".spec[*]", ".spec..a", ".metadata.name", ".spec[-1]", ".spec[0:99999999999]", ".spec[?(@.a=='b')]"];
        let columns: Vec<Value> = columns.iter().enumerate().map(|(i, path)| json!({"name": format!("c{i}"), "type": "string", "jsonPath": path})).collect();
        d["spec"]["versions"][0]["additionalPrinterColumns"] = json!(columns);
    });
    let (definition_ok, things) = (true, things.await);
    assert!(definition_ok);
    target.admin().post(&things, &thing(&things, "x", &json!([{"a": "b"}]))).await.is(201, "");
    let table = [("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")];
    target.admin().send("GET", &things, &table, b"").await.is(200, "Table");
}

/// A schema of thousands of properties, and its object.
pub(crate) async fn wide_schemas(target: &Target) {
    let properties: serde_json::Map<String, Value> = (0..5_000).map(|i| (format!("p{i}"), json!({"type": "integer", "minimum": 0, "default": 1}))).collect();
    let things = with_spec(target, json!({"type": "object", "default": {}, "properties": properties})).await;
    let admin = target.admin();
    admin.post(&things, &thing(&things, "x", &json!({}))).await.is(201, "p4999");
    admin.patch(&format!("{things}/x"), MERGE, &json!({"spec": {"p0": 2}})).await.is(200, "");
    admin.get("/openapi/v2").await.is(200, "");
}

/// Metadata of custom objects is validated like that of other objects.
pub(crate) async fn metadata_of_custom_objects(target: &Target) {
    let things = target.define("default", |_| {}).await;
    for metadata in [json!([]), json!("x"), json!(1), json!({"name": 1}), json!({"name": "x", "labels": []}), json!({"name": "x", "labels": {"a": 1}}), json!({"name": "x", "finalizers": "x"}), json!({"name": "x", "ownerReferences": [1]}), json!({"name": "x", "creationTimestamp": "yesterday"})] {
        let mut object = thing(&things, "x", &json!(1));
        object["metadata"] = metadata.clone();
        let answer = target.admin().post(&things, &object).await;
        assert!(matches!(answer.code, 400 | 422), "{metadata}: {} {}", answer.code, answer.text());
    }
    let mut other = thing(&things, "x", &json!(1));
    other["kind"] = json!("Secret");
    let answer = target.admin().post(&things, &other).await;
    assert!(matches!(answer.code, 400 | 422), "{}", answer.text());
}
