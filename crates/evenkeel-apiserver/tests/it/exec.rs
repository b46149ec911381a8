//! Requests for `exec` and similar subresources before their upgrade: refusals, and calls of admission.

use http::StatusCode;
use serde_json::{Value, json};

use crate::Client;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Returns a client of a server with pods on a node, on no node, and on a node that does not exist.
async fn start() -> Client {
    let client = Client::start().await;
    client.make("/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    let account = json!({"metadata": {"name": "default"}});
    client.make("/api/v1/namespaces/default/serviceaccounts", account).await;
    for (name, node, containers) in
        [("one", "n", 1), ("two", "n", 2), ("pending", "", 1), ("lost", "gone", 1)]
    {
        let containers: Vec<Value> =
            (0..containers).map(|n| json!({"name": format!("c{n}"), "image": "i"})).collect();
        let spec = json!({"nodeName": node, "containers": containers});
        client.make(PODS, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    client
}

#[tokio::test]
async fn requests_that_lead_nowhere_are_refused() {
    let client = start().await;
    for (method, path, code, message) in [
        ("GET", "one/exec?command=ls", 400, "Upgrade request required"),
        ("POST", "one/exec?command=ls", 400, "Upgrade request required"),
        ("GET", "none/exec?command=ls", 404, "pods \"none\" not found"),
        ("GET", "one/exec?container=x", 400, "container x is not valid for pod one"),
        (
            "GET",
            "two/exec?command=ls",
            400,
            "a container name must be specified for pod two, choose one of: [c0 c1]",
        ),
        ("GET", "two/exec?container=c1", 400, "Upgrade request required"),
        ("GET", "pending/exec", 400, "pod pending does not have a host assigned"),
        ("GET", "lost/exec", 404, "pods \"gone\" not found"),
        ("GET", "one/attach", 400, "Upgrade request required"),
        ("GET", "two/attach?container=x", 400, "container x is not valid for pod two"),
        ("GET", "one/portforward?ports=80", 400, "Upgrade request required"),
        ("POST", "one/portforward", 400, "Upgrade request required"),
        ("POST", "pending/portforward", 400, "pod pending does not have a host assigned"),
        ("PUT", "one/exec", 405, "the server does not allow this method on the requested resource"),
    ] {
        let (found, answer) = client.ask(method, &format!("{PODS}/{path}"), Value::Null).await;
        assert_eq!(
            (found.as_u16(), &answer["message"]),
            (code, &json!(message)),
            "{method} {path}"
        );
    }
    // A client of SPDY names its protocols.
    for (protocol, code) in [("", StatusCode::BAD_REQUEST), ("x", StatusCode::FORBIDDEN)] {
        let spdy = [
            ("connection", "Upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", protocol),
        ];
        for path in ["one/exec?command=ls", "one/portforward"] {
            let path = format!("{PODS}/{path}");
            let response = client.send("POST", &path, &spdy, bytes::Bytes::new()).await;
            assert_eq!(response.status(), code, "{path}");
        }
    }
}

#[tokio::test]
async fn admission_is_asked_about_connections() {
    let client = start().await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/exec"]});
    let validation = json!({
        "expression": "request.operation != 'CONNECT' || request.kind.kind != 'PodExecOptions' || request.subResource != 'exec' || object.command[0] != 'rm'",
        "messageExpression": "'no ' + object.command.join(' ') + ' in ' + object.container",
    });
    let spec = json!({"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}, "validations": [validation]});
    client
        .make(
            &format!("{group}/validatingadmissionpolicies"),
            json!({"metadata": {"name": "no-rm"}, "spec": spec}),
        )
        .await;
    let binding = json!({"metadata": {"name": "no-rm"}, "spec": {"policyName": "no-rm", "validationActions": ["Deny"]}});
    client.make(&format!("{group}/validatingadmissionpolicybindings"), binding).await;
    let exec = |query: &'static str| client.ask("GET", query, Value::Null);
    let (code, answer) =
        exec("/api/v1/namespaces/default/pods/one/exec?command=rm&command=-r&container=c0").await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    assert_eq!(
        answer["message"],
        "pods \"one\" is forbidden: ValidatingAdmissionPolicy 'no-rm' with binding 'no-rm' denied request: no rm -r in c0"
    );
    let (code, answer) = exec("/api/v1/namespaces/default/pods/one/exec?command=ls").await;
    assert_eq!(
        (code, &answer["message"]),
        (StatusCode::BAD_REQUEST, &json!("Upgrade request required"))
    );
}
