//! Measures the time from nothing to a server's first answer: of the first server of a process, and of further ones.
//!
//!     cargo run --release -p evenkeel-test --example startup

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use evenkeel_test::{Clock, TestServer};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use std::time::Duration;

/// Number of servers after the first one.
const SERVERS: usize = 200;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    println!("first server  {:?}", start_and_write().await?);
    let mut times = Vec::with_capacity(SERVERS);
    for _ in 0..SERVERS {
        times.push(start_and_write().await?);
    }
    times.sort_unstable();
    println!("further ones  {:?} (median), {:?} (least)", times[SERVERS / 2], times[0]);
    Ok(())
}

/// Starts a server and creates a ConfigMap on it. Returns how long that takes.
async fn start_and_write() -> anyhow::Result<Duration> {
    let clock = Clock::system();
    let begin = clock.instant();
    let maps: Api<ConfigMap> = Api::default_namespaced(TestServer::start().await?.client());
    let mut map = ConfigMap::default();
    map.metadata.name = Some("first".to_owned());
    maps.create(&PostParams::default(), &map).await?;
    Ok(clock.instant() - begin)
}
