//! The operator under faults: crashes, lost responses, conflicts, stale watches and the rest, one at each of its writes.

use evenkeel_test::{DEPLOYMENT_CONTROLLERS, Exploration, TestServerBuilder};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use site_operator::{Dns, Site, SiteSpec, operator};

#[test]
fn the_operator_survives_a_fault_at_any_write() {
    let dns = Dns::default();
    let names = dns.0.clone();
    Exploration::new(move |kube, setup| operator(kube, setup, dns.clone()))
        .server(TestServerBuilder::crd::<Site>)
        .controllers(DEPLOYMENT_CONTROLLERS)
        .nodes(1)
        .after_teardown(move || assert!(names.lock().unwrap().is_empty()))
        .max_runs(15) // One of each kind; EVENKEEL_RUNS=1000 does more.
        .run(async |user| {
            let sites = user.api::<Site>();
            let blog = Site::new("blog", SiteSpec { image: "nginx".to_owned(), replicas: 1 });
            sites.create(&PostParams::default(), &blog).await?;
            user.settle().await;
            let scale = Patch::Merge(json!({"spec": {"replicas": 2}}));
            sites.patch("blog", &PatchParams::default(), &scale).await?;
            user.settle().await;
            assert_eq!(sites.get("blog").await?.status.expect("a status").ready, 2);
            user.api::<Deployment>().get("blog").await?;
            Ok(())
        });
}
