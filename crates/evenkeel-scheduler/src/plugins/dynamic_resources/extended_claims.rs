//! Claims for pods' extended resources: found again, made, told of, and deleted.

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

/// The claims of that kind that there are, by the uids of their pods.
#[derive(Debug, Default)]
pub(super) struct ExtendedResourceClaims {
    of_pod: HashMap<Text, Arc<ResourceClaim>>,
    /// Uids of those that are being deleted.
    given_up: HashSet<Text>,
}

impl ExtendedResourceClaims {
    /// The cache shows a claim.
    pub(super) fn seen(&mut self, claim: &Arc<ResourceClaim>) {
        let owner = claim.meta.controller().filter(|_| extended::is_extended_resource_claim(claim));
        if let Some(owner) = owner.filter(|_| !self.given_up.contains(&claim.meta.uid)) {
            self.of_pod.insert(owner.uid.clone(), Arc::clone(claim));
        }
    }

    /// The cache shows that a claim is gone.
    pub(super) fn gone(&mut self, claim: &ResourceClaim) {
        self.given_up.remove(&claim.meta.uid);
        self.forget(claim);
    }

    /// The claim that was made for the pod, in an attempt that came to nothing.
    pub(super) fn of(&self, pod: &Pod) -> Option<Arc<ResourceClaim>> {
        self.of_pod.get(&pod.meta.uid).map(Arc::clone)
    }

    /// The claim is being deleted: until the cache shows that, it is as if it were not there.
    pub(super) fn release_claim(&mut self, claim: &ResourceClaim) {
        self.given_up.insert(claim.meta.uid.clone());
        self.forget(claim);
    }

    /// It could not be deleted.
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

/// Makes the claim, still without devices.
pub(super) async fn make(
    client: &Client,
    claim: &ResourceClaim,
) -> Result<ResourceClaim, ApiError> {
    let body = extended::body(claim).to_string().into();
    client.create(&ResourceClaim::kind(), &claim.meta.namespace, body).await
}

/// Says in the pod's status which container has what of the claim.
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

/// Deletes the claim, which nobody is to use any more.
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

/// Takes off what would keep the claim.
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
