//! Impersonation over the wire.

use bytes::Bytes;
use evenkeel_apiserver::{Server, User};
use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::Client;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Grants rules to a user everywhere.
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

fn rule(group: &str, resource: &str, verb: &str, names: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": [verb], "resourceNames": names})
}

/// Returns the user according to the server, or the code and message of its refusal.
async fn seen(client: &Client, headers: &[(&str, &str)]) -> Result<Value, (StatusCode, String)> {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let mut all = vec![("content-type", "application/json")];
    all.extend(headers);
    let response = client.send("POST", path, &all, Bytes::from(review.to_string())).await;
    let code = response.status();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    if code == StatusCode::CREATED {
        return Ok(body["status"]["userInfo"].clone());
    }
    Err((code, body["message"].as_str().unwrap_or_default().to_owned()))
}

#[tokio::test]
async fn each_part_of_a_user_needs_its_own_permission() {
    let server = Server::builder().build().await.expect("a server in memory");
    let admin = Client(server.service());
    let authentication = "authentication.k8s.io";
    let parts = [
        rule("", "users", "impersonate", &["bob"]),
        rule(authentication, "uids", "impersonate", &["7"]),
        rule("", "groups", "impersonate", &["dev"]),
        rule(authentication, "userextras/scope", "impersonate", &["read"]),
    ];
    let headers = [
        ("impersonate-user", "bob"),
        ("impersonate-uid", "7"),
        ("impersonate-group", "dev"),
        ("impersonate-extra-scope", "read"),
    ];
    for missing in 0..=parts.len() {
        let name = format!("ann-{missing}");
        let given: Vec<&Value> = parts
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != missing)
            .map(|(_, rule)| rule)
            .collect();
        grant(&admin, &name, json!(given)).await;
        let client = Client(server.service_as(User::authenticated(&name, [])));
        match seen(&client, &headers).await {
            Ok(user) => {
                assert_eq!(missing, parts.len(), "{user}");
                let bob = json!({
                    "username": "bob", "uid": "7", "groups": ["dev", "system:authenticated"], "extra": {"scope": ["read"]},
                });
                assert_eq!(user, bob);
            }
            Err((code, message)) => {
                assert_eq!(code, StatusCode::FORBIDDEN, "{message}");
                assert_ne!(missing, parts.len(), "{message}");
            }
        }
        let other = [headers[0], ("impersonate-extra-scope", "write")];
        assert!(seen(&client, &other).await.is_err(), "{missing}");
    }
    let without_user = seen(&admin, &[("impersonate-group", "dev")]).await;
    assert_eq!(without_user.map_err(|(code, _)| code), Err(StatusCode::BAD_REQUEST));
}

#[tokio::test]
async fn a_constrained_mode_is_for_some_verbs_and_never_for_administrators() {
    let server = Server::builder().build().await.expect("a server in memory");
    let admin = Client(server.service());
    let (authentication, all) = ("authentication.k8s.io", json!("*"));
    grant(
        &admin,
        "ann",
        json!([
            rule(authentication, "users", "impersonate:user-info", &["bob"]),
            rule(authentication, "serviceaccounts", "impersonate:serviceaccount", &["web"]),
            {"apiGroups": [authentication], "resources": ["groups"], "verbs": ["impersonate:user-info"]},
            {"apiGroups": [all], "resources": [all], "verbs": [
                "impersonate-on:user-info:create", "impersonate-on:serviceaccount:create"]},
        ]),
    )
    .await;
    let ann = Client(server.service_as(User::authenticated("ann", [])));
    let bob = seen(&ann, &[("impersonate-user", "bob")]).await.expect("allowed");
    assert_eq!(bob["username"], "bob");
    let web = "system:serviceaccount:default:web";
    let account = seen(&ann, &[("impersonate-user", web)]).await.expect("allowed");
    assert_eq!(account["groups"][1], "system:serviceaccounts:default");
    for headers in [
        &[("impersonate-user", "eve")][..],
        &[("impersonate-user", "bob"), ("impersonate-group", "system:masters")],
        &[("impersonate-user", "bob"), ("impersonate-uid", "7")],
        &[("impersonate-user", web), ("impersonate-group", "dev")],
        &[("impersonate-user", "system:serviceaccount:default:other")],
        &[("impersonate-user", "system:node:n")],
    ] {
        let refused = seen(&ann, headers).await;
        assert_eq!(refused.map_err(|(code, _)| code), Err(StatusCode::FORBIDDEN), "{headers:?}");
    }
    // The refusal of the mode names the request.
    let headers = [("impersonate-user", "bob"), ("impersonate-group", "system:masters")];
    let (_, message) = seen(&ann, &headers).await.expect_err("refused");
    let why = "groups.authentication.k8s.io \"system:masters\" is forbidden: User \"ann\" cannot impersonate:user-info \
        resource \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating the \
        system:masters group is not allowed";
    assert_eq!(message, why);
    // This mode does not apply to reads.
    let response =
        ann.send("GET", "/api/v1/namespaces", &[("impersonate-user", "bob")], Bytes::new()).await;
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let body = String::from_utf8_lossy(&body).into_owned();
    assert!(body.contains("cannot impersonate-on:user-info:list resource"), "{body}");
}
