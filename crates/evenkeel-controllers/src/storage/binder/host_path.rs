//! Folders below `/tmp` as volumes, for single-node clusters: the only volumes that this controller makes and deletes itself.
//!
//! Upstream: `pkg/volume/hostpath`, for testing only.

use super::{
    Options,
    plan::{
        claim::{HOST_PATH, Seen},
        reclaim::{self, IN_TREE_PROTECTION_FINALIZER},
    },
};
use crate::{storage::finalizers, wire};
use evenkeel_api::{
    View, storage,
    views::{PersistentVolume, PersistentVolumeClaim},
};
use evenkeel_runtime::{
    controller::{Context, Error},
    plan::{Create, Delete, Key, Note, OnError, Plan, Rewrite},
};
use serde_json::{Value, json};
use std::{io, path::Path};

/// Makes a folder for the claim, and the volume that it is behind.
pub(super) async fn provision(
    seen: &Seen,
    options: &Options,
    key: &Key,
    context: &Context,
) -> Result<(), Error> {
    let claim = &*seen.claim;
    let refuse = |why: String| {
        let told = Note::warning(wire::target(claim), "ProvisioningFailed", why.clone());
        context.events.record(&told);
        Error::message(why)
    };
    if !options.host_path_provisioning {
        return Err(refuse(format!(
            "Failed to create provisioner: provisioning in volume plugin \"{HOST_PATH}\" is disabled"
        )));
    }
    let class = storage::class_of_claim(claim);
    let failed = |why: &dyn std::fmt::Display| {
        refuse(format!("Failed to provision volume with StorageClass \"{class}\": {why}"))
    };
    if &*claim.spec.volume_mode == "Block" {
        return Err(failed(&format!("{HOST_PATH} does not support block volume provisioning")));
    }
    // By uid: a second attempt finds the folder of the first.
    let path = format!("/tmp/hostpath_pv/{}", claim.meta.uid);
    if options.host_path_files {
        tokio::fs::create_dir_all(&path).await.map_err(|error| failed(&error))?;
    }
    let policy = seen.class.as_deref().map_or("Delete", |class| &class.reclaim_policy);
    let volume = object(claim, class, policy, &path);
    let name = format!("pvc-{}", claim.meta.uid);
    let told = Note::normal(
        wire::target(claim),
        "ProvisioningSucceeded",
        format!("Successfully provisioned volume {name} using {HOST_PATH}"),
    );
    let create = Create {
        done: Some(told),
        ..Create::new(PersistentVolume::kind(), "", volume.to_string())
    };
    match context.act(key, &Plan::one(create)).await {
        Err(failure) if !failure.is_already_exists() => Err(failure.into()),
        _ => Ok(()),
    }
}

fn object(claim: &PersistentVolumeClaim, class: &str, policy: &str, path: &str) -> Value {
    let modes: Vec<&str> = match &*claim.spec.access_modes {
        [] => vec!["ReadWriteOnce"],
        modes => modes.iter().map(|mode| &**mode).collect(),
    };
    let mut volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": format!("pvc-{}", claim.meta.uid),
            "annotations": {
                "kubernetes.io/createdby": "hostpath-dynamic-provisioner",
                storage::BOUND_BY_CONTROLLER: "yes",
                storage::PROVISIONED_BY: HOST_PATH,
            },
        },
        "spec": {
            "capacity": {"storage": storage::requested(claim).to_string()},
            "accessModes": modes,
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": class,
            "hostPath": {"path": path},
            "claimRef": storage::claim_reference(claim),
        },
    });
    if policy == "Delete" {
        volume["metadata"]["finalizers"] = json!([IN_TREE_PROTECTION_FINALIZER]);
    }
    volume
}

/// Deletes the folder behind the volume, and then the volume.
pub(super) async fn delete(
    volume: &PersistentVolume,
    options: &Options,
    key: &Key,
    context: &Context,
) -> Result<(), Error> {
    let path = volume.spec.source.host_path.as_deref().map_or("", |source| &source.path);
    if let Err(why) = remove(path, options.host_path_files).await {
        context.act(key, &reclaim::fail(volume, "VolumeFailedDelete", &why)).await?;
        return Err(Error::message(why));
    }
    let mut plan = Plan::nothing();
    if finalizers::has(&volume.meta, IN_TREE_PROTECTION_FINALIZER) {
        let change = finalizers::without(volume, IN_TREE_PROTECTION_FINALIZER);
        plan.push(Rewrite { on_error: OnError::SkipRest, ..change });
    }
    plan.push(Delete::new(wire::target(volume)));
    context.act(key, &plan).await?;
    Ok(())
}

/// Removes a folder below `/tmp` with all that is in it, if there are files at all.
async fn remove(path: &str, files: bool) -> Result<(), String> {
    let below = Path::new(path).strip_prefix("/tmp").is_ok_and(|rest| {
        let mut parts = rest.components().peekable();
        parts.peek().is_some() && parts.all(|part| matches!(part, std::path::Component::Normal(_)))
    });
    if !below {
        return Err(format!(
            "host_path deleter only supports /tmp/.+ but received provided {path}"
        ));
    }
    if !files {
        return Ok(());
    }
    match tokio::fs::remove_dir_all(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.to_string()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_what_is_below_tmp_goes() {
        for path in ["", "/", "/tmp", "/tmp/", "/etc/tmp/x", "/tmp/../etc", "tmp/x"] {
            assert!(remove(path, false).await.is_err(), "{path}");
        }
        assert!(remove("/tmp/hostpath_pv/x", false).await.is_ok());
    }
}
