//! Existing claims for extended resources, and the pod status that refers to them. All functions are pure.

use evenkeel_api::{
    Text,
    views::{Pod, ResourceClaim},
};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::extended::{self, Mapping};

/// Existing claims for extended resources, by pod uid.
#[derive(Debug, Default)]
pub(super) struct ExtendedResourceClaims {
    by_pod: HashMap<Text, Arc<ResourceClaim>>,
    /// Uids of claims that the plugin is deleting.
    being_deleted: HashSet<Text>,
}

impl ExtendedResourceClaims {
    /// Records a claim from the cache.
    pub(super) fn observe(&mut self, claim: &Arc<ResourceClaim>) {
        let owner = claim.meta.controller().filter(|_| extended::is_extended_resource_claim(claim));
        if let Some(owner) = owner.filter(|_| !self.being_deleted.contains(&claim.meta.uid)) {
            self.by_pod.insert(owner.uid.clone(), Arc::clone(claim));
        }
    }

    /// Forgets a claim that was deleted.
    pub(super) fn remove(&mut self, claim: &ResourceClaim) {
        self.being_deleted.remove(&claim.meta.uid);
        self.remove_from_index(claim);
    }

    /// Returns the claim that an earlier attempt created for the pod.
    pub(super) fn claim_of(&self, pod: &Pod) -> Option<Arc<ResourceClaim>> {
        self.by_pod.get(&pod.meta.uid).map(Arc::clone)
    }

    /// Hides a claim that the plugin deletes, until the cache shows the deletion.
    pub(super) fn hide(&mut self, claim: &ResourceClaim) {
        self.being_deleted.insert(claim.meta.uid.clone());
        self.remove_from_index(claim);
    }

    /// Makes the claim visible again after a failed deletion.
    pub(super) fn unhide(&mut self, claim: &Arc<ResourceClaim>) {
        self.being_deleted.remove(&claim.meta.uid);
        self.observe(claim);
    }

    /// Removes a claim from the index of claims by pod.
    fn remove_from_index(&mut self, claim: &ResourceClaim) {
        let Some(owner) = claim.meta.controller() else { return };
        if self.by_pod.get(&owner.uid).is_some_and(|indexed| indexed.meta.uid == claim.meta.uid) {
            self.by_pod.remove(&owner.uid);
        }
    }
}

/// Returns the status patch of the pod that names the claim and its mappings.
pub(super) fn pod_status(pod: &Pod, claim: &str, mappings: &[Mapping]) -> Value {
    let mappings: Vec<Value> = mappings.iter().map(Mapping::json).collect();
    let status = json!({ "resourceClaimName": claim, "requestMappings": mappings });
    json!({
        "metadata": { "uid": pod.meta.uid },
        "status": { "extendedResourceClaimStatus": status },
    })
}
