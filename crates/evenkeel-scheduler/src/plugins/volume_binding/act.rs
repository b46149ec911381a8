//! Writes the bindings of a pod's claims in PreBind, and waits until the claims are bound.

use super::{
    AssumedPodVolumes, Observed,
    bind::{WrittenObject, WrittenObjects, check_bindings, claim_ref_patch, selected_node_patch},
    find::Provision,
};
use crate::framework::PreBindError;
use evenkeel_api::{View, views::Pod};
use evenkeel_runtime::{
    client::Client,
    controller::rewrite,
    plan::{PatchType, Rewrite, Target},
};
use serde_json::Value;
use std::time::Duration;

/// Writes the volumes and claims of the pod's assumed bindings, and waits until the claims are bound.
///
/// Upstream: `BindPodVolumes`.
pub(super) async fn bind(
    client: &Client,
    observed: &Observed,
    pod: &Pod,
    assumed_volumes: &AssumedPodVolumes,
    timeout: Duration,
) -> Result<(), PreBindError> {
    let written = write(client, assumed_volumes).await?;
    let check = || check_bindings(observed, pod, assumed_volumes, &written);
    let wait = async {
        loop {
            // The subscription precedes the check, so that no change is missed.
            let changed = observed.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if check()
                .map_err(|error| PreBindError::Refused(format!("binding volumes: {error}")))?
            {
                return Ok(());
            }
            changed.await;
        }
    };
    tokio::select! {
        result = wait => result,
        () = observed.clock.sleep(timeout) => {
            Err(PreBindError::Refused("binding volumes: context deadline exceeded".to_owned()))
        }
    }
}

/// Binds volumes to claims, and sets the annotation `selected-node` on claims to provision.
///
/// Upstream: `bindAPIUpdate`.
async fn write(
    client: &Client,
    assumed_volumes: &AssumedPodVolumes,
) -> Result<WrittenObjects, PreBindError> {
    let mut written = WrittenObjects::default();
    for (volume, claim) in &assumed_volumes.pod_volumes.bindings {
        let version = patch(client, &**volume, &claim_ref_patch(volume, claim)).await?;
        written.volumes.push(WrittenObject::new(&**volume, version));
    }
    for Provision { claim, .. } in &assumed_volumes.pod_volumes.provisions {
        let version = match selected_node_patch(claim, &assumed_volumes.node) {
            Some(change) => patch(client, &**claim, &change).await?,
            None => claim.meta.version(),
        };
        written.claims.push(WrittenObject::new(&**claim, version));
    }
    Ok(written)
}

/// Patches the object unless it has changed since the cache read it. Returns its new resource version.
async fn patch<V: View>(client: &Client, object: &V, change: &Value) -> Result<u64, PreBindError> {
    let meta = object.meta();
    let target = Target::of(V::kind(), meta);
    let change = Rewrite::new(target, &meta.resource_version, PatchType::Merge, change.to_string());
    Ok(rewrite(client, &change).await?.meta.version())
}
