use evenkeel_api::{
    Encoding, OwnerReference, View, hash,
    protobuf::Transcoder,
    template::{HASH_LABEL, Template},
    views::Deployment,
};
use serde_json::{Value, json};

fn template(value: &Value) -> Template {
    Template::from_json_value(value)
}

fn web() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "100m"}}}]}})
}

/// Each of these templates is semantically equal to `web`.
#[test]
fn semantically_equal_templates() {
    let plain = template(&web());
    assert_eq!(
        &*plain.spec,
        r#"{"containers":[{"image":"nginx","name":"c","resources":{"requests":{"cpu":"100m"}}}]}"#
    );
    for (path, value) in [
        ("/metadata/creationTimestamp", json!(null)),
        ("/metadata/annotations", json!({})),
        ("/spec/volumes", json!([])),
        ("/spec/hostNetwork", json!(false)),
        ("/spec/nodeSelector", json!({})),
        ("/spec/nodeName", json!("")),
        ("/spec/securityContext", json!(null)),
        ("/spec/overhead", json!(null)),
        ("/spec/containers/0/resources/requests/cpu", json!("0.1")),
        ("/spec/containers/0/resources/limits", json!({})),
        ("/spec/containers/0/stdin", json!(false)),
        ("/spec/containers/0/args", json!(null)),
    ] {
        let mut other = web();
        let (parent, name) = path.rsplit_once('/').unwrap();
        other.pointer_mut(parent).unwrap()[name] = value;
        assert_eq!(template(&other), plain, "{path}");
    }
}

#[test]
fn different_templates() {
    let plain = template(&web());
    for (path, value) in [
        ("/spec/securityContext", json!({})),
        ("/spec/containers/0/image", json!("nginx:2")),
        ("/spec/terminationGracePeriodSeconds", json!(0)),
        ("/spec/containers/0/resources/requests/cpu", json!("101m")),
        ("/spec/unknownYet", json!({"a": 1})),
        ("/metadata/name", json!("n")),
        ("/metadata/labels/x", json!("y")),
        ("/spec/enableServiceLinks", json!(false)),
    ] {
        let mut other = web();
        let (parent, name) = path.rsplit_once('/').unwrap();
        other.pointer_mut(parent).unwrap()[name] = value;
        assert!(!template(&other).equal_ignoring_hash(&plain), "{path}");
        assert_eq!(
            template(&serde_json::from_str(&template(&other).to_json()).unwrap()),
            template(&other),
            "{path} is kept"
        );
    }
}

#[test]
fn pod_template_hash_label_is_ignored() {
    let plain = template(&web());
    let hash = hash::template(&plain, None);
    let labelled = plain.with_label(HASH_LABEL, &hash);
    assert!(labelled.equal_ignoring_hash(&plain) && labelled != plain);
    assert_eq!(hash::template(&labelled, None), hash);
    assert_ne!(hash::template(&plain, Some(0)), hash);
    assert_ne!(hash::template(&plain, Some(1)), hash::template(&plain, Some(0)));
    // The hash must never change, because the names of ReplicaSets contain it.
    assert_eq!((&*hash, &*hash::template(&plain, Some(1))), ("5c65c9b88f", "56857f8fcb"));
}

#[test]
fn pod_body_contains_the_template() {
    let mut value = web();
    value["metadata"]["finalizers"] = json!(["example.com/f"]);
    value["metadata"]["annotations"] = json!({"q": "\"quoted\"\n"});
    let template = template(&value);
    let owner =
        OwnerReference { name: "web-1".into(), controller: true, ..OwnerReference::default() };
    let body: Value = serde_json::from_str(&template.pod_json("web-1-", "ns", &owner)).unwrap();
    assert_eq!(body["metadata"]["generateName"], "web-1-");
    assert_eq!(body["metadata"]["namespace"], "ns");
    assert_eq!(body["metadata"]["annotations"], value["metadata"]["annotations"]);
    assert_eq!(body["metadata"]["finalizers"], value["metadata"]["finalizers"]);
    assert_eq!(body["metadata"]["ownerReferences"][0]["name"], "web-1");
    assert_eq!(body["spec"], value["spec"]);
    assert_eq!(serde_json::from_str::<Value>(&template.to_json()).unwrap(), value);
    assert_eq!(Template::default().to_json(), r#"{"metadata":{},"spec":{}}"#);
}

#[test]
fn both_encodings_give_the_same_template() {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}, "template": web()}});
    let from_json = Deployment::decode(deployment.to_string().as_bytes(), Encoding::Json).unwrap();
    let bytes = Transcoder::encode("apps/v1", "Deployment", &deployment).unwrap();
    assert_eq!(Deployment::decode(&bytes, Encoding::Protobuf).unwrap(), from_json);
    assert_eq!(from_json.spec.template, template(&web()));
}
