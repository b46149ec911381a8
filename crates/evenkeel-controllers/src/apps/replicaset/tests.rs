//! Tables, goldens and properties of a ReplicaSet's plan and status.

mod describe;

use super::{
    plan::{BURST_REPLICAS, Features, Observed, plan},
    status::status,
};
use crate::{
    apps::TERMINATING_REPLICAS_GATE,
    fixtures::{T0, at, label, object, owned_by, pod},
    needs::Gates,
};
use evenkeel_api::{
    shared::Shared,
    time::Timestamp,
    views::{Pod, ReplicaSet, ReplicationController},
};
use evenkeel_runtime::plan::{Action, Failure, Outcome, Outcomes, Plan};
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the ReplicaSet `web`, whose pods have the labels `app=web` and `tier=x`.
fn set(replicas: i32) -> ReplicaSet {
    object(&json!({
        "metadata": { "name": "web", "namespace": "ns", "uid": "set", "resourceVersion": "7", "generation": 2,
            "labels": { "app": "web" }, "annotations": { "a": "b" } },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web", "tier": "x" }, "finalizers": ["f/g"] },
                "spec": { "containers": [{ "name": "c", "image": "nginx" }] } } },
    }))
}

fn owned(set: &ReplicaSet, mut pod: Pod) -> Arc<Pod> {
    pod.meta.owners = owned_by(set);
    Arc::new(pod)
}

fn owned_pods(set: &ReplicaSet, n: usize) -> Vec<Arc<Pod>> {
    (0..n).map(|n| owned(set, pod(&format!("p{n}"), Some(T0)))).collect()
}

fn observed(set: ReplicaSet, pods: Vec<Arc<Pod>>) -> Observed<ReplicaSet> {
    Observed::new(Arc::new(set), pods, Vec::new, Features::of(&Gates::default()))
}

/// Formats a plan as lines: verb, object, and body or event.
fn format_plan(plan: &Plan) -> String {
    let mut lines: Vec<String> = plan.actions.iter().map(format_action).collect();
    lines.extend(plan.requeue.map(|after| format!("requeue after {after:?}")));
    lines.join("\n") + "\n"
}

fn format_action(action: &Action) -> String {
    let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
    match action {
        Action::Create(create) => {
            format!("create {} {} {}", create.count, create.kind.plural, text(&create.body))
        }
        Action::Delete(delete) => {
            format!("delete {} {}", delete.target.kind.plural, delete.target.name)
        }
        Action::Patch(patch) => format!(
            "patch {} {} {}",
            patch.target.kind.plural,
            patch.target.name,
            text(&patch.body)
        ),
        Action::Update(update) => {
            format!(
                "update {}/{} {}",
                update.target.kind.plural,
                update.subresource,
                text(&update.body)
            )
        }
        Action::Rewrite(rewrite) => {
            format!("rewrite {} {}", rewrite.target.kind.plural, text(&rewrite.body))
        }
        Action::Read(_) | Action::DeleteCollection(_) | Action::Local(_) => {
            unreachable!("not in a ReplicaSet's plan")
        }
        Action::Event(event) => format!("event {} {}", event.reason, event.message),
    }
}

#[track_caller]
fn check(plan: &Plan, golden: &Expect) {
    golden.assert_eq(&format_plan(plan));
}

#[test]
fn missing_pods_are_created_from_the_template() {
    let set = set(3);
    let pods = owned_pods(&set, 1);
    check(
        &plan(&observed(set, pods), T0),
        &expect![[r#"
            create 2 pods {"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-","namespace":"ns","labels":{"app":"web","tier":"x"},"finalizers":["f/g"],"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"set","controller":true,"blockOwnerDeletion":true}]},"spec":{"containers":[{"image":"nginx","name":"c"}]}}
        "#]],
    );
}

#[test]
fn matching_orphans_are_adopted_and_others_released() {
    let set = set(1);
    let mut stranger = pod("stranger", None);
    stranger.meta.labels = label("app", "other");
    let pods = vec![Arc::new(pod("orphan", None)), owned(&set, stranger)];
    check(
        &plan(&observed(set, pods), T0),
        &expect![[r#"
        patch pods orphan {"metadata":{"uid":"orphan","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"set","controller":true,"blockOwnerDeletion":true}]}}
        patch pods stranger {"metadata":{"uid":"stranger","ownerReferences":[{"$patch":"delete","uid":"set"}]}}
    "#]],
    );
}

#[test]
fn adopted_pod_is_not_deleted_in_the_same_sync() {
    let set = set(1);
    let pods = vec![owned(&set, pod("own", Some(T0))), Arc::new(pod("orphan", None))];
    check(
        &plan(&observed(set, pods), T0),
        &expect![[r#"
        patch pods orphan {"metadata":{"uid":"orphan","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"set","controller":true,"blockOwnerDeletion":true}]}}
    "#]],
    );
}

#[test]
fn deleted_set_changes_no_pods() {
    let mut set = set(3);
    set.meta.deletion = Some(T0);
    let pods = vec![Arc::new(pod("orphan", None))];
    assert_eq!(plan(&observed(set, pods), T0), Plan::nothing());
}

#[test]
fn invalid_selector_plans_nothing() {
    let mut value = json!({ "metadata": { "name": "web", "namespace": "ns", "uid": "u" }, "spec": { "replicas": 2 } });
    value["spec"]["selector"] = json!({ "matchExpressions": [{ "key": "a", "operator": "Near" }] });
    let observed = observed(object(&value), vec![Arc::new(pod("orphan", None))]);
    assert_eq!(plan(&observed, T0), Plan::nothing());
    assert_eq!(status(&observed, &Outcomes::default(), T0), Plan::nothing());
}

#[test]
fn status_counts_pods_and_requeues_for_availability() {
    let mut set = set(4);
    set.spec.min_ready_seconds = 30;
    let mut labelled = pod("full", Some(at(-31)));
    labelled.meta.labels = labelled.meta.labels.with("tier", "x");
    let mut terminating = pod("dying", Some(at(-100)));
    terminating.meta.deletion = Some(T0);
    let pods = vec![
        owned(&set, labelled),
        owned(&set, pod("young", Some(at(-10)))),
        owned(&set, pod("unready", None)),
        owned(&set, pod("younger", Some(at(-5)))),
        owned(&set, terminating),
    ];
    check(
        &status(&observed(set, pods), &Outcomes::default(), T0),
        &expect![[r#"
        update replicasets/status {"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"web","namespace":"ns","uid":"set","resourceVersion":"7","labels":{"app":"web"},"annotations":{"a":"b"}},"status":{"replicas":4,"fullyLabeledReplicas":1,"readyReplicas":3,"availableReplicas":1,"terminatingReplicas":1,"observedGeneration":2}}
        requeue after 20s
    "#]],
    );
}

fn forbidden(message: &str) -> Failure {
    Failure {
        code: 403,
        reason: "Forbidden".into(),
        message: message.into(),
        namespace_terminating: false,
    }
}

fn failed(failure: Failure) -> Outcomes {
    Outcomes(vec![Outcome::failure(failure)])
}

#[test]
fn failed_create_sets_replica_failure() {
    let outcomes = failed(forbidden("exceeded quota"));
    check(
        &status(&observed(set(2), Vec::new()), &outcomes, T0),
        &expect![[r#"
        update replicasets/status {"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"web","namespace":"ns","uid":"set","resourceVersion":"7","labels":{"app":"web"},"annotations":{"a":"b"}},"status":{"replicas":0,"fullyLabeledReplicas":0,"readyReplicas":0,"availableReplicas":0,"terminatingReplicas":0,"observedGeneration":2,"conditions":[{"type":"ReplicaFailure","status":"True","lastTransitionTime":"2026-09-21T14:13:20Z","reason":"FailedCreate","message":"exceeded quota"}]}}
    "#]],
    );
}

#[test]
fn failed_delete_sets_replica_failure() {
    let set = set(0);
    let pods = owned_pods(&set, 1);
    let body = status_of(&status(&observed(set, pods), &failed(forbidden("no")), T0)).unwrap();
    assert_eq!(body["conditions"][0]["reason"], "FailedDelete");
    assert_eq!(body["conditions"][0]["message"], "unable to delete pods: no");
}

#[test]
fn terminating_namespace_sets_no_replica_failure() {
    let failure = Failure { namespace_terminating: true, ..forbidden("terminating") };
    let plan = status(&observed(set(2), Vec::new()), &failed(failure), T0);
    assert_eq!(status_of(&plan).unwrap().get("conditions"), None);
}

#[test]
fn replica_failure_is_set_once_and_removed() {
    let mut failing = set(2);
    let first = status(&observed(failing.clone(), Vec::new()), &failed(forbidden("first")), T0);
    apply_status(&mut failing, &first);
    let again = status(&observed(failing.clone(), Vec::new()), &failed(forbidden("second")), at(9));
    assert_eq!(status_of(&again), None, "the condition is unchanged");
    let created = Outcomes(vec![Outcome::success()]);
    assert_eq!(status(&observed(failing.clone(), Vec::new()), &created, at(9)), Plan::nothing());
    let over = status(&observed(failing, Vec::new()), &Outcomes::default(), at(9));
    assert_eq!(status_of(&over).unwrap().get("conditions"), None);
}

#[test]
fn replication_controller_has_no_terminating_replicas() {
    let controller: ReplicationController = object(&json!({
        "metadata": { "name": "rc", "namespace": "ns", "uid": "rc", "resourceVersion": "3", "generation": 1 },
        "spec": { "replicas": 1, "selector": { "app": "web" },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [] } } },
    }));
    let features = Features::of(&Gates::default());
    let observed = Observed::new(Arc::new(controller), Vec::new(), Vec::new, features);
    let mut actions_and_status = plan(&observed, T0);
    actions_and_status.actions.extend(status(&observed, &Outcomes::default(), T0).actions);
    check(
        &actions_and_status,
        &expect![[r#"
        create 1 pods {"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"rc-","namespace":"ns","labels":{"app":"web"},"ownerReferences":[{"apiVersion":"v1","kind":"ReplicationController","name":"rc","uid":"rc","controller":true,"blockOwnerDeletion":true}]},"spec":{}}
        update replicationcontrollers/status {"apiVersion":"v1","kind":"ReplicationController","metadata":{"name":"rc","namespace":"ns","uid":"rc","resourceVersion":"3"},"status":{"replicas":0,"fullyLabeledReplicas":0,"readyReplicas":0,"availableReplicas":0,"observedGeneration":1}}
    "#]],
    );
}

fn status_of(plan: &Plan) -> Option<Value> {
    plan.actions.iter().find_map(|action| match action {
        Action::Update(update) => {
            serde_json::from_slice::<Value>(&update.body).unwrap().get("status").cloned()
        }
        _ => None,
    })
}

fn apply_status(set: &mut ReplicaSet, plan: &Plan) {
    if let Some(status) = status_of(plan) {
        set.status = object::<ReplicaSet>(&json!({ "status": status })).status;
    }
}

/// Acts as the API server: creates and deletes the plan's pods, and patches their owner references.
fn apply(set: &ReplicaSet, pods: &mut Vec<Arc<Pod>>, plan: &Plan, n_syncs: usize) {
    for action in &plan.actions {
        match action {
            Action::Create(create) => {
                for n in 0..create.count {
                    let mut created: Pod = object(&serde_json::from_slice(&create.body).unwrap());
                    let name = format!("{}{n_syncs}-{n}", created.meta.generate_name);
                    (created.meta.name, created.meta.uid) =
                        (name.as_str().into(), name.as_str().into());
                    pods.push(Arc::new(created));
                }
            }
            Action::Delete(delete) => pods.retain(|pod| *pod.meta.uid != *delete.target.uid),
            Action::Patch(patch) => {
                let adopts = patch.if_live.is_some();
                let pod = pods.iter_mut().find(|pod| *pod.meta.uid == *patch.target.uid).unwrap();
                Arc::make_mut(pod).meta.owners =
                    if adopts { owned_by(set) } else { Shared::default() };
            }
            other => panic!("a set does not {}", format_action(other)),
        }
    }
}

/// Returns pods of any owner, label, phase, node, age, deletion cost and readiness.
fn any_pods(set: &ReplicaSet) -> impl Strategy<Value = Vec<Arc<Pod>>> + use<> {
    let owners = owned_by(set);
    let pod_fields =
        (any::<[bool; 3]>(), 0..4usize, 0..3usize, -1_000_000..0i64, -99..99i32, 0..3i32);
    prop::collection::vec(pod_fields, 0..40).prop_map(move |pods| {
        let pods = pods.into_iter().enumerate().map(
            |(n, ([owned, matching, terminating], phase, node, age, cost, ready))| {
                let mut pod = pod(&format!("p{n}"), (ready > 0).then(|| at(age / 7)));
                pod.meta.creation = (age % 5 != 0).then(|| at(age));
                pod.meta.deletion = terminating.then_some(T0);
                pod.meta.labels = label("app", if matching { "web" } else { "other" });
                pod.meta.owners = if owned { owners.clone() } else { Shared::default() };
                pod.meta.annotations =
                    label("controller.kubernetes.io/pod-deletion-cost", &cost.to_string());
                pod.spec.node_name = ["", "a", "b"][node].into();
                pod.status.phase = ["Pending", "Running", "Failed", "Unknown"][phase].into();
                Arc::new(pod)
            },
        );
        pods.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn plans_converge(want in 0..1200i32, start in any_pods(&set(0)), more in 0..1200usize) {
        let mut set = set(want);
        let mut pods = start;
        pods.extend(owned_pods(&set, more).into_iter().map(|pod| {
            let mut pod = Pod::clone(&pod);
            pod.meta.uid = format!("more-{}", pod.meta.uid).into();
            pod.meta.name = pod.meta.uid.clone();
            Arc::new(pod)
        }));
        let mut n_syncs = 0;
        loop {
            let observed = observed(set.clone(), pods.clone());
            let next = plan(&observed, T0);
            prop_assert!(evenkeel_runtime::plan::lint(&next).is_empty());
            let status = status(&observed, &Outcomes::default(), T0);
            if next.is_nothing() && status.is_nothing() {
                break;
            }
            apply(&set, &mut pods, &next, n_syncs);
            apply_status(&mut set, &status);
            n_syncs += 1;
            prop_assert!(n_syncs < 20, "does not settle");
        }
        let is_active_and_owned = |pod: &&Arc<Pod>| crate::pods::is_active(pod) && pod.meta.is_controlled_by("set");
        prop_assert_eq!(pods.iter().filter(is_active_and_owned).count(), usize::try_from(want).unwrap());
        prop_assert_eq!(set.status.replicas, want);
        prop_assert_eq!(set.status.observed_generation, set.meta.generation);
    }

    #[test]
    fn plan_is_independent_of_pod_order(want in 0..20i32, (pods, shuffled) in any_pods(&set(0)).prop_flat_map(|pods| (Just(pods.clone()), Just(pods).prop_shuffle()))) {
        prop_assert_eq!(plan(&observed(set(want), pods), T0), plan(&observed(set(want), shuffled), T0));
    }

    #[test]
    fn burst_replicas_limit_each_sync(want in 0..5000i32, have in 0..1500usize) {
        let set = set(want);
        let pods = owned_pods(&set, have);
        let next = plan(&observed(set, pods), T0);
        let sizes = next.actions.iter().map(|action| match action {
            Action::Create(create) => create.count as usize,
            _ => 1,
        });
        let want = usize::try_from(want).unwrap();
        prop_assert_eq!(sizes.sum::<usize>(), want.abs_diff(have).min(BURST_REPLICAS));
    }
}

#[test]
fn pods_to_delete_follow_each_ranking_rule() {
    let base = || pod("base", Some(at(-1000)));
    let with = |name: &str, change: &dyn Fn(&mut Pod)| {
        let mut pod = base();
        (pod.meta.name, pod.meta.uid) = (name.into(), name.into());
        change(&mut pod);
        Arc::new(pod)
    };
    type Change = Box<dyn Fn(&mut Pod)>;
    let same = || -> Change { Box::new(|_| {}) };
    let ready = |since: Option<Timestamp>| -> Change {
        Box::new(move |pod| pod.status.conditions[0].last_transition_time = since)
    };
    let restarts = |container: &'static str, n: i32| -> Change {
        Box::new(move |pod| {
            let status = json!({ "status": { "containerStatuses": [{ "name": container, "restartCount": n }] } });
            pod.status.container_statuses = object::<Pod>(&status).status.container_statuses;
        })
    };
    let cost = |cost: &'static str| -> Change {
        Box::new(move |pod| {
            pod.meta.annotations = label("controller.kubernetes.io/pod-deletion-cost", cost);
        })
    };
    let table: Vec<(&str, Change, Change)> = vec![
        ("unassigned before assigned", Box::new(|pod| pod.spec.node_name = "".into()), same()),
        (
            "pending before unknown",
            Box::new(|pod| pod.status.phase = "Pending".into()),
            Box::new(|pod| pod.status.phase = "Unknown".into()),
        ),
        ("unknown before running", Box::new(|pod| pod.status.phase = "Unknown".into()), same()),
        ("not ready before ready", Box::new(|pod| pod.status.conditions = Box::default()), same()),
        ("lower deletion cost first", cost("-3"), same()),
        ("invalid deletion cost counts as 0", cost("-1"), cost("+7")),
        ("no Ready transition time first", ready(None), same()),
        ("ready for less time first", ready(Some(at(-10))), same()),
        ("more restarts first", restarts("c", 3), restarts("c", 2)),
        (
            "younger first",
            Box::new(|pod| pod.meta.creation = Some(at(-10))),
            Box::new(|pod| pod.meta.creation = Some(at(-100))),
        ),
        ("no creation time first", Box::new(|pod| pod.meta.creation = None), same()),
        ("same age bucket by uid", ready(Some(at(-900))), ready(Some(at(-800)))),
    ];
    for (rule, first, second) in table {
        // Names, which are also uids, would reverse the order, except in the rule about uids.
        let names = if rule.contains("uid") { ("a", "b") } else { ("z", "b") };
        let (first, second) = (with(names.0, &first), with(names.1, &second));
        for pods in [[first.clone(), second.clone()], [second, first.clone()]] {
            let chosen = crate::pod_deletion_ranking::pods_to_delete(&pods, &[], 1, true, T0);
            assert_eq!(chosen, std::slice::from_ref(&first), "{rule}");
        }
    }
}

#[test]
fn pods_colocated_on_a_node_are_deleted_first() {
    let on = |name: &str, node: &str| {
        let mut pod = pod(name, Some(T0));
        pod.spec.node_name = node.into();
        Arc::new(pod)
    };
    let pods = [on("a", "lonely"), on("z", "crowded")];
    let related = [on("a", "lonely"), on("z", "crowded"), on("y", "crowded")];
    assert_eq!(
        &*crate::pod_deletion_ranking::pods_to_delete(&pods, &related, 1, true, at(5))[0].meta.name,
        "z"
    );
}

#[test]
fn pod_deletion_cost_and_terminating_replicas_need_their_gates() {
    let with_deletion_cost = |name: &str, cost: &str| {
        let mut pod = pod(name, Some(T0));
        pod.meta.annotations =
            [("controller.kubernetes.io/pod-deletion-cost", cost)].into_iter().collect();
        pod
    };
    let mut terminating = pod("c", Some(T0));
    terminating.meta.deletion = Some(T0);
    let pods = [with_deletion_cost("a", "9"), with_deletion_cost("z", "-9"), terminating]
        .map(|pod| owned(&set(1), pod));
    let without_gates =
        Gates::new(|gate| !["PodDeletionCost", TERMINATING_REPLICAS_GATE].contains(&gate));
    for (gates, deleted, terminating_replicas) in
        [(Gates::default(), "z", json!(1)), (without_gates, "a", Value::Null)]
    {
        let mut observed = observed(set(1), pods.to_vec());
        observed.features = Features::of(&gates);
        let actions = plan(&observed, T0).actions;
        let [Action::Delete(delete)] = &actions[..] else { panic!("{actions:?}") };
        assert_eq!(&*delete.target.name, deleted);
        let after = status(&observed, &Outcomes::default(), T0);
        let Some(Action::Update(update)) = after.actions.first() else { panic!("{after:?}") };
        let body: Value = serde_json::from_slice(&update.body).unwrap();
        assert_eq!(body["status"]["terminatingReplicas"], terminating_replicas);
    }
}

#[test]
fn template_that_the_selector_does_not_match_creates_no_pods() {
    let mut set = set(3);
    set.spec.selector =
        object::<ReplicaSet>(&json!({"spec": {"selector": {"matchLabels": {"app": "nobody"}}}}))
            .spec
            .selector;
    let observed = observed(set, Vec::new());
    assert_eq!(plan(&observed, T0), Plan::nothing());
    let text = format_plan(&status(&observed, &Outcomes::default(), T0));
    assert!(text.contains("the selector does not match the template's labels"), "{text}");
}

#[test]
fn terminating_pods_count_if_the_set_owns_and_selects_them() {
    for (is_owned, matches, expected) in
        [(true, true, 1), (true, false, 0), (false, true, 0), (false, false, 0)]
    {
        let set = set(1);
        let mut terminating = pod("a", Some(T0));
        terminating.meta.deletion = Some(T0);
        terminating.meta.labels = label("app", if matches { "web" } else { "other" });
        let pod = if is_owned { owned(&set, terminating) } else { Arc::new(terminating) };
        assert_eq!(observed(set, vec![pod]).n_terminating, expected, "{is_owned} {matches}");
    }
}

/// Pods of related sets matter only for the choice which pods are deleted.
#[test]
fn related_pods_are_read_if_some_pods_but_not_all_are_deleted() {
    for (replicas, present, expected) in [
        (3, 3, false),
        (3, 2, false),
        (0, 3, false),
        (2, 3, true),
        (0, BURST_REPLICAS, false),
        (0, BURST_REPLICAS + 1, true),
    ] {
        let set = set(replicas);
        let pods = owned_pods(&set, present);
        let related = pods[..1].to_vec();
        let features = Features::of(&Gates::default());
        let observed = Observed::new(Arc::new(set), pods, || related, features);
        assert_eq!(!observed.related_pods.is_empty(), expected, "{replicas} {present}");
    }
}

#[test]
fn status_waits_for_pods_that_are_ready_unless_a_write_failed() {
    for (min_ready_seconds, ready_for, fails, expected) in [
        (30, 10, false, Some(20)),
        (30, 60, false, None),
        (0, 10, false, None),
        (30, 10, true, None),
    ] {
        let mut set = set(2);
        set.spec.min_ready_seconds = min_ready_seconds;
        let pods = vec![owned(&set, pod("a", Some(at(-ready_for))))];
        let outcomes = if fails { failed(forbidden("no")) } else { Outcomes::default() };
        let after = status(&observed(set, pods), &outcomes, T0);
        assert_eq!(after.requeue.map(|wait| wait.as_secs()), expected);
    }
}
