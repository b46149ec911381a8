//! One controller manager takes over from the other and finds nothing to do.

mod workloads;

use super::{credentials::Credentials, programs::Programs};
use crate::cluster::{Cluster, items, name};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};
use workloads::{build, work};

/// Time for which a new leader is observed.
const WATCHED: Duration = Duration::from_secs(6);

/// Resources that controllers of workloads write.
const RESOURCES: [&str; 14] = [
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/controllerrevisions",
    "/apis/batch/v1/cronjobs",
    "/apis/batch/v1/jobs",
    "/api/v1/replicationcontrollers",
    "/api/v1/pods",
    "/api/v1/namespaces",
    "/api/v1/serviceaccounts",
    "/api/v1/configmaps",
    "/api/v1/secrets",
    "/apis/discovery.k8s.io/v1/endpointslices",
];

/// Upstream's manager creates the workloads. Ours takes over, writes only its lease, handles changes, and hands back.
/// Upstream's then also writes only its lease, and handles changes.
pub(super) async fn both_ways(
    cluster: &Cluster,
    programs: &mut Programs,
    credentials: &Credentials,
    server: &str,
) {
    let (theirs, ours) = ("upstream-kcm", "evenkeel-kcm");
    programs.start_controller_manager(theirs, false, credentials, server);
    let first = leader(cluster, None).await;
    let namespace = cluster.namespace("takeover").await;
    build(&namespace).await;
    let built = quiet(cluster).await;
    assert!(programs.writes_of(theirs).len() > 50, "writes are seen");
    programs.stop(cluster, theirs).await;

    programs.start_controller_manager(ours, true, credentials, server);
    let second = leader(cluster, Some(&first)).await;
    cluster.sleep(WATCHED).await;
    assert_eq!(programs.writes_of(ours), Vec::<String>::new(), "ours finds nothing to do");
    assert_same(&built, &versions(cluster).await);
    work(&namespace, 4, "app:v5").await;
    let worked = quiet(cluster).await;
    assert!(programs.writes_of(ours).len() > 5, "writes are seen");
    let status = programs.stop(cluster, ours).await;
    assert!(status.success(), "ours ends with {status}; {}", programs.last_words(ours));

    let before = programs.writes_of(theirs).len();
    programs.start_controller_manager(theirs, false, credentials, server);
    leader(cluster, Some(&second)).await;
    cluster.sleep(WATCHED).await;
    assert_eq!(
        programs.writes_of(theirs)[before..],
        Vec::<String>::new(),
        "upstream's finds nothing to do"
    );
    assert_same(&worked, &versions(cluster).await);
    work(&namespace, 2, "app:v6").await;
    programs.stop(cluster, theirs).await;
}

/// Waits until another process than `than` leads, and returns its identity.
async fn leader(cluster: &Cluster, than: Option<&str>) -> String {
    let holder =
        |lease: &Value| lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
    let lease = cluster
        .until(path, |lease| {
            let holder = holder(lease);
            !holder.is_empty() && Some(&*holder) != than
        })
        .await;
    holder(&lease)
}

/// Returns the resource versions of all objects of these resources.
async fn versions(cluster: &Cluster) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for resource in RESOURCES {
        for object in items(&cluster.get(resource).await) {
            let path = format!("{resource} {}/{}", object["metadata"]["namespace"], name(object));
            versions.insert(path, object["metadata"]["resourceVersion"].to_string());
        }
    }
    versions
}

/// Waits until nothing has changed for a while. Returns the versions.
async fn quiet(cluster: &Cluster) -> BTreeMap<String, String> {
    let mut before = versions(cluster).await;
    loop {
        cluster.sleep(Duration::from_secs(3)).await;
        let now = versions(cluster).await;
        if now == before {
            return now;
        }
        before = now;
    }
}

fn assert_same(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) {
    let changed: Vec<_> =
        after.iter().filter(|(path, version)| before.get(*path) != Some(*version)).collect();
    let gone: Vec<_> = before.keys().filter(|path| !after.contains_key(*path)).collect();
    assert!(changed.is_empty() && gone.is_empty(), "changed: {changed:#?}; gone: {gone:#?}");
}
