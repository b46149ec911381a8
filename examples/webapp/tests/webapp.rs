//! The operator on a whole cluster in this process, in virtual time.

#[path = "../../permissions.rs"]
mod permissions;

use evenkeel_runtime::prelude::*;
use evenkeel_test::{TestCluster, TestServerBuilder, eventually, eventually_gone};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Event, Service},
};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use webapp_operator::{Dns, WebApp, WebAppSpec, operator};

#[tokio::test(start_paused = true)]
async fn an_application_becomes_ready_scales_and_goes() {
    let builder = TestCluster::builder().server(TestServerBuilder::crd::<WebApp>);
    let cluster = builder.start().await.unwrap();
    let dns = Dns::default();
    let published = dns.clone();
    // The operator has the permissions of its manifest.
    let manifest = include_str!("../manifests/operator.yaml");
    let groups = permissions::grant(&cluster.client(), manifest, "webapp-operator").await;
    let kube = cluster.client_as("system:serviceaccount:default:webapp-operator", groups);
    let running = cluster.run(move |_, setup| operator(kube.clone(), setup, published.clone()));

    let apps = cluster.api::<WebApp>();
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
    let services = cluster.api::<Service>();
    assert!(services.get("shop").await.unwrap().is_controlled_by(&apps.get("shop").await.unwrap()));

    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    apps.patch("shop", &PatchParams::default(), &scale).await.unwrap();
    eventually(&apps, "shop", ready(3)).await.unwrap();

    let image = Patch::Merge(json!({"spec": {"image": "nginx:2"}}));
    apps.patch("shop", &PatchParams::default(), &image).await.unwrap();
    let rolled_out = |web: &Deployment| {
        let status = web.status.clone().unwrap_or_default();
        let containers = web.spec.template.spec.as_ref().map(|spec| &*spec.containers);
        containers.unwrap_or_default().iter().any(|web| web.image.as_deref() == Some("nginx:2"))
            && status.observed_generation == web.metadata.generation
            && (status.updated_replicas, status.replicas) == (Some(3), Some(3))
    };
    eventually(&cluster.api(), "shop", rolled_out).await.unwrap();
    eventually(&apps, "shop", ready(3)).await.unwrap();

    apps.delete("shop", &DeleteParams::default()).await.unwrap();
    eventually_gone(&apps, "shop").await.unwrap();
    assert_eq!(dns.names(), [""; 0]);
    running.stop().await.unwrap();
    // The WebApp became ready when it was created and when it was scaled, and stayed ready during the rollout of another image.
    let of_app = ListParams::default().fields("involvedObject.kind=WebApp,reason=Ready");
    let events = cluster.api::<Event>().list(&of_app).await.unwrap();
    assert_eq!(events.iter().filter_map(|event| event.count).sum::<i32>(), 2);
}
