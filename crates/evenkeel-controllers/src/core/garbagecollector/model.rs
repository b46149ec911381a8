//! Tests of the graph and the plan on a model of a cluster: objects, deletion with its three propagation policies,
//! and a work queue.

use super::{
    graph::{FOREGROUND, Graph, ORPHAN, Uid, Work},
    plan::{OwnerClass, Step, plan},
};
use evenkeel_api::{Kind, Meta, OwnerReference, Text, time::Timestamp};
use evenkeel_runtime::plan::Propagation;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const KIND: Kind = Kind::new("", "v1", "ConfigMap", "configmaps", true);

/// A model of a cluster, and the garbage collector's graph and queues.
#[derive(Default)]
struct World {
    objects: BTreeMap<String, Meta>,
    graph: Graph,
    work: Work,
    /// Number of live reads.
    live_reads: usize,
}

/// Returns a reference to the owner with this uid, and with this `blockOwnerDeletion`.
fn owner(uid: &str, block: bool) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: uid.into(),
        uid: uid.into(),
        controller: false,
        block_owner_deletion: block,
    }
}

impl World {
    /// Creates or replaces an object with these owners.
    fn put(&mut self, uid: &str, owners: &[OwnerReference]) {
        let meta = Meta {
            name: uid.into(),
            namespace: "ns".into(),
            uid: uid.into(),
            owners: owners.to_vec().into(),
            ..Meta::default()
        };
        self.objects.insert(uid.to_owned(), meta);
        self.show(uid);
    }

    /// Applies the watch event of the object's current state.
    fn show(&mut self, uid: &str) {
        let work = match self.objects.get(uid) {
            Some(meta) => self.graph.observed(&KIND, meta),
            None => self.graph.deleted(uid),
        };
        self.add(work);
    }

    fn add(&mut self, work: Work) {
        self.work.attempt_to_delete.extend(work.attempt_to_delete);
        self.work.attempt_to_orphan.extend(work.attempt_to_orphan);
    }

    /// Deletes an object as the API server does.
    fn delete(&mut self, uid: &str, propagation: Propagation) {
        let Some(meta) = self.objects.get_mut(uid) else { return };
        let mut finalizers: BTreeSet<Text> = meta.finalizers.iter().cloned().collect();
        match propagation {
            Propagation::Orphan => finalizers.insert(ORPHAN.into()),
            Propagation::Foreground => finalizers.insert(FOREGROUND.into()),
            Propagation::Background => false,
        };
        meta.finalizers = finalizers.into_iter().collect();
        meta.deletion = Some(Timestamp::UNIX_EPOCH);
        self.finish(uid);
    }

    /// Removes a terminating object without finalizers.
    fn finish(&mut self, uid: &str) {
        if self.objects.get(uid).is_some_and(|meta| meta.deleting() && meta.finalizers.is_empty()) {
            self.objects.remove(uid);
        }
        self.show(uid);
    }

    fn attempt_to_delete_item(&mut self, uid: &str) {
        let waiting = self.graph.node(uid).filter(|node| !self.graph.needs_no_attempt(node));
        let Some(coordinates) = waiting.map(|node| node.coordinates.clone()) else { return };
        self.live_reads += 1;
        let Some(live) = self.objects.get(uid).cloned() else {
            let work = self.graph.virtual_deleted(uid, &coordinates);
            return self.add(work);
        };
        let owners: Vec<_> = live
            .owners
            .iter()
            .map(|owner| {
                (owner.clone(), OwnerClass::classify(self.objects.get(&*owner.uid), &owner.uid))
            })
            .collect();
        match plan(&self.graph, uid, &live, &owners) {
            Step::Nothing => {}
            Step::AttemptToDelete(uids) => self.work.attempt_to_delete.extend(uids),
            Step::RemoveForegroundFinalizer => self.without_finalizer(uid, FOREGROUND),
            Step::RemoveOwnerReferences(deleted) => {
                self.without_owners(uid, |owner| deleted.contains(&owner.uid));
            }
            Step::Delete { propagation, unblock_owner_references } => {
                if unblock_owner_references && let Some(meta) = self.objects.get_mut(uid) {
                    let unblocked = |owner: &OwnerReference| OwnerReference {
                        block_owner_deletion: false,
                        ..owner.clone()
                    };
                    meta.owners = meta.owners.iter().map(unblocked).collect();
                    self.show(uid);
                }
                self.delete(uid, propagation);
            }
        }
    }

    fn orphan_dependents(&mut self, uid: &str) {
        let dependents: Vec<Uid> = self.graph.dependents(uid).map(|(uid, _)| uid.clone()).collect();
        for dependent in dependents {
            self.without_owners(&dependent, |owner| *owner.uid == *uid);
        }
        self.without_finalizer(uid, ORPHAN);
    }

    fn without_finalizer(&mut self, uid: &str, finalizer: &str) {
        if let Some(meta) = self.objects.get_mut(uid) {
            meta.finalizers =
                meta.finalizers.iter().filter(|name| &***name != finalizer).cloned().collect();
        }
        self.finish(uid);
    }

    fn without_owners(&mut self, uid: &str, deleted: impl Fn(&OwnerReference) -> bool) {
        if let Some(meta) = self.objects.get_mut(uid) {
            meta.owners = meta.owners.iter().filter(|owner| !deleted(owner)).cloned().collect();
            self.show(uid);
        }
    }

    /// Processes objects until the queues are empty.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            if let Some(uid) = self.work.attempt_to_orphan.pop_first() {
                self.orphan_dependents(&uid);
            } else if let Some(uid) = self.work.attempt_to_delete.pop_first() {
                self.attempt_to_delete_item(&uid);
            } else {
                return;
            }
        }
        panic!("the collector does not become idle");
    }

    fn remaining(&self) -> Vec<&str> {
        self.objects.keys().map(String::as_str).collect()
    }
}

/// Returns a world where `a` owns `b` and `c`, `b` owns `d`, and `e` has no owner.
fn owner_tree() -> World {
    let mut world = World::default();
    world.put("a", &[]);
    world.put("b", &[owner("a", true)]);
    world.put("c", &[owner("a", false)]);
    world.put("d", &[owner("b", true)]);
    world.put("e", &[]);
    world.settle();
    world
}

#[test]
fn background_deletes_all_dependents() {
    let mut world = owner_tree();
    world.delete("a", Propagation::Background);
    assert!(world.objects.contains_key("b"), "dependents are deleted after their owner");
    world.settle();
    assert_eq!(world.remaining(), ["e"]);
}

#[test]
fn foreground_deletes_blocking_dependents_first() {
    let mut world = owner_tree();
    world.objects.get_mut("d").expect("made above").finalizers = ["example.com/held".into()].into();
    world.show("d");
    world.delete("a", Propagation::Foreground);
    world.settle();
    assert_eq!(
        world.remaining(),
        ["a", "b", "d", "e"],
        "a blocking dependent holds all its owners"
    );
    world.without_finalizer("d", "example.com/held");
    world.settle();
    assert_eq!(world.remaining(), ["e"]);
}

#[test]
fn orphan_removes_owner_references() {
    let mut world = owner_tree();
    world.delete("a", Propagation::Orphan);
    world.settle();
    assert_eq!(world.remaining(), ["b", "c", "d", "e"]);
    assert!(world.objects["b"].owners.is_empty() && !world.objects["d"].owners.is_empty());
}

#[test]
fn dependent_with_another_owner_stays() {
    let mut world = owner_tree();
    world.put("f", &[owner("a", false), owner("e", false)]);
    world.delete("a", Propagation::Background);
    world.settle();
    assert_eq!(world.remaining(), ["e", "f"]);
    assert_eq!(&*world.objects["f"].owners, [owner("e", false)]);
}

#[test]
fn dependent_of_an_absent_owner_is_deleted() {
    let mut world = World::default();
    world.put("child", &[owner("nobody", true)]);
    world.settle();
    assert!(world.remaining().is_empty());
    assert!(world.graph.node("nobody").is_none() && world.graph.node("child").is_none());
}

#[test]
fn dependent_observed_before_its_owner_stays() {
    let mut world = World::default();
    let late =
        Meta { name: "late".into(), namespace: "ns".into(), uid: "late".into(), ..Meta::default() };
    world.objects.insert("late".to_owned(), late);
    world.put("child", &[owner("late", true)]);
    world.settle();
    world.show("late");
    world.settle();
    assert_eq!(world.remaining(), ["child", "late"]);
    assert!(world.graph.node("late").is_some_and(|node| !node.is_virtual));
}

#[test]
fn dependent_with_observed_owners_is_not_read() {
    let mut world = World::default();
    world.put("child", &[owner("late", true)]);
    world.put("late", &[]);
    world.settle();
    assert_eq!((world.remaining(), world.live_reads), (vec!["child", "late"], 0));
}

#[test]
fn no_attempt_is_needed_if_all_owners_are_observed_and_match() {
    let elsewhere = OwnerReference { name: "moved".into(), ..owner("a", false) };
    let other_kind = OwnerReference { kind: "Secret".into(), ..owner("a", false) };
    let other_group = OwnerReference { api_version: "g.example/v1".into(), ..owner("a", false) };
    let other_version = OwnerReference { api_version: "v2".into(), ..owner("a", false) };
    // Owner references of the dependent, and whether no attempt to delete it is needed.
    let table = [
        (vec![], true),
        (vec![owner("a", false)], true),
        (vec![other_version], true),
        (vec![owner("a", true), owner("nobody", false)], false),
        (vec![elsewhere], false),
        (vec![other_kind], false),
        (vec![other_group], false),
    ];
    for (owners, expected) in table {
        let mut world = World::default();
        world.put("a", &[]);
        world.put("child", &owners);
        let child = world.graph.node("child").expect("put above");
        assert_eq!(world.graph.needs_no_attempt(child), expected, "{owners:?}");
        let a = world.graph.node("a").expect("put above");
        assert!(world.graph.needs_no_attempt(a));
        world.delete("a", Propagation::Foreground);
        let a = world.graph.node("a").expect("waiting for foreground deletion");
        assert!(!world.graph.needs_no_attempt(a));
        let child = world.graph.node("child").expect("put above");
        assert_eq!(world.graph.needs_no_attempt(child), owners.is_empty(), "a terminating owner");
    }
}

#[test]
fn foreground_deletion_of_a_cycle_completes() {
    let mut world = World::default();
    world.put("a", &[]);
    world.put("b", &[owner("a", true)]);
    world.put("a", &[owner("b", true)]);
    world.settle();
    world.delete("a", Propagation::Foreground);
    world.settle();
    assert!(world.remaining().is_empty(), "{:?}", world.remaining());
}

#[test]
fn owner_in_another_namespace_is_invalid() {
    let mut world = World::default();
    world.put("a", &[]);
    let stray = Meta {
        name: "s".into(),
        namespace: "elsewhere".into(),
        uid: "s".into(),
        owners: [owner("a", false)].into(),
        ..Meta::default()
    };
    let work = world.graph.observed(&KIND, &stray);
    assert!(work.attempt_to_delete.contains("s") && work.invalid_namespace.contains_key("s"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// From any graph and any deletions, the collector becomes idle. Then each object has no owners or at least one
    /// existing owner. An object that never lost an owner exists.
    #[test]
    fn idle_graph_has_no_dangling_owners(
        edges in prop::collection::vec((0u8..12, 0u8..12, any::<bool>()), 0..24),
        deletions in prop::collection::vec((0u8..12, 0u8..3), 0..4),
    ) {
        let mut world = World::default();
        for object in 0u8..12 {
            // Owners have lower numbers than their dependents, so the graph has no cycles.
            let owners: BTreeMap<u8, bool> =
                edges.iter().filter(|(child, parent, _)| *child == object && parent < child).map(|(_, p, b)| (*p, *b)).collect();
            let owners: Vec<_> = owners.into_iter().map(|(parent, block)| owner(&format!("{parent:02}"), block)).collect();
            world.put(&format!("{object:02}"), &owners);
        }
        let untouched: Vec<String> = {
            let mut lost: BTreeSet<u8> = deletions.iter().map(|(uid, _)| *uid).collect();
            for object in 0u8..12 {
                let parents = edges.iter().filter(|(c, p, _)| *c == object && p < c).map(|(_, p, _)| *p);
                if parents.clone().next().is_some() && parents.clone().any(|p| lost.contains(&p)) {
                    lost.insert(object);
                }
            }
            (0u8..12).filter(|o| !lost.contains(o)).map(|o| format!("{o:02}")).collect()
        };
        world.settle();
        for (uid, propagation) in deletions {
            let propagation = [Propagation::Background, Propagation::Foreground, Propagation::Orphan][propagation as usize];
            world.delete(&format!("{uid:02}"), propagation);
        }
        world.settle();
        for (uid, meta) in &world.objects {
            prop_assert!(!meta.deleting(), "{uid} is stuck");
            let solid = meta.owners.iter().any(|owner| world.objects.contains_key(&*owner.uid));
            prop_assert!(meta.owners.is_empty() || solid, "{uid} dangles");
        }
        for uid in untouched {
            prop_assert!(world.objects.contains_key(&uid), "{uid} was not to be deleted");
        }
    }
}
