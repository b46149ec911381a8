//! The operator on a whole cluster in this process, in virtual time.

use evenkeel_test::{TestCluster, TestServerBuilder, eventually, eventually_gone};
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use site_operator::{Dns, Site, SiteSpec, operator};

/// Returns a check that all of a site's replicas are ready.
fn ready(replicas: i32) -> impl Fn(&Site) -> bool {
    move |site| site.status.as_ref().is_some_and(|status| status.ready == replicas)
}

#[tokio::test(start_paused = true)]
async fn a_site_becomes_ready_scales_and_goes() {
    let builder = TestCluster::builder().server(TestServerBuilder::crd::<Site>);
    let cluster = builder.start().await.unwrap();
    let dns = Dns::default();
    let names = dns.0.clone();
    let running = cluster.run(move |kube, setup| operator(kube, setup, dns.clone()));

    let sites = cluster.api::<Site>();
    let blog = Site::new("blog", SiteSpec { image: "nginx".to_owned(), replicas: 2 });
    sites.create(&PostParams::default(), &blog).await.unwrap();
    eventually(&sites, "blog", ready(2)).await.unwrap();
    assert!(names.lock().unwrap().contains("default/blog"));
    let services = cluster.api::<Service>();
    services.get("blog").await.unwrap();

    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    sites.patch("blog", &PatchParams::default(), &scale).await.unwrap();
    eventually(&sites, "blog", ready(3)).await.unwrap();

    sites.delete("blog", &DeleteParams::default()).await.unwrap();
    eventually_gone(&sites, "blog").await.unwrap();
    assert!(names.lock().unwrap().is_empty());
    eventually_gone(&services, "blog").await.unwrap();
    running.stop().await.unwrap();
    let ours = ListParams::default().fields("involvedObject.kind=Site,reason=Ready");
    let events = cluster.api::<Event>().list(&ours).await.unwrap();
    assert_eq!(events.iter().filter_map(|event| event.count).sum::<i32>(), 2, "it was ready twice");
}
