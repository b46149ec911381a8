//! Authorizers that a file configures: webhooks, their conditions and failures, and changes of the file.

use std::path::PathBuf;
use std::time::Duration;

use evenkeel_apiserver::{AuthorizationWebhookOptions, Builder, Server, User};
use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Client;
use crate::webhook::{Identity, Webhook};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

/// A folder with the files of a configuration.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    /// Returns the kubeconfig file of a webhook.
    fn kubeconfig(&self, name: &str, client_config: &Value) -> PathBuf {
        let cluster = json!({"server": client_config["url"], "certificate-authority-data": client_config["caBundle"]});
        let text = json!({"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": cluster}], "users": [{"name": "u", "user": {"token": "t"}}]});
        self.write(name, &text.to_string())
    }

    /// Returns a configuration with these authorizers.
    fn config(&self, authorizers: &Value) -> PathBuf {
        let text = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": authorizers});
        self.write("config.yaml", &text.to_string())
    }
}

/// Returns the configuration of a webhook authorizer. `changes` replace its fields.
fn webhook(name: &str, kubeconfig: &std::path::Path, changes: &Value) -> Value {
    let mut webhook = json!({"timeout": "30s", "subjectAccessReviewVersion": "v1", "failurePolicy": "NoOpinion",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig}});
    for (field, value) in changes.as_object().into_iter().flatten() {
        webhook[field] = value.clone();
    }
    json!({"type": "Webhook", "name": name, "webhook": webhook})
}

fn rbac() -> Value {
    json!({"type": "RBAC", "name": "rbac"})
}

async fn server(builder: Builder) -> Server {
    builder.build().await.expect("a server in memory")
}

fn client(server: &Server, user: &str) -> Client {
    Client(server.service_as(User::authenticated(user, ["dev"])))
}

/// Allows reads, denies requests for the name `denied`, and has no opinion about others.
fn decide(review: &Value) -> (StatusCode, Value) {
    let attributes = &review["spec"]["resourceAttributes"];
    let status = if attributes["name"] == "denied" {
        json!({"allowed": false, "denied": true, "reason": "not that one"})
    } else if ["get", "list", "escalate"].map(Value::from).contains(&attributes["verb"]) {
        json!({"allowed": true, "reason": "reading is fine"})
    } else {
        json!({"allowed": false, "reason": "I do not know"})
    };
    let answer = json!({"apiVersion": review["apiVersion"], "kind": "SubjectAccessReview", "status": status});
    (StatusCode::OK, answer)
}

/// Lets `ann` write configmaps and roles by RBAC.
async fn grant(server: &Server) {
    let admin = Client(server.service());
    let rules = json!([{"apiGroups": ["", "rbac.authorization.k8s.io"], "resources": ["configmaps", "roles"], "verbs": ["create", "update", "patch", "delete"]}]);
    admin.make(ROLES, json!({"metadata": {"name": "writer"}, "rules": rules})).await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    admin
        .make(bindings, json!({"metadata": {"name": "ann"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]}))
        .await;
}

#[tokio::test]
async fn a_webhook_decides_before_rbac() {
    let files = Files::new();
    let hook = Webhook::start(&Identity::own(|_| {}), "/authorize", decide).await;
    let kubeconfig = files.kubeconfig("hook", &hook.config);
    let conditions = json!({"matchConditionSubjectAccessReviewVersion": "v1",
        "matchConditions": [{"expression": "request.user != 'bob'"}, {"expression": "has(request.resourceAttributes)"}]});
    let config = files.config(&json!([webhook("hook.example", &kubeconfig, &conditions), rbac()]));
    let server = server(Server::builder().authorization_config(config)).await;
    grant(&server).await;
    assert_eq!(hook.take(), Vec::<Value>::new(), "administrators are not asked about");
    let ann = client(&server, "ann");

    // The webhook's decision, and the review that it gets.
    let path = format!("{MAPS}?labelSelector=a%3Db&fieldSelector=metadata.name%3Dm");
    assert_eq!(ann.ask("GET", &path, Value::Null).await.0, StatusCode::OK);
    let attributes = json!({"verb": "list", "version": "v1", "resource": "configmaps", "namespace": "default", "name": "m",
        "fieldSelector": {"requirements": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]},
        "labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]}});
    let asked = hook.take();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0]["apiVersion"], "authorization.k8s.io/v1");
    assert_eq!(
        asked[0]["spec"],
        json!({"user": "ann", "groups": ["dev", "system:authenticated"], "resourceAttributes": attributes})
    );
    // The decision is cached.
    assert_eq!(ann.ask("GET", &path, Value::Null).await.0, StatusCode::OK);
    assert_eq!(hook.take(), Vec::<Value>::new());

    // RBAC decides if the webhook has no opinion. Nobody can allow a request that the webhook denies.
    ann.make(MAPS, json!({"metadata": {"name": "m"}})).await;
    let (code, refused) = ann.ask("DELETE", &format!("{MAPS}/denied"), Value::Null).await;
    assert_eq!(code, StatusCode::FORBIDDEN, "{refused}");
    assert!(refused["message"].as_str().is_some_and(|text| text.ends_with(": not that one")));
    let (code, refused) = client(&server, "eve").ask("DELETE", MAPS, Value::Null).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    let text = refused["message"].as_str().unwrap_or_default().to_owned();
    assert!(text.ends_with(": hook.example: I do not know"), "{text}");
    hook.take();

    // Conditions exclude requests.
    assert_eq!(client(&server, "bob").ask("GET", MAPS, Value::Null).await.0, StatusCode::FORBIDDEN);
    assert_eq!(ann.ask("GET", "/nowhere", Value::Null).await.0, StatusCode::FORBIDDEN);
    assert_eq!(hook.take(), Vec::<Value>::new());

    // Later checks also call the webhook: this Role grants permissions that ann lacks.
    let role = json!({"metadata": {"name": "big"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]});
    ann.make(ROLES, role.clone()).await;
    let verbs: Vec<Value> = hook
        .take()
        .iter()
        .map(|review| review["spec"]["resourceAttributes"]["verb"].clone())
        .collect();
    assert_eq!(verbs, [json!("create"), json!("escalate")]);
    let (code, _) = ann.apply(&format!("{ROLES}/denied"), role).await;
    assert_eq!(code, StatusCode::FORBIDDEN);

    // Reviews return the webhook's decision.
    let access = |verb: &str, name: &str| json!({"spec": {"resourceAttributes": {"namespace": "default", "resource": "configmaps", "verb": verb, "name": name}}});
    let reviews = format!("{REVIEWS}/selfsubjectaccessreviews");
    for (verb, name, status) in [
        ("get", "x", json!({"allowed": true, "reason": "reading is fine"})),
        ("get", "denied", json!({"allowed": false, "denied": true, "reason": "not that one"})),
    ] {
        // Everybody may create reviews by RBAC.
        let review = ann.make(&reviews, access(verb, name)).await;
        assert_eq!(review["status"], status, "{verb} {name}");
    }
    let rules = json!({"spec": {"namespace": "default"}});
    let review = ann.make(&format!("{REVIEWS}/selfsubjectrulesreviews"), rules).await;
    assert_eq!(review["status"]["incomplete"], true);
    assert_eq!(
        review["status"]["evaluationError"],
        "webhook authorizer does not support user rule resolution"
    );
    let metrics = metrics(&server).await;
    for line in [
        "apiserver_authorization_decisions_total{decision=\"denied\",name=\"hook.example\",type=\"Webhook\"}",
        "apiserver_authorization_match_condition_exclusions_total{name=\"hook.example\",type=\"Webhook\"} 2\n",
        "apiserver_authorization_webhook_evaluations_total{name=\"hook.example\",result=\"success\"}",
        "apiserver_authorization_config_controller_last_config_info{apiserver_id_hash=\"sha256:",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

async fn metrics(server: &Server) -> String {
    let admin = Client(server.service());
    let response = admin.send("GET", "/metrics", &[], bytes::Bytes::new()).await;
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn policies_ask_the_webhook() {
    let files = Files::new();
    let hook = Webhook::start(&Identity::own(|_| {}), "/authorize", decide).await;
    let kubeconfig = files.kubeconfig("hook", &hook.config);
    let config = files.config(&json!([webhook("hook", &kubeconfig, &json!({})), rbac()]));
    let server = server(Server::builder().authorization_config(config)).await;
    grant(&server).await;
    let admin = Client(server.service());
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let check = "authorizer.group('').resource('configmaps').namespace('default').name(object.metadata.name).check('get')";
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}]);
    admin
        .make(
            policies,
            json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": format!("{check}.allowed()")}]}}),
        )
        .await;
    admin
        .make(&format!("{policies}bindings").replace("policiesbindings", "policybindings"), json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}))
        .await;
    let ann = client(&server, "ann");
    ann.make(MAPS, json!({"metadata": {"name": "fine"}})).await;
    // Its name is not in the request for the collection, so that only the authorization check of the policy is denied.
    let (code, refused) = ann.ask("POST", MAPS, json!({"metadata": {"name": "denied"}})).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
}

#[tokio::test]
async fn a_webhook_that_fails_follows_its_policy() {
    let files = Files::new();
    // No server listens at this address.
    let gone =
        json!({"url": "https://127.0.0.1:1/authorize", "caBundle": Identity::own(|_| {}).bundle()});
    let gone = files.kubeconfig("gone", &gone);
    let refused = "Post \"https://127.0.0.1:1/authorize?timeout=30s\": dial tcp 127.0.0.1:1: connect: connection refused";
    for (policy, code, allowed) in [
        ("NoOpinion", StatusCode::INTERNAL_SERVER_ERROR, StatusCode::CREATED),
        ("Deny", StatusCode::INTERNAL_SERVER_ERROR, StatusCode::INTERNAL_SERVER_ERROR),
    ] {
        let changes = json!({"failurePolicy": policy});
        let config = files.config(&json!([webhook("gone", &gone, &changes), rbac()]));
        let server = server(Server::builder().authorization_config(config)).await;
        grant(&server).await;
        let (found, error) = client(&server, "eve").ask("GET", MAPS, Value::Null).await;
        assert_eq!(found, code, "{policy}: {error}");
        assert_eq!(error["message"], format!("Internal error occurred: {refused}"));
        let made =
            client(&server, "ann").ask("POST", MAPS, json!({"metadata": {"name": "m"}})).await;
        assert_eq!(made.0, allowed, "{policy}: {}", made.1);
        let failed_open = "webhook_evaluations_fail_open_total{name=\"gone\",result=\"error\"}";
        assert_eq!(metrics(&server).await.contains(failed_open), policy == "NoOpinion");
    }
}

#[tokio::test]
async fn flags_configure_a_webhook() {
    let files = Files::new();
    let hook = Webhook::start(&Identity::own(|_| {}), "/authorize", decide).await;
    let options = AuthorizationWebhookOptions {
        config_file: files.kubeconfig("hook", &hook.config),
        version: "v1beta1".to_owned(),
        cache_authorized_ttl: Duration::ZERO,
        cache_unauthorized_ttl: Duration::ZERO,
    };
    let builder = Server::builder().authorization_mode("Webhook").authorization_webhook(options);
    let server = server(builder).await;
    let ann = client(&server, "ann");
    for _ in 0..2 {
        assert_eq!(ann.ask("GET", MAPS, Value::Null).await.0, StatusCode::OK);
        let asked = hook.take();
        assert_eq!(asked.len(), 1, "nothing is remembered");
        assert_eq!(asked[0]["apiVersion"], "authorization.k8s.io/v1beta1");
        assert_eq!(asked[0]["spec"]["group"], json!(["dev", "system:authenticated"]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_applies_without_a_restart() {
    let files = Files::new();
    let mode = |name: &str| json!({"type": name, "name": name.to_lowercase()});
    let config = files.config(&json!([mode("AlwaysDeny")]));
    let server = server(Server::builder().authorization_config(config)).await;
    let ann = client(&server, "ann");
    let code = async || ann.ask("GET", MAPS, Value::Null).await.0;
    assert_eq!(code().await, StatusCode::FORBIDDEN);
    files.config(&json!([mode("AlwaysDeny"), mode("AlwaysAllow")]));
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(code().await, StatusCode::OK);
    // An invalid file changes nothing: it must keep its initial types.
    files.config(&json!([mode("AlwaysAllow")]));
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(code().await, StatusCode::OK);
    let metrics = metrics(&server).await;
    for status in ["success", "failure"] {
        let line = format!("status=\"{status}\"}} 1\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
}

#[tokio::test]
async fn a_configuration_that_cannot_be_used_refuses_the_start() {
    let files = Files::new();
    let config = files.config(&json!([{"type": "RBAC", "name": "other"}]));
    let why = "expected name rbac for authorizer RBAC instead of other";
    for (builder, why) in [
        (Server::builder().authorization_config(config.clone()), why),
        (
            Server::builder().authorization_config(config).authorization_mode("RBAC"),
            "can not be specified",
        ),
        (Server::builder().authorization_config("/nowhere".into()), "/nowhere: No such file"),
        (Server::builder().authorization_mode("Webhook"), "config file not passed"),
    ] {
        let error = builder.build().await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(why), "{error}");
    }
}
