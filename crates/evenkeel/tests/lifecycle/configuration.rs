//! Settings that only a configuration file has.

use crate::{
    client::{get, until},
    faults::client_of,
    home::Home,
    up,
};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

const CLUSTER: &str = "apiVersion: evenkeel.dev/v1alpha1
kind: Cluster
nodes:
- name: gpu
  count: 2
  devices: [{driver: gpu.example.com, name: gpu, count: 3, attributes: {model: a100}}]
  images: {nginx:1.27: 70Mi}
- {name: plain}
loadBalancerPools:
- {name: public, addresses: [192.0.2.0/28]}
- {name: internal, addresses: [198.51.100.7]}
apiServer:
  audit:
    policy: {rules: [{level: Metadata, resources: [{group: '', resources: [configmaps]}]}]}
    logFile: audit.log
users:
- {name: ann, clusterRoles: [view], roles: {shop: [edit]}}
failures:
- {unreachableNodes: [plain]}
";

#[test]
fn nodes_users_pools_audit_and_failures_are_as_configured() {
    let home = Home::new();
    let config = home.file("c/cluster.yaml", CLUSTER);
    home.file(
        "service.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: s, annotations: {evenkeel.dev/address-pool: internal}}\n\
            spec: {type: LoadBalancer, ports: [{port: 80}]}\n",
    );
    home.file(
        "map.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: shop}\n",
    );
    // The flag of the number of nodes would replace the groups.
    let output = home.succeed(&[
        "up",
        "-d",
        "--port=0",
        "--output=json",
        "--config",
        config.to_str().expect("text"),
    ]);
    assert!(output.contains("devices and images of 2 nodes"), "{output}");
    let own = home.cluster("default").join("kubeconfig");

    let slices = get(&own, "/apis/resource.k8s.io/v1/resourceslices").expect("slices");
    let slices = slices["items"].as_array().expect("a list");
    let nodes: Vec<&Value> = slices.iter().map(|slice| &slice["spec"]["nodeName"]).collect();
    assert_eq!(nodes, [&json!("gpu-0"), &json!("gpu-1")]);
    assert_eq!(slices[0]["spec"]["devices"].as_array().map(Vec::len), Some(3));
    get(&own, "/apis/resource.k8s.io/v1/deviceclasses/gpu.example.com").expect("a class");
    let node = get(&own, "/api/v1/nodes/gpu-1").expect("a node");
    assert_eq!(
        node["status"]["images"],
        json!([{"names": ["nginx:1.27"], "sizeBytes": 73_400_320}])
    );
    assert_eq!(slices[1]["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);

    let ann = home.cluster("default").join("kubeconfig-ann");
    assert_eq!(get(&ann, "/api/v1/nodes").map(drop), Err(403), "view has no nodes");
    get(&ann, "/api/v1/pods").expect("view");
    assert_eq!(get(&ann, "/api/v1/namespaces/default/secrets").map(drop), Err(403));
    get(&ann, "/api/v1/namespaces/shop/secrets").expect("edit");

    home.succeed(&["load", "service.yaml", "map.yaml"]);
    let service = until(&own, "/api/v1/namespaces/default/services/s", |service| {
        service["status"]["loadBalancer"]["ingress"].is_array()
    });
    assert_eq!(service["status"]["loadBalancer"]["ingress"][0]["ip"], "198.51.100.7");
    let log = home.read("c/audit.log");
    assert!(
        log.lines().any(|line| line.contains("\"configmaps\"") && line.contains("\"shop\"")),
        "{log}"
    );
    until(&own, "/api/v1/nodes/plain-0", |node| {
        node["metadata"]["annotations"]["sim.evenkeel.dev/silent"] == "true"
    });
    home.succeed(&["down"]);
    assert!(!ann.exists(), "the token is gone with the cluster");
}

#[test]
fn what_a_configuration_takes_away_is_gone_from_the_data_folder() {
    const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let home = Home::new();
    let up = |text: &str| {
        home.file(
            "c.yaml",
            &format!("apiVersion: evenkeel.dev/v1alpha1\nkind: Cluster\nname: data\ndataDir: data\n{text}"),
        );
        home.succeed(&["up", "-d", "--port=0", "--wait=60s", "--config=c.yaml"]);
    };
    let names = |path: &str, prefix: &str| -> Vec<String> {
        let kubeconfig = home.path("data/kubeconfig");
        let list = get(&kubeconfig, path).expect("a list");
        let items = list["items"].as_array().expect("items").iter();
        let names = items.filter_map(|item| item["metadata"]["name"].as_str());
        names.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect()
    };
    let images = |node: &str| {
        let kubeconfig = home.path("data/kubeconfig");
        let node = get(&kubeconfig, &format!("/api/v1/nodes/{node}")).expect("a node");
        node["status"]["images"].as_array().map_or(0, Vec::len)
    };
    up("nodes:
- {name: gpu, devices: [{driver: a, count: 130}, {driver: b}], images: {nginx:1.27: 70Mi}}
- {name: nic, devices: [{driver: b}], images: {nginx:1.27: 70Mi}}
users: [{name: ann, clusterRoles: [view, edit], roles: {shop: [admin]}}, {name: bob, clusterRoles: [edit]}]
");
    assert_eq!(names(SLICES, ""), ["gpu-0-a-0", "gpu-0-a-1", "gpu-0-b-0", "nic-0-b-0"]);
    assert_eq!((images("gpu-0"), images("nic-0")), (1, 1));
    let bindings = || {
        [
            names(&format!("{RBAC}/clusterrolebindings"), "evenkeel:"),
            names(&format!("{RBAC}/rolebindings"), "evenkeel:"),
        ]
    };
    assert_eq!(bindings().map(|names| names.len()), [3, 1]);
    home.succeed(&["down"]);
    up("nodes:
- {name: gpu, devices: [{driver: a, count: 2}], images: {nginx:1.27: 70Mi}}
- {name: nic}
users: [{name: ann, clusterRoles: [view]}]
");
    assert_eq!(names(SLICES, ""), ["gpu-0-a-0"]);
    assert_eq!((images("gpu-0"), images("nic-0")), (1, 0));
    assert_eq!(bindings(), [vec!["evenkeel:ann:view".to_owned()], Vec::new()]);
    home.succeed(&["down"]);
    up("nodes: [{name: gpu}]\n");
    assert_eq!(names(SLICES, ""), [""; 0]);
    assert_eq!((images("gpu-0"), bindings()), (0, [Vec::new(), Vec::new()]));
    home.succeed(&["down"]);
}

#[test]
fn what_users_wrote_stays_in_the_data_folder() {
    const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let home = Home::new();
    let up = |text: &str| {
        home.file(
            "c.yaml",
            &format!("apiVersion: evenkeel.dev/v1alpha1\nkind: Cluster\nname: data\ndataDir: data\n{text}"),
        );
        home.succeed(&["up", "-d", "--port=0", "--wait=60s", "--config=c.yaml"]);
    };
    let own = home.path("data/kubeconfig");
    up(
        "nodes: [{name: a, count: 2, images: {nginx:1.27: 70Mi}}]\nusers: [{name: ann, clusterRoles: [view]}]\n",
    );
    // A copy of a generated binding under another name, as with kubectl and sed.
    let binding = get(&own, &format!("{BINDINGS}/evenkeel:ann:view")).expect("a binding");
    let mut copy = binding.clone();
    copy["metadata"] = json!({
        "name": "mine", "labels": binding["metadata"]["labels"],
        "annotations": binding["metadata"]["annotations"],
    });
    home.file("copy.yaml", &copy.to_string());
    home.succeed(&["load", "copy.yaml", "--name=data"]);
    let images = json!([{"names": ["theirs"], "sizeBytes": 5}]);
    let patch = Patch::Merge(json!({"status": {"images": images}}));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let nodes = Api::<Node>::all(client_of(&own).await);
        nodes.patch_status("a-1", &PatchParams::default(), &patch).await.expect("patched");
    });
    home.succeed(&["down"]);

    up("nodes: [{name: a, count: 2}]\n");
    get(&own, &format!("{BINDINGS}/mine")).expect("the copy");
    assert_eq!(get(&own, &format!("{BINDINGS}/evenkeel:ann:view")).map(drop), Err(404));
    let node = |name: &str| get(&own, &format!("/api/v1/nodes/{name}")).expect("a node");
    assert_eq!(node("a-0")["status"]["images"], Value::Null, "evenkeel wrote them");
    assert_eq!(node("a-1")["status"]["images"], images, "evenkeel did not write them");
    for name in ["a-0", "a-1"] {
        let annotations = &node(name)["metadata"]["annotations"];
        assert_eq!(annotations["evenkeel.dev/images"], Value::Null, "{annotations}");
    }
    home.succeed(&["down"]);
}

#[test]
fn a_plan_of_failures_begins_anew_at_each_start() {
    let home = Home::new();
    let text = "apiVersion: evenkeel.dev/v1alpha1\nkind: Cluster\nname: data\ndataDir: data\n\
        nodes: [{name: a}, {name: b}, {name: c}]\nfailures: [{unreachableNodes: [a], after: AFTER}]\n";
    let own = home.path("data/kubeconfig");
    let up = |after: &str| {
        home.file("c.yaml", &text.replace("AFTER", after));
        home.succeed(&["up", "-d", "--port=0", "--wait=60s", "--config=c.yaml"]);
    };
    let silent = |node: &Value| node["metadata"]["annotations"]["sim.evenkeel.dev/silent"].clone();
    let node = |name: &str| get(&own, &format!("/api/v1/nodes/{name}")).expect("a node");
    up("0s");
    until(&own, "/api/v1/nodes/a-0", |node| silent(node) == "true");
    home.succeed(&["fault", "node/b-0", "--name=data"]);
    // Instead of the controller, which waits until the Lease has expired.
    let patch = Patch::Strategic(
        json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let nodes = Api::<Node>::all(client_of(&own).await);
        for name in ["a-0", "b-0"] {
            nodes.patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
        }
    });
    let is_unknown = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "Unknown")
    };
    assert!(["a-0", "b-0"].iter().all(|name| is_unknown(&node(name))));
    home.succeed(&["down"]);
    up("1h");
    assert_eq!(silent(&node("a-0")), Value::Null, "the plan has not begun");
    assert!(!is_unknown(&node("a-0")));
    assert_eq!(silent(&node("b-0")), "true", "the fault is no plan's");
    home.succeed(&["down"]);
}

#[test]
fn a_restart_keeps_what_stages_wrote_about_nodes() {
    let home = Home::new();
    // The Stage matches until it has been played, so that nothing writes the status again.
    let stage = json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": "broken"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Node"},
            "selector": {"matchExpressions": [{"key": ".status.phase", "operator": "DoesNotExist"}]},
            "next": {"statusTemplate": "phase: Running\nconditions:\n- {type: Ready, status: 'False', reason: ByStage}\n"},
        },
    });
    home.file("stage.yaml", &stage.to_string());
    let own = home.path("data/kubeconfig");
    let ready = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready");
        let text = |field: &str| {
            let ready = ready.as_ref().map(|ready| ready[field].clone());
            ready.and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
        };
        (text("status"), text("reason"))
    };
    let by_stage = ("False".to_owned(), "ByStage".to_owned());
    let arguments = ["up", "-d", "--port=0", "--nodes=1", "--name=data", "--data-dir=data"];
    home.succeed(&[&arguments[..], &["--wait=60s"]].concat());
    home.succeed(&["load", "stage.yaml", "--name=data"]);
    until(&own, "/api/v1/nodes/node-0", |node| ready(node) == by_stage);
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-0";
    let renewed = |lease: &Value| lease["spec"]["renewTime"].clone();
    let before = renewed(&get(&own, lease).expect("a Lease"));
    home.succeed(&["down"]);
    home.succeed(&arguments);
    // The kubelet registers the node before it renews the Lease, immediately after the start.
    until(&own, lease, |lease| renewed(lease) != before);
    assert_eq!(ready(&get(&own, "/api/v1/nodes/node-0").expect("a node")), by_stage);
    home.succeed(&["down"]);
}

#[test]
fn what_a_configuration_cannot_mean_is_refused() {
    let home = Home::new();
    for (text, want) in [
        ("failures: [{unreachableNodes: [nobody]}]\n", "no node or node group is named \"nobody\""),
        ("nodes: [{name: n, images: {a: large}}]\n", "nodes[0].images.a"),
        ("nodes: [{name: n, capacity: {cpu: x}}]\n", "nodes[0].capacity.cpu: \"x\""),
        ("users: [{name: a/b}]\n", "the name of a user has"),
        ("apiServer: {audit: {logFile: a}}\n", "set policy or policyFile"),
        (
            "scheduler: {configs: [{profiles: [{schedulerName: a}]}, {profiles: [{schedulerName: b}, {schedulerName: a}]}]}\n",
            "scheduler.configs[1].profiles[1].schedulerName: scheduler.configs[0].profiles[0].schedulerName is \"a\", too",
        ),
    ] {
        let head = "apiVersion: evenkeel.dev/v1alpha1\nkind: Cluster\n";
        home.file("c.yaml", &format!("{head}{text}"));
        let refused = home.fail(&["up", "--port=0", "--config=c.yaml"]);
        assert!(refused.starts_with("Error: ") && refused.contains(want), "{refused}");
    }
    let refused = home.fail(&["up", "-d", "--port=0", "--feature-gates=GenericWorkload=true"]);
    assert!(refused.contains("podgroups (scheduling.k8s.io/"), "{refused}");
    assert!(refused.contains("disable the feature gates"), "{refused}");
    assert_eq!(home.list(), [Value::Null; 0]);
    // A refused start leaves the name free.
    up(&home, &[]);
}
