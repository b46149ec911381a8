//! A copy of a cluster that `evenkeel up` runs.

use crate::{
    client::{get, until},
    home::{Home, text},
};
use serde_json::{Value, json};

const DUMP: &str = "apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: prod-1, uid: 6d1d2f0e-0000-4000-8000-000000000001, labels: {pool: a}}
  spec: {taints: [{key: shared, effect: PreferNoSchedule}]}
  status:
    capacity: &amounts {cpu: '2', memory: 4Gi, pods: '10'}
    allocatable: *amounts
    addresses: [{type: InternalIP, address: 192.0.2.11}]
    nodeInfo: &info {kubeletVersion: v1.36.2, architecture: arm64, bootID: '', containerRuntimeVersion: containerd://2.1.0,
      kernelVersion: '6', kubeProxyVersion: '', machineID: '', operatingSystem: linux, osImage: '', systemUUID: ''}
    conditions: [{type: Ready, status: 'True'}]
- apiVersion: v1
  kind: Node
  metadata: {name: prod-2, uid: 6d1d2f0e-0000-4000-8000-000000000002}
  status: {conditions: [{type: Ready, status: Unknown}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: bound, namespace: shop, uid: 6d1d2f0e-0000-4000-8000-000000000003}
  spec: {nodeName: prod-1, containers: [{name: c, image: i}]}
  status: {phase: Pending}
- apiVersion: networking.k8s.io/v1
  kind: ServiceCIDR
  metadata: {name: kubernetes}
  spec: {cidrs: [10.43.0.0/16]}
";

const SCHEDULER: &str = "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler}, {schedulerName: packer}]
";

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items");
    items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

fn is_running(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
}

#[test]
fn a_copy_runs_on_its_own_nodes_with_its_scheduler() {
    let home = Home::new();
    home.file("dump.yaml", DUMP);
    home.file("scheduler.yaml", SCHEDULER);
    home.file("broken.yaml", &SCHEDULER.replace("profiles", "profilse"));
    let clone = ["clone", "dump.yaml", "--data-dir=copy"];
    let refused = home.fail(&[&clone[..], &["--scheduler-config=broken.yaml"]].concat());
    assert!(refused.contains("broken.yaml") && refused.contains("profilse"), "{refused}");
    assert!(!home.path("copy").exists(), "what was refused leaves nothing");
    let cloned = home.run(&[&clone[..], &["--scheduler-config=scheduler.yaml"]].concat());
    assert!(cloned.status.success(), "{}", text(&cloned.stderr));

    let up = ["up", "-d", "--port=0", "--name=copy", "--data-dir=copy", "--wait=60s"];
    let started = home.succeed(&up);
    assert!(started.contains("2 simulated nodes"), "{started}");
    let own = home.path("copy/kubeconfig");
    let nodes = get(&own, "/api/v1/nodes").expect("nodes");
    assert_eq!(names(&nodes), ["prod-1", "prod-2"]);
    let node = &nodes["items"][0];
    assert_eq!(node["metadata"]["labels"], json!({"pool": "a"}));
    assert_eq!(node["spec"]["taints"], json!([{"key": "shared", "effect": "PreferNoSchedule"}]));
    assert_eq!(node["status"]["capacity"], json!({"cpu": "2", "memory": "4Gi", "pods": "10"}));
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.36.2");
    let silent = &nodes["items"][1]["metadata"]["annotations"]["sim.evenkeel.dev/silent"];
    assert_eq!(silent, "true", "it was not ready in the cluster");
    let pod = until(&own, "/api/v1/namespaces/shop/pods/bound", is_running);
    assert_eq!(pod["status"]["hostIP"], "192.0.2.11");
    let service = get(&own, "/api/v1/namespaces/default/services/kubernetes").expect("a Service");
    assert_eq!(service["spec"]["clusterIP"], "10.43.0.1");

    home.file(
        "pod.yaml",
        "{apiVersion: v1, kind: Pod, metadata: {name: packed}, \
            spec: {schedulerName: packer, containers: [{name: c, image: i}]}}\n",
    );
    home.succeed(&["load", "pod.yaml", "--name=copy"]);
    let pod = until(&own, "/api/v1/namespaces/default/pods/packed", is_running);
    assert_eq!(pod["spec"]["nodeName"], "prod-1");
    home.succeed(&["down", "copy"]);

    home.succeed(&[&up[..], &["--nodes=1"]].concat());
    assert_eq!(names(&get(&own, "/api/v1/nodes").expect("nodes")), ["node-0", "prod-1", "prod-2"]);
    home.succeed(&["down", "copy"]);
    // A node that a flag added belongs to the folder from then on.
    let started = home.succeed(&up);
    assert!(started.contains("3 simulated nodes"), "{started}");
    home.succeed(&["down", "copy"]);
}
