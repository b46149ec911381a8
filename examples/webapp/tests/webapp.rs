//! The operator on a whole cluster in this process, in virtual time.

#[path = "../../rights.rs"]
mod rights;

use evenkeel_runtime::prelude::*;
use evenkeel_test::{TestCluster, TestServerBuilder, eventually, eventually_gone};
use k8s_openapi::api::core::v1::{Event, Service};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use webapp_operator::{Dns, WebApp, WebAppSpec, operator};

#[tokio::test(start_paused = true)]
async fn an_application_becomes_ready_scales_and_goes() {
    let builder = TestCluster::builder().server(TestServerBuilder::crd::<WebApp>);
    let cluster = builder.start().await.unwrap();
    let dns = Dns::default();
    let published = dns.clone();
    // The operator has the rights of its manifest.
    let manifest = include_str!("../manifests/operator.yaml");
    let groups = rights::grant(&cluster.client(), manifest, "webapp-operator").await;
    let kube = cluster.client_as("system:serviceaccount:default:webapp-operator", groups);
    let running = cluster.run(move |_, setup| operator(kube.clone(), setup, published.clone()));

    let apps: Api<WebApp> = Api::default_namespaced(cluster.client());
    let app = WebApp::new("shop", WebAppSpec { image: "nginx".to_owned(), replicas: 2 });
    apps.create(&PostParams::default(), &app).await.unwrap();
    let ready = |count: i32| {
        move |app: &WebApp| {
            app.status.as_ref().is_some_and(|status| {
                status.ready_replicas == count && conditions::is_true(&status.conditions, "Ready")
            })
        }
    };
    eventually(&apps, "shop", ready(2)).await.unwrap();
    assert_eq!(dns.names(), ["shop"]);
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    assert!(services.get("shop").await.unwrap().is_controlled_by(&apps.get("shop").await.unwrap()));

    let scale = Patch::Merge(json!({"spec": {"replicas": 4}}));
    apps.patch("shop", &PatchParams::default(), &scale).await.unwrap();
    eventually(&apps, "shop", ready(4)).await.unwrap();
    let events: Api<Event> = Api::default_namespaced(cluster.client());
    let of_app = ListParams::default().fields("involvedObject.kind=WebApp,reason=Ready");
    assert!(!events.list(&of_app).await.unwrap().items.is_empty());

    apps.delete("shop", &DeleteParams::default()).await.unwrap();
    eventually_gone(&apps, "shop").await.unwrap();
    assert_eq!(dns.names(), [""; 0]);
    running.stop().await.unwrap();
}
