//! VolumeBinding: a pod goes where its volumes can be had, and is bound once they are its own.
//!
//! What a node would give is worked out in `find`, which is pure; what was decided for pods on their way to a node is kept
//! until their claims are bound, so that no volume is chosen twice. Upstream: `plugins/volumebinding`.

mod bind;
mod find;
#[cfg(test)]
mod tests;

use evenkeel_api::{
    storage,
    views::{Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass},
};
use evenkeel_runtime::{
    cache::{Cache, Index},
    client::Client,
    clock::Clock,
};
use find::{Delayed, Found, PodClaims};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};
use tokio::sync::Notify;

use crate::{
    framework::{
        Change, CycleState, Filter, Filtered, Handle, Hint, ObjectChange, Pending, Plugin, PreBind,
        PreFilter, PreFiltered, Rejection, Reserve, Unprepared,
    },
    nodes::{NodeRef, NodeTable},
    pod::PodInfo,
};

/// Places pods by their volumes.
#[derive(Default)]
pub struct VolumeBinding {
    seen: OnceLock<Seen>,
    /// What was decided for pods that are on their way, by uid.
    decided: Mutex<HashMap<Box<str>, Decided>>,
}

/// What is decided for a pod.
#[derive(Debug, Clone)]
struct Decided {
    node: Arc<str>,
    found: Found,
}

/// What it looks at.
struct Seen {
    clock: Clock,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
    by_class: Index<PersistentVolume>,
    /// Told of each change of a claim or a volume.
    changed: Arc<Notify>,
}

impl Seen {
    fn new(handle: &Handle) -> Self {
        let Handle { caches, clock, .. } = handle;
        let (claims, volumes) =
            (handle.watch::<PersistentVolumeClaim>(), handle.watch::<PersistentVolume>());
        let changed = Arc::new(Notify::new());
        let (of_claims, of_volumes) = (Arc::clone(&changed), Arc::clone(&changed));
        claims.subscribe(move |_| of_claims.notify_waiters());
        volumes.subscribe(move |_| of_volumes.notify_waiters());
        Self {
            clock: clock.clone(),
            pods: caches.of(),
            nodes: caches.of(),
            by_class: volumes.index("class", |volume, key| key(storage::class_of_volume(volume))),
            classes: handle.watch(),
            claims,
            volumes,
            changed,
        }
    }
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        "VolumeBinding"
    }

    fn connect(&self, handle: &Handle) {
        // A second scheduler over the same plug-in sees what the first one does.
        self.seen.get_or_init(|| Seen::new(handle));
    }

    fn hint(&self, pod: &PodInfo, change: &Change<'_>) -> Hint {
        match change {
            Change::Object(ObjectChange::Claim(edit)) => {
                let Some(claim) = edit.now() else { return Hint::Skip };
                let mut claims = storage::claims_of(&pod.pod);
                Hint::when(
                    claim.meta.namespace == pod.pod.meta.namespace
                        && claims.any(|used| used.claim_name(&pod.pod) == *claim.meta.name),
                )
            }
            Change::Object(_) | Change::NodeAdded(_) => Hint::Queue,
            Change::NodeUpdated(_, aspects) => Hint::when(aspects.labels),
            Change::PodAssigned(_) | Change::PodGone(_) | Change::OwnUpdate => Hint::Skip,
        }
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
    fn as_reserve(&self) -> Option<&dyn Reserve> {
        Some(self)
    }
    fn as_pre_bind(&self) -> Option<&dyn PreBind> {
        Some(self)
    }
}

impl VolumeBinding {
    fn decided(&self) -> MutexGuard<'_, HashMap<Box<str>, Decided>> {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pod's claims, and what may become their volumes.
    fn claims(&self, seen: &Seen, pod: &Pod) -> Result<PodClaims, Rejection> {
        let mut claims = PodClaims::default();
        for used in storage::claims_of(pod) {
            let name = used.claim_name(pod);
            let claim = seen.claims.get(&pod.meta.namespace, &name);
            let claim = find::usable(pod, &name, used.ephemeral, claim)?;
            let class = storage::class_of_claim(&claim);
            let class = seen.classes.get("", class);
            if find::is_bound(&claim) {
                claims.bound.push(seen.volumes.get("", &claim.spec.volume_name));
            } else if class.as_deref().is_some_and(storage::waits_for_consumer)
                && claim.spec.volume_name.is_empty()
            {
                claims.delayed.push(self.delayed(seen, claim, class));
            } else {
                let why = "pod has unbound immediate PersistentVolumeClaims";
                return Err(Rejection::unresolvable(why));
            }
        }
        Ok(claims)
    }

    /// A claim with what others on their way have decided about it, and without the volumes that they have taken.
    fn delayed(
        &self,
        seen: &Seen,
        claim: Arc<PersistentVolumeClaim>,
        class: Option<Arc<StorageClass>>,
    ) -> Delayed {
        let mut node: Option<Arc<str>> =
            claim.meta.annotations.get(storage::SELECTED_NODE).map(Arc::from);
        let mut candidates = seen.by_class.get(storage::class_of_claim(&claim));
        for decided in self.decided().values() {
            if decided.found.provisions.iter().any(|other| other.meta.uid == claim.meta.uid) {
                node = Some(Arc::clone(&decided.node));
            }
            for (volume, other) in &decided.found.bindings {
                if other.meta.uid == claim.meta.uid {
                    candidates.retain(|candidate| candidate.meta.name == volume.meta.name);
                } else {
                    candidates.retain(|candidate| candidate.meta.name != volume.meta.name);
                }
            }
        }
        Delayed { claim, class, node, candidates }
    }
}

impl PreFilter for VolumeBinding {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        _: &NodeTable,
    ) -> Result<PreFiltered, Rejection> {
        if storage::claims_of(&pod.pod).next().is_none() {
            return Ok(PreFiltered::Skip);
        }
        let Some(seen) = self.seen.get() else {
            return Err(Rejection::error("volumes are not known yet"));
        };
        state.put(self.claims(seen, &pod.pod)?);
        Ok(PreFiltered::All)
    }
}

impl Filter for VolumeBinding {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> Filtered {
        match state.get::<PodClaims>() {
            Some(claims) => find::find(claims, node.node()).map(drop),
            None => Ok(()),
        }
    }
}

impl Reserve for VolumeBinding {
    fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str) -> Filtered {
        let (Some(claims), Some(seen)) = (state.get::<PodClaims>(), self.seen.get()) else {
            return Ok(());
        };
        let Some(there) = seen.nodes.get("", node) else {
            return Err(Rejection::error(format!("node \"{node}\" not found")));
        };
        let found = find::find(claims, &there)?;
        if !found.is_empty() {
            let decided = Decided { node: Arc::from(node), found };
            self.decided().insert(pod.uid().into(), decided);
        }
        Ok(())
    }

    fn unreserve(&self, _: &mut CycleState, pod: &PodInfo, _: &str) {
        self.decided().remove(pod.uid());
    }
}

impl PreBind for VolumeBinding {
    fn pre_bind<'a>(
        &'a self,
        client: &'a Client,
        pod: &'a PodInfo,
        _: &'a str,
    ) -> Pending<'a, Result<(), Unprepared>> {
        Box::pin(async move {
            let decided = self.decided().get(pod.uid()).cloned();
            let (Some(decided), Some(seen)) = (decided, self.seen.get()) else { return Ok(()) };
            bind::bind(client, seen, &pod.pod, &decided).await?;
            // The claims say so themselves by now.
            self.decided().remove(pod.uid());
            Ok(())
        })
    }
}

impl std::fmt::Debug for VolumeBinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VolumeBinding").field("decided", &self.decided()).finish_non_exhaustive()
    }
}
