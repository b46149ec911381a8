//! OwnerReferencesPermissionEnforcement, and selectors in access reviews.

use evenkeel_apiserver::{Server, User};
use http::StatusCode;
use serde_json::{Value, json};

use crate::Client;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn grant(admin: &Client, user: &str, rules: Value) {
    let role = json!({"metadata": {"name": user}, "rules": rules});
    admin.make(&format!("{RBAC}/clusterroles"), role).await;
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    admin.make(&format!("{RBAC}/clusterrolebindings"), binding).await;
}

#[tokio::test]
async fn owners_are_blocked_only_by_those_who_may_finalize_them() {
    let maps = "/api/v1/namespaces/default/configmaps";
    for enabled in [true, false] {
        let mut builder = Server::builder();
        if enabled {
            builder = builder.enable_admission_plugin("OwnerReferencesPermissionEnforcement");
        }
        let server = builder.build().await.expect("a server in memory");
        let admin = Client(server.service());
        let owner = admin.make(maps, json!({"metadata": {"name": "owner"}})).await;
        let reference = |block: bool, kind: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": block}]);
        let write = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch", "get"]});
        let delete = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete"]});
        let finalize =
            json!({"apiGroups": [""], "resources": ["configmaps/finalizers"], "verbs": ["update"]});
        grant(&admin, "writer", json!([write])).await;
        grant(&admin, "deleter", json!([write, delete])).await;
        grant(&admin, "finalizer", json!([write, delete, finalize])).await;
        for (user, create_blocking, patch, patch_blocking) in [
            ("writer", false, false, false),
            ("deleter", false, true, false),
            ("finalizer", true, true, true),
        ] {
            let client = Client(server.service_as(User::authenticated(user, [])));
            let code = async |name: &str, references: Value, method: &str| {
                let metadata = json!({"name": name, "ownerReferences": references});
                let path =
                    if method == "PATCH" { format!("{maps}/{name}") } else { maps.to_owned() };
                let (code, answer) = client.ask(method, &path, json!({"metadata": metadata})).await;
                (code.is_success(), code, answer["message"].clone())
            };
            let check = |found: (bool, StatusCode, Value), expected: bool, what: &str| {
                assert_eq!(found.0, expected || !enabled, "{user} {what}: {found:?}");
                assert!(found.0 || found.1 == StatusCode::FORBIDDEN, "{user} {what}: {found:?}");
            };
            // The creator of an object may set its owner.
            check(
                code(&format!("{user}-a"), reference(false, "ConfigMap"), "POST").await,
                true,
                "create",
            );
            let blocking = code(&format!("{user}-b"), reference(true, "ConfigMap"), "POST").await;
            check(blocking, create_blocking, "create blocking");
            let unknown = code(&format!("{user}-c"), reference(true, "Nothing"), "POST").await;
            check(unknown, false, "create with an unknown owner");
            admin.make(maps, json!({"metadata": {"name": format!("{user}-d")}})).await;
            let name = format!("{user}-d");
            check(code(&name, json!([]), "PATCH").await, true, "patch nothing");
            check(code(&name, reference(false, "ConfigMap"), "PATCH").await, patch, "patch");
            let blocking = code(&name, reference(true, "ConfigMap"), "PATCH").await;
            check(blocking, patch_blocking, "patch blocking");
        }
    }
}

#[tokio::test]
async fn a_review_asks_with_selectors() {
    let server = Server::builder().build().await.expect("a server in memory");
    let client = Client(server.service());
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let review = |selector: Value| {
        json!({"spec": {"user": "system:node:n", "groups": ["system:nodes"], "resourceAttributes": {
            "verb": "list", "resource": "pods", "fieldSelector": selector}}})
    };
    let requirement = |operator: &str, values: &[&str]| json!({"key": "spec.nodeName", "operator": operator, "values": values});
    let ignored = "spec.resourceAttributes.fieldSelector ignored due to parse error";
    for (selector, allowed, error) in [
        (Value::Null, false, Value::Null),
        (json!({"rawSelector": "spec.nodeName=n"}), true, Value::Null),
        (json!({"rawSelector": "spec.nodeName=m"}), false, Value::Null),
        (json!({"rawSelector": "spec.nodeName"}), false, json!(ignored)),
        (json!({"requirements": [requirement("In", &["n"])]}), true, Value::Null),
        (json!({"requirements": [requirement("NotIn", &["n"])]}), false, Value::Null),
        (json!({"requirements": [requirement("Exists", &[])]}), false, json!(ignored)),
        (
            json!({"requirements": [requirement("In", &["n"]), requirement("Like", &["n"])]}),
            true,
            json!(ignored.replace("ignored", "partially ignored")),
        ),
    ] {
        let status = client.make(path, review(selector.clone())).await["status"].clone();
        assert_eq!(
            (&status["allowed"], &status["evaluationError"]),
            (&json!(allowed), &error),
            "{selector}"
        );
    }
    for wrong in
        [json!({}), json!({"rawSelector": "a=b", "requirements": [requirement("In", &["n"])]})]
    {
        let (code, answer) = client.ask("POST", path, review(wrong)).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    }
}
