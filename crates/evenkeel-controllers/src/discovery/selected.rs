//! Indexes of the pods that Services select.

use super::pod::{Change, pod_change};
use evenkeel_api::{
    StrMap, Text,
    views::{Pod, Service},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Index},
    plan::Key,
};
use std::{collections::BTreeSet, sync::Arc};

/// Returns whether the Service selects pods: it has a selector and is not an `ExternalName`.
pub(super) fn selects_pods(service: &Service) -> bool {
    &*service.spec.type_ != "ExternalName" && !service.spec.selector.is_empty()
}

/// Index of pods by label, and of Services by selector.
#[derive(Debug, Clone)]
pub(super) struct SelectorIndex {
    pods: Index<Pod>,
    services: Index<Service>,
}

impl SelectorIndex {
    /// Creates the indexes. Repeated calls return the same ones.
    pub(super) fn of(pods: &Cache<Pod>, services: &Cache<Service>) -> Self {
        let pods = pods.index("label", |pod, key| {
            let mut buffer = String::new();
            for (name, value) in pod.meta.labels.iter() {
                key(index_key(&mut buffer, &pod.meta.namespace, name, value));
            }
        });
        // A Service is indexed by only one label of its selector. A lookup compares the other labels.
        let services = services.index("selector", |service, key| {
            if let Some((name, value)) = service.spec.selector.iter().next() {
                key(index_key(&mut String::new(), &service.meta.namespace, name, value));
            }
        });
        Self { pods, services }
    }

    /// Returns the pods that a Service selects, sorted by name. A Service without a selector selects none.
    pub(super) fn pods_of(&self, service: &Service) -> Vec<Arc<Pod>> {
        let selector = &service.spec.selector;
        let namespace = &*service.meta.namespace;
        let keys = selector
            .iter()
            .map(|(name, value)| index_key(&mut String::new(), namespace, name, value).to_owned());
        // Search the index by the label that the fewest pods have.
        let Some(key) = keys.min_by_key(|key| self.pods.count(key)) else { return Vec::new() };
        let mut pods = self.pods.filter(&key, |pod| selects(selector, &pod.meta.labels));
        pods.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        pods
    }

    /// Returns the names of the Services that select pods with these labels. Upstream: `GetServicesToUpdate`.
    fn service_names(&self, namespace: &str, labels: &StrMap) -> BTreeSet<Text> {
        let mut names = BTreeSet::new();
        let mut buffer = String::new();
        for (name, value) in labels.iter() {
            self.services.for_each(index_key(&mut buffer, namespace, name, value), |service| {
                if selects(&service.spec.selector, labels) {
                    names.insert(service.meta.name.clone());
                }
            });
        }
        names
    }

    /// Returns the Services that a pod's event affects. A pod that existed at the start affects none, because the start
    /// enqueues all Services. Upstream: `podEndpointsChanged`, `GetServicesToUpdate`.
    pub(super) fn affected_services(&self, event: &CacheEvent<Pod>) -> Vec<Key> {
        let pod = event.object();
        let current = || self.service_names(&pod.meta.namespace, &pod.meta.labels);
        let names = match event {
            CacheEvent::Added { initial: true, .. } => return Vec::new(),
            CacheEvent::Added { .. } | CacheEvent::Deleted(_) => current(),
            CacheEvent::Updated { old, new } => match pod_change(old, new) {
                Change::Nothing => return Vec::new(),
                Change::Endpoint => current(),
                Change::Labels => {
                    let before = self.service_names(&old.meta.namespace, &old.meta.labels);
                    current().symmetric_difference(&before).cloned().collect()
                }
                Change::Both => {
                    let before = self.service_names(&old.meta.namespace, &old.meta.labels);
                    current().union(&before).cloned().collect()
                }
            },
        };
        names.iter().map(|name| Key::new(&pod.meta.namespace, name)).collect()
    }

    /// Returns the Services that currently select the pod.
    pub(super) fn services_of(&self, pod: &Pod) -> Vec<Key> {
        let names = self.service_names(&pod.meta.namespace, &pod.meta.labels);
        names.iter().map(|name| Key::new(&pod.meta.namespace, name)).collect()
    }
}

/// Writes the index key of a label in a namespace to the buffer, and returns it.
fn index_key<'a>(buffer: &'a mut String, namespace: &str, name: &str, value: &str) -> &'a str {
    let parts = [namespace, " ", name, "=", value];
    buffer.clear();
    buffer.reserve(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| buffer.push_str(part));
    buffer
}

/// Returns whether the labels match the selector. An empty selector matches nothing.
fn selects(selector: &StrMap, labels: &StrMap) -> bool {
    !selector.is_empty() && selector.iter().all(|(name, value)| labels.get(name) == Some(value))
}
