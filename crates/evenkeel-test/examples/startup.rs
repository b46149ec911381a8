//! Measures the time from the start to the first response of a server, and of clusters with few and with all controllers, for
//! the first start in a process and for further starts.
//!
//!     cargo run --release -p evenkeel-test --example startup

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use evenkeel_test::{Clock, DEPLOYMENT_CONTROLLERS, TestCluster, TestServer};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::PostParams};
use std::time::Duration;

/// Number of servers after the first one.
const SERVERS: usize = 200;

/// Number of clusters after the first one.
const CLUSTERS: usize = 20;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> anyhow::Result<()> {
    let server = async || write(TestServer::start().await?.client()).await;
    measure("server", SERVERS, server).await?;
    let few = async || {
        let builder = TestCluster::builder().controllers(DEPLOYMENT_CONTROLLERS);
        write(builder.start().await?.client()).await
    };
    measure("cluster with controllers of Deployments", CLUSTERS, few).await?;
    let all = async || write(TestCluster::start().await?.client()).await;
    measure("cluster with all controllers", CLUSTERS, all).await
}

/// Prints the durations of the first start and of further starts.
async fn measure(
    what: &str,
    count: usize,
    start: impl AsyncFn() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut times = Vec::with_capacity(count);
    let first = time(&start).await?;
    for _ in 0..count {
        times.push(time(&start).await?);
    }
    times.sort_unstable();
    println!(
        "{what}: first {first:?}, further {:?} (median), {:?} (least)",
        times[count / 2],
        times[0]
    );
    Ok(())
}

/// Returns the real time that a start takes, even if tokio's time is paused.
async fn time(start: &impl AsyncFn() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let clock = Clock::system();
    let begin = clock.now();
    start().await?;
    Ok(Duration::try_from(clock.now().duration_since(begin)).unwrap_or_default())
}

/// Creates a ConfigMap.
async fn write(client: Client) -> anyhow::Result<()> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let mut map = ConfigMap::default();
    map.metadata.name = Some("first".to_owned());
    maps.create(&PostParams::default(), &map).await?;
    Ok(())
}
