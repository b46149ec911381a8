//! Graph of owners and dependents, by uid: one node for each object that can be collected.
//!
//! The graph is a pure state machine: each watch event changes it and returns the uids to enqueue. An owner that only a
//! reference names is a *virtual* node until a watch observes it, or a live read finds that it does not exist.
//! Upstream: `pkg/controller/garbagecollector/graph_builder.go`.

use super::absent_owner_cache::AbsentOwnerCache;
use evenkeel_api::{Kind, Meta, OwnerReference, Text, shared::Shared};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The uid of an object.
pub(crate) type Uid = Text;

/// Finalizer of an object that is deleted after its dependents. Upstream: `FinalizerDeleteDependents`.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an object whose dependents lose their reference to it. Upstream: `FinalizerOrphanDependents`.
pub(crate) const ORPHAN: &str = "orphan";

/// Coordinates of an object, without its uid. Upstream: `objectReference`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Coordinates {
    /// Group and version, as in the object's `apiVersion`.
    pub(crate) api_version: Text,
    /// The kind, as in the object's `kind`.
    pub(crate) kind: Text,
    /// The namespace. Empty for cluster-scoped kinds. A virtual node has the namespace of the dependent that named it.
    pub(crate) namespace: Text,
    /// The object's name.
    pub(crate) name: Text,
}

impl Coordinates {
    /// Returns the coordinates of an observed object.
    pub(crate) fn of(kind: &Kind, meta: &Meta) -> Self {
        Self {
            api_version: Text::interned(&kind.api_version()),
            kind: Text::interned(&kind.kind),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
        }
    }

    /// Returns whether an observed object has these coordinates.
    fn is_of(&self, kind: &Kind, meta: &Meta) -> bool {
        self.name == meta.name
            && self.namespace == meta.namespace
            && *self.kind == *kind.kind
            && group_and_version(&self.api_version) == (&*kind.group, &*kind.version)
    }

    /// Returns the coordinates that a dependent in `namespace` gives for its owner. Upstream:
    /// `ownerReferenceCoordinates`.
    pub(crate) fn of_owner(owner: &OwnerReference, namespace: &str) -> Self {
        Self {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            namespace: Text::interned(namespace),
            name: owner.name.clone(),
        }
    }

    /// Returns whether a dependent's reference agrees with these coordinates. Versions of a group are not compared, and
    /// a cluster-scoped owner may have dependents in any namespace. Upstream: `ownerReferenceMatchesCoordinates`.
    fn matches_reference(&self, owner: &OwnerReference, dependents_namespace: &str) -> bool {
        *self.kind == *owner.kind
            && *self.name == *owner.name
            && group(&self.api_version) == group(&owner.api_version)
            && (self.namespace.is_empty() || *self.namespace == *dependents_namespace)
    }
}

/// Returns the group and the version of an `apiVersion`. The core group is empty.
fn group_and_version(api_version: &str) -> (&str, &str) {
    api_version.rsplit_once('/').unwrap_or(("", api_version))
}

/// Returns the group of an `apiVersion`. The core group is empty.
fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Node of the graph: one object. Upstream: `node` in `graph.go`.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Coordinates of the object. Upstream: `identity`.
    pub(crate) coordinates: Coordinates,
    /// Owner references of the object.
    pub(crate) owners: Shared<OwnerReference>,
    /// Uids of objects with a reference to this one. Their ascending order makes equal graphs enqueue in equal order.
    pub(crate) dependents: BTreeSet<Uid>,
    /// Whether the node is known from references only. Upstream: `virtual`.
    pub(crate) is_virtual: bool,
    /// Whether the object has a deletion timestamp. Upstream: `beingDeleted`.
    pub(crate) deleting: bool,
    /// Whether the object waits for its dependents to be deleted (foreground). Upstream: `deletingDependents`.
    pub(crate) deleting_dependents: bool,
    /// Whether the object waits for its dependents to be orphaned.
    pub(crate) orphaning: bool,
}

/// Objects to enqueue after an event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Objects for the queue `attemptToDelete`.
    pub(crate) attempt_to_delete: BTreeSet<Uid>,
    /// Objects for the queue `attemptToOrphan`.
    pub(crate) attempt_to_orphan: BTreeSet<Uid>,
    /// Dependents, each with an owner reference that names an owner in another namespace.
    pub(crate) invalid_namespace: BTreeMap<Uid, OwnerReference>,
}

/// The graph and the cache of absent owners. Upstream: `GraphBuilder`.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: HashMap<Uid, Node>,
    /// Owners known not to exist: one live read of an absent owner serves all its dependents.
    pub(crate) absent_owner_cache: AbsentOwnerCache,
}

impl Graph {
    /// Returns the node with this uid.
    pub(crate) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Returns the first node, by uid, whose coordinates satisfy `predicate`. Observed nodes precede virtual ones.
    pub(crate) fn find(&self, predicate: impl Fn(&Coordinates) -> bool) -> Option<(&Uid, &Node)> {
        let found = self.nodes.iter().filter(|(_, node)| predicate(&node.coordinates));
        found.min_by_key(|(uid, node)| (node.is_virtual, *uid))
    }

    /// Returns the number of nodes in the graph.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of nodes that are known only from references.
    pub(crate) fn virtual_node_count(&self) -> usize {
        self.nodes.values().filter(|node| node.is_virtual).count()
    }

    /// Applies a watch event that adds or updates an object. Upstream: `processGraphChanges`.
    pub(crate) fn process_update(&mut self, kind: &Kind, meta: &Meta) -> Work {
        let uid: Uid = meta.uid.clone();
        let mut work = Work::default();
        let old_owners = match self.nodes.get_mut(&uid) {
            None => {
                self.nodes.insert(uid.clone(), Node::new(Coordinates::of(kind, meta)));
                Shared::default()
            }
            Some(node) => {
                let was_virtual = std::mem::take(&mut node.is_virtual);
                let coordinates_differ = !node.coordinates.is_of(kind, meta);
                if coordinates_differ {
                    node.coordinates = Coordinates::of(kind, meta);
                }
                if was_virtual && coordinates_differ {
                    self.requeue_mismatched_dependents(&uid, &mut work);
                }
                std::mem::take(
                    &mut self.nodes.get_mut(&uid).expect("the match found the node").owners,
                )
            }
        };
        self.update_owner_references(&uid, &old_owners, &meta.owners, &meta.namespace, &mut work);
        self.process_transitions(&uid, meta, &mut work);
        work
    }

    /// Applies a watch event that deletes an object.
    pub(crate) fn process_delete(&mut self, uid: &str) -> Work {
        self.remove(uid)
    }

    /// Applies the result of a live read: no object with this uid has these coordinates.
    ///
    /// An observed node stays, because its own watch reports its deletion. A virtual node gets other coordinates that
    /// a dependent names for it. If no dependent names others, the node is removed. Upstream: the virtual delete event,
    /// `enqueueVirtualDeleteEvent`.
    pub(crate) fn process_virtual_delete(&mut self, uid: &str, coordinates: &Coordinates) -> Work {
        let Some(node) = self.nodes.get(uid) else { return Work::default() };
        if !node.is_virtual {
            return Work::default();
        }
        let alternate = self.alternate_owner_coordinates(node, uid, coordinates);
        self.absent_owner_cache.insert(uid, coordinates);
        if let Some(alternate) = alternate {
            let mut work = Work::default();
            work.attempt_to_delete.insert(uid.into());
            let references_absent_owner =
                |dependent: &&Uid| self.references_coordinates(dependent, uid, coordinates);
            let affected = node.dependents.iter().filter(references_absent_owner).cloned();
            work.attempt_to_delete.extend(affected);
            if let Some(node) = self.nodes.get_mut(uid) {
                node.coordinates = alternate;
            }
            return work;
        }
        self.remove(uid)
    }

    /// Returns whether live reads can lead to an action for the object. They cannot if it is terminating and waits for
    /// no dependents, or if all its owners are observed, match its references and are not terminating. A later change
    /// of the object or of an owner enqueues it again. (Upstream reads live each time.)
    pub(crate) fn needs_attempt(&self, node: &Node) -> bool {
        let stays = |owner: &OwnerReference| {
            self.nodes.get(&*owner.uid).is_some_and(|owner_node| {
                !owner_node.is_virtual
                    && !owner_node.deleting
                    && owner_node.coordinates.matches_reference(owner, &node.coordinates.namespace)
            })
        };
        node.is_virtual
            || node.deleting_dependents
            || (!node.deleting && !node.owners.iter().all(stays))
    }

    /// Returns the dependents with `blockOwnerDeletion`. Upstream: `blockingDependents`.
    pub(crate) fn blocking_dependents<'a>(
        &'a self,
        uid: &'a str,
    ) -> impl Iterator<Item = (&'a Uid, &'a Node)> + 'a {
        let dependents = self.nodes.get(uid).into_iter().flat_map(|node| node.dependents.iter());
        dependents.filter_map(|dependent| Some((dependent, self.nodes.get(dependent)?))).filter(
            move |(_, node)| {
                node.owners.iter().any(|owner| *owner.uid == *uid && owner.block_owner_deletion)
            },
        )
    }

    /// Returns the dependents of `uid`. Upstream: `getDependents`.
    pub(crate) fn dependents<'a>(
        &'a self,
        uid: &str,
    ) -> impl Iterator<Item = (&'a Uid, &'a Node)> + 'a {
        let dependents = self.nodes.get(uid).into_iter().flat_map(|node| node.dependents.iter());
        dependents.filter_map(|dependent| Some((dependent, self.nodes.get(dependent)?)))
    }

    /// Replaces the owners of a node, and updates the dependents of old and new owners.
    fn update_owner_references(
        &mut self,
        uid: &Uid,
        old_owners: &[OwnerReference],
        new_owners: &Shared<OwnerReference>,
        namespace: &str,
        work: &mut Work,
    ) {
        for old in old_owners {
            let new = new_owners.iter().find(|new| new.uid == old.uid);
            let unblocks_owner =
                new.is_none_or(|new| old.block_owner_deletion && !new.block_owner_deletion);
            if let Some(owner) = self.nodes.get_mut(&*old.uid) {
                if new.is_none() {
                    owner.dependents.remove(uid);
                }
                if unblocks_owner && owner.deleting_dependents {
                    work.attempt_to_delete.insert(old.uid.clone());
                }
            }
        }
        for new in new_owners.iter().filter(|new| !old_owners.contains(new)) {
            self.add_dependent(uid, new, namespace, work);
        }
        if let Some(node) = self.nodes.get_mut(uid) {
            node.owners = new_owners.clone();
        }
    }

    /// Adds a node to the dependents of its owner. Adds a virtual node for an unknown owner.
    fn add_dependent(
        &mut self,
        uid: &Uid,
        owner: &OwnerReference,
        namespace: &str,
        work: &mut Work,
    ) {
        let owner_uid: Uid = owner.uid.clone();
        match self.nodes.get_mut(&owner_uid) {
            Some(node) => {
                node.dependents.insert(uid.clone());
                if !node.is_virtual && !node.coordinates.matches_reference(owner, namespace) {
                    work.attempt_to_delete.insert(uid.clone());
                    if !node.coordinates.namespace.is_empty()
                        && *node.coordinates.namespace != *namespace
                    {
                        work.invalid_namespace.insert(uid.clone(), owner.clone());
                    }
                } else if node.deleting_dependents {
                    // The owner's foreground deletion must also delete a dependent that is added meanwhile.
                    work.attempt_to_delete.insert(uid.clone());
                }
            }
            None => {
                let mut node = Node::new(Coordinates::of_owner(owner, namespace));
                node.is_virtual = true;
                node.dependents.insert(uid.clone());
                self.nodes.insert(owner_uid.clone(), node);
                work.attempt_to_delete.insert(owner_uid);
            }
        }
    }

    /// Enqueues the objects that a change of the deletion timestamp or of the finalizers affects. Upstream:
    /// `processTransitions`.
    fn process_transitions(&mut self, uid: &Uid, meta: &Meta, work: &mut Work) {
        let Some(node) = self.nodes.get_mut(uid) else { return };
        let has_finalizer =
            |name: &str| meta.finalizers.iter().any(|finalizer| &**finalizer == name);
        node.deleting = meta.deleting();
        let orphaning = node.deleting && has_finalizer(ORPHAN);
        let foreground = node.deleting && has_finalizer(FOREGROUND);
        if orphaning && !node.orphaning {
            work.attempt_to_orphan.insert(uid.clone());
        } else if foreground && !node.deleting_dependents && !orphaning {
            work.attempt_to_delete.extend(node.dependents.iter().cloned());
            work.attempt_to_delete.insert(uid.clone());
        }
        node.orphaning = orphaning;
        node.deleting_dependents = foreground && !orphaning;
    }

    /// Enqueues dependents whose references disagree with the owner's observed coordinates. Upstream:
    /// `partitionDependents`, in `processGraphChanges`.
    fn requeue_mismatched_dependents(&self, uid: &Uid, work: &mut Work) {
        let Some(node) = self.nodes.get(uid) else { return };
        for (dependent_uid, dependent) in self.dependents(uid) {
            let namespace = &dependent.coordinates.namespace;
            for owner in dependent.owners.iter().filter(|owner| *owner.uid == **uid) {
                if !node.coordinates.matches_reference(owner, namespace) {
                    work.attempt_to_delete.insert(dependent_uid.clone());
                    if !node.coordinates.namespace.is_empty()
                        && node.coordinates.namespace != *namespace
                    {
                        work.invalid_namespace.insert(dependent_uid.clone(), owner.clone());
                    }
                }
            }
        }
    }

    /// Removes a node, and returns the objects that the removal affects.
    fn remove(&mut self, uid: &str) -> Work {
        let mut work = Work::default();
        let Some(node) = self.nodes.remove(uid) else { return work };
        for owner in &node.owners {
            let Some(owner_node) = self.nodes.get_mut(&*owner.uid) else { continue };
            owner_node.dependents.remove(uid);
            if owner_node.deleting_dependents {
                work.attempt_to_delete.insert(owner.uid.clone());
            } else if owner_node.is_virtual && owner_node.dependents.is_empty() {
                self.nodes.remove(&*owner.uid);
            }
        }
        if !node.dependents.is_empty() {
            self.absent_owner_cache.insert(uid, &node.coordinates);
        }
        work.attempt_to_delete.extend(node.dependents);
        work
    }

    /// Returns other coordinates that a dependent names for the virtual node and that no live read has refuted: the
    /// first ones in order, if there are several.
    /// Upstream: `getAlternateOwnerIdentity`.
    fn alternate_owner_coordinates(
        &self,
        node: &Node,
        uid: &str,
        refuted: &Coordinates,
    ) -> Option<Coordinates> {
        let named = self.dependents(uid).flat_map(|(_, dependent)| {
            let namespace = dependent.coordinates.namespace.clone();
            dependent
                .owners
                .iter()
                .filter(|owner| *owner.uid == *uid)
                .map(move |owner| Coordinates::of_owner(owner, &namespace))
        });
        let untried = named.filter(|coordinates| {
            coordinates != refuted
                && coordinates != &node.coordinates
                && !self.absent_owner_cache.contains(uid, coordinates)
        });
        untried.min()
    }

    /// Returns whether the dependent refers to the owner with this uid at these coordinates.
    fn references_coordinates(
        &self,
        dependent: &Uid,
        uid: &str,
        coordinates: &Coordinates,
    ) -> bool {
        self.nodes.get(dependent).is_some_and(|node| {
            let mut owners = node.owners.iter().filter(|owner| *owner.uid == *uid);
            owners.any(|owner| {
                Coordinates::of_owner(owner, &node.coordinates.namespace) == *coordinates
            })
        })
    }
}

impl Node {
    fn new(coordinates: Coordinates) -> Self {
        Self {
            coordinates,
            owners: Shared::default(),
            dependents: BTreeSet::new(),
            is_virtual: false,
            deleting: false,
            deleting_dependents: false,
            orphaning: false,
        }
    }
}
