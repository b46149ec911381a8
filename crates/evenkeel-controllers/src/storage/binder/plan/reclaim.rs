//! Reclaim policy of a released volume.
//!
//! Upstream: `reclaimVolume`.

use super::{
    sole_phase_update, unbind,
    volume::{Decision, Observed},
};
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
use evenkeel_runtime::plan::{Create, Delete, EventRecord, Key, OnError, Plan, Rewrite};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// Finalizer of a volume that this controller deletes. It is removed after the backing storage was deleted (KEP-2644).
pub(in crate::storage::binder) const IN_TREE_PROTECTION_FINALIZER: &str =
    "kubernetes.io/pv-controller";
/// Finalizer of a volume that an external provisioner deletes.
pub(super) const EXTERNAL_PROTECTION_FINALIZER: &str =
    "external-provisioner.volume.kubernetes.io/finalizer";

/// Namespace of recycler pods, unless the template names one.
const DEFAULT_NAMESPACE: &str = "default";
/// Beginning of the name of recycler pods, before the volume's name.
const RECYCLER_PREFIX: &str = "recycler-for-";
/// 1 GiB in bytes.
const GIB: i64 = 1 << 30;

/// Applies the volume's reclaim policy.
pub(super) fn decide(observed: &Observed, options: &Options) -> Decision {
    let volume = &*observed.volume;
    if volume.meta.annotations.get(volume::MIGRATED_TO).is_some_and(|to| !to.is_empty()) {
        return Decision::default();
    }
    match &*volume.spec.persistent_volume_reclaim_policy {
        "Retain" => Decision::default(),
        "Recycle" => recycle(observed, options).into(),
        "Delete" => match find_deleter(volume) {
            Ok(Deleter::ThisController) => {
                let mut plan = Plan::nothing();
                plan.requeue_after(options.sync_period);
                Decision { plan, deletes_folder: true }
            }
            Ok(Deleter::ExternalProvisioner) => Decision::default(),
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
    match sole_phase_update(volume, "Failed", why) {
        Some(change) => Plan::one(Rewrite { done: Some(event), ..change }),
        None => Plan::nothing(),
    }
}

/// Returns the finalizers that a volume must have: that of its deleter, and the `current` ones that are not about
/// deleters. Upstream: `modifyDeletionFinalizers`.
pub(super) fn finalizers<'a>(
    volume: &PersistentVolume,
    provisioner: &str,
    current: &[&'a str],
) -> Vec<&'a str> {
    let without = |removed: &[&str]| {
        current.iter().copied().filter(|finalizer| !removed.contains(finalizer)).collect()
    };
    if migration::driver(provisioner).is_some() {
        return without(&[IN_TREE_PROTECTION_FINALIZER]);
    }
    if !provisioner.starts_with("kubernetes.io/") {
        return current.to_vec();
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
    ThisController,
    /// A provisioner outside the controller, such as that of a CSI driver.
    ExternalProvisioner,
}

/// Returns the controller that deletes the volume, or upstream's error if no plugin can delete it.
fn find_deleter(volume: &PersistentVolume) -> Result<Deleter, String> {
    let provisioner = volume.meta.annotations.get(volume::PROVISIONED_BY).unwrap_or_default();
    match provisioner {
        "" => {}
        HOST_PATH => return Ok(Deleter::ThisController),
        "kubernetes.io/nfs" => return Err("no deletable volume plugin matched".to_owned()),
        provisioner
            if provisioner.starts_with("kubernetes.io/")
                && migration::driver(provisioner).is_none() =>
        {
            return Err(format!("no volume plugin matched name: {provisioner}"));
        }
        _ => return Ok(Deleter::ExternalProvisioner),
    }
    let source = &volume.spec.source;
    // Without the annotation, the type of the volume decides.
    let no_deleter = |why: &str| {
        let name = &volume.meta.name;
        Err(format!("error getting deleter volume plugin for volume \"{name}\": {why}"))
    };
    if source.csi.is_some() {
        Ok(Deleter::ExternalProvisioner)
    } else if source.host_path.is_some() {
        Ok(Deleter::ThisController)
    } else if source.nfs.is_some() || source.fc.is_some() || source.iscsi.is_some() {
        no_deleter("no deletable volume plugin matched")
    } else {
        no_deleter("no volume plugin matched")
    }
}

/// Returns the key of the volume's recycler pod, or `None` if the volume cannot be recycled.
pub(in crate::storage::binder) fn recycler_pod(
    volume: &PersistentVolume,
    options: &Options,
) -> Option<Key> {
    let recycling = recycling_of(volume, options)?;
    let name = recycler_name(&volume.meta.name);
    Some(match recycling.template {
        Some(_) => Key::new(recycler_namespace(&recycler_template(recycling)), &name),
        None => Key::new(DEFAULT_NAMESPACE, &name),
    })
}

/// Returns the name of the pod that recycles a volume.
fn recycler_name(volume: &str) -> String {
    format!("{RECYCLER_PREFIX}{volume}")
}

/// Returns the namespace of recycler pods.
fn recycler_namespace(template: &Value) -> &str {
    template["metadata"]["namespace"].as_str().unwrap_or(DEFAULT_NAMESPACE)
}

/// Returns the volume that a recycler pod empties, according to the pod's name. The pod may still be in another
/// namespace than the one that [`recycler_pod`] uses now.
pub(in crate::storage::binder) fn volume_of_recycler(pod: &Pod) -> Option<&str> {
    pod.meta.name.strip_prefix(RECYCLER_PREFIX)
}

/// Returns the recycler settings of the volume's type, or `None` if volumes of this type cannot be recycled.
fn recycling_of<'a>(volume: &PersistentVolume, options: &'a Options) -> Option<&'a Recycling> {
    match (&volume.spec.source.nfs, &volume.spec.source.host_path) {
        (Some(_), _) => Some(&options.recycle_nfs),
        (None, Some(_)) => Some(&options.recycle_host_path),
        (None, None) => None,
    }
}

/// Returns the pods that may still write to the claim's volume, as `namespace/name`, sorted.
pub(in crate::storage::binder) fn users(pods: &[Arc<Pod>]) -> Vec<String> {
    let users = pods.iter().filter(|pod| !persistentvolumeclaimprotection::is_terminated(pod));
    let mut names: Vec<String> =
        users.map(|pod| format!("{}/{}", pod.meta.namespace, pod.meta.name)).collect();
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
    let Some(recycler) = observed.recycler.as_deref() else {
        plan.push(create_recycler_pod(volume, recycling));
        plan.requeue_after(options.sync_period);
        return plan;
    };
    match &*recycler.status.phase {
        // The pod belongs to an earlier attempt.
        _ if recycler.meta.deleting() => plan.requeue_after(options.sync_period),
        "Succeeded" => {
            plan.push(Delete {
                on_error: OnError::SkipRest,
                ..Delete::new(wire::target(recycler))
            });
            plan.push(EventRecord::normal(
                wire::target(volume),
                "VolumeRecycled",
                "Volume recycled",
            ));
            plan.actions.extend(unbind(volume));
        }
        "Failed" => {
            plan.push(Delete {
                on_error: OnError::SkipRest,
                ..Delete::new(wire::target(recycler))
            });
            let why = match &*recycler.status.message {
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

/// Returns the creation of the volume's recycler pod.
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

/// Returns the timeout of the recycler pod in seconds. The timeout grows with the capacity in whole GiB, and is at
/// least the minimum.
///
/// Upstream: `CalculateTimeoutForVolume`.
fn recycler_timeout(volume: &PersistentVolume, recycling: &Recycling) -> i64 {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    let gib = volume::capacity(volume).value() / GIB;
    gib.saturating_mul(seconds(recycling.timeout_per_gib)).max(seconds(recycling.minimum_timeout))
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
        "metadata": {"namespace": DEFAULT_NAMESPACE},
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
