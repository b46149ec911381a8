//! Lists and watches: selectors, tokens and versions that are forged or extreme.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use serde_json::json;

use crate::target::Target;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// CVE-2021-25743: stored objects may contain control characters; no response contains them unescaped.
pub(crate) async fn control_characters(target: &Target) {
    let namespace = target.namespace("escapes").await;
    let admin = target.admin();
    let events = format!("/api/v1/namespaces/{namespace}/events");
    let escapes = "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}\u{0}\r";
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": namespace, "kind": "Pod", "name": "p"},
        "message": escapes, "reason": escapes, "type": "Normal"});
    admin.make(&events, event).await;
    for accept in ["application/json", "application/yaml", "application/json;as=Table;g=meta.k8s.io;v=v1"] {
        let answer = admin.send("GET", &events, &[("accept", accept)], b"").await;
        // Upstream cannot read the YAML that it has written.
        let fails = target.is_upstream() && accept == "application/yaml";
        answer.is(if fails { 500 } else { 200 }, "");
        let raw = answer.text();
        assert!(!raw.contains(['\u{1b}', '\u{7}', '\u{0}', '\r']), "{accept}: {raw:?}");
    }
    // Neither does a refusal that quotes them.
    for path in ["/api/v1/namespaces/%1b%5b2J/pods", "/api/v1/%1b%5b2J", "/api/v1/pods?labelSelector=%1b%5b2J"] {
        let answer = target.user("ann").get(path).await;
        assert!(!answer.text().contains('\u{1b}'), "{path}: {:?}", answer.text());
        assert!((400..500).contains(&answer.code), "{path}: {}", answer.code);
    }
}

pub(crate) async fn selectors_that_are_none(target: &Target) {
    let admin = target.admin();
    for selector in ["a in (", "a in b", "=", "a=b=c", "a>x", ",,", "-a", "a/b/c", "a%20b", "!", "a notin", "a in (b))"] {
        let answer = admin.get(&format!("{CONFIGMAPS}?labelSelector={}", selector.replace(' ', "%20"))).await;
        assert_eq!(answer.code, 400, "{selector}: {}", answer.text());
    }
    for selector in ["data.k=v", "metadata.name", "=x", "metadata.name>a", "metadata.labels=x", "a\\=b"] {
        let answer = admin.get(&format!("{CONFIGMAPS}?fieldSelector={selector}")).await;
        assert_eq!(answer.code, 400, "{selector}: {}", answer.text());
    }
}

/// Values of a secret cannot be guessed through selectors.
pub(crate) async fn selectors_that_look_into_secrets(target: &Target) {
    for selector in ["data.k=v", "stringData.k=v", "spec=x", "data=x"] {
        let path = format!("/api/v1/namespaces/default/secrets?fieldSelector={selector}");
        target.admin().get(&path).await.is(400, "");
    }
}

pub(crate) async fn selectors_of_thousands_of_terms(target: &Target) {
    let admin = target.admin();
    for i in 0..20 {
        let object = json!({"metadata": {"name": target.fresh("s"), "labels": {"a": format!("v{i}")}}});
        admin.make(CONFIGMAPS, object).await;
    }
    let terms: Vec<String> = (0..5_000).map(|i| format!("k{i}!=v")).collect();
    admin.get(&format!("{CONFIGMAPS}?labelSelector={}", terms.join(","))).await.is(200, "");
    let values: Vec<String> = (0..8_000).map(|i| format!("v{i}")).collect();
    admin.get(&format!("{CONFIGMAPS}?labelSelector=a%20in%20({})", values.join(","))).await.is(200, "");
    let fields = vec!["metadata.name!=x"; 3_000].join(",");
    admin.get(&format!("{CONFIGMAPS}?fieldSelector={fields}")).await.is(200, "");
    // A body can have more values than a URL.
    let values: Vec<String> = (0..50_000).map(|i| format!("v{i}")).collect();
    let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": values}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": target.fresh("d")}, "spec": {"selector": selector, "template": template}});
    // The template's label does not have any of these values.
    admin.post("/apis/apps/v1/namespaces/default/deployments", &deployment).await.is(422, "does not match template");
}

/// A continue token is only a position. It gives no access to other users' objects.
pub(crate) async fn continue_tokens_of_others(target: &Target) {
    let own = target.tenancy().await;
    let other = target.namespace("other").await;
    let (admin, ann) = (target.admin(), target.user("ann"));
    for i in 0..3 {
        let secret = json!({"metadata": {"name": format!("s{i}")}, "stringData": {"k": "v"}});
        admin.make(&format!("/api/v1/namespaces/{other}/secrets"), secret.clone()).await;
        admin.make(&format!("/api/v1/namespaces/{own}/secrets"), secret).await;
    }
    let token_of = async |path: &str| {
        let list = admin.get(path).await.json();
        list["metadata"]["continue"].as_str().expect("a token").to_owned()
    };
    let tokens = [
        token_of("/api/v1/secrets?limit=1").await,
        token_of(&format!("/api/v1/namespaces/{other}/secrets?limit=1")).await,
        token_of("/api/v1/namespaces?limit=1").await,
        BASE64.encode(format!(r#"{{"v":"meta.k8s.io/v1","rv":-1,"start":"{other}/"}}"#)),
        BASE64.encode(format!(r#"{{"v":"meta.k8s.io/v1","rv":-1,"start":"{other}/s0\u0000"}}"#)),
    ];
    for token in tokens {
        let path = format!("/api/v1/namespaces/{own}/secrets?limit=10&continue={token}");
        let answer = ann.get(&path).await;
        assert!(matches!(answer.code, 200 | 400 | 410), "{}", answer.text());
        for item in answer.json()["items"].as_array().into_iter().flatten() {
            assert_eq!(item["metadata"]["namespace"], json!(own), "{token}");
        }
        ann.get(&format!("/api/v1/namespaces/{other}/secrets?continue={token}")).await.is(403, "");
    }
}

pub(crate) async fn extreme_resource_versions(target: &Target) {
    let admin = target.admin();
    for (version, codes) in [
        ("-1", &[400, 422][..]),
        ("1.5", &[400, 422]),
        ("0x1", &[400, 422]),
        ("%00", &[400, 422]),
        ("99999999999999999999", &[400, 422]),
        ("9223372036854775807", &[504]),
        ("18446744073709551615", &[400, 500, 504]),
    ] {
        for of in ["", "&resourceVersionMatch=NotOlderThan"] {
            let answer = admin.get(&format!("{CONFIGMAPS}?resourceVersion={version}{of}")).await;
            assert!(codes.contains(&answer.code), "{version}{of}: {} {}", answer.code, answer.text());
        }
        let answer = admin.get(&format!("{CONFIGMAPS}?watch=1&timeoutSeconds=1&resourceVersion={version}")).await;
        assert!(matches!(answer.code, 200 | 400 | 410 | 422 | 500 | 504), "{version}: {} {}", answer.code, answer.text());
        let answer = admin.get(&format!("{CONFIGMAPS}/kube-root-ca.crt?resourceVersion={version}")).await;
        assert!(answer.code != 0 && answer.code != 200, "{version}: {} {}", answer.code, answer.text());
    }
}

/// The first value of a parameter counts, both for authorization and for the list.
pub(crate) async fn parameters_twice(target: &Target) {
    let own = target.tenancy().await;
    let admin = target.admin();
    let path = format!("/api/v1/namespaces/{own}/secrets");
    for name in ["mine", "prize"] {
        admin.make(&path, json!({"metadata": {"name": name}, "stringData": {"k": format!("value of {name}")}})).await;
    }
    let role = json!({"metadata": {"name": "one"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["get", "list", "watch"]}]});
    admin.make(&format!("{}/namespaces/{own}/roles", crate::target::RBAC), role).await;
    let binding = json!({"metadata": {"name": "one"}, "roleRef": {"apiGroup": crate::target::GROUP, "kind": "Role", "name": "one"},
        "subjects": [{"apiGroup": crate::target::GROUP, "kind": "User", "name": "bob"}]});
    admin.make(&format!("{}/namespaces/{own}/rolebindings", crate::target::RBAC), binding).await;
    let bob = target.user("bob");
    bob.get(&format!("{path}?fieldSelector=metadata.name%3Dmine")).await.is(200, "mine");
    for query in [
        "",
        "?fieldSelector=metadata.name%3Dmine&fieldSelector=metadata.name%3Dprize",
        "?fieldSelector=metadata.name%3Dprize&fieldSelector=metadata.name%3Dmine",
        "?fieldSelector=metadata.name!%3Dmine",
        "?fieldSelector=metadata.name%3Dmine,metadata.name%3Dprize",
        "?fieldSelector=metadata.name%3Dmine&labelSelector=",
        "?fieldSelector=type!%3Dx%5C,metadata.name%3Dmine",
        "?fieldSelector=metadata.name%3Dmine;fieldSelector=metadata.name%3Dprize",
        "?FieldSelector=metadata.name%3Dmine",
        "?watch=0&watch=1&timeoutSeconds=1",
        "/mine?watch=1&timeoutSeconds=1",
        "/prize?fieldSelector=metadata.name%3Dmine",
    ] {
        let answer = bob.get(&format!("{path}{query}")).await;
        assert!(!answer.text().contains("dmFsdWUgb2YgcHJpemU"), "{query}: {}", answer.text());
    }
    bob.send("DELETE", &format!("{path}?fieldSelector=metadata.name%3Dmine"), &[], b"").await.is(403, "");
}
