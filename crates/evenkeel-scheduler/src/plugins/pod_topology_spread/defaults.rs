//! Selectors of default constraints, derived from the pod's Services and its controller.
//!
//! Upstream: `plugins/helper/spread.go`, `DefaultSelector`.

use evenkeel_api::{
    selector::Selector,
    views::{Pod, ReplicaSet, ReplicationController, Service, StatefulSet},
};
use evenkeel_runtime::cache::{Cache, Caches, Index};

/// Caches of Services, which select pods, and of the workloads that own pods.
pub(super) struct Owners {
    /// Services by namespace.
    services: Index<Service>,
    replica_sets: Cache<ReplicaSet>,
    stateful_sets: Cache<StatefulSet>,
    controllers: Cache<ReplicationController>,
}

impl Owners {
    pub(super) fn new(caches: &Caches) -> Self {
        Self {
            services: caches
                .of::<Service>()
                .index("namespace", |service, key| key(&service.meta.namespace)),
            replica_sets: caches.of(),
            stateful_sets: caches.of(),
            controllers: caches.of(),
        }
    }

    /// Returns the selector for the pod, or `None` if no Service selects it and no workload controls it.
    pub(super) fn selector(&self, pod: &Pod) -> Option<Selector> {
        let mut requirements = Vec::new();
        // All these Services select the pod, so their requirements cannot contradict each other.
        let mut add_requirements_of = |selector: &Selector| {
            for requirement in selector.requirements() {
                if !requirements.contains(requirement) {
                    requirements.push(requirement.clone());
                }
            }
        };
        self.services.for_each(&pod.meta.namespace, |service| {
            let selector = &service.spec.selector;
            let has_label = |(key, value): (&str, &str)| pod.meta.labels.get(key) == Some(value);
            if selector.iter().all(has_label) {
                add_requirements_of(&Selector::from_map(selector));
            }
        });
        if let Some(owner) = pod.meta.controller() {
            let namespace = &*pod.meta.namespace;
            match (&*owner.api_version, &*owner.kind) {
                ("v1", "ReplicationController") => {
                    if let Some(owner) = self.controllers.get(namespace, &owner.name) {
                        add_requirements_of(&owner.spec.selector);
                    }
                }
                ("apps/v1", "ReplicaSet") => {
                    if let Some(owner) = self.replica_sets.get(namespace, &owner.name) {
                        add_requirements_of(&owner.spec.selector);
                    }
                }
                ("apps/v1", "StatefulSet") => {
                    if let Some(owner) = self.stateful_sets.get(namespace, &owner.name) {
                        add_requirements_of(&owner.spec.selector);
                    }
                }
                _ => {}
            }
        }
        (!requirements.is_empty()).then(|| Selector::all(requirements))
    }
}
