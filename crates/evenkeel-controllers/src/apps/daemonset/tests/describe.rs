//! What `evenkeel explain` tells about a DaemonSet.

use super::*;
use crate::{apps::daemonset::describe::describe, fixtures::description_text};

#[test]
fn set_is_described_by_its_nodes_revision_and_pods() {
    type Change = fn(&mut World);
    let table: [(usize, Value, Change, Expect); 6] = [
        (
            2,
            one_by_one(),
            |_| {},
            expect![[r#"
            wanted: a pod on 2 of 2 nodes
            revision: 5d67b7984d
            strategy: RollingUpdate: at most 1 node without, at most 0 with two
            child: Pod log-n0-2
            child: Pod log-n1-3
        "#]],
        ),
        (
            8,
            json!({ "maxUnavailable": "25%", "maxSurge": 0 }),
            |w| {
                w.nodes[7] = node("n7", &tainted("NoSchedule"));
                for node in ["n0", "n1", "n2", "n3", "n4", "n5"] {
                    w.pod_on(node).status.conditions = Box::default();
                }
            },
            expect![[r#"
                wanted: a pod on 7 of 8 nodes
                revision: 5d67b7984d
                strategy: RollingUpdate: at most 2 nodes without, at most 0 with two
                waits: pod log-n0-2 is not ready (phase Running)
                waits: pod log-n1-3 is not ready (phase Running)
                waits: pod log-n2-4 is not ready (phase Running)
                waits: pod log-n3-5 is not ready (phase Running)
                waits: pod log-n4-6 is not ready (phase Running)
                child: Pod log-n0-2
                child: Pod log-n1-3
                child: Pod log-n2-4
                child: Pod log-n3-5
                child: Pod log-n4-6
                child: Pod log-n5-7
                child: Pod log-n6-8
                child: Pod log-n7-9
            "#]],
        ),
        (
            1,
            surging(&json!(1)),
            |w| {
                w.set.spec.min_ready_seconds = 30;
                w.now = at(20);
            },
            expect![[r#"
                wanted: a pod on 1 of 1 node
                revision: 5d67b7984d
                strategy: RollingUpdate: at most 0 nodes without, at most 1 with two
                waits: pod log-n0-2 becomes available in 10s
                child: Pod log-n0-2
            "#]],
        ),
        (
            1,
            one_by_one(),
            |w| w.set.meta.deletion = Some(T0),
            expect![[r#"
            wanted: a pod on 1 of 1 node
            strategy: RollingUpdate: at most 1 node without, at most 0 with two
            waits: it is being deleted: its pods are left as they are
            child: Pod log-n0-2
        "#]],
        ),
        (
            1,
            one_by_one(),
            |w| w.set.spec.selector = evenkeel_api::selector::Selector::everything(),
            expect![[r#"
                wanted: a pod on 1 of 1 node
                strategy: RollingUpdate: at most 1 node without, at most 0 with two
                waits: it selects all pods: nothing is done until its selector says which
                child: Pod log-n0-2
            "#]],
        ),
        (
            1,
            one_by_one(),
            |w| {
                let selector =
                    json!({ "matchExpressions": [{ "key": "app", "operator": "Near" }] });
                let spec = json!({ "spec": { "selector": selector } });
                w.set.spec.selector = object::<DaemonSet>(&spec).spec.selector;
            },
            expect![[r#"
                wanted: a pod on 1 of 1 node
                strategy: RollingUpdate: at most 1 node without, at most 0 with two
                waits: its selector cannot be read: "Near" is not a valid label selector operator
            "#]],
        ),
    ];
    for (nodes, rolling_update, change, golden) in table {
        let mut world = World::rolled_out(set(&rolling_update), nodes);
        change(&mut world);
        golden.assert_eq(&description_text(&describe(&world.observed(), world.now)));
    }
}
