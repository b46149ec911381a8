//! Tests of the preemption executor with a scripted API server.

use super::*;
use crate::{
    fixtures::{at, handle, info, pod},
    framework::Command,
    scripted::{Answer, Script},
};
use evenkeel_runtime::clock::Clock;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Executor with a scripted API server, and the commands that it sends to the scheduler.
struct TestExecutor {
    executor: Arc<Executor>,
    script: Script,
    commands: UnboundedReceiver<Command>,
}

impl TestExecutor {
    /// Creates an executor whose cache holds pods with these names and never changes.
    async fn new(pods: &[&str], answers: Vec<Answer>) -> Self {
        let clock = Clock::starting_at(at(0));
        let script = Script::new(answers).with_lists([
            ("/api/v1/pods", list("PodList", pods)),
            ("/apis/policy/v1/poddisruptionbudgets", list("PodDisruptionBudgetList", &[])),
        ]);
        let (sender, commands) = unbounded_channel();
        let handle = Handle { commands: sender, ..handle(script.client(&clock), &clock) };
        let executor = Executor::new(&handle);
        handle.caches.start(&handle.tasks);
        handle.caches.of::<Pod>().synced().await;
        Self { executor: Arc::new(executor), script, commands }
    }

    /// Starts the preemption of these victims on node `a` for the pod `high`.
    fn start(&self, victims: &[&str]) {
        self.start_with_nominated_pods(victims, Vec::new());
    }

    /// Starts a preemption on a node for which pods of lower priority are nominated.
    fn start_with_nominated_pods(&self, victims: &[&str], lower_priority_pods: Vec<Arc<Pod>>) {
        let pods = victims.iter().map(|name| pod(name, &json!({}))).collect();
        let victims = Candidate { node: "a".into(), pods, num_pdb_violations: 0 };
        self.executor.prepare_candidate_async(
            &info("high", &json!({})),
            victims,
            lower_priority_pods,
        );
    }

    /// Returns whether the executor activates the preemptor within this time.
    async fn is_activated_within(&mut self, time: Duration) -> bool {
        let command = tokio::time::timeout(time, self.commands.recv()).await;
        matches!(command, Ok(Some(Command::Activate(uid))) if *uid == *"high")
    }
}

fn list(kind: &str, names: &[&str]) -> Value {
    let item = |name: &&str| json!({ "metadata": { "name": name, "namespace": "shop", "uid": name, "resourceVersion": "1" } });
    let items: Vec<Value> = names.iter().map(item).collect();
    let meta = json!({ "resourceVersion": "7" });
    json!({ "kind": kind, "apiVersion": "v1", "metadata": meta, "items": items })
}

fn done() -> Answer {
    Answer::object(json!({ "kind": "Pod", "apiVersion": "v1", "metadata": {} }))
}

fn patch(name: &str) -> String {
    format!("PATCH /api/v1/namespaces/shop/pods/{name}/status")
}

fn delete(name: &str) -> String {
    format!("DELETE /api/v1/namespaces/shop/pods/{name}")
}

#[tokio::test(start_paused = true)]
async fn failed_evictions_are_retried_after_a_delay() {
    for answers in [
        vec![Answer::Lost],
        vec![Answer::status(500)],
        vec![done(), Answer::Lost],
        vec![done(), Answer::status(409)],
    ] {
        let mut test_executor = TestExecutor::new(&["v"], answers.clone()).await;
        test_executor.start(&["v"]);
        assert!(test_executor.executor.is_running_preemption("high"));
        assert!(!test_executor.is_activated_within(RETRY_DELAY.mul_f64(0.9)).await, "{answers:?}");
        assert!(
            !test_executor.executor.is_running_preemption("high"),
            "an event may requeue the preemptor during the delay"
        );
        assert!(test_executor.is_activated_within(RETRY_DELAY.mul_f64(0.2)).await, "{answers:?}");
        assert_eq!(test_executor.script.take_calls().len(), answers.len());
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_victim_stays_if_another_eviction_fails() {
    let mut test_executor = TestExecutor::new(&["u", "v"], vec![Answer::status(500)]).await;
    test_executor.start(&["u", "v"]);
    assert!(test_executor.is_activated_within(RETRY_DELAY * 2).await);
    assert_eq!(test_executor.script.take_calls(), [patch("u")]);
}

#[tokio::test(start_paused = true)]
async fn concurrent_evictions_are_limited() {
    let test_executor = TestExecutor::new(&["t", "u", "v", "w"], vec![Answer::Never; 3]).await;
    test_executor.start(&["t", "u", "v", "w"]);
    tokio::time::sleep(RETRY_DELAY).await;
    assert_eq!(test_executor.script.take_calls(), [patch("t"), patch("u")]);
    let text = prometheus::TextEncoder::new();
    let metrics = text.encode_to_string(&test_executor.executor.handle.registry.gather()).unwrap();
    let running = format!("scheduler_goroutines{{operation=\"{NAME}\"}} 2");
    assert!(metrics.contains(&running), "{running} is not in\n{metrics}");
}

#[tokio::test(start_paused = true)]
async fn after_a_deletion_the_preemptor_waits_for_its_event() {
    let mut test_executor =
        TestExecutor::new(&["u", "v"], vec![done(), done(), done(), done()]).await;
    test_executor.start(&["u", "v"]);
    assert!(
        !test_executor.is_activated_within(RETRY_DELAY * 60).await,
        "the deletion event requeues the preemptor"
    );
    assert!(!test_executor.executor.is_running_preemption("high"));
    assert_eq!(
        test_executor.script.take_calls(),
        [patch("u"), delete("u"), patch("v"), delete("v")]
    );
}

#[tokio::test(start_paused = true)]
async fn a_preemption_runs_until_the_last_victim_is_deleted() {
    let answers = vec![done(), done(), done(), Answer::Never];
    let test_executor = TestExecutor::new(&["u", "v"], answers.clone()).await;
    test_executor.start(&["u", "v"]);
    tokio::time::sleep(RETRY_DELAY).await;
    assert!(
        test_executor.executor.is_running_preemption("high"),
        "the API server has not responded about v"
    );
    // The cache may show the deletion of the victim before the API server responds.
    let test_executor = TestExecutor::new(&["u"], answers).await;
    test_executor.start(&["u", "v"]);
    tokio::time::sleep(RETRY_DELAY).await;
    assert!(!test_executor.executor.is_running_preemption("high"));
}

#[tokio::test(start_paused = true)]
async fn victims_can_be_evicted_before_the_scheduler_goes_on() {
    let candidate = || {
        let pods = ["u", "v"].map(|name| pod(name, &json!({}))).into();
        Candidate { node: "a".into(), pods, num_pdb_violations: 0 }
    };
    let nominated = || vec![pod("low", &json!({ "status": { "nominatedNodeName": "a" } }))];
    let all = [patch("u"), delete("u"), patch("v"), delete("v"), patch("low")];
    // Answers, the number of the calls of `all` that are made, and whether the eviction succeeds.
    let table = [
        (vec![done(); 5], 5, true),
        (vec![done(), done(), done(), done(), Answer::status(500)], 5, true),
        (vec![Answer::status(500)], 1, false),
        (vec![done(), done(), done(), Answer::status(500)], 4, false),
    ];
    for (answers, n_calls, succeeds) in table {
        let mut test_executor = TestExecutor::new(&["u", "v"], answers).await;
        let executor = Arc::clone(&test_executor.executor);
        let preemptor = info("high", &json!({}));
        let result = executor.prepare_candidate(&preemptor, candidate(), nominated()).await;
        assert_eq!(result.is_ok(), succeeds, "{result:?}");
        assert_eq!(test_executor.script.take_calls(), all[..n_calls]);
        assert!(!executor.is_running_preemption("high"));
        assert!(!test_executor.is_activated_within(RETRY_DELAY * 2).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_victim_activates_the_preemptor_unless_the_cache_still_has_it() {
    for answers in [vec![Answer::status(404)], vec![done(), Answer::status(404)]] {
        let mut without_victim = TestExecutor::new(&[], answers.clone()).await;
        without_victim.start(&["v"]);
        assert!(without_victim.is_activated_within(Duration::from_millis(1)).await);
        let mut with_victim = TestExecutor::new(&["v"], answers).await;
        with_victim.start(&["v"]);
        assert!(
            !with_victim.is_activated_within(RETRY_DELAY * 60).await,
            "the cache will show the deletion"
        );
        assert!(!with_victim.executor.is_running_preemption("high"));
    }
}

#[tokio::test(start_paused = true)]
async fn nominations_of_deleted_and_recreated_pods_need_no_clearing() {
    let other_uid = json!({
        "kind": "Status", "code": 409, "reason": "Conflict",
        "message": "Operation cannot be fulfilled on pods \"low\": Precondition failed: UID in precondition: low, UID in object meta: new",
    });
    let modified =
        json!({ "kind": "Status", "code": 409, "reason": "Conflict", "message": "modified" });
    for (answer, succeeds) in [
        (Answer::status(404), true),
        (Answer::Body(409, other_uid), true),
        (Answer::Body(409, modified), false),
    ] {
        let mut test_executor =
            TestExecutor::new(&["v"], vec![answer.clone(), done(), done()]).await;
        let nominated = pod("low", &json!({ "status": { "nominatedNodeName": "a" } }));
        test_executor.start_with_nominated_pods(&["v"], vec![nominated]);
        let activated = test_executor.is_activated_within(RETRY_DELAY * 2).await;
        assert_eq!(activated, !succeeds, "{answer:?}: only a failure retries the preemptor");
        assert_eq!(test_executor.script.take_calls(), [patch("low"), patch("v"), delete("v")]);
    }
}
