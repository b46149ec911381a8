//! Which pods a selector is about, and what pods ask of others.

use evenkeel_api::{
    StrMap, Text,
    selector::Selector,
    views::{Affinity, Pod, PodAffinityTerm},
};

/// Which pods are meant: those with the labels, in the namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// By name, sorted.
    namespaces: Box<[Text]>,
    /// And by their labels.
    by_label: Selector,
    pods: Selector,
}

impl Scope {
    /// Pods of one namespace.
    pub(crate) fn within(namespace: &str, pods: Selector) -> Self {
        Self { namespaces: [namespace.into()].into(), by_label: Selector::nothing(), pods }
    }

    /// The pods that a term of `owner`'s affinity is about.
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

    /// Whether pods of namespaces with certain labels are meant.
    pub(super) fn asks_labels(&self) -> bool {
        !self.by_label.is_nothing()
    }

    /// Whether a pod is meant as far as that can be told without its namespace's labels.
    pub(crate) fn names(&self, pod: &Pod) -> bool {
        self.means(&pod.meta.namespace, &StrMap::default(), &pod.meta.labels)
    }

    /// Whether a pod is meant, by its namespace (with that one's labels) and its own labels.
    pub(crate) fn means(&self, namespace: &str, of_namespace: &StrMap, labels: &StrMap) -> bool {
        let named = self.namespaces.binary_search_by(|own| (**own).cmp(namespace)).is_ok();
        (named || self.by_label.matches(of_namespace)) && self.pods.matches(labels)
    }
}

/// What a rule does with the pods it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleKind {
    /// Must be near them.
    Affinity,
    /// Must be away from them.
    AntiAffinity,
    /// Would rather be near them (or away, when negative), by this weight.
    Preference(i32),
}

/// The terms of a pod's affinities, each with what it does.
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
