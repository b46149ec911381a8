//! A control plane settles and then writes nothing, whatever objects exist.

use crate::{
    autoscaling::{AUTOSCALERS, autoscaler, loaded},
    budgets::BUDGETS,
    fixtures::{
        CONTROLLERS, DEPLOYMENTS, MINUTE, PODS, REST, SETS, bare_pod, is_ready, ready, web_pods,
    },
    jobs::{JOBS, job},
    quotas::QUOTAS,
    sets::{DAEMONS, STATEFUL, daemons, stateful},
};
use evenkeel_sim::{Options, World, simulate};
use serde_json::{Value, json};

const CORE: &str = "/api/v1/namespaces/default";

/// Returns the object with another name, whose pods have their own label.
fn named(name: &str, mut object: Value) -> Value {
    object["metadata"]["name"] = name.into();
    for field in ["/spec/selector/matchLabels/app", "/spec/template/metadata/labels/app"] {
        if let Some(label) = object.pointer_mut(field) {
            *label = name.into();
        }
    }
    object
}

/// Creates objects that have pods.
async fn workloads(world: &World) {
    world.create(DEPLOYMENTS, &loaded()).await;
    world.create(AUTOSCALERS, &autoscaler()).await;
    let web = json!({"matchLabels": {"app": "web"}});
    let budget = json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": web}});
    world.create(BUDGETS, &budget).await;
    world.create(STATEFUL, &named("store", stateful(2, "OrderedReady"))).await;
    let mut log = named("log", daemons(0));
    log["spec"]["minReadySeconds"] = 5.into();
    world.create(DAEMONS, &log).await;
    let spec = named("set", stateful(1, ""))["spec"].clone();
    let [selector, template] = ["selector", "template"].map(|field| spec[field].clone());
    let set = json!({"replicas": 1, "selector": selector, "template": template});
    world.create(SETS, &json!({"metadata": {"name": "set"}, "spec": set})).await;
    let mut old = template.clone();
    old["metadata"]["labels"]["app"] = "old".into();
    let controller = json!({"replicas": 1, "selector": {"app": "old"}, "template": old});
    world.create(CONTROLLERS, &json!({"metadata": {"name": "old"}, "spec": controller})).await;
    let mut once = job(&json!({"completions": 2}), &json!({}));
    once["spec"]["template"]["metadata"]["labels"]["app"] = "once".into();
    world.create(JOBS, &once).await;
    let cron = json!({"schedule": "0 0 1 6 *", "jobTemplate": {"spec": once["spec"]}});
    let cron = json!({"metadata": {"name": "summer"}, "spec": cron});
    world.create("/apis/batch/v1/namespaces/default/cronjobs", &cron).await;
    let mut alone = bare_pod("alone");
    alone["metadata"]["labels"] = json!({});
    world.create(PODS, &alone).await;
}

/// Creates objects that have no pods.
async fn others(world: &World) {
    let meta = |name: &str| json!({"name": name});
    let mut claim = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": ""});
    let mut volume = claim.clone();
    claim["resources"] = json!({"requests": {"storage": "1Gi"}});
    volume["capacity"] = json!({"storage": "1Gi"});
    volume["hostPath"] = json!({"path": "/data"});
    let subset = json!({"addresses": [{"ip": "192.0.2.7"}], "ports": [{"port": 80}]});
    let limit = json!({"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}}]});
    let web = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    let none = json!({"podSelector": {}});
    let aggregation = json!({"clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]});
    let names =
        json!({"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let boats =
        json!({"group": "sim.dev", "scope": "Namespaced", "names": names, "versions": [version]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let all = [
        ("/api/v1/namespaces".to_owned(), json!({"metadata": meta("other")})),
        (format!("{CORE}/configmaps"), json!({"metadata": meta("map"), "data": {"a": "b"}})),
        (format!("{CORE}/secrets"), json!({"metadata": meta("secret"), "stringData": {"a": "b"}})),
        (format!("{CORE}/serviceaccounts"), json!({"metadata": meta("somebody")})),
        (format!("{CORE}/services"), json!({"metadata": meta("web"), "spec": web})),
        (
            format!("{CORE}/services"),
            json!({"metadata": meta("elsewhere"), "spec": {"ports": [{"port": 80}]}}),
        ),
        (format!("{CORE}/endpoints"), json!({"metadata": meta("elsewhere"), "subsets": [subset]})),
        ("/api/v1/persistentvolumes".to_owned(), json!({"metadata": meta("disk"), "spec": volume})),
        (
            format!("{CORE}/persistentvolumeclaims"),
            json!({"metadata": meta("data"), "spec": claim}),
        ),
        (format!("{CORE}/limitranges"), json!({"metadata": meta("some"), "spec": limit})),
        (
            QUOTAS.to_owned(),
            json!({"metadata": meta("many"), "spec": {"hard": {"pods": "50", "services": "9"}}}),
        ),
        (
            format!("{rbac}/clusterroles"),
            json!({"metadata": meta("all"), "aggregationRule": aggregation, "rules": []}),
        ),
        (
            format!("{rbac}/clusterroles"),
            json!({"metadata": {"name": "one", "labels": {"to": "all"}},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies".to_owned(),
            json!({"metadata": meta("none"), "spec": none}),
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses".to_owned(),
            json!({"metadata": meta("high"), "value": 7}),
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses".to_owned(),
            json!({"metadata": meta("slow"), "provisioner": "sim.dev/disks"}),
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
            json!({"metadata": meta("boats.sim.dev"), "spec": boats}),
        ),
    ];
    for (path, object) in &all {
        world.create(path, object).await;
    }
}

#[test]
fn idle_control_plane_writes_nothing_for_ten_hours() {
    simulate(Options::default(), async |world| {
        world.serve_metrics().await;
        world.settle(REST).await;
        let pods = web_pods(world).await;
        workloads(world).await;
        others(world).await;
        ready(world, &pods, 4).await;
        world
            .create(
                "/apis/sim.dev/v1/namespaces/default/boats",
                &json!({
                    "apiVersion": "sim.dev/v1", "kind": "Boat", "metadata": {"name": "boat"},
                }),
            )
            .await;
        world.settle(10 * MINUTE).await;
        // Pods of the Deployment, the StatefulSet, the DaemonSet, the ReplicaSet and the ReplicationController, and one without
        // owner.
        let all = world.list(PODS).await;
        assert_eq!(all.iter().filter(|pod| is_ready(pod)).count(), 4 + 2 + 3 + 1 + 1 + 1);
        assert_eq!(world.list("/api/v1/nodes").await.len(), 3);
        world.stays_silent(600 * MINUTE).await;
    });
}
