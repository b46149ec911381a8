//! Single steps: which ReplicaSets a sync scales, updates and deletes.

use super::*;
use crate::{
    apps::deployment::{
        events,
        limits::RolloutLimits,
        observed::new_set_name,
        scale::{self, is_scaling_event},
        sync::DeploymentSync,
    },
    fixtures::{cached, label, meta},
};
use evenkeel_runtime::cache::CacheEvent;

fn recreating(mut deployment: Deployment) -> Deployment {
    deployment.spec.strategy.type_ = "Recreate".into();
    deployment
}

#[test]
fn max_surge_rounds_up_and_max_unavailable_down() {
    // `replicas`, `maxSurge`, `maxUnavailable`, and the limits in pods. At least one of them is 1.
    for (replicas, surge, unavailable, expected) in [
        (10, json!("25%"), json!("25%"), (3, 2)),
        (10, json!(1), json!(0), (1, 0)),
        (10, json!(0), json!(2), (0, 2)),
        (4, json!(0), json!(0), (0, 1)),
        (3, json!(0), json!("25%"), (0, 1)),
        (3, json!(5), json!(10), (5, 3)),
        (0, json!(0), json!(0), (0, 0)),
    ] {
        let limits = RolloutLimits::resolve(&deployment(replicas, &surge, &unavailable));
        assert_eq!((limits.max_surge, limits.max_unavailable), expected, "{replicas} {surge}");
    }
    let limits = RolloutLimits::resolve(&recreating(deployment_of_4()));
    assert_eq!((limits.max_replicas(), limits.min_available()), (4, 4));
}

#[test]
fn old_sets_shrink_while_enough_pods_are_available() {
    // 10 replicas, at most 13 pods, at least 8 available: sizes and available pods of the sets, and their next sizes.
    for (rule, sets, expected) in [
        (
            "unavailable pods of the new set keep as many old pods",
            &[(8, 7), (5, 0)][..],
            &[8, 5][..],
        ),
        ("a rollback removes the broken pods first", &[(5, 0), (8, 7)], &[1, 8]),
        ("a new template over a broken one", &[(8, 8), (5, 0), (0, 0)], &[8, 0, 0]),
        ("broken pods of the oldest set go first", &[(4, 0), (4, 0), (5, 5)], &[0, 3, 5]),
        ("then available pods of the oldest set", &[(2, 2), (6, 6), (5, 5)], &[0, 3, 5]),
        ("broken and available pods", &[(4, 3), (4, 4), (5, 5)], &[0, 3, 5]),
        ("the new set grows first", &[(8, 8), (3, 3)], &[8, 5]),
        ("a new set that is too large shrinks first", &[(3, 3), (12, 12)], &[3, 10]),
        ("surplus pods of an old set are deleted first", &[(2, 2), (6, 8), (5, 5)], &[2, 6, 5]),
        ("surplus pods of the new set are deleted first", &[(8, 8), (5, 7)], &[8, 5]),
        ("pods of a set without replicas do not count", &[(0, 2), (8, 8), (5, 5)], &[0, 3, 5]),
    ] {
        let mut world = World::rolling_out(deployment(10, &json!(3), &json!(2)), sets);
        world.sync();
        assert_eq!(world.sizes(), expected, "{rule}");
    }
}

/// Upstream records `ScalingReplicaSet` for a new set only if it has replicas.
#[test]
fn new_set_without_surge_starts_empty_and_without_event() {
    let mut world = World::rolled_out(deployment(4, &json!(0), &json!(1)));
    world.change_image("two");
    world.sync();
    check(
        &world,
        &expect![[r#"
            create web-1 with 0
            update web-0 to 3
            status
            ScalingReplicaSet: Scaled down replica set web-0 from 4 to 3
        "#]],
    );
}

#[test]
fn scaled_deployment_scales_its_active_sets() {
    let of = |replicas: i32| deployment(replicas, &json!(1), &json!(1));
    // The sets were last scaled for `before` replicas. Then their sizes and available pods, and their next sizes.
    for (rule, deployment, before, sets, expected) in [
        ("without active sets, the new set gets all", of(4), 4, &[(0, 0), (0, 0)][..], &[0, 4][..]),
        ("the only active set gets all", of(4), 4, &[(2, 2), (0, 0)], &[4, 0]),
        ("the new set alone suffices", of(4), 4, &[(3, 3), (4, 4)], &[0, 4]),
        ("not all of its pods are available", of(4), 4, &[(3, 3), (4, 3)], &[3, 2]),
        ("it is too small", of(4), 4, &[(3, 3), (3, 4)], &[2, 3]),
        ("it was scaled for another number", of(4), 9, &[(3, 3), (4, 4)], &[3, 2]),
        ("both sets grow in proportion", of(9), 4, &[(2, 2), (3, 3)], &[4, 6]),
        ("the newer of equal sets grows first", of(8), 4, &[(3, 3), (3, 3)], &[4, 5]),
        ("the older of equal sets shrinks first", of(6), 10, &[(5, 5), (5, 5)], &[3, 4]),
        ("no pods are left of 0 replicas", of(0), 4, &[(3, 3), (2, 2)], &[0, 0]),
        ("nothing to distribute", of(4), 4, &[(2, 2), (3, 3)], &[2, 3]),
        ("`Recreate` waits for one set", recreating(of(4)), 4, &[(3, 3), (2, 2)], &[3, 2]),
    ] {
        let scaled_before = self::deployment(before, &json!(1), &json!(1));
        let mut world = World::rolling_out(scaled_before, sets);
        world.deployment.spec = deployment.spec;
        world.change_image(&(sets.len() - 1).to_string());
        let observed = world.observed();
        let mut sync = DeploymentSync::begin(&observed, T0);
        scale::scale(&mut sync);
        let sizes: Vec<_> = sync.sets.iter().map(|set| set.replicas).collect();
        assert_eq!(sizes, expected, "{rule}");
        let resized = sizes.iter().zip(world.sizes()).filter(|(after, before)| *after != before);
        let events = sync.sets.iter().map(|set| set.events.len()).sum::<usize>();
        assert_eq!(events, resized.count(), "{rule}: an event for each change of size");
    }
}

#[test]
fn paused_deployment_without_new_set_scales_the_newest() {
    let mut world = World::rolling_out(deployment_of_4(), &[(0, 0), (0, 0)]);
    world.deployment.spec.paused = true;
    world.change_image("other");
    world.sync();
    assert_eq!(world.sizes(), [0, 4]);
}

#[test]
fn scaled_deployment_differs_from_the_annotation_of_an_active_set() {
    // Sizes and annotations `desired-replicas` of the sets of a Deployment with 4 replicas.
    for (rule, sets, expected) in [
        ("all are equal", [(3, "4"), (2, "4")], false),
        ("an active set differs", [(3, "9"), (2, "4")], true),
        ("sets without replicas do not count", [(0, "9"), (4, "4")], false),
        ("0 is a number", [(3, "0"), (2, "4")], true),
        ("negative numbers do not count", [(3, "-1"), (2, "4")], false),
        ("invalid numbers do not count", [(3, "x"), (2, "4")], false),
    ] {
        let sizes = sets.map(|(size, _)| (size, size));
        let mut world = World::rolling_out(deployment_of_4(), &sizes);
        for (set, (_, desired)) in world.sets.iter_mut().zip(sets) {
            set.meta.annotations =
                set.meta.annotations.with(annotations::DESIRED_REPLICAS, desired);
        }
        let observed = world.observed();
        assert_eq!(is_scaling_event(&DeploymentSync::begin(&observed, T0)), expected, "{rule}");
    }
}

#[test]
fn annotations_of_replicas_are_current_if_both_are() {
    let limits = RolloutLimits { desired: 4, max_surge: 1, max_unavailable: 0 };
    for (desired, max, expected) in
        [("4", "5", true), ("9", "5", false), ("4", "9", false), ("9", "9", false)]
    {
        let annotations = label(annotations::DESIRED_REPLICAS, desired);
        let annotations = annotations.with(annotations::MAX_REPLICAS, max);
        let found = annotations::are_replicas_current(&annotations, limits);
        assert_eq!(found, expected, "{desired} {max}");
    }
}

#[test]
fn revision_history_drops_its_oldest_entries() {
    let digits = |length: usize| "2".repeat(length);
    // The history, the next entry, and the history with it, of at most 2000 characters.
    for (history, entry, expected) in [
        (format!("1,{}", digits(1996)), "7".into(), format!("1,{},7", digits(1996))),
        (format!("1,{}", digits(1997)), "7".into(), format!("{},7", digits(1997))),
        ("1".into(), format!("{:0>2000}", 7), format!("{:0>2000}", 7)),
        ("1".into(), format!("{:0>2001}", 7), "1".into()),
    ] {
        let present = label(annotations::REVISION, &entry);
        let present = present.with(annotations::REVISION_HISTORY, &history);
        let after = annotations::for_new_set(&present, &StrMap::default(), 8);
        assert_eq!(after.get(annotations::REVISION_HISTORY), Some(&*expected), "{}", entry.len());
        assert_eq!(after.get(annotations::REVISION), Some("8"));
    }
}

#[test]
fn new_set_takes_min_ready_seconds_and_annotations() {
    let mut world = World::rolled_out(deployment_of_4());
    world.deployment.spec.min_ready_seconds = 5;
    world.settle();
    assert_eq!(world.sets[0].spec.min_ready_seconds, 5);
    world.deployment.meta.annotations = label("team", "b");
    world.settle();
    assert_eq!(world.sets[0].meta.annotations.get("team"), Some("b"));
    // A field of 0 is not written.
    let created = |world: &World| {
        let plan = plan(&world.observed(), T0);
        let Some(Action::Create(create)) = plan.actions.first() else { panic!("{plan:?}") };
        let body: Value = serde_json::from_slice(&create.body).unwrap();
        body["spec"]["minReadySeconds"].clone()
    };
    world.sets.clear();
    assert_eq!(created(&world), 5);
    world.deployment.spec.min_ready_seconds = 0;
    assert_eq!(created(&world), Value::Null);
}

#[test]
fn oldest_set_with_the_template_is_the_new_one() {
    let mut world = World::rolled_out(deployment_of_4());
    let mut twin = world.sets[0].clone();
    (twin.meta.name, twin.meta.uid) = ("web-twin".into(), "twin".into());
    twin.meta.creation = Some(at(60));
    world.sets.insert(0, twin);
    let observed = world.observed();
    assert_eq!(observed.sets[observed.new_index.unwrap()].meta.name, world.sets[1].meta.name);
}

#[test]
fn old_sets_beyond_the_history_limit_are_deleted_after_a_complete_rollout() {
    type Row<'a> = (&'a str, &'a [(i32, i32)], fn(&mut World), usize);
    let complete: &[(i32, i32)] = &[(0, 0), (0, 0), (4, 4)];
    let none: fn(&mut World) = |_| {};
    let table: [Row<'_>; 13] = [
        ("complete", complete, none, 2),
        ("one is kept", complete, |w| w.deployment.spec.revision_history_limit = Some(1), 1),
        ("unlimited", complete, |w| w.deployment.spec.revision_history_limit = None, 0),
        ("status: updated", complete, |w| w.deployment.status.updated_replicas = 3, 0),
        ("status: total", complete, |w| w.deployment.status.replicas = 5, 0),
        ("status: available", complete, |w| w.deployment.status.available_replicas = 3, 0),
        ("status: generation", complete, |w| w.deployment.status.observed_generation = 0, 0),
        ("a set still has pods", complete, |w| w.sets[0].status.replicas = 1, 1),
        ("a set is not observed yet", complete, |w| w.sets[0].meta.generation += 1, 1),
        ("a set is being deleted", complete, |w| w.sets[0].meta.deletion = Some(T0), 1),
        ("the new set grows", &[(0, 0), (0, 0), (3, 3)], none, 0),
        ("an available old pod is removed", &[(0, 0), (1, 1), (4, 4)], none, 0),
        ("a broken old pod is removed", &[(0, 0), (1, 0), (4, 3)], none, 0),
    ];
    for (rule, sets, change, expected) in table {
        for recreate in [false, true] {
            let mut world = World::rolling_out(deployment_of_4(), sets);
            if recreate {
                world.deployment = recreating(world.deployment);
            }
            world.deployment.spec.revision_history_limit = Some(0);
            change(&mut world);
            world.sync();
            let is_deletion = |write: &&String| write.starts_with("delete");
            let deleted = world.writes.iter().filter(is_deletion).count();
            // `Recreate` creates no new pod while an old set has pods, and then does not clean up.
            let expected = if recreate && rule == "a set still has pods" { 0 } else { expected };
            // `Recreate` scales the new set and cleans up in one step.
            let expected = if recreate && rule == "the new set grows" { 2 } else { expected };
            assert_eq!(deleted, expected, "{rule}, {recreate}");
        }
    }
}

#[test]
fn oldest_revisions_are_deleted_first() {
    let mut world = World::rolling_out(deployment_of_4(), &[(0, 0), (0, 0), (0, 0), (4, 4)]);
    // After a rollback, the oldest set may have the newest revision.
    let annotations = &mut world.sets[0].meta.annotations;
    *annotations = annotations.with(annotations::REVISION, "9");
    world.deployment.spec.revision_history_limit = Some(1);
    world.sync();
    let kept = world.sets.iter().map(|set| annotations::revision(&set.meta.annotations));
    assert_eq!(kept.collect::<Vec<_>>(), [Some(9), Some(10)]);
}

#[test]
fn paused_deployment_deletes_old_sets_unless_a_rollback_is_requested() {
    for (rollback, expected) in [(false, 1), (true, 2)] {
        let mut world = World::rolling_out(deployment_of_4(), &[(0, 0), (4, 4)]);
        world.deployment.spec.revision_history_limit = Some(0);
        world.deployment.spec.paused = true;
        if rollback {
            roll_back_to(&mut world, "1");
        }
        world.sync();
        assert_eq!(world.sets.len(), expected);
    }
}

#[test]
fn deployment_with_an_invalid_selector_does_nothing() {
    let mut world = World::rolled_out(deployment_of_4());
    let selector = json!({ "matchExpressions": [{ "key": "app", "operator": "Near" }] });
    world.deployment.spec.selector =
        object::<Deployment>(&json!({ "spec": { "selector": selector } })).spec.selector;
    world.deployment.meta.generation += 1;
    assert_eq!(plan(&world.observed(), T0), Plan::nothing());
    assert_eq!(status(&world.observed(), &Outcomes::default(), T0), Plan::nothing());
}

#[test]
fn empty_selector_changes_only_the_observed_generation() {
    // The status would report the counts of another rollout.
    let mut world = World::rolling_out(deployment_of_4(), &[(3, 3), (2, 0)]);
    let before = world.deployment.status.clone();
    world.deployment.spec.selector =
        object::<Deployment>(&json!({ "spec": { "selector": {} } })).spec.selector;
    world.deployment.meta.generation += 1;
    world.sync();
    let generation = world.deployment.meta.generation;
    let expected =
        evenkeel_api::views::DeploymentStatus { observed_generation: generation, ..before };
    assert_eq!(world.deployment.status, expected);
}

#[test]
fn deleted_deployment_updates_counts_and_annotations_only() {
    let mut world = World::rolling_out(deployment_of_4(), &[(2, 2), (1, 1)]);
    world.deployment.meta.deletion = Some(T0);
    world.deployment.meta.annotations = world.deployment.meta.annotations.with("team", "b");
    // More pods are available than before, which would count as progress.
    world.deployment.status.available_replicas = 1;
    let progressing = world.condition("Progressing");
    world.sync();
    assert_eq!(world.sizes(), [2, 1]);
    assert_eq!(world.sets[1].meta.annotations.get("team"), Some("b"));
    let status = &world.deployment.status;
    assert_eq!((status.replicas, status.updated_replicas, status.available_replicas), (3, 1, 3));
    assert_eq!(world.condition("Progressing"), progressing);
}

#[test]
fn rollback_first_creates_the_set_of_the_present_template() {
    let mut world = World::rolled_out(deployment_of_4());
    world.deployment.meta.annotations = world.deployment.meta.annotations.with("owner", "me");
    world.change_image("two");
    roll_back_to(&mut world, "0");
    world.sync();
    check(
        &world,
        &expect![[r#"
            create web-1 with 1
            rewrite
            ScalingReplicaSet: Scaled up replica set web-1 from 0 to 1
            DeploymentRollback: Rolled back deployment "web" to revision 1
        "#]],
    );
    // The annotations are those of the set, and the new revision.
    let annotations: Vec<_> = world.deployment.meta.annotations.iter().collect();
    assert_eq!(annotations, [(annotations::REVISION, "2"), ("team", "a")]);
}

#[test]
fn rollback_to_the_previous_revision_alternates() {
    let mut world = World::rolled_out(deployment_of_4());
    let first = world.deployment.spec.template.clone();
    world.change_image("two");
    world.settle();
    let second = world.deployment.spec.template.clone();
    for expected in [&first, &second, &first] {
        roll_back_to(&mut world, "0");
        world.settle();
        assert_eq!(world.deployment.spec.template, *expected);
    }
}

#[test]
fn name_collision_counts_unless_the_rival_is_the_new_set() {
    let name_taken = failed(failure(409, "AlreadyExists"));
    for (is_owned, image, expected) in
        [(true, "one", None), (true, "other", Some(1)), (false, "one", Some(1))]
    {
        let world = World::new(deployment_of_4());
        let mut rival: ReplicaSet = object(&json!({ "spec": { "template": template(image) } }));
        rival.meta = meta(&new_set_name(&world.deployment));
        if is_owned {
            rival.meta.owners = owned_by(&world.deployment);
        }
        // The cache of ReplicaSets has the rival, which was not there when the plan was made.
        let observed = Observed { rival: Some(Arc::new(rival)), ..world.observed() };
        let mut after = world.clone();
        for action in status(&observed, &name_taken, T0).actions {
            after.apply(&action);
        }
        assert_eq!(after.deployment.status.collision_count, expected, "{is_owned} {image}");
    }
}

/// The Deployment waits for the pods that a `Recreate` ends. Upstream: `deletePod`.
#[tokio::test(start_paused = true)]
async fn deleted_pod_enqueues_its_deployment_of_strategy_recreate() {
    let owner = |kind: &str, name: &str, uid: &str| json!([{ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true }]);
    let deployment = |name: &str, strategy: &str| json!({ "metadata": { "name": name, "namespace": "ns", "uid": name }, "spec": { "strategy": { "type": strategy } } });
    let set = |name: &str, owners: Value| json!({ "metadata": { "name": name, "namespace": "ns", "uid": name, "ownerReferences": owners } });
    let lists = [
        (
            "/apis/apps/v1/deployments",
            vec![deployment("web", "Recreate"), deployment("rolling", "RollingUpdate")],
        ),
        (
            "/apis/apps/v1/replicasets",
            vec![
                set("web-1", owner("Deployment", "web", "web")),
                set("rolling-1", owner("Deployment", "rolling", "rolling")),
                set("gone-1", owner("Deployment", "web", "before")),
                set("alone", json!([])),
            ],
        ),
    ];
    let (deployments, sets) =
        cached(lists, |caches| (caches.of::<Deployment>(), caches.of::<ReplicaSet>())).await;
    let pod_of = |set: &str| -> Arc<Pod> {
        let owners = owner("ReplicaSet", set, set);
        Arc::new(object(&json!({ "metadata": { "namespace": "ns", "ownerReferences": owners } })))
    };
    let deleted = |set: &str| CacheEvent::Deleted(pod_of(set));
    for (event, expected) in [
        (deleted("web-1"), &["ns/web"][..]),
        (deleted("rolling-1"), &[]),
        (deleted("gone-1"), &[]),
        (deleted("alone"), &[]),
        (deleted("unknown"), &[]),
        (CacheEvent::Added { object: pod_of("web-1"), initial: false }, &[]),
    ] {
        let mut keys = Vec::new();
        events::on_pod(&deployments, &sets, &event, |key| keys.push(key.to_string()));
        assert_eq!(keys, expected, "{event:?}");
    }
}
