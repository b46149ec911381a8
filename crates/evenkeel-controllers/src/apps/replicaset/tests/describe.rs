//! What `evenkeel explain` tells about a ReplicaSet.

use super::*;
use crate::{apps::replicaset::describe::describe, fixtures::description_text};

#[test]
fn set_is_described_by_its_pods_and_failures() {
    type Change = fn(&mut ReplicaSet, &mut Vec<Arc<Pod>>);
    fn selector(set: &mut ReplicaSet, selector: &Value) {
        let spec = json!({ "spec": { "selector": selector } });
        set.spec.selector = object::<ReplicaSet>(&spec).spec.selector;
    }
    fn unready(set: &ReplicaSet, n: usize) -> Vec<Arc<Pod>> {
        (0..n).map(|n| owned(set, pod(&format!("p{n}"), None))).collect()
    }
    let table: [(i32, Change, Expect); 10] = [
        (
            1,
            |set, pods| pods.extend(owned_pods(set, 1)),
            expect![[r#"
            wanted: 1 pod
            its pods: 1 active, 1 ready, 1 available
            child: Pod p0
        "#]],
        ),
        (
            3,
            |set, pods| {
                set.spec.min_ready_seconds = 30;
                let mut terminating = pod("terminating", Some(T0));
                terminating.meta.deletion = Some(T0);
                let mut stranger = pod("stranger", Some(T0));
                stranger.meta.labels = label("app", "other");
                pods.extend([
                    owned(set, pod("young", Some(at(-20)))),
                    owned(set, pod("old", Some(at(-60)))),
                    owned(set, terminating),
                    owned(set, stranger),
                    Arc::new(pod("orphan", None)),
                ]);
            },
            expect![[r#"
                wanted: 3 pods
                its pods: 3 active, 2 ready, 1 available, 1 ending
                unclaimed: 1 that it selects, to be adopted
                no longer selected: 1 of its pods, to be released
                waits: pod young becomes available in 10s
                waits: pod orphan is not ready (phase Running)
                child: Pod young
                child: Pod old
                child: Pod orphan
            "#]],
        ),
        (
            5,
            |set, pods| pods.extend(unready(set, 5)),
            expect![[r#"
            wanted: 5 pods
            its pods: 5 active, 0 ready, 0 available
            waits: pod p0 is not ready (phase Running)
            waits: pod p1 is not ready (phase Running)
            waits: pod p2 is not ready (phase Running)
            waits: pod p3 is not ready (phase Running)
            waits: pod p4 is not ready (phase Running)
            child: Pod p0
            child: Pod p1
            child: Pod p2
            child: Pod p3
            child: Pod p4
        "#]],
        ),
        (
            6,
            |set, pods| pods.extend(unready(set, 6)),
            expect![[r#"
            wanted: 6 pods
            its pods: 6 active, 0 ready, 0 available
            waits: pod p0 is not ready (phase Running)
            waits: pod p1 is not ready (phase Running)
            waits: pod p2 is not ready (phase Running)
            waits: pod p3 is not ready (phase Running)
            waits: pod p4 is not ready (phase Running)
            waits: 1 more pod is not available
            child: Pod p0
            child: Pod p1
            child: Pod p2
            child: Pod p3
            child: Pod p4
            child: Pod p5
        "#]],
        ),
        (
            7,
            |set, pods| pods.extend(unready(set, 7)),
            expect![[r#"
            wanted: 7 pods
            its pods: 7 active, 0 ready, 0 available
            waits: pod p0 is not ready (phase Running)
            waits: pod p1 is not ready (phase Running)
            waits: pod p2 is not ready (phase Running)
            waits: pod p3 is not ready (phase Running)
            waits: pod p4 is not ready (phase Running)
            waits: 2 more pods are not available
            child: Pod p0
            child: Pod p1
            child: Pod p2
            child: Pod p3
            child: Pod p4
            child: Pod p5
            child: Pod p6
        "#]],
        ),
        (
            2,
            |set, _| {
                let failure = json!({ "status": { "conditions": [
                    { "type": "Other", "status": "True", "reason": "No", "message": "no" },
                    { "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota" }] } });
                set.status = object::<ReplicaSet>(&failure).status;
            },
            expect![[r#"
                wanted: 2 pods
                its pods: 0 active, 0 ready, 0 available
                failure: FailedCreate: quota
            "#]],
        ),
        (
            2,
            |set, _| set.meta.deletion = Some(T0),
            expect![[r#"
            wanted: 2 pods
            its pods: 0 active, 0 ready, 0 available
            waits: it is being deleted: pods are neither made nor deleted any more
        "#]],
        ),
        (
            2,
            |set, _| selector(set, &json!({ "matchLabels": { "app": "nobody" } })),
            expect![[r#"
                wanted: 2 pods
                its pods: 0 active, 0 ready, 0 available
                waits: unable to create pods, the selector does not match the template's labels
            "#]],
        ),
        (
            2,
            |set, _| {
                let expression = json!({ "key": "app", "operator": "Near" });
                selector(set, &json!({ "matchExpressions": [expression] }));
            },
            expect![[r#"
                wanted: 2 pods
                waits: its selector cannot be read: nothing is done until it is mended
            "#]],
        ),
        (
            0,
            |_, _| {},
            expect![[r#"
            wanted: 0 pods
            its pods: 0 active, 0 ready, 0 available
        "#]],
        ),
    ];
    for (replicas, change, golden) in table {
        let (mut set, mut pods) = (set(replicas), Vec::new());
        change(&mut set, &mut pods);
        golden.assert_eq(&description_text(&describe(&observed(set, pods), T0)));
    }
}
