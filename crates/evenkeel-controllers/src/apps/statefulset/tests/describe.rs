//! What `evenkeel explain` tells about a StatefulSet.

use super::*;
use crate::{apps::statefulset::describe::describe, fixtures::description_text};

/// Describes the world, with revisions by number.
fn described(world: &World) -> String {
    let mut text = description_text(&describe(&world.observed(), world.now));
    for (n, revision) in world.revisions.iter().enumerate() {
        text = text.replace(&*revision.meta.name, &format!("revision {n}"));
    }
    text
}

#[test]
fn set_is_described_by_its_order_revision_and_pods() {
    type Change = fn(&mut World);
    let table: [(Value, Change, Expect); 12] = [
        (
            json!({}),
            |_| {},
            expect![[r#"
            wanted: 2 pods
            order: one after another
            revision: revision 0
            history: 1 revision
            child: Pod db-0
            child: Pod db-1
        "#]],
        ),
        (
            parallel(),
            |w| w.change_image("two"),
            expect![[r#"
            wanted: 2 pods
            order: all at once
            revision: db-54bf955cfd, to be made
            history: 1 revision
            child: Pod db-0
            child: Pod db-1
        "#]],
        ),
        // A rollout: one pod is ready, another one is missing.
        (
            json!({}),
            |w| {
                w.change_image("two");
                w.sync();
                w.pods.pop();
            },
            expect![[r#"
                wanted: 2 pods
                order: one after another
                revision: revision 1, after revision 0
                history: 2 revisions
                waits: 1 of its pods is not available, of at most 1: no more are replaced
                child: Pod db-0
            "#]],
        ),
        // A rollback.
        (
            json!({}),
            |w| {
                w.change_image("two");
                w.settle();
                w.change_image("one");
            },
            expect![[r#"
                wanted: 2 pods
                order: one after another
                revision: revision 0, an older one that is gone back to
                history: 2 revisions
                child: Pod db-1
                child: Pod db-0
            "#]],
        ),
        (
            json!({}),
            |w| w.pods.iter_mut().for_each(|pod| pod.status = pending()),
            expect![[r#"
            wanted: 2 pods
            order: one after another
            revision: revision 0
            history: 1 revision
            waits: pod db-0 is not scheduled yet
            waits: pod db-1 is not scheduled yet
            waits: 2 of its pods are not available, of at most 1: no more are replaced
            child: Pod db-0
            child: Pod db-1
        "#]],
        ),
        (
            json!({ "spec": { "minReadySeconds": 30 } }),
            |w| w.now = at(20),
            expect![[r#"
            wanted: 2 pods
            order: one after another
            revision: revision 0
            history: 1 revision
            waits: pod db-0 becomes available in 10s
            waits: pod db-1 becomes available in 10s
            waits: 2 of its pods are not available, of at most 1: no more are replaced
            child: Pod db-0
            child: Pod db-1
        "#]],
        ),
        (
            json!({ "spec": { "updateStrategy": { "rollingUpdate": { "maxUnavailable": 2 } } } }),
            |w| w.pod("db-1").status = pending(),
            expect![[r#"
                wanted: 2 pods
                order: one after another
                revision: revision 0
                history: 1 revision
                waits: pod db-1 is not scheduled yet
                child: Pod db-0
                child: Pod db-1
            "#]],
        ),
        (
            json!({}),
            |w| w.set.meta.deletion = Some(T0),
            expect![[r#"
            wanted: 2 pods
            order: one after another
            revision: revision 0
            history: 1 revision
            waits: it is being deleted: its pods are left as they are
            child: Pod db-0
            child: Pod db-1
        "#]],
        ),
        (
            json!({}),
            |w| {
                w.set.meta.deletion = Some(T0);
                w.change_image("two");
            },
            expect![[r#"
                wanted: 2 pods
                order: one after another
                revision: revision 0
                history: 1 revision
                waits: it is being deleted: its pods are left as they are
                child: Pod db-0
                child: Pod db-1
            "#]],
        ),
        (
            json!({}),
            |w| w.set.spec.update_strategy = set(1, &recreate()).spec.update_strategy,
            expect![[r#"
                wanted: 2 pods
                order: one after another
                revision: revision 0
                history: 1 revision
                waits: its strategy needs the feature gate StatefulSetRecreateStrategy
                child: Pod db-0
                child: Pod db-1
            "#]],
        ),
        (
            json!({}),
            |w| {
                let selector =
                    json!({ "matchExpressions": [{ "key": "app", "operator": "Near" }] });
                let spec = json!({ "spec": { "selector": selector } });
                w.set.spec.selector = object::<StatefulSet>(&spec).spec.selector;
            },
            expect![[r#"
                wanted: 2 pods
                order: one after another
                revision: revision 0
                history: 0 revisions
                waits: its selector cannot be read: "Near" is not a valid label selector operator
            "#]],
        ),
        (
            json!({ "spec": { "replicas": 7 } }),
            |w| {
                w.pods.iter_mut().for_each(|pod| pod.meta.deletion = Some(T0));
            },
            expect![[r#"
                wanted: 7 pods
                order: one after another
                revision: revision 0
                history: 1 revision
                waits: pod db-0 is ending
                waits: pod db-1 is ending
                waits: pod db-2 is ending
                waits: pod db-3 is ending
                waits: pod db-4 is ending
                waits: 7 of its pods are not available, of at most 1: no more are replaced
                child: Pod db-0
                child: Pod db-1
                child: Pod db-2
                child: Pod db-3
                child: Pod db-4
                child: Pod db-5
                child: Pod db-6
            "#]],
        ),
    ];
    for (changes, change, golden) in table {
        let mut world = World::new(set(2, &changes));
        world.now = at(60);
        world.settle();
        world.now = T0;
        change(&mut world);
        golden.assert_eq(&described(&world));
    }
}
