//! Tests of panics: one while the graph changes ends the controller, and one while the graph is read does not.

use super::{DESCRIPTOR, GarbageCollector, sync_errors};
use crate::{options::Options, wiring::descriptor::ControllerContext};
use evenkeel_api::time::Timestamp;
use evenkeel_apiserver::Server;
use evenkeel_runtime::{
    cache::Caches,
    client::Client,
    clock::Clock,
    controller::Env,
    queue::Priority,
    tasks::{Tasks, catch_panic},
};
use prometheus::Registry;
use std::{sync::Arc, time::Duration};

/// Starts the controller on an empty server.
async fn collector(tasks: &Tasks) -> GarbageCollector {
    let (clock, registry) = (Clock::starting_at(Timestamp::UNIX_EPOCH), Registry::new());
    let server = Server::builder().build().await.unwrap();
    let client = Client::new(kube::Client::new(server.service(), "default"), clock.clone());
    let env = Env::new(
        client.clone(),
        Caches::new(client.clone(), clock.clone(), &registry),
        clock,
        &registry,
    );
    let writer = client.clone();
    let clients = Arc::new(move |_: &str| writer.clone());
    let context = ControllerContext::new(env, clients, tasks.clone(), registry, Options::default());
    let collector = GarbageCollector::new(&context, client, 1, sync_errors());
    let (running, stop) = (collector.clone(), tasks.token());
    tasks.spawn(DESCRIPTOR.name, async move { running.run(stop).await });
    collector
}

/// Lets the controller run for 10 s of the paused clock.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn panic_while_changing_the_graph_stops_the_controller() {
    for is_complete in [false, true] {
        let tasks = Tasks::new();
        let collector = collector(&tasks).await;
        if is_complete {
            collector.0.complete.set();
        }
        settle().await;
        let changing = collector.clone();
        let panicked = catch_panic(async move {
            let _graph = changing.graph_mut();
            panic!("half way");
        });
        assert_eq!(panicked.await, Err::<(), _>("half way".to_owned()));
        assert_eq!(tasks.supervisor().failures(), []);
        // The next access to the graph finds the panic.
        drop(collector.graph());
        settle().await;
        let failures = tasks.supervisor().failures();
        let [failure] = &failures[..] else { panic!("{failures:?}") };
        assert_eq!(failure.name, DESCRIPTOR.name);
        assert!(tasks.running().is_empty(), "no worker deletes by an incomplete graph");
    }
}

#[tokio::test(start_paused = true)]
async fn panic_while_reading_the_graph_is_retried() {
    let tasks = Tasks::new();
    let collector = collector(&tasks).await;
    collector.0.complete.set();
    settle().await;
    let (reading, queue) = (collector.clone(), &collector.0.attempt_to_delete);
    let uid: super::Uid = "a".into();
    let work = async move {
        let _graph = reading.graph();
        panic!("cannot decide");
    };
    queue.process(&uid, work).await;
    settle().await;
    assert!(!collector.0.broken.is_set());
    // The worker retries the object, and processes further ones.
    queue.add("b".into(), Priority::NORMAL);
    settle().await;
    let snapshot = queue.snapshot(10);
    assert_eq!((snapshot.ready, snapshot.running, snapshot.delayed), (0, 0, 0));
    assert_eq!(tasks.supervisor().failures(), []);
}
