//! Inputs that steer simulated nodes and pods: annotations, and Behaviors.

use evenkeel_test::{TestCluster, eventually, eventually_all};
use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{Node, Pod, ServiceAccount},
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Converts JSON to a pod.
fn object(value: Value) -> Pod {
    serde_json::from_value(value).expect("a pod")
}

fn pod(name: &str) -> Pod {
    object(json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }))
}

async fn annotate<K>(api: &Api<K>, name: &str, annotation: &str, value: &str)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let patch =
        json!({"metadata": {"annotations": {format!("sim.evenkeel.dev/{annotation}"): value}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("annotated");
}

/// Status of a node's condition.
fn condition<'a>(node: &'a Node, kind: &str) -> &'a str {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.find(|one| one.type_ == kind).map_or("", |condition| &condition.status)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Returns the restart count and the last exit code of a pod's first container.
fn restarts(pod: &Pod) -> (i32, Option<i32>) {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let status = statuses.and_then(|statuses| statuses.first());
    let exit = status.and_then(|status| {
        status.last_state.as_ref()?.terminated.as_ref().map(|ended| ended.exit_code)
    });
    (status.map_or(0, |status| status.restart_count), exit)
}

/// Returns the value of a fault that ends after this time.
fn until(cluster: &TestCluster, duration: Duration) -> String {
    let end = cluster.clock().now() + duration;
    format!("until {end}")
}

async fn start() -> TestCluster {
    let cluster = TestCluster::builder().nodes(1).behaviors().start().await.expect("a cluster");
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
    wait(eventually(&accounts, "default", |_| true)).await;
    cluster
}

async fn create_pod(cluster: &TestCluster, pod: &Pod) -> Api<Pod> {
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    pods.create(&PostParams::default(), pod).await.expect("created");
    pods
}

async fn wait<T>(wait: evenkeel_test::Wait<'_, T>) -> T {
    wait.within(20 * MINUTE).await.expect("it happens")
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_returns_by_itself() {
    let cluster = start().await;
    let nodes: Api<Node> = Api::all(cluster.client());
    let pods = create_pod(&cluster, &pod("web")).await;
    wait(eventually(&pods, "web", is_ready)).await;
    let begin = cluster.clock().now();
    annotate(&nodes, "node-0", "silent", &until(&cluster, 3 * MINUTE)).await;
    wait(eventually(&nodes, "node-0", |node| condition(node, "Ready") == "Unknown")).await;
    wait(eventually(&pods, "web", |pod| !is_ready(pod))).await;
    wait(eventually(&nodes, "node-0", |node| condition(node, "Ready") == "True")).await;
    wait(eventually(&pods, "web", is_ready)).await;
    let passed = cluster.clock().now().duration_since(begin).unsigned_abs();
    assert!(passed >= 3 * MINUTE && passed < 4 * MINUTE, "{passed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_reports_the_faults_of_its_node() {
    let cluster = start().await;
    let nodes: Api<Node> = Api::all(cluster.client());
    let pods = create_pod(&cluster, &pod("web")).await;
    wait(eventually(&pods, "web", is_ready)).await;
    annotate(&nodes, "node-0", "disk-pressure", "true").await;
    let node = eventually(&nodes, "node-0", |node| condition(node, "DiskPressure") == "True");
    assert_eq!(condition(&wait(node).await, "Ready"), "True");
    annotate(&nodes, "node-0", "disk-pressure", "false").await;
    annotate(&nodes, "node-0", "not-ready", &until(&cluster, MINUTE)).await;
    let node = eventually(&nodes, "node-0", |node| condition(node, "Ready") == "False");
    wait(node).await;
    annotate(&pods, "web", "readiness", "never").await;
    tokio::time::sleep(MINUTE / 2).await;
    assert!(is_ready(&pods.get("web").await.expect("the pod")), "it syncs no pods");
    let node = eventually(&nodes, "node-0", |node| condition(node, "Ready") == "True");
    assert_eq!(condition(&wait(node).await, "DiskPressure"), "False");
    wait(eventually(&pods, "web", |pod| !is_ready(pod))).await;
}

#[tokio::test(start_paused = true)]
async fn containers_crash_once_or_for_a_while() {
    let cluster = start().await;
    let pods = create_pod(&cluster, &pod("web")).await;
    wait(eventually(&pods, "web", is_ready)).await;
    tokio::time::sleep(MINUTE).await;
    annotate(&pods, "web", "crash", &format!("at {}", cluster.clock().now())).await;
    wait(eventually(&pods, "web", |pod| restarts(pod) == (1, Some(1)) && is_ready(pod))).await;
    tokio::time::sleep(10 * MINUTE).await;
    let crashed = pods.get("web").await.expect("the pod");
    assert_eq!(restarts(&crashed), (1, Some(1)), "once");
    annotate(&pods, "web", "crash", &until(&cluster, 2 * MINUTE)).await;
    // Restarts immediately, and then after 10, 20 and 40 seconds.
    wait(eventually(&pods, "web", |pod| restarts(pod).0 >= 4)).await;
    tokio::time::sleep(20 * MINUTE).await;
    let recovered = pods.get("web").await.expect("the pod");
    assert!(is_ready(&recovered) && restarts(&recovered).0 < 8, "{recovered:#?}");
}

fn behaviors(cluster: &TestCluster) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("sim.evenkeel.dev", "v1alpha1", "Behavior");
    Api::all_with(cluster.client(), &ApiResource::from_gvk(&kind))
}

async fn behave(cluster: &TestCluster, name: &str, spec: &Value) {
    let behavior = json!({
        "apiVersion": "sim.evenkeel.dev/v1alpha1", "kind": "Behavior",
        "metadata": {"name": name}, "spec": spec,
    });
    let force = PatchParams::apply("test").force();
    let applied = behaviors(cluster).patch(name, &force, &Patch::Apply(&behavior)).await;
    applied.expect("applied");
}

/// Returns the status and the message of a Behavior's condition for the current generation.
async fn validity(cluster: &TestCluster, name: &str) -> (String, String) {
    let is_current = |behavior: &DynamicObject| {
        let generation = behavior.metadata.generation;
        behavior.data["status"]["conditions"][0]["observedGeneration"] == json!(generation)
    };
    let behavior = wait(eventually(&behaviors(cluster), name, is_current)).await;
    let condition = &behavior.data["status"]["conditions"][0];
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

/// Returns a pod with the label `app=web` and these annotations.
fn web(name: &str, annotations: &Value) -> Pod {
    object(json!({
        "metadata": {"name": name, "labels": {"app": "web"}, "annotations": annotations},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }))
}

fn of_web() -> Value {
    json!({"selector": {"matchLabels": {"app": "web"}}})
}

#[tokio::test(start_paused = true)]
async fn a_behavior_steers_the_pods_that_it_selects() {
    let cluster = start().await;
    behave(&cluster, "slow", &json!({"pods": of_web(), "readiness": "never"})).await;
    assert_eq!(validity(&cluster, "slow").await, ("True".to_owned(), String::new()));
    let pods = create_pod(&cluster, &web("web", &json!({}))).await;
    let annotated = web("annotated", &json!({"sim.evenkeel.dev/readiness": "always"}));
    create_pod(&cluster, &annotated).await;
    create_pod(&cluster, &pod("other")).await;
    wait(eventually(&pods, "annotated", is_ready)).await;
    wait(eventually(&pods, "other", is_ready)).await;
    tokio::time::sleep(10 * MINUTE).await;
    assert!(!is_ready(&pods.get("web").await.expect("the pod")));
    // A change takes effect immediately, and a larger weight wins.
    behave(&cluster, "fast", &json!({"weight": 1, "pods": of_web(), "readiness": "always"})).await;
    wait(eventually(&pods, "web", is_ready)).await;
    behave(&cluster, "fast", &json!({"weight": -1, "pods": of_web(), "readiness": "always"})).await;
    wait(eventually(&pods, "web", |pod| !is_ready(pod))).await;
    behaviors(&cluster).delete("slow", &Default::default()).await.expect("deleted");
    wait(eventually(&pods, "web", is_ready)).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_pulls_the_images_of_a_behavior_once() {
    let cluster = start().await;
    behave(
        &cluster,
        "large",
        &json!({"images": ["large:*"], "imageSize": "6Gi", "imagePullRate": "100Mi"}),
    )
    .await;
    assert_eq!(validity(&cluster, "large").await.0, "True");
    let of_image = |name: &str, image: &str| {
        let mut pod = pod(name);
        if let Some(spec) = &mut pod.spec {
            spec.node_name = Some("node-0".to_owned());
            spec.containers[0].image = Some(image.to_owned());
        }
        pod
    };
    for (name, image, seconds) in [
        ("small", "small:1", 0),
        ("first", "large:1", 61),
        ("second", "large:1", 0),
        ("other", "large:2", 61),
    ] {
        let begin = cluster.clock().now();
        let pods = create_pod(&cluster, &of_image(name, image)).await;
        wait(eventually(&pods, name, is_ready)).await;
        let passed = cluster.clock().now().duration_since(begin);
        assert_eq!(passed.as_secs(), seconds, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_behavior_has_no_effect_and_says_why() {
    let cluster = start().await;
    behave(&cluster, "b", &json!({"readiness": "never", "startDelay": "soon"})).await;
    let (status, message) = validity(&cluster, "b").await;
    assert_eq!(status, "False");
    assert!(message.starts_with("spec.startDelay: \"soon\" is not a duration"), "{message}");
    let pods = create_pod(&cluster, &web("web", &json!({}))).await;
    wait(eventually(&pods, "web", is_ready)).await;
    behave(&cluster, "b", &json!({"readiness": "never", "startDelay": "1s..5s"})).await;
    wait(eventually(&pods, "web", |pod| !is_ready(pod))).await;
    assert_eq!(validity(&cluster, "b").await.0, "True");
}

#[tokio::test(start_paused = true)]
async fn runs_fail_at_a_rate_and_start_after_drawn_delays() {
    let cluster = start().await;
    let spec = json!({"pods": of_web(), "seed": 1, "failureRate": "50%", "startDelay": "1s..1m"});
    behave(&cluster, "b", &spec).await;
    validity(&cluster, "b").await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    for number in 0..20 {
        create_pod(&cluster, &web(&format!("web-{number}"), &json!({}))).await;
    }
    let begin = cluster.clock().now();
    tokio::time::sleep(30 * MINUTE).await;
    let all = pods.list(&Default::default()).await.expect("pods").items;
    assert!(all.iter().all(is_ready), "a run that does not fail does not end");
    let crashed = all.iter().filter(|pod| restarts(pod).0 > 0).count();
    assert!((5..=15).contains(&crashed), "{crashed}");
    let first_starts: std::collections::BTreeSet<i64> = all
        .iter()
        .filter(|pod| restarts(pod).0 == 0)
        .filter_map(|pod| {
            let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
            let started = status.state.as_ref()?.running.as_ref()?.started_at.as_ref()?;
            Some(started.0.as_second() - begin.as_second())
        })
        .collect();
    assert!(first_starts.len() > 3, "{first_starts:?}");
    assert!(first_starts.iter().all(|start| (0..=61).contains(start)), "{first_starts:?}");
}

/// Returns the name of a pod's node.
fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn nodes_fail_and_return_as_a_behavior_draws() {
    const DAY: Duration = Duration::from_secs(86_400);
    let cluster = TestCluster::builder().nodes(2).behaviors().start().await.expect("a cluster");
    let nodes: Api<Node> = Api::all(cluster.client());
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
    wait(eventually(&accounts, "default", |_| true)).await;
    let of_node_0 = json!({"matchLabels": {"kubernetes.io/hostname": "node-0"}});
    let preferred = json!([{"weight": 100, "preference": {
        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-0"]}],
    }}]);
    let labels = json!({"app": "web"});
    let set = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "containers": [{"name": "a", "image": "a"}],
                "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
            },
        }},
    });
    let sets: Api<ReplicaSet> = Api::default_namespaced(cluster.client());
    let set: ReplicaSet = serde_json::from_value(set).expect("a ReplicaSet");
    sets.create(&PostParams::default(), &set).await.expect("created");
    let all = ListParams::default();
    let runs = |node: &'static str| {
        move |pods: &[Pod]| pods.iter().any(|pod| node_of(pod) == node && is_ready(pod))
    };
    wait(eventually_all(&pods, all.clone(), runs("node-0"))).await;
    let spec = json!({
        "seed": 1, "nodes": {"selector": of_node_0},
        "nodeFaults": [
            {"kind": "silent", "meanTimeBetweenFailures": "1h", "meanTimeToRepair": "2h"},
        ],
    });
    behave(&cluster, "flaky", &spec).await;
    assert_eq!(validity(&cluster, "flaky").await, ("True".to_owned(), String::new()));
    let node = nodes.get("node-0").await.expect("a node");
    assert_eq!(condition(&node, "Ready"), "True", "it is well at first");

    let ready = |status: &'static str| move |node: &Node| condition(node, "Ready") == status;
    eventually(&nodes, "node-0", ready("Unknown")).within(DAY).await.expect("it fails");
    let failed = cluster.clock().now();
    eventually_all(&pods, all.clone(), runs("node-1")).within(DAY).await.expect("evicted");
    let evicted = cluster.clock().now().duration_since(failed).unsigned_abs();
    // The pod tolerates an unreachable node for five minutes.
    assert!(evicted >= 4 * MINUTE && evicted < 7 * MINUTE, "{evicted:?}");
    let left = pods.list(&all).await.expect("pods").items;
    let terminating: Vec<_> = left.iter().filter(|pod| node_of(pod) == "node-0").collect();
    assert!(terminating.len() == 1 && terminating[0].metadata.deletion_timestamp.is_some());
    eventually(&nodes, "node-0", ready("True")).within(DAY).await.expect("it returns");
    let is_gone = |pods: &[Pod]| pods.iter().all(|pod| node_of(pod) == "node-1");
    wait(eventually_all(&pods, all, is_gone)).await;
    let other = nodes.get("node-1").await.expect("a node");
    let conditions = other.status.and_then(|status| status.conditions).unwrap_or_default();
    let ready_since = conditions.iter().find(|one| one.type_ == "Ready");
    let ready_since = ready_since.and_then(|one| one.last_transition_time.as_ref());
    assert!(ready_since.is_some_and(|since| since.0 < failed), "nobody selects it");

    // An annotation takes precedence. Without it, the node would be silent for two of three hours.
    annotate(&nodes, "node-0", "silent", "false").await;
    for _ in 0..6 * 60 {
        tokio::time::sleep(MINUTE).await;
        let node = nodes.get("node-0").await.expect("a node");
        assert_eq!(condition(&node, "Ready"), "True");
    }
    let patch = json!({"metadata": {"annotations": {"sim.evenkeel.dev/silent": null}}});
    nodes.patch("node-0", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    eventually(&nodes, "node-0", ready("Unknown")).within(DAY).await.expect("it fails again");
    // A fault that no Behavior draws any longer ends immediately.
    let begin = cluster.clock().now();
    behaviors(&cluster).delete("flaky", &Default::default()).await.expect("deleted");
    wait(eventually(&nodes, "node-0", ready("True"))).await;
    let passed = cluster.clock().now().duration_since(begin).unsigned_abs();
    assert!(passed < MINUTE, "{passed:?}");
}

#[tokio::test(start_paused = true)]
async fn faults_of_nodes_are_checked_with_their_fields() {
    let cluster = start().await;
    let fault = |between: &str| {
        json!({"nodeFaults": [
            {"kind": "disk-pressure", "meanTimeBetweenFailures": between, "meanTimeToRepair": "1h"},
        ]})
    };
    behave(&cluster, "b", &fault("0s")).await;
    let (status, message) = validity(&cluster, "b").await;
    assert_eq!(status, "False");
    let field = "spec.nodeFaults[0].meanTimeBetweenFailures";
    assert!(message.starts_with(&format!("{field}: \"0s\" is less than 1s")), "{message}");
    behave(&cluster, "b", &fault("1m")).await;
    let nodes: Api<Node> = Api::all(cluster.client());
    let node = eventually(&nodes, "node-0", |node| condition(node, "DiskPressure") == "True");
    assert_eq!(condition(&wait(node).await, "Ready"), "True");
    // The definition refuses a kind that does not exist.
    let mut unknown = fault("1m");
    unknown["nodeFaults"][0]["kind"] = "gone".into();
    let behavior = json!({
        "apiVersion": "sim.evenkeel.dev/v1alpha1", "kind": "Behavior",
        "metadata": {"name": "c"}, "spec": unknown,
    });
    let force = PatchParams::apply("test").force();
    let refused = behaviors(&cluster).patch("c", &force, &Patch::Apply(&behavior)).await;
    let refused = refused.expect_err("an unknown kind").to_string();
    assert!(refused.contains("spec.nodeFaults[0].kind"), "{refused}");
}
