//! Pod index: number of pods on each node, by equivalence class.
//!
//! Pods with equal namespace, labels, inter-pod affinity terms and deletion state form an *equivalence class*, because
//! no selector distinguishes them. There are about as many classes as workloads. A *scope* is the set of pods that a
//! selector matches in certain namespaces. The index matches each class once against each scope. The number of a
//! scope's pods on a node is then the sum of the numbers of its classes.

mod per_node;
mod scope;
mod slab;
#[cfg(test)]
mod tests;

use evenkeel_api::{
    StrMap, Text,
    views::{Affinity, Pod},
};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use std::{hash::BuildHasher, sync::Arc};

use super::Slot;
pub(crate) use per_node::PerNode;
pub(crate) use scope::{RuleKind, Scope, terms};
use slab::Slab;

/// Id of an equivalence class. It may be reused after the last pod of the class is removed.
pub(crate) type EquivalenceClassId = u32;
/// Id of a scope. It is valid until the next [`PodIndex::sweep`].
pub(crate) type ScopeId = u32;

/// Constant part of the limits of [`PodIndex::sweep`]. The other part is twice the number of used classes, or for
/// scopes, twice the number of classes. Only above its limit, the sweep removes unused entries.
const MAX_IDLE: usize = 512;

/// Equivalence classes and scopes, with the scopes of each class and the classes of each scope.
#[derive(Debug, Default)]
pub(crate) struct PodIndex {
    classes: Slab<EquivalenceClass>,
    /// Ids of the classes by the hash of their pods ([`hash_of`]).
    class_ids: HashTable<EquivalenceClassId>,
    scopes: Slab<ScopeEntry>,
    /// Ids of the scopes by the hash of their [`Scope`].
    scope_ids: HashTable<ScopeId>,
    /// Labels of namespaces, by name.
    namespaces: HashMap<Text, StrMap>,
    hasher: DefaultHashBuilder,
    /// Number of classes that have pods.
    n_occupied: usize,
}

/// A set of pods that no selector can distinguish.
#[derive(Debug)]
pub(crate) struct EquivalenceClass {
    /// A current or former pod of the class. All pods of the class have its labels and affinity terms.
    sample: Arc<Pod>,
    /// Number of the class's pods on each node.
    nodes: PerNode,
    /// Scopes that contain the class.
    scopes: Vec<ScopeId>,
    /// Affinity terms of the class's pods.
    rules: Box<[AffinityRule]>,
}

/// An affinity term of a class's pods. It selects the pods of a scope.
#[derive(Debug)]
pub(crate) struct AffinityRule {
    pub(crate) kind: RuleKind,
    pub(crate) topology_key: Text,
    pub(crate) scope: ScopeId,
}

/// A scope with its classes.
#[derive(Debug)]
struct ScopeEntry {
    scope: Scope,
    /// Classes in the scope.
    members: Vec<EquivalenceClassId>,
    /// Classes whose pods have a term that selects the scope.
    holders: Vec<EquivalenceClassId>,
}

impl EquivalenceClass {
    /// Returns the number of the class's pods on each node.
    pub(crate) fn nodes(&self) -> &PerNode {
        &self.nodes
    }

    /// Returns whether the class's pods are terminating.
    pub(crate) fn is_deleting(&self) -> bool {
        self.sample.meta.deleting()
    }

    /// Returns the affinity terms of the class's pods.
    pub(crate) fn rules(&self) -> &[AffinityRule] {
        &self.rules
    }
}

impl PodIndex {
    /// Adds a pod and returns its class.
    pub(super) fn add_pod(&mut self, pod: &Arc<Pod>, slot: Slot) -> EquivalenceClassId {
        self.sweep();
        let id = self.find_or_add_class(pod);
        if let Some(class) = self.classes.get_mut(id) {
            self.n_occupied += usize::from(class.nodes.is_empty());
            class.nodes.add(slot);
        }
        id
    }

    /// Removes a pod of this class.
    pub(super) fn remove_pod(&mut self, class: EquivalenceClassId, slot: Slot) {
        if let Some(class) = self.classes.get_mut(class) {
            class.nodes.subtract(slot);
            self.n_occupied -= usize::from(class.nodes.is_empty());
        }
    }

    /// Returns whether a pod belongs to the class.
    pub(super) fn is_in_class(&self, class: EquivalenceClassId, pod: &Pod) -> bool {
        self.classes.get(class).is_some_and(|class| are_equivalent(&class.sample, pod))
    }

    /// Returns the id of a pod's class. Adds the class if it does not exist.
    pub(crate) fn find_or_add_class(&mut self, pod: &Arc<Pod>) -> EquivalenceClassId {
        let hash = hash_of(&self.hasher, pod);
        if let Some(id) = self.class_ids.find(hash, |id| self.is_in_class(*id, pod)) {
            return *id;
        }
        let rules: Box<[AffinityRule]> = terms(pod)
            .map(|(kind, term)| AffinityRule {
                kind,
                topology_key: term.topology_key.clone(),
                scope: self.find_or_add_scope(Scope::of_term(term, pod)),
            })
            .collect();
        let class = EquivalenceClass {
            sample: Arc::clone(pod),
            nodes: PerNode::default(),
            scopes: Vec::new(),
            rules,
        };
        let id = self.classes.insert(class);
        let Self { classes, class_ids, hasher, .. } = self;
        class_ids.insert_unique(hash, id, |id| {
            classes.get(*id).map_or(0, |class| hash_of(hasher, &class.sample))
        });
        self.match_scopes(id);
        id
    }

    /// Matches a new class against all scopes, and registers its terms.
    fn match_scopes(&mut self, id: EquivalenceClassId) {
        let Self { classes, scopes, namespaces, .. } = self;
        let Some(class) = classes.get_mut(id) else { return };
        let meta = &class.sample.meta;
        let namespace_labels = namespaces.get(&meta.namespace).unwrap_or(&NO_LABELS);
        for scope_id in scopes.indexes() {
            let Some(entry) = scopes.get_mut(scope_id) else { continue };
            if entry.scope.matches_pod(&meta.namespace, namespace_labels, &meta.labels) {
                entry.members.push(id);
                class.scopes.push(scope_id);
            }
        }
        for rule in &class.rules {
            if let Some(entry) = scopes.get_mut(rule.scope)
                // Several terms of the class may select the same scope.
                && entry.holders.last() != Some(&id)
            {
                entry.holders.push(id);
            }
        }
    }

    /// Returns the class with this id.
    pub(crate) fn get(&self, id: EquivalenceClassId) -> Option<&EquivalenceClass> {
        self.classes.get(id)
    }

    /// Returns the id of a scope. Adds the scope if it does not exist.
    pub(crate) fn find_or_add_scope(&mut self, scope: Scope) -> ScopeId {
        let hash = self.hasher.hash_one(&scope);
        let Self { classes, scopes, scope_ids, namespaces, hasher, .. } = self;
        let is_equal = |id: &ScopeId| scopes.get(*id).is_some_and(|entry| entry.scope == scope);
        if let Some(id) = scope_ids.find(hash, is_equal) {
            return *id;
        }
        let contains = |class: &EquivalenceClass| {
            let meta = &class.sample.meta;
            let namespace_labels = namespaces.get(&meta.namespace).unwrap_or(&NO_LABELS);
            scope.matches_pod(&meta.namespace, namespace_labels, &meta.labels)
        };
        let members: Vec<EquivalenceClassId> =
            classes.iter().filter(|(_, class)| contains(class)).map(|(id, _)| id).collect();
        let id = scopes.insert(ScopeEntry { scope, members, holders: Vec::new() });
        for member in scopes.get(id).map_or(&[][..], |entry| &entry.members) {
            if let Some(class) = classes.get_mut(*member) {
                class.scopes.push(id);
            }
        }
        scope_ids.insert_unique(hash, id, |id| {
            scopes.get(*id).map_or(0, |entry| hasher.hash_one(&entry.scope))
        });
        id
    }

    /// Returns the classes in a scope.
    pub(crate) fn members(&self, scope: ScopeId) -> impl Iterator<Item = &EquivalenceClass> {
        let members = self.scopes.get(scope).map_or(&[][..], |entry| &entry.members);
        members.iter().filter_map(|id| self.classes.get(*id))
    }

    /// Returns the classes that are in all of these scopes, or none if there are no scopes.
    pub(crate) fn members_of_all<'a>(
        &'a self,
        scopes: &'a [ScopeId],
    ) -> impl Iterator<Item = &'a EquivalenceClass> {
        let first = scopes.first().copied();
        let members = first.into_iter().flat_map(|first| self.members(first));
        members.filter(|class| scopes.iter().all(|scope| class.scopes.contains(scope)))
    }

    /// Returns whether a class is in all of these scopes. Returns `false` if there are no scopes.
    pub(crate) fn is_member_of_all(&self, class: EquivalenceClassId, scopes: &[ScopeId]) -> bool {
        let class = self.classes.get(class);
        !scopes.is_empty()
            && class.is_some_and(|class| scopes.iter().all(|scope| class.scopes.contains(scope)))
    }

    /// Returns the affinity terms of existing pods that select the pods of this class. Each term comes with the number
    /// of those existing pods on each node.
    pub(crate) fn rules_that_select(
        &self,
        class: EquivalenceClassId,
    ) -> impl Iterator<Item = (&AffinityRule, &PerNode)> {
        let scopes = self.classes.get(class).map_or(&[][..], |class| &class.scopes);
        scopes.iter().flat_map(move |scope| {
            let holders = self.scopes.get(*scope).map_or(&[][..], |entry| &entry.holders);
            let holders = holders.iter().filter_map(|id| self.classes.get(*id));
            holders.filter(|holder| !holder.nodes.is_empty()).flat_map(move |holder| {
                let rules = holder.rules.iter().filter(move |rule| rule.scope == *scope);
                rules.map(|rule| (rule, &holder.nodes))
            })
        })
    }

    /// Returns whether a scope matches a pod.
    pub(crate) fn matches_pod(&self, scope: &Scope, pod: &Pod) -> bool {
        scope.matches_pod(
            &pod.meta.namespace,
            self.labels_of(&pod.meta.namespace),
            &pod.meta.labels,
        )
    }

    /// Returns the labels of a namespace.
    fn labels_of(&self, namespace: &str) -> &StrMap {
        self.namespaces.get(namespace).unwrap_or(&NO_LABELS)
    }

    /// Replaces the labels of a namespace and updates the scopes that select namespaces. `None` means that the
    /// namespace was deleted.
    pub(super) fn set_namespace(&mut self, name: &str, labels: Option<&StrMap>) {
        let labels = labels.filter(|labels| !labels.is_empty());
        if self.namespaces.get(name) == labels {
            return;
        }
        match labels {
            Some(labels) => drop(self.namespaces.insert(name.into(), labels.clone())),
            None => drop(self.namespaces.remove(name)),
        }
        let namespace_labels = labels.unwrap_or(&NO_LABELS);
        let Self { classes, scopes, .. } = self;
        for id in classes.indexes() {
            let Some(class) = classes.get_mut(id) else { continue };
            if *class.sample.meta.namespace != *name {
                continue;
            }
            for scope_id in scopes.indexes() {
                let Some(entry) =
                    scopes.get_mut(scope_id).filter(|entry| entry.scope.selects_namespaces())
                else {
                    continue;
                };
                let matches =
                    entry.scope.matches_pod(name, namespace_labels, &class.sample.meta.labels);
                let position_if_member = class.scopes.iter().position(|id| *id == scope_id);
                match (position_if_member, matches) {
                    (None, true) => {
                        class.scopes.push(scope_id);
                        entry.members.push(id);
                    }
                    (Some(position), false) => {
                        class.scopes.swap_remove(position);
                        entry.members.retain(|member| *member != id);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Removes unused classes and scopes if there are many. This may invalidate the ids that callers hold.
    pub(super) fn sweep(&mut self) {
        if self.classes.len() > 2 * self.n_occupied + MAX_IDLE {
            let empty = self.classes.iter().filter(|(_, class)| class.nodes.is_empty());
            let empty: Vec<EquivalenceClassId> = empty.map(|(id, _)| id).collect();
            empty.into_iter().for_each(|id| self.forget_class(id));
        }
        if self.scope_ids.len() > 2 * self.classes.len() + MAX_IDLE {
            let unused = self.scopes.iter().filter(|(_, entry)| entry.holders.is_empty());
            let unused: Vec<ScopeId> = unused.map(|(id, _)| id).collect();
            unused.into_iter().for_each(|id| self.forget_scope(id));
        }
    }

    /// Removes a class from the index and from its scopes.
    fn forget_class(&mut self, id: EquivalenceClassId) {
        let Some(class) = self.classes.remove(id) else { return };
        let hash = hash_of(&self.hasher, &class.sample);
        if let Ok(entry) = self.class_ids.find_entry(hash, |found| *found == id) {
            entry.remove();
        }
        for scope in &class.scopes {
            if let Some(entry) = self.scopes.get_mut(*scope) {
                entry.members.retain(|member| *member != id);
            }
        }
        for rule in &class.rules {
            if let Some(entry) = self.scopes.get_mut(rule.scope) {
                entry.holders.retain(|holder| *holder != id);
            }
        }
    }

    /// Removes a scope from the index and from its classes.
    fn forget_scope(&mut self, id: ScopeId) {
        let Some(entry) = self.scopes.remove(id) else { return };
        let hash = self.hasher.hash_one(&entry.scope);
        if let Ok(entry) = self.scope_ids.find_entry(hash, |found| *found == id) {
            entry.remove();
        }
        for member in &entry.members {
            if let Some(class) = self.classes.get_mut(*member) {
                class.scopes.retain(|scope_id| *scope_id != id);
            }
        }
    }
}

/// Labels of a namespace without labels.
static NO_LABELS: std::sync::LazyLock<StrMap> = std::sync::LazyLock::new(StrMap::default);

/// Returns a hash that is equal for pods of the same class. It omits the affinity terms, which [`are_equivalent`]
/// compares.
fn hash_of(hasher: &DefaultHashBuilder, pod: &Pod) -> u64 {
    hasher.hash_one((&pod.meta.namespace, &pod.meta.labels, pod.meta.deleting()))
}

/// Returns whether two pods belong to the same class.
fn are_equivalent(a: &Pod, b: &Pod) -> bool {
    // Only pod affinity and anti-affinity matter. Node affinity does not.
    let has_terms = |affinity: &Affinity| {
        affinity.pod_affinity.is_some() || affinity.pod_anti_affinity.is_some()
    };
    let have_same_terms = || match (a.spec.affinity.as_deref(), b.spec.affinity.as_deref()) {
        (Some(a), Some(b)) => {
            a.pod_affinity == b.pod_affinity && a.pod_anti_affinity == b.pod_anti_affinity
        }
        (Some(affinity), None) | (None, Some(affinity)) => !has_terms(affinity),
        (None, None) => true,
    };
    std::ptr::eq(a, b)
        || (a.meta.namespace == b.meta.namespace
            && a.meta.labels == b.meta.labels
            && a.meta.deleting() == b.meta.deleting()
            && have_same_terms())
}
