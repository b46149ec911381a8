//! Tables of the rules, and a simulated API server on which any write may fail and any sync may end early.

use super::{
    backoff::Failures,
    end::is_finished,
    manage::PodChange,
    observed::Observed,
    plan::{Decision, plan},
    pod::{COMPLETION_INDEX, FINALIZER, INDEX_FAILURE_COUNT},
    status::status,
};
use crate::fixtures::{T0, at, object, owned_by};
use evenkeel_api::{
    Text, View,
    time::Timestamp,
    views::{Job, JobCondition, Pod},
};
use evenkeel_runtime::plan::{Action, Failure, OnError, Outcome, Outcomes, Plan, lint};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Returns the Job `work`. The fields of `spec` replace its own.
fn job(spec: &Value) -> Job {
    let mut body = json!({
        "metadata": { "name": "work", "namespace": "ns", "uid": "job", "generation": 1 },
        "spec": {
            "parallelism": 1, "backoffLimit": 6,
            "selector": { "matchLabels": { "job": "work" } },
            "template": {
                "metadata": { "labels": { "job": "work" } },
                "spec": { "containers": [{ "name": "c", "image": "i" }], "restartPolicy": "Never" },
            },
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        body["spec"][key] = value.clone();
    }
    object(&body)
}

/// Returns a pod of the Job with the finalizer, created at [`T0`].
fn pod(job: &Job, name: &str, index: Option<u32>, phase: &str) -> Pod {
    let index =
        index.map(|index| json!({ COMPLETION_INDEX: index.to_string() })).unwrap_or(json!({}));
    let mut pod: Pod = object(&json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "finalizers": [FINALIZER],
            "labels": { "job": "work" }, "annotations": index, "creationTimestamp": T0.to_string(),
        },
        "status": { "phase": phase },
    }));
    pod.meta.owners = owned_by(job);
    pod
}

fn observed(job: &Job, pods: &[Pod]) -> Observed {
    observed_with_failures(job, pods, None)
}

fn observed_with_failures(job: &Job, pods: &[Pod], earlier: Option<&Failures>) -> Observed {
    Observed::new(Arc::new(job.clone()), pods.iter().cloned().map(Arc::new), earlier, true)
}

/// Returns a pod that failed so long ago that its backoff is over.
fn failed_long_ago(job: &Job, name: &str, index: Option<u32>) -> Pod {
    let mut pod = pod(job, name, index, "Failed");
    pod.meta.creation = Some(at(-10_000));
    pod
}

#[test]
fn parallelism_and_completions_limit_created_pods() {
    // Spec, active pods, succeeded pods, and the number of pods to create.
    let table = [
        (json!({ "parallelism": 3, "completions": 5 }), 0, 0, 3),
        (json!({ "parallelism": 3, "completions": 5 }), 1, 4, 0),
        (json!({ "parallelism": 3, "completions": 5 }), 0, 4, 1),
        (json!({ "parallelism": 3 }), 0, 0, 3),
        (json!({ "parallelism": 3 }), 1, 0, 2),
        (json!({ "parallelism": 3 }), 1, 1, 0),
        (json!({ "parallelism": 0, "completions": 5 }), 0, 0, 0),
        (json!({ "parallelism": 3, "completions": 5, "suspend": true }), 0, 0, 0),
        (json!({ "parallelism": 1000, "completions": 1000 }), 0, 0, 500),
    ];
    for (spec, active, succeeded, expected) in table {
        let mut job = job(&spec);
        job.status.succeeded = succeeded;
        let pods: Vec<Pod> =
            (0..active).map(|n| pod(&job, &format!("p{n}"), None, "Running")).collect();
        let observed = observed(&job, &pods);
        let created = match Decision::new(&observed, T0).pod_change {
            Some(PodChange::Create(indexes)) => indexes.len(),
            _ => 0,
        };
        assert_eq!(created, expected, "{spec} with {active} active and {succeeded} succeeded");
    }
}

#[test]
fn failed_job_has_reason_and_message() {
    let policy = json!({ "podFailurePolicy": { "rules": [
        { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
        { "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } },
    ] } });
    let exited = |job: &Job, code: i32| {
        let mut pod = failed_long_ago(job, "p", None);
        pod.status.container_statuses = object::<Pod>(&json!({ "status": { "containerStatuses": [
            { "name": "c", "state": { "terminated": { "exitCode": code } } }
        ] } }))
        .status
        .container_statuses;
        pod
    };
    let check_end = |job: &Job, pods: &[Pod], expected: Option<(&str, &str)>| {
        let observed = observed(job, pods);
        let decision = Decision::new(&observed, T0);
        let end = decision.end.as_ref().map(|end| (&*end.reason, &*end.message));
        assert_eq!(end, expected);
    };
    let limited = job(&json!({ "backoffLimit": 0 }));
    let limit = ("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    check_end(&limited, &[failed_long_ago(&limited, "p", None)], Some(limit));
    check_end(&limited, &[pod(&limited, "p", None, "Running")], None);
    let strict = job(&policy);
    let message =
        "Container c for pod ns/p failed with exit code 42 matching FailJob rule at index 1";
    check_end(&strict, &[exited(&strict, 42)], Some(("PodFailurePolicy", message)));
    check_end(&strict, &[exited(&strict, 1)], None);
    let mut late = job(&json!({ "activeDeadlineSeconds": 60 }));
    late.status.start_time = Some(at(-60));
    let deadline = ("DeadlineExceeded", "Job was active longer than specified deadline");
    check_end(&late, &[], Some(deadline));
    late.status.start_time = Some(at(-59));
    check_end(&late, &[], None);
    let mut endless = job(&json!({ "activeDeadlineSeconds": i64::MAX }));
    for start in [-60, 0, 60] {
        endless.status.start_time = Some(at(start));
        check_end(&endless, &[], None);
    }
}

#[test]
fn pod_failure_policy_ignore_does_not_count() {
    let job = job(&json!({ "backoffLimit": 0, "podFailurePolicy": { "rules": [
        { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
    ] } }));
    let mut evicted = failed_long_ago(&job, "p", None);
    evicted.status.conditions = object::<Pod>(&json!({ "status": { "conditions": [
        { "type": "DisruptionTarget", "status": "True" }
    ] } }))
    .status
    .conditions;
    let observed = observed(&job, &[evicted]);
    let decision = Decision::new(&observed, T0);
    assert_eq!(
        (decision.end.is_none(), decision.finalizers_to_remove.len(), observed.counts.failed),
        (true, 1, 0)
    );
}

#[test]
fn failed_pods_are_replaced_after_the_backoff() {
    let job = job(&json!({ "completions": 1 }));
    let failed = |name: &str, seconds: i64| {
        let mut pod = pod(&job, name, None, "Failed");
        pod.meta.creation = Some(at(seconds));
        pod
    };
    let pod_change =
        |pods: &[Pod]| format!("{:?}", Decision::new(&observed(&job, pods), T0).pod_change);
    assert_eq!(pod_change(&[failed("a", -4)]), "Some(BackOff(6s))");
    assert_eq!(pod_change(&[failed("a", -30), failed("b", -4)]), "Some(BackOff(16s))");
    assert_eq!(pod_change(&[failed("a", -30), failed("b", -20)]), "Some(Create([None]))");
}

#[test]
fn backoff_counts_failures_of_removed_pods() {
    let job = job(&json!({ "completions": 9, "podReplacementPolicy": "TerminatingOrFailed" }));
    let mut failures: Option<Failures> = None;
    let mut pod_change_at = |pods: &[Pod], now: Timestamp| {
        let observed = observed_with_failures(&job, pods, failures.as_ref());
        failures = Some(observed.failures.clone());
        format!("{:?}", Decision::new(&observed, now).pod_change)
    };
    for (seconds, wait) in [(0, 10), (100, 20), (200, 40)] {
        let mut evicted = pod(&job, &format!("p{seconds}"), None, "Running");
        evicted.meta.deletion = Some(at(seconds));
        let backs_off = format!("Some(BackOff({wait}s))");
        assert_eq!(pod_change_at(&[evicted.clone()], at(seconds)), backs_off);
        assert_eq!(pod_change_at(&[evicted.clone()], at(seconds)), backs_off, "counted once");
        evicted.meta.finalizers = Default::default();
        assert_eq!(pod_change_at(&[evicted], at(seconds)), backs_off, "the finalizer is removed");
        assert_eq!(pod_change_at(&[], at(seconds)), backs_off, "the pod is removed");
    }
    assert_eq!(pod_change_at(&[], at(240)), "Some(Create([None]))");
    let success = pod(&job, "s", None, "Succeeded");
    assert_eq!(
        pod_change_at(&[success], at(201)),
        "Some(Create([None]))",
        "a success resets the backoff"
    );
}

#[test]
fn pods_deleted_by_suspend_cause_no_backoff() {
    let job = job(&json!({ "completions": 1, "podReplacementPolicy": "TerminatingOrFailed" }));
    let mut stopped = pod(&job, "p", None, "Running");
    stopped.meta.finalizers = Default::default();
    stopped.meta.deletion = Some(T0);
    for (phase, earlier) in
        [("Running", None), ("Running", Some(Failures::default())), ("Failed", None)]
    {
        stopped.status.phase = phase.into();
        let observed =
            observed_with_failures(&job, std::slice::from_ref(&stopped), earlier.as_ref());
        assert_eq!(
            Decision::new(&observed, T0).pod_change,
            Some(PodChange::Create(vec![None])),
            "{phase}"
        );
    }
}

#[test]
fn indexed_pod_is_created_after_the_backoff_of_its_index() {
    let job = job(&json!({
        "completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimitPerIndex": 1,
    }));
    let mut recently_failed = pod(&job, "b", Some(1), "Failed");
    recently_failed.meta.creation = Some(at(-4));
    let pods = [
        pod(&job, "a", Some(0), "Succeeded"),
        recently_failed,
        failed_long_ago(&job, "c", Some(2)),
        pod(&job, "d", Some(3), "Running"),
    ];
    let observed = observed(&job, &pods);
    let decision = Decision::new(&observed, T0);
    assert_eq!(decision.pod_change, Some(PodChange::Create(vec![Some(2)])));
    // Failed pods keep the finalizer until their index has a new pod, the succeeded one until the status records it.
    assert!(decision.finalizers_to_remove.is_empty());
    let created = plan(&observed, &decision, T0);
    let Some(Action::Create(create)) = created.actions.first() else { panic!("{created:?}") };
    let body: Value = serde_json::from_slice(&create.body).unwrap();
    assert_eq!(body["metadata"]["generateName"], "work-2-");
    assert_eq!(body["metadata"]["annotations"][COMPLETION_INDEX], "2");
    assert_eq!(body["metadata"]["annotations"][INDEX_FAILURE_COUNT], "1");
    assert_eq!(body["metadata"]["labels"][COMPLETION_INDEX], "2");
    assert_eq!(body["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(body["spec"]["hostname"], "work-2");
    assert_eq!(body["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
}

#[test]
fn pods_with_duplicate_or_invalid_indexes_are_deleted() {
    let job = job(&json!({ "completionMode": "Indexed", "completions": 2, "parallelism": 2 }));
    let pods = [
        pod(&job, "a", Some(0), "Running"),
        pod(&job, "b", Some(0), "Pending"),
        pod(&job, "c", Some(5), "Running"),
        pod(&job, "d", None, "Running"),
    ];
    let observed = observed(&job, &pods);
    let decision = Decision::new(&observed, T0);
    let mut deleted: Vec<&str> =
        decision.pods_to_delete(&observed).iter().map(|pod| &*pod.meta.name).collect();
    deleted.sort_unstable();
    assert_eq!(deleted, ["b", "c", "d"]);
}

#[test]
fn pods_ready_for_less_time_are_deleted_first() {
    let job = job(&json!({ "parallelism": 1 }));
    let ready = |name: &str, since: i64, cost: &str| {
        let mut pod = pod(&job, name, None, "Running");
        pod.status.conditions = object::<Pod>(&json!({ "status": { "conditions": [
            { "type": "Ready", "status": "True", "lastTransitionTime": at(since).to_string() },
        ] } }))
        .status
        .conditions;
        pod.meta.annotations =
            [("controller.kubernetes.io/pod-deletion-cost", cost)].into_iter().collect();
        pod
    };
    // A ReplicaSet would treat these ages as equal and keep the pod with the highest deletion cost.
    let pods = [ready("a", -800, "-5"), ready("b", -900, "-5"), ready("c", -799, "100")];
    let observed = observed(&job, &pods);
    let decision = Decision::new(&observed, T0);
    let mut deleted: Vec<&str> =
        decision.pods_to_delete(&observed).iter().map(|pod| &*pod.meta.name).collect();
    deleted.sort_unstable();
    assert_eq!(deleted, ["a", "c"]);
}

#[test]
fn no_pod_is_deleted_before_all_finalizers_are_removed() {
    let mut model = Model::new(job(&json!({ "parallelism": 2, "backoffLimit": 0 })), Vec::new());
    model.settle();
    model.job.spec.suspend = true;
    // Removing the second of the two finalizers fails.
    model.write_results = vec![true, false, true];
    model.sync();
    assert!(model.pods.values().all(crate::pods::is_active), "{:?}", model.pods);
    assert_eq!((n_tracked(&model), model.job.status.active), (1, 2));
    model.settle();
    assert_eq!(model.pods.len(), 0);
    assert_eq!((model.job.status.failed, model.conditions()), (0, vec!["Suspended"]));
}

#[test]
fn job_of_another_controller_is_ignored() {
    for (manager, ignored) in
        [("", false), ("kubernetes.io/job-controller", false), ("kueue.x-k8s.io/multikueue", true)]
    {
        let job = job(&json!({ "managedBy": manager }));
        assert_eq!(super::end::is_ignored(&job), ignored, "{manager}");
    }
}

/// A simulated API server with one Job and its pods.
struct Model {
    job: Job,
    pods: BTreeMap<Text, Pod>,
    created: usize,
    now: Timestamp,
    /// Results of the next writes, in reverse order: `false` makes one fail.
    write_results: Vec<bool>,
    /// Number of pods that succeeded in the simulation.
    n_succeeded: i32,
    /// Number of pods that failed in the simulation.
    n_failed: i32,
    events: Vec<String>,
    /// The controller's memory, until it crashes.
    failures: Option<Failures>,
}

impl Model {
    fn new(job: Job, write_results: Vec<bool>) -> Self {
        Self {
            job,
            pods: BTreeMap::new(),
            created: 0,
            now: T0,
            write_results,
            n_succeeded: 0,
            n_failed: 0,
            events: Vec::new(),
            failures: None,
        }
    }

    /// Runs one sync, which may crash before it writes the status. Returns whether it wrote anything or crashed.
    fn sync(&mut self) -> bool {
        if super::end::is_ignored(&self.job) {
            return false;
        }
        let pods: Vec<Pod> = self.pods.values().cloned().collect();
        let observed = observed_with_failures(&self.job, &pods, self.failures.as_ref());
        self.failures = Some(observed.failures.clone());
        let decision = Decision::new(&observed, self.now);
        let planned = plan(&observed, &decision, self.now);
        assert_eq!(lint(&planned), Vec::<String>::new());
        let outcomes = self.run(&planned);
        if self.write_results.pop() == Some(false) {
            self.failures = None;
            return true;
        }
        let after = status(&observed, &decision, &outcomes, self.now);
        for action in &after.actions {
            if self.apply(action).error.is_some() {
                break;
            }
        }
        !planned.actions.is_empty() || !after.actions.is_empty()
    }

    /// Runs a plan. All patches run; if one with `OnError::SkipRest` fails, the later actions do not.
    fn run(&mut self, planned: &Plan) -> Outcomes {
        let mut outcomes = Vec::new();
        let mut skips_rest = false;
        for action in &planned.actions {
            let patch = if let Action::Patch(patch) = action { Some(patch) } else { None };
            if skips_rest && patch.is_none() {
                break;
            }
            let outcome = self.apply(action);
            skips_rest |= outcome.error.is_some()
                && patch.is_some_and(|patch| patch.on_error == OnError::SkipRest);
            outcomes.push(outcome);
        }
        Outcomes(outcomes)
    }

    fn apply(&mut self, action: &Action) -> Outcome {
        if let Action::Event(event) = action {
            self.events.push(event.reason.to_string());
            return Outcome::success();
        }
        if self.write_results.pop() == Some(false) {
            return Outcome::failure(Failure { code: 500, ..Failure::local("bad luck") });
        }
        match action {
            Action::Create(create) => {
                let body: Value = serde_json::from_slice(&create.body).unwrap();
                for _ in 0..create.count {
                    self.created += 1;
                    let mut pod: Pod = object(&body);
                    pod.meta.name = format!("p{:04}", self.created).into();
                    pod.meta.uid = pod.meta.name.clone();
                    pod.meta.creation = Some(self.now);
                    pod.status.phase = "Pending".into();
                    self.pods.insert(pod.meta.name.clone(), pod);
                }
                return Outcome { succeeded: create.count, ..Outcome::default() };
            }
            Action::Patch(patch) => {
                let pod = self.pods.get_mut(&*patch.target.name).unwrap();
                pod.meta.finalizers = Box::default();
                self.remove_if_released(&patch.target.name);
            }
            Action::Delete(delete) => {
                self.delete(&delete.target.name);
            }
            Action::Update(update) => {
                let new: Job = object(&serde_json::from_slice(&update.body).unwrap());
                self.job.status = new.status;
            }
            other => panic!("{other:?}"),
        }
        Outcome::success()
    }

    fn delete(&mut self, name: &str) {
        if let Some(pod) = self.pods.get_mut(name) {
            pod.meta.deletion = Some(self.now);
            self.remove_if_released(name);
        }
    }

    /// Removes a terminating pod without finalizers.
    fn remove_if_released(&mut self, name: &str) {
        let is_released = |pod: &Pod| pod.meta.deleting() && pod.meta.finalizers.is_empty();
        if self.pods.get(name).is_some_and(is_released) {
            self.pods.remove(name);
        }
    }

    /// Ends the `n`th running pod.
    fn end_pod(&mut self, n: usize, phase: &str) {
        let mut running: Vec<&mut Pod> = self
            .pods
            .values_mut()
            .filter(|pod| crate::pods::is_active(pod) && !pod.meta.finalizers.is_empty())
            .collect();
        if running.is_empty() {
            return;
        }
        let n = n % running.len();
        running[n].status.phase = phase.into();
        match phase {
            "Succeeded" => self.n_succeeded += 1,
            _ => self.n_failed += 1,
        }
    }

    /// Runs syncs until one writes nothing. Advances the clock between them, so that no backoff applies.
    fn settle(&mut self) {
        for _ in 0..200 {
            if !self.sync() {
                return;
            }
            self.now += Duration::from_mins(11);
        }
        panic!("does not settle: {:?}", self.job.status);
    }

    fn conditions(&self) -> Vec<&str> {
        self.job.status.conditions.iter().map(|c: &JobCondition| &*c.type_).collect()
    }
}

fn n_tracked(model: &Model) -> usize {
    model.pods.values().filter(|pod| !pod.meta.finalizers.is_empty()).count()
}

#[test]
fn job_completes() {
    let mut model = Model::new(job(&json!({ "completions": 3, "parallelism": 2 })), Vec::new());
    for _ in 0..3 {
        model.settle();
        model.end_pod(0, "Succeeded");
    }
    model.settle();
    assert_eq!(model.conditions(), ["SuccessCriteriaMet", "Complete"]);
    let status = &model.job.status;
    assert_eq!((status.succeeded, status.failed, status.active), (3, 0, 0));
    assert_eq!((status.ready, status.terminating), (Some(0), Some(0)));
    assert!(status.completion_time.is_some());
    assert_eq!((n_tracked(&model), model.created), (0, 3));
    assert_eq!(model.events, ["Completed"]);
}

#[test]
fn failed_job_deletes_its_active_pods() {
    let spec = json!({ "completions": 5, "parallelism": 3, "backoffLimit": 0 });
    let mut model = Model::new(job(&spec), Vec::new());
    model.settle();
    model.end_pod(1, "Failed");
    model.settle();
    assert_eq!(model.conditions(), ["FailureTarget", "Failed"]);
    assert_eq!((model.job.status.failed, model.job.status.active), (3, 0));
    assert_eq!((n_tracked(&model), model.pods.len()), (0, 1));
    assert_eq!(model.events, ["BackoffLimitExceeded"]);
}

#[test]
fn job_is_suspended_and_resumed() {
    let mut model = Model::new(job(&json!({ "completions": 2, "parallelism": 2 })), Vec::new());
    model.settle();
    model.job.spec.suspend = true;
    model.settle();
    assert_eq!((model.pods.len(), model.job.status.active, model.job.status.failed), (0, 0, 0));
    assert_eq!(model.job.status.start_time, None);
    model.job.spec.suspend = false;
    model.settle();
    assert_eq!((model.pods.len(), model.job.status.active), (2, 2));
    assert_eq!(model.events, ["Suspended", "Resumed"]);
}

#[test]
fn suspended_job_keeps_start_time_without_the_gate() {
    let mut job = job(&json!({ "suspend": true }));
    job.status.start_time = Some(T0);
    for (clears_start_time, start_time) in [(true, None), (false, Some(T0))] {
        let observed = Observed::new(Arc::new(job.clone()), [], None, clears_start_time);
        let decision = Decision::new(&observed, at(9));
        let after = status(&observed, &decision, &Outcomes::default(), at(9));
        let Some(Action::Update(update)) = after.actions.first() else { panic!("{after:?}") };
        let written: Job = object(&serde_json::from_slice(&update.body).unwrap());
        assert_eq!(written.status.start_time, start_time);
    }
}

#[test]
fn backoff_limit_per_index_fails_only_its_index() {
    let mut model = Model::new(
        job(&json!({
            "completionMode": "Indexed", "completions": 2, "parallelism": 2,
            "backoffLimitPerIndex": 0, "backoffLimit": i32::MAX,
        })),
        Vec::new(),
    );
    model.settle();
    model.end_pod(0, "Failed");
    model.settle();
    assert_eq!(model.job.status.failed_indexes.as_deref(), Some("0"));
    assert!(!is_finished(&model.job));
    model.end_pod(0, "Succeeded");
    model.settle();
    assert_eq!(model.conditions(), ["FailureTarget", "Failed"]);
    assert_eq!(&*model.job.status.completed_indexes, "1");
    assert_eq!(&*model.job.status.conditions[1].reason, "FailedIndexes");
}

#[test]
fn success_policy_completes_the_job() {
    let mut model = Model::new(
        job(&json!({
            "completionMode": "Indexed", "completions": 3, "parallelism": 3,
            "successPolicy": { "rules": [{ "succeededIndexes": "0" }] },
        })),
        Vec::new(),
    );
    model.settle();
    model.end_pod(0, "Succeeded");
    model.settle();
    assert_eq!(model.conditions(), ["SuccessCriteriaMet", "Complete"]);
    assert_eq!((model.job.status.succeeded, model.job.status.failed), (1, 0));
    assert_eq!(&*model.job.status.conditions[1].message, "Matched rules at index 0");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// Even if any writes fail, each pod that ended is counted once, and a finished Job leaves no finalizer.
    #[test]
    fn each_finished_pod_is_counted_once(
        indexed: bool,
        completions in 1u32..6,
        parallelism in 1u32..5,
        ends in prop::collection::vec((0usize..4, prop::bool::weighted(0.7), 0usize..3), 0..14),
        write_results in prop::collection::vec(prop::bool::weighted(0.7), 0..60),
    ) {
        let mode = if indexed { "Indexed" } else { "NonIndexed" };
        let mut model = Model::new(
            job(&json!({
                "completionMode": mode, "completions": completions, "parallelism": parallelism, "backoffLimit": 100,
            })),
            write_results,
        );
        for (running_index, succeeds, syncs) in ends {
            for _ in 0..syncs {
                model.sync();
                model.now += Duration::from_mins(11);
            }
            model.end_pod(running_index, if succeeds { "Succeeded" } else { "Failed" });
        }
        model.settle();
        let status = &model.job.status;
        prop_assert_eq!((status.succeeded, status.failed), (model.n_succeeded, model.n_failed));
        prop_assert_eq!(status.active as usize, model.pods.values().filter(|pod| crate::pods::is_active(pod)).count());
        let is_complete = status.succeeded >= i32::try_from(completions).unwrap();
        prop_assert_eq!(is_finished(&model.job), is_complete);
        if is_complete {
            prop_assert_eq!(n_tracked(&model), 0);
            prop_assert_eq!(status.uncounted_terminated_pods.as_ref().map(|pods| pods.succeeded.len() + pods.failed.len()), Some(0));
        }
    }
}

#[test]
fn status_update_has_kind_and_counts() {
    let job = job(&json!({}));
    let observed = observed(&job, &[]);
    let decision = Decision::new(&observed, T0);
    let after = status(&observed, &decision, &Outcomes(vec![Outcome::success()]), T0);
    let Some(Action::Update(update)) = after.actions.first() else { panic!("{after:?}") };
    let body: Value = serde_json::from_slice(&update.body).unwrap();
    assert_eq!(
        (body["kind"].as_str(), body["apiVersion"].as_str()),
        (Some("Job"), Some("batch/v1"))
    );
    assert_eq!(body["status"]["uncountedTerminatedPods"], json!({}));
    assert_eq!(body["status"]["active"], 1);
    assert_eq!(update.target.kind, Job::kind());
}
