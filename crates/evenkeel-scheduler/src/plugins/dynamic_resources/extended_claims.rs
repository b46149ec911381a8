//! Claims for extended resources: lookup, creation, pod status, deletion.

use evenkeel_api::{
    Text, View as _,
    views::{Pod, ResourceClaim},
};
use evenkeel_runtime::{
    client::{ApiError, Client, DeleteOptions, Metadata},
    plan::PatchForm,
};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    bind::{self, FINALIZER, MAX_ATTEMPTS},
    extended::{self, Mapping},
};

/// Existing claims for extended resources, by pod uid.
#[derive(Debug, Default)]
pub(super) struct ExtendedResourceClaims {
    of_pod: HashMap<Text, Arc<ResourceClaim>>,
    /// Uids of claims that are being deleted.
    given_up: HashSet<Text>,
}

impl ExtendedResourceClaims {
    /// Handles a claim from the cache.
    pub(super) fn seen(&mut self, claim: &Arc<ResourceClaim>) {
        let owner = claim.meta.controller().filter(|_| extended::is_extended_resource_claim(claim));
        if let Some(owner) = owner.filter(|_| !self.given_up.contains(&claim.meta.uid)) {
            self.of_pod.insert(owner.uid.clone(), Arc::clone(claim));
        }
    }

    /// Handles the deletion of a claim.
    pub(super) fn gone(&mut self, claim: &ResourceClaim) {
        self.given_up.remove(&claim.meta.uid);
        self.forget(claim);
    }

    /// Returns the claim that an earlier attempt created for the pod.
    pub(super) fn of(&self, pod: &Pod) -> Option<Arc<ResourceClaim>> {
        self.of_pod.get(&pod.meta.uid).map(Arc::clone)
    }

    /// Hides the claim until the cache shows its deletion.
    pub(super) fn release_claim(&mut self, claim: &ResourceClaim) {
        self.given_up.insert(claim.meta.uid.clone());
        self.forget(claim);
    }

    /// Makes the claim visible again after a failed deletion.
    pub(super) fn keep(&mut self, claim: &Arc<ResourceClaim>) {
        self.given_up.remove(&claim.meta.uid);
        self.seen(claim);
    }

    fn forget(&mut self, claim: &ResourceClaim) {
        let Some(owner) = claim.meta.controller() else { return };
        if self.of_pod.get(&owner.uid).is_some_and(|known| known.meta.uid == claim.meta.uid) {
            self.of_pod.remove(&owner.uid);
        }
    }
}

/// Creates the claim without an allocation.
pub(super) async fn make(
    client: &Client,
    claim: &ResourceClaim,
) -> Result<ResourceClaim, ApiError> {
    let body = extended::body(claim).to_string().into();
    client.create(&ResourceClaim::kind(), &claim.meta.namespace, body).await
}

/// Writes the mappings to the pod's status.
pub(super) async fn tell(
    client: &Client,
    pod: &Pod,
    claim: &str,
    mappings: &[Mapping],
) -> Result<(), ApiError> {
    let mappings: Vec<Value> = mappings.iter().map(Mapping::json).collect();
    let status = json!({ "resourceClaimName": claim, "requestMappings": mappings });
    let (kind, meta) = (Pod::kind(), &pod.meta);
    let change = json!({
        "metadata": { "uid": meta.uid },
        "status": { "extendedResourceClaimStatus": status },
    });
    let (form, change) = (PatchForm::Strategic, change.to_string().into());
    let (namespace, name) = (&meta.namespace, &meta.name);
    client.patch::<Metadata>(&kind, namespace, name, "status", form, change).await.map(drop)
}

/// Deletes a claim that no pod will use.
pub(super) async fn delete(client: &Client, claim: &ResourceClaim) -> Result<(), ApiError> {
    let gone = |outcome: Result<(), ApiError>| match outcome {
        Err(error) if error.is_not_found() || error.is_other_uid() => Ok(()),
        outcome => outcome,
    };
    let (kind, meta) = (ResourceClaim::kind(), &claim.meta);
    gone(unprotect(client, claim).await)?;
    let options = DeleteOptions { uid: meta.uid.to_string(), ..DeleteOptions::default() };
    gone(client.delete(&kind, &meta.namespace, &meta.name, &options).await.map(drop))
}

/// Removes reservation and finalizer from the claim.
async fn unprotect(client: &Client, claim: &ResourceClaim) -> Result<(), ApiError> {
    let mut newer;
    let mut claim = claim;
    for attempt in 1.. {
        let others: Vec<&Text> =
            claim.meta.finalizers.iter().filter(|one| ***one != *FINALIZER).collect();
        if others.len() == claim.meta.finalizers.len() {
            break;
        }
        let change = json!({ "metadata": { "finalizers": others } });
        match bind::patch(client, claim, &claim.meta.resource_version, "", change).await {
            Err(error) if error.is_conflict() && attempt < MAX_ATTEMPTS => {
                newer = client.get(&claim.meta.namespace, &claim.meta.name).await?;
                claim = &newer;
            }
            outcome => return outcome.map(drop),
        }
    }
    Ok(())
}
