//! One manager with controllers in several clusters, each an embedded server.

use crate::{copy, create, fixture, map, merge};
use evenkeel_runtime::{
    introspect::{CacheState, Listing},
    manager::ManagerError,
    prelude::*,
};
use evenkeel_test::{TestServer, eventually};
use http::Request as HttpRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PostParams},
    client::Body,
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

type Log = Arc<Mutex<Vec<String>>>;

fn take(log: &Log) -> Vec<String> {
    let mut lines = std::mem::take(&mut *log.lock().unwrap());
    lines.sort();
    lines.dedup();
    lines
}

/// A cluster, and a client that cannot reach the cluster while it is cut off.
struct Member {
    server: TestServer,
    kube: kube::Client,
    is_cut: Arc<AtomicBool>,
}

impl Member {
    async fn start() -> Self {
        let server = TestServer::start().await.unwrap();
        let (inner, is_cut) = (server.client(), Arc::new(AtomicBool::new(false)));
        let cut = Arc::clone(&is_cut);
        let service = tower::service_fn(move |request: HttpRequest<Body>| {
            let (inner, cut) = (inner.clone(), Arc::clone(&cut));
            async move {
                if cut.load(Ordering::SeqCst) {
                    return Err(std::io::Error::other("no route to host").into());
                }
                inner.send(request).await.map_err(tower::BoxError::from)
            }
        });
        let kube = kube::Client::new(service, "default");
        Self { server, kube, is_cut }
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.server.client())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::default_namespaced(self.server.client())
    }
}

/// Clusters by the host of their URL.
type Members = BTreeMap<&'static str, Member>;

async fn members<const N: usize>(names: [&'static str; N]) -> Members {
    let mut members = Members::new();
    for name in names {
        members.insert(name, Member::start().await);
    }
    members
}

/// Returns the provider of the clusters whose kubeconfigs are in the host's namespace `fleet`.
fn provider(members: &Members) -> SecretClusters {
    let clients: BTreeMap<String, kube::Client> =
        members.iter().map(|(name, member)| ((*name).to_owned(), member.kube.clone())).collect();
    SecretClusters::in_namespace("fleet").connect(move |kubeconfig| {
        let cluster = kubeconfig.clusters[0].cluster.as_ref().unwrap();
        let url: http::Uri = cluster.server.as_deref().unwrap().parse()?;
        let client = clients.get(url.host().unwrap());
        client.cloned().ok_or_else(|| Error::message(format!("{url} is not known")))
    })
}

fn kubeconfig(host: &str, user: &serde_json::Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("https://{host}")}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    })
    .to_string()
}

fn token() -> serde_json::Value {
    json!({"token": "s3cret"})
}

/// Creates the host's namespace and returns its Secrets.
async fn fleet(host: &TestServer) -> Api<Secret> {
    let namespaces: Api<Namespace> = Api::all(host.client());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "fleet"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    Api::namespaced(host.client(), "fleet")
}

async fn register(fleet: &Api<Secret>, name: &str, text: &str) {
    let secret = json!({
        "metadata": {"name": name, "labels": {LABEL: "true"}},
        "stringData": {"kubeconfig": text},
    });
    let secret = serde_json::from_value(secret).unwrap();
    fleet.create(&PostParams::default(), &secret).await.unwrap();
}

/// Declares a controller that copies ConfigMaps into Secrets, and logs its passes.
fn copier(log: &Log) -> impl Fn(&Cluster) + Send + Sync + 'static + use<> {
    let log = Arc::clone(log);
    move |cluster| {
        cluster.cache(CacheOptions::<ConfigMap>::in_namespace("default"));
        let log = Arc::clone(&log);
        cluster.controller::<ConfigMap>().owns::<Secret>().reconcile(
            move |map: Arc<ConfigMap>, cx: Context| {
                log.lock().unwrap().push(format!("{}/{}", cx.cluster(), map.name_any()));
                copy(map, cx)
            },
        );
    }
}

/// A manager that runs until it is stopped.
struct Running {
    stop: CancellationToken,
    ended: JoinHandle<Result<(), ManagerError>>,
}

#[expect(clippy::disallowed_methods, reason = "the test stops the manager")]
fn run(manager: Manager) -> Running {
    let stop = CancellationToken::new();
    let ended = tokio::spawn(manager.run(stop.clone().cancelled_owned()));
    Running { stop, ended }
}

async fn pause(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn names(clusters: &Clusters) -> Vec<String> {
    clusters.names().iter().map(ToString::to_string).collect()
}

/// Returns the controllers in the listing, with their clusters.
fn controllers(manager: &Manager) -> Vec<String> {
    let listing = manager.env().introspection.listing();
    let name = |known: &evenkeel_runtime::introspect::Summary| match &*known.cluster {
        "" => known.name.clone(),
        cluster => format!("{cluster}/{}", known.name),
    };
    listing.controllers.iter().map(name).collect()
}

/// Returns the clusters in the metric of passes.
fn clusters_in_metrics(manager: &Manager) -> Vec<String> {
    let families = manager.registry().gather();
    let passes = families.iter().find(|it| it.name() == "controller_runtime_reconcile_total");
    let labels = passes
        .unwrap()
        .get_metric()
        .iter()
        .flat_map(evenkeel_runtime::prometheus::proto::Metric::get_label);
    let clusters = labels.filter(|label| label.name() == "cluster");
    let mut clusters: Vec<_> = clusters.map(|label| label.value().to_owned()).collect();
    clusters.sort();
    clusters.dedup();
    clusters
}

#[tokio::test(start_paused = true)]
async fn clusters_come_and_go() {
    let host = fixture().await;
    let members = members(["east", "west", "north", "new-east"]).await;
    let fleet = fleet(&host.server).await;
    register(&fleet, "east", &kubeconfig("east", &token())).await;
    register(&fleet, "west", &kubeconfig("west", &token())).await;
    let manager = host.manager().leader_election_id("test").build().unwrap();
    let (observer, log) = (manager.clone(), Log::default());
    let clusters = manager.clusters(provider(&members), copier(&log));
    let running = run(manager);
    for member in members.values() {
        create(&member.maps(), map("web")).await;
    }
    pause(10).await;
    assert_eq!(take(&log), ["east/web", "west/web"]);
    for name in ["east", "west"] {
        eventually(&members[name].secrets(), "web", |_| true).await.unwrap();
    }
    assert_eq!(names(&clusters), ["east", "west"]);
    assert_eq!(controllers(&observer), ["secret-clusters", "east/configmap", "west/configmap"]);
    assert_eq!(clusters_in_metrics(&observer), ["east", "west"]);

    // A third one arrives.
    register(&fleet, "north", &kubeconfig("north", &token())).await;
    pause(10).await;
    assert_eq!(take(&log), ["north/web"]);

    // One leaves.
    fleet.delete("west", &DeleteParams::default()).await.unwrap();
    pause(10).await;
    assert_eq!(names(&clusters), ["east", "north"]);
    assert!(clusters.get("west").is_none() && clusters.get("east").is_some());
    assert_eq!(controllers(&observer), ["secret-clusters", "east/configmap", "north/configmap"]);
    assert_eq!(clusters_in_metrics(&observer), ["east", "north"]);
    for member in members.values() {
        create(&member.maps(), map("shop")).await;
    }
    pause(3600).await;
    assert_eq!(take(&log), ["east/shop", "north/shop"]);

    // The kubeconfig of one cluster changes: the controllers then run in the new cluster, and no longer in the old one.
    let changed = json!({"stringData": {"kubeconfig": kubeconfig("new-east", &token())}});
    let patch = Patch::Merge(changed);
    fleet.patch("east", &Default::default(), &patch).await.unwrap();
    pause(60).await;
    assert_eq!(take(&log), ["east/shop", "east/web"], "the objects of the other cluster");
    eventually(&members["new-east"].secrets(), "shop", |_| true).await.unwrap();
    merge(&members["east"].maps(), "web", &json!({"data": {"k": "v"}})).await;
    pause(60).await;
    assert!(take(&log).is_empty());

    // A change of the Secret that does not affect the kubeconfig changes nothing.
    let label = Patch::Merge(json!({"metadata": {"labels": {"l": "1"}}}));
    fleet.patch("east", &Default::default(), &label).await.unwrap();
    pause(60).await;
    assert!(take(&log).is_empty());

    running.stop.cancel();
    running.ended.await.unwrap().unwrap();
    assert_eq!(names(&clusters), [""; 0]);
    create(&members["north"].maps(), map("late")).await;
    pause(60).await;
    assert!(take(&log).is_empty());
}

/// Clusters, each named by a ConfigMap of the host.
struct Named(BTreeMap<String, kube::Client>);

impl ClusterProvider for Named {
    fn start(self, host: &Manager, clusters: Clusters) {
        let maps = host.cached::<ConfigMap>();
        let controller = host.controller::<ConfigMap>().named("named-clusters");
        controller.reconcile_requests(move |request, _: Context| {
            let (clusters, name) = (clusters.clone(), request.key.name.to_string());
            let exists = maps.get(&request.key.namespace, &name).is_some();
            let client = self.0.get(&name).cloned();
            async move {
                if !exists {
                    clusters.leave(&name);
                    return Ok(Outcome::Settled);
                }
                let client = async || client.ok_or_else(|| Error::message("not known"));
                clusters.engage(&name, name.as_bytes(), client).await?;
                Ok(Outcome::Settled)
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_of_ones_own_engages_and_leaves() {
    let host = fixture().await;
    let members = members(["east"]).await;
    let manager = host.manager().build().unwrap();
    let (observer, log) = (manager.clone(), Log::default());
    let known = [("east".to_owned(), members["east"].kube.clone())].into();
    let clusters = manager.clusters(Named(known), copier(&log));
    let _running = run(manager);
    create(&members["east"].maps(), map("web")).await;
    create(&host.maps(), map("east")).await;
    create(&host.maps(), map("west")).await;
    pause(10).await;
    assert_eq!(
        (names(&clusters), take(&log)),
        (vec!["east".to_owned()], vec!["east/web".to_owned()])
    );
    let errors = observer.env().introspection.controller("named-clusters").unwrap().errors;
    assert_eq!(errors[0].error, "not known");
    host.maps().delete("east", &DeleteParams::default()).await.unwrap();
    pause(10).await;
    assert_eq!(names(&clusters), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn one_replica_of_a_sharded_operator_connects_to_all_clusters() {
    let host = fixture().await;
    let members = members(["east", "west"]).await;
    let log = Log::default();
    let replica = |identity: &str| {
        let setup = Setup::simulated(host.server.clock().clone(), identity);
        let manager = host.manager().setup(setup).sharding(Sharding::new("test", 16));
        let manager = manager.build().unwrap();
        let list = members.iter().map(|(name, member)| (*name, member.kube.clone()));
        let clusters = manager.clusters(FixedClusters::new(list), copier(&log));
        (clusters, run(manager))
    };
    let (first, first_run) = replica("first");
    let (second, _second_run) = replica("second");
    for member in members.values() {
        create(&member.maps(), map("web")).await;
    }
    pause(60).await;
    let mut engaged = [names(&first), names(&second)];
    engaged.sort();
    assert_eq!(engaged, [vec![], vec!["east".to_owned(), "west".to_owned()]]);
    assert_eq!(take(&log), ["east/web", "west/web"]);
    first_run.stop.cancel();
    first_run.ended.await.unwrap().unwrap();
    pause(60).await;
    assert_eq!((names(&first).len(), names(&second).len()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn profiles_of_the_inventory_name_clusters() {
    let host = fixture().await;
    let names_of_group = json!({
        "plural": "clusterprofiles", "singular": "clusterprofile", "kind": "ClusterProfile",
        "listKind": "ClusterProfileList",
    });
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterprofiles.multicluster.x-k8s.io", "annotations": {
            "api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/4322",
        }},
        "spec": {
            "group": "multicluster.x-k8s.io", "scope": "Namespaced", "names": names_of_group,
            "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}],
        },
    });
    host.server.crd_value(&definition).await.unwrap();
    let members = members(["east"]).await;
    let fleet = fleet(&host.server).await;
    let kind = GroupVersionKind::gvk("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile");
    let resource = ApiResource::from_gvk_with_plural(&kind, "clusterprofiles");
    let profiles: Api<DynamicObject> =
        Api::namespaced_with(host.server.client(), "fleet", &resource);
    let object = DynamicObject::new("prod", &resource).data(json!({"spec": {}}));
    profiles.create(&PostParams::default(), &object).await.unwrap();
    let secret = json!({
        "metadata": {"name": "access", "labels": {
            "x-k8s.io/cluster-inventory-consumer": "test", "x-k8s.io/cluster-profile": "prod",
        }},
        "stringData": {"Config": kubeconfig("east", &token())},
    });
    let secret: Secret = serde_json::from_value(secret).unwrap();
    fleet.create(&PostParams::default(), &secret).await.unwrap();
    let manager = host.manager().build().unwrap();
    let clients: kube::Client = members["east"].kube.clone();
    let provider = ProfileClusters::of_consumer("test").connect(move |_| Ok(clients.clone()));
    let log = Log::default();
    let clusters = manager.clusters(provider, copier(&log));
    let _running = run(manager);
    create(&members["east"].maps(), map("web")).await;
    pause(60).await;
    assert_eq!(names(&clusters), [""; 0], "its health is not known");
    let condition = json!({"type": "ControlPlaneHealthy", "status": "True"});
    let status = json!({"status": {"conditions": [condition]}});
    let status = Patch::Merge(status);
    profiles.patch_status("prod", &Default::default(), &status).await.unwrap();
    pause(10).await;
    assert_eq!(
        (names(&clusters), take(&log)),
        (vec!["fleet/prod".to_owned()], vec!["fleet/prod/web".to_owned()])
    );
    profiles.delete("prod", &DeleteParams::default()).await.unwrap();
    pause(10).await;
    assert_eq!(names(&clusters), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_answer_stops_no_other() {
    let host = fixture().await;
    let members = members(["east", "west"]).await;
    members["west"].is_cut.store(true, Ordering::SeqCst);
    let manager = host.manager().build().unwrap();
    let (observer, log) = (manager.clone(), Log::default());
    let list = members.iter().map(|(name, member)| (*name, member.kube.clone()));
    let clusters = manager.clusters(FixedClusters::new(list), copier(&log));
    let running = run(manager);
    for member in members.values() {
        create(&member.maps(), map("web")).await;
    }
    pause(600).await;
    assert_eq!(
        (take(&log), names(&clusters)),
        (vec!["east/web".to_owned()], vec!["east".to_owned(), "west".to_owned()])
    );
    let Listing { caches, .. } = observer.env().introspection.listing();
    let of_west = |cache: &&CacheState| cache.cluster == "west" && cache.resource == "configmaps";
    let of_west = caches.iter().find(of_west).unwrap();
    let trouble = of_west.trouble.as_deref().unwrap();
    assert!(!of_west.synced && trouble.contains("no route to host"), "{trouble}");
    assert_eq!(observer.readiness().failures(), [], "only the host's caches count");

    members["west"].is_cut.store(false, Ordering::SeqCst);
    pause(120).await;
    assert_eq!(take(&log), ["west/web"]);

    // The cluster is cut off again, but the manager still stops in time.
    members["west"].is_cut.store(true, Ordering::SeqCst);
    merge(&members["west"].maps(), "web", &json!({"data": {"k": "v"}})).await;
    running.stop.cancel();
    running.ended.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_hangs_ends_with_its_cluster() {
    let host = fixture().await;
    let members = members(["east"]).await;
    let manager = host.manager().build().unwrap();
    let log = Log::default();
    let passes = Arc::clone(&log);
    let list = [("east", members["east"].kube.clone())];
    let clusters = manager.clusters(FixedClusters::new(list), move |cluster| {
        let passes = Arc::clone(&passes);
        cluster.controller::<ConfigMap>().named("hangs").state(passes).reconcile(
            async |map: Arc<ConfigMap>, cx: Context<Log>| {
                cx.state().lock().unwrap().push(map.name_any());
                std::future::pending().await
            },
        );
    });
    let running = run(manager);
    pause(1).await;
    create(&members["east"].maps(), map("a")).await;
    create(&members["east"].maps(), map("b")).await;
    pause(60).await;
    assert!(take(&log).len() == 1, "one worker, which hangs");
    clusters.leave("east");
    // The cluster is engaged again during the grace period of the old controllers.
    let kube = members["east"].kube.clone();
    clusters.engage("east", b"again", async || Ok(kube)).await.unwrap();
    pause(20).await;
    assert!(take(&log).is_empty(), "two connections never work at a time");
    pause(60).await;
    assert_eq!(
        take(&log).len(),
        1,
        "the pass was aborted, and the other key dropped with its queue"
    );
    running.stop.cancel();
    let Err(ManagerError::NotStopped(late)) = running.ended.await.unwrap() else {
        return;
    };
    panic!("{late:?} had its grace period");
}

#[tokio::test(start_paused = true)]
async fn no_cluster_is_written_after_the_lease_is_lost() {
    let host = Member::start().await;
    let members = members(["east"]).await;
    let manager = Manager::builder(host.kube.clone())
        .component("test")
        .setup(Setup::simulated(host.server.clock().clone(), "me"))
        .leader_election_id("test")
        .build()
        .unwrap();
    let log = Log::default();
    let list = [("east", members["east"].kube.clone())];
    let clusters = manager.clusters(FixedClusters::new(list), copier(&log));
    let running = run(manager);
    pause(10).await;
    let cluster = clusters.get("east").unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.kube());
    maps.create(&PostParams::default(), &map("before")).await.unwrap();
    pause(1).await;
    assert_eq!(take(&log), ["east/before"]);

    host.is_cut.store(true, Ordering::SeqCst);
    let ended = running.ended.await.unwrap();
    assert!(matches!(ended, Err(ManagerError::LeaderElectionLost)), "{ended:?}");
    let error = maps.create(&PostParams::default(), &map("after")).await.unwrap_err();
    assert!(format!("{error:?}").contains("Fenced"), "{error:?}");
    create(&members["east"].maps(), map("late")).await;
    pause(600).await;
    assert!(take(&log).is_empty(), "its workers have ended");
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_is_refused_is_reported_and_leaves_the_cluster_as_it_was() {
    let host = fixture().await;
    let members = members(["east"]).await;
    let fleet = fleet(&host.server).await;
    let exec =
        json!({"exec": {"apiVersion": "v1", "command": "s3cret", "interactiveMode": "Never"}});
    register(&fleet, "bad", &kubeconfig("east", &exec)).await;
    register(&fleet, "east", &kubeconfig("east", &token())).await;
    let manager = host.manager().build().unwrap();
    let (observer, log) = (manager.clone(), Log::default());
    let clusters = manager.clusters(provider(&members), copier(&log));
    let _running = run(manager);
    pause(10).await;
    assert_eq!(names(&clusters), ["east"]);
    let broken = Patch::Merge(json!({"stringData": {"kubeconfig": "s3cret: ["}}));
    fleet.patch("east", &Default::default(), &broken).await.unwrap();
    pause(10).await;
    create(&members["east"].maps(), map("web")).await;
    pause(10).await;
    assert_eq!(take(&log), ["east/web"], "the connection is the old one");
    let report = observer.env().introspection.controller("secret-clusters").unwrap();
    let mut errors: Vec<_> =
        report.errors.iter().map(|error| (&*error.key, &*error.error)).collect();
    errors.sort_unstable();
    let [(bad, refused), (east, invalid)] = errors[..] else { panic!("{errors:?}") };
    assert_eq!((bad, east), ("fleet/bad", "fleet/east"));
    assert!(refused.contains("users[].user.exec"), "{refused}");
    assert!(invalid.contains("not a kubeconfig"), "{invalid}");
    let answer = observer.env().introspection.answer("", "");
    let text = String::from_utf8(answer.into_body().to_vec()).unwrap();
    assert!(text.contains("\"cluster\": \"east\"") && !text.contains("s3cret"), "{text}");
    let answer =
        observer.env().introspection.answer("configmap", "cluster=east&object=default/web");
    let text = String::from_utf8(answer.into_body().to_vec()).unwrap();
    assert!(text.contains("apply Secret default/web"), "{text}");
    assert_eq!(observer.env().introspection.answer("configmap", "cluster=west").status(), 404);
}

#[tokio::test(start_paused = true)]
async fn a_standby_connects_to_no_cluster_whatever_the_defaults_of_controllers_are() {
    let host = fixture().await;
    let members = members(["east"]).await;
    let leader = host.manager().leader_election_id("test").build().unwrap();
    let elected = leader.elected();
    let _leader = run(leader);
    elected.await;
    let setup = Setup::simulated(host.server.clock().clone(), "other");
    let defaults = ControllerDefaults::default().needs_leader_election(false);
    let standby = host.manager().setup(setup).leader_election_id("test");
    let standby = standby.controller_defaults(defaults).build().unwrap();
    let log = Log::default();
    let east = FixedClusters::new([("east", members["east"].kube.clone())]);
    let clusters = standby.clusters(east, copier(&log));
    create(&members["east"].maps(), map("web")).await;
    let stop = tokio::time::sleep(Duration::from_secs(1));
    let ended = tokio::time::timeout(Duration::from_secs(2), standby.run(stop)).await;
    ended.expect("nothing waits for the lease").unwrap();
    assert_eq!((names(&clusters).len(), take(&log).len()), (0, 0));
}
