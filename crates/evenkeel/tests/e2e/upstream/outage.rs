//! The API server is killed and restarted; the other programs continue their work.

use super::programs::Programs;
use crate::{
    cluster::{Cluster, items},
    deployment::settled,
    objects::{deployment, image, replicas},
};
use serde_json::Value;
use std::time::Duration;

/// Kills the server in the middle of a rollout.
pub(super) async fn is_survived(cluster: &Cluster, programs: &mut Programs) {
    let namespace = cluster.namespace("outage").await;
    namespace.create("deployments", deployment("web", 4, "app:v1")).await;
    settled(&namespace, "web", 4).await;
    namespace.patch("deployments/web", image("app:v2")).await;
    namespace.until("replicasets", |sets| items(sets).len() == 2).await;
    programs.kill_server();
    cluster.sleep(Duration::from_secs(2)).await;
    programs.start_server_again();
    programs.until_ready(cluster).await;
    settled(&namespace, "web", 4).await;

    namespace.patch("deployments/web", replicas(2)).await;
    settled(&namespace, "web", 2).await;
    namespace.patch("deployments/web", image("app:v3")).await;
    settled(&namespace, "web", 2).await;
    let path = format!("namespaces/{}", namespace.name);
    cluster.delete(&path, "Background").await;
    cluster.until(&path, Value::is_null).await;
}
