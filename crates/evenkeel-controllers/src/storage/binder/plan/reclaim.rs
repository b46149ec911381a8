//! Reclaim policy of a released volume.
//!
//! Upstream: `reclaimVolume`.

use super::{phase_now, unbind, volume::Decision, volume::Observed};
use crate::{
    storage::{
        binder::{
            Options,
            options::Recycling,
            plan::{claim::HOST_PATH, migration},
        },
        persistentvolumeclaimprotection,
    },
    wire,
};
use evenkeel_api::{
    View,
    views::{PersistentVolume, Pod},
};
use evenkeel_component_helpers::storage::volume;
use evenkeel_runtime::plan::{Create, Delete, EventRecord, OnError, Plan, Rewrite};
use serde_json::{Value, json};
use std::sync::Arc;

/// Finalizer of a volume that this controller deletes. It is removed after the backing storage was deleted (KEP-2644).
pub(in crate::storage::binder) const IN_TREE_PROTECTION_FINALIZER: &str =
    "kubernetes.io/pv-controller";
/// Finalizer of a volume that an external provisioner deletes.
pub(super) const EXTERNAL_PROTECTION_FINALIZER: &str =
    "external-provisioner.volume.kubernetes.io/finalizer";

/// Namespace of recycler pods, if the template names none.
const NAMESPACE: &str = "default";
/// Number of bytes in 1 GiB.
const GI: i64 = 1 << 30;

/// Applies the volume's reclaim policy.
pub(super) fn plan(observed: &Observed, options: &Options) -> Decision {
    let volume = &*observed.volume;
    if volume.meta.annotations.get(volume::MIGRATED_TO).is_some_and(|to| !to.is_empty()) {
        return Decision::default();
    }
    match &*volume.spec.persistent_volume_reclaim_policy {
        "Retain" => Decision::default(),
        "Recycle" => recycle(observed, options).into(),
        "Delete" => match deleter(volume) {
            Ok(Deleter::Folder) => {
                let mut plan = Plan::nothing();
                plan.requeue_after(options.sync_period);
                Decision { plan, delete_folder: true }
            }
            Ok(Deleter::Other) => Decision::default(),
            Err(why) => fail(volume, "VolumeFailedDelete", &why).into(),
        },
        _ => {
            let why = "Volume has unrecognized PersistentVolumeReclaimPolicy";
            fail(volume, "VolumeUnknownReclaimPolicy", why).into()
        }
    }
}

/// Sets the phase `Failed` of a volume that cannot be reclaimed. Records the event only if the phase changes.
pub(in crate::storage::binder) fn fail(
    volume: &PersistentVolume,
    reason: &'static str,
    why: &str,
) -> Plan {
    let event = EventRecord::warning(wire::target(volume), reason, why);
    let change = phase_now(volume, "Failed", why)
        .map(|change| Rewrite { done: Some(event), ..change }.into());
    Plan::of(change.into_iter().collect())
}

/// Returns the finalizers that a volume must have: those of other controllers, and that of the volume's deleter.
/// Upstream: `modifyDeletionFinalizers`.
pub(super) fn finalizers<'a>(
    volume: &PersistentVolume,
    provisioner: &str,
    has: &[&'a str],
) -> Vec<&'a str> {
    let without = |removed: &[&str]| has.iter().copied().filter(|f| !removed.contains(f)).collect();
    if migration::driver(provisioner).is_some() {
        return without(&[IN_TREE_PROTECTION_FINALIZER]);
    }
    if !provisioner.starts_with("kubernetes.io/") {
        return has.to_vec();
    }
    match &*volume.spec.persistent_volume_reclaim_policy {
        "Delete" => {
            let mut desired: Vec<&str> = without(&[EXTERNAL_PROTECTION_FINALIZER]);
            if !desired.contains(&IN_TREE_PROTECTION_FINALIZER) {
                desired.push(IN_TREE_PROTECTION_FINALIZER);
            }
            desired
        }
        "Retain" | "Recycle" => {
            without(&[IN_TREE_PROTECTION_FINALIZER, EXTERNAL_PROTECTION_FINALIZER])
        }
        _ => without(&[EXTERNAL_PROTECTION_FINALIZER]),
    }
}

/// Component that deletes a volume's backing storage.
enum Deleter {
    /// This controller, because the storage is a folder.
    Folder,
    /// An external provisioner.
    Other,
}

fn deleter(volume: &PersistentVolume) -> Result<Deleter, String> {
    let provisioner = volume.meta.annotations.get(volume::PROVISIONED_BY).unwrap_or_default();
    match provisioner {
        "" => {}
        HOST_PATH => return Ok(Deleter::Folder),
        "kubernetes.io/nfs" => return Err("no deletable volume plugin matched".to_owned()),
        provisioner
            if provisioner.starts_with("kubernetes.io/")
                && migration::driver(provisioner).is_none() =>
        {
            return Err(format!("no volume plugin matched name: {provisioner}"));
        }
        _ => return Ok(Deleter::Other),
    }
    let source = &volume.spec.source;
    let none = |why: &str| {
        let name = &volume.meta.name;
        Err(format!("error getting deleter volume plugin for volume \"{name}\": {why}"))
    };
    if source.csi.is_some() {
        Ok(Deleter::Other)
    } else if source.host_path.is_some() {
        Ok(Deleter::Folder)
    } else if source.nfs.is_some() || source.fc.is_some() || source.iscsi.is_some() {
        none("no deletable volume plugin matched")
    } else {
        none("no volume plugin matched")
    }
}

/// Returns the namespace and name of the volume's recycler pod, or `None` if the volume cannot be recycled.
pub(in crate::storage::binder) fn recycler_of(
    volume: &PersistentVolume,
    options: &Options,
) -> Option<(String, String)> {
    let recycling = recycling_of(volume, options)?;
    let namespace = match recycling.template {
        Some(_) => recycler_namespace(&recycler_template(recycling)).to_owned(),
        None => NAMESPACE.to_owned(),
    };
    Some((namespace, recycler_name(&volume.meta.name)))
}

fn recycler_name(volume: &str) -> String {
    format!("recycler-for-{volume}")
}

fn recycler_namespace(template: &Value) -> &str {
    template["metadata"]["namespace"].as_str().unwrap_or(NAMESPACE)
}

/// Returns the name of the volume that a recycler pod empties, from the pod's name. The pod's namespace is not
/// compared; see [`recycler_of`].
pub(in crate::storage::binder) fn recycled_by(pod: &Pod) -> Option<&str> {
    pod.meta.name.strip_prefix("recycler-for-")
}

/// Returns the recycler settings of the volume's type.
fn recycling_of<'a>(volume: &PersistentVolume, options: &'a Options) -> Option<&'a Recycling> {
    match (&volume.spec.source.nfs, &volume.spec.source.host_path) {
        (Some(_), _) => Some(&options.recycle_nfs),
        (None, Some(_)) => Some(&options.recycle_host_path),
        (None, None) => None,
    }
}

/// Returns the pods that may still write to the claim's volume, as `namespace/name`, sorted.
pub(in crate::storage::binder) fn users(pods: &[Arc<Pod>]) -> Vec<String> {
    let alive = pods.iter().filter(|pod| !persistentvolumeclaimprotection::is_terminated(pod));
    let mut names: Vec<String> =
        alive.map(|pod| format!("{}/{}", pod.meta.namespace, pod.meta.name)).collect();
    names.sort_unstable();
    names
}

/// Runs a recycler pod. Once the pod has succeeded, makes the volume available again. Upstream:
/// `recycleVolumeOperation`.
fn recycle(observed: &Observed, options: &Options) -> Plan {
    let volume = &*observed.volume;
    let Some(recycling) = recycling_of(volume, options) else {
        let why = "No recycler plugin found for the volume!";
        return fail(volume, "VolumeFailedRecycle", why);
    };
    let mut plan = Plan::nothing();
    if !observed.users.is_empty() && !observed.name_is_taken {
        let message = format!("Volume is used by pods: {}", observed.users.join(","));
        plan.push(EventRecord::normal(wire::target(volume), "VolumeFailedRecycle", message));
        plan.requeue_after(options.sync_period);
        return plan;
    }
    let Some(pod) = observed.recycler.as_deref() else {
        plan.push(create_recycler_pod(volume, recycling));
        plan.requeue_after(options.sync_period);
        return plan;
    };
    // A terminating pod belongs to an earlier attempt.
    match &*pod.status.phase {
        _ if pod.meta.deleting() => plan.requeue_after(options.sync_period),
        "Succeeded" => {
            plan.push(Delete { on_error: OnError::SkipRest, ..Delete::new(wire::target(pod)) });
            plan.push(EventRecord::normal(
                wire::target(volume),
                "VolumeRecycled",
                "Volume recycled",
            ));
            plan.actions.extend(unbind(volume));
        }
        "Failed" => {
            plan.push(Delete { on_error: OnError::SkipRest, ..Delete::new(wire::target(pod)) });
            let why = match &*pod.status.message {
                "" => "pod failed, pod.Status.Message unknown",
                message => message,
            };
            let why = format!("Recycle failed: failed to recycle volume: {why}");
            plan.actions.extend(fail(volume, "VolumeFailedRecycle", &why).actions);
            plan.requeue_after(options.sync_period);
        }
        _ => {}
    }
    plan
}

/// Returns the recycler pod of the volume.
fn create_recycler_pod(volume: &PersistentVolume, recycling: &Recycling) -> Create {
    let mut pod = recycler_template(recycling);
    let source = &volume.spec.source;
    let volume_source = match (&source.nfs, &source.host_path) {
        (Some(nfs), _) => json!({"nfs": {"server": nfs.server, "path": nfs.path}}),
        (_, path) => json!({"hostPath": {"path": path.as_deref().map(|source| &source.path)}}),
    };
    let name = pod["spec"]["volumes"][0]["name"].take();
    pod["spec"]["volumes"][0] = volume_source;
    pod["spec"]["volumes"][0]["name"] = name;
    pod["spec"]["activeDeadlineSeconds"] = recycler_timeout(volume, recycling).into();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = recycler_name(&volume.meta.name).into();
    if let Some(meta) = pod["metadata"].as_object_mut() {
        meta.remove("generateName");
    }
    let namespace = recycler_namespace(&pod).to_owned();
    Create::new(Pod::kind(), &namespace, pod.to_string())
}

/// Returns the timeout of the recycler pod in seconds. It is in proportion to the capacity in whole GiB, but at least
/// the minimum.
///
/// Upstream: `CalculateTimeoutForVolume`.
fn recycler_timeout(volume: &PersistentVolume, recycling: &Recycling) -> i64 {
    let seconds = |time: std::time::Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let gi = volume::capacity(volume).value() / GI;
    gi.saturating_mul(seconds(recycling.each_gi)).max(seconds(recycling.least))
}

/// Returns the template of recycler pods: the flag's, else upstream's.
fn recycler_template(recycling: &Recycling) -> Value {
    let template = recycling.template.as_deref().and_then(|text| serde_json::from_str(text).ok());
    template.unwrap_or_else(default_template)
}

/// Returns the default template of recycler pods.
///
/// Upstream: `NewPersistentVolumeRecyclerPodTemplate`.
fn default_template() -> Value {
    json!({
        "metadata": {"namespace": NAMESPACE},
        "spec": {
            "restartPolicy": "Never",
            "volumes": [{"name": "vol"}],
            "containers": [{
                "name": "pv-recycler",
                "image": "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6",
                "command": ["/bin/sh"],
                "args": ["-c", "test -e /scrub && find /scrub -mindepth 1 -delete && test -z \"$(ls -A /scrub)\" || exit 1"],
                "volumeMounts": [{"name": "vol", "mountPath": "/scrub"}],
            }],
        },
    })
}
