//! Owners of pods, from the caches of the workload kinds. Upstream: `finders`.

use super::owners::{ControllerAndScale, Owner};
use crate::owned::resolve_controller_ref;
use evenkeel_api::{
    Meta, OwnerReference,
    views::{Deployment, Pod, ReplicaSet, ReplicationController, StatefulSet},
};
use evenkeel_runtime::cache::{Cache, Caches};
use std::sync::Arc;

/// Caches of the workload kinds.
#[derive(Clone)]
pub(super) struct OwnerCaches {
    pub(super) replication_controllers: Cache<ReplicationController>,
    pub(super) replica_sets: Cache<ReplicaSet>,
    pub(super) deployments: Cache<Deployment>,
    pub(super) stateful_sets: Cache<StatefulSet>,
}

impl OwnerCaches {
    pub(super) fn new(caches: &Caches) -> Self {
        Self {
            replication_controllers: caches.of(),
            replica_sets: caches.of(),
            deployments: caches.of(),
            stateful_sets: caches.of(),
        }
    }

    /// Returns the distinct owners of the pods. Pods without a controller have no owner.
    pub(super) fn owners_of(&self, pods: &[Arc<Pod>]) -> Vec<Owner> {
        let mut owners: Vec<Owner> = Vec::new();
        for pod in pods {
            let Some(reference) = pod.meta.controller() else { continue };
            if owners.iter().any(|owner| owner.reference.uid == reference.uid) {
                continue;
            }
            owners.push(Owner {
                pod_name: pod.meta.name.clone(),
                namespace: pod.meta.namespace.clone(),
                reference: reference.clone(),
                cached: self.find(&pod.meta.namespace, reference),
            });
        }
        owners
    }

    /// Finds an owner in the caches. For a ReplicaSet of a Deployment, returns the Deployment. Upstream:
    /// `getPodReplicaSet`, `getPodDeployment`, `getPodStatefulSet`, `getPodReplicationController`.
    fn find(&self, namespace: &str, reference: &OwnerReference) -> Option<ControllerAndScale> {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        match (&*reference.kind, group) {
            ("ReplicationController", "") => {
                let owner =
                    resolve_controller_ref(&self.replication_controllers, namespace, reference)?;
                Some(controller_and_scale(&owner.meta, owner.spec.replicas))
            }
            ("ReplicaSet", "apps" | "extensions") => {
                let set = resolve_controller_ref(&self.replica_sets, namespace, reference)?;
                match set.meta.controller() {
                    Some(deployment) if &*deployment.kind == "Deployment" => {
                        let owner =
                            resolve_controller_ref(&self.deployments, namespace, deployment)?;
                        Some(controller_and_scale(&owner.meta, owner.spec.replicas))
                    }
                    _ => Some(controller_and_scale(&set.meta, set.spec.replicas)),
                }
            }
            ("StatefulSet", "apps") => {
                let owner = resolve_controller_ref(&self.stateful_sets, namespace, reference)?;
                Some(controller_and_scale(&owner.meta, owner.spec.replicas))
            }
            _ => None,
        }
    }
}

/// Returns the uid and the desired replicas of a workload. Like in the API, the default of the replicas is 1.
fn controller_and_scale(meta: &Meta, replicas: Option<i32>) -> ControllerAndScale {
    ControllerAndScale { uid: meta.uid.clone(), replicas: replicas.unwrap_or(1) }
}
