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
    by_label: Selector,
    pods: Selector,
}

impl Scope {
    /// Returns the scope of matching pods in one namespace.
    pub(crate) fn within(namespace: &str, pods: Selector) -> Self {
        Self { namespaces: [namespace.into()].into(), by_label: Selector::nothing(), pods }
    }

    /// Returns the scope of an affinity term of `owner`.
    pub(crate) fn of_term(term: &PodAffinityTerm, owner: &Pod) -> Self {
        let by_label = &term.namespace_selector;
        let own = term.namespaces.is_empty() && by_label.is_nothing() && by_label.error().is_none();
        let mut namespaces = match own {
            true => vec![owner.meta.namespace.clone()],
            false => term.namespaces.to_vec(),
        };
        namespaces.sort_unstable();
        namespaces.dedup();
        Self {
            namespaces: namespaces.into(),
            by_label: by_label.clone(),
            pods: term.label_selector.clone(),
        }
    }

    /// Reports whether the scope selects namespaces by label.
    pub(super) fn selects_namespaces(&self) -> bool {
        !self.by_label.is_nothing()
    }

    /// Reports whether the scope matches a pod even without its namespace's labels.
    pub(crate) fn names(&self, pod: &Pod) -> bool {
        self.matches_pod(&pod.meta.namespace, &StrMap::default(), &pod.meta.labels)
    }

    /// Reports whether the scope matches a pod with `labels` in a namespace with the labels
    /// `of_namespace`.
    pub(crate) fn matches_pod(
        &self,
        namespace: &str,
        of_namespace: &StrMap,
        labels: &StrMap,
    ) -> bool {
        let named = self.namespaces.binary_search_by(|own| (**own).cmp(namespace)).is_ok();
        (named || self.by_label.matches(of_namespace)) && self.pods.matches(labels)
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
    let near = affinity.and_then(|affinity: &Affinity| affinity.pod_affinity.as_deref());
    let away = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_deref());
    let must_near =
        near.map_or(&[][..], |a| &a.required_during_scheduling_ignored_during_execution);
    let must_away =
        away.map_or(&[][..], |a| &a.required_during_scheduling_ignored_during_execution);
    let would_near =
        near.map_or(&[][..], |a| &a.preferred_during_scheduling_ignored_during_execution);
    let would_away =
        away.map_or(&[][..], |a| &a.preferred_during_scheduling_ignored_during_execution);
    let near = must_near.iter().map(|term| (RuleKind::Affinity, term));
    let away = must_away.iter().map(|term| (RuleKind::AntiAffinity, term));
    let soft = would_near.iter().map(|term| (term.weight, &term.pod_affinity_term));
    let soft = soft.chain(would_away.iter().map(|term| (-term.weight, &term.pod_affinity_term)));
    near.chain(away).chain(soft.map(|(weight, term)| (RuleKind::Preference(weight), term)))
}
