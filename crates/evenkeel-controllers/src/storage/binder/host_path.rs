//! Provisioner of hostPath volumes below `/tmp`, for single-node clusters. Other volumes are provisioned and deleted by
//! external controllers. The plans contain local actions, by which the runtime creates and removes the folders.
//!
//! Upstream: `pkg/volume/hostpath`, which is meant for tests only.

use super::{
    Options,
    plan::{
        claim::{HOST_PATH, Observed},
        reclaim::{self, IN_TREE_PROTECTION_FINALIZER},
    },
};
use crate::{finalizers, wire};
use evenkeel_api::{
    View,
    views::{PersistentVolume, PersistentVolumeClaim},
};
use evenkeel_component_helpers::storage::volume;
use evenkeel_runtime::plan::{
    Create, Delete, EventRecord, Local, OnError, Plan, PlanError, Rewrite, Steps,
};
use serde_json::{Value, json};
use std::path::{Component, Path};

/// Name of the local action that creates a folder and its parents.
pub(super) const MAKE_FOLDER: &str = "make the folder";
/// Name of the local action that removes a folder and its contents, if the folder exists.
pub(super) const REMOVE_FOLDER: &str = "remove the folder";

/// Returns the local action for a folder. The step after it handles its failure.
fn folder_action(work: &'static str, path: &str) -> Local {
    Local { work, subject: path.to_owned(), on_error: OnError::Ignore }
}

/// Creates a folder for the claim, then the volume. Upstream: `provisionClaimOperation`.
pub(super) fn provision(
    observed: &Observed,
    options: &Options,
    steps: &mut Steps<'_>,
) -> Result<Plan, Plan> {
    let claim = &*observed.claim;
    let fail = |error: String| {
        let event = EventRecord::warning(wire::target(claim), "ProvisioningFailed", error.clone());
        Plan { error: Some(PlanError::new(error)), ..Plan::one(event) }
    };
    if !options.host_path_provisioning {
        return Ok(fail(format!(
            "Failed to create provisioner: provisioning in volume plugin \"{HOST_PATH}\" is disabled"
        )));
    }
    let class = volume::class_of_claim(claim);
    let fail_for_class = |why: &str| {
        fail(format!("Failed to provision volume with StorageClass \"{class}\": {why}"))
    };
    if &*claim.spec.volume_mode == "Block" {
        return Ok(fail_for_class(&format!(
            "{HOST_PATH} does not support block volume provisioning"
        )));
    }
    // The path contains the uid, so that a retry uses the same folder.
    let path = format!("/tmp/hostpath_pv/{}", claim.meta.uid);
    if options.host_path_files
        && let Some(error) = &steps.one(folder_action(MAKE_FOLDER, &path))?.error
    {
        return Ok(fail_for_class(&error.message));
    }
    let policy = observed.class.as_deref().map_or("Delete", |class| &class.reclaim_policy);
    let volume = volume_json(claim, class, policy, &path);
    let created = steps.one(create_action(claim, &volume))?;
    let error = created.error.as_ref().filter(|error| !error.is_already_exists());
    if let Some(error) = error {
        return Ok(Plan::failure(error.message.clone()));
    }
    Ok(Plan { requeue: Some(options.sync_period), ..Plan::nothing() })
}

/// Returns the action that creates the volume. The step after it handles its failure.
fn create_action(claim: &PersistentVolumeClaim, volume: &Value) -> Create {
    let name = format!("pvc-{}", claim.meta.uid);
    let message = format!("Successfully provisioned volume {name} using {HOST_PATH}");
    let event = EventRecord::normal(wire::target(claim), "ProvisioningSucceeded", message);
    Create {
        done: Some(event),
        on_error: OnError::Ignore,
        ..Create::new(PersistentVolume::kind(), "", volume.to_string())
    }
}

/// Returns the volume to create. It is already reserved for the claim.
fn volume_json(claim: &PersistentVolumeClaim, class: &str, policy: &str, path: &str) -> Value {
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
                volume::BOUND_BY_CONTROLLER: "yes",
                volume::PROVISIONED_BY: HOST_PATH,
            },
        },
        "spec": {
            "capacity": {"storage": volume::requested_storage(claim).to_string()},
            "accessModes": modes,
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": class,
            "hostPath": {"path": path},
            "claimRef": volume::claim_reference(claim),
        },
    });
    if policy == "Delete" {
        volume["metadata"]["finalizers"] = json!([IN_TREE_PROTECTION_FINALIZER]);
    }
    volume
}

/// Deletes the folder of the volume, then the volume. Upstream: `deleteVolumeOperation`.
pub(super) fn delete(
    volume: &PersistentVolume,
    options: &Options,
    steps: &mut Steps<'_>,
) -> Result<Plan, Plan> {
    let path = volume.spec.source.host_path.as_deref().map_or("", |source| &source.path);
    let fail = |error: String| Plan {
        error: Some(PlanError::new(error.clone())),
        ..reclaim::fail(volume, "VolumeFailedDelete", &error)
    };
    if !is_below_tmp(path) {
        return Ok(fail(format!(
            "host_path deleter only supports /tmp/.+ but received provided {path}"
        )));
    }
    if options.host_path_files
        && let Some(error) = &steps.one(folder_action(REMOVE_FOLDER, path))?.error
    {
        return Ok(fail(error.message.clone()));
    }
    let mut plan = Plan { requeue: Some(options.sync_period), ..Plan::nothing() };
    if finalizers::has(&volume.meta, IN_TREE_PROTECTION_FINALIZER) {
        let change = finalizers::remove(volume, IN_TREE_PROTECTION_FINALIZER);
        plan.push(Rewrite { on_error: OnError::SkipRest, ..change });
    }
    plan.push(Delete::new(wire::target(volume)));
    Ok(plan)
}

/// Returns whether the path is below `/tmp` and has no component `..`.
fn is_below_tmp(path: &str) -> bool {
    Path::new(path).strip_prefix("/tmp").is_ok_and(|rest| {
        let mut parts = rest.components().peekable();
        parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use evenkeel_runtime::plan::{Action, Failure, Outcome, Outcomes};

    #[test]
    fn only_paths_below_tmp_are_accepted() {
        for path in ["", "/", "/tmp", "/tmp/", "/etc/tmp/x", "/tmp/../etc", "tmp/x"] {
            assert!(!is_below_tmp(path), "{path}");
        }
        assert!(is_below_tmp("/tmp/hostpath_pv/x"));
    }

    fn action_summaries(plan: &Plan) -> Vec<String> {
        let summaries = plan.actions.iter().map(|action| match action {
            Action::Local(local) => format!("{} {}", local.work, local.subject),
            Action::Create(create) => format!("create {}", create.kind.kind),
            Action::Delete(delete) => format!("delete {}", delete.target.name),
            Action::Rewrite(rewrite) => format!("change {}", rewrite.target.name),
            Action::Event(event) => format!("{}: {}", event.reason, event.message),
            other => panic!("{other:?}"),
        });
        summaries.collect()
    }

    fn failed(code: u16, reason: &str) -> Outcome {
        let reason = reason.to_owned();
        Outcome::failure(Failure { code, reason, ..Failure::local("no space") })
    }

    fn options() -> Options {
        Options { host_path_provisioning: true, ..Options::default() }
    }

    /// Returns a claim of the class `local`, with this volume mode.
    fn claim(mode: &str) -> Observed {
        let claim = object(&json!({
            "metadata": {"name": "data", "namespace": "ns", "uid": "c"},
            "spec": {"storageClassName": "local", "volumeMode": mode},
        }));
        Observed { claim: std::sync::Arc::new(claim), ..Observed::default() }
    }

    /// Returns the plan after these outcomes.
    fn provision_after(observed: &Observed, options: &Options, done: &[Outcome]) -> Option<Plan> {
        let outcomes = Outcomes(done.to_vec());
        Steps::next(&outcomes, |steps| provision(observed, options, steps))
    }

    #[test]
    fn volume_is_created_after_its_folder() {
        let (observed, options) = (claim("Filesystem"), options());
        let after = |done: &[Outcome]| provision_after(&observed, &options, done);
        assert_eq!(action_summaries(&after(&[]).unwrap()), ["make the folder /tmp/hostpath_pv/c"]);
        let made = Outcome::success;
        assert_eq!(action_summaries(&after(&[made()]).unwrap()), ["create PersistentVolume"]);
        for created in [made(), failed(409, "AlreadyExists")] {
            let last = after(&[made(), created]).unwrap();
            assert_eq!(last, Plan { requeue: Some(options.sync_period), ..Plan::nothing() });
        }
        assert_eq!(after(&[made(), failed(500, "")]), Some(Plan::failure("no space")));
        let refused = after(&[failed(0, "")]).unwrap();
        let why = "Failed to provision volume with StorageClass \"local\": no space";
        assert_eq!(action_summaries(&refused), [format!("ProvisioningFailed: {why}")]);
        assert_eq!(refused.error, Some(PlanError::new(why)));
        assert_eq!(after(&[failed(0, ""), made()]), None);
        let without_disk = Options { host_path_files: false, ..options.clone() };
        let first = provision_after(&observed, &without_disk, &[]).unwrap();
        assert_eq!(action_summaries(&first), ["create PersistentVolume"]);
        for (observed, options) in [(claim("Block"), options), (observed, Options::default())] {
            let refused = provision_after(&observed, &options, &[]).unwrap();
            assert!(action_summaries(&refused)[0].starts_with("ProvisioningFailed: "));
        }
    }

    #[test]
    fn volume_is_deleted_after_its_folder() {
        let volume = |path: &str| -> PersistentVolume {
            object(&json!({
                "metadata": {"name": "v", "uid": "v", "finalizers": [IN_TREE_PROTECTION_FINALIZER]},
                "spec": {"hostPath": {"path": path}}, "status": {"phase": "Released"},
            }))
        };
        let (options, below) = (options(), volume("/tmp/hostpath_pv/c"));
        let after = |volume: &PersistentVolume, done: &[Outcome]| {
            let outcomes = Outcomes(done.to_vec());
            Steps::next(&outcomes, |steps| delete(volume, &options, steps))
        };
        assert_eq!(
            action_summaries(&after(&below, &[]).unwrap()),
            ["remove the folder /tmp/hostpath_pv/c"]
        );
        let removed = after(&below, &[Outcome::success()]).unwrap();
        assert_eq!(action_summaries(&removed), ["change v", "delete v"]);
        for (volume, done) in [(below, vec![failed(0, "")]), (volume("/etc"), vec![])] {
            let failed = after(&volume, &done).unwrap();
            assert!(failed.error.is_some());
            assert_eq!(action_summaries(&failed), ["change v"], "the phase");
        }
    }
}
