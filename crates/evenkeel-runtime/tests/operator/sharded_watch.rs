//! Replicas that cache only the objects of their shards, with a server that filters (KEP-5866), and with a server that does
//! not.

use evenkeel_runtime::{prelude::*, sharding::Defect, tasks::Halt};
use evenkeel_test::TestServer;
use http::{Method, Request};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, PostParams},
    client::Body,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Replicas and the keys that they reconciled.
type Passes = Arc<Mutex<Vec<(usize, String)>>>;

/// What differs between the tests.
#[derive(Clone, Copy)]
struct Case {
    by: ShardBy,
    /// Whether the server has the feature gate.
    server_filters: bool,
    /// Whether each replica caches all Secrets. Then the Secrets of a new shard enqueue keys before the ConfigMaps are listed.
    caches_all_secrets: bool,
    /// Whether a shard is served before its ConfigMaps are listed.
    is_defective: bool,
}

/// Queries of a replica's lists and watches of ConfigMaps.
type Queries = Arc<Mutex<Vec<String>>>;

struct Replica {
    manager: Manager,
    queries: Queries,
    stop: CancellationToken,
    halt: Halt,
    ended: JoinHandle<()>,
}

impl Replica {
    /// Starts a replica that copies each ConfigMap into a Secret of its namespace.
    #[expect(clippy::disallowed_methods, reason = "the test's end aborts the manager")]
    fn start(
        number: usize,
        server: &TestServer,
        case: Case,
        [passes, absent]: &[Passes; 2],
    ) -> Self {
        let (inner, queries) = (server.client(), Queries::default());
        let log = Arc::clone(&queries);
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path();
            if request.method() == Method::GET && path.ends_with("/configmaps") {
                let query = request.uri().query().unwrap_or_default();
                log.lock().unwrap().push(query.to_owned());
            }
            let inner = inner.clone();
            async move { inner.send(request).await }
        });
        let setup = Setup::simulated(server.clock().clone(), &format!("replica-{number}"));
        let sharding = Sharding::new("copier", 16).by(case.by).sharded_watch::<ConfigMap>();
        let sharding = match case.caches_all_secrets {
            true => sharding,
            false => sharding.sharded_watch::<Secret>(),
        };
        let sharding = match case.is_defective {
            true => sharding.plant(Defect::ServeUnlisted),
            false => sharding,
        };
        let manager = Manager::builder(kube::Client::new(service, "default"))
            .component("copier")
            .setup(setup)
            .sharding(sharding)
            .build()
            .unwrap();
        manager
            .controller::<ConfigMap>()
            .owns::<Secret>()
            .state((number, Arc::clone(passes), Arc::clone(absent)))
            .reconcile_requests(async |request, cx: Context<(usize, Passes, Passes)>| {
                let (number, passes, absent) = cx.state();
                let Key { namespace, name } = &request.key;
                let map = cx.get::<ConfigMap>(namespace, name)?;
                passes.lock().unwrap().push((*number, request.key.to_string()));
                let Some(map) = map else {
                    absent.lock().unwrap().push((*number, request.key.to_string()));
                    return Ok(Outcome::Settled);
                };
                let mut secret = Secret { string_data: map.data.clone(), ..Secret::default() };
                secret.metadata.name = map.metadata.name.clone();
                secret.controlled_by(&*map)?;
                cx.apply(&secret).await?;
                Ok(Outcome::Settled)
            });
        let (stop, halt) = (CancellationToken::new(), Halt::default());
        let (run, over) = (manager.clone(), stop.clone().cancelled_owned());
        let ended = tokio::spawn(halt.over(async move { run.run(over).await.unwrap() }));
        Self { manager, queries, stop, halt, ended }
    }

    /// Counts the cached objects of a resource.
    fn cached(&self, resource: &str) -> usize {
        let states = self.manager.env().caches.states();
        states.iter().find(|state| state.resource == resource).unwrap().objects
    }
}

/// Returns the replicas that reconciled each key since the last call.
fn take(passes: &Passes) -> BTreeMap<String, BTreeSet<usize>> {
    let mut replicas = BTreeMap::<String, BTreeSet<usize>>::new();
    for (replica, key) in passes.lock().unwrap().drain(..) {
        replicas.entry(key).or_default().insert(replica);
    }
    replicas
}

const NAMESPACES: usize = 40;

/// Names that differ in their first characters, which the hash of the KEP spreads.
fn namespace(n: usize) -> String {
    format!("{n}-tenant")
}

/// Changes all ConfigMaps, including those that the server itself creates. Returns their number.
async fn touch(server: &TestServer, round: usize) -> usize {
    let all: Api<ConfigMap> = Api::all(server.client());
    let all = all.list(&ListParams::default()).await.unwrap().items;
    for mut object in all.clone() {
        let (namespace, name) = (object.namespace().unwrap(), object.name_any());
        object.labels_mut().insert("round".to_owned(), round.to_string());
        let maps: Api<ConfigMap> = Api::namespaced(server.client(), &namespace);
        maps.replace(&name, &PostParams::default(), &object).await.unwrap();
    }
    all.len()
}

async fn replicas_split_their_caches(case: Case) {
    let Case { by, server_filters, caches_all_secrets, is_defective } = case;
    let server = TestServer::builder()
        .configure(|server| server.sharded_list_and_watch(server_filters))
        .start()
        .await
        .unwrap();
    for n in 0..NAMESPACES {
        let (namespaces, name) = (Api::all(server.client()), namespace(n));
        let mut object = Namespace::default();
        object.metadata.name = Some(name.clone());
        namespaces.create(&PostParams::default(), &object).await.unwrap();
        let mut object = ConfigMap::default();
        object.metadata.name = Some("settings".to_owned());
        let maps = Api::namespaced(server.client(), &name);
        maps.create(&PostParams::default(), &object).await.unwrap();
    }
    let logs = [Passes::default(), Passes::default()];
    let [passes, absent] = &logs;
    let mut replicas: Vec<Replica> =
        (0..3).map(|number| Replica::start(number, &server, case, &logs)).collect();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let started = take(passes).len();
    let n_maps = touch(&server, 1).await;
    assert_eq!(started, n_maps);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let first = take(passes);
    assert_eq!(first.len(), n_maps);
    assert!(first.values().all(|replicas| replicas.len() == 1), "{first:?}");
    for (number, replica) in replicas.iter().enumerate() {
        let n_own = first.values().filter(|by| by.contains(&number)).count();
        assert!(n_own > 0, "replica {number} has nothing");
        let cached = ["configmaps", "secrets"].map(|resource| replica.cached(resource));
        let n_secrets = if caches_all_secrets { n_maps } else { n_own };
        assert_eq!(cached, [n_own, n_secrets], "replica {number}");
        let sends = replica.queries.lock().unwrap().iter().any(|it| it.contains("shardSelector="));
        assert_eq!(sends, by == ShardBy::NamespaceRange, "replica {number}");
    }

    // A replica stops gracefully: the others list the objects of its shards, and reconcile each of them.
    let stopped = replicas.remove(0);
    stopped.stop.cancel();
    stopped.ended.await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let taken = take(passes);
    for (key, by) in first.iter().filter(|(_, by)| by.contains(&0)) {
        assert!(taken.get(key).is_some_and(|taken| taken.is_disjoint(by)), "{key} waits");
    }
    assert_eq!(replicas.iter().map(|it| it.cached("configmaps")).sum::<usize>(), n_maps);

    // A replica is killed: the last one caches and reconciles all objects.
    replicas[0].halt.halt();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let _ = take(passes);
    touch(&server, 2).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let third = take(passes);
    assert_eq!(third.len(), n_maps);
    assert!(third.values().all(|replicas| *replicas == BTreeSet::from([2])), "{third:?}");
    assert_eq!(["configmaps", "secrets"].map(|it| replicas[1].cached(it)), [n_maps; 2]);

    // A new replica takes half of the objects, which the old replica drops.
    replicas.push(Replica::start(3, &server, case, &logs));
    tokio::time::sleep(Duration::from_secs(20)).await;
    let _ = take(passes);
    touch(&server, 3).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let fourth = take(passes);
    for (number, replica) in [(2, &replicas[1]), (3, &replicas[2])] {
        let n_own = fourth.values().filter(|by| by.contains(&number)).count();
        assert_eq!(replica.cached("configmaps"), n_own, "replica {number}");
        assert!(n_own > 0 && n_own < n_maps, "replica {number} has {n_own}");
    }
    let absent = absent.lock().unwrap();
    assert_eq!(!absent.is_empty(), is_defective, "taken for deleted ones: {absent:?}");
}

const NAMESPACE_RANGE: Case = Case {
    by: ShardBy::NamespaceRange,
    server_filters: true,
    caches_all_secrets: false,
    is_defective: false,
};

#[tokio::test(start_paused = true)]
async fn a_server_with_the_feature_gate_filters() {
    replicas_split_their_caches(NAMESPACE_RANGE).await;
}

#[tokio::test(start_paused = true)]
async fn replicas_filter_what_a_server_without_the_feature_gate_sends() {
    let case = Case { server_filters: false, caches_all_secrets: true, ..NAMESPACE_RANGE };
    replicas_split_their_caches(case).await;
}

#[tokio::test(start_paused = true)]
async fn replicas_filter_by_a_hash_that_servers_do_not_have() {
    let case = Case { by: ShardBy::Namespace, caches_all_secrets: true, ..NAMESPACE_RANGE };
    replicas_split_their_caches(case).await;
}

#[tokio::test(start_paused = true)]
async fn the_test_finds_objects_that_are_taken_for_deleted_ones() {
    let case = Case { caches_all_secrets: true, is_defective: true, ..NAMESPACE_RANGE };
    replicas_split_their_caches(case).await;
}
