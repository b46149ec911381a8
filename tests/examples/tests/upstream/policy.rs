//! The operator of policies, with a policy on a built-in kind and one on a kind that is defined later.

use crate::{Running, TIMEOUT, define};
use evenkeel_runtime::{clock::Clock, prelude::*};
use evenkeel_test::eventually;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, CustomResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use policy_operator::{FieldPolicy, operator};
use serde_json::{Value, from_value, json, to_value};

async fn create_policy(kube: &Client, name: &str, target: &Value, field: &str) {
    let policies: Api<FieldPolicy> = Api::all(kube.clone());
    let policy = json!({
        "apiVersion": "policy.example.com/v1", "kind": "FieldPolicy", "metadata": {"name": name},
        "spec": {"target": target, "rules": [{"field": field}]},
    });
    policies.create(&PostParams::default(), &from_value(policy).unwrap()).await.unwrap();
}

/// Waits until a policy has a condition of this status, and so many violations.
async fn has(kube: &Client, name: &str, condition: (&str, &str), total: usize) {
    let policies: Api<FieldPolicy> = Api::all(kube.clone());
    let is_so = |policy: &FieldPolicy| {
        policy.status.as_ref().is_some_and(|status| {
            let found = conditions::find(&status.conditions, condition.0);
            found.is_some_and(|found| found.status == condition.1)
                && status.total_violations == total
        })
    };
    eventually(&policies, name, is_so).within(TIMEOUT).await.unwrap();
}

/// Lets the operator watch widgets.
async fn permit_widgets(kube: &Client) {
    let group = "rbac.authorization.k8s.io";
    for (kind, more) in [
        (
            "ClusterRole",
            json!({"rules": [{
                "apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list", "watch"],
            }]}),
        ),
        (
            "ClusterRoleBinding",
            json!({
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "widgets"},
                "subjects": [{
                    "kind": "ServiceAccount", "name": "policy-operator", "namespace": "default",
                }],
            }),
        ),
    ] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api: Api<DynamicObject> = Api::all_with(kube.clone(), &resource);
        let object = DynamicObject::new("widgets", &resource).data(more);
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}

pub(crate) async fn objects_are_audited_also_of_a_later_kind(kube: &Client, of_operator: &Client) {
    define(kube, to_value(FieldPolicy::crd()).unwrap()).await;
    let setup = Setup::simulated(Clock::system(), "policy");
    let running = Running::start(operator(of_operator.clone(), setup).unwrap());
    let deployments: Api<Deployment> = Api::default_namespaced(kube.clone());
    let labels = json!({"app": "web"});
    let web = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": "nginx"}]},
            },
        },
    });
    deployments.create(&PostParams::default(), &from_value(web).unwrap()).await.unwrap();
    let target = json!({"group": "apps", "kind": "Deployment"});
    create_policy(kube, "teams", &target, "/metadata/labels/team").await;
    has(kube, "teams", ("Compliant", "False"), 1).await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"team": "shop"}}}));
    deployments.patch("web", &PatchParams::default(), &label).await.unwrap();
    has(kube, "teams", ("Compliant", "True"), 0).await;

    let target = json!({"group": "example.com", "kind": "Widget"});
    create_policy(kube, "owners", &target, "/spec/owner").await;
    has(kube, "owners", ("Watching", "False"), 0).await;
    permit_widgets(kube).await;
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    define(kube, definition).await;
    has(kube, "owners", ("Watching", "True"), 0).await;
    let widget = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let widgets: Api<DynamicObject> = Api::default_namespaced_with(kube.clone(), &widget);
    let object = DynamicObject::new("a", &widget).data(json!({"spec": {}}));
    widgets.create(&PostParams::default(), &object).await.unwrap();
    has(kube, "owners", ("Compliant", "False"), 1).await;
    running.stop().await;
}
