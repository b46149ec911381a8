//! Paths that refer to another object than they seem to.

use serde_json::json;

use crate::target::Target;

/// All spellings of a path to another user's Secret from one's own namespace. No response contains the Secret.
async fn none_leads_to(target: &Target, marker: &str, paths: &[String]) {
    let ann = target.user("ann");
    for path in paths {
        let answer = ann.get(path).await;
        assert!(!answer.text().contains(marker), "{path} leads there");
        assert!((300..500).contains(&answer.code), "{path}: {} {}", answer.code, answer.text());
    }
}

/// CVE-2022-3162, for built-in kinds.
pub(crate) async fn dots_and_slashes(target: &Target) {
    let own = target.tenancy().await;
    let other = target.namespace("other").await;
    let secret = json!({"metadata": {"name": "prize"}, "stringData": {"k": "marker-of-the-prize"}});
    target.admin().make(&format!("/api/v1/namespaces/{other}/secrets"), secret).await;
    let base = format!("/api/v1/namespaces/{own}");
    let paths: Vec<String> = [
        format!("{base}/../{other}/secrets/prize"),
        format!("{base}/secrets/../../{other}/secrets/prize"),
        format!("{base}/%2e%2e/{other}/secrets/prize"),
        format!("{base}/secrets/..%2f..%2f{other}%2fsecrets%2fprize"),
        format!("{base}/secrets/%2e%2e%2f%2e%2e%2f{other}%2fsecrets%2fprize"),
        format!("{base}/secrets/..%252f..%252f{other}%252fsecrets%252fprize"),
        format!("{base}%2f..%2f{other}/secrets/prize"),
        format!("{base}%00/../{other}/secrets/prize"),
        format!("{base}/secrets/prize%00"),
        format!("/api/v1/namespaces/{own}%2f%2e%2e%2f{other}/secrets"),
        format!("/api/v1//namespaces/{other}/secrets/prize"),
        format!("//api/v1/namespaces/{other}/secrets/prize"),
        format!("/./api/v1/namespaces/{other}/secrets/prize"),
        format!("/api/v1/namespaces/{own}/secrets/..\\..\\{other}\\secrets\\prize"),
        format!("/api/v1/namespaces/{own};/{other}/secrets/prize"),
        format!("/API/v1/namespaces/{other}/secrets/prize"),
        format!("/api/v1/Namespaces/{other}/secrets/prize"),
        format!("/%61pi/v1/namespaces/{other}/secrets/prize"),
        format!("/api/v1/namespaces/{other}/%73ecrets/prize"),
        format!("/api/v1/watch/namespaces/{other}/secrets/prize"),
        format!("/api/v1/namespaces/{own}/watch/../../{other}/secrets"),
        format!("/api/v1/namespaces/{other}/secrets/prize/"),
        format!("/api/v1/namespaces/{other}/secrets/prize/status"),
        format!("/api/v1/namespaces/{other}/secrets/prize/."),
        format!("/api/v1/secrets?fieldSelector=metadata.namespace%3D{own}"),
        format!("/api/v1/secrets?namespace={own}"),
        format!("/api/v1/namespaces/{other}/secrets?namespace={own}&fieldSelector=metadata.name%3Dprize"),
    ]
    .into();
    none_leads_to(target, "bWFya2VyLW9mLXRoZS1wcml6ZQ", &paths).await;
}

/// CVE-2022-3162: custom resources of the same group. CVE-2019-11247: cluster-scoped custom resources through a
/// namespace.
pub(crate) async fn custom_resources_of_others(target: &Target) {
    let own = target.tenancy().await;
    let visible = target.define(&own, |_| {}).await;
    let hidden = target.define("default", |_| {}).await;
    let (visible_name, hidden_name) = (last(&visible), last(&hidden));
    let admin = target.admin();
    let object = json!({"apiVersion": "attacks.example/v1", "kind": format!("Kind{hidden_name}"), "metadata": {"name": "prize"}, "spec": "marker-of-the-prize"});
    admin.make(&hidden, object).await;
    target.grant("ann", json!([{"apiGroups": ["attacks.example"], "resources": [visible_name], "verbs": ["*"]}])).await;
    let group = "/apis/attacks.example/v1";
    let paths: Vec<String> = [
        format!("{group}/namespaces/default/{visible_name}%2f..%2f{hidden_name}"),
        format!("{group}/namespaces/..%2f{hidden_name}/{visible_name}"),
        format!("{group}/{visible_name}/..%2f{hidden_name}"),
        format!("{group}/namespaces/default/{visible_name}/..%2f{hidden_name}%2fprize"),
        format!("{group}/namespaces/default%2f..%2f..%2f{hidden_name}%2fdefault/{visible_name}"),
        format!("{group}/namespaces/default/{hidden_name}"),
    ]
    .into();
    none_leads_to(target, "marker-of-the-prize", &paths).await;

    // A cluster-scoped object is in no namespace.
    let wide = target.fresh("thing").replace('-', "");
    let (definition, _) = crate::target::definition(&wide, "default", |d| d["spec"]["scope"] = json!("Cluster"));
    admin.make(crate::target::DEFINITIONS, definition).await;
    for _ in 0..1000 {
        if admin.get(&format!("{group}/{wide}")).await.code == 200 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let object = json!({"apiVersion": "attacks.example/v1", "kind": format!("Kind{wide}"), "metadata": {"name": "prize"}, "spec": "marker-of-the-prize"});
    admin.make(&format!("{group}/{wide}"), object).await;
    let role = json!({"metadata": {"name": "wide"}, "rules": [{"apiGroups": ["attacks.example"], "resources": [wide], "verbs": ["*"]}]});
    admin.make(&format!("{}/namespaces/{own}/roles", crate::target::RBAC), role).await;
    let binding = json!({"metadata": {"name": "wide"}, "roleRef": {"apiGroup": crate::target::GROUP, "kind": "Role", "name": "wide"},
        "subjects": [{"apiGroup": crate::target::GROUP, "kind": "User", "name": "ann"}]});
    admin.make(&format!("{}/namespaces/{own}/rolebindings", crate::target::RBAC), binding).await;
    let ann = target.user("ann");
    for (method, path) in [
        ("GET", format!("{group}/namespaces/{own}/{wide}/prize")),
        ("GET", format!("{group}/namespaces/{own}/{wide}")),
        ("DELETE", format!("{group}/namespaces/{own}/{wide}/prize")),
        ("DELETE", format!("{group}/namespaces/{own}/{wide}")),
    ] {
        let answer = ann.send(method, &path, &[], b"").await;
        assert_eq!(answer.code, 404, "{method} {path}: {}", answer.text());
    }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

pub(crate) async fn names_that_are_paths(target: &Target) {
    let admin = target.admin();
    let configmaps = "/api/v1/namespaces/default/configmaps";
    let long = "x".repeat(10_000);
    for name in [".", "..", "a/b", "../x", "a%2fb", "A", "a b", "a\n", "", "-a", "a.", "ä", &long] {
        let answer = admin.post(configmaps, &json!({"metadata": {"name": name}})).await;
        assert_eq!(answer.code, 422, "{name}: {}", answer.text());
    }
    for name in [".", "..", "a/b", "a%b"] {
        // Kinds with other rules for names share these rules.
        let role = json!({"metadata": {"name": name}, "rules": []});
        admin.post(&format!("{}/clusterroles", crate::target::RBAC), &role).await.is(422, "");
    }
    for prefix in ["../", "a/", "A", " "] {
        let answer = admin.post(configmaps, &json!({"metadata": {"generateName": prefix}})).await;
        assert_eq!(answer.code, 422, "{prefix}: {}", answer.text());
    }
    // A prefix that is too long is truncated.
    let made = admin.post(configmaps, &json!({"metadata": {"generateName": "x".repeat(1000)}})).await;
    assert!(matches!(made.code, 201 | 422), "{}", made.text());
    admin.get(&format!("{configmaps}/{long}")).await.is(404, "");
}

pub(crate) async fn namespaces_of_others_in_the_body(target: &Target) {
    let own = target.tenancy().await;
    let ann = target.user("ann");
    for kind in ["configmaps", "secrets", "pods", "serviceaccounts"] {
        let body = json!({"metadata": {"name": "x", "namespace": "kube-system"}});
        let path = format!("/api/v1/namespaces/{own}/{kind}");
        ann.post(&path, &body).await.is(400, "does not match");
        ann.give("PUT", &format!("{path}/x"), crate::target::JSON, body.to_string()).await.is(400, "");
    }
    // A namespace in a cluster-scoped object.
    let role = json!({"metadata": {"name": target.fresh("r"), "namespace": own}, "rules": []});
    ann.post(&format!("{}/clusterroles", crate::target::RBAC), &role).await.is(403, "");
}
