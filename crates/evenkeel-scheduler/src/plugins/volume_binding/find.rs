//! What a node would give a pod of volumes. Pure.

use crate::framework::Rejection;
use evenkeel_api::{
    storage,
    views::{Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass},
};
use std::sync::Arc;

const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
const NOT_REACHED: &str = "node(s) didn't match PersistentVolume's node affinity";
const VOLUME_GONE: &str =
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// A pod's claims.
#[derive(Debug, Default)]
pub(super) struct PodClaims {
    /// The volumes of those that are bound; `None` for one that is not there.
    pub(super) bound: Vec<Option<Arc<PersistentVolume>>>,
    /// Those that are bound only now.
    pub(super) delayed: Vec<Delayed>,
}

/// A claim that waited for this pod.
#[derive(Debug)]
pub(super) struct Delayed {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    pub(super) class: Option<Arc<StorageClass>>,
    /// The node that was chosen for it.
    pub(super) node: Option<Arc<str>>,
    /// Volumes of its class that nobody else has taken.
    pub(super) candidates: Vec<Arc<PersistentVolume>>,
}

/// What is to be done for a pod to have its volumes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Found {
    /// Volumes that become claims'.
    pub(super) bindings: Vec<(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>)>,
    /// Claims for which volumes are to be made.
    pub(super) provisions: Vec<Arc<PersistentVolumeClaim>>,
}

impl Found {
    pub(super) fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.provisions.is_empty()
    }
}

/// Whether the claim has its volume, and that is noted.
pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    !claim.spec.volume_name.is_empty() && claim.meta.annotations.contains(storage::BIND_COMPLETED)
}

/// The claim, if a pod can use it.
pub(super) fn usable(
    pod: &Pod,
    name: &str,
    ephemeral: bool,
    claim: Option<Arc<PersistentVolumeClaim>>,
) -> Result<Arc<PersistentVolumeClaim>, Rejection> {
    let Some(claim) = claim else {
        return Err(Rejection::unresolvable(if ephemeral {
            format!(
                "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
            )
        } else {
            format!("persistentvolumeclaim \"{name}\" not found")
        }));
    };
    if &*claim.status.phase == "Lost" {
        let volume = &claim.spec.volume_name;
        return Err(Rejection::unresolvable(format!(
            "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
        )));
    }
    if claim.meta.deleting() {
        return Err(Rejection::unresolvable(format!(
            "persistentvolumeclaim \"{name}\" is being deleted"
        )));
    }
    if ephemeral {
        storage::made_for_pod(&claim, pod).map_err(Rejection::unresolvable)?;
    }
    Ok(claim)
}

/// What the node would give.
pub(super) fn find(claims: &PodClaims, node: &Node) -> Result<Found, Rejection> {
    let mut reasons = Vec::new();
    for volume in &claims.bound {
        match volume {
            None => reasons.push(VOLUME_GONE),
            Some(volume) if !storage::is_reachable(volume, node) => reasons.push(NOT_REACHED),
            Some(_) => {}
        }
    }
    reasons.truncate(1);
    let found = delayed(claims, node)?;
    let Some(found) = found else {
        reasons.push(NO_VOLUME);
        return Err(rejection(&reasons));
    };
    if reasons.is_empty() { Ok(found) } else { Err(rejection(&reasons)) }
}

fn rejection(reasons: &[&'static str]) -> Rejection {
    let mut rejection = Rejection::unresolvable(reasons.first().copied().unwrap_or_default());
    rejection.reasons.extend(reasons.iter().skip(1).map(|reason| (*reason).into()));
    rejection
}

/// Volumes for the claims that waited: the smallest claim chooses first; `None` where one gets none.
fn delayed(claims: &PodClaims, node: &Node) -> Result<Option<Found>, Rejection> {
    let mut found = Found::default();
    let mut unmade = Vec::new();
    let mut choosing: Vec<&Delayed> = Vec::new();
    for one in &claims.delayed {
        match &one.node {
            Some(chosen) if **chosen != *node.meta.name => return Ok(None),
            Some(_) => unmade.push(one),
            None => choosing.push(one),
        }
    }
    choosing.sort_by_key(|one| storage::requested(&one.claim));
    for one in choosing {
        let free = one.candidates.iter().filter(|candidate| {
            found.bindings.iter().all(|(taken, _)| taken.meta.name != candidate.meta.name)
        });
        match storage::best_match(&one.claim, free, Some(node), true) {
            Some(volume) => found.bindings.push((Arc::clone(volume), Arc::clone(&one.claim))),
            None => unmade.push(one),
        }
    }
    for one in unmade {
        if !can_be_made(one, node)? {
            return Ok(None);
        }
        found.provisions.push(Arc::clone(&one.claim));
    }
    Ok(Some(found))
}

/// Whether a volume can be made for the claim of a pod on the node.
fn can_be_made(one: &Delayed, node: &Node) -> Result<bool, Rejection> {
    let Some(class) = one.class.as_deref() else {
        let name = storage::class_of_claim(&one.claim);
        return Err(Rejection::error(format!("failed to find storage class \"{name}\"")));
    };
    let nobody = matches!(&*class.provisioner, "" | storage::NO_PROVISIONER);
    Ok(!nobody && storage::can_be_made_at(class, node))
}
