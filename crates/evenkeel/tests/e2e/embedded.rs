//! The embedded API server in this process, without a socket, in virtual time.

use crate::{
    cloud,
    cluster::{Cluster, Inside, Intervals},
    nodes,
};
use evenkeel_plane::{Plane, PlaneOptions};
use evenkeel_runtime::{client::Client, clock::Clock};
use evenkeel_test::TestServer;
use futures::future::LocalBoxFuture;
use std::time::Duration;

/// Intervals of waiting. They are long because virtual time is cheap.
const INTERVALS: Intervals =
    Intervals { poll: Duration::from_millis(20), hold: Duration::from_secs(600) };

/// Runs a case on its own cluster.
pub(crate) async fn run(case: impl for<'a> FnOnce(&'a Cluster) -> LocalBoxFuture<'a, ()>) {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
    let server = TestServer::builder()
        .enable_admission_plugin("ServiceAccount")
        .clock(clock.clone())
        .seed(1)
        .start()
        .await
        .expect("a server in memory");
    let (kube, server) = (server.client(), server.server().clone());
    let cloud = cloud::provider();
    let (ca, key) = (server.ca_pem(), server.ca_key_pem());
    let mut options = PlaneOptions::all(nodes::OPEN).with_ca(ca).with_authority(ca, key);
    options.cloud = Some(cloud.clone());
    options.nodes.nodes.extend(nodes::quiet());
    options.controller_options.nodeipam = nodes::ranges();
    let plane = Plane::start(&kube, &clock, options).expect("every controller starts");
    plane.synced().await;
    plane.connect(&server).await.expect("nodes tell what they use");
    let client = Client::builder(kube, clock.clone()).qps(-1.0).user_agent("e2e").build();
    let inside =
        Inside { introspection: plane.introspection().clone(), registry: plane.registry().clone() };
    let cluster =
        Cluster::new(client, clock, INTERVALS).with_cloud(cloud).embedded(server.clone(), inside);
    case(&cluster).await;
    assert_eq!(plane.stop().await, Vec::<String>::new(), "everything stops on shutdown");
}

/// Not in the list of cases, because only the embedded server has nodes that report usage.
#[tokio::test(start_paused = true)]
async fn autoscaler_scales_to_load() {
    run(|cluster| Box::pin(crate::autoscaler::load_is_met(cluster))).await;
}

/// Not in the list of cases, because on a shared server it would disturb others.
#[tokio::test(start_paused = true)]
async fn malformed_objects_do_not_block_others() {
    run(|cluster| Box::pin(crate::hostile::a_hundred_bad_objects_harm_nobody(cluster))).await;
}

/// Not in the list of cases, because upstream's server publishes no endpoint of a loopback address.
#[tokio::test(start_paused = true)]
async fn kubernetes_service_has_endpoints() {
    run(|cluster| Box::pin(crate::services::include_the_server_itself(cluster))).await;
}
