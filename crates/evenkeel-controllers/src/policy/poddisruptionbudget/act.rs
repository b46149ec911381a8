//! Expected pods of owners: by caches for workload kinds, by the scale sub-resource for others. Upstream: `finders`,
//! `getExpectedScale`.

use super::plan::ExpectedPods;
use crate::{
    owned::resolve,
    scale::{ScaleError, Scales},
};
use evenkeel_api::{
    OwnerReference, Text,
    views::{Deployment, Pod, ReplicaSet, ReplicationController, StatefulSet},
};
use evenkeel_runtime::cache::{Cache, Caches};
use std::{collections::BTreeMap, sync::Arc};

/// Caches and scale client for owners.
#[derive(Clone)]
pub(super) struct Owners {
    pub(super) controllers: Cache<ReplicationController>,
    pub(super) sets: Cache<ReplicaSet>,
    pub(super) deployments: Cache<Deployment>,
    pub(super) stateful: Cache<StatefulSet>,
    scales: Scales,
}

/// An owner's uid and its number of pods. Upstream: `controllerAndScale`.
type Owner = (Text, i32);

impl Owners {
    pub(super) fn new(caches: &Caches, scales: Scales) -> Self {
        Self {
            controllers: caches.of(),
            sets: caches.of(),
            deployments: caches.of(),
            stateful: caches.of(),
            scales,
        }
    }

    /// Returns the expected pods of the pods' owners; pods without a controller do not count. Upstream:
    /// `getExpectedScale`.
    pub(super) async fn expected_pods(&self, pods: &[Arc<Pod>]) -> ExpectedPods {
        let (mut expected_pods, mut asked) = (BTreeMap::new(), Vec::new());
        for pod in pods {
            let Some(reference) = pod.meta.controller() else { continue };
            if asked.contains(&&reference.uid) {
                continue;
            }
            asked.push(&reference.uid);
            let namespace = &pod.meta.namespace;
            let found = match self.cached(namespace, reference) {
                Some(owner) => Some(owner),
                None => self.by_scale(namespace, reference).await?,
            };
            let Some((uid, replicas)) = found else {
                return Err(format!("found no controllers for pod {:?}", &*pod.meta.name));
            };
            expected_pods.insert(uid, replicas);
        }
        Ok(expected_pods)
    }

    /// Returns an owner from the caches. For a ReplicaSet of a Deployment it is the Deployment. Upstream:
    /// `getPodReplicaSet`, `getPodDeployment`, `getPodStatefulSet`, `getPodReplicationController`.
    fn cached(&self, namespace: &str, reference: &OwnerReference) -> Option<Owner> {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        match (&*reference.kind, group) {
            ("ReplicationController", "") => {
                let owner = resolve(&self.controllers, namespace, reference)?;
                Some((owner.meta.uid.clone(), owner.spec.replicas.unwrap_or(1)))
            }
            ("ReplicaSet", "apps" | "extensions") => {
                let set = resolve(&self.sets, namespace, reference)?;
                match set.meta.controller().filter(|above| &*above.kind == "Deployment") {
                    None => Some((set.meta.uid.clone(), set.spec.replicas.unwrap_or(1))),
                    Some(above) => {
                        let owner = resolve(&self.deployments, namespace, above)?;
                        Some((owner.meta.uid.clone(), owner.spec.replicas.unwrap_or(1)))
                    }
                }
            }
            ("StatefulSet", "apps") => {
                let owner = resolve(&self.stateful, namespace, reference)?;
                Some((owner.meta.uid.clone(), owner.spec.replicas.unwrap_or(1)))
            }
            _ => None,
        }
    }

    /// Returns an owner by its scale, read live; `None` if it is deleted. Upstream: `getScaleController`.
    async fn by_scale(
        &self,
        namespace: &str,
        reference: &OwnerReference,
    ) -> Result<Option<Owner>, String> {
        let told = |error: ScaleError| error.to_string();
        let resource =
            self.scales.resource(&reference.api_version, &reference.kind).await.map_err(told)?;
        match self.scales.get(&resource.kind, namespace, &reference.name).await {
            Ok(scale) => Ok((scale.uid == reference.uid).then_some((scale.uid, scale.replicas))),
            Err(refused) if refused.code == 404 => {
                if resource.subresources.iter().any(|part| &**part == "scale") {
                    return Ok(None);
                }
                let (plural, group) = (&resource.kind.plural, &resource.kind.group);
                let dot = if group.is_empty() { "" } else { "." };
                Err(format!("{plural}{dot}{group} does not implement the scale subresource"))
            }
            Err(refused) => Err(refused.message),
        }
    }
}
