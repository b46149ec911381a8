//! Table and property tests of the disruptions that a budget allows.

use super::plan::{
    BudgetPods, DELETION_TIMEOUT, ExpectedPodCount, ExpectedPods, Observed, expected_pod_count,
    plan, sync, try_sync,
};
use crate::fixtures::{T0, at, label, meta, object, pod};
use evenkeel_api::{
    Meta,
    time::{Timestamp, seconds},
    views::{Pod, PodDisruptionBudget},
};
use evenkeel_runtime::plan::{Action, Failure, Outcome, Outcomes, Plan, Steps, lint};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// Returns a budget for the pods with the label `app=web`.
fn budget(spec: &Value, status: &Value) -> PodDisruptionBudget {
    let mut spec = spec.clone();
    spec["selector"] = json!({"matchLabels": {"app": "web"}});
    let body = json!({"metadata": {}, "spec": spec, "status": status});
    PodDisruptionBudget { meta: meta("budget"), ..object(&body) }
}

/// Returns the expected pods of owners with these replicas.
fn expected_pods(replicas: &[i32]) -> ExpectedPods {
    Ok(replicas.iter().enumerate().map(|(index, n)| (index.to_string().into(), *n)).collect())
}

/// Returns these numbers of ready and unready pods of an owner.
fn pods(ready: usize, unready: usize) -> Vec<Arc<Pod>> {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o", "controller": true}]);
    let owners = object::<Pod>(&json!({"metadata": {"ownerReferences": owner}})).meta.owners;
    let nth_pod = |n: usize| {
        let pod = pod(&format!("p{n:02}"), (n < ready).then_some(T0));
        Arc::new(Pod { meta: Meta { owners: owners.clone(), ..pod.meta.clone() }, ..pod })
    };
    (0..ready + unready).map(nth_pod).collect()
}

fn observed(
    spec: &Value,
    status: &Value,
    pods: Vec<Arc<Pod>>,
    owners: Option<ExpectedPods>,
) -> Observed {
    Observed { budget: Arc::new(budget(spec, status)), pods, expected_pods: owners }
}

#[test]
fn desired_healthy_follows_min_available_or_max_unavailable() {
    let count = |spec: Value, existing: usize, owners: Option<&[i32]>| {
        let observed = observed(&spec, &json!({}), pods(existing, 0), owners.map(expected_pods));
        let expected = expected_pod_count(&observed);
        expected.map(|ExpectedPodCount { pods, desired_healthy }| (pods, desired_healthy))
    };
    assert_eq!(count(json!({"minAvailable": 3}), 4, None), Ok((4, 3)));
    assert_eq!(count(json!({"minAvailable": "50%"}), 1, Some(&[5])), Ok((5, 3)), "rounded up");
    assert_eq!(
        count(json!({"minAvailable": "50%"}), 1, Some(&[2, 3])),
        Ok((5, 3)),
        "the sum of all owners"
    );
    assert_eq!(count(json!({"maxUnavailable": 1}), 1, Some(&[5])), Ok((5, 4)));
    assert_eq!(
        count(json!({"maxUnavailable": "30%"}), 1, Some(&[5])),
        Ok((5, 3)),
        "2 may be unavailable"
    );
    assert_eq!(count(json!({"maxUnavailable": 9}), 1, Some(&[5])), Ok((5, 0)));
    assert_eq!(count(json!({}), 3, None), Ok((0, 0)));
    assert!(count(json!({"minAvailable": "half"}), 1, Some(&[5])).is_err());
}

/// Returns the written status, and the reasons of events.
fn written(plan: &Plan) -> (Option<Value>, Vec<&str>) {
    assert!(lint(plan).is_empty(), "{plan:?}");
    let status = plan.actions.iter().find_map(|action| match action {
        Action::Update(update) => {
            assert_eq!(update.subresource, "status");
            let body: Value = serde_json::from_slice(&update.body).expect("JSON");
            Some(body["status"].clone())
        }
        _ => None,
    });
    let reasons = plan.actions.iter().filter_map(|action| match action {
        Action::Event(event) => Some(&*event.reason),
        _ => None,
    });
    (status, reasons.collect())
}

fn written_status(
    spec: &Value,
    status: &Value,
    pods: Vec<Arc<Pod>>,
    owners: Option<ExpectedPods>,
) -> Value {
    let plan = plan(&observed(spec, status, pods, owners), at(1));
    written(&plan).0.expect("it is written")
}

#[test]
fn healthy_pods_above_the_minimum_may_be_disrupted() {
    let spec = json!({"minAvailable": 2});
    let status = written_status(&spec, &json!({}), pods(3, 1), None);
    assert_eq!(status["disruptionsAllowed"], 1);
    assert_eq!((&status["currentHealthy"], &status["expectedPods"]), (&json!(3), &json!(4)));
    assert_eq!(status["conditions"][0]["reason"], "SufficientPods");
    assert_eq!(status["conditions"][0]["status"], "True");
    assert_eq!(status["observedGeneration"], 1);
    let few = written_status(&spec, &json!({}), pods(1, 3), None);
    assert_eq!(few["disruptionsAllowed"], 0);
    assert_eq!(few["conditions"][0]["reason"], "InsufficientPods");
    // If no pods are expected, no disruption is allowed, even if pods exist.
    let scaled = written_status(
        &json!({"maxUnavailable": 1}),
        &json!({}),
        pods(2, 0),
        Some(expected_pods(&[0])),
    );
    assert_eq!(scaled["disruptionsAllowed"], 0);
}

#[test]
fn disrupted_pods_are_not_healthy_until_the_timeout() {
    let spec = json!({"minAvailable": 1});
    let status = json!({"disruptedPods": {"p00": seconds(T0), "gone": seconds(T0)}});
    let early = plan(&observed(&spec, &status, pods(3, 0), None), at(30));
    let (counts, events) = written(&early);
    let counts = counts.expect("written");
    assert_eq!(counts["currentHealthy"], 2);
    assert_eq!(counts["disruptedPods"], json!({"p00": seconds(T0)}), "missing pods are removed");
    assert!(events.is_empty());
    assert_eq!(early.requeue, Some(Duration::from_secs(90)));
    // At exactly the timeout the pod counts as healthy and stays listed; after it, the pod is dropped.
    let (edge, _) = written(&plan(&observed(&spec, &status, pods(3, 0), None), at(120)));
    assert_eq!(edge.expect("written")["currentHealthy"], 3);
    let late = plan(&observed(&spec, &status, pods(3, 0), None), at(121));
    let (counts, events) = written(&late);
    let counts = counts.expect("written");
    assert_eq!((&counts["currentHealthy"], &counts["disruptedPods"]), (&json!(3), &Value::Null));
    assert_eq!(events, ["NotDeleted"]);
    assert_eq!(late.requeue, None);
}

#[test]
fn failed_pod_count_allows_no_disruptions() {
    let spec = json!({"maxUnavailable": 1});
    let error = "jobs.batch does not implement the scale subresource";
    let owners = || Some(Err(error.to_owned()));
    let status = json!({"disruptionsAllowed": 1, "expectedPods": 3, "observedGeneration": 1});
    let plan_now = plan(&observed(&spec, &status, pods(1, 0), owners()), T0);
    let (written_status, events) = written(&plan_now);
    let failed = written_status.expect("written");
    assert_eq!((&failed["disruptionsAllowed"], &failed["expectedPods"]), (&json!(0), &json!(3)));
    assert_eq!(failed["conditions"][0]["reason"], "SyncFailed");
    assert_eq!(failed["conditions"][0]["message"], error);
    assert_eq!(events, ["CalculateExpectedPodCountFailed"]);
    // The status is written only once.
    let again = plan(&observed(&spec, &failed, pods(1, 0), owners()), at(60));
    assert_eq!(written(&again).0, None);
}

#[test]
fn failed_status_update_falls_back_to_zero() {
    let status = json!({"disruptedPods": {"p00": seconds(T0)}, "disruptionsAllowed": 1});
    let budget = Arc::new(budget(&json!({"minAvailable": 1}), &status));
    let budget = BudgetPods { budget, pods: pods(3, 0), owners: Vec::new() };
    let next = |outcomes: &Outcomes| Steps::next(outcomes, |steps| sync(&budget, at(30), steps));
    let after = |outcome: Outcome| {
        let outcomes = Outcomes(vec![outcome]);
        let result = try_sync(&budget, at(30), &mut Steps::of(&outcomes)).expect("done");
        (next(&outcomes), result.recheck_after)
    };
    let first = next(&Outcomes::default()).expect("a step");
    assert_eq!(written(&first).0.expect("written")["disruptionsAllowed"], 1);
    assert_eq!(first.requeue, None, "the recheck queue has it");
    let failed = |code| Outcome::failure(Failure { code, ..Failure::local("no") });
    let (last, recheck_after) = after(Outcome::success());
    assert_eq!((last, recheck_after), (Some(Plan::nothing()), Some(Duration::from_secs(90))));
    assert_eq!(after(failed(409)).0, Some(Plan::failure("no")));
    let (fallback, _) = after(failed(500));
    let fallback = written(&fallback.expect("a step")).0.expect("written");
    assert_eq!(fallback["disruptionsAllowed"], 0);
    assert_eq!(fallback["conditions"][0]["message"], "no");
}

#[test]
fn pods_without_controller_are_reported() {
    let unmanaged_pods = || vec![Arc::new(pod("lone", Some(T0)))];
    let event_count = |spec: Value, owners| {
        let plan = plan(&observed(&spec, &json!({}), unmanaged_pods(), owners), T0);
        written(&plan).1.len()
    };
    assert_eq!(event_count(json!({"maxUnavailable": 1}), Some(expected_pods(&[]))), 1);
    assert_eq!(event_count(json!({"minAvailable": "10%"}), Some(expected_pods(&[]))), 1);
    assert_eq!(event_count(json!({"minAvailable": 1}), None), 0);
    let without_pods =
        plan(&observed(&json!({"minAvailable": 1}), &json!({}), Vec::new(), None), T0);
    assert_eq!(written(&without_pods).1, ["NoPods"]);
}

#[test]
fn event_has_the_selector_in_gos_format() {
    let lone = vec![Arc::new(Pod {
        meta: Meta { labels: label("app", "web"), ..meta("lone") },
        ..Pod::default()
    })];
    let plan = plan(
        &observed(&json!({"maxUnavailable": "30%"}), &json!({}), lone, Some(expected_pods(&[]))),
        T0,
    );
    let Action::Event(event) = &plan.actions[0] else { panic!("{plan:?}") };
    assert!(event.message.contains("(selector: &LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:[]LabelSelectorRequirement{},})"), "{}", event.message);
}

/// Returns the budget after the plan was written.
fn observed_after(observed: &Observed, now: Timestamp) -> Observed {
    let status = written(&plan(observed, now)).0;
    let mut budget = (*observed.budget).clone();
    if let Some(status) = status {
        budget.status = object::<PodDisruptionBudget>(&json!({"status": status})).status;
    }
    Observed {
        budget: Arc::new(budget),
        pods: observed.pods.clone(),
        expected_pods: observed.expected_pods.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn one_sync_converges(number in 0i32..6, percentage in 0i32..120, ready in 0usize..6, unready in 0usize..3, evicted in 0usize..4, is_percentage: bool, passed in 0i64..200) {
        let spec = if is_percentage { json!({"minAvailable": format!("{percentage}%")}) } else { json!({"minAvailable": number}) };
        let names: serde_json::Map<String, Value> = (0..evicted).map(|n| (format!("p{n:02}"), seconds(T0).into())).collect();
        let owners = is_percentage.then(|| expected_pods(&[i32::try_from(ready + unready).unwrap()]));
        let first = observed(&spec, &json!({"disruptedPods": names}), pods(ready, unready), owners);
        let second = observed_after(&first, at(passed));
        prop_assert_eq!(written(&plan(&second, at(passed))).0, None);
        let status = &second.budget.status;
        prop_assert!(status.disruptions_allowed >= 0);
        prop_assert!(status.current_healthy - status.disruptions_allowed >= status.desired_healthy.min(status.current_healthy));
        prop_assert!(status.current_healthy <= i32::try_from(ready).unwrap());
        let timeout = Duration::try_from(DELETION_TIMEOUT).unwrap();
        prop_assert!(plan(&second, at(passed)).requeue.is_none_or(|delay| delay <= timeout));
    }
}
