//! Owners of pods, from the caches of the workload kinds. Upstream: `finders`.

use super::owners::{Owner, Scaled};
use crate::owned::resolve_controller_ref;
use evenkeel_api::{
    OwnerReference,
    views::{Deployment, Pod, ReplicaSet, ReplicationController, StatefulSet},
};
use evenkeel_runtime::cache::{Cache, Caches};
use std::sync::Arc;

/// Caches of the workload kinds.
#[derive(Clone)]
pub(super) struct OwnerCaches {
    pub(super) controllers: Cache<ReplicationController>,
    pub(super) sets: Cache<ReplicaSet>,
    pub(super) deployments: Cache<Deployment>,
    pub(super) stateful: Cache<StatefulSet>,
}

impl OwnerCaches {
    pub(super) fn new(caches: &Caches) -> Self {
        Self {
            controllers: caches.of(),
            sets: caches.of(),
            deployments: caches.of(),
            stateful: caches.of(),
        }
    }

    /// Returns the owners of the pods, each once. Pods without a controller have none.
    pub(super) fn owners(&self, pods: &[Arc<Pod>]) -> Vec<Owner> {
        let mut owners: Vec<Owner> = Vec::new();
        for pod in pods {
            let Some(reference) = pod.meta.controller() else { continue };
            if owners.iter().any(|owner| owner.reference.uid == reference.uid) {
                continue;
            }
            owners.push(Owner {
                pod: pod.meta.name.clone(),
                namespace: pod.meta.namespace.clone(),
                reference: reference.clone(),
                cached: self.cached(&pod.meta.namespace, reference),
            });
        }
        owners
    }

    /// Returns the uid and replicas of an owner from the caches. The owner of a Deployment's ReplicaSet is the
    /// Deployment. Upstream: `getPodReplicaSet`, `getPodDeployment`, `getPodStatefulSet`,
    /// `getPodReplicationController`.
    fn cached(&self, namespace: &str, reference: &OwnerReference) -> Option<Scaled> {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        match (&*reference.kind, group) {
            ("ReplicationController", "") => {
                let owner = resolve_controller_ref(&self.controllers, namespace, reference)?;
                Some((owner.meta.uid.clone(), owner.spec.replicas.unwrap_or(1)))
            }
            ("ReplicaSet", "apps" | "extensions") => {
                let set = resolve_controller_ref(&self.sets, namespace, reference)?;
                match set.meta.controller().filter(|above| &*above.kind == "Deployment") {
                    None => Some((set.meta.uid.clone(), set.spec.replicas.unwrap_or(1))),
                    Some(above) => {
                        let owner = resolve_controller_ref(&self.deployments, namespace, above)?;
                        Some((owner.meta.uid.clone(), owner.spec.replicas.unwrap_or(1)))
                    }
                }
            }
            ("StatefulSet", "apps") => {
                let owner = resolve_controller_ref(&self.stateful, namespace, reference)?;
                Some((owner.meta.uid.clone(), owner.spec.replicas.unwrap_or(1)))
            }
            _ => None,
        }
    }
}
