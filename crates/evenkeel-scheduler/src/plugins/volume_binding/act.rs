//! Writes the bindings of a pod's claims in PreBind, and waits until the claims are bound.

use super::{
    AssumedPodVolumes, Observed,
    bind::{Written, bind_to_claim, check, selected_node, written},
    find::Provision,
};
use crate::framework::PreBindError;
use evenkeel_api::{View, views::Pod};
use evenkeel_runtime::{
    client::Client,
    controller::rewrite,
    plan::{PatchForm, Rewrite, Target},
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
    let (volumes, claims) = write(client, assumed_volumes).await?;
    let check = || check(observed, pod, assumed_volumes, &volumes, &claims);
    let wait = async {
        loop {
            // The subscription precedes the check, so that no change is missed.
            let changed = observed.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if check().map_err(|why| PreBindError::Refused(format!("binding volumes: {why}")))? {
                return Ok(());
            }
            changed.await;
        }
    };
    tokio::select! {
        done = wait => done,
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
) -> Result<(Vec<Written>, Vec<Written>), PreBindError> {
    let (mut volumes, mut claims) = (Vec::new(), Vec::new());
    for (volume, claim) in &assumed_volumes.found.bindings {
        let version = put(client, &**volume, &bind_to_claim(volume, claim)).await?;
        volumes.push(written(&**volume, version));
    }
    for Provision { claim, .. } in &assumed_volumes.found.provisions {
        let version = match selected_node(claim, &assumed_volumes.node) {
            Some(change) => put(client, &**claim, &change).await?,
            None => claim.meta.version(),
        };
        claims.push(written(&**claim, version));
    }
    Ok((volumes, claims))
}

async fn put<V: View>(client: &Client, object: &V, change: &Value) -> Result<u64, PreBindError> {
    let meta = object.meta();
    let target = Target::of(V::kind(), meta);
    let change = Rewrite::new(target, &meta.resource_version, PatchForm::Merge, change.to_string());
    Ok(rewrite(client, &change).await?.meta.version())
}
