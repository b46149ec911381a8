//! The operator of web applications.

use crate::{Running, TIMEOUT, define};
use evenkeel_runtime::{clock::Clock, prelude::*};
use evenkeel_test::{eventually, eventually_gone};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, CustomResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{json, to_value};
use webapp_operator::{Dns, WebApp, WebAppSpec, operator};

pub(crate) async fn becomes_ready_scales_and_goes(kube: &Client, of_operator: &Client) {
    define(kube, to_value(WebApp::crd()).unwrap()).await;
    let dns = Dns::default();
    let setup = Setup::simulated(Clock::system(), "webapp");
    let running = Running::start(operator(of_operator.clone(), setup, dns.clone()).unwrap());
    let apps: Api<WebApp> = Api::default_namespaced(kube.clone());
    let app = WebApp::new("shop", WebAppSpec { image: "nginx".to_owned(), replicas: 2 });
    apps.create(&PostParams::default(), &app).await.unwrap();
    for count in [2, 3] {
        let scale = Patch::Merge(json!({"spec": {"replicas": count}}));
        apps.patch("shop", &PatchParams::default(), &scale).await.unwrap();
        let is_ready = |app: &WebApp| {
            app.status.as_ref().is_some_and(|status| {
                status.ready_replicas == count && conditions::is_true(&status.conditions, "Ready")
            })
        };
        eventually(&apps, "shop", is_ready).within(TIMEOUT).await.unwrap();
    }
    assert_eq!(dns.names(), ["shop"]);
    apps.delete("shop", &DeleteParams::default()).await.unwrap();
    eventually_gone(&apps, "shop").within(TIMEOUT).await.unwrap();
    assert_eq!(dns.names(), [""; 0]);
    let deployments: Api<Deployment> = Api::default_namespaced(kube.clone());
    eventually_gone(&deployments, "shop").within(TIMEOUT).await.unwrap();
    running.stop().await;
}
