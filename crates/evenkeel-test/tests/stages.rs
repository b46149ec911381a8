//! Pods and nodes that follow the Stages of KWOK.

use evenkeel_test::{TestCluster, eventually};
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    batch::v1::Job,
    core::v1::{Event, Node, Pod, ServiceAccount},
};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use std::{path::Path, time::Duration};

const MINUTE: Duration = Duration::from_secs(60);

async fn wait<T>(wait: evenkeel_test::Wait<'_, T>) -> T {
    wait.within(20 * MINUTE).await.expect("it happens")
}

async fn start() -> TestCluster {
    let cluster = TestCluster::builder().nodes(1).stages().start().await.expect("a cluster");
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
    wait(eventually(&accounts, "default", |_| true)).await;
    cluster
}

fn stages(cluster: &TestCluster) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("kwok.x-k8s.io", "v1alpha1", "Stage");
    Api::all_with(cluster.client(), &ApiResource::from_gvk(&kind))
}

/// Applies a Stage, and returns status and message of its condition.
async fn apply(cluster: &TestCluster, stage: &Value) -> (String, String) {
    let name = stage["metadata"]["name"].as_str().expect("a name");
    let force = PatchParams::apply("test").force();
    let api = stages(cluster);
    let applied = api.patch(name, &force, &Patch::Apply(stage)).await.expect("applied");
    let generation = json!(applied.metadata.generation);
    let is_current = |stage: &DynamicObject| {
        stage.data["status"]["conditions"][0]["observedGeneration"] == generation
    };
    let stage = wait(eventually(&api, name, is_current)).await;
    let condition = &stage.data["status"]["conditions"][0];
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

/// Returns a Stage with requirements, each an expression with its operator and values.
fn stage(name: &str, kind: &str, requirements: &[(&str, &str, &[&str])], more: &Value) -> Value {
    let requirements: Vec<Value> = requirements
        .iter()
        .map(|(key, operator, values)| json!({"key": key, "operator": operator, "values": values}))
        .collect();
    let mut spec = json!({
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": requirements},
    });
    for (field, value) in more.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage",
        "metadata": {"name": name}, "spec": spec,
    })
}

const ALIVE: (&str, &str, &[&str]) = (".metadata.deletionTimestamp", "DoesNotExist", &[]);
const DELETED: (&str, &str, &[&str]) = (".metadata.deletionTimestamp", "Exists", &[]);

/// Template of a status in which all containers run.
const RUNNING: &str = r#"
{{ $now := Now }}
conditions:
{{ range list "Initialized" "Ready" "ContainersReady" }}
- {type: {{ . }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName (or .spec.hostNetwork false) .metadata.uid .metadata.name .metadata.namespace | Quote }}
phase: Running
startTime: {{ $now | Quote }}
"#;

/// Template of a status in which all containers have ended.
const SUCCEEDED: &str = r#"
containerStatuses:
{{- range $index, $item := .spec.containers }}
- name: {{ $item.name }}
  image: {{ (index $.status.containerStatuses $index).image }}
  ready: false
  restartCount: 0
  state: {terminated: {exitCode: 0, reason: Completed, finishedAt: {{ Now | Quote }}}}
{{- end }}
phase: Succeeded
"#;

/// Installs a life cycle of pods: they run after a delay, Jobs end, and deleted pods are removed.
async fn install_pod_stages(cluster: &TestCluster) {
    let pending = (".status.phase", "In", &["Pending"] as &[&str]);
    let running = (".status.phase", "In", &["Running"] as &[&str]);
    let of_job = (".metadata.ownerReferences.[].kind", "In", &["Job"] as &[&str]);
    let start_delay = json!({
        "durationMilliseconds": 10_000,
        "durationFrom": {"expressionFrom": ".metadata.annotations[\"start\"]"},
    });
    let event = json!({"type": "Normal", "reason": "Begun", "message": "containers run"});
    for stage in [
        stage(
            "run",
            "Pod",
            &[ALIVE, pending],
            &json!({
                "delay": start_delay, "next": {"event": event, "statusTemplate": RUNNING},
            }),
        ),
        stage(
            "complete",
            "Pod",
            &[ALIVE, running, of_job],
            &json!({
                "delay": {"durationMilliseconds": 1000, "jitterDurationMilliseconds": 5000},
                "next": {"statusTemplate": SUCCEEDED},
            }),
        ),
        stage(
            "delete",
            "Pod",
            &[DELETED],
            &json!({
                "steps": [{"finalizers": {"remove": [{"value": "example.com/a"}]}}, {"delete": true}],
            }),
        ),
    ] {
        assert_eq!(apply(cluster, &stage).await, ("True".to_owned(), String::new()));
    }
}

fn pod(name: &str, metadata: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    });
    for (field, value) in metadata.as_object().expect("fields") {
        pod["metadata"][field] = value.clone();
    }
    serde_json::from_value(pod).expect("a pod")
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Status of a node's condition.
fn condition<'a>(node: &'a Node, kind: &str) -> &'a str {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.find(|one| one.type_ == kind).map_or("", |condition| &condition.status)
}

#[tokio::test(start_paused = true)]
async fn pods_follow_stages_instead_of_the_built_in_life_cycle() {
    let cluster = start().await;
    install_pod_stages(&cluster).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let create = async |pod: &Pod| pods.create(&PostParams::default(), pod).await.expect("created");
    let begin = cluster.clock().now();
    create(&pod("web", &json!({"finalizers": ["example.com/a", "example.com/b"]}))).await;
    create(&pod("late", &json!({"annotations": {"start": "2m"}}))).await;
    let running = wait(eventually(&pods, "web", |pod| phase(pod) == "Running")).await;
    let passed = cluster.clock().now().duration_since(begin).unsigned_abs();
    assert!(passed >= Duration::from_secs(10) && passed < MINUTE, "{passed:?}");
    let status = running.status.expect("a status");
    assert_eq!(status.pod_ip.as_deref(), Some("10.128.0.1"));
    assert!(status.host_ip.is_some());
    let late = pods.get("late").await.expect("the pod");
    assert_eq!(phase(&late), "Pending");
    wait(eventually(&pods, "late", |pod| phase(pod) == "Running")).await;
    let passed = cluster.clock().now().duration_since(begin).unsigned_abs();
    assert!(passed >= 2 * MINUTE, "{passed:?}");
    let events: Api<Event> = Api::default_namespaced(cluster.client());
    let events = events.list(&Default::default()).await.expect("events");
    let begun = |event: &&Event| event.reason.as_deref() == Some("Begun");
    assert_eq!(events.iter().filter(begun).count(), 2);
    // The Stage removes one finalizer and deletes the pod, which waits for the other one.
    pods.delete("web", &DeleteParams::default()).await.expect("deleted");
    let has_one =
        |pod: &Pod| pod.metadata.finalizers.as_deref() == Some(&["example.com/b".to_owned()]);
    wait(eventually(&pods, "web", has_one)).await;
    let none = json!({"metadata": {"finalizers": null}});
    pods.patch("web", &PatchParams::default(), &Patch::Merge(&none)).await.expect("patched");
    pods.delete("late", &DeleteParams::default()).await.expect("deleted");
    for name in ["web", "late"] {
        while pods.get_opt(name).await.expect("an answer").is_some() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_complete_by_stages() {
    let cluster = start().await;
    install_pod_stages(&cluster).await;
    let jobs: Api<Job> = Api::default_namespaced(cluster.client());
    let job = json!({
        "metadata": {"name": "sum"},
        "spec": {"completions": 3, "parallelism": 2, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}],
        }}},
    });
    let job = serde_json::from_value(job).expect("a job");
    jobs.create(&PostParams::default(), &job).await.expect("created");
    let is_complete = |job: &Job| {
        job.status.as_ref().and_then(|status| status.succeeded) == Some(3)
            && job.status.as_ref().is_some_and(|status| status.completion_time.is_some())
    };
    wait(eventually(&jobs, "sum", is_complete)).await;
}

#[tokio::test(start_paused = true)]
async fn without_stages_the_built_in_life_cycle_goes_on() {
    let cluster = start().await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let never =
        stage("never", "Pod", &[(".spec.none", "Exists", &[])], &json!({"next": {"delete": true}}));
    apply(&cluster, &never).await;
    pods.create(&PostParams::default(), &pod("web", &json!({}))).await.expect("created");
    tokio::time::sleep(5 * MINUTE).await;
    let web = pods.get("web").await.expect("the pod");
    assert_eq!(
        phase(&web),
        "Pending",
        "a Stage replaces the life cycle even if it selects nothing"
    );
    stages(&cluster).delete("never", &Default::default()).await.expect("deleted");
    wait(eventually(&pods, "web", |pod| phase(pod) == "Running")).await;
}

#[tokio::test(start_paused = true)]
async fn invalid_stages_say_why_and_failing_ones_tell_their_object() {
    let cluster = start().await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    for (more, want) in [
        (
            json!({"next": {"statusTemplate": "{{ nofunc }}"}}),
            "spec.next.statusTemplate: function \"nofunc\" not defined",
        ),
        (
            json!({"weightFrom": {"expressionFrom": ".a |"}}),
            "spec.weightFrom: \".a |\" is not a jq expression",
        ),
        (
            json!({"resourceRef": {"apiGroup": "apps/v1", "kind": "Deployment"}}),
            "spec.resourceRef: Deployment of apps/v1",
        ),
        (
            json!({"steps": [{"apply": {"template": "a: b"}}]}),
            "spec.steps[0].apply: steps that apply",
        ),
    ] {
        let (status, message) = apply(&cluster, &stage("bad", "Pod", &[ALIVE], &more)).await;
        assert_eq!(status, "False");
        assert!(message.starts_with(want), "{message:?}, not {want:?}");
    }
    pods.create(&PostParams::default(), &pod("web", &json!({}))).await.expect("created");
    wait(eventually(&pods, "web", |pod| phase(pod) == "Running")).await;
    let failing = json!({"next": {"statusTemplate": "{{ index .spec.containers 9 }}"}});
    assert_eq!(apply(&cluster, &stage("bad", "Pod", &[ALIVE], &failing)).await.0, "True");
    let events: Api<Event> = Api::default_namespaced(cluster.client());
    let message = loop {
        let events = events.list(&Default::default()).await.expect("events");
        let found =
            events.into_iter().find(|event| event.reason.as_deref() == Some("InvalidStage"));
        match found {
            Some(event) => break event.message.unwrap_or_default(),
            None => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    };
    assert_eq!(message, "Stage bad: step 0: index: index out of range: 9");
}

#[tokio::test(start_paused = true)]
async fn nodes_follow_stages_and_keep_their_leases() {
    let cluster = start().await;
    let nodes: Api<Node> = Api::all(cluster.client());
    wait(eventually(&nodes, "node-0", |node| condition(node, "Ready") == "True")).await;
    let running = (".status.phase", "In", &["Running"] as &[&str]);
    let broken = (".metadata.labels[\"broken\"]", "In", &["true"] as &[&str]);
    let not_broken = (".metadata.labels[\"broken\"]", "NotIn", &["true"] as &[&str]);
    let template = |status: &str| {
        json!({"next": {"statusTemplate": format!(
            "conditions:\n- {{type: Ready, status: {status:?}, reason: ByStage, message: m, lastHeartbeatTime: {{{{ Now | Quote }}}}, lastTransitionTime: {{{{ Now | Quote }}}}}}"
        )}})
    };
    let ready = ".status.conditions.[] | select(.type == \"Ready\") | .status";
    let is_ready = (ready, "In", &["True"] as &[&str]);
    let is_not_ready = (ready, "NotIn", &["True"] as &[&str]);
    apply(&cluster, &stage("break", "Node", &[running, broken, is_ready], &template("False")))
        .await;
    apply(&cluster, &stage("mend", "Node", &[not_broken, is_not_ready], &template("True"))).await;
    tokio::time::sleep(10 * MINUTE).await;
    let node = nodes.get("node-0").await.expect("the node");
    assert_eq!(condition(&node, "Ready"), "True", "its Lease is renewed");
    let label = |value: &str| json!({"metadata": {"labels": {"broken": value}}});
    nodes
        .patch("node-0", &PatchParams::default(), &Patch::Merge(&label("true")))
        .await
        .expect("patched");
    wait(eventually(&nodes, "node-0", |node| condition(node, "Ready") == "False")).await;
    tokio::time::sleep(10 * MINUTE).await;
    let node = nodes.get("node-0").await.expect("the node");
    assert_eq!(condition(&node, "Ready"), "False", "the kubelet reports nothing else");
    nodes
        .patch("node-0", &PatchParams::default(), &Patch::Merge(&label("false")))
        .await
        .expect("patched");
    wait(eventually(&nodes, "node-0", |node| condition(node, "Ready") == "True")).await;
}

#[tokio::test(start_paused = true)]
async fn a_stage_that_follows_itself_leaves_time_for_others() {
    let cluster = start().await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let count = json!({"steps": [{"patch": {"root": "metadata", "type": "merge", "template":
        "annotations: {count: {{ add1 (or (index (or .metadata.annotations dict) \"count\") 0) | quote }}}"}}]});
    apply(&cluster, &stage("count", "Pod", &[ALIVE], &count)).await;
    pods.create(&PostParams::default(), &pod("web", &json!({}))).await.expect("created");
    tokio::time::sleep(MINUTE).await;
    let web = pods.get("web").await.expect("the pod");
    let count = web.metadata.annotations.and_then(|all| all.get("count")?.parse::<u32>().ok());
    assert!(count.is_some_and(|count| (40..90).contains(&count)), "{count:?}");
}

#[tokio::test(start_paused = true)]
async fn other_stages_reset_no_delay() {
    let cluster = start().await;
    let delay =
        json!({"delay": {"durationMilliseconds": 60_000}, "next": {"statusTemplate": RUNNING}});
    let pending = (".status.phase", "In", &["Pending"] as &[&str]);
    assert_eq!(apply(&cluster, &stage("run", "Pod", &[pending], &delay)).await.0, "True");
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let begin = cluster.clock().now();
    pods.create(&PostParams::default(), &pod("web", &json!({}))).await.expect("created");
    tokio::time::sleep(MINUTE / 2).await;
    let never = (".spec.none", "Exists", &[] as &[&str]);
    let delete = json!({"next": {"delete": true}});
    assert_eq!(apply(&cluster, &stage("node", "Node", &[never], &delete)).await.0, "True");
    let invalid = json!({"next": {"patches": [{"subresource": "none", "template": "a: b"}]}});
    assert_eq!(apply(&cluster, &stage("bad", "Pod", &[never], &invalid)).await.0, "False");
    assert_eq!(apply(&cluster, &stage("other", "Pod", &[never], &delete)).await.0, "True");
    wait(eventually(&pods, "web", |pod| phase(pod) == "Running")).await;
    let passed = cluster.clock().now().duration_since(begin).unsigned_abs();
    assert!(passed >= MINUTE && passed < MINUTE + Duration::from_secs(20), "{passed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_step_that_a_policy_forbids_is_reported_and_dropped() {
    let cluster = start().await;
    let policy = json!({
        "metadata": {"name": "unmarked"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["UPDATE"],
            }]},
            "validations": [{"reason": "Forbidden", "message": "no marks",
                "expression": "!('mark' in object.metadata.?annotations.orValue({}))"}],
        },
    });
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client());
    let policy = serde_json::from_value(policy).expect("a policy");
    policies.create(&PostParams::default(), &policy).await.expect("created");
    let binding = json!({
        "metadata": {"name": "unmarked"},
        "spec": {"policyName": "unmarked", "validationActions": ["Deny"]},
    });
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.client());
    let binding = serde_json::from_value(binding).expect("a binding");
    bindings.create(&PostParams::default(), &binding).await.expect("created");
    tokio::time::sleep(MINUTE).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let mark = json!({"steps": [
        {"event": {"type": "Normal", "reason": "Marked", "message": "m"}},
        {"patch": {"root": "metadata", "type": "merge", "template": "annotations: {mark: x}"}},
    ]});
    apply(&cluster, &stage("mark", "Pod", &[(".spec.nodeName", "Exists", &[])], &mark)).await;
    pods.create(&PostParams::default(), &pod("web", &json!({}))).await.expect("created");
    tokio::time::sleep(10 * MINUTE).await;
    let events: Api<Event> = Api::default_namespaced(cluster.client());
    let events = events.list(&Default::default()).await.expect("events").items;
    let of = |reason: &str| {
        let mut found = events.iter().filter(|event| event.reason.as_deref() == Some(reason));
        let event = found.next().expect("an event");
        assert!(found.next().is_none(), "one {reason}");
        event
    };
    let message = of("InvalidStage").message.as_deref().unwrap_or_default();
    assert!(message.starts_with("Stage mark: step 1: pods \"web\" is forbidden: "), "{message}");
    for reason in ["InvalidStage", "Marked"] {
        assert!(of(reason).count.unwrap_or(1) == 1 && of(reason).series.is_none(), "{reason}");
    }
}

/// Returns the Stages in the files of a folder and its subfolders.
fn stages_in(folder: &Path) -> Vec<Value> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file")) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(stages_in(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(&path).expect("a text");
            let object: Value = serde_saphyr::from_str(&text).expect("YAML");
            found.extend(Some(object).filter(|object| object["kind"] == "Stage"));
        }
    }
    found
}

/// KWOK's own Stages run pods and Jobs, delete pods, and send heartbeats of nodes.
#[tokio::test(start_paused = true)]
async fn stages_of_kwok_work_as_they_are() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kwok"));
    for set in ["pod/fast", "pod/general"] {
        let cluster = start().await;
        for part in [set, "node/fast", "node/heartbeat", "pod/chaos", "node/chaos"] {
            let stages = stages_in(&folder.join(part));
            assert!(!stages.is_empty(), "{part}");
            for stage in stages {
                let valid = ("True".to_owned(), String::new());
                assert_eq!(apply(&cluster, &stage).await, valid, "{part}");
            }
        }
        let pods: Api<Pod> = Api::default_namespaced(cluster.client());
        let create =
            async |pod: &Pod| pods.create(&PostParams::default(), pod).await.expect("created");
        create(&pod("web", &json!({}))).await;
        let label = "pod-container-running-failed.stage.kwok.x-k8s.io";
        create(&pod("chaos", &json!({"labels": {label: "true"}}))).await;
        wait(eventually(&pods, "web", |pod| phase(pod) == "Running")).await;
        wait(eventually(&pods, "chaos", |pod| phase(pod) == "Failed")).await;
        let jobs: Api<Job> = Api::default_namespaced(cluster.client());
        let job = json!({"metadata": {"name": "job"}, "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "initContainers": [{"name": "i", "image": "i"}], "containers": [{"name": "a", "image": "a"}],
        }}}});
        let job = serde_json::from_value(job).expect("a job");
        jobs.create(&PostParams::default(), &job).await.expect("created");
        let is_complete =
            |job: &Job| job.status.as_ref().is_some_and(|status| status.completion_time.is_some());
        wait(eventually(&jobs, "job", is_complete)).await;
        pods.delete("web", &DeleteParams::default()).await.expect("deleted");
        while pods.get_opt("web").await.expect("an answer").is_some() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let nodes: Api<Node> = Api::all(cluster.client());
        let beat = |node: &Node| {
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            let mut conditions = conditions.into_iter().flatten();
            let ready = conditions.find(|condition| condition.type_ == "Ready");
            ready.and_then(|ready| ready.last_heartbeat_time.as_ref().map(|time| time.0))
        };
        let first = beat(&nodes.get("node-0").await.expect("the node"));
        tokio::time::sleep(MINUTE).await;
        let node = nodes.get("node-0").await.expect("the node");
        assert!(beat(&node) > first, "{first:?}");
        let label = json!({"metadata": {"labels": {"node-not-ready.stage.kwok.x-k8s.io": "true"}}});
        nodes
            .patch("node-0", &PatchParams::default(), &Patch::Merge(&label))
            .await
            .expect("patched");
        wait(eventually(&nodes, "node-0", |node| condition(node, "Ready") == "False")).await;
    }
}
