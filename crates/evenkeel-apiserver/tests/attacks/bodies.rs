//! Bodies that try to confuse or exhaust a decoder.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::target::{APPLY, JSON, PROTOBUF, Target, YAML};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

fn lists(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

/// CVE-2019-11253 was about the depth of documents.
pub(crate) async fn nested_without_end(target: &Target) {
    let admin = target.admin();
    let nest = lists(200_000);
    for body in [
        nest.clone(),
        format!(r#"{{"metadata":{{"name":"x"}},"data":{nest}}}"#),
        format!("{}1{}", r#"{"a":"#.repeat(200_000), "}".repeat(200_000)),
    ] {
        for media in [JSON, YAML] {
            admin.give("POST", CONFIGMAPS, media, &body).await.is(400, "max depth");
        }
    }
    admin.give("POST", CONFIGMAPS, YAML, "- ".repeat(200_000)).await.is(400, "");
}

/// Short values take many times their length in memory; absent fields of protobuf messages have values without a length.
pub(crate) async fn more_values_than_an_object_can_have(target: &Target) {
    let admin = target.admin();
    let body = format!(r#"{{"metadata":{{"name":"x"}},"data":[{}0]}}"#, "0,".repeat(1_400_000));
    admin.give("POST", CONFIGMAPS, JSON, &body).await.is(400, "");
    if target.is_upstream() {
        // It takes gigabytes, and a minute to say what is wrong with each container.
        return;
    }
    let field = |bytes: &mut Vec<u8>, contents: &[u8]| evenkeel_api::protobuf::wire::bytes(bytes, 2, contents);
    let (mut pod, mut body) = (Vec::new(), b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod".to_vec());
    field(&mut pod, &b"\x12\x00".repeat(1_400_000));
    field(&mut body, &pod);
    let pods = "/api/v1/namespaces/default/pods";
    admin.give("POST", pods, PROTOBUF, body).await.is(400, "exceeded max number of values");
}

/// CVE-2019-11253: YAML aliases that expand exponentially.
pub(crate) async fn yaml_aliases(target: &Target) {
    let admin = target.admin();
    let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for i in 1..9 {
        let aliases = vec![format!("*a{}", i - 1); 9].join(",");
        text.push_str(&format!("a{i}: &a{i} [{aliases}]\n"));
    }
    let path = format!("{CONFIGMAPS}/x");
    admin.give("POST", CONFIGMAPS, YAML, &text).await.is(400, "excessive aliasing");
    let apply = format!("{path}?fieldManager=m");
    admin.give("PATCH", &apply, APPLY, &text).await.is(400, "excessive aliasing");
    // An alias that contains itself.
    admin.give("POST", CONFIGMAPS, YAML, "a: &a [*a]\n").await.is(400, "");
}

/// CVE-2019-11254: documents that made a parser scan the same bytes repeatedly.
pub(crate) async fn yaml_that_is_read_slowly(target: &Target) {
    let admin = target.admin();
    for text in [
        "? ".repeat(50_000),
        format!("{}a", "? - ".repeat(20_000)),
        "[{".repeat(20_000),
        format!("a: {}", "[a,".repeat(50_000)),
        format!("{}:", "{a,".repeat(50_000)),
        "- - - - \n".repeat(20_000),
        "!<".repeat(50_000),
        "%TAG ! a\n".repeat(10_000),
        "&a ".repeat(50_000),
        format!("a: \"{}", "\\x".repeat(100_000)),
        format!("a: |9{}", "\n".repeat(300_000)),
        "#".repeat(1_000_000),
        "---\n".repeat(100_000),
        format!("{}: b", "a".repeat(1_000_000)),
    ] {
        let shown: String = text.chars().take(12).collect();
        let answer = admin.give("POST", CONFIGMAPS, YAML, &text).await;
        assert!(matches!(answer.code, 400 | 422), "{shown}: {} {}", answer.code, answer.text());
    }
}

pub(crate) async fn yaml_merges(target: &Target) {
    let keys: String = (0..1000).map(|i| format!("k{i}: v, ")).collect();
    let mut text = format!("a0: &a0 {{{keys}}}\n");
    for i in 1..7 {
        let merges = vec![format!("*a{}", i - 1); 10].join(",");
        text.push_str(&format!("a{i}: &a{i} {{<<: [{merges}]}}\n"));
    }
    target.admin().give("POST", CONFIGMAPS, YAML, &text).await.is(400, "");
}

/// The last of several values counts, both for authorization and admission and for the stored object.
pub(crate) async fn keys_twice(target: &Target) {
    let admin = target.admin();
    let name = target.fresh("twice");
    let body = format!(r#"{{"metadata":{{"name":"other","name":"{name}"}},"data":{{"k":"a","k":"b"}}}}"#);
    let strict = format!("{CONFIGMAPS}?fieldValidation=Strict");
    admin.give("POST", &strict, JSON, &body).await.is(400, "duplicate field");
    let made = admin.give("POST", CONFIGMAPS, JSON, &body).await;
    made.is(201, "");
    assert_eq!((&made.json()["metadata"]["name"], &made.json()["data"]["k"]), (&json!(name), &json!("b")));
    // A duplicate namespace: the last one is compared with the path.
    let body = r#"{"metadata":{"name":"x","namespace":"default","namespace":"kube-system"}}"#;
    admin.give("POST", CONFIGMAPS, JSON, body).await.is(400, "does not match");
}

pub(crate) async fn one_key_a_hundred_thousand_times(target: &Target) {
    let name = target.fresh("many");
    let keys = vec![r#""k":"v""#; 100_000].join(",");
    let body = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{{keys}}}}}"#);
    let made = target.admin().give("POST", CONFIGMAPS, JSON, &body).await;
    made.is(201, "");
    // The size of the error message is bounded.
    assert!(made.head().len() < 16_384, "{}", made.head().len());
}

/// Each level of the path of a repeated key is a copy of the keys above it.
pub(crate) async fn keys_twice_deep_below_long_keys(target: &Target) {
    let things = target.define("default", |_| {}).await;
    let key = "k".repeat(4_000);
    let name = target.fresh("deep");
    let (open, close) = (format!("{{\"{key}\":").repeat(150), "}".repeat(150));
    let twice = vec![r#""a":1"#; 20_000].join(",");
    let body = format!(r#"{{"apiVersion":"attacks.example/v1","kind":"{}","metadata":{{"name":"{name}"}},"spec":{open}{{{twice}}}{close}}}"#, kind(&things));
    let made = target.admin().give("POST", &things, JSON, &body).await;
    made.is(201, "");
    assert!(made.head().len() < 16_384, "{}", made.head().len());
}

/// A list with an error in every item: a server that compares each error with every other one would not finish.
pub(crate) async fn something_wrong_everywhere(target: &Target) {
    let admin = target.admin();
    let n = if target.is_upstream() { 2_000 } else { 100_000 };
    let owners: Vec<Value> = (0..n).map(|i| json!({"kind": format!("k{i}")})).collect();
    let finalizers: Vec<String> = (0..n).map(|i| format!("-{i}")).collect();
    // Each error about one of them prints all of them.
    let n_controllers = if target.is_upstream() { 20 } else { 5_000 };
    let controllers: Vec<Value> = (0..n_controllers).map(|i| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{i}"), "uid": format!("u{i}"), "controller": true})).collect();
    for metadata in [
        json!({"name": "x", "ownerReferences": owners}),
        json!({"name": "x", "ownerReferences": controllers}),
        json!({"name": "x", "finalizers": finalizers}),
    ] {
        let answer = admin.post(CONFIGMAPS, &json!({"metadata": metadata})).await;
        answer.is(422, "is invalid");
        assert!(target.is_upstream() || answer.text().len() < 8 * 1024 * 1024, "{}", answer.text().len());
    }
    let pods = format!("/api/v1/namespaces/{}/pods", target.namespace("faults").await);
    let tolerations: Vec<Value> = (0..n / 2).map(|i| json!({"key": format!("-{i}"), "operator": "x"})).collect();
    let pod = json!({"metadata": {"name": "x"}, "spec": {"tolerations": tolerations, "containers": [{"name": "c", "image": "i"}]}});
    admin.post(&pods, &pod).await.is(422, "is invalid");
}

/// Returns the kind of the objects at this path.
fn kind(things: &str) -> String {
    format!("Kind{}", things.rsplit('/').next().unwrap_or_default())
}

/// Long lists and strings that a rule compares with each other, or quotes repeatedly.
pub(crate) async fn what_is_long_to_validate(target: &Target) {
    // Upstream's responses grow quadratically.
    let n = if target.is_upstream() { 50 } else { 100_000 };
    let namespace = target.namespace("long").await;
    let base = format!("/api/v1/namespaces/{namespace}");
    let list = |item: &dyn Fn(usize) -> Value| -> Vec<Value> { (0..n).map(item).collect() };
    let quota = |spec: Value| ("resourcequotas", json!({"metadata": {"name": "q"}, "spec": spec}));
    let volume = |source: Value| {
        let mut spec = source;
        spec["capacity"] = json!({"storage": "1"});
        spec["accessModes"] = json!(["ReadWriteOnce"]);
        ("persistentvolumes", json!({"metadata": {"name": "v"}, "spec": spec}))
    };
    let container = |fields: Value| {
        let mut container = fields;
        container["name"] = json!("c");
        container["image"] = json!("i");
        ("pods", json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}}))
    };
    let mounts = list(&|i| json!({"name": format!("m{i}"), "mountPath": format!("/m{i}")}));
    let devices = list(&|i| json!({"name": format!("d{i}"), "devicePath": format!("/d{i}")}));
    let mut hard = json!({"cpu": "1"});
    for i in 0..n / 4 {
        hard[format!("a.example/r{i}")] = json!("1");
    }
    for (kind, object) in [
        quota(json!({"scopes": list(&|_| json!("x"))})),
        quota(json!({"scopes": list(&|_| json!("BestEffort")), "hard": {"cpu": "1"}})),
        quota(json!({"scopes": list(&|_| json!("BestEffort")), "hard": hard})),
        quota(json!({"hard": {"cpu": "1"}, "scopeSelector": {"matchExpressions": list(&|_| json!({"scopeName": "BestEffort", "operator": "In"}))}})),
        volume(json!({"quobyte": {"registry": ",".repeat(n), "volume": "v"}})),
        volume(json!({"iscsi": {"iqn": "iqn.2001-04.".repeat(n / 2), "targetPortal": "t"}})),
        container(json!({"volumeMounts": mounts, "volumeDevices": devices})),
        container(json!({"resources": {"claims": list(&|i| json!({"name": format!("c{i}"), "request": "r"}))}})),
        container(json!({"resources": {"claims": list(&|i| json!({"name": format!("c{i}")}))}})),
    ] {
        let path = if kind == "persistentvolumes" { format!("/api/v1/{kind}") } else { format!("{base}/{kind}") };
        let answer = target.admin().post(&path, &object).await;
        let start: String = object.to_string().chars().take(200).collect();
        let message: String = answer.message().chars().take(300).collect();
        assert!(matches!(answer.code, 413 | 422), "{start}: {} {message}", answer.code);
    }
}

pub(crate) async fn thirty_thousand_keys(target: &Target) {
    let things = target.define("default", |_| {}).await;
    let keys: Vec<String> = (0..30_000).map(|i| format!("\"k{i}\":{i}")).collect();
    let name = target.fresh("wide");
    let body = format!(r#"{{"apiVersion":"attacks.example/v1","kind":"{}","metadata":{{"name":"{name}"}},"spec":{{{}}}}}"#, kind(&things), keys.join(","));
    let admin = target.admin();
    admin.give("POST", &things, JSON, &body).await.is(201, "");
    let path = format!("{things}/{name}");
    admin.patch(&path, crate::target::MERGE, &json!({"spec": {"k0": null}})).await.is(200, "");
    admin.give("PATCH", &format!("{path}?fieldManager=m&force=true"), APPLY, &body).await.is(200, "");
    admin.send("DELETE", &path, &[], b"").await.is(200, "");
}

pub(crate) async fn numbers_beyond_their_types(target: &Target) {
    let admin = target.admin();
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    for number in ["1e400", "99999999999999999999", "2147483648", "-2147483649", "1.5", "NaN", "Infinity", "0x1", "1e"] {
        let body = format!(r#"{{"metadata":{{"name":"n"}},"spec":{{"replicas":{number}}}}}"#);
        admin.give("POST", deployments, JSON, &body).await.is(400, "");
    }
    let things = target.define("default", |_| {}).await;
    let body = format!(r#"{{"apiVersion":"attacks.example/v1","kind":"{}","metadata":{{"name":"n"}},"n":1e400}}"#, kind(&things));
    admin.give("POST", &things, JSON, &body).await.is(400, "");
    let digits = "9".repeat(1_000_000);
    let body = format!(r#"{{"metadata":{{"name":"n"}},"spec":{{"replicas":{digits}}}}}"#);
    admin.give("POST", deployments, JSON, &body).await.is(400, "");
}

pub(crate) async fn text_that_is_no_utf8(target: &Target) {
    let admin = target.admin();
    let name = target.fresh("bytes");
    let mut body = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"k":""#).into_bytes();
    body.extend_from_slice(b"a\xff\xed\xa0\x80\"}}");
    // Go's decoder replaces invalid UTF-8 by U+FFFD: stored objects are UTF-8.
    admin.give("POST", CONFIGMAPS, JSON, &body).await.is(201, "a\u{fffd}");
    let half = format!(r#"{{"metadata":{{"name":"{}"}},"data":{{"k":"\ud800x"}}}}"#, target.fresh("half"));
    admin.give("POST", CONFIGMAPS, JSON, &half).await.is(201, "\u{fffd}x");
    admin.give("POST", CONFIGMAPS, YAML, b"metadata: {name: \"a\xff\"}\n").await.is(400, "");
    admin.give("POST", CONFIGMAPS, JSON, b"{\"metadata\":{\"name\":\"a\xff\"}}").await.is(422, "");
    admin.give("POST", CONFIGMAPS, JSON, r#"{"metadata":{"name":"a\u0000"}}"#).await.is(422, "");
}

pub(crate) async fn what_is_no_document(target: &Target) {
    let admin = target.admin();
    for body in [
        &b"{\"metadata\":{\"name\":\"a\"}} {\"metadata\":{\"name\":\"b\"}}"[..],
        b"\xef\xbb\xbf{\"metadata\":{\"name\":\"a\"}}",
        b"{\"metadata\":{\"name\":\"a\"},}",
        b"{'metadata':{'name':'a'}}",
        b"{\"metadata\":{\"name\":\"a\"}} // x",
        b"[1",
        b"\"text\"",
        b"\0",
    ] {
        admin.give("POST", CONFIGMAPS, JSON, body).await.is(400, "");
    }
}

/// Bodies are never decompressed, whatever their `Content-Encoding`.
pub(crate) async fn compressed_bombs(target: &Target) {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..64 {
        packer.write_all(&vec![b' '; 1024 * 1024]).expect("packed");
    }
    let bomb = packer.finish().expect("packed");
    for encoding in ["gzip", "deflate", "gzip, gzip", "identity", "br", "zstd"] {
        let headers = [("content-type", JSON), ("content-encoding", encoding)];
        target.admin().send("POST", CONFIGMAPS, &headers, &bomb).await.is(400, "");
    }
}

pub(crate) async fn hostile_protobuf(target: &Target) {
    let admin = target.admin();
    let envelope = |raw: &[u8]| {
        let mut bytes = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12".to_vec();
        evenkeel_api::protobuf::wire::varint(&mut bytes, raw.len() as u64);
        bytes.extend_from_slice(raw);
        bytes
    };
    let groups = vec![0x7b; 200_000];
    for raw in [
        // A length far beyond the end, one that is negative, and one beyond 64 bits.
        &b"\x0a\xff\xff\xff\xff\x07a"[..],
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        // The end of a group that never began, invalid wire types, field zero.
        b"\x0c",
        b"\x0e\x00",
        b"\x02\x00",
        b"\x0a\x04\x0a\xff\xff\xff",
        &groups,
    ] {
        let shown: Vec<u8> = raw.iter().take(12).copied().collect();
        let answer = admin.give("POST", CONFIGMAPS, PROTOBUF, envelope(raw)).await;
        assert_eq!(answer.code, 400, "{shown:x?}: {}", answer.text());
    }
    admin.give("POST", CONFIGMAPS, PROTOBUF, b"k8s\0").await.is(400, "");
    admin.give("POST", CONFIGMAPS, PROTOBUF, b"k8s\0\x12\xff\xff\xff\xff\x0f").await.is(400, "");
}

pub(crate) async fn larger_than_a_request_may_be(target: &Target) {
    let admin = target.admin();
    let body = format!(r#"{{"metadata":{{"name":"x"}},"data":{{"k":"{}"}}}}"#, "x".repeat(4 * 1024 * 1024));
    admin.give("POST", CONFIGMAPS, JSON, &body).await.is(413, "");
    admin.give("PATCH", &format!("{CONFIGMAPS}/x"), crate::target::MERGE, &body).await.is(413, "");
    // In chunks, without a `Content-Length` that reveals the size.
    let mut bytes = format!("POST {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer admin\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..64 {
        bytes.extend_from_slice(b"10000\r\n");
        bytes.extend_from_slice(&[b' '; 65536]);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    let answer = crate::target::Answer::read(&target.exchange(&bytes).await);
    answer.is(413, "");
}

pub(crate) async fn hostile_managed_fields(target: &Target) {
    let admin = target.admin();
    let entry = |fields: serde_json::Value| json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
    for fields in [
        json!({"f:data": {"k:{\"a\":": {}}}),
        json!({"x:data": {}}),
        json!({"i:99999999999999999999": {}}),
        json!({"v:[[[": {}}),
        json!({"f:": {".": {".": {}}}}),
        json!({"k:{\"name\":{\"a\":[1,{}]}}": {}}),
    ] {
        let name = target.fresh("managed");
        let body = json!({"metadata": {"name": name, "managedFields": [entry(fields.clone())]}, "data": {"a": "b"}});
        let made = admin.post(CONFIGMAPS, &body).await;
        // Fields that cannot be decoded are dropped or refused. The server does not crash, and the object can be
        // changed.
        assert!(matches!(made.code, 201 | 400 | 422), "{fields}: {} {}", made.code, made.text());
        if made.code == 201 {
            let apply = format!("{CONFIGMAPS}/{name}?fieldManager=a&force=true");
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "c"}});
            admin.give("PATCH", &apply, APPLY, body.to_string()).await.is(200, "");
        }
    }
    let many: Vec<_> = (0..20_000).map(|i| { let mut e = entry(json!({"f:data": {}})); e["manager"] = json!(format!("m{i}")); e }).collect();
    let name = target.fresh("managed");
    let made = admin.post(CONFIGMAPS, &json!({"metadata": {"name": name, "managedFields": many}})).await;
    assert!(matches!(made.code, 201 | 422), "{}", made.text());
    if made.code == 201 {
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        admin.patch(&format!("{CONFIGMAPS}/{name}"), crate::target::MERGE, &patch).await.is(200, "");
    }
}
