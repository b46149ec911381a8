//! Table tests of plans for claims and volumes. A property test interrupts plans, and checks that both objects still
//! reach their final state.

use super::{
    claim::{self, Provisioner, Step},
    reclaim, volume,
};
use crate::{
    fixtures::{T0, object},
    storage::binder::Options,
};
use evenkeel_api::views::{PersistentVolume, PersistentVolumeClaim, Pod, StorageClass};
use evenkeel_component_helpers::storage;
use evenkeel_runtime::plan::{Action, Failure, Key, Outcome, Outcomes, Plan, Reply, Rewrite, lint};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn merged(mut base: Value, change: &Value) -> Value {
    json_patch_merge(&mut base, change);
    base
}

/// Merges the change into the value like a JSON merge patch, but writes null instead of removing a field.
fn json_patch_merge(into: &mut Value, change: &Value) {
    let Some(change) = change.as_object() else {
        *into = change.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in change {
        json_patch_merge(&mut into[key], value);
    }
}

/// Returns the pending claim `ns/data` for 1 GiB without a class, with these changes.
fn claim_json(change: &Value) -> Value {
    let base = json!({
        "metadata": {"name": "data", "namespace": "ns", "uid": "c", "resourceVersion": "7"},
        "spec": {"storageClassName": "", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Pending"},
    });
    merged(base, change)
}

/// Returns an available NFS volume of 1 GiB, with these changes.
fn volume_json(name: &str, change: &Value) -> Value {
    let base = json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "3"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
            "nfs": {"server": "s", "path": "/p"}},
        "status": {"phase": "Available"},
    });
    merged(base, change)
}

fn volume(name: &str, change: &Value) -> Arc<PersistentVolume> {
    Arc::new(object(&volume_json(name, change)))
}

/// Returns the StorageClass `fast`, with this binding mode.
fn class(provisioner: &str, mode: &str) -> Arc<StorageClass> {
    Arc::new(object(
        &json!({"metadata": {"name": "fast"}, "provisioner": provisioner, "volumeBindingMode": mode}),
    ))
}

/// Returns the claim with these changes, and the volumes that it may be bound to.
fn observed(change: &Value, candidates: Vec<Arc<PersistentVolume>>) -> claim::Observed {
    claim::Observed {
        claim: Arc::new(object(&claim_json(change))),
        named_volume: None,
        candidates,
        class: None,
        default_class: None,
        unscheduled_pods: vec![],
    }
}

fn claim_plan(observed: &claim::Observed, options: &Options) -> Plan {
    claim::plan_step(observed, &claim::choose_step(observed, options), options)
}

/// Formats the actions of a plan.
fn lines(plan: &Plan) -> Vec<String> {
    let text = |rewrite: &Rewrite| {
        let kind = &rewrite.target.kind.kind;
        let sub = if rewrite.subresource.is_empty() { "" } else { "/status" };
        format!("{kind}{sub} {}", String::from_utf8_lossy(&rewrite.body))
    };
    let lines = plan.actions.iter().map(|action| match action {
        Action::Rewrite(rewrite) => text(rewrite),
        Action::Event(event) => format!("{}: {}", event.reason, event.message),
        Action::Create(create) => format!("create {}", create.kind.kind),
        Action::Delete(delete) => format!("delete {}", delete.target.name),
        other => panic!("{other:?}"),
    });
    lines.collect()
}

#[test]
fn volume_is_bound_before_the_claim() {
    let plan =
        claim_plan(&observed(&json!({}), vec![volume("v", &json!({}))]), &Options::default());
    let lines = lines(&plan);
    assert!(lines[0].starts_with("PersistentVolume {"), "{lines:?}");
    assert!(lines[0].contains("bound-by-controller"), "{lines:?}");
    assert_eq!(lines[1], r#"PersistentVolume/status {"status":{"message":null,"phase":"Bound"}}"#);
    assert!(
        lines[2].contains(r#""volumeName":"v""#) && lines[2].contains("bind-completed"),
        "{lines:?}"
    );
    assert_eq!(
        lines[3],
        r#"PersistentVolumeClaim/status {"status":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"phase":"Bound"}}"#
    );
    let versions: Vec<&str> = plan
        .actions
        .iter()
        .map(|action| match action {
            Action::Rewrite(rewrite) => &*rewrite.resource_version,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        versions,
        ["3", "", "7", ""],
        "only the first change of an object has a resource version"
    );
    assert!(lint(&plan).is_empty());
}

#[test]
fn user_bindings_lack_bound_by_controller() {
    let promise = json!({"spec": {"claimRef": {"namespace": "ns", "name": "data"}}});
    let plan = claim_plan(&observed(&json!({}), vec![volume("v", &promise)]), &Options::default());
    let lines = lines(&plan);
    assert!(!lines[0].contains("bound-by-controller"), "{lines:?}");
    let named = claim::Observed {
        named_volume: Some(volume("v", &json!({}))),
        ..observed(&json!({"spec": {"volumeName": "v"}}), vec![])
    };
    let lines = line_of(&claim_plan(&named, &Options::default()), "PersistentVolumeClaim {");
    assert!(!lines.contains("bound-by-controller") && lines.contains("bind-completed"), "{lines}");
}

fn line_of(plan: &Plan, prefix: &str) -> String {
    lines(plan).into_iter().find(|text| text.starts_with(prefix)).unwrap_or_default()
}

#[test]
fn exact_access_modes_are_preferred() {
    let wide = json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}});
    let big = json!({"spec": {"capacity": {"storage": "9Gi"}}});
    let plan = claim_plan(
        &observed(&json!({}), vec![volume("wide", &wide), volume("big", &big)]),
        &Options::default(),
    );
    assert!(lines(&plan)[2].contains(r#""volumeName":"big""#), "{:?}", lines(&plan));
}

#[test]
fn event_of_a_pending_claim_has_the_reason() {
    let fast = json!({"spec": {"storageClassName": "fast"}});
    let delayed = || Some(class("csi.example.com", "WaitForFirstConsumer"));
    let options = Options::default();
    let observed_with = |class, unscheduled: &[&str], change: &Value| claim::Observed {
        class,
        unscheduled_pods: unscheduled.iter().map(|pod| (*pod).into()).collect(),
        ..observed(&merged(fast.clone(), change), vec![])
    };
    let no_change = json!({});
    for (observed, want) in [
        (
            observed(&no_change, vec![]),
            "FailedBinding: no persistent volumes available for this claim and no storage class is set",
        ),
        (
            observed_with(delayed(), &[], &no_change),
            "WaitForFirstConsumer: waiting for first consumer to be created before binding",
        ),
        (
            observed_with(delayed(), &["p"], &no_change),
            "WaitForPodScheduled: waiting for pod p to be scheduled",
        ),
        (
            observed_with(delayed(), &["p", "q"], &no_change),
            "WaitForPodScheduled: waiting for pods p,q to be scheduled",
        ),
        (
            observed_with(None, &[], &no_change),
            "ProvisioningFailed: storageclass.storage.k8s.io \"fast\" not found",
        ),
        (
            observed_with(
                Some(class("kubernetes.io/no-provisioner", "Immediate")),
                &[],
                &no_change,
            ),
            "ProvisioningFailed: no volume plugin matched name: kubernetes.io/no-provisioner",
        ),
    ] {
        let plan = claim_plan(&observed, &options);
        assert_eq!(lines(&plan), [want]);
        assert_eq!(plan.requeue, Some(options.sync_period));
    }
    let scheduled = observed_with(
        delayed(),
        &["p"],
        &json!({"metadata": {"annotations": {storage::volume::SELECTED_NODE: "n"}}}),
    );
    let lines = lines(&claim_plan(&scheduled, &options));
    assert!(
        lines[0].contains(r#""volume.kubernetes.io/storage-provisioner":"csi.example.com""#),
        "{lines:?}"
    );
    assert!(lines[1].starts_with("ExternalProvisioning: Waiting for a volume to be created either by the external provisioner 'csi.example.com'"), "{lines:?}");
    let off = Options { dynamic_provisioning: false, ..Options::default() };
    assert!(claim_plan(&scheduled, &off).actions.is_empty());
}

#[test]
fn storage_class_decides_the_provisioner() {
    let check = |provisioner: &str, want: Provisioner<'_>| {
        let observed = claim::Observed {
            class: Some(class(provisioner, "Immediate")),
            ..observed(&json!({"spec": {"storageClassName": "fast"}}), vec![])
        };
        assert_eq!(claim::choose_step(&observed, &Options::default()), Step::Provision(want));
        let off = Options { dynamic_provisioning: false, ..Options::default() };
        assert_eq!(claim::choose_step(&observed, &off), Step::Provision(Provisioner::Disabled));
    };
    check("csi.example.com", Provisioner::External("csi.example.com"));
    check("kubernetes.io/gce-pd", Provisioner::External("pd.csi.storage.gke.io"));
    check("kubernetes.io/host-path", Provisioner::HostPath);
}

/// Upstream's `provisionClaimOperation` only logs that the claim cannot be saved; `provisionClaimOperationExternal`
/// records an event.
#[test]
fn failed_claim_update_is_reported_only_for_external_provisioners() {
    for (provisioner, want) in [
        ("csi.example.com", Some("ProvisioningFailed: Error saving claim: {error}")),
        ("kubernetes.io/host-path", None),
    ] {
        let observed = claim::Observed {
            class: Some(class(provisioner, "Immediate")),
            ..observed(&json!({"spec": {"storageClassName": "fast"}}), vec![])
        };
        let plan = claim_plan(&observed, &Options::default());
        let Action::Rewrite(change) = &plan.actions[0] else { panic!("{plan:?}") };
        let failed =
            change.failed.as_ref().map(|event| format!("{}: {}", event.reason, event.message));
        assert_eq!(failed.as_deref(), want, "{provisioner}");
    }
}

#[test]
fn default_class_is_set_only_if_no_volume_matches() {
    let nameless = json!({"spec": {"storageClassName": null}});
    let with_default = claim::Observed {
        default_class: Some(class("csi", "Immediate")),
        ..observed(&nameless, vec![])
    };
    let lines_default = lines(&claim_plan(&with_default, &Options::default()));
    assert_eq!(lines_default, [r#"PersistentVolumeClaim {"spec":{"storageClassName":"fast"}}"#]);
    // A claim with an empty class keeps it. A matching volume takes precedence over the default class.
    let with_empty_class = claim::Observed {
        default_class: Some(class("csi", "Immediate")),
        ..observed(&json!({}), vec![])
    };
    assert!(
        lines(&claim_plan(&with_empty_class, &Options::default()))[0].starts_with("FailedBinding")
    );
    let fits = claim::Observed { candidates: vec![volume("v", &json!({}))], ..with_default };
    assert_eq!(lines(&claim_plan(&fits, &Options::default())).len(), 4);
}

#[test]
fn requested_volume_must_match_the_claim() {
    let requesting = |change: &Value, volume_change: Option<&Value>| claim::Observed {
        named_volume: volume_change.map(|change| volume("v", change)),
        ..observed(&merged(json!({"spec": {"volumeName": "v"}}), change), vec![])
    };
    let no_change = json!({});
    let cannot = "VolumeMismatch: Cannot bind to requested volume \"v\": ";
    for (observed, want) in [
        (requesting(&no_change, None), String::new()),
        (
            requesting(&no_change, Some(&json!({"spec": {"capacity": {"storage": "1Mi"}}}))),
            format!("{cannot}requested PV is too small"),
        ),
        (
            requesting(&no_change, Some(&json!({"spec": {"storageClassName": "x"}}))),
            format!("{cannot}storageClassName does not match"),
        ),
        (
            requesting(&no_change, Some(&json!({"spec": {"volumeAttributesClassName": "x"}}))),
            format!("{cannot}volumeAttributesClassName does not match"),
        ),
        (
            requesting(&no_change, Some(&json!({"spec": {"volumeMode": "Block"}}))),
            format!("{cannot}incompatible volumeMode"),
        ),
        (
            requesting(&no_change, Some(&json!({"spec": {"accessModes": ["ReadOnlyMany"]}}))),
            format!("{cannot}incompatible accessMode"),
        ),
        (
            requesting(
                &no_change,
                Some(&json!({"metadata": {"deletionTimestamp": T0.to_string()}})),
            ),
            format!("{cannot}the volume is marked for deletion \"v\""),
        ),
        (
            requesting(
                &no_change,
                Some(
                    &json!({"spec": {"claimRef": {"namespace": "ns", "name": "other", "uid": "o"}}}),
                ),
            ),
            "FailedBinding: volume \"v\" already bound to a different claim.".to_owned(),
        ),
    ] {
        let lines = lines(&claim_plan(&observed, &Options::default()));
        assert_eq!(lines.first().cloned().unwrap_or_default(), want);
        assert!(lines.len() <= 1, "the claim is already pending: {lines:?}");
    }
}

#[test]
fn bound_claim_without_its_volume_is_lost() {
    let bound = json!({"metadata": {"annotations": {storage::volume::BIND_COMPLETED: "yes"}}, "spec": {"volumeName": "v"},
        "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}});
    let claimed_by = |uid: &str| json!({"spec": {"claimRef": {"namespace": "ns", "name": "data", "uid": uid}}, "status": {"phase": "Bound"}});
    let observed_with = |change: &Value, named_volume| claim::Observed {
        named_volume,
        ..observed(&merged(bound.clone(), change), vec![])
    };
    let plan = |observed: &claim::Observed| claim_plan(observed, &Options::default());
    assert!(plan(&observed_with(&json!({}), Some(volume("v", &claimed_by("c"))))).is_nothing());
    for (observed, reason) in [
        (observed_with(&json!({"spec": {"volumeName": null}}), None), "ClaimLost"),
        (observed_with(&json!({}), None), "ClaimLost"),
        (observed_with(&json!({}), Some(volume("v", &claimed_by("other")))), "ClaimMisbound"),
    ] {
        let plan = plan(&observed);
        let [Action::Rewrite(change)] = &plan.actions[..] else { panic!("{plan:?}") };
        assert_eq!(change.done.as_ref().unwrap().reason, reason);
        let body: Value = serde_json::from_slice(&change.body).unwrap();
        assert_eq!(
            body,
            json!({"status": {"phase": "Lost", "accessModes": null, "capacity": null}})
        );
    }
    let lost = json!({"status": {"phase": "Lost"}});
    assert!(plan(&observed_with(&lost, None)).is_nothing(), "the event is recorded once");
    // A volume without `claimRef` is bound again.
    assert_eq!(lines(&plan(&observed_with(&json!({}), Some(volume("v", &json!({})))))).len(), 2);
}

/// Returns the volume `v` with these changes, and its claim if the cache has it.
fn observed_volume(change: &Value, claim_change: Option<&Value>) -> volume::Observed {
    volume::Observed {
        volume: volume("v", change),
        claim: claim_change.map(|change| Arc::new(object(&claim_json(change)))),
        name_is_taken: claim_change.is_some(),
        users: vec![],
        recycler: None,
    }
}

/// Returns the changes that make a volume claimed by `ns/data`, with this reclaim policy and phase.
fn claimed(policy: &str, phase: &str) -> Value {
    json!({"spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": {"namespace": "ns", "name": "data", "uid": "c"}},
        "status": {"phase": phase}})
}

/// Returns the formatted actions of the volume's plan.
fn decided(observed: &volume::Observed) -> Vec<String> {
    lines(&volume::decide(observed, &Options::default()).plan)
}

#[test]
fn volume_phase_follows_its_claim() {
    let status = |phase: &str| {
        format!(r#"PersistentVolume/status {{"status":{{"message":null,"phase":"{phase}"}}}}"#)
    };
    let bound_here = json!({"spec": {"volumeName": "v"}});
    assert_eq!(
        decided(&observed_volume(&json!({"status": {"phase": "Pending"}}), None)),
        [status("Available")]
    );
    assert_eq!(
        decided(&observed_volume(&claimed("Retain", "Available"), Some(&bound_here))),
        [status("Bound")]
    );
    assert_eq!(decided(&observed_volume(&claimed("Retain", "Bound"), None)), [status("Released")]);
    assert!(decided(&observed_volume(&claimed("Retain", "Released"), None)).is_empty());
    assert!(decided(&observed_volume(&claimed("Retain", "Bound"), Some(&bound_here))).is_empty());
    assert!(
        decided(&observed_volume(&claimed("Retain", "Available"), Some(&json!({})))).is_empty(),
        "the claim is bound first"
    );
}

#[test]
fn volume_of_a_claim_bound_elsewhere_is_unbound_or_released() {
    let elsewhere = json!({"spec": {"volumeName": "other"}});
    let bound_by_controller =
        json!({"metadata": {"annotations": {storage::volume::BOUND_BY_CONTROLLER: "yes"}}});
    let lines = decided(&observed_volume(
        &merged(claimed("Retain", "Bound"), &bound_by_controller),
        Some(&elsewhere),
    ));
    assert_eq!(
        lines[0],
        r#"PersistentVolume {"metadata":{"annotations":{"pv.kubernetes.io/bound-by-controller":null}},"spec":{"claimRef":null}}"#
    );
    assert!(lines[1].contains("Available"));
    let lines = decided(&observed_volume(&claimed("Retain", "Bound"), Some(&elsewhere)));
    assert_eq!(lines[0], r#"PersistentVolume {"spec":{"claimRef":{"uid":null}}}"#);
    let provisioned =
        json!({"metadata": {"annotations": {storage::volume::PROVISIONED_BY: "csi.example.com"}}});
    let lines = decided(&observed_volume(
        &merged(claimed("Delete", "Bound"), &provisioned),
        Some(&elsewhere),
    ));
    assert!(lines.len() == 1 && lines[0].contains("Released"), "{lines:?}");
}

fn volume_step(observed: &volume::Observed, done: &[Outcome]) -> Option<Plan> {
    volume::plan(observed, &Options::default(), &Outcomes(done.to_vec()))
}

fn path(plan: &Plan) -> &str {
    let [Action::Read(read)] = &plan.actions[..] else { panic!("{plan:?}") };
    read.path()
}

#[test]
fn claim_missing_from_the_cache_is_read_live() {
    let observed = observed_volume(&claimed("Retain", "Bound"), None);
    let claim = "/api/v1/namespaces/ns/persistentvolumeclaims/data";
    assert_eq!(path(&volume_step(&observed, &[]).unwrap()), claim);
    let live = |uid: &str| {
        let more = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"uid": uid}, "spec": {"volumeName": "v"}});
        let claim = claim_json(&more).to_string();
        Outcome { reply: Some(Reply::json(claim)), ..Outcome::success() }
    };
    assert_eq!(
        volume_step(&observed, &[live("c")]),
        Some(Plan::nothing()),
        "the volume stays bound"
    );
    let gone = Outcome::failure(Failure { code: 404, ..Failure::local("gone") });
    for done in [gone, live("another")] {
        let lines = lines(&volume_step(&observed, &[done]).unwrap());
        assert!(lines.len() == 1 && lines[0].contains("Released"), "{lines:?}");
    }
    // The cache may show a new claim with this name too early, so the claim is read live. If the cache has no such
    // claim, a released volume stays released.
    let released = observed_volume(&claimed("Retain", "Released"), None);
    assert_eq!(volume_step(&released, &[]), Some(Plan::nothing()));
    let taken = volume::Observed { name_is_taken: true, ..released };
    assert_eq!(path(&volume_step(&taken, &[]).unwrap()), claim);
}

#[test]
fn folder_is_created_after_the_provisioner_annotation() {
    let options = Options { host_path_provisioning: true, ..Options::default() };
    let mut observed = observed(&json!({"spec": {"storageClassName": "fast"}}), vec![]);
    observed.class = Some(class(claim::HOST_PATH, "Immediate"));
    let after = |observed: &claim::Observed, done: &[Outcome]| {
        claim::plan(observed, &options, &Outcomes(done.to_vec()))
    };
    let first = after(&observed, &[]).unwrap();
    assert!(lines(&first)[0].contains("storage-provisioner"), "{first:?}");
    let folder = |plan: Option<Plan>| match &plan.unwrap().actions[..] {
        [Action::Local(local)] => local.subject.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(folder(after(&observed, &[Outcome::success()])), "/tmp/hostpath_pv/c");
    let named = json!({
        "metadata": {"annotations": {storage::volume::STORAGE_PROVISIONER: claim::HOST_PATH}},
        "spec": {"storageClassName": "fast"},
    });
    observed.claim = Arc::new(object(&claim_json(&named)));
    assert_eq!(folder(after(&observed, &[])), "/tmp/hostpath_pv/c");
}

#[test]
fn reclaim_policy_decides_about_a_released_volume() {
    let source = |source: Value| merged(json!({"spec": {"nfs": null}}), &json!({"spec": source}));
    let csi = source(json!({"csi": {"driver": "d", "volumeHandle": "h"}}));
    let path = source(json!({"hostPath": {"path": "/tmp/x"}}));
    let local = source(json!({"local": {"path": "/mnt"}}));
    let provisioned_by = |provisioner: &str| json!({"metadata": {"annotations": {storage::volume::PROVISIONED_BY: provisioner}, "finalizers": ["kubernetes.io/pv-controller"]}});
    let deleter = "error getting deleter volume plugin for volume \"v\": ";
    for (change, policy, event, folder) in [
        (json!({}), "Retain", None, false),
        (csi.clone(), "Delete", None, false),
        (path.clone(), "Delete", None, true),
        (
            json!({}),
            "Delete",
            Some(format!("VolumeFailedDelete {deleter}no deletable volume plugin matched")),
            false,
        ),
        (
            local.clone(),
            "Delete",
            Some(format!("VolumeFailedDelete {deleter}no volume plugin matched")),
            false,
        ),
        (provisioned_by("someone.example.com"), "Delete", None, false),
        (
            provisioned_by("kubernetes.io/nothing"),
            "Delete",
            Some(
                "VolumeFailedDelete no volume plugin matched name: kubernetes.io/nothing"
                    .to_owned(),
            ),
            false,
        ),
        (
            json!({"metadata": {"annotations": {storage::volume::MIGRATED_TO: "d"}}}),
            "Delete",
            None,
            false,
        ),
        (
            csi,
            "Recycle",
            Some("VolumeFailedRecycle No recycler plugin found for the volume!".to_owned()),
            false,
        ),
        (
            json!({}),
            "Shred",
            Some(
                "VolumeUnknownReclaimPolicy Volume has unrecognized PersistentVolumeReclaimPolicy"
                    .to_owned(),
            ),
            false,
        ),
    ] {
        let observed = observed_volume(&merged(claimed(policy, "Released"), &change), None);
        let decision = volume::decide(&observed, &Options::default());
        let recorded = decision.plan.actions.iter().find_map(|action| match action {
            Action::Rewrite(change) => change.done.as_ref(),
            _ => None,
        });
        let recorded = recorded.map(|event| format!("{} {}", event.reason, event.message));
        assert_eq!((recorded, decision.deletes_folder), (event, folder), "{policy} {change}");
    }
}

#[test]
fn recycled_volume_becomes_available() {
    let released = claimed("Recycle", "Released");
    let pod = |phase: &str| {
        let pod: Pod = object(
            &json!({"metadata": {"name": "recycler-for-v", "namespace": "default", "uid": "p"}, "status": {"phase": phase}}),
        );
        Some(Arc::new(pod))
    };
    let released_with =
        |recycler| volume::Observed { recycler, ..observed_volume(&released, None) };
    assert_eq!(decided(&released_with(None)), ["create Pod"]);
    assert!(decided(&released_with(pod("Running"))).is_empty());
    let done = decided(&released_with(pod("Succeeded")));
    assert_eq!(done[..2], ["delete recycler-for-v", "VolumeRecycled: Volume recycled"]);
    assert!(done[2].contains("claimRef") && done[3].contains("Available"), "{done:?}");
    let failed = decided(&released_with(pod("Failed")));
    assert!(
        failed[0] == "delete recycler-for-v"
            && failed[1].contains("Recycle failed: failed to recycle volume"),
        "{failed:?}"
    );
    let used = volume::Observed { users: vec!["ns/web".to_owned()], ..released_with(None) };
    assert_eq!(decided(&used), ["VolumeFailedRecycle: Volume is used by pods: ns/web"]);
}

#[test]
fn recycler_pod_is_found_in_its_template_namespace() {
    let volume = claimed("Recycle", "Released");
    for (template, namespace) in [
        (None, "default"),
        (Some(r#"{"metadata":{"namespace":"scrub"},"spec":{"volumes":[{"name":"v"}]}}"#), "scrub"),
        (Some(r#"{"metadata":{},"spec":{"volumes":[{"name":"v"}]}}"#), "default"),
    ] {
        let mut options = Options::default();
        options.recycle_nfs.template = template.map(Arc::from);
        let observed = observed_volume(&volume, None);
        let found = reclaim::recycler_pod(&observed.volume, &options);
        assert_eq!(found, Some(Key::new(namespace, "recycler-for-v")));
        let plan = volume::decide(&observed, &options).plan;
        let [Action::Create(create)] = &plan.actions[..] else { panic!("{plan:?}") };
        assert_eq!(&*create.namespace, namespace);
    }
}

#[test]
fn users_are_pods_that_have_not_stopped() {
    let pod = |name: &str, phase: &str, deleting: bool, state: &str| -> Arc<Pod> {
        let since = deleting.then(|| T0.to_string());
        Arc::new(object(&json!({
            "metadata": {"name": name, "namespace": "ns", "deletionTimestamp": since},
            "status": {"phase": phase, "containerStatuses": [{"name": "c", "state": {state: {}}}]},
        })))
    };
    let pods = [
        pod("stops", "Running", true, "running"),
        pod("runs", "Running", false, "running"),
        pod("restarts", "Running", false, "terminated"),
        pod("stopped", "Running", true, "terminated"),
        pod("ended", "Succeeded", false, "terminated"),
    ];
    assert_eq!(reclaim::users(&pods), ["ns/restarts", "ns/runs", "ns/stops"]);
}

/// A server with one claim and several volumes. It executes plans, or interrupts them.
struct World {
    claim: Value,
    volumes: Vec<Value>,
}

impl World {
    fn observe_claim(&self) -> claim::Observed {
        let volumes: Vec<Arc<PersistentVolume>> =
            self.volumes.iter().map(|volume| Arc::new(object(volume))).collect();
        let claim: PersistentVolumeClaim = object(&self.claim);
        let named_volume =
            volumes.iter().find(|volume| volume.meta.name == claim.spec.volume_name).cloned();
        let candidates = volumes
            .iter()
            .filter(|volume| {
                volume.spec.claim_ref.is_none() || storage::volume::is_for_claim(volume, &claim)
            })
            .cloned()
            .collect();
        claim::Observed {
            claim: Arc::new(claim),
            named_volume,
            candidates,
            class: None,
            default_class: None,
            unscheduled_pods: vec![],
        }
    }

    fn observe_volume(&self, n: usize) -> volume::Observed {
        let claim: PersistentVolumeClaim = object(&self.claim);
        let volume: PersistentVolume = object(&self.volumes[n]);
        let ours = volume.spec.claim_ref.as_deref().is_some_and(|of| of.uid == claim.meta.uid);
        volume::Observed {
            volume: Arc::new(volume),
            claim: ours.then(|| Arc::new(claim)),
            name_is_taken: true,
            users: vec![],
            recycler: None,
        }
    }

    /// Executes at most `at_most` writes of the plan. Returns the number of executed writes.
    fn execute(&mut self, plan: &Plan, at_most: usize) -> usize {
        let rewrites = plan.actions.iter().filter_map(|action| match action {
            Action::Rewrite(rewrite) => Some(rewrite),
            _ => None,
        });
        let mut writes = 0;
        for rewrite in rewrites.take(at_most) {
            let body: Value = serde_json::from_slice(&rewrite.body).unwrap();
            let object = match &*rewrite.target.kind.kind {
                "PersistentVolume" => self
                    .volumes
                    .iter_mut()
                    .find(|volume| volume["metadata"]["name"] == *rewrite.target.name)
                    .unwrap(),
                _ => &mut self.claim,
            };
            json_patch_merge(object, &body);
            writes += 1;
        }
        writes
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn interrupted_binding_converges_to_one_bound_volume(
        sizes in proptest::collection::vec(1u32..5, 1..4),
        promised in 0usize..5,
        interruptions in proptest::collection::vec((any::<bool>(), 0usize..4, 0usize..4), 0..12),
    ) {
        let volumes = sizes.iter().enumerate().map(|(n, size)| {
            let mut change = json!({"spec": {"capacity": {"storage": format!("{size}Gi")}}});
            if n == promised {
                change["spec"]["claimRef"] = json!({"namespace": "ns", "name": "data"});
            }
            volume_json(&format!("v{n}"), &change)
        });
        let mut world = World { claim: claim_json(&json!({})), volumes: volumes.collect() };
        let options = Options::default();
        for (of_claim, n, writes) in interruptions {
            let plan = if of_claim {
                claim_plan(&world.observe_claim(), &options)
            } else {
                volume::decide(&world.observe_volume(n % sizes.len()), &options).plan
            };
            world.execute(&plan, writes);
        }
        let mut writes = 1;
        for _ in 0..10 {
            writes = world.execute(&claim_plan(&world.observe_claim(), &options), usize::MAX);
            for n in 0..sizes.len() {
                writes += world.execute(&volume::decide(&world.observe_volume(n), &options).plan, usize::MAX);
            }
            if writes == 0 {
                break;
            }
        }
        prop_assert_eq!(writes, 0, "does not settle");
        prop_assert_eq!(&world.claim["status"]["phase"], "Bound");
        let bound: Vec<&Value> = world.volumes.iter().filter(|volume| volume["status"]["phase"] == "Bound").collect();
        prop_assert_eq!(bound.len(), 1);
        prop_assert_eq!(&bound[0]["metadata"]["name"], &world.claim["spec"]["volumeName"]);
    }
}
