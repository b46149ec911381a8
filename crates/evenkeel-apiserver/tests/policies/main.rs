//! Admission policies on the embedded server, and on upstream's kube-apiserver: the same requests get the same
//! responses.
//!
//! The comparison runs if `EVENKEEL_UPSTREAM_BIN` names the folder of upstream's programs.

mod cases;
#[path = "../parity/mod.rs"]
mod parity;

use cases::{Case, Kind};
use evenkeel_apiserver::Server;
use http::Request;
use http_body_util::Full;
use parity::kube_apiserver::TOKENS;
use parity::servers::{Connection, Oracle};
use serde_json::{Value, json};

/// The response to one request: its code, the status's message, reason and causes, the object's data, and the warnings.
#[derive(Debug, PartialEq)]
struct Answer {
    code: u16,
    message: String,
    reason: String,
    causes: Vec<String>,
    data: Value,
    warnings: Vec<String>,
}

const API: &str = "/apis/admissionregistration.k8s.io/v1";

async fn ask(
    connection: &mut Connection,
    user: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> Answer {
    let bytes = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {user}"))
        .body(Full::new(bytes.into()))
        .expect("a request");
    let raw = connection.send(request).await;
    let body: Value = serde_json::from_slice(&raw.bytes).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let warnings = raw.headers.get_all("warning").iter();
    Answer {
        code: raw.code,
        message: text(&body["message"]),
        reason: text(&body["reason"]),
        causes: causes.iter().map(|cause| text(&cause["message"])).collect(),
        data: body["data"].clone(),
        warnings: warnings.map(|value| String::from_utf8_lossy(value.as_bytes()).into()).collect(),
    }
}

async fn make(connection: &mut Connection, path: &str, body: Value) {
    let answer = ask(connection, "admin", "POST", path, &body).await;
    assert!(matches!(answer.code, 201 | 409), "{path}: {answer:?}");
}

/// Lets Ann and Bob write ConfigMaps, and Ann read secrets in the namespaces of the cases.
async fn permissions(connection: &mut Connection) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    for (name, rule) in [
        ("maps", json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]})),
        ("secrets", json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]})),
        ("pages", json!({"nonResourceURLs": ["/pages/*"], "verbs": ["get"]})),
    ] {
        let role = json!({"metadata": {"name": name}, "rules": [rule]});
        make(connection, &format!("{rbac}/clusterroles"), role).await;
    }
    let bind = async |connection: &mut Connection,
                      path: &str,
                      name: &str,
                      role: &str,
                      subjects: Value| {
        let role =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
        let body = json!({"metadata": {"name": name}, "roleRef": role, "subjects": subjects});
        make(connection, &format!("{rbac}{path}"), body).await;
    };
    let user =
        |name: &str| json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name});
    let both = json!([user("ann"), user("bob")]);
    bind(connection, "/clusterrolebindings", "maps", "maps", both).await;
    bind(connection, "/clusterrolebindings", "pages", "pages", json!([user("ann")])).await;
    let missing = json!([user("bob")]);
    bind(connection, "/clusterrolebindings", "missing", "nowhere", missing).await;
    for case in cases::all() {
        let namespace = json!({"metadata": {"name": case.name}});
        make(connection, "/api/v1/namespaces", namespace).await;
        let account = json!([{"kind": "ServiceAccount", "name": "reader", "namespace": case.name}, user("ann")]);
        let path = format!("/namespaces/{}/rolebindings", case.name);
        bind(connection, &path, "secrets", "secrets", account).await;
    }
}

/// Creates the policy of a case, and its binding for the case's namespace.
async fn configure(connection: &mut Connection, case: &Case) {
    let kind = match case.kind {
        Kind::Validating => "validatingadmissionpolic",
        Kind::Mutating => "mutatingadmissionpolic",
    };
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]);
    let mut spec = case.spec.clone();
    spec["matchConstraints"] = json!({"resourceRules": rules});
    if case.kind == Kind::Mutating {
        spec["reinvocationPolicy"] = json!("Never");
    }
    let policy = json!({"metadata": {"name": case.name}, "spec": spec});
    make(connection, &format!("{API}/{kind}ies"), policy).await;
    let here =
        json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": case.name}}});
    let mut binding = json!({"metadata": {"name": case.name}, "spec": {"policyName": case.name, "matchResources": here}});
    if case.kind == Kind::Validating {
        binding["spec"]["validationActions"] = json!(case.actions);
    }
    make(connection, &format!("{API}/{kind}ybindings"), binding).await;
}

/// Sends a case's request.
async fn attempt(connection: &mut Connection, case: &Case, user: &str) -> Answer {
    let path = format!("/api/v1/namespaces/{}/configmaps?dryRun=All", case.name);
    let map = json!({"metadata": {"name": "m"}, "data": {"a": "1", "b": "2"}});
    ask(connection, user, "POST", &path, &map).await
}

/// Waits until both kinds of policies take effect: upstream's server reads them after a while.
async fn settled(connection: &mut Connection) {
    for case in cases::last() {
        configure(connection, &case).await;
        for _ in 0..600 {
            let answer = attempt(connection, &case, "admin").await;
            if answer.code != 201 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
}

/// Runs all cases on one server.
async fn run(connection: &mut Connection) -> Vec<(&'static str, &'static str, Answer)> {
    permissions(connection).await;
    for case in cases::all() {
        configure(connection, &case).await;
    }
    settled(connection).await;
    let mut answers = Vec::new();
    for case in cases::all() {
        for user in ["ann", "bob"] {
            answers.push((case.name, user, attempt(connection, &case, user).await));
        }
    }
    answers
}

async fn embedded() -> Connection {
    let server = Server::builder().tokens_csv(TOKENS).build().await.expect("a server");
    Oracle::Embedded(server).connect().await
}

#[tokio::test]
async fn policies_decide_as_their_expressions_say() {
    let answers = run(&mut embedded().await).await;
    let cases: Vec<Case> = cases::all().into_iter().filter(|case| case.name != "last").collect();
    for (name, user, answer) in &answers {
        let case = cases.iter().find(|case| case.name == *name).expect("a case");
        let want = if *user == "ann" { case.ann } else { case.bob };
        let found = match answer.code {
            201 if !answer.warnings.is_empty() => answer.warnings.join(", "),
            201 => answer.data.to_string(),
            _ => answer.message.clone(),
        };
        assert!(found.contains(want), "{name} by {user}: {found} instead of {want}");
        assert_eq!(
            answer.code == 201,
            !want.contains("denied request"),
            "{name} by {user}: {found}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_decide_as_upstreams_server_does() {
    let Some(binaries) = parity::binaries("policies") else { return };
    let [upstream, embedded] = Oracle::both(&binaries).await;
    let theirs = run(&mut upstream.connect().await).await;
    let ours = run(&mut embedded.connect().await).await;
    let differences: Vec<String> = theirs
        .iter()
        .zip(&ours)
        .filter(|(theirs, ours)| theirs != ours)
        .map(|(theirs, ours)| format!("upstream: {theirs:?}\nembedded: {ours:?}"))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    println!("policies: {} answers are equal", ours.len());
}
