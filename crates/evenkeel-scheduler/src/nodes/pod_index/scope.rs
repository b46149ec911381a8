//! Scopes: the pods that an affinity term or a topology spread constraint selects.

use evenkeel_api::{
    StrMap, Text,
    selector::Selector,
    views::{Affinity, Pod, PodAffinityTerm},
};

/// Pods with matching labels in selected namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// Names of namespaces, sorted.
    namespaces: Box<[Text]>,
    /// Selector of additional namespaces, by their labels.
    namespace_selector: Selector,
    pod_selector: Selector,
}

impl Scope {
    /// Returns the scope of matching pods in one namespace.
    pub(crate) fn within(namespace: &str, pod_selector: Selector) -> Self {
        Self {
            namespaces: [namespace.into()].into(),
            namespace_selector: Selector::nothing(),
            pod_selector,
        }
    }

    /// Returns the scope of an affinity term of `owner`.
    pub(crate) fn of_term(term: &PodAffinityTerm, owner: &Pod) -> Self {
        let namespace_selector = &term.namespace_selector;
        let is_own_namespace = term.namespaces.is_empty()
            && namespace_selector.is_nothing()
            && namespace_selector.error().is_none();
        let mut namespaces = match is_own_namespace {
            true => vec![owner.meta.namespace.clone()],
            false => term.namespaces.to_vec(),
        };
        namespaces.sort_unstable();
        namespaces.dedup();
        Self {
            namespaces: namespaces.into(),
            namespace_selector: namespace_selector.clone(),
            pod_selector: term.label_selector.clone(),
        }
    }

    /// Returns whether the scope selects namespaces by label.
    pub(super) fn selects_namespaces(&self) -> bool {
        !self.namespace_selector.is_nothing()
    }

    /// Returns whether the scope matches a pod without regard to the labels of the pod's namespace.
    pub(crate) fn matches_by_namespace_name(&self, pod: &Pod) -> bool {
        self.matches_pod(&pod.meta.namespace, &StrMap::default(), &pod.meta.labels)
    }

    /// Returns whether the scope matches a pod with `labels` in a namespace with `namespace_labels`.
    pub(crate) fn matches_pod(
        &self,
        namespace: &str,
        namespace_labels: &StrMap,
        labels: &StrMap,
    ) -> bool {
        let is_named = self.namespaces.binary_search_by(|name| (**name).cmp(namespace)).is_ok();
        (is_named || self.namespace_selector.matches(namespace_labels))
            && self.pod_selector.matches(labels)
    }
}

/// Kind of an affinity term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleKind {
    /// A required term of pod affinity.
    Affinity,
    /// A required term of pod anti-affinity.
    AntiAffinity,
    /// A preferred term with this weight: affinity if positive, anti-affinity if negative.
    Preference(i32),
}

/// Returns all affinity and anti-affinity terms of a pod.
pub(crate) fn terms(pod: &Pod) -> impl Iterator<Item = (RuleKind, &PodAffinityTerm)> {
    let affinity = pod.spec.affinity.as_deref();
    let pod_affinity = affinity.and_then(|affinity: &Affinity| affinity.pod_affinity.as_deref());
    let pod_anti_affinity = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_deref());
    let required_affinity = pod_affinity
        .map_or(&[][..], |affinity| &affinity.required_during_scheduling_ignored_during_execution);
    let required_anti_affinity = pod_anti_affinity
        .map_or(&[][..], |affinity| &affinity.required_during_scheduling_ignored_during_execution);
    let preferred_affinity = pod_affinity
        .map_or(&[][..], |affinity| &affinity.preferred_during_scheduling_ignored_during_execution);
    let preferred_anti_affinity = pod_anti_affinity
        .map_or(&[][..], |affinity| &affinity.preferred_during_scheduling_ignored_during_execution);
    let affinity = required_affinity.iter().map(|term| (RuleKind::Affinity, term));
    let anti_affinity = required_anti_affinity.iter().map(|term| (RuleKind::AntiAffinity, term));
    let preferred = preferred_affinity.iter().map(|term| (term.weight, &term.pod_affinity_term));
    let preferred = preferred
        .chain(preferred_anti_affinity.iter().map(|term| (-term.weight, &term.pod_affinity_term)));
    affinity
        .chain(anti_affinity)
        .chain(preferred.map(|(weight, term)| (RuleKind::Preference(weight), term)))
}
