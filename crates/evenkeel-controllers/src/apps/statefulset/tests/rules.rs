//! Single rules: identity, order, revisions, status.

use super::*;
use crate::{
    apps::statefulset::plan::StatefulSetSync,
    fixtures::{label, meta},
};
use evenkeel_runtime::plan::BURST_LIMIT;

/// Returns the names of the terminating pods.
fn terminating(world: &World) -> Vec<&str> {
    let pods = world.pods.iter().filter(|pod| pod.meta.deleting());
    pods.map(|pod| &*pod.meta.name).collect()
}

fn names(world: &World) -> Vec<&str> {
    world.pods.iter().map(|pod| &*pod.meta.name).collect()
}

/// Returns the pods that the next sync creates, and whether each waits for the creations before it.
fn created_pods(world: &World) -> Vec<(String, bool)> {
    let plan = plan(&world.observed(), world.now);
    let creations = plan.actions.iter().filter_map(|action| match action {
        Action::Create(create) if &*create.kind.kind == "Pod" => Some(create),
        _ => None,
    });
    creations
        .map(|create| {
            let body: Value = serde_json::from_slice(&create.body).unwrap();
            let name = body["metadata"]["name"].as_str().unwrap().to_owned();
            (name, create.waits_for_earlier_creates)
        })
        .collect()
}

#[test]
fn ordinal_is_the_number_after_the_last_dash() {
    for (name, expected) in [
        ("db-3", Some(("db", Some(3)))),
        ("my-db-10", Some(("my-db", Some(10)))),
        ("db-99999999999", Some(("db", None))),
        ("db-", None),
        ("db-x", None),
        ("db-3x", None),
        ("db", None),
    ] {
        assert_eq!(identity::split_ordinal(name), expected, "{name}");
    }
}

#[test]
fn positions_begin_at_the_first_ordinal() {
    let set = set(2, &json!({ "spec": { "ordinals": { "start": 7 } } }));
    let positions = [6, 7, 8, 9].map(|ordinal| identity::position(&set, ordinal));
    assert_eq!(positions, [None, Some(0), Some(1), None]);
}

#[test]
fn pod_of_another_name_is_not_adopted() {
    let mut world = World::rolled_out(set(1, &json!({})));
    let mut stranger = world.pods[0].clone();
    (stranger.meta.name, stranger.meta.uid) = ("other-1".into(), "other".into());
    stranger.meta.owners = Shared::default();
    let mut unlabelled = stranger.clone();
    (unlabelled.meta.name, unlabelled.meta.uid) = ("db-1".into(), "unlabelled".into());
    unlabelled.meta.labels = label("app", "other");
    world.pods.extend([stranger, unlabelled]);
    assert!(!world.sync(), "{}", world.history());
}

#[test]
fn claims_take_the_place_of_volumes_of_their_name() {
    let mut changes = with_claims(&Value::Null);
    let volumes = json!([{ "name": "tmp", "emptyDir": {} }, { "name": "data", "emptyDir": {} }]);
    merge(&mut changes, &json!({ "spec": { "template": { "spec": { "volumes": volumes } } } }));
    let mut world = World::new(set(1, &changes));
    world.sync();
    let volumes = world.pods[0].spec.volumes.iter().map(|volume| {
        let claim = volume.source.persistent_volume_claim.as_deref();
        (&*volume.name, claim.map_or("", |claim| &claim.claim_name))
    });
    assert_eq!(volumes.collect::<Vec<_>>(), [("data", "data-db-0"), ("tmp", "")]);
}

#[test]
fn lost_identity_is_restored() {
    let set = set(2, &with_claims(&Value::Null));
    let volume = |name: &str, claim: &str| json!([{ "name": name, "persistentVolumeClaim": { "claimName": claim } }]);
    let add_label = |label: &str, value: &str| json!({ "op": "add", "path": format!("/metadata/labels/{label}"), "value": value });
    let labels = vec![
        add_label("statefulset.kubernetes.io~1pod-name", "db-1"),
        add_label("apps.kubernetes.io~1pod-index", "1"),
    ];
    let volumes = vec![
        json!({ "op": "add", "path": "/spec/volumes/-", "value": volume("data", "data-db-1")[0] }),
    ];
    for (name_label, volume, expected) in [
        ("db-1", volume("data", "data-db-1"), vec![]),
        ("db-0", volume("data", "data-db-1"), labels),
        ("db-1", volume("data", "data-db-0"), volumes.clone()),
        ("db-1", volume("other", "data-db-1"), volumes.clone()),
        ("db-1", json!([]), volumes),
    ] {
        let pod: Pod = object(&json!({
            "metadata": { "name": "db-1", "labels": { "statefulset.kubernetes.io/pod-name": name_label } },
            "spec": { "volumes": volume },
        }));
        assert_eq!(identity::repair_patch(&set, &pod, 1), expected, "{name_label} {volume}");
    }
}

#[test]
fn newest_revision_is_the_one_of_the_highest_number() {
    let mut world = World::rolled_out(set(1, &json!({})));
    world.change_image("two");
    world.settle();
    world.revisions.reverse();
    // The status names the update revision of an observed generation only.
    world.set.status.observed_generation = 0;
    world.log.clear();
    world.sync();
    assert_eq!(world.history(), "status\n");
}

#[test]
fn sync_creates_at_most_the_burst_limit_of_objects() {
    let limit = usize::try_from(BURST_LIMIT).unwrap();
    let replicas = i32::try_from(limit).unwrap() + 5;
    let creations = |world: &World| {
        let plan = plan(&world.observed(), world.now);
        plan.actions.iter().filter(|action| matches!(action, Action::Create(_))).count()
    };
    let mut world = World::new(set(replicas, &parallel()));
    assert_eq!(creations(&world), limit, "the revision counts");
    world.sync();
    assert_eq!(world.pods.len(), limit - 1);
    assert_eq!(creations(&world), 6);
    let mut changes = with_claims(&Value::Null);
    merge(&mut changes, &parallel());
    let world = World::new(set(replicas, &changes));
    assert_eq!(creations(&world), limit, "claims count");
}

#[test]
fn first_pod_of_a_batch_waits_for_the_claims() {
    let flags = |changes: &Value| -> Vec<bool> {
        let mut changes = changes.clone();
        merge(&mut changes, &parallel());
        let created = created_pods(&World::new(set(4, &changes)));
        created.into_iter().map(|(_, waits)| waits).collect()
    };
    // Batches of 1, 2 and 1 pods, or all at once.
    assert_eq!(flags(&with_claims(&Value::Null)), [true, true, false, true]);
    assert_eq!(flags(&json!({})), [true, false, false, false]);
}

#[test]
fn parallel_pod_waits_for_the_claim_of_its_predecessor() {
    let mut changes = with_claims(&json!({ "whenDeleted": "Retain", "whenScaled": "Delete" }));
    merge(&mut changes, &parallel());
    let mut world = World::rolled_out(set(2, &changes));
    let owner = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "db-0", "uid": "before", "controller": true }] } });
    world.claims[0].meta.owners = object::<PersistentVolumeClaim>(&owner).meta.owners;
    world.pods.clear();
    world.sync();
    assert_eq!(names(&world), ["db-1"]);
}

#[test]
fn parallel_terminating_claim_of_a_missing_pod_blocks_scale_down() {
    let mut changes = with_claims(&Value::Null);
    merge(&mut changes, &parallel());
    let mut world = World::rolled_out(set(3, &changes));
    world.pods.retain(|pod| &*pod.meta.name != "db-0");
    world.claims[0].meta.deletion = Some(T0);
    world.change(|set| set.spec.replicas = Some(2));
    world.log.clear();
    world.sync();
    check(
        &world,
        &expect![[r#"
              FailedCreate: Create Pod db-0 in StatefulSet db failed error: pvc data-db-0 is being deleted
            status
        "#]],
    );
}

#[test]
fn ordered_ready_pod_waits_until_its_predecessor_is_available() {
    type Change = fn(&mut World);
    let table: [(&str, Change, &[&str]); 6] = [
        ("available", |_| {}, &["db-0", "db-1"]),
        ("terminating", |w| w.pod("db-0").meta.deletion = Some(T0), &["db-0"]),
        ("not ready", |w| w.pod("db-0").status.conditions = Box::default(), &["db-0"]),
        ("not running", |w| w.pod("db-0").status.phase = "Pending".into(), &["db-0"]),
        ("not ready for long enough", |w| w.now = at(29), &["db-0"]),
        (
            "unavailable pods keep their labels",
            |w| {
                w.now = at(29);
                w.pod("db-0").meta.labels = label("app", "db");
            },
            &["db-0"],
        ),
    ];
    for (rule, change, expected) in table {
        let mut world = World::new(set(2, &json!({ "spec": { "minReadySeconds": 30 } })));
        world.sync();
        world.run_pods();
        world.now = at(30);
        change(&mut world);
        world.log.clear();
        world.sync();
        assert_eq!(names(&world), expected, "{rule}");
        assert!(!world.history().contains("rewrite"), "{rule}: {}", world.history());
    }
}

#[test]
fn last_condemned_pod_waits_for_the_first_unavailable_one() {
    fn unready(world: &mut World, name: &str) {
        world.pod(name).status.conditions = Box::default();
    }
    type Change = fn(&mut World);
    let table: [(&str, Change, &[&str]); 9] = [
        ("all are available", |_| {}, &["db-2"]),
        ("it is the first unavailable one", |w| unready(w, "db-2"), &["db-2"]),
        ("only an earlier one is unavailable", |w| unready(w, "db-1"), &["db-2"]),
        (
            "both are",
            |w| {
                unready(w, "db-1");
                unready(w, "db-2");
            },
            &[],
        ),
        ("both are not ready for long enough", |w| w.now = at(29), &[]),
        ("an earlier one is Failed", |w| w.pod("db-1").status.phase = "Failed".into(), &["db-2"]),
        (
            "both are Failed",
            |w| {
                for name in ["db-1", "db-2"] {
                    w.pod(name).status =
                        object::<Pod>(&json!({ "status": { "phase": "Failed" } })).status;
                }
            },
            &["db-2"],
        ),
        (
            "it is not running",
            |w| {
                unready(w, "db-1");
                w.pod("db-2").status.phase = "Unknown".into();
            },
            &[],
        ),
        ("it is terminating", |w| w.pod("db-2").meta.deletion = Some(T0), &["db-2"]),
    ];
    for (rule, change, expected) in table {
        let mut world = World::rolled_out(set(3, &json!({})));
        world.set.spec.min_ready_seconds = 30;
        world.now = at(30);
        world.change(|set| set.spec.replicas = Some(1));
        change(&mut world);
        if world.now == at(29) {
            // The replica, unlike the condemned pods, has been ready for long.
            let ready = json!({ "status": { "phase": "Running",
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": at(-99).to_string() }] } });
            world.pod("db-0").status = object::<Pod>(&ready).status;
        }
        world.sync();
        assert_eq!(terminating(&world), expected, "{rule}");
    }
}

#[test]
fn replicas_below_the_partition_keep_the_current_revision() {
    // Strategy, number of replicas of the current revision, and which of the ordinals 5, 6 and 7 get the new one.
    let partition =
        |n: i32| json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": n } });
    let without = |type_: &str| json!({ "type": type_, "rollingUpdate": null });
    for (strategy, current_replicas, expected) in [
        (partition(2), 0, [false, false, true]),
        (partition(0), 3, [true, true, true]),
        (without("RollingUpdate"), 2, [false, false, true]),
        (without("RollingUpdate"), 0, [true, true, true]),
        (without("OnDelete"), 2, [true, true, true]),
    ] {
        let changes = json!({ "spec": { "ordinals": { "start": 5 } } });
        let mut world = World::rolled_out(set(3, &changes));
        world.change_image("two");
        world.sync();
        let spec = json!({ "spec": { "updateStrategy": strategy } });
        world.set.spec.update_strategy = object::<StatefulSet>(&spec).spec.update_strategy;
        world.set.status.current_replicas = current_replicas;
        let observed = world.observed();
        let sync = StatefulSetSync::begin(&observed, T0);
        let is_new = [5, 6, 7].map(|ordinal| {
            sync.template_by_partition(ordinal).1 == observed.update_revision.name()
        });
        assert_eq!(is_new, expected, "{strategy}, {current_replicas}");
    }
}

/// Returns a set of 3 parallel pods with a new template, of which the last failed and another one is unavailable.
fn failed_during_rollout() -> World {
    let mut world = World::rolled_out(set(3, &parallel()));
    world.change_image("two");
    world.pod("db-2").status = object::<Pod>(&json!({ "status": { "phase": "Failed" } })).status;
    world.pod("db-1").status = pending();
    world
}

#[test]
fn status_counts_the_pods_that_the_rollout_deletes_once() {
    let mut world = failed_during_rollout();
    world.sync();
    assert_eq!(terminating(&world), ["db-1", "db-2"]);
    // The deletion of a failed pod is no step of the rollout.
    assert_eq!(world.set.status.current_replicas, 2);
}

#[test]
fn status_counts_only_deletions_that_succeed() {
    let forbidden = || {
        Outcome::failure(Failure {
            code: 403,
            reason: "Forbidden".into(),
            message: "no".into(),
            namespace_terminating: false,
        })
    };
    let partial = || Outcome { succeeded: 1, ..forbidden() };
    let nothing = || Outcome { succeeded: 0, ..Outcome::success() };
    for (outcome, expected) in
        [(Outcome::success(), 1), (forbidden(), 2), (partial(), 2), (nothing(), 2)]
    {
        let mut world = World::rolled_out(set(2, &json!({})));
        world.change_image("two");
        let observed = world.observed();
        // The plan creates the revision and deletes a pod.
        let outcomes = Outcomes(vec![Outcome::success(), outcome]);
        for action in status(&observed, &outcomes, T0).actions {
            world.apply(&action);
        }
        assert_eq!(world.set.status.current_replicas, expected);
    }
}

#[test]
fn status_counts_pods_with_a_phase_and_an_ordinal() {
    let mut world = World::rolled_out(set(2, &json!({})));
    world.pod("db-1").status.phase = "".into();
    let mut far = world.pods[0].clone();
    (far.meta.name, far.meta.uid) = ("db-99999999999".into(), "far".into());
    world.pods.push(far);
    world.sync();
    assert_eq!(world.set.status.replicas, 1);
}

#[test]
fn current_revision_follows_when_all_pods_are_updated_and_ready() {
    type Change = fn(&mut World);
    let table: [(&str, Change, bool); 4] = [
        ("complete", |_| {}, true),
        ("a pod is not ready", |w| w.pod("db-1").status.conditions = Box::default(), false),
        (
            "a pod is old",
            |w| {
                let old = w.revisions[0].meta.name.clone();
                w.pod("db-1").meta.labels =
                    w.pod("db-1").meta.labels.with(pods::REVISION_LABEL, &old);
            },
            false,
        ),
        ("a pod is condemned", |w| w.set.spec.replicas = Some(1), false),
    ];
    for (rule, change, expected) in table {
        let mut world = World::rolled_out(set(2, &json!({})));
        world.change_image("two");
        world.settle();
        let update = world.set.status.update_revision.clone();
        assert_eq!(world.set.status.current_revision, update);
        world.set.status.current_revision = world.revisions[0].meta.name.clone();
        change(&mut world);
        world.sync();
        assert_eq!(world.set.status.current_revision == update, expected, "{rule}");
    }
}

#[test]
fn status_waits_only_for_pods_that_are_ready() {
    for (min_ready_seconds, ready_at, expected) in
        [(30, T0, Some(20)), (30, at(-60), None), (0, T0, None)]
    {
        let mut world = World::rolled_out(set(1, &json!({})));
        world.set.spec.min_ready_seconds = min_ready_seconds;
        let ready = json!({ "status": { "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": ready_at.to_string() }] } });
        world.pod("db-0").status = object::<Pod>(&ready).status;
        let after = status(&world.observed(), &Outcomes::default(), at(10));
        assert_eq!(after.requeue.map(|wait| wait.as_secs()), expected);
    }
}

#[test]
fn failed_creation_is_reported_unless_the_cache_or_the_namespace_explains_it() {
    let failure = |code, reason: &str, namespace_terminating| Failure {
        code,
        reason: reason.into(),
        message: "no".into(),
        namespace_terminating,
    };
    for (failure, expected) in [
        (failure(403, "Forbidden", false), true),
        (failure(403, "Forbidden", true), false),
        (failure(409, "AlreadyExists", false), false),
    ] {
        let world = World::new(set(1, &json!({})));
        let outcomes = Outcomes(vec![Outcome::success(), Outcome::failure(failure)]);
        let after = status(&world.observed(), &outcomes, T0);
        let is_event = |action: &Action| matches!(action, Action::Event(_));
        assert_eq!(after.actions.iter().any(is_event), expected, "{outcomes:?}");
    }
}

#[test]
fn revisions_of_pods_are_kept_beyond_the_history_limit() {
    let changes =
        json!({ "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } } });
    let mut world = World::rolled_out(set(2, &changes));
    for image in ["two", "three", "four"] {
        world.change_image(image);
        world.sync();
    }
    world.pod("db-0").meta.deletion = Some(T0);
    world.settle();
    world.change_image("five");
    world.set.spec.revision_history_limit = Some(0);
    world.settle();
    // The pods have the first and the fourth revision.
    let numbers: Vec<_> = world.revisions.iter().map(|revision| revision.revision).collect();
    assert_eq!(numbers, [1, 4, 5]);
}

#[test]
fn disabled_strategy_still_deletes_old_revisions() {
    let mut world = World::rolled_out(set(1, &json!({})));
    for image in ["two", "three"] {
        world.change_image(image);
        world.settle();
    }
    world.set.spec.update_strategy = set(1, &recreate()).spec.update_strategy;
    world.set.spec.revision_history_limit = Some(0);
    world.sync();
    let numbers: Vec<_> = world.revisions.iter().map(|revision| revision.revision).collect();
    assert_eq!(numbers, [3]);
}

#[test]
fn recreate_reports_its_progress() {
    let mut world = World::new(set(1, &recreate()));
    world.features = Features::of(&Gates::new(|_| true));
    world.settle();
    world.change_image("two");
    let mut seen = Vec::new();
    for n in 1..9 {
        world.now = at(n);
        world.sync();
        let condition = &world.set.status.conditions[0];
        let changed = condition.last_transition_time.unwrap().duration_since(T0).as_secs();
        let text = format!("{} {} since {changed}", condition.status, condition.message);
        if seen.last() != Some(&text) {
            seen.push(text);
        }
        // The old pod ends at second 3, and the new one starts at second 6.
        if n == 3 || n == 6 {
            world.run_pods();
        }
    }
    assert_eq!(
        seen,
        [
            "True Deleting old revision pods since 1",
            "True Waiting for new-revision pods to be created since 1",
            "False All pods recreated successfully since 7",
        ]
    );
}

#[test]
fn recreate_deletes_an_old_pod_once_and_no_pod_without_ordinal() {
    let mut world = World::new(set(2, &recreate()));
    world.features = Features::of(&Gates::new(|_| true));
    world.settle();
    world.change_image("two");
    world.pod("db-1").meta.deletion = Some(T0);
    let mut far = world.pods[0].clone();
    far.meta = evenkeel_api::Meta {
        owners: far.meta.owners,
        labels: far.meta.labels,
        ..meta("db-99999999999")
    };
    world.pods.push(far);
    world.log.clear();
    world.sync();
    let log = world.history();
    let deletions: Vec<_> = log.lines().filter(|line| line.starts_with("delete")).collect();
    assert_eq!(deletions, ["delete db-0"]);
}
