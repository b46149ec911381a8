//! Clusters: which components run, and what they do.

use crate::{deployment, object, pod, ready_replicas};
use evenkeel_test::{
    ClusterError, DEPLOYMENT_CONTROLLERS, TestCluster, TestClusterBuilder, eventually,
    eventually_all,
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Node, Pod},
};
use kube::{
    Api,
    api::{ListParams, LogParams, PostParams},
};
use serde_json::json;
use std::time::Duration;

async fn start(builder: TestClusterBuilder) -> TestCluster {
    builder.start().await.expect("a cluster")
}

/// Returns whether a Deployment becomes ready within ten minutes.
async fn becomes_ready(cluster: &TestCluster) -> bool {
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client());
    deployments.create(&PostParams::default(), &deployment("web", 2)).await.expect("created");
    let ready = eventually(&deployments, "web", |web| ready_replicas(web) == 2);
    ready.within(Duration::from_secs(600)).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_becomes_ready_and_everything_stops() {
    let cluster = TestCluster::start().await.expect("a cluster");
    assert!(becomes_ready(&cluster).await);
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
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
}

#[tokio::test(start_paused = true)]
async fn all_controllers_run_a_job_whose_log_can_be_read() {
    let cluster = start(TestCluster::builder().all_controllers().nodes(1)).await;
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
