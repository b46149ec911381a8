//! Tests of the volumes that the plugin finds for a pod on a node.

use super::{
    AssumedPodVolumes, VolumeBinding,
    find::{PodClaims, PodVolumes, Provision, UnboundClaim, usable_claim},
    score::score,
};
use crate::{
    fixtures::{at, handle, info, merge, node, pod, series, table},
    framework::{CycleState, Filter as _, Plugin as _, PreBind as _, Status},
    plugins::{
        shape::Shape,
        volumes::test_objects::{self, VolumeObjects},
    },
    scripted::{Answer, Script},
};
use evenkeel_api::{
    Encoding, View,
    views::{CsiStorageCapacity, Node, PersistentVolume, PersistentVolumeClaim, StorageClass},
};
use evenkeel_runtime::clock::Clock;
use serde_json::{Value, json};
use std::sync::Arc;

fn object<V: View>(mut base: Value, more: &Value) -> Arc<V> {
    merge(&mut base, more);
    Arc::new(V::decode(base.to_string().as_bytes(), Encoding::Json).unwrap())
}

fn claim(name: &str, size: &str) -> Arc<PersistentVolumeClaim> {
    object(
        json!({"metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"storageClassName": "c", "resources": {"requests": {"storage": size}}}}),
        &json!({}),
    )
}

/// Returns an available volume of class `c` that is accessible from `host`, or from every node.
fn volume(name: &str, size: &str, host: Option<&str>) -> Arc<PersistentVolume> {
    let affinity = host.map(|host| json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}]}}}}));
    object(
        json!({"metadata": {"name": name}, "status": {"phase": "Available"},
            "spec": {"storageClassName": "c", "capacity": {"storage": size}}}),
        &affinity.unwrap_or_else(|| json!({})),
    )
}

/// Returns an unbound claim of class `c`, which provisions volumes on the nodes `a` and `b`.
fn unbound_claim(
    claim: Arc<PersistentVolumeClaim>,
    provisioner: &str,
    volumes: &[Arc<PersistentVolume>],
) -> UnboundClaim {
    let class: Arc<StorageClass> = object(
        json!({"metadata": {"name": "c"}, "provisioner": provisioner,
            "allowedTopologies": [{"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": ["a", "b"]}]}]}),
        &json!({}),
    );
    UnboundClaim { claim, class: Some(class), node: None, candidates: volumes.to_vec() }
}

fn find_pod_volumes(claims: &PodClaims, node: &Node) -> Result<PodVolumes, Status> {
    super::find::find_pod_volumes(&VolumeObjects::default(), claims, node)
}

/// Returns the bindings as `CLAIM=VOLUME`, and the names of the claims to provision.
fn names(pod_volumes: &PodVolumes) -> (Vec<String>, Vec<&str>) {
    let bindings = pod_volumes
        .bindings
        .iter()
        .map(|(volume, claim)| format!("{}={}", claim.meta.name, volume.meta.name));
    (
        bindings.collect(),
        pod_volumes.provisions.iter().map(|provision| &*provision.claim.meta.name).collect(),
    )
}

/// Returns the reasons that reject the node.
fn rejection(claims: &PodClaims, host: &str) -> String {
    find_pod_volumes(claims, &node(host, &json!({}))).unwrap_err().reasons.join("; ")
}

#[test]
fn bound_volumes_must_exist_and_be_accessible() {
    let claims = |volume| PodClaims { bound: vec![volume], delayed: vec![] };
    let local = claims(Some(volume("v", "1Gi", Some("a"))));
    assert!(find_pod_volumes(&local, &node("a", &json!({}))).unwrap().is_empty());
    assert_eq!(rejection(&local, "b"), "node(s) didn't match PersistentVolume's node affinity");
    assert_eq!(
        rejection(&claims(None), "a"),
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    );
}

#[test]
fn smaller_claims_are_matched_first_and_no_volume_twice() {
    let volumes = [volume("big", "9Gi", None), volume("small", "2Gi", Some("a"))];
    let no_provisioner = "kubernetes.io/no-provisioner";
    let claims = PodClaims {
        bound: vec![],
        delayed: vec![
            unbound_claim(claim("x", "2Gi"), no_provisioner, &volumes),
            unbound_claim(claim("y", "1Gi"), no_provisioner, &volumes),
        ],
    };
    let found = find_pod_volumes(&claims, &node("a", &json!({}))).unwrap();
    assert_eq!(names(&found), (vec!["y=small".to_owned(), "x=big".to_owned()], vec![]));
    assert_eq!(rejection(&claims, "b"), "node(s) didn't find available persistent volumes to bind");
}

#[test]
fn volumes_are_provisioned_in_the_topologies_of_their_class() {
    let claims = |node: Option<&str>| PodClaims {
        bound: vec![],
        delayed: vec![UnboundClaim {
            node: node.map(Arc::from),
            ..unbound_claim(claim("x", "2Gi"), "csi.example.com", &[volume("small", "1Gi", None)])
        }],
    };
    let found = find_pod_volumes(&claims(None), &node("b", &json!({}))).unwrap();
    assert_eq!(names(&found), (vec![], vec!["x"]));
    let no_volumes = "node(s) didn't find available persistent volumes to bind";
    assert_eq!(
        rejection(&claims(None), "elsewhere"),
        no_volumes,
        "the class does not allow the node"
    );
    assert_eq!(
        rejection(&claims(Some("a")), "b"),
        no_volumes,
        "another node is selected for the claim"
    );
    assert!(find_pod_volumes(&claims(Some("a")), &node("a", &json!({}))).is_ok());
}

#[test]
fn unusable_claims_reject_the_pod_with_a_reason() {
    let pod = pod("web", &json!({}));
    let claim = |more: &Value| {
        Some(object::<PersistentVolumeClaim>(
            json!({"metadata": {"name": "d", "namespace": "shop"}, "spec": {"volumeName": "v"}}),
            more,
        ))
    };
    for (found_claim, is_ephemeral, expected) in [
        (None, false, "persistentvolumeclaim \"d\" not found"),
        (
            None,
            true,
            "waiting for ephemeral volume controller to create the persistentvolumeclaim \"d\"",
        ),
        (
            claim(&json!({"status": {"phase": "Lost"}})),
            false,
            "persistentvolumeclaim \"d\" bound to non-existent persistentvolume \"v\"",
        ),
        (
            claim(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            false,
            "persistentvolumeclaim \"d\" is being deleted",
        ),
        (claim(&json!({})), true, "PVC shop/d was not created for pod shop/web (pod is not owner)"),
    ] {
        let rejection = usable_claim(&pod, "d", is_ephemeral, found_claim).unwrap_err();
        assert_eq!(rejection.reasons.join("; "), expected);
    }
    assert!(usable_claim(&pod, "d", false, claim(&json!({}))).is_ok());
}

/// Returns a claim of 2 GiB, and objects with these published capacities.
fn with_capacities(capacities: &[Value]) -> (PodClaims, VolumeObjects) {
    let claims = PodClaims {
        bound: vec![],
        delayed: vec![unbound_claim(claim("x", "2Gi"), "csi.example.com", &[])],
    };
    let capacities = capacities.iter().enumerate().map(|(n, capacity)| {
        let mut capacity = capacity.clone();
        merge(&mut capacity, &json!({"storageClassName": "c"}));
        test_objects::object::<CsiStorageCapacity>(&format!("capacity{n}"), &capacity)
    });
    let driver =
        test_objects::object("csi.example.com", &json!({"spec": {"storageCapacity": true}}));
    (
        claims,
        VolumeObjects {
            capacities: capacities.collect(),
            drivers: vec![driver],
            ..VolumeObjects::default()
        },
    )
}

#[test]
fn provisioning_needs_enough_published_storage_capacity() {
    let here = json!({"matchLabels": {"kubernetes.io/hostname": "a"}});
    let full = "node(s) did not have enough free storage";
    for (capacities, expected) in [
        (vec![], full),
        (vec![json!({"nodeTopology": here, "capacity": "2Gi"})], "x"),
        (vec![json!({"nodeTopology": here, "capacity": "1Gi"})], full),
        (vec![json!({"nodeTopology": here, "capacity": "9Gi", "maximumVolumeSize": "1Gi"})], full),
        (vec![json!({"nodeTopology": here, "capacity": "1Gi", "maximumVolumeSize": "2Gi"})], "x"),
        (vec![json!({"nodeTopology": {"matchLabels": {"z": "y"}}, "capacity": "2Gi"})], full),
        (vec![json!({"capacity": "2Gi"})], full),
        (
            vec![
                json!({"nodeTopology": {}, "capacity": "1Gi"}),
                json!({"nodeTopology": {}, "capacity": "2Gi"}),
            ],
            "x",
        ),
    ] {
        let (claims, mut objects) = with_capacities(&capacities);
        let found = super::find::find_pod_volumes(&objects, &claims, &node("a", &json!({})));
        let text = match found {
            Ok(found) => names(&found).1.join(", "),
            Err(rejection) => rejection.reasons.join("; "),
        };
        assert_eq!(text, expected, "{capacities:?}");
        objects.drivers.clear();
        assert!(super::find::find_pod_volumes(&objects, &claims, &node("a", &json!({}))).is_ok());
    }
}

#[test]
fn nodes_with_lower_storage_utilization_score_higher() {
    let shape = Shape::new(&[(0, 10), (100, 0)]);
    for (capacity, expected) in [("2Gi", 0), ("4Gi", 50), ("8Gi", 75)] {
        let (claims, objects) =
            with_capacities(&[json!({"nodeTopology": {}, "capacity": capacity})]);
        let found =
            super::find::find_pod_volumes(&objects, &claims, &node("a", &json!({}))).unwrap();
        assert_eq!(score(&found, &shape), expected, "{capacity}");
    }
    let volumes = [volume("v", "8Gi", None)];
    let claims = PodClaims {
        bound: vec![],
        delayed: vec![unbound_claim(claim("x", "2Gi"), "kubernetes.io/no-provisioner", &volumes)],
    };
    let found = find_pod_volumes(&claims, &node("a", &json!({}))).unwrap();
    assert_eq!(score(&found, &shape), 75, "a static binding counts by the size of its volume");
    assert_eq!(score(&PodVolumes::default(), &shape), 0);
}

#[tokio::test]
async fn volume_errors_are_counted_by_stage() {
    let (clock, script) = (Clock::starting_at(at(0)), Script::new([Answer::status(403)]));
    let (plugin, client) = (VolumeBinding::default(), script.client(&clock));
    let handle = handle(client.clone(), &clock);
    plugin.connect(&handle);
    let (pod, nodes, mut state) =
        (info("p", &json!({})), table(&[node("a", &json!({}))]), CycleState::default());
    // The class of the claim does not exist.
    let claims = |class: Option<Arc<StorageClass>>| {
        let claim = unbound_claim(claim("c", "1Gi"), "csi.x", &[]);
        PodClaims { delayed: vec![UnboundClaim { class, ..claim }], ..PodClaims::default() }
    };
    state.put(claims(None));
    assert!(plugin.filter(&state, &pod, nodes.get("a").unwrap()).is_err());
    let pod_volumes = PodVolumes {
        provisions: vec![Provision { claim: claim("c", "1Gi"), capacity: None }],
        ..PodVolumes::default()
    };
    plugin
        .assumed_volumes()
        .insert("p".into(), AssumedPodVolumes { node: "a".into(), pod_volumes });
    assert!(plugin.pre_bind(&client, &pod, "a").await.is_err());
    let counted = series(&handle.registry, "scheduler_volume_scheduling_stage_error_total");
    assert_eq!(counted, [("bind".to_owned(), 1), ("predicate".to_owned(), 1)]);
    // The rejection of a node is not an error.
    let mut state = CycleState::default();
    state.put(PodClaims { bound: vec![None], ..PodClaims::default() });
    assert!(plugin.filter(&state, &pod, nodes.get("a").unwrap()).is_err());
    assert_eq!(series(&handle.registry, "scheduler_volume_scheduling_stage_error_total"), counted);
}
