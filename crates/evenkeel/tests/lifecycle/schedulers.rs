//! Several schedulers of one cluster, and the explanations of their pods.

use crate::{
    client::{get, until},
    home::Home,
};
use serde_json::Value;

const CLUSTER: &str = "apiVersion: evenkeel.dev/v1alpha1
kind: Cluster
nodes: [{name: n, count: 2}]
scheduler:
  configs:
  - profiles: [{schedulerName: default-scheduler}]
  - profiles:
    - schedulerName: packed
      plugins: {score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit}]}}
      pluginConfig:
      - name: NodeResourcesFit
        args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
";

fn pod(name: &str, scheduler: &str, cpu: u32) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  schedulerName: {scheduler}\n  \
         containers: [{{name: c, image: nginx, resources: {{requests: {{cpu: {cpu}}}}}}}]\n---\n"
    )
}

#[test]
fn an_explanation_asks_the_scheduler_of_the_pod() {
    let home = Home::new();
    home.file("c.yaml", CLUSTER);
    let pods = [
        pod("first", "packed", 1),
        pod("second", "packed", 1),
        pod("large", "packed", 20),
        pod("plain", "default-scheduler", 20),
        pod("lost", "nobody", 1),
    ];
    home.file("pods.yaml", &pods.concat());
    let output = home.succeed(&["up", "-d", "--port=0", "--wait=60s", "--config=c.yaml"]);
    assert!(output.contains("controllers, 2 schedulers, 2 simulated nodes"), "{output}");
    home.succeed(&["load", "pods.yaml"]);
    let own = home.cluster("default").join("kubeconfig");
    let kubeconfig = format!("--kubeconfig={}", own.display());
    let path = |name: &str| format!("/api/v1/namespaces/default/pods/{name}");
    let node = |pod: &Value| pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
    let [first, second] = ["first", "second"]
        .map(|name| node(&until(&own, &path(name), |pod| !node(pod).is_empty())));
    assert_eq!(first, second, "they are packed");
    for name in ["large", "plain"] {
        until(&own, &path(name), |pod| pod["status"]["conditions"].is_array());
    }
    for (name, scheduler) in
        [("large", "packed"), ("plain", "default-scheduler"), ("first", "packed, if the pod were")]
    {
        let text = home.succeed(&["explain", &format!("pod/{name}"), &kubeconfig]);
        assert!(text.contains(&format!("\nscheduler {scheduler}")), "{name}: {text}");
    }
    // Only one plugin scores, so that the table shows whose profile it is.
    let text = home.succeed(&["explain", "pod/first", &kubeconfig]);
    assert!(text.contains("NodeResourcesFit ") && !text.contains("TaintToleration "), "{text}");

    let text = home.succeed(&["explain", "pod/lost", &kubeconfig]);
    let why = "  why  it is not scheduled: no scheduler has reported an attempt, and evenkeel runs no scheduler named \"nobody\" \
        (spec.schedulerName); the names of its schedulers are default-scheduler, packed\n";
    assert!(text.contains(why), "{text}");
    assert!(!text.contains("\nscheduler "), "{text}");
    assert_eq!(node(&get(&own, &path("lost")).expect("a pod")), "");
    home.succeed(&["down"]);
}
