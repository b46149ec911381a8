//! Policies on kinds that the operator watches while it runs, in virtual time.

#![expect(clippy::unwrap_used, reason = "the whole binary is tests")]

#[path = "../../permissions.rs"]
mod permissions;

use evenkeel_runtime::prelude::*;
use evenkeel_test::{Running, TestServer, TestServerBuilder, eventually};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::{
    Api,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use policy_operator::{FieldPolicy, operator};
use serde_json::{Value, json};

/// Starts a server and the operator, which has the permissions of its manifest.
async fn start() -> (TestServer, Running) {
    let server = TestServerBuilder::default().crd::<FieldPolicy>().start().await.unwrap();
    let manifest = include_str!("../manifests/operator.yaml");
    let groups = permissions::grant(&server.client(), manifest, "policy-operator").await;
    let kube = server.client_as("system:serviceaccount:default:policy-operator", groups);
    let running = server.run(move |_, setup| operator(kube.clone(), setup));
    (server, running)
}

fn policies(server: &TestServer) -> Api<FieldPolicy> {
    Api::all(server.client())
}

async fn create_policy(server: &TestServer, name: &str, target: &Value, rules: &Value) {
    let policy = json!({
        "apiVersion": "policy.example.com/v1", "kind": "FieldPolicy", "metadata": {"name": name},
        "spec": {"target": target, "rules": rules, "excludedNamespaces": ["kube-system"]},
    });
    let policy = serde_json::from_value(policy).unwrap();
    policies(server).create(&PostParams::default(), &policy).await.unwrap();
}

/// Returns the status of a condition, with its reason.
fn condition<'p>(policy: &'p FieldPolicy, type_: &str) -> (&'p str, &'p str) {
    let status = policy.status.as_ref();
    let found = status.and_then(|status| conditions::find(&status.conditions, type_));
    found.map_or(("", ""), |found| (&found.status, &found.reason))
}

/// Waits until a policy has this number of violations.
async fn violated(server: &TestServer, name: &str, total: usize) -> FieldPolicy {
    let has_total = |policy: &FieldPolicy| {
        let status = policy.status.as_ref();
        condition(policy, "Watching") == ("True", "Watched")
            && status.is_some_and(|status| status.total_violations == total)
    };
    eventually(&policies(server), name, has_total).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_builtin_kind_are_audited() {
    let (server, running) = start().await;
    let maps = server.api::<ConfigMap>();
    let create = async |name: &str, labels: Value| {
        let map = json!({"metadata": {"name": name, "labels": labels}});
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    };
    create("good", json!({"team": "shop"})).await;
    create("early", json!({"team": "unknown"})).await;
    let rules = json!([{"field": "/metadata/labels/team", "allowed": ["shop", "search"]}]);
    create_policy(&server, "teams", &json!({"kind": "ConfigMap"}), &rules).await;
    violated(&server, "teams", 1).await;
    create("late", json!({})).await;
    let policy = violated(&server, "teams", 2).await;
    assert_eq!(condition(&policy, "Compliant"), ("False", "Violations"));
    let listed = &policy.status.as_ref().unwrap().violations;
    assert_eq!(listed[0].message, "/metadata/labels/team is none of shop, search");
    assert_eq!(
        (&*listed[1].name, &*listed[1].message),
        ("late", "/metadata/labels/team is missing")
    );

    let label = Patch::Merge(json!({"metadata": {"labels": {"team": "search"}}}));
    maps.patch("late", &PatchParams::default(), &label).await.unwrap();
    violated(&server, "teams", 1).await;
    maps.delete("early", &DeleteParams::default()).await.unwrap();
    let policy = violated(&server, "teams", 0).await;
    assert_eq!(condition(&policy, "Compliant"), ("True", "NoViolations"));
    let events = server.api::<Event>();
    let warnings =
        ListParams::default().fields("reason=PolicyViolated,involvedObject.kind=ConfigMap");
    assert_eq!(events.list(&warnings).await.unwrap().items.len(), 2);
    running.stop().await.unwrap();
}

/// Returns the CustomResourceDefinition of widgets, and the role that permits the operator to watch them.
fn widgets() -> [Value; 3] {
    let role = "rbac.authorization.k8s.io";
    [
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    }},
                }],
            },
        }),
        json!({
            "apiVersion": format!("{role}/v1"), "kind": "ClusterRole", "metadata": {"name": "widgets"},
            "rules": [{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list", "watch"]}],
        }),
        json!({
            "apiVersion": format!("{role}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "widgets"},
            "roleRef": {"apiGroup": role, "kind": "ClusterRole", "name": "widgets"},
            "subjects": [{"kind": "ServiceAccount", "name": "policy-operator", "namespace": "default"}],
        }),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_kind_may_be_defined_after_its_policy_and_go_again() {
    let (server, running) = start().await;
    let target = json!({"group": "example.com", "kind": "Widget"});
    create_policy(&server, "owners", &target, &json!([{"field": "/spec/owner"}])).await;
    let is_absent = |policy: &FieldPolicy| condition(policy, "Watching") == ("False", "NotServed");
    let policy = eventually(&policies(&server), "owners", is_absent).await.unwrap();
    assert_eq!(condition(&policy, "Compliant"), ("Unknown", "NotWatched"));

    let [definition, role, binding] = widgets();
    for (object, kind) in [(role, "ClusterRole"), (binding, "ClusterRoleBinding")] {
        let kind = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind);
        let api = Api::all_with(server.client(), &ApiResource::from_gvk(&kind));
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    server.crd_value(&definition).await.unwrap();
    violated(&server, "owners", 0).await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let api: Api<DynamicObject> = Api::default_namespaced_with(server.client(), &resource);
    for (name, spec) in [("a", json!({"owner": "ann"})), ("b", json!({}))] {
        let widget = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
        api.create(&PostParams::default(), &widget).await.unwrap();
    }
    let policy = violated(&server, "owners", 1).await;
    assert_eq!(policy.status.unwrap().violations[0].name, "b");

    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<DynamicObject> =
        Api::all_with(server.client(), &ApiResource::from_gvk(&kind));
    definitions.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    eventually(&policies(&server), "owners", is_absent).await.unwrap();
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_the_operator_may_not_list_is_reported() {
    let (server, running) = start().await;
    let rules = json!([{"field": "/metadata/labels/team"}]);
    create_policy(&server, "secrets", &json!({"kind": "Secret"}), &rules).await;
    create_policy(&server, "maps", &json!({"kind": "ConfigMap"}), &rules).await;
    let is_forbidden =
        |policy: &FieldPolicy| condition(policy, "Watching") == ("False", "NotListed");
    let policy = eventually(&policies(&server), "secrets", is_forbidden).await.unwrap();
    let status = policy.status.unwrap();
    let watching = conditions::find(&status.conditions, "Watching").unwrap();
    assert!(watching.message.contains("forbidden"), "{}", watching.message);
    violated(&server, "maps", 0).await;
    running.stop().await.unwrap();
}
