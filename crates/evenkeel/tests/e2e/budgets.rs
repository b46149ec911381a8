//! PodDisruptionBudgets, and evictions that respect them.

use crate::{
    cluster::{Cluster, Namespace, condition},
    objects::deployment as set,
    pods::is_active,
};
use serde_json::{Value, json};

const BUDGET: &str = "poddisruptionbudgets/web";

fn budget(spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["selector"] = json!({"matchLabels": {"app": "web"}});
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": spec})
}

/// Waits until the budget's status is of the current spec and meets a condition. Returns the budget.
async fn until_budget(namespace: &Namespace<'_>, is_so: impl Fn(&Value) -> bool) -> Value {
    namespace
        .until(BUDGET, |budget| {
            budget["status"]["observedGeneration"] == budget["metadata"]["generation"]
                && is_so(&budget["status"])
        })
        .await
}

async fn active(namespace: &Namespace<'_>) -> Vec<String> {
    let pods = namespace.list("pods").await;
    let names = pods.iter().filter(|pod| is_active(pod)).map(crate::cluster::name);
    names.map(str::to_owned).collect()
}

/// Evicts a pod. Returns the code and the first cause of a refusal.
async fn evict(namespace: &Namespace<'_>, pod: &str) -> Result<(), (u16, String)> {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace.name}});
    match namespace.ask("POST", &format!("pods/{pod}/eviction"), eviction).await {
        Ok(_) => Ok(()),
        Err(error) => {
            let causes = error.status().map(|status| status.causes.clone()).unwrap_or_default();
            Err((error.code(), causes.first().map(|c| c.message.to_string()).unwrap_or_default()))
        }
    }
}

pub(crate) async fn are_spent_by_evictions(cluster: &Cluster) {
    let namespace = cluster.namespace("evict").await;
    namespace.create("deployments", set("web", 3, "app:v1")).await;
    namespace.create("poddisruptionbudgets", budget(&json!({"minAvailable": 2}))).await;
    let one = until_budget(&namespace, |status| status["disruptionsAllowed"] == 1).await;
    assert_eq!(condition(&one, "DisruptionAllowed")["reason"], "SufficientPods");
    let pods = active(&namespace).await;
    assert_eq!(evict(&namespace, &pods[0]).await, Ok(()));
    // Another pod replaces it, and the budget allows disruptions again.
    namespace.until_gone(&format!("pods/{}", pods[0])).await;
    until_budget(&namespace, |status| {
        status["currentHealthy"] == 3 && status["disruptedPods"].is_null()
    })
    .await;
    namespace.patch(BUDGET, json!({"spec": {"minAvailable": 3}})).await;
    let none = until_budget(&namespace, |status| status["desiredHealthy"] == 3).await;
    assert_eq!(condition(&none, "DisruptionAllowed")["reason"], "InsufficientPods");
    let pods = active(&namespace).await;
    let why = "The disruption budget web needs 3 healthy pods and has 3 currently";
    assert_eq!(evict(&namespace, &pods[0]).await, Err((429, why.to_owned())));
}

pub(crate) async fn count_what_owners_want(cluster: &Cluster) {
    let namespace = cluster.namespace("budget-owners").await;
    namespace.create("deployments", set("web", 4, "app:v1")).await;
    namespace.create("poddisruptionbudgets", budget(&json!({"maxUnavailable": "30%"}))).await;
    let counts = |status: &Value, expected: i64, desired: i64| {
        status["expectedPods"] == expected && status["desiredHealthy"] == desired
    };
    // 30% of four are two, rounded up.
    until_budget(&namespace, |status| counts(status, 4, 2) && status["disruptionsAllowed"] == 2)
        .await;
    namespace.patch("deployments/web", json!({"spec": {"replicas": 7}})).await;
    until_budget(&namespace, |status| counts(status, 7, 4) && status["disruptionsAllowed"] == 3)
        .await;
    namespace.patch(BUDGET, json!({"spec": {"maxUnavailable": null, "minAvailable": "50%"}})).await;
    until_budget(&namespace, |status| counts(status, 7, 4)).await;
}

pub(crate) async fn let_unhealthy_pods_go_by_policy(cluster: &Cluster) {
    let namespace = cluster.namespace("unhealthy").await;
    let mut never = set("web", 2, "app:v1");
    never["spec"]["template"]["metadata"]["annotations"] =
        json!({"sim.evenkeel.dev/readiness": "never"});
    namespace.create("deployments", never).await;
    namespace.create("poddisruptionbudgets", budget(&json!({"minAvailable": 1}))).await;
    until_budget(&namespace, |status| status["expectedPods"] == 2).await;
    let running = |pods: &Value| {
        let all = crate::cluster::items(pods);
        all.len() == 2 && all.iter().all(|pod| pod["status"]["phase"] == "Running")
    };
    namespace.until("pods", running).await;
    let pods = active(&namespace).await;
    let why = "The disruption budget web needs 1 healthy pods and has 0 currently";
    assert_eq!(evict(&namespace, &pods[0]).await, Err((429, why.to_owned())));
    let policy = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    namespace.patch(BUDGET, policy).await;
    until_budget(&namespace, |status| status["expectedPods"] == 2).await;
    assert_eq!(evict(&namespace, &pods[0]).await, Ok(()));
    namespace.until_gone(&format!("pods/{}", pods[0])).await;
}
