//! Tests of the graph and the plan on a model of a cluster: objects, deletion with its three propagation policies,
//! and a work queue.

use super::{
    graph::{FOREGROUND, Graph, ORPHAN, Uid, Work},
    plan::{Decision, OwnerClass, plan},
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
    /// Number of attempts to delete that read live.
    attempts: usize,
}

/// Returns a reference to the owner with this uid, without `blockOwnerDeletion`.
fn owner(uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: uid.into(),
        uid: uid.into(),
        controller: false,
        block_owner_deletion: false,
    }
}

fn blocking_owner(uid: &str) -> OwnerReference {
    OwnerReference { block_owner_deletion: true, ..owner(uid) }
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
        self.deliver_event(uid);
    }

    /// Applies the watch event of the object's current state.
    fn deliver_event(&mut self, uid: &str) {
        let work = match self.objects.get(uid) {
            Some(meta) => self.graph.process_update(&KIND, meta),
            None => self.graph.process_delete(uid),
        };
        self.enqueue(work);
    }

    fn enqueue(&mut self, work: Work) {
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
        self.remove_if_finished(uid);
    }

    /// Removes a terminating object without finalizers.
    fn remove_if_finished(&mut self, uid: &str) {
        if self.objects.get(uid).is_some_and(|meta| meta.deleting() && meta.finalizers.is_empty()) {
            self.objects.remove(uid);
        }
        self.deliver_event(uid);
    }

    fn attempt_to_delete_item(&mut self, uid: &str) {
        let node = self.graph.node(uid).filter(|node| self.graph.needs_attempt(node));
        let Some(coordinates) = node.map(|node| node.coordinates.clone()) else { return };
        self.attempts += 1;
        let Some(live) = self.objects.get(uid).cloned() else {
            let work = self.graph.process_virtual_delete(uid, &coordinates);
            return self.enqueue(work);
        };
        let owners: Vec<_> = live
            .owners
            .iter()
            .map(|owner| (owner.clone(), OwnerClass::classify(self.objects.get(&*owner.uid))))
            .collect();
        match plan(&self.graph, uid, &live, &owners) {
            Decision::Nothing => {}
            Decision::AttemptToDelete(uids) => self.work.attempt_to_delete.extend(uids),
            Decision::RemoveForegroundFinalizer => self.remove_finalizer(uid, FOREGROUND),
            Decision::RemoveOwnerReferences(deleted) => {
                self.remove_owners(uid, |owner| deleted.contains(&owner.uid));
            }
            Decision::Delete { propagation, unblock_owner_references } => {
                if unblock_owner_references && let Some(meta) = self.objects.get_mut(uid) {
                    let unblocked = |owner: &OwnerReference| OwnerReference {
                        block_owner_deletion: false,
                        ..owner.clone()
                    };
                    meta.owners = meta.owners.iter().map(unblocked).collect();
                    self.deliver_event(uid);
                }
                self.delete(uid, propagation);
            }
        }
    }

    fn orphan_dependents(&mut self, uid: &str) {
        let dependents: Vec<Uid> = self.graph.dependents(uid).map(|(uid, _)| uid.clone()).collect();
        for dependent in dependents {
            self.remove_owners(&dependent, |owner| *owner.uid == *uid);
        }
        self.remove_finalizer(uid, ORPHAN);
    }

    fn remove_finalizer(&mut self, uid: &str, finalizer: &str) {
        if let Some(meta) = self.objects.get_mut(uid) {
            meta.finalizers =
                meta.finalizers.iter().filter(|name| &***name != finalizer).cloned().collect();
        }
        self.remove_if_finished(uid);
    }

    fn remove_owners(&mut self, uid: &str, deleted: impl Fn(&OwnerReference) -> bool) {
        if let Some(meta) = self.objects.get_mut(uid) {
            meta.owners = meta.owners.iter().filter(|owner| !deleted(owner)).cloned().collect();
            self.deliver_event(uid);
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
    world.put("b", &[blocking_owner("a")]);
    world.put("c", &[owner("a")]);
    world.put("d", &[blocking_owner("b")]);
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
    world.deliver_event("d");
    world.delete("a", Propagation::Foreground);
    world.settle();
    assert_eq!(
        world.remaining(),
        ["a", "b", "d", "e"],
        "a blocking dependent holds all its owners"
    );
    world.remove_finalizer("d", "example.com/held");
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
    world.put("f", &[owner("a"), owner("e")]);
    world.delete("a", Propagation::Background);
    world.settle();
    assert_eq!(world.remaining(), ["e", "f"]);
    assert_eq!(&*world.objects["f"].owners, [owner("e")]);
}

#[test]
fn dependent_of_an_absent_owner_is_deleted() {
    let mut world = World::default();
    world.put("child", &[blocking_owner("nobody")]);
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
    world.put("child", &[blocking_owner("late")]);
    world.settle();
    world.deliver_event("late");
    world.settle();
    assert_eq!(world.remaining(), ["child", "late"]);
    assert!(world.graph.node("late").is_some_and(|node| !node.is_virtual));
}

#[test]
fn dependent_with_observed_owners_is_not_read() {
    let mut world = World::default();
    world.put("child", &[blocking_owner("late")]);
    world.put("late", &[]);
    world.settle();
    assert_eq!((world.remaining(), world.attempts), (vec!["child", "late"], 0));
}

#[test]
fn attempt_is_needed_unless_all_owners_are_observed_and_match() {
    let renamed = OwnerReference { name: "moved".into(), ..owner("a") };
    let other_kind = OwnerReference { kind: "Secret".into(), ..owner("a") };
    let other_group = OwnerReference { api_version: "g.example/v1".into(), ..owner("a") };
    let other_version = OwnerReference { api_version: "v2".into(), ..owner("a") };
    // Owner references of the dependent, and whether an attempt to delete it is needed.
    let table = [
        (vec![], false),
        (vec![owner("a")], false),
        (vec![other_version], false),
        (vec![blocking_owner("a"), owner("nobody")], true),
        (vec![renamed], true),
        (vec![other_kind], true),
        (vec![other_group], true),
    ];
    for (owners, expected) in table {
        let mut world = World::default();
        world.put("a", &[]);
        world.put("child", &owners);
        let child = world.graph.node("child").expect("put above");
        assert_eq!(world.graph.needs_attempt(child), expected, "{owners:?}");
        let a = world.graph.node("a").expect("put above");
        assert!(!world.graph.needs_attempt(a));
        world.delete("a", Propagation::Foreground);
        let a = world.graph.node("a").expect("waiting for foreground deletion");
        assert!(world.graph.needs_attempt(a));
        let child = world.graph.node("child").expect("put above");
        assert_eq!(world.graph.needs_attempt(child), !owners.is_empty(), "a terminating owner");
    }
}

#[test]
fn foreground_deletion_of_a_cycle_completes() {
    let mut world = World::default();
    world.put("a", &[]);
    world.put("b", &[blocking_owner("a")]);
    world.put("a", &[blocking_owner("b")]);
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
        owners: [owner("a")].into(),
        ..Meta::default()
    };
    let work = world.graph.process_update(&KIND, &stray);
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
            let owners: Vec<_> = owners.into_iter().map(|(parent, block_owner_deletion)| OwnerReference {
                block_owner_deletion, ..owner(&format!("{parent:02}"))
            }).collect();
            world.put(&format!("{object:02}"), &owners);
        }
        let unaffected: Vec<String> = {
            let mut affected: BTreeSet<u8> = deletions.iter().map(|(uid, _)| *uid).collect();
            for object in 0u8..12 {
                let mut parents = edges.iter().filter(|(c, p, _)| *c == object && p < c).map(|(_, p, _)| *p);
                if parents.any(|parent| affected.contains(&parent)) {
                    affected.insert(object);
                }
            }
            (0u8..12).filter(|o| !affected.contains(o)).map(|o| format!("{o:02}")).collect()
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
        for uid in unaffected {
            prop_assert!(world.objects.contains_key(&uid), "{uid} was deleted");
        }
    }
}
