//! Decides whether a pod's volumes can be mounted on its node.

use evenkeel_api::views::{CsiDriver, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use evenkeel_component_helpers::{
    scheduling::corev1,
    storage::{attach, claims, ephemeral},
};
use evenkeel_runtime::cache::{Cache, CacheEvent, Caches, Index};
use std::sync::Arc;

/// Caches of the objects that determine whether volumes can be mounted.
pub(crate) struct Volumes {
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    drivers: Cache<CsiDriver>,
    nodes: Cache<Node>,
    /// Pods by the `namespace/name` of the claims that they use.
    pods_by_claim: Index<Pod>,
    pods_by_node: Index<Pod>,
    pods: Cache<Pod>,
}

impl Volumes {
    pub(crate) fn new(caches: &Caches, pods: &Cache<Pod>) -> Self {
        Self {
            claims: caches.of(),
            volumes: caches.of(),
            drivers: caches.of(),
            nodes: caches.of(),
            pods_by_claim: pods.index("claim", claims::keys_of_pod),
            pods_by_node: pods.index("node", corev1::node_key),
            pods: pods.clone(),
        }
    }

    /// Calls `wake` with each pod whose volumes may have become mountable.
    pub(crate) fn subscribe(&self, wake: impl Fn(&Pod) + Clone + Send + Sync + 'static) {
        let (pods_by_claim, wake_user) = (self.pods_by_claim.clone(), wake.clone());
        self.claims.subscribe(move |event| {
            let meta = &event.object().meta;
            if !matches!(event, CacheEvent::Deleted(_)) {
                let pods = pods_by_claim.get(&claims::key(&meta.namespace, &meta.name));
                pods.iter().for_each(|pod| wake_user(pod));
            }
        });
        let (pods_by_claim, wake_user) = (self.pods_by_claim.clone(), wake.clone());
        self.volumes.subscribe(move |event| {
            if let Some(claim) = &event.object().spec.claim_ref
                && !matches!(event, CacheEvent::Deleted(_))
            {
                let pods = pods_by_claim.get(&claims::key(&claim.namespace, &claim.name));
                pods.iter().for_each(|pod| wake_user(pod));
            }
        });
        let (pods, wake_user) = (self.pods.clone(), wake.clone());
        self.drivers.subscribe(move |event| {
            let is_unchanged = matches!(event, CacheEvent::Updated { old, new }
                if old.spec.attach_required == new.spec.attach_required);
            if !is_unchanged {
                let pods = pods.list();
                let with_claims = pods.iter().filter(|pod| claims::of_pod(pod).next().is_some());
                with_claims.for_each(|pod| wake_user(pod));
            }
        });
        let pods_by_node = self.pods_by_node.clone();
        self.nodes.subscribe(move |event| {
            if let CacheEvent::Updated { old, new } = event
                && old.status.volumes_attached != new.status.volumes_attached
            {
                let pods = pods_by_node.get(&new.meta.name);
                let with_claims = pods.iter().filter(|pod| claims::of_pod(pod).next().is_some());
                with_claims.for_each(|pod| wake(pod));
            }
        });
    }

    /// Returns whether all claims of the pod are bound, and their volumes are attached if their drivers require it.
    pub(crate) fn are_mountable(&self, pod: &Pod) -> bool {
        let mut claims = claims::of_pod(pod).peekable();
        if claims.peek().is_none() {
            return true;
        }
        let node = self.nodes.get("", &pod.spec.node_name);
        claims.all(|used| {
            let claim = self.claims.get(&pod.meta.namespace, &used.claim_name(pod));
            claim.is_some_and(|claim| {
                let is_for_pod = !used.is_ephemeral || ephemeral::made_for_pod(&claim, pod).is_ok();
                is_for_pod && self.is_mountable(&claim, node.as_ref())
            })
        })
    }

    /// Returns whether a claim is bound, and its volume is attached to the node if its driver requires it.
    fn is_mountable(&self, claim: &PersistentVolumeClaim, node: Option<&Arc<Node>>) -> bool {
        let Some(volume) = self.bound_volume(claim) else { return false };
        let driver = self.driver(&volume);
        let Some(name) = attached_name(&volume, driver.as_deref()) else { return true };
        node.is_some_and(|node| {
            node.status.volumes_attached.iter().any(|attached| *attached.name == *name)
        })
    }

    /// Returns the volume of a bound claim; `None` if the claim is not bound or the cache lacks the volume.
    fn bound_volume(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
        if &*claim.status.phase != "Bound" {
            return None;
        }
        self.volumes.get("", &claim.spec.volume_name)
    }

    /// Returns the CSIDriver of the volume.
    fn driver(&self, volume: &PersistentVolume) -> Option<Arc<CsiDriver>> {
        self.drivers.get("", &volume.spec.source.csi.as_deref()?.driver)
    }

    /// Returns the names of the pod's attachable volumes, as in `status.volumesInUse`.
    pub(crate) fn attachable_volumes(&self, pod: &Pod) -> Vec<String> {
        let volumes = claims::of_pod(pod).filter_map(|used| {
            self.bound_volume(&*self.claims.get(&pod.meta.namespace, &used.claim_name(pod))?)
        });
        volumes
            .filter_map(|volume| attached_name(&volume, self.driver(&volume).as_deref()))
            .collect()
    }
}

/// Returns the name of a volume in `status.volumesAttached`; `None` if its driver does not attach volumes. A driver
/// without a CSIDriver object does attach volumes.
///
/// Upstream: `skipAttach`.
fn attached_name(volume: &PersistentVolume, driver: Option<&CsiDriver>) -> Option<String> {
    volume.spec.source.csi.as_deref()?;
    if driver.is_some_and(|driver| driver.spec.attach_required == Some(false)) {
        return None;
    }
    attach::attached_name(volume)
}
