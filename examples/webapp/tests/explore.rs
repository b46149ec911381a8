//! The operator under faults: crashes, lost responses, conflicts, stale watches and the rest, one at each of its writes.

use evenkeel_test::{DEPLOYMENT_CONTROLLERS, Exploration, TestServerBuilder};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use webapp_operator::{Dns, WebApp, WebAppSpec, operator};

#[test]
fn the_operator_survives_a_fault_at_any_write() {
    let dns = Dns::default();
    let published = dns.clone();
    Exploration::new(move |kube, setup| operator(kube, setup, published.clone()))
        .server(TestServerBuilder::crd::<WebApp>)
        .controllers(DEPLOYMENT_CONTROLLERS)
        .nodes(1)
        .after_teardown(move || assert_eq!(dns.names(), [""; 0]))
        .max_runs(30) // EVENKEEL_RUNS=1000 does more.
        .run(async |user| {
            let apps = user.api::<WebApp>();
            let app = WebApp::new("shop", WebAppSpec { image: "nginx".to_owned(), replicas: 2 });
            apps.create(&PostParams::default(), &app).await?;
            user.settle().await;
            let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
            apps.patch("shop", &PatchParams::default(), &scale).await?;
            user.settle().await;
            let status = apps.get("shop").await?.status.expect("a status");
            assert_eq!(status.ready_replicas, 3);
            user.api::<Deployment>().get("shop").await?;
            Ok(())
        });
}
