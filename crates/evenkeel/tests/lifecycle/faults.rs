//! Faults of nodes and pods, and the time of clusters.

use crate::{home::Home, up};
use k8s_openapi::api::{batch::v1::Job, core::v1::Node};
use kube::{
    Api, Client,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;
use std::path::Path;

const CRON: &str = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: every-minute}\n\
    spec:\n  schedule: '* * * * *'\n  successfulJobsHistoryLimit: 100\n  jobTemplate: {spec: {template: {spec: {\
    restartPolicy: Never, containers: [{name: a, image: busybox, command: ['true']}]}}}}\n";

/// Returns a client of the cluster `default`.
async fn client(home: &Home) -> Client {
    client_of(&home.cluster("default").join("kubeconfig")).await
}

/// Returns a client of a kubeconfig.
pub(crate) async fn client_of(path: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(path).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

fn time(home: &Home, arguments: &[&str]) -> Value {
    let output = home.succeed(&[&["time", "--output=json"], arguments].concat());
    serde_json::from_str(&output).expect("a time")
}

fn faults(home: &Home) -> Vec<Value> {
    serde_json::from_str(&home.succeed(&["fault", "list", "--output=json"])).expect("a list")
}

/// Returns the status of the condition Ready of `node-0`.
async fn ready(client: &Client) -> String {
    let node = Api::<Node>::all(client.clone()).get("node-0").await.expect("the node");
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    ready.expect("the condition").status
}

#[tokio::test]
async fn the_time_of_a_cluster_jumps_and_runs_fast() {
    let home = Home::new();
    up(&home, &["--speed=1x", "--wait=60s"]);
    home.file("cron.yaml", CRON);
    home.succeed(&["load", "cron.yaml"]);
    let before = time(&home, &[]);
    assert_eq!((&before["speed"], &before["isAdjustable"]), (&1.0.into(), &true.into()));
    let after = time(&home, &["+30m"]);
    let seconds = |report: &Value| {
        let now: evenkeel_api::time::Timestamp =
            report["now"].as_str().expect("text").parse().expect("a time");
        now.as_second()
    };
    let passed = seconds(&after) - seconds(&before);
    assert!((1800..1900).contains(&passed), "{passed}");
    let client = client(&home).await;
    let jobs = Api::<Job>::default_namespaced(client.clone()).list(&Default::default()).await;
    let jobs = jobs.expect("jobs").items;
    let is_complete =
        |job: &&Job| job.status.as_ref().is_some_and(|status| status.succeeded == Some(1));
    let complete = jobs.iter().filter(is_complete).count();
    assert!((29..=31).contains(&jobs.len()) && complete >= 29, "{complete} of {}", jobs.len());
    assert_eq!(ready(&client).await, "True", "its leases were renewed on the way");

    home.succeed(&["fault", "node/node-0", "--for=1h"]);
    let in_effect = faults(&home);
    assert_eq!((in_effect.len(), &in_effect[0]["fault"]), (1, &"silent".into()));
    time(&home, &["+10m"]);
    assert_eq!(ready(&client).await, "Unknown");
    time(&home, &["+1h"]);
    assert_eq!((ready(&client).await, faults(&home).len()), ("True".to_owned(), 0));

    assert_eq!(time(&home, &["--speed=0"])["speed"], 0.0);
    assert_eq!(time(&home, &[])["now"], time(&home, &[])["now"], "it stands still");
    assert_eq!(time(&home, &["--speed=60x"])["speed"], 60.0);
    let refused = home.fail(&["time", "+5000h"]);
    assert!(refused.contains("because of its certificates"), "{refused}");
    assert_eq!(home.succeed(&["down"]), "stopped default\n");
}

#[tokio::test]
async fn failures_by_plan_are_in_the_clusters_time() {
    let home = Home::new();
    let failure = "{unreachableNodes: [node], after: 10m, for: 1h}";
    let text = format!(
        "apiVersion: evenkeel.dev/v1alpha1\nkind: Cluster\nnodes: [{{name: node}}]\nfailures: [{failure}]\n"
    );
    home.file("cluster.yaml", &text);
    home.succeed(&[
        "up",
        "-d",
        "--port=0",
        "--speed=1x",
        "--wait=60s",
        "--output=json",
        "--config=cluster.yaml",
    ]);
    let client = client(&home).await;
    time(&home, &["+9m"]);
    assert_eq!((ready(&client).await, faults(&home).len()), ("True".to_owned(), 0));
    time(&home, &["+6m"]);
    let in_effect = faults(&home);
    assert_eq!((in_effect.len(), &in_effect[0]["fault"]), (1, &"silent".into()));
    assert!(in_effect[0]["until"].is_string(), "it ends by itself: {in_effect:?}");
    assert_eq!(ready(&client).await, "Unknown");
    time(&home, &["+1h"]);
    assert_eq!((ready(&client).await, faults(&home).len()), ("True".to_owned(), 0));
}

#[tokio::test]
async fn faults_begin_and_end() {
    let home = Home::new();
    up(&home, &["--wait=60s"]);
    let time = home.succeed(&["time"]);
    assert!(time.ends_with(", 1x, the system's time\n"), "{time}");
    let refused = home.fail(&["time", "+1h"]);
    assert!(refused.contains("evenkeel up --speed=1x"), "{refused}");
    assert!(home.succeed(&["fault", "list"]).starts_with("There is no fault."));
    for target in ["node/node-0", "zone/zone-a"] {
        let begun = home.succeed(&["fault", target, "--kind=not-ready"]);
        assert_eq!(begun, "node/node-0 not-ready, until --stop\n");
    }
    let client = client(&home).await;
    while ready(&client).await != "False" {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(faults(&home)[0]["fault"], "not-ready");
    assert_eq!(
        home.succeed(&["fault", "nodes", "-lkubernetes.io/os=linux", "--stop"]),
        "node/node-0 well\n"
    );
    assert_eq!(faults(&home), [Value::Null; 0]);
    while ready(&client).await != "True" {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    for (arguments, why) in [
        (
            &["fault", "zone/nowhere"][..],
            "no node has topology.kubernetes.io/zone=nowhere; the zones are: zone-a",
        ),
        (&["fault", "node/nobody"], "nodes \"nobody\" not found"),
        (&["fault", "nodes"], "nodes and --selector belong together"),
        (&["fault", "pod/a", "--kind=silent"], "--kind is for nodes"),
        (&["fault", "sun"], "write node/NAME, zone/NAME"),
        (&["fault", "list", "--name=a"], "there is no cluster a"),
    ] {
        let refused = home.fail(arguments);
        assert!(refused.contains(why), "{arguments:?}: {refused}");
    }
}
