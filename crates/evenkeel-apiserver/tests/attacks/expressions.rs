//! Expressions that try to nest, to run or to grow without end.

use serde_json::{Value, json};

use crate::target::{DEFINITIONS, Target, definition};

/// Sends a definition with a rule, which may be refused or accepted.
async fn with_rule(target: &Target, spec: Value, rule: &str) -> (u16, String) {
    let (definition, _) = definition(&target.fresh("rule").replace('-', ""), "default", |d| {
        let mut spec = spec;
        spec["x-kubernetes-validations"] = json!([{"rule": rule}]);
        d["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {"spec": spec}});
    });
    let answer = target.admin().post(DEFINITIONS, &definition).await;
    (answer.code, answer.text())
}

/// Expressions that are nested or chained thousands of times.
fn deep(target: &Target) -> Vec<String> {
    // The parser takes a while in debug builds.
    let n = if target.is_upstream() { 20_000 } else { 2_000 };
    vec![
        format!("{}true{}", "(".repeat(n), ")".repeat(n)),
        format!("{}true", "!".repeat(n)),
        format!("{}1 > 0", "-".repeat(n)),
        format!("{}{} == []", "[".repeat(n), "]".repeat(n)),
        format!("{}1{} != null", "{'a':".repeat(n), "}".repeat(n)),
        format!("{}true{}", "true ? ".repeat(n), " : true".repeat(n)),
        format!("true{}", " && true".repeat(n)),
        format!("1{} > 0", " + 1".repeat(n)),
        format!("self{} == 1", ".a".repeat(n)),
        format!("self{} == 1", "[0]".repeat(n)),
        format!("{}self{} == 1", "size(".repeat(n), ")".repeat(n)),
        format!("self{} == 1", ".lowerAscii()".repeat(n)),
        format!("{}true{}", "[1].all(x, ".repeat(2_000), ")".repeat(2_000)),
        format!("'{}' == 'a'", "a".repeat(2_000_000)),
        "(".repeat(n),
        "\"".repeat(n),
        "\\".repeat(n),
        "a.".repeat(n),
    ]
}

/// A policy for new ConfigMaps.
fn policy(name: &str, expression: &str) -> Value {
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]);
    json!({"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": expression}]}})
}

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";

/// Expressions without end in all kinds of objects: they are refused, or accepted without harm.
pub(crate) async fn expressions_without_end(target: &Target) {
    let admin = target.admin();
    for (i, expression) in deep(target).iter().enumerate() {
        let shown: String = expression.chars().take(30).collect();
        let (code, text) = with_rule(target, json!({"type": "string"}), expression).await;
        assert!(matches!(code, 201 | 413 | 422), "{shown}: {code} {text}");
        let answer = admin.post(POLICIES, &policy(&target.fresh("deep"), expression)).await;
        assert!(matches!(answer.code, 201 | 413 | 422), "{shown}: {}", answer.text());
        let class = json!({"metadata": {"name": target.fresh("deep")}, "spec": {"selectors": [{"cel": {"expression": expression}}]}});
        let answer = admin.post(CLASSES, &class).await;
        // The embedded server does not compile this one, but accepts it if it can be stored.
        let refused = answer.text().contains("request is too large");
        assert!(refused || matches!(answer.code, 201 | 413 | 422), "{i} {shown}: {}", answer.text());
    }
}

/// A policy whose expression runs without end fails the request, and no other.
pub(crate) async fn policies_without_end(target: &Target) {
    let namespace = target.namespace("policies").await;
    let admin = target.admin();
    let name = target.fresh("endless");
    let endless = "object.data.all(a, object.data.all(b, object.data.all(c, object.data.all(d, a + b + c + d != 'x'))))";
    admin.make(POLICIES, policy(&name, endless)).await;
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}}});
    admin.make(BINDINGS, binding).await;
    if target.is_upstream() {
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    }
    let configmaps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let data: serde_json::Map<String, Value> = (0..400).map(|i| (format!("key{i}"), json!("a"))).collect();
    let answer = admin.post(&configmaps, &json!({"metadata": {"name": "x"}, "data": data})).await;
    assert!(matches!(answer.code, 403 | 422 | 500), "{}", answer.text());
    admin.post(&configmaps, &json!({"metadata": {"name": "y"}, "data": {"a": "b"}})).await.is(201, "");
}

/// A tenant creates hundreds of parameters of a policy. Upstream evaluates the policy for each until the request times
/// out. The embedded server limits the total cost of the request.
pub(crate) async fn parameters_without_end(target: &Target) {
    let namespace = target.namespace("parameters").await;
    let admin = target.admin();
    let name = target.fresh("costly");
    let costly = "object.data.all(a, object.data.all(b, object.data.all(c, a + b + c != 'x')))";
    let mut policy = policy(&name, costly);
    policy["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    admin.make(POLICIES, policy).await;
    let selector = json!({"matchLabels": {"parameter": "yes"}});
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"],
        "paramRef": {"selector": selector, "parameterNotFoundAction": "Allow"},
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "objectSelector": {"matchLabels": {"seen": "yes"}}}}});
    admin.make(BINDINGS, binding).await;
    let configmaps = format!("/api/v1/namespaces/{namespace}/configmaps");
    for n in 0..150 {
        let parameter = json!({"metadata": {"name": format!("p{n}"), "labels": {"parameter": "yes"}}});
        admin.make(&configmaps, parameter).await;
    }
    if target.is_upstream() {
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    }
    let data: serde_json::Map<String, Value> = (0..45).map(|i| (format!("key{i}"), json!("a"))).collect();
    let seen = |name: &str, data: Value| json!({"metadata": {"name": name, "labels": {"seen": "yes"}}, "data": data});
    let answer = admin.post(&configmaps, &seen("x", data.into())).await;
    if target.is_upstream() {
        assert!(matches!(answer.code, 201 | 504), "{}", answer.text());
    } else {
        answer.is(422, "cost");
    }
    admin.post(&configmaps, &seen("y", json!({"a": "b"}))).await.is(201, "");
    admin.send("DELETE", &format!("{BINDINGS}/{name}"), &[], b"").await.is(200, "");
}

/// Rules whose estimated cost exceeds the limit.
pub(crate) async fn rules_that_cost_too_much(target: &Target) {
    let list = json!({"type": "array", "items": {"type": "string"}});
    for rule in [
        "self.all(a, self.all(b, self.all(c, a == b || b == c)))",
        "self.map(a, self.map(b, a + b)).size() > 0",
        "self.exists(a, self.exists(b, a.matches(b)))",
        "self.all(a, a.contains(self[0]))",
    ] {
        let (code, text) = with_rule(target, list.clone(), rule).await;
        assert_eq!(code, 422, "{rule}: {text}");
        assert!(text.contains("exceeds budget"), "{rule}: {text}");
    }
}

/// Match conditions that do not end do not bypass a webhook.
pub(crate) async fn match_conditions_without_end(target: &Target) {
    let namespace = target.namespace("conditions").await;
    let endless = "object.data.all(a, object.data.all(b, object.data.all(c, object.data.all(d, a + b + c + d != 'x'))))";
    let hooks = json!([{"name": "hook.attacks.example", "clientConfig": {"url": "https://localhost:1/x"}, "failurePolicy": "Fail", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "matchConditions": [{"name": "c", "expression": endless}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}]);
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    target.admin().make(path, json!({"metadata": {"name": target.fresh("hook")}, "webhooks": hooks})).await;
    if target.is_upstream() {
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    }
    let data: serde_json::Map<String, Value> = (0..400).map(|i| (format!("key{i}"), json!("a"))).collect();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let answer = target.admin().post(&path, &json!({"metadata": {"name": "x"}, "data": data})).await;
    assert!(matches!(answer.code, 403 | 500), "{}", answer.text());
}
