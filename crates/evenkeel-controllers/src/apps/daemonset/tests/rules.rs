//! Single rules: nodes, limits, revisions, status.

use super::*;
use crate::{
    apps::daemonset::{
        limits::RolloutLimits,
        nodes::{AffectedSets, may_affect_sets},
    },
    fixtures::{cached, label},
};
use evenkeel_runtime::{cache::CacheEvent, plan::Failure};

fn on_delete() -> DaemonSet {
    let mut set = set(&one_by_one());
    set.spec.update_strategy.type_ = "OnDelete".into();
    set
}

fn unready(world: &mut World, node: &str) {
    world.pod_on(node).status.conditions = Box::default();
}

/// Returns the nodes of the terminating pods, and those with two pods.
fn replaced(world: &World) -> (Vec<String>, Vec<String>) {
    let nodes_of = |pods: Vec<&Pod>| -> Vec<String> {
        pods.into_iter().map(|pod| target_node(pod).unwrap().to_owned()).collect()
    };
    let terminating = world.pods.iter().filter(|pod| pod.meta.deleting()).collect();
    let is_second = |pod: &&Pod| {
        let first = world.pods.iter().find(|other| target_node(other) == target_node(pod));
        first.is_some_and(|first| first.meta.uid != pod.meta.uid)
    };
    let second = world.pods.iter().filter(is_second).collect();
    (nodes_of(terminating), nodes_of(second))
}

#[test]
fn limits_are_rounded_up_and_not_both_0() {
    // `maxUnavailable`, `maxSurge`, desired pods, and the limits in nodes.
    for (unavailable, surge, desired, expected) in [
        (json!(0), json!(0), 3, (1, 0)),
        (json!(0), json!(0), 0, (0, 0)),
        (json!(0), json!(1), 3, (0, 1)),
        (json!(2), json!(0), 3, (2, 0)),
        (json!(2), json!(1), 3, (2, 1)),
        (json!("10%"), json!("40%"), 3, (1, 2)),
    ] {
        let rolling_update = json!({ "maxUnavailable": unavailable, "maxSurge": surge });
        let limits = RolloutLimits::resolve(&set(&rolling_update), desired);
        assert_eq!((limits.max_unavailable, limits.max_surge), expected, "{rolling_update}");
    }
}

#[test]
fn percentages_are_of_the_nodes_that_fit() {
    let mut world = World::rolled_out(set(&json!({ "maxUnavailable": "50%", "maxSurge": 0 })), 4);
    world.change_template(&template("two", &json!({})));
    world.sync();
    assert_eq!(replaced(&world).0, ["n0", "n1"]);
}

#[test]
fn pod_is_updated_by_its_revision_hash() {
    let mut daemonset = set(&one_by_one());
    daemonset.meta.annotations = Default::default();
    for (pod_hash, current, expected) in
        [("a", "a", true), ("a", "b", false), ("", "", false), ("", "a", false)]
    {
        let mut pod = Pod::default();
        pod.meta.labels = label(pods::REVISION_LABEL, pod_hash);
        assert_eq!(is_updated(&daemonset, &pod, current), expected, "{pod_hash} {current}");
    }
}

#[test]
fn orphaned_pods_and_revisions_are_adopted() {
    let mut world = World::rolled_out(set(&one_by_one()), 1);
    world.pods[0].meta.owners = Shared::default();
    world.revisions[0].meta.owners = Shared::default();
    let mut stranger = world.revisions[0].clone();
    (stranger.meta.name, stranger.meta.labels) = ("log-other".into(), label("app", "other"));
    world.revisions.push(stranger);
    world.settle();
    check(
        &world,
        &expect![[r#"
            patch revision 0
            patch log-n0-2
        "#]],
    );
}

#[test]
fn old_revision_without_hash_gets_its_name_as_hash() {
    let mut world = World::rolled_out(set(&one_by_one()), 1);
    world.change_template(&template("two", &json!({})));
    world.settle();
    let old = &mut world.revisions[0].meta;
    old.labels = label("app", "log");
    let name = old.name.clone();
    world.settle();
    assert_eq!(world.revisions[0].meta.labels.get(pods::REVISION_LABEL), Some(&*name));
}

#[test]
fn ignored_set_has_no_history() {
    let has_history = |change: fn(&mut DaemonSet)| {
        let mut world = World::new(set(&one_by_one()), 1);
        change(&mut world.set);
        !world.observed().history.current_hash().is_empty()
    };
    assert!(has_history(|_| {}));
    assert!(!has_history(|set| set.meta.deletion = Some(T0)));
    assert!(!has_history(|set| {
        set.spec.selector = evenkeel_api::selector::Selector::everything();
    }));
}

#[test]
fn newest_revision_is_the_one_of_the_highest_number() {
    let mut world = World::rolled_out(set(&one_by_one()), 1);
    for image in ["two", "three"] {
        world.change_template(&template(image, &json!({})));
        world.settle();
    }
    world.revisions.reverse();
    world.change_template(&template("four", &json!({})));
    world.sync();
    assert_eq!(world.revisions.last().unwrap().revision, 4);
}

#[test]
fn earliest_backoff_requeues() {
    let mut world = World::rolled_out(set(&one_by_one()), 3);
    let key = |node: &str| crate::apps::daemonset::backoff::BackoffKey {
        set: "set".into(),
        observed_generation: 1,
        node: node.into(),
    };
    let mut backoff = Backoff::default();
    // Each failure doubles the delay.
    for node in ["n0", "n0", "n0", "n1", "n2", "n2"] {
        backoff.record(key(node), T0);
    }
    for node in ["n0", "n1", "n2"] {
        world.pod_on(node).status.phase = "Failed".into();
    }
    let (next, _) = plan(&world.observed(), &backoff, T0);
    assert_eq!(next.requeue.map(|wait| wait.as_secs()), Some(1));
    assert!(next.actions.is_empty(), "{:?}", next.actions);
}

#[test]
fn surging_set_replaces_a_finished_pod_at_once() {
    for (rolling_update, taint, creates) in [
        (surging(&json!(1)), json!({}), true),
        (surging(&json!(1)), tainted("NoSchedule"), false),
        (one_by_one(), json!({}), false),
    ] {
        let mut world = World::rolled_out(set(&rolling_update), 1);
        world.nodes[0] = node("n0", &taint);
        world.pod_on("n0").status.phase = "Succeeded".into();
        world.sync();
        let created = if creates { vec!["n0".to_owned()] } else { Vec::new() };
        assert_eq!(replaced(&world), (vec!["n0".to_owned()], created), "{taint}");
    }
}

#[test]
fn only_the_first_pod_waits_for_the_revision() {
    let world = World::new(set(&one_by_one()), 3);
    let (plan, _) = plan(&world.observed(), &Backoff::default(), T0);
    let waits = plan.actions.iter().filter_map(|action| match action {
        Action::Create(create) if &*create.kind.kind == "Pod" => {
            Some(create.waits_for_earlier_creates)
        }
        _ => None,
    });
    assert_eq!(waits.collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn surge_counts_nodes_with_two_pods() {
    let mut world = World::rolled_out(set(&surging(&json!(1))), 2);
    world.change_template(&template("two", &json!({})));
    world.sync();
    assert_eq!(replaced(&world), (vec![], vec!["n0".to_owned()]));
    // The new pod is not available yet.
    world.sync();
    assert_eq!(replaced(&world), (vec![], vec!["n0".to_owned()]));
    world.run_pods();
    world.sync();
    assert_eq!(replaced(&world), (vec!["n0".to_owned()], vec!["n0".to_owned()]));
    world.run_pods();
    world.sync();
    assert_eq!(replaced(&world), (vec![], vec!["n1".to_owned()]));
}

#[test]
fn surge_counts_a_node_with_two_pods_of_the_template() {
    let mut world = World::rolled_out(set(&surging(&json!(1))), 2);
    world.change_template(&template("two", &json!({})));
    // A pod of an earlier revision has the present template generation.
    let generation = world.set.meta.generation.to_string();
    let pod = world.pod_on("n0");
    pod.meta.labels = pod.meta.labels.with("pod-template-generation", &generation);
    let mut twin = pod.clone();
    (twin.meta.name, twin.meta.uid, twin.meta.creation) =
        ("twin".into(), "twin".into(), Some(at(99)));
    twin.status.conditions = Box::default();
    world.pods.push(twin);
    let hash = world.observed().history.current_hash().to_owned();
    let twin = world.pods.last_mut().unwrap();
    twin.meta.labels = twin.meta.labels.with(pods::REVISION_LABEL, &hash);
    let (plan, _) = plan(&world.observed(), &Backoff::default(), T0);
    let is_pod = |action: &&Action| match action {
        Action::Create(create) => &*create.kind.kind == "Pod",
        Action::Delete(_) => true,
        _ => false,
    };
    assert_eq!(plan.actions.iter().filter(is_pod).count(), 0, "{:?}", plan.actions);
}

#[test]
fn surge_deletes_misplaced_pods_while_enough_others_are_available() {
    // Nodes without an available pod, and the nodes of the deleted pods. The node `n0` no longer fits.
    for (unavailable, expected) in
        [(&[][..], &["n0"][..]), (&["n1"], &[]), (&["n0"], &["n0"]), (&["n0", "n1"], &["n0"])]
    {
        let mut world = World::rolled_out(set(&surging(&json!(1))), 3);
        world.nodes[0] = node("n0", &tainted("NoSchedule"));
        for node in unavailable {
            unready(&mut world, node);
        }
        world.change_template(&template("two", &json!({})));
        world.sync();
        assert_eq!(replaced(&world).0, expected, "{unavailable:?}");
    }
}

#[test]
fn history_is_cleaned_up_unless_an_action_failed() {
    let failure = |namespace_terminating| {
        Outcome::failure(Failure {
            code: 403,
            reason: "Forbidden".into(),
            message: "no".into(),
            namespace_terminating,
        })
    };
    for (outcome, deleted) in [(Outcome::success(), 1), (failure(false), 0), (failure(true), 1)] {
        let mut world = World::rolled_out(set(&one_by_one()), 1);
        world.change_template(&template("two", &json!({})));
        world.settle();
        world.set.spec.revision_history_limit = Some(0);
        let after = status(&world.observed(), &Outcomes(vec![outcome]), T0);
        let is_deletion = |action: &&Action| matches!(action, Action::Delete(_));
        assert_eq!(after.actions.iter().filter(is_deletion).count(), deleted);
    }
}

#[test]
fn revisions_of_pods_are_kept_beyond_the_history_limit() {
    let mut world = World::rolled_out(on_delete(), 1);
    for image in ["two", "three"] {
        world.change_template(&template(image, &json!({})));
        world.settle();
    }
    world.set.spec.revision_history_limit = Some(0);
    world.settle();
    let numbers: Vec<_> = world.revisions.iter().map(|revision| revision.revision).collect();
    assert_eq!(numbers, [1, 3]);
}

#[test]
fn revision_name_collision_increments_collision_count() {
    let mut world = World::new(set(&one_by_one()), 1);
    world.sync();
    assert_eq!(world.set.status.collision_count, None);
    let mut taken = world.revisions[0].clone();
    taken.meta.owners = Shared::default();
    taken.meta.labels = Default::default();
    taken.data = Default::default();
    let mut world = World::new(set(&one_by_one()), 1);
    world.revisions.push(taken);
    world.settle();
    assert_eq!(world.set.status.collision_count, Some(1));
    assert_eq!(world.revisions.len(), 2);
}

#[test]
fn status_is_written_if_any_count_differs() {
    type Change = fn(&mut World);
    let table: [(&str, Change, bool); 12] = [
        ("nothing", |_| {}, false),
        ("desired", |w| w.set.status.desired_number_scheduled += 1, true),
        ("current", |w| w.set.status.current_number_scheduled += 1, true),
        ("misscheduled", |w| w.set.status.number_misscheduled += 1, true),
        ("ready", |w| w.set.status.number_ready += 1, true),
        ("updated", |w| w.set.status.updated_number_scheduled += 1, true),
        ("available", |w| w.set.status.number_available += 1, true),
        ("unavailable", |w| w.set.status.number_unavailable += 1, true),
        ("collisions", |w| w.set.status.collision_count = Some(1), false),
        ("an earlier generation", |w| w.set.status.observed_generation -= 1, true),
        ("the generation", |w| w.set.meta.generation += 1, true),
        ("a later generation", |w| w.set.status.observed_generation += 1, false),
    ];
    for (rule, change, expected) in table {
        let mut world = World::rolled_out(set(&one_by_one()), 2);
        let before = world.set.status.clone();
        change(&mut world);
        assert_eq!(world.sync(), expected, "{rule}");
        if rule != "the generation" && expected {
            assert_eq!(world.set.status, before, "{rule}");
        }
    }
}

#[test]
fn status_counts_nodes_without_an_available_pod() {
    let mut world = World::rolled_out(set(&one_by_one()), 3);
    unready(&mut world, "n1");
    world.sync();
    let status = &world.set.status;
    assert_eq!((status.number_available, status.number_unavailable), (2, 1));
}

#[test]
fn status_waits_only_for_pods_that_are_ready() {
    for (min_ready_seconds, now, expected) in [(30, 10, Some(20)), (30, 60, None), (0, 10, None)] {
        let mut world = World::rolled_out(set(&one_by_one()), 1);
        world.set.spec.min_ready_seconds = min_ready_seconds;
        let after = status(&world.observed(), &Outcomes::default(), at(now));
        assert_eq!(after.requeue.map(|wait| wait.as_secs()), expected);
    }
}

#[test]
fn deleted_pod_of_a_missing_node_is_deleted_once() {
    let mut world = World::new(set(&one_by_one()), 1);
    world.sync();
    world.nodes.clear();
    world.log.clear();
    world.sync();
    world.sync();
    let log = world.history();
    assert_eq!(log.matches("delete log-n0-2").count(), 1, "{log}");
}

#[test]
fn node_affects_sets_when_it_appears_ends_or_changes_labels_or_taints() {
    let plain = || Arc::new(node("n0", &json!({})));
    let with_taint = || Arc::new(node("n0", &tainted("NoSchedule")));
    let labelled = || Arc::new(node("n0", &json!({ "metadata": { "name": "n0" } })));
    for (event, expected) in [
        (CacheEvent::Added { object: plain(), initial: false }, true),
        (CacheEvent::Added { object: plain(), initial: true }, false),
        (CacheEvent::Updated { old: plain(), new: plain() }, false),
        (CacheEvent::Updated { old: plain(), new: with_taint() }, true),
        (CacheEvent::Updated { old: plain(), new: labelled() }, true),
        (CacheEvent::Deleted(plain()), true),
    ] {
        assert_eq!(may_affect_sets(&event), expected, "{event:?}");
    }
}

/// Upstream: `syncNodeUpdate`.
#[tokio::test(start_paused = true)]
async fn node_enqueues_the_sets_whose_pods_it_gets_or_loses() {
    let set = |name: &str, misscheduled: i32, selector: Value| {
        json!({
            "metadata": { "name": name, "namespace": "ns", "uid": name },
            "spec": { "template": template("one", &json!({ "nodeSelector": selector })) },
            "status": { "numberMisscheduled": misscheduled },
        })
    };
    let (any, elsewhere) = (json!({}), json!({ "disk": "none" }));
    let sets = vec![
        set("runs-there", 0, any.clone()),
        set("runs-there-and-misscheduled", 1, any.clone()),
        set("runs-there-and-does-not-fit", 0, elsewhere.clone()),
        set("fits", 0, any),
        set("does-not-fit", 0, elsewhere),
    ];
    let pod = |owner: (&str, &str), node: &str| {
        json!({
            "metadata": { "name": format!("{}-{node}", owner.1), "namespace": "ns", "uid": format!("{}-{node}", owner.1),
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": owner.0, "name": owner.1, "uid": owner.1, "controller": true }] },
            "spec": { "nodeName": node },
        })
    };
    let mut pods: Vec<Value> =
        ["runs-there", "runs-there-and-misscheduled", "runs-there-and-does-not-fit"]
            .into_iter()
            .flat_map(|name| [pod(("DaemonSet", name), "n0"), pod(("DaemonSet", name), "gone")])
            .collect();
    // An owner of another kind may have the same name, and pods of other nodes do not count.
    pods.extend([pod(("ReplicaSet", "does-not-fit"), "n0"), pod(("DaemonSet", "fits"), "n1")]);
    let nodes = vec![json!({ "metadata": { "name": "n0", "uid": "n0" } })];
    let lists =
        [("/apis/apps/v1/daemonsets", sets), ("/api/v1/pods", pods), ("/api/v1/nodes", nodes)];
    let operators = TolerationOperators::with_comparison(true);
    let affected = cached(lists, |caches| {
        let (sets, nodes, pods) =
            (caches.of::<DaemonSet>(), caches.of::<Node>(), caches.of::<Pod>());
        AffectedSets::new(&sets, &nodes, &pods, operators)
    })
    .await;
    for (node, expected) in [
        ("n0", &["fits", "runs-there-and-does-not-fit", "runs-there-and-misscheduled"][..]),
        ("gone", &["runs-there", "runs-there-and-does-not-fit", "runs-there-and-misscheduled"]),
        ("n1", &["fits"]),
        ("unknown", &[]),
    ] {
        let mut keys = Vec::new();
        affected.enqueue(node, |key| keys.push(key.name.to_string()));
        keys.sort();
        assert_eq!(keys, expected, "{node}");
    }
}
