//! Two servers on one etcd.

use std::collections::BTreeSet;

use evenkeel_apiserver::Server;
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};

use super::{MAPS, Sent, body, connect, map, sent, server, start_etcd, version, watch};

pub(crate) const SERVICES: &str = "/api/v1/namespaces/default/services";
/// Increments of each server.
const INCREMENTS: usize = 100;
/// Concurrent clients of each server.
const CLIENTS: usize = 10;
/// Number of Services that each client creates.
pub(crate) const SERVICES_OF_CLIENT: usize = 3;

/// Increments the counter once, and retries after conflicts.
pub(crate) async fn increment(client: &mut super::Connection) {
    loop {
        let mut counter = body(client.ask(&Sent::get(&format!("{MAPS}/counter"))).await, 200);
        let n: u64 = counter["data"]["n"].as_str().expect("a text").parse().expect("a number");
        counter["data"]["n"] = json!((n + 1).to_string());
        let answer = client.ask(&sent(Method::PUT, &format!("{MAPS}/counter"), counter)).await;
        match answer.code {
            200 => return,
            409 => {}
            code => panic!("{code}: {}", answer.body),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn increments_through_two_servers_lose_none() {
    let Some(etcd) = start_etcd() else { return };
    // Both make the first objects at the same time.
    let servers: Vec<Server> = join_all([server(&etcd.url), server(&etcd.url)]).await;
    let mut client = connect(&servers[0]).await;
    let counter = body(client.ask(&Sent::post(MAPS, map("counter", json!({"n": "0"})))).await, 201);
    let mut events = watch(&servers[1], &version(&counter)).await;
    let clients = (0..CLIENTS).flat_map(|_| &servers).map(async |server| {
        let mut client = connect(server).await;
        for _ in 0..INCREMENTS / CLIENTS {
            increment(&mut client).await;
        }
    });
    join_all(clients).await;
    // The second server observes the writes of both servers in order.
    for n in 1..=2 * INCREMENTS {
        let event = events.next().await.expect("an event");
        assert_eq!(event["object"]["data"]["n"], n.to_string(), "{event}");
    }
    let [first, second] = <[Server; 2]>::try_from(servers).expect("two servers");
    drop((client, first));
    let mut client = connect(&second).await;
    increment(&mut client).await;
    let event = events.next().await.expect("an event");
    assert_eq!(event["object"]["data"]["n"], (2 * INCREMENTS + 1).to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_of_two_servers_have_their_own_addresses_and_ports() {
    let Some(etcd) = start_etcd() else { return };
    let servers: Vec<Server> = join_all([server(&etcd.url), server(&etcd.url)]).await;
    let clients = (0..CLIENTS).flat_map(|_| servers.iter().enumerate()).enumerate();
    let made = join_all(clients.map(async |(index, (n, server))| {
        let mut client = connect(server).await;
        let mut made = Vec::new();
        for service in 0..SERVICES_OF_CLIENT {
            let spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
            let name = format!("s{n}-{index}-{service}");
            let service = json!({"metadata": {"name": name}, "spec": spec});
            made.push(body(client.ask(&Sent::post(SERVICES, service)).await, 201));
        }
        made
    }))
    .await;
    let made: Vec<Value> = made.into_iter().flatten().collect();
    let distinct = |pointer: &str| {
        let values =
            made.iter().map(|service| service.pointer(pointer).expect(pointer).to_string());
        values.collect::<BTreeSet<_>>().len()
    };
    assert_eq!(distinct("/spec/clusterIP"), made.len());
    assert_eq!(distinct("/spec/ports/0/nodePort"), made.len());

    // A server may allocate an address that the other one has released.
    let (mut first, mut second) = (connect(&servers[0]).await, connect(&servers[1]).await);
    let freed = &made[0];
    let path = format!("{SERVICES}/{}", freed["metadata"]["name"].as_str().expect("a name"));
    body(first.ask(&sent(Method::DELETE, &path, Value::Null)).await, 200);
    let port = &freed["spec"]["ports"][0]["nodePort"];
    let again = |name: &str| {
        let spec = json!({"type": "NodePort", "clusterIP": freed["spec"]["clusterIP"], "ports": [{"port": 80, "nodePort": port}]});
        Sent::post(SERVICES, json!({"metadata": {"name": name}, "spec": spec}))
    };
    body(second.ask(&again("again")).await, 201);
    let refused = body(first.ask(&again("once-more")).await, 422);
    let causes = refused["details"]["causes"].to_string();
    assert!(causes.contains("provided IP is already allocated"), "{causes}");
    assert!(causes.contains("provided port is already allocated"), "{causes}");
}
