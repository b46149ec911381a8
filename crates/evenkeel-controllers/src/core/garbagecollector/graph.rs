//! Who owns whom: a graph of every object that could be collected, kept by uid.
//!
//! A pure state machine: watch events go in, the uids that have to be looked at come out. An owner that some object
//! names but that no watch has shown yet stands in the graph as a *virtual* node until a live read tells what it is.
//! Upstream: `pkg/controller/garbagecollector/graph_builder.go`.

use super::absent::AbsentOwners;
use evenkeel_api::{Kind, Meta, OwnerReference, Text, shared::Shared};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// An object's uid.
pub(crate) type Uid = Text;

/// Finalizer of an object that waits for its dependents to be deleted.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an object whose dependents shall lose it as an owner.
pub(crate) const ORPHAN: &str = "orphan";

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// As in its `apiVersion`.
    pub(crate) api_version: Text,
    /// Kind.
    pub(crate) kind: Text,
    /// Namespace, empty for cluster-scoped kinds. Of a virtual node: that of the object that named it.
    pub(crate) namespace: Text,
    /// Name.
    pub(crate) name: Text,
}

impl Place {
    /// Where an object of this kind and metadata is.
    pub(crate) fn of(kind: &Kind, meta: &Meta) -> Self {
        Self {
            api_version: Text::recalled(&kind.api_version()),
            kind: Text::recalled(&kind.kind),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
        }
    }

    /// Whether an object of this kind and metadata is here.
    fn is_of(&self, kind: &Kind, meta: &Meta) -> bool {
        self.name == meta.name
            && self.namespace == meta.namespace
            && *self.kind == *kind.kind
            && self.api_version.rsplit_once('/').unwrap_or(("", &self.api_version))
                == (&*kind.group, &*kind.version)
    }

    /// Where a dependent in `namespace` says that its owner is.
    pub(crate) fn named_by(owner: &OwnerReference, namespace: &str) -> Self {
        Self {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            namespace: Text::recalled(namespace),
            name: owner.name.clone(),
        }
    }

    /// Whether a dependent's reference can mean the object here. Versions of one group are the same object; an object
    /// without a namespace can be owned from any.
    fn answers_to(&self, owner: &OwnerReference, dependents_namespace: &str) -> bool {
        *self.kind == *owner.kind
            && *self.name == *owner.name
            && group(&self.api_version) == group(&owner.api_version)
            && (self.namespace.is_empty() || *self.namespace == *dependents_namespace)
    }
}

/// The group of an `apiVersion`, empty for core's.
fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// One object.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Where it is.
    pub(crate) place: Place,
    /// What it says owns it.
    pub(crate) owners: Shared<OwnerReference>,
    /// What says that it is owned by it. In order of uid, so that equal graphs yield equal work.
    pub(crate) dependents: BTreeSet<Uid>,
    /// Known from references only.
    pub(crate) is_virtual: bool,
    /// Its deletion was asked for.
    pub(crate) deleting: bool,
    /// Its deletion waits for its dependents.
    pub(crate) deleting_dependents: bool,
    /// Its deletion waits for its dependents to let go of it.
    pub(crate) orphaning: bool,
}

/// What has to be looked at after an event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Objects that may have to be deleted, or that may be unblocked.
    pub(crate) delete: BTreeSet<Uid>,
    /// Objects whose dependents are to be orphaned.
    pub(crate) orphan: BTreeSet<Uid>,
    /// Dependents (by uid) with an owner reference that leads to another namespace.
    pub(crate) invalid: BTreeMap<Uid, OwnerReference>,
}

/// The graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: HashMap<Uid, Node>,
    /// Owners known not to exist, so that many dependents need one live read.
    pub(crate) absent: AbsentOwners,
}

impl Graph {
    /// The object with this uid.
    pub(crate) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The first object (by uid) at a place that is asked for; one that a watch has shown before one that has not.
    pub(crate) fn find(&self, wanted: impl Fn(&Place) -> bool) -> Option<(&Uid, &Node)> {
        let found = self.nodes.iter().filter(|(_, node)| wanted(&node.place));
        found.min_by_key(|(uid, node)| (node.is_virtual, *uid))
    }

    /// How many objects there are, and how many of them are known from references only.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.nodes.len(), self.nodes.values().filter(|node| node.is_virtual).count())
    }

    /// A watch showed an object, new or changed.
    pub(crate) fn observed(&mut self, kind: &Kind, meta: &Meta) -> Work {
        let uid: Uid = meta.uid.clone();
        let mut work = Work::default();
        let before = match self.nodes.get_mut(&uid) {
            None => {
                self.nodes.insert(uid.clone(), Node::new(Place::of(kind, meta)));
                Shared::default()
            }
            Some(node) => {
                let became_real = std::mem::take(&mut node.is_virtual);
                let moved = !node.place.is_of(kind, meta);
                if moved {
                    node.place = Place::of(kind, meta);
                }
                if became_real && moved {
                    self.check_dependents(&uid, &mut work);
                }
                std::mem::take(&mut self.nodes.get_mut(&uid).expect("found above").owners)
            }
        };
        self.relink(&uid, &before, &meta.owners, &meta.namespace, &mut work);
        self.transition(&uid, meta, &mut work);
        work
    }

    /// A watch showed that an object is gone.
    pub(crate) fn gone(&mut self, uid: &str) -> Work {
        self.remove(uid)
    }

    /// A live read found that an object is not where the graph has it (or has another uid there).
    ///
    /// An object that a watch has shown stays: its own watch will tell. What is asked about is then either a virtual
    /// node, or references with wrong coordinates to a real one.
    pub(crate) fn not_found(&mut self, uid: &str, place: &Place) -> Work {
        let Some(node) = self.nodes.get(uid) else { return Work::default() };
        if !node.is_virtual {
            return Work::default();
        }
        // Other dependents may name it elsewhere; the next place they name is tried before it is given up.
        let elsewhere = self.other_places(node, uid, place);
        self.absent.insert(uid, place);
        if let Some(next) = elsewhere {
            let mut work = Work::default();
            work.delete.insert(uid.into());
            let dependents: Vec<Uid> = node.dependents.iter().cloned().collect();
            work.delete.extend(
                dependents.into_iter().filter(|dependent| self.names_place(dependent, uid, place)),
            );
            if let Some(node) = self.nodes.get_mut(uid) {
                node.place = next;
            }
            return work;
        }
        self.remove(uid)
    }

    /// Whether nothing is to be done about an object as far as its watches tell: it is going and waits for nobody, or all
    /// its owners are where it says, and stay. No live read is needed to leave it alone: a change of it or of an owner
    /// that has not been seen yet asks for it again when it is.
    pub(crate) fn at_rest(&self, node: &Node) -> bool {
        let stays = |owner: &OwnerReference| {
            self.nodes.get(&*owner.uid).is_some_and(|of| {
                !of.is_virtual && !of.deleting && of.place.answers_to(owner, &node.place.namespace)
            })
        };
        !node.is_virtual
            && !node.deleting_dependents
            && (node.deleting || node.owners.iter().all(stays))
    }

    /// Dependents that hold back the deletion of `uid`: those whose reference blocks.
    pub(crate) fn blocking<'a>(
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

    /// Dependents of `uid`.
    pub(crate) fn dependents<'a>(
        &'a self,
        uid: &str,
    ) -> impl Iterator<Item = (&'a Uid, &'a Node)> + 'a {
        let dependents = self.nodes.get(uid).into_iter().flat_map(|node| node.dependents.iter());
        dependents.filter_map(|dependent| Some((dependent, self.nodes.get(dependent)?)))
    }

    fn relink(
        &mut self,
        uid: &Uid,
        before: &[OwnerReference],
        after: &Shared<OwnerReference>,
        namespace: &str,
        work: &mut Work,
    ) {
        for old in before {
            let kept = after.iter().find(|new| new.uid == old.uid);
            let released =
                kept.is_none_or(|new| old.block_owner_deletion && !new.block_owner_deletion);
            if let Some(owner) = self.nodes.get_mut(&*old.uid) {
                if kept.is_none() {
                    owner.dependents.remove(uid);
                }
                if released && owner.deleting_dependents {
                    work.delete.insert(old.uid.clone());
                }
            }
        }
        for new in after.iter().filter(|new| !before.contains(new)) {
            self.link(uid, new, namespace, work);
        }
        if let Some(node) = self.nodes.get_mut(uid) {
            node.owners = after.clone();
        }
    }

    fn link(&mut self, uid: &Uid, owner: &OwnerReference, namespace: &str, work: &mut Work) {
        let owner_uid: Uid = owner.uid.clone();
        match self.nodes.get_mut(&owner_uid) {
            Some(node) => {
                node.dependents.insert(uid.clone());
                if !node.is_virtual && !node.place.answers_to(owner, namespace) {
                    work.delete.insert(uid.clone());
                    if !node.place.namespace.is_empty() && *node.place.namespace != *namespace {
                        work.invalid.insert(uid.clone(), owner.clone());
                    }
                } else if node.deleting_dependents {
                    // A child that joins while its owner waits for its children must go too.
                    work.delete.insert(uid.clone());
                }
            }
            None => {
                let mut node = Node::new(Place::named_by(owner, namespace));
                node.is_virtual = true;
                node.dependents.insert(uid.clone());
                self.nodes.insert(owner_uid.clone(), node);
                work.delete.insert(owner_uid);
            }
        }
    }

    /// What a change of the object's own deletion asks for.
    fn transition(&mut self, uid: &Uid, meta: &Meta, work: &mut Work) {
        let Some(node) = self.nodes.get_mut(uid) else { return };
        let has = |name: &str| meta.finalizers.iter().any(|finalizer| &**finalizer == name);
        node.deleting = meta.deleting();
        let (orphaning, foreground) =
            (node.deleting && has(ORPHAN), node.deleting && has(FOREGROUND));
        if orphaning && !node.orphaning {
            work.orphan.insert(uid.clone());
        } else if foreground && !node.deleting_dependents && !orphaning {
            work.delete.extend(node.dependents.iter().cloned());
            work.delete.insert(uid.clone());
        }
        node.orphaning = orphaning;
        node.deleting_dependents = foreground && !orphaning;
    }

    /// References to an object that turned out to be elsewhere than they say lead nowhere.
    fn check_dependents(&self, uid: &Uid, work: &mut Work) {
        let Some(node) = self.nodes.get(uid) else { return };
        for (dependent_uid, dependent) in self.dependents(uid) {
            let namespace = &dependent.place.namespace;
            for owner in dependent.owners.iter().filter(|owner| *owner.uid == **uid) {
                if !node.place.answers_to(owner, namespace) {
                    work.delete.insert(dependent_uid.clone());
                    if !node.place.namespace.is_empty() && node.place.namespace != *namespace {
                        work.invalid.insert(dependent_uid.clone(), owner.clone());
                    }
                }
            }
        }
    }

    fn remove(&mut self, uid: &str) -> Work {
        let mut work = Work::default();
        let Some(node) = self.nodes.remove(uid) else { return work };
        for owner in &node.owners {
            let Some(owner_node) = self.nodes.get_mut(&*owner.uid) else { continue };
            owner_node.dependents.remove(uid);
            if owner_node.deleting_dependents {
                work.delete.insert(owner.uid.clone());
            } else if owner_node.is_virtual && owner_node.dependents.is_empty() {
                self.nodes.remove(&*owner.uid);
            }
        }
        if !node.dependents.is_empty() {
            self.absent.insert(uid, &node.place);
        }
        work.delete.extend(node.dependents);
        work
    }

    fn other_places(&self, node: &Node, uid: &str, tried: &Place) -> Option<Place> {
        let places: BTreeSet<Place> = self
            .dependents(uid)
            .flat_map(|(_, dependent)| {
                let namespace = dependent.place.namespace.clone();
                dependent
                    .owners
                    .iter()
                    .filter(|owner| *owner.uid == *uid)
                    .map(move |owner| Place::named_by(owner, &namespace))
            })
            .filter(|place| {
                place != tried && place != &node.place && !self.absent.contains(uid, place)
            })
            .collect();
        places.into_iter().next()
    }

    fn names_place(&self, dependent: &Uid, uid: &str, place: &Place) -> bool {
        self.nodes.get(dependent).is_some_and(|node| {
            let mut owners = node.owners.iter().filter(|owner| *owner.uid == *uid);
            owners.any(|owner| Place::named_by(owner, &node.place.namespace) == *place)
        })
    }
}

impl Node {
    fn new(place: Place) -> Self {
        Self {
            place,
            owners: Shared::default(),
            dependents: BTreeSet::new(),
            is_virtual: false,
            deleting: false,
            deleting_dependents: false,
            orphaning: false,
        }
    }
}
