//! What `evenkeel explain` tells about a Deployment.

use super::*;
use crate::{apps::deployment::describe::describe, fixtures::description_text};

/// Describes the world, with the sets' names by index instead of by hash.
fn described(world: &World) -> String {
    let mut text = description_text(&describe(&world.observed(), world.now));
    for (n, set) in world.sets.iter().enumerate() {
        text = text.replace(&*set.meta.name, &format!("web-{n}"));
    }
    text
}

#[test]
fn rollout_is_described_by_its_sets_and_conditions() {
    let mut world = World::rolling_out(deployment_of_4(), &[(0, 0), (3, 3), (2, 0)]);
    world.sync();
    expect![[r#"
        wanted: 4 pods
        strategy: RollingUpdate: at most 5 pods, at least 3 available
        revision: 3
        new set: web-2: 2 wanted, 2 there, 0 ready, 0 available
        old set: web-1: 3 wanted, 3 there, 3 ready, 3 available
        history: 1 set without pods
        available: True (MinimumReplicasAvailable) Deployment has minimum availability.
        progressing: True (NewReplicaSetAvailable) ReplicaSet "web-2" has successfully progressed.
        waits: 0 of 4 pods of the new set web-2 are available
        waits: old sets still have 3 pods
        waits: progress deadline in 10m1s
        child: ReplicaSet web-0
        child: ReplicaSet web-1
        child: ReplicaSet web-2
    "#]]
    .assert_eq(&described(&world));
}

#[test]
fn sets_are_described_by_their_pods_and_claims() {
    let sizes = [(1, 1), (0, 1), (1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (0, 0)];
    let mut world = World::rolling_out(deployment(9, &json!(1), &json!(1)), &sizes);
    world.sets[0].meta.generation += 1;
    let mut stranger = world.sets[3].clone();
    (stranger.meta.name, stranger.meta.labels) = ("web-stranger".into(), StrMap::default());
    let mut orphan = world.sets[4].clone();
    (orphan.meta.name, orphan.meta.owners) = ("web-orphan".into(), Shared::default());
    world.sets.extend([stranger, orphan]);
    world.change_image("other");
    world.deployment.status = Default::default();
    world.deployment.meta.annotations = StrMap::default();
    expect![[r#"
        wanted: 9 pods
        strategy: RollingUpdate: at most 10 pods, at least 8 available
        new set: none has the deployment's template
        old set: web-0: 1 wanted, 1 there, 1 ready, 1 available (its controller has not seen its last change yet)
        old set: web-1: 0 wanted, 1 there, 1 ready, 1 available
        old set: web-2: 1 wanted, 1 there, 1 ready, 1 available
        old set: web-3: 1 wanted, 1 there, 1 ready, 1 available
        old set: web-4: 1 wanted, 1 there, 1 ready, 1 available
        old sets: 3 more with pods
        history: 1 set without pods
        unclaimed: 1 to be adopted, 1 to be released
        progressing: True (NewReplicaSetCreated) Created new replica set "web-77968c4b4"
        waits: progress deadline in 10m1s
        child: ReplicaSet web-0
        child: ReplicaSet web-1
        child: ReplicaSet web-2
        child: ReplicaSet web-3
        child: ReplicaSet web-4
        child: ReplicaSet web-9
        child: ReplicaSet web-5
        child: ReplicaSet web-6
        child: ReplicaSet web-7
    "#]].assert_eq(&described(&world));
}

#[test]
fn few_sets_are_all_listed() {
    let sizes = [(1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (4, 4)];
    let world = World::rolling_out(deployment_of_4(), &sizes);
    let text = described(&world);
    assert_eq!(text.matches("old set: ").count(), 5, "{text}");
    for absent in ["more with pods", "history", "unclaimed"] {
        assert!(!text.contains(absent), "{text}");
    }
}

#[test]
fn set_to_adopt_is_described_without_a_set_to_release() {
    let mut world = World::rolled_out(deployment_of_4());
    world.sets[0].meta.owners = Shared::default();
    let text = described(&world);
    assert!(text.contains("unclaimed: 1 to be adopted, 0 to be released\n"), "{text}");
}

fn set_selector(world: &mut World, selector: &Value) {
    let spec = json!({ "spec": { "selector": selector } });
    world.deployment.spec.selector = object::<Deployment>(&spec).spec.selector;
}

#[test]
fn description_says_what_the_deployment_waits_for() {
    type Row = (fn() -> World, fn(&mut World), Expect);
    let complete = || World::rolling_out(deployment_of_4(), &[(0, 0), (4, 4)]);
    let half = World::stuck;
    let table: [Row; 10] = [
        (complete, |_| {}, expect![[r#""#]]),
        (
            half,
            |w| w.now = at(100),
            expect![[r#"
            waits: 0 of 4 pods of the new set web-1 are available
            waits: old sets still have 3 pods
            waits: progress deadline in 8m21s
        "#]],
        ),
        (
            half,
            |w| w.now = at(700),
            expect![[r#"
            waits: 0 of 4 pods of the new set web-1 are available
            waits: old sets still have 3 pods
            waits: progress deadline in 1s
        "#]],
        ),
        (
            half,
            |w| {
                w.now = at(700);
                w.sync();
            },
            expect![[r#"
                waits: 0 of 4 pods of the new set web-1 are available
                waits: old sets still have 3 pods
                waits: the rollout has passed its progress deadline; it goes on as soon as pods do
            "#]],
        ),
        (
            half,
            |w| w.deployment.spec.progress_deadline_seconds = None,
            expect![[r#"
            waits: 0 of 4 pods of the new set web-1 are available
            waits: old sets still have 3 pods
        "#]],
        ),
        (
            half,
            |w| w.deployment.spec.paused = true,
            expect![[r#"
            waits: paused: new templates are not rolled out until it is resumed
        "#]],
        ),
        (
            half,
            |w| w.deployment.meta.deletion = Some(T0),
            expect![[r#"
            waits: it is being deleted: its sets are left as they are
        "#]],
        ),
        (
            half,
            |w| set_selector(w, &json!({})),
            expect![[r#"
            waits: it selects all pods: nothing is done until its selector says which
        "#]],
        ),
        (
            half,
            |w| {
                let expression = json!({ "key": "app", "operator": "Near" });
                set_selector(w, &json!({ "matchExpressions": [expression] }));
            },
            expect![[r#"
                waits: its selector cannot be read: "Near" is not a valid label selector operator
            "#]],
        ),
        (
            complete,
            |w| w.change_image("other"),
            expect![[r#"
            waits: progress deadline in 10m1s
        "#]],
        ),
    ];
    for (start, change, golden) in table {
        let mut world = start();
        change(&mut world);
        let text = described(&world);
        let waits = text.lines().filter(|line| line.starts_with("waits"));
        golden.assert_eq(&waits.map(|line| format!("{line}\n")).collect::<String>());
    }
}

#[test]
fn recreate_waits_for_running_old_pods() {
    // Sizes and available pods of the sets, whether an old pod runs, the strategy, and whether it is described.
    for (sets, runs, strategy, expected) in [
        ([(0, 0), (0, 0)], true, "Recreate", true),
        ([(0, 0), (0, 0)], false, "Recreate", false),
        ([(0, 0), (4, 4)], true, "Recreate", false),
        ([(0, 0), (0, 0)], true, "RollingUpdate", false),
    ] {
        let mut world = World::rolling_out(deployment_of_4(), &sets);
        world.deployment.spec.strategy.type_ = strategy.into();
        let pod = Pod { meta: crate::fixtures::meta("p"), ..Pod::default() };
        let observed = world.observed().with_pods(|_| runs.then(|| Arc::new(pod.clone())));
        let waits = describe(&observed, T0).waits;
        let tells = waits.iter().any(|why| why == "old pods have to end before new ones are made");
        assert_eq!(tells, expected, "{sets:?} {runs} {strategy}: {waits:?}");
    }
}
