//! Three replicas of one operator, which split its objects.

use crate::{create, map, merge};
use evenkeel_runtime::{prelude::*, tasks::Halt};
use evenkeel_test::TestServer;
use http::{Method, Request};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Secret},
};
use kube::{Api, client::Body};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const OBJECTS: usize = 300;

/// Passes and writes: replica and object.
type Log = Arc<Mutex<Vec<(usize, String)>>>;

/// The replicas of each object.
type Replicas = BTreeMap<String, BTreeSet<usize>>;

fn take(log: &Log) -> Replicas {
    let mut replicas = Replicas::new();
    for (replica, object) in log.lock().unwrap().drain(..) {
        replicas.entry(object).or_default().insert(replica);
    }
    replicas
}

struct Replica {
    stop: CancellationToken,
    halt: Halt,
    ended: JoinHandle<()>,
}

#[derive(Default)]
struct Logs {
    passes: Log,
    writes: Log,
}

impl Logs {
    /// Starts a replica that copies each ConfigMap into a Secret, and logs its passes and its writes of Secrets.
    #[expect(clippy::disallowed_methods, reason = "the test's end aborts the manager")]
    fn start(&self, number: usize, server: &TestServer) -> Replica {
        let (inner, writes) = (server.client(), Arc::clone(&self.writes));
        let service = tower::service_fn(move |request: Request<Body>| {
            let secret = request.uri().path().strip_prefix("/api/v1/namespaces/default/secrets/");
            if let Some(secret) = secret.filter(|_| request.method() != Method::GET) {
                writes.lock().unwrap().push((number, secret.to_owned()));
            }
            let inner = inner.clone();
            async move { inner.send(request).await }
        });
        let setup = Setup::simulated(server.clock().clone(), &format!("replica-{number}"));
        let manager = Manager::builder(kube::Client::new(service, "default"))
            .component("copier")
            .setup(setup)
            .cache(CacheOptions::<ConfigMap>::in_namespace("default"))
            .sharding(Sharding::new("copier", 16).by(ShardBy::Object))
            .build()
            .unwrap();
        manager
            .controller::<ConfigMap>()
            .owns::<Secret>()
            .state((number, Arc::clone(&self.passes)))
            .reconcile(async |map: Arc<ConfigMap>, cx: Context<(usize, Log)>| {
                let (number, passes) = cx.state();
                passes.lock().unwrap().push((*number, cx.key().name.to_string()));
                let mut secret = Secret { string_data: map.data.clone(), ..Secret::default() };
                secret.metadata.name = map.metadata.name.clone();
                secret.controlled_by(&*map)?;
                cx.apply(&secret).await?;
                Ok(Outcome::Settled)
            });
        let (stop, halt) = (CancellationToken::new(), Halt::default());
        let run = manager.run(stop.clone().cancelled_owned());
        let ended = tokio::spawn(halt.over(async move { run.await.unwrap() }));
        Replica { stop, halt, ended }
    }

    /// Changes all objects. Returns the one replica that reconciled and wrote each of them.
    async fn round(&self, maps: &Api<ConfigMap>, round: u32) -> BTreeMap<String, usize> {
        let _ = (take(&self.passes), take(&self.writes));
        for n in 0..OBJECTS {
            merge(maps, &name(n), &json!({"data": {"round": round.to_string()}})).await;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        let (passes, writes) = (take(&self.passes), take(&self.writes));
        assert_eq!(passes.len(), OBJECTS);
        assert_eq!(passes, writes, "each is written by the one that reconciles it");
        let only = |(object, replicas): (String, BTreeSet<usize>)| {
            assert_eq!(replicas.len(), 1, "{object} is reconciled by {replicas:?}");
            (object, replicas.into_iter().next().unwrap())
        };
        passes.into_iter().map(only).collect()
    }
}

fn name(n: usize) -> String {
    format!("map-{n}")
}

#[tokio::test(start_paused = true)]
async fn replicas_split_the_objects_and_take_over() {
    let server = TestServer::start().await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let leases: Api<Lease> = Api::default_namespaced(server.client());
    let logs = Logs::default();
    let mut replicas: Vec<Replica> = (0..3).map(|number| logs.start(number, &server)).collect();
    for n in 0..OBJECTS {
        create(&maps, map(&name(n))).await;
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(take(&logs.passes).len(), OBJECTS);
    let first = logs.round(&maps, 1).await;
    for replica in 0..3 {
        let n_own = first.values().filter(|own| **own == replica).count();
        assert!((50..=150).contains(&n_own), "replica {replica} has {n_own} objects");
    }
    assert_eq!(leases.list(&Default::default()).await.unwrap().items.len(), 16 + 3);

    // A replica stops gracefully: the others take its objects immediately.
    let stopped = replicas.remove(0);
    stopped.stop.cancel();
    stopped.ended.await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let taken = take(&logs.passes);
    for object in first.iter().filter(|(_, own)| **own == 0).map(|(object, _)| object) {
        assert!(taken.get(object).is_some_and(|by| !by.contains(&0)), "{object} waits");
    }
    let second = logs.round(&maps, 2).await;
    let moved = first.iter().filter(|(object, own)| **own != 0 && second[*object] != **own);
    assert_eq!(moved.count(), 0, "the others keep theirs");

    // A replica is killed: the last one takes its objects after the lease duration.
    replicas[0].halt.halt();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(take(&logs.passes).is_empty());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let taken = take(&logs.passes);
    let lost: Vec<_> = second.iter().filter(|(_, own)| **own == 1).collect();
    assert!(!lost.is_empty() && lost.iter().all(|(object, _)| taken.contains_key(*object)));
    let third = logs.round(&maps, 3).await;
    assert!(third.values().all(|own| *own == 2));
}
