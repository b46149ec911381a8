//! Which kinds of pods are on which nodes, so that nobody has to look through pods to count them.
//!
//! Pods that no selector and no rule of another pod can tell apart (same namespace, labels and affinities) are a *class*, of
//! which there are as many as there are kinds of workloads. A class is compared once with each *scope* (the pods that a
//! selector in certain namespaces means), when the first of the two appears; from then on who is in a scope is known, and
//! counting the pods in it is adding up what its classes have on each node, which [`NodeTable`](super::NodeTable) keeps.

mod per_node;
mod scope;
mod slab;
#[cfg(test)]
mod tests;

use evenkeel_api::{StrMap, Text, views::Pod};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use std::{hash::BuildHasher, sync::Arc};

use super::Slot;
pub(crate) use per_node::PerNode;
pub(crate) use scope::{RuleKind, Scope, terms};
use slab::Slab;

/// Number of a class; it is another's once the class has no pods.
pub(crate) type ClassId = u32;
/// Number of a scope, good as long as the census is not changed.
pub(crate) type ScopeId = u32;

/// So many classes without pods, and scopes that no class has in a rule, are kept for the next pod of their kind.
const SPARE: usize = 512;

/// Classes, scopes, and who is in which.
#[derive(Debug, Default)]
pub(crate) struct Census {
    classes: Slab<Class>,
    class_ids: HashTable<ClassId>,
    scopes: Slab<Known>,
    scope_ids: HashTable<ScopeId>,
    /// Labels of namespaces.
    namespaces: HashMap<Text, StrMap>,
    hasher: DefaultHashBuilder,
    /// How many classes have pods.
    occupied: usize,
}

/// Pods that nothing tells apart.
#[derive(Debug)]
pub(crate) struct Class {
    /// One of them, now or in the past.
    sample: Arc<Pod>,
    nodes: PerNode,
    /// The scopes it is in.
    scopes: Vec<ScopeId>,
    rules: Box<[Rule]>,
}

/// What the pods of a class ask of the pods of a scope.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) kind: RuleKind,
    /// Node label whose value says what is near.
    pub(crate) key: Text,
    pub(crate) scope: ScopeId,
}

/// A scope, and what is known of it.
#[derive(Debug)]
struct Known {
    scope: Scope,
    /// The classes in it.
    members: Vec<ClassId>,
    /// The classes with a rule about it.
    holders: Vec<ClassId>,
}

impl Class {
    /// How many of its pods are on each node.
    pub(crate) fn nodes(&self) -> &PerNode {
        &self.nodes
    }

    /// Whether its pods are on their way out.
    pub(crate) fn is_deleting(&self) -> bool {
        self.sample.meta.deleting()
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

impl Census {
    /// Counts a pod; its class.
    pub(super) fn enter(&mut self, pod: &Arc<Pod>, slot: Slot) -> ClassId {
        self.sweep();
        let id = self.class(pod);
        if let Some(class) = self.classes.get_mut(id) {
            self.occupied += usize::from(class.nodes.is_empty());
            class.nodes.add(slot);
        }
        id
    }

    /// No longer counts a pod of this class.
    pub(super) fn leave(&mut self, class: ClassId, slot: Slot) {
        if let Some(class) = self.classes.get_mut(class) {
            class.nodes.subtract(slot);
            self.occupied -= usize::from(class.nodes.is_empty());
        }
    }

    /// Whether a pod is of this class.
    pub(super) fn is_of(&self, class: ClassId, pod: &Pod) -> bool {
        self.classes.get(class).is_some_and(|class| same(&class.sample, pod))
    }

    /// The class of a pod.
    pub(crate) fn class(&mut self, pod: &Arc<Pod>) -> ClassId {
        let hash = hash_of(&self.hasher, pod);
        if let Some(id) = self.class_ids.find(hash, |id| self.is_of(*id, pod)) {
            return *id;
        }
        let rules: Box<[Rule]> = terms(pod)
            .map(|(kind, term)| Rule {
                kind,
                key: term.topology_key.clone(),
                scope: self.scope(Scope::of_term(term, pod)),
            })
            .collect();
        let class =
            Class { sample: Arc::clone(pod), nodes: PerNode::default(), scopes: Vec::new(), rules };
        let id = self.classes.insert(class);
        let Self { classes, class_ids, hasher, .. } = self;
        class_ids.insert_unique(hash, id, |id| {
            classes.get(*id).map_or(0, |class| hash_of(hasher, &class.sample))
        });
        self.compare(id);
        id
    }

    /// Finds the scopes that a new class is in, and enters its rules.
    fn compare(&mut self, id: ClassId) {
        let Self { classes, scopes, namespaces, .. } = self;
        let Some(class) = classes.get_mut(id) else { return };
        let meta = &class.sample.meta;
        let of_namespace = namespaces.get(&meta.namespace).unwrap_or(&NO_LABELS);
        for at in scopes.ids() {
            let Some(known) = scopes.get_mut(at) else { continue };
            if known.scope.means(&meta.namespace, of_namespace, &meta.labels) {
                known.members.push(id);
                class.scopes.push(at);
            }
        }
        for rule in &class.rules {
            if let Some(known) = scopes.get_mut(rule.scope)
                && known.holders.last() != Some(&id)
            {
                known.holders.push(id);
            }
        }
    }

    /// A class by its number.
    pub(crate) fn get(&self, id: ClassId) -> Option<&Class> {
        self.classes.get(id)
    }

    /// The number of a scope.
    pub(crate) fn scope(&mut self, scope: Scope) -> ScopeId {
        let hash = self.hasher.hash_one(&scope);
        let Self { classes, scopes, scope_ids, namespaces, hasher, .. } = self;
        let is = |id: &ScopeId| scopes.get(*id).is_some_and(|known| known.scope == scope);
        if let Some(id) = scope_ids.find(hash, is) {
            return *id;
        }
        let means = |class: &Class| {
            let meta = &class.sample.meta;
            let of_namespace = namespaces.get(&meta.namespace).unwrap_or(&NO_LABELS);
            scope.means(&meta.namespace, of_namespace, &meta.labels)
        };
        let members: Vec<ClassId> =
            classes.iter().filter(|(_, class)| means(class)).map(|(id, _)| id).collect();
        let id = scopes.insert(Known { scope, members, holders: Vec::new() });
        for member in scopes.get(id).map_or(&[][..], |known| &known.members) {
            if let Some(class) = classes.get_mut(*member) {
                class.scopes.push(id);
            }
        }
        scope_ids.insert_unique(hash, id, |id| {
            scopes.get(*id).map_or(0, |known| hasher.hash_one(&known.scope))
        });
        id
    }

    /// The classes in a scope.
    pub(crate) fn members(&self, scope: ScopeId) -> impl Iterator<Item = &Class> {
        let members = self.scopes.get(scope).map_or(&[][..], |known| &known.members);
        members.iter().filter_map(|id| self.classes.get(*id))
    }

    /// The classes that are in all of some scopes; none when there are no scopes.
    pub(crate) fn members_of_all<'a>(
        &'a self,
        scopes: &'a [ScopeId],
    ) -> impl Iterator<Item = &'a Class> {
        let first = scopes.first().copied();
        let members = first.into_iter().flat_map(|first| self.members(first));
        members.filter(|class| scopes.iter().all(|scope| class.scopes.contains(scope)))
    }

    /// Whether a class is in all of some scopes, of which there is at least one.
    pub(crate) fn is_in_all(&self, class: ClassId, scopes: &[ScopeId]) -> bool {
        let class = self.classes.get(class);
        !scopes.is_empty()
            && class.is_some_and(|class| scopes.iter().all(|scope| class.scopes.contains(scope)))
    }

    /// The rules of pods that are on nodes, as far as they are about pods of this class, each with where those pods are.
    pub(crate) fn rules_about(&self, class: ClassId) -> impl Iterator<Item = (&Rule, &PerNode)> {
        let scopes = self.classes.get(class).map_or(&[][..], |class| &class.scopes);
        scopes.iter().flat_map(move |scope| {
            let holders = self.scopes.get(*scope).map_or(&[][..], |known| &known.holders);
            let holders = holders.iter().filter_map(|id| self.classes.get(*id));
            holders.filter(|holder| !holder.nodes.is_empty()).flat_map(move |holder| {
                let rules = holder.rules.iter().filter(move |rule| rule.scope == *scope);
                rules.map(|rule| (rule, &holder.nodes))
            })
        })
    }

    /// Whether a term of `owner` is about a pod.
    pub(crate) fn means(&self, scope: &Scope, pod: &Pod) -> bool {
        scope.means(&pod.meta.namespace, self.labels_of(&pod.meta.namespace), &pod.meta.labels)
    }

    fn labels_of(&self, namespace: &str) -> &StrMap {
        self.namespaces.get(namespace).unwrap_or(&NO_LABELS)
    }

    /// Takes over a namespace's labels, which may bring pods of it into scopes and out of them; `None` when it is gone.
    pub(super) fn set_namespace(&mut self, name: &str, labels: Option<&StrMap>) {
        let labels = labels.filter(|labels| !labels.is_empty());
        if self.namespaces.get(name) == labels {
            return;
        }
        match labels {
            Some(labels) => drop(self.namespaces.insert(name.into(), labels.clone())),
            None => drop(self.namespaces.remove(name)),
        }
        let of_namespace = labels.unwrap_or(&NO_LABELS);
        let Self { classes, scopes, .. } = self;
        for id in classes.ids() {
            let Some(class) = classes.get_mut(id) else { continue };
            if *class.sample.meta.namespace != *name {
                continue;
            }
            for at in scopes.ids() {
                let Some(known) = scopes.get_mut(at).filter(|known| known.scope.asks_labels())
                else {
                    continue;
                };
                let is = known.scope.means(name, of_namespace, &class.sample.meta.labels);
                match (class.scopes.iter().position(|own| *own == at), is) {
                    (None, true) => {
                        class.scopes.push(at);
                        known.members.push(id);
                    }
                    (Some(own), false) => {
                        class.scopes.swap_remove(own);
                        known.members.retain(|member| *member != id);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Forgets classes without pods, and scopes without rules, when there are many. Numbers that somebody still uses may be
    /// among them.
    pub(super) fn sweep(&mut self) {
        if self.classes.len() > 2 * self.occupied + SPARE {
            let empty = self.classes.iter().filter(|(_, class)| class.nodes.is_empty());
            let empty: Vec<ClassId> = empty.map(|(id, _)| id).collect();
            empty.into_iter().for_each(|id| self.forget_class(id));
        }
        if self.scope_ids.len() > 2 * self.classes.len() + SPARE {
            let idle = self.scopes.iter().filter(|(_, known)| known.holders.is_empty());
            let idle: Vec<ScopeId> = idle.map(|(id, _)| id).collect();
            idle.into_iter().for_each(|id| self.forget_scope(id));
        }
    }

    fn forget_class(&mut self, id: ClassId) {
        let Some(class) = self.classes.remove(id) else { return };
        let hash = hash_of(&self.hasher, &class.sample);
        if let Ok(entry) = self.class_ids.find_entry(hash, |own| *own == id) {
            entry.remove();
        }
        for scope in &class.scopes {
            if let Some(known) = self.scopes.get_mut(*scope) {
                known.members.retain(|member| *member != id);
            }
        }
        for rule in &class.rules {
            if let Some(known) = self.scopes.get_mut(rule.scope) {
                known.holders.retain(|holder| *holder != id);
            }
        }
    }

    fn forget_scope(&mut self, id: ScopeId) {
        let Some(known) = self.scopes.remove(id) else { return };
        let hash = self.hasher.hash_one(&known.scope);
        if let Ok(entry) = self.scope_ids.find_entry(hash, |own| *own == id) {
            entry.remove();
        }
        for member in &known.members {
            if let Some(class) = self.classes.get_mut(*member) {
                class.scopes.retain(|own| *own != id);
            }
        }
    }
}

static NO_LABELS: std::sync::LazyLock<StrMap> = std::sync::LazyLock::new(StrMap::default);

fn hash_of(hasher: &DefaultHashBuilder, pod: &Pod) -> u64 {
    hasher.hash_one((&pod.meta.namespace, &pod.meta.labels, pod.meta.deleting()))
}

/// Whether nothing tells two pods apart.
fn same(a: &Pod, b: &Pod) -> bool {
    let terms = |pod: &Pod| {
        let affinity = pod.spec.affinity.as_deref();
        affinity.is_some_and(|a| a.pod_affinity.is_some() || a.pod_anti_affinity.is_some())
    };
    let same_terms = || match (a.spec.affinity.as_deref(), b.spec.affinity.as_deref()) {
        (Some(a), Some(b)) => {
            a.pod_affinity == b.pod_affinity && a.pod_anti_affinity == b.pod_anti_affinity
        }
        _ => !terms(a) && !terms(b),
    };
    std::ptr::eq(a, b)
        || (a.meta.namespace == b.meta.namespace
            && a.meta.labels == b.meta.labels
            && a.meta.deleting() == b.meta.deleting()
            && same_terms())
}
