//! A control plane comes to rest, and stays there.

use crate::fixtures::{DEPLOYMENTS, MINUTE, REST, deployment, ready, web_pods};
use evenkeel_sim::{Options, simulate};
use serde_json::json;

#[test]
fn ten_hours_without_a_write() {
    simulate(Options::default(), async |world| {
        world.settle(REST).await;
        let pods = web_pods(world).await;
        world.create("/api/v1/namespaces", &json!({ "metadata": { "name": "other" } })).await;
        world.create(DEPLOYMENTS, &deployment(3, "a")).await;
        ready(world, &pods, 3).await;
        world.settle(10 * MINUTE).await;
        let nodes = world.list("/api/v1/nodes").await;
        assert_eq!(nodes.len(), 3);
        world.stays_silent(600 * MINUTE).await;
    });
}
