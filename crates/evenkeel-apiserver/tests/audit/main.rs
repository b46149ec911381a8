//! Audit events of the embedded server, and of upstream's kube-apiserver: the same requests have the same events.
//!
//! The comparison runs if `EVENKEEL_UPSTREAM_BIN` names the folder of upstream's programs.

#[path = "../parity/mod.rs"]
mod parity;

use std::path::Path;
use std::sync::Arc;

use evenkeel_apiserver::{AuditLogOptions, AuditMode, AuditOptions, Server};
use http::Request;
use http_body_util::Full;
use parity::kube_apiserver::{TOKENS, Upstream};
use parity::servers::{Connection, Oracle};
use serde_json::{Value, json};

/// Records everything of the namespace `audited`, and some of the rest.
fn policy() -> Value {
    let in_namespace = |level: &str, resources: Value| json!({"level": level, "namespaces": ["audited"], "resources": resources});
    json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitManagedFields": true,
        "rules": [
            {"level": "None", "users": ["bob"]},
            in_namespace("Metadata", json!([{"group": "", "resources": ["secrets"]}])),
            in_namespace("Request", json!([{"group": "", "resources": ["serviceaccounts", "serviceaccounts/*"]}])),
            in_namespace("RequestResponse", json!([{"group": "", "resources": ["configmaps", "pods", "pods/*", "services", "endpoints"]}, {"group": "apps"}])),
            {"level": "RequestResponse", "resources": [{"group": "authorization.k8s.io"}]},
            {"level": "Metadata", "userGroups": ["system:unauthenticated"]},
            {"level": "Metadata", "nonResourceURLs": ["/version", "/nope*"], "omitStages": ["RequestReceived"]},
            {"level": "RequestResponse", "nonResourceURLs": ["/apis/coordination.k8s.io*"], "omitStages": ["RequestReceived"]},
            {"level": "Metadata", "users": ["ann"], "omitStages": ["RequestReceived"]}
        ]
    })
}

/// A request: user, method, path, content type, body.
type Sent = (&'static str, &'static str, String, &'static str, Value);

const JSON: &str = "application/json";

/// Header that marks the requests whose events are compared.
const MARK: &str = "compared-";

fn requests() -> Vec<Sent> {
    let json = "application/json";
    let base = "/api/v1/namespaces/audited";
    let map = json!({"metadata": {"name": "m", "labels": {"a": "b"}}, "data": {"k": "v"}});
    let none = Value::Null;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]}});
    let sent =
        |user, method, path: &str, media, body: Value| (user, method, path.to_owned(), media, body);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}], "hostNetwork": true}});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let denied = json!({"metadata": {"name": "denied"}, "data": {"a": "x"}});
    let table = "?as=Table";
    vec![
        sent("admin", "GET", "/version", "", none.clone()),
        sent("admin", "GET", "/apis/coordination.k8s.io/v1", "", none.clone()),
        sent("ann", "GET", "/nope", "", none.clone()),
        sent("admin", "GET", "/nope", "", none.clone()),
        sent("wrong", "GET", "/version", "", none.clone()),
        sent("admin", "POST", &format!("{base}/configmaps"), json, map.clone()),
        sent("admin", "POST", &format!("{base}/configmaps"), json, map.clone()),
        sent(
            "admin",
            "POST",
            &format!("{base}/configmaps?dryRun=All"),
            json,
            json!({"metadata": {"generateName": "g-"}, "data": 1}),
        ),
        sent("admin", "GET", &format!("{base}/configmaps/m"), "", none.clone()),
        sent("admin", "GET", &format!("{base}/configmaps/absent"), "", none.clone()),
        sent("admin", "GET", &format!("{base}/configmaps?labelSelector=a%3Db"), "", none.clone()),
        sent("ann", "GET", &format!("{base}/configmaps"), "", none.clone()),
        sent("bob", "GET", &format!("{base}/configmaps"), "", none.clone()),
        sent(
            "admin",
            "PATCH",
            &format!("{base}/configmaps/m"),
            "application/merge-patch+json",
            json!({"data": {"x": "y"}}),
        ),
        sent(
            "admin",
            "PATCH",
            &format!("{base}/configmaps/m?fieldManager=t&force=true"),
            "application/apply-patch+yaml",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"z": "1"}}),
        ),
        sent(
            "admin",
            "PUT",
            &format!("{base}/configmaps/m"),
            json,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {}}),
        ),
        sent("admin", "POST", &format!("{base}/pods"), json, pod.clone()),
        sent("admin", "GET", &format!("{base}/pods/p/log"), "", none.clone()),
        sent(
            "admin",
            "GET",
            &format!("{base}/configmaps?watch=1&timeoutSeconds=1"),
            "",
            none.clone(),
        ),
        sent("ann", "GET", &format!("{base}/configmaps?watch=1"), "", none.clone()),
        sent(
            "admin",
            "POST",
            &format!("{base}/secrets"),
            json,
            json!({"metadata": {"name": "s"}, "stringData": {"password": "hidden"}}),
        ),
        sent(
            "admin",
            "POST",
            &format!("{base}/serviceaccounts"),
            json,
            json!({"metadata": {"name": "robot"}}),
        ),
        sent(
            "admin",
            "POST",
            &format!("{base}/serviceaccounts/robot/token"),
            json,
            json!({"spec": {"audiences": ["a"]}}),
        ),
        sent(
            "ann",
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            json,
            json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}),
        ),
        sent(
            "admin",
            "DELETE",
            &format!("{base}/configmaps/m"),
            json,
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}),
        ),
        sent("admin", "DELETE", &format!("{base}/configmaps/m"), "", none.clone()),
        sent("admin", "DELETE", &format!("{base}/configmaps"), "", none.clone()),
        // The policies record and deny, and the webhook is unreachable.
        sent("admin", "POST", &format!("{base}/configmaps"), json, denied),
        sent(
            "admin",
            "POST",
            &format!("{base}/configmaps"),
            json,
            json!({"metadata": {"name": "hooked"}, "data": {"a": "y"}}),
        ),
        sent("admin", "DELETE", &format!("{base}/configmaps/hooked"), "", none.clone()),
        sent("admin", "POST", "/apis/apps/v1/namespaces/audited/deployments", json, deployment),
        sent(
            "admin",
            "GET",
            "/apis/apps/v1/namespaces/audited/deployments/d/scale",
            "",
            none.clone(),
        ),
        sent(
            "admin",
            "PATCH",
            "/apis/apps/v1/namespaces/audited/deployments/d/scale",
            "application/merge-patch+json",
            json!({"spec": {"replicas": 3}}),
        ),
        sent("as:ann", "GET", &format!("{base}/secrets"), "", none.clone()),
        sent("as:bob", "GET", &format!("{base}/configmaps"), "", none.clone()),
        sent("protobuf", "GET", &format!("{base}/configmaps"), "", none.clone()),
        sent("protobuf", "GET", &format!("{base}/configmaps/absent"), "", none.clone()),
        sent("table", "GET", &format!("{base}/pods{table}"), "", none.clone()),
        sent("admin", "GET", &format!("{base}/endpoints"), "", none.clone()),
        sent(
            "admin",
            "POST",
            &format!("{base}/pods/p/eviction"),
            json,
            json!({"metadata": {"name": "p"}}),
        ),
        sent(
            "admin",
            "PATCH",
            &format!("{base}/configmaps/absent"),
            "application/json-patch+json",
            json!([{"op": "test", "path": "/a", "value": 1}]),
        ),
        sent("admin", "GET", &format!("{base}/configmaps?timeout=x"), "", none.clone()),
        sent("admin", "DELETE", &format!("{base}/pods/p?gracePeriodSeconds=0"), "", none),
    ]
}

async fn ask(connection: &mut Connection, id: &str, sent: &Sent) -> u16 {
    let (user, method, path, media, body) = sent;
    let as_user = user.strip_prefix("as:");
    let accept = match *user {
        "protobuf" => "application/vnd.kubernetes.protobuf",
        "table" => "application/json;as=Table;v=v1;g=meta.k8s.io",
        _ => JSON,
    };
    let bytes = if body.is_null() { String::new() } else { body.to_string() };
    let mut request = Request::builder()
        .method(*method)
        .uri(path)
        .header("host", "localhost")
        .header("user-agent", "audit-test/1")
        .header("accept", accept)
        .header("audit-id", id)
        .header(
            "authorization",
            format!("Bearer {}", if as_user.is_some() || accept != JSON { "admin" } else { user }),
        );
    if let Some(as_user) = as_user {
        request =
            request.header("impersonate-user", as_user).header("impersonate-extra-why", "test");
    }
    if !media.is_empty() {
        request = request.header("content-type", *media);
    }
    let request = request.body(Full::new(bytes.into())).expect("a request");
    connection.send(request).await.code
}

/// Creates policies with annotations, and webhooks without a server, and waits until all of them take effect.
async fn admission(connection: &mut Connection) {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]);
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": "audited"}});
    let condition = |value: &str| json!([{"name": "a", "expression": format!("has(object.data) && 'a' in object.data && object.data['a'] == '{value}'")}]);
    let policy = json!({"metadata": {"name": "noted"}, "spec": {"matchConstraints": {"resourceRules": rules},
        "matchConditions": condition("x"), "validations": [{"expression": "true"}, {"expression": "false", "message": "not x"}],
        "auditAnnotations": [{"key": "name", "valueExpression": "'it is ' + object.metadata.name"}, {"key": "none", "valueExpression": "null"}]}});
    let binding = |name: &str, actions: Value| {
        json!({"metadata": {"name": name}, "spec": {"policyName": "noted",
        "validationActions": actions, "matchResources": {"namespaceSelector": here}}})
    };
    let hook = |name: &str| {
        json!({"metadata": {"name": name}, "webhooks": [{"name": format!("{name}.example.com"),
        "clientConfig": {"url": "https://127.0.0.1:1/none"}, "rules": rules, "namespaceSelector": here, "sideEffects": "None",
        "failurePolicy": "Ignore", "matchConditions": condition("y"), "admissionReviewVersions": ["v1"], "timeoutSeconds": 1}]})
    };
    for (plural, object) in [
        ("validatingadmissionpolicies", policy),
        ("validatingadmissionpolicybindings", binding("audits", json!(["Audit", "Warn"]))),
        ("mutatingwebhookconfigurations", hook("mutating")),
        ("validatingwebhookconfigurations", hook("validating")),
        ("validatingadmissionpolicybindings", binding("denies", json!(["Deny"]))),
    ] {
        let sent = ("admin", "POST", format!("{group}/{plural}"), JSON, object);
        assert_eq!(ask(connection, "setup", &sent).await, 201, "{plural}");
    }
    let path = "/api/v1/namespaces/audited/configmaps?dryRun=All".to_owned();
    let denied =
        ("admin", "POST", path, JSON, json!({"metadata": {"name": "n"}, "data": {"a": "x"}}));
    for _ in 0..600 {
        if ask(connection, "setup", &denied).await == 422 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the policy has no effect");
}

/// Sends all requests, and returns their codes.
async fn run(connection: &mut Connection) -> Vec<u16> {
    let labels = json!({"pod-security.kubernetes.io/audit": "baseline"});
    let namespace = json!({"metadata": {"name": "audited", "labels": labels}});
    let made = ("admin", "POST", "/api/v1/namespaces".to_owned(), "application/json", namespace);
    assert_eq!(ask(connection, "setup", &made).await, 201);
    let account = (
        "admin",
        "POST",
        "/api/v1/namespaces/audited/serviceaccounts".to_owned(),
        "application/json",
        json!({"metadata": {"name": "default"}}),
    );
    assert!(matches!(ask(connection, "setup", &account).await, 201 | 409));
    admission(connection).await;
    let mut codes = Vec::new();
    for (at, sent) in requests().iter().enumerate() {
        codes.push(ask(connection, &format!("{MARK}{at}"), sent).await);
    }
    codes
}

/// Waits for the last audit event of each marked request, and returns all events of these requests.
async fn events(path: &Path) -> Vec<Value> {
    for _ in 0..100 {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let parsed = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let marked: Vec<Value> = parsed
            .filter(|event| event["auditID"].as_str().is_some_and(|id| id.starts_with(MARK)))
            .collect();
        let last = format!("{MARK}{}", requests().len() - 1);
        let is_last = |event: &Value| {
            event["auditID"] == last.as_str() && event["stage"] == "ResponseComplete"
        };
        if marked.iter().any(is_last) {
            return marked;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the last event is missing");
}

/// Removes values that always differ: times, ages, unique IDs, versions, tokens, and the address of the connection.
fn normalise(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in ["requestReceivedTimestamp", "stageTimestamp", "sourceIPs"] {
                fields.remove(name);
            }
            for (name, value) in fields.iter_mut() {
                let volatile = [
                    "uid",
                    "resourceVersion",
                    "creationTimestamp",
                    "expirationTimestamp",
                    "token",
                    "authentication.kubernetes.io/issued-credential-id",
                    "serverAddress",
                ];
                if volatile.contains(&name.as_str()) && (value.is_string() || value.is_null()) {
                    *value = Value::from("*");
                } else {
                    normalise(value);
                }
            }
            fields.retain(|name, value| {
                !(name == "creationTimestamp"
                    || name == "status" && value.as_object().is_some_and(serde_json::Map::is_empty))
            });
        }
        Value::Array(items) => items.iter_mut().for_each(normalise),
        Value::String(text) if text.starts_with("kube-api-access-") => {
            *text = "kube-api-access-*".to_owned();
        }
        // An age in a row of a Table.
        Value::String(text)
            if text.strip_suffix('s').is_some_and(|seconds| seconds.parse::<u32>().is_ok()) =>
        {
            *text = "*s".to_owned();
        }
        _ => {}
    }
}

fn options(folder: &Path) -> (AuditOptions, std::path::PathBuf) {
    let path = folder.join("audit.log");
    let log = AuditLogOptions { path: Some(path.clone()), ..AuditLogOptions::default() };
    (AuditOptions { policy: policy().to_string(), log: Some(log), webhook: None }, path)
}

async fn embedded(folder: &Path) -> (Vec<u16>, Vec<Value>) {
    let (options, path) = options(folder);
    let server =
        Server::builder().tokens_csv(TOKENS).audit(options).build().await.expect("a server");
    let mut connection = Oracle::Embedded(server).connect().await;
    (run(&mut connection).await, events(&path).await)
}

#[tokio::test]
async fn requests_have_the_events_of_their_policy() {
    let folder = tempfile::tempdir().expect("a folder");
    let (codes, events) = embedded(folder.path()).await;
    let of = |at: usize| -> Vec<&Value> {
        events.iter().filter(|event| event["auditID"] == format!("{MARK}{at}").as_str()).collect()
    };
    let position = |method: &str, part: &str, nth: usize| {
        let all = requests();
        let mut found =
            all.iter().enumerate().filter(|(_, sent)| sent.1 == method && sent.2.contains(part));
        found.nth(nth).expect("a request").0
    };
    let stages = |at: usize| -> Vec<String> {
        of(at).iter().map(|event| event["stage"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let create = position("POST", "/configmaps", 0);
    assert_eq!(stages(create), ["RequestReceived", "ResponseComplete"]);
    let last = of(create)[1];
    assert_eq!(last["objectRef"]["name"], "m");
    assert_eq!(last["requestObject"]["data"], json!({"k": "v"}));
    assert_eq!(last["responseObject"]["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(last["responseObject"]["metadata"]["managedFields"], Value::Null);
    assert_eq!(last["responseStatus"]["code"], 201);
    assert_eq!(last["annotations"]["authorization.k8s.io/decision"], "allow");
    // Bob's requests have no events, and requests without a valid user have one.
    let bob = requests().iter().position(|sent| sent.0 == "bob").expect("a request");
    assert_eq!(stages(bob), Vec::<String>::new());
    let wrong = requests().iter().position(|sent| sent.0 == "wrong").expect("a request");
    assert_eq!((codes[wrong], stages(wrong)), (401, vec!["ResponseStarted".to_owned()]));
    let watch = position("GET", "watch=1", 0);
    assert_eq!(stages(watch), ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
    let refused = position("GET", "/configmaps", 3);
    assert_eq!(of(refused)[1]["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(of(refused)[1]["responseStatus"]["reason"], "Forbidden");
    // No event contains a Secret's value.
    assert!(!events.iter().any(|event| event.to_string().contains("hidden")));
    let pod = position("POST", "/pods", 0);
    let violation =
        of(pod)[1]["annotations"]["pod-security.kubernetes.io/audit-violations"].as_str();
    assert!(violation.is_some_and(|text| text.contains("host namespaces")), "{violation:?}");
}

#[tokio::test]
async fn a_request_whose_first_event_is_lost_fails_only_strictly() {
    for (mode, code) in
        [(AuditMode::Batch, 200), (AuditMode::Blocking, 200), (AuditMode::BlockingStrict, 500)]
    {
        let log =
            AuditLogOptions { path: Some("/dev/full".into()), mode, ..AuditLogOptions::default() };
        let audit = AuditOptions { policy: policy().to_string(), log: Some(log), webhook: None };
        let server =
            Server::builder().tokens_csv(TOKENS).audit(audit).build().await.expect("a server");
        let mut connection = Oracle::Embedded(server).connect().await;
        let sent = (
            "ann",
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
            "application/json",
            json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/"}}}),
        );
        let found = ask(&mut connection, "id", &sent).await;
        assert_eq!(found == 500, code == 500, "{mode:?}: {found}");
    }
}

#[tokio::test]
async fn an_invalid_policy_refuses_the_start() {
    let audit = AuditOptions { policy: "kind: Policy".to_owned(), log: None, webhook: None };
    let error = Server::builder().audit(audit).build().await.err().map(|error| error.to_string());
    let want = "audit-policy-file: loading audit policy file: unknown group version field";
    assert!(error.as_deref().is_some_and(|error| error.starts_with(want)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_as_upstreams() {
    let Some(binaries) = parity::binaries("audit") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("policy.json"), policy().to_string()).expect("written");
    let flags = [
        format!("--audit-policy-file={}", at("policy.json").display()),
        format!("--audit-log-path={}", at("upstream.log").display()),
    ];
    let upstream = Oracle::Upstream(Arc::new(Upstream::start_with(&binaries, &flags)));
    upstream.ready().await;
    let codes = run(&mut upstream.connect().await).await;
    let mut theirs = events(&at("upstream.log")).await;
    let (our_codes, mut ours) = embedded(folder.path()).await;
    assert_eq!(our_codes, codes);
    let key = |event: &Value| (event["auditID"].to_string(), event["stage"].to_string());
    for events in [&mut theirs, &mut ours] {
        events.iter_mut().for_each(normalise);
        events.sort_by_key(key);
    }
    let mut differences = Vec::new();
    for their in &theirs {
        match ours.iter().find(|our| key(our) == key(their)) {
            None => differences.push(format!("missing: {their}")),
            Some(our) => {
                let fields = their.as_object().into_iter().chain(our.as_object()).flatten();
                let mut names: Vec<&String> = fields.map(|(name, _)| name).collect();
                names.sort();
                names.dedup();
                for name in names.into_iter().filter(|name| their[*name] != our[*name]) {
                    differences.push(format!(
                        "{:?} {name}\n  upstream: {}\n  embedded: {}",
                        key(their),
                        their[name],
                        our[name]
                    ));
                }
            }
        }
    }
    for our in ours.iter().filter(|our| !theirs.iter().any(|their| key(our) == key(their))) {
        differences.push(format!("only ours: {our}"));
    }
    assert!(
        differences.is_empty(),
        "{} of {}:\n{}",
        differences.len(),
        theirs.len(),
        differences.join("\n")
    );
    println!("audit: {} events are equal", theirs.len());
}
