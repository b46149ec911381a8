//! A control plane comes to rest, and stays there.

use crate::fixtures::{DEPLOYMENTS, MINUTE, REST, deployment, ready};
use evenkeel_sim::{Options, simulate};
use serde_json::json;

#[test]
fn ten_hours_without_a_write() {
    simulate(Options::default(), async |world| {
        world.settle(REST).await;
        world.create("/api/v1/namespaces", &json!({ "metadata": { "name": "other" } })).await;
        world.create(DEPLOYMENTS, &deployment(3, "a")).await;
        ready(world, 3).await;
        world.settle(10 * MINUTE).await;
        let nodes = world.list("/api/v1/nodes").await;
        assert_eq!(nodes.len(), 3);
        let before = world.log().len();
        world.pass(600 * MINUTE).await;
        let written = world.log().since(before);
        // A node reports its status every five minutes even if nothing has changed.
        let others: Vec<String> = written
            .iter()
            .filter(|write| !write.target.starts_with("/api/v1/nodes/node-"))
            .map(ToString::to_string)
            .collect();
        assert!(others.is_empty(), "{}", others.join("\n"));
    });
}
