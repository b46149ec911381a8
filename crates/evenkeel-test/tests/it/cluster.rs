//! Clusters: the components that run, and their effects.

use crate::{deployment, object, pod, ready_replicas};
use evenkeel_test::{
    ClusterError, DEPLOYMENT_CONTROLLERS, TestCluster, TestClusterBuilder, Watched, eventually,
    eventually_all, eventually_gone,
};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{Namespace, Node, PersistentVolumeClaim, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, LogParams, PostParams},
};
use serde_json::json;
use std::time::Duration;

async fn start(builder: TestClusterBuilder) -> TestCluster {
    builder.start().await.expect("a cluster")
}

/// Returns whether a Deployment becomes ready within ten minutes.
async fn becomes_ready(cluster: &TestCluster) -> bool {
    let deployments = cluster.api::<Deployment>();
    deployments.create(&PostParams::default(), &deployment("web", 2)).await.expect("created");
    let ready = eventually(&deployments, "web", |web| ready_replicas(web) == 2);
    ready.within(Duration::from_secs(600)).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_becomes_ready_and_everything_stops() {
    let cluster = TestCluster::start().await.expect("a cluster");
    assert!(becomes_ready(&cluster).await);
    let pods = cluster.api::<Pod>();
    assert_eq!(pods.list(&ListParams::default()).await.expect("pods").items.len(), 2);
    assert_eq!(cluster.stop().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_deployment_needs_each_of_the_default_controllers() {
    for left_out in DEPLOYMENT_CONTROLLERS {
        let rest = DEPLOYMENT_CONTROLLERS.into_iter().filter(|name| *name != left_out);
        let cluster = start(TestCluster::builder().controllers(rest)).await;
        assert!(!becomes_ready(&cluster).await, "not without {left_out}");
    }
    let cluster = start(TestCluster::builder().controllers(DEPLOYMENT_CONTROLLERS)).await;
    assert!(becomes_ready(&cluster).await);
}

async fn create<K>(cluster: &TestCluster, value: serde_json::Value) -> Api<K>
where
    K: Watched + kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    let api = cluster.api::<K>();
    api.create(&PostParams::default(), &object(value)).await.expect("created");
    api
}

/// Returns a pod template with the label `app`.
fn template(app: &str) -> serde_json::Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    })
}

fn of(app: &str) -> serde_json::Value {
    json!({"matchLabels": {"app": app}})
}

#[tokio::test(start_paused = true)]
async fn sets_of_pods_become_ready() {
    let cluster = TestCluster::start().await.expect("a cluster");
    let spec = json!({
        "replicas": 2, "serviceName": "db", "selector": of("db"), "template": template("db"),
        "volumeClaimTemplates": [{
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            },
        }],
    });
    let meta = json!({"name": "db"});
    let sets = create::<StatefulSet>(&cluster, json!({"metadata": meta, "spec": spec})).await;
    let ready =
        |set: &StatefulSet| set.status.as_ref().and_then(|status| status.ready_replicas) == Some(2);
    eventually(&sets, "db", ready).await.expect("ready");
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client());
    let bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
    };
    eventually(&claims, "data-db-0", bound).await.expect("bound");

    let spec = json!({"selector": of("log"), "template": template("log")});
    let meta = json!({"name": "log"});
    let sets = create::<DaemonSet>(&cluster, json!({"metadata": meta, "spec": spec})).await;
    let ready = |set: &DaemonSet| set.status.as_ref().map(|status| status.number_ready) == Some(3);
    eventually(&sets, "log", ready).await.expect("ready");
}

#[tokio::test(start_paused = true)]
async fn a_cron_job_runs_jobs() {
    let cluster = TestCluster::start().await.expect("a cluster");
    let mut pod = template("tick");
    pod["spec"]["restartPolicy"] = "Never".into();
    pod["spec"]["containers"][0]["command"] = json!(["true"]);
    let spec = json!({"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": pod}}});
    let cron = json!({"metadata": {"name": "tick"}, "spec": spec});
    let crons = create::<CronJob>(&cluster, cron).await;
    let succeeded = |cron: &CronJob| {
        cron.status.as_ref().is_some_and(|status| status.last_successful_time.is_some())
    };
    eventually(&crons, "tick", succeeded).within(Duration::from_secs(600)).await.expect("it ran");
}

#[tokio::test(start_paused = true)]
async fn services_get_endpoints_and_addresses_of_load_balancers() {
    let cluster = TestCluster::start().await.expect("a cluster");
    assert!(becomes_ready(&cluster).await);
    let spec = json!({"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80}]});
    let service = json!({"metadata": {"name": "web"}, "spec": spec});
    let services = create::<Service>(&cluster, service).await;
    let has_address = |service: &Service| {
        let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = status.and_then(|status| status.ingress.as_ref());
        ingress.and_then(|all| all.first()?.ip.as_deref()).is_some_and(|ip| ip.starts_with("198."))
    };
    eventually(&services, "web", has_address).await.expect("an address");
    let slices: Api<EndpointSlice> = Api::default_namespaced(cluster.client());
    let of_service = ListParams::default().labels("kubernetes.io/service-name=web");
    let two = |slices: &[EndpointSlice]| matches!(slices, [one] if one.endpoints.iter().flatten().count() == 2);
    eventually_all(&slices, of_service, two).await.expect("endpoints");
}

#[tokio::test(start_paused = true)]
async fn what_is_owned_or_in_a_deleted_namespace_is_collected() {
    let cluster = TestCluster::start().await.expect("a cluster");
    assert!(becomes_ready(&cluster).await);
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client());
    deployments.delete("web", &DeleteParams::background()).await.expect("deleted");
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let none = |pods: &[Pod]| pods.is_empty();
    eventually_all(&pods, ListParams::default(), none).await.expect("collected");

    let namespaces: Api<Namespace> = Api::all(cluster.client());
    let team = object(json!({"metadata": {"name": "team"}}));
    namespaces.create(&PostParams::default(), &team).await.expect("created");
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "team");
    deployments.create(&PostParams::default(), &deployment("web", 1)).await.expect("created");
    let ready = |web: &Deployment| ready_replicas(web) == 1;
    eventually(&deployments, "web", ready).await.expect("ready");
    namespaces.delete("team", &DeleteParams::default()).await.expect("deleted");
    eventually_gone(&namespaces, "team").await.expect("gone");
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_whose_log_can_be_read() {
    let cluster = start(TestCluster::builder().nodes(1)).await;
    let nodes: Api<Node> = Api::all(cluster.client());
    let node = &nodes.list(&ListParams::default()).await.expect("nodes").items[0];
    assert_eq!(node.metadata.name.as_deref(), Some("node-0"));
    let jobs: Api<Job> = Api::default_namespaced(cluster.client());
    let job = json!({
        "metadata": {"name": "once"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "a", "image": "busybox", "command": ["sh", "-c", "echo done"]}],
        }}},
    });
    jobs.create(&PostParams::default(), &object(job)).await.expect("created");
    let succeeded = |job: &Job| job.status.as_ref().and_then(|status| status.succeeded) == Some(1);
    eventually(&jobs, "once", succeeded).await.expect("it succeeds");
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let of_job = ListParams::default().labels("job-name=once");
    let found = eventually_all(&pods, of_job, |pods| pods.len() == 1).await.expect("its pod");
    let name = found[0].metadata.name.as_deref().expect("a name");
    let log = pods.logs(name, &LogParams::default()).await.expect("a log");
    assert_eq!(log, "done\n");
}

#[tokio::test(start_paused = true)]
async fn pods_stay_pending_without_a_scheduler() {
    let cluster = start(TestCluster::builder().without_scheduler()).await;
    assert!(!becomes_ready(&cluster).await);
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let found = pods.list(&ListParams::default()).await.expect("pods").items;
    assert!(!found.is_empty() && found.iter().all(|pod| phase(pod) == Some("Pending")));
    let mut placed = pod("placed");
    placed.spec.as_mut().expect("a spec").node_name = Some("node-1".to_owned());
    pods.create(&PostParams::default(), &placed).await.expect("created");
    eventually(&pods, "placed", |pod| phase(pod) == Some("Running")).await.expect("it runs");
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

#[tokio::test(start_paused = true)]
async fn the_server_of_a_cluster_has_options() {
    let builder = TestCluster::builder().server(|server| server.crds_from(crate::CRDS)).nodes(0);
    let cluster = start(builder).await;
    cluster.crds_from(crate::CRDS).await.expect_err("the definition is there");
    let nodes: Api<Node> = Api::all(cluster.client_as("alice", ["system:masters"]));
    assert!(nodes.list(&ListParams::default()).await.expect("granted").items.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_controller_is_refused_with_the_known_ones() {
    let error = TestCluster::builder().controllers(["deployment"]).start().await.err();
    let error = error.expect("refused");
    assert!(matches!(error, ClusterError::UnknownController(..)));
    let text = error.to_string();
    assert!(text.contains("\"deployment\"") && text.contains("deployment-controller"), "{text}");
}
