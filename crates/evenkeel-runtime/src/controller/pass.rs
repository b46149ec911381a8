//! One pass, which is one reconcile of a key by a planner: observe, plan, act, update the status.

use super::{
    execute::{Executor, Report},
    memory::Memories,
    reconcile::{
        Error, Explanation, PassError, PassResult, Reconcile, Request, action_error, plan_error,
    },
    status_throttle::StatusThrottle,
};
use crate::{
    client::LeaderFence,
    clock::Clock,
    introspect::{self, Description, RecordedActions},
    plan::{self, Action, Key, Outcome, Outcomes, Pass, PassHandler, Plan, PlanError, Planner},
};
use evenkeel_api::time::Timestamp;
use futures::future::BoxFuture;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Planner with its handler, its memories and the executor of its plans.
pub(super) struct PlannerReconciler<P: Planner, H> {
    pub(super) planner: P,
    pub(super) handler: H,
    pub(super) memories: Memories<P::Memory>,
    pub(super) executor: Executor,
    pub(super) clock: Clock,
    pub(super) status_throttle: Arc<StatusThrottle>,
    /// Lock that is held while a key is planned. `None` if several keys may be planned concurrently.
    pub(super) planning_lock: Option<Mutex<()>>,
}

/// Passes of a planner, independent of its types.
trait Passes: Sync {
    /// Observes and plans a pass, without acting. Returns `None` if no object exists at the key.
    fn begin<'a>(&'a self, key: &'a Key) -> Option<Begun<'a>>;
    /// Returns the executor, the clock and the status throttle that passes use.
    fn means(&self) -> Means<'_>;
}

/// Pass with its first plan.
struct Begun<'a> {
    plan: Plan,
    at: Timestamp,
    pass: Box<dyn StartedPass + 'a>,
}

/// Executor, clock and status throttle of a planner's passes.
struct Means<'a> {
    executor: &'a Executor,
    clock: &'a Clock,
    status_throttle: &'a StatusThrottle,
}

/// Pass after its first plan. Independent of the planner's types.
trait StartedPass: Send + Sync {
    /// Returns the plan that follows from the outcomes so far.
    fn next(&self, outcomes: &Outcomes) -> Option<Plan>;
    /// Returns the last plan, which writes the status and depends on the outcomes.
    fn status(&self, outcomes: &Outcomes, now: Timestamp) -> Plan;
    /// Reports the results of the pass to the handler, and stores the planner's memory.
    fn end(&self, summary: &PassSummary<'_>);
}

/// Results of a pass.
struct PassSummary<'a> {
    outcomes: &'a Outcomes,
    took: Duration,
    succeeded: bool,
    is_incomplete: bool,
}

/// Pass of one planner, with its observation and memory.
struct PlannedPass<'a, P: Planner, H> {
    reconciler: &'a PlannerReconciler<P, H>,
    key: &'a Key,
    observed: P::Observed,
    memory: Arc<P::Memory>,
    at: Timestamp,
}

impl<P: Planner, H: PassHandler<P>> StartedPass for PlannedPass<'_, P, H> {
    fn next(&self, outcomes: &Outcomes) -> Option<Plan> {
        self.reconciler.planner.next(&self.observed, &self.memory, outcomes, self.at)
    }

    fn status(&self, outcomes: &Outcomes, now: Timestamp) -> Plan {
        self.reconciler.planner.status(&self.observed, &self.memory, outcomes, now)
    }

    fn end(&self, summary: &PassSummary<'_>) {
        let PlannerReconciler { planner, handler, memories, .. } = self.reconciler;
        let &PassSummary { outcomes, took, succeeded, is_incomplete } = summary;
        let memory = &*self.memory;
        let pass = Pass { planned_at: self.at, memory, outcomes, took, succeeded, is_incomplete };
        handler.on_passed(&self.observed, &pass);
        if !is_incomplete
            && let Some(memory) = planner.remember(&self.observed, memory, outcomes, self.at)
        {
            memories.set(self.key, memory);
        }
    }
}

impl<P: Planner, H: PassHandler<P>> Reconcile for PlannerReconciler<P, H> {
    fn reconcile<'a>(
        &'a self,
        request: Request,
        fence: Option<&'a LeaderFence>,
        recorded: &'a mut RecordedActions,
    ) -> BoxFuture<'a, PassResult> {
        Box::pin(pass_request(self, request, fence, recorded))
    }

    fn retain(&self, keep: &dyn Fn(&Key) -> bool) {
        self.memories.retain(keep);
    }

    /// Plans like a pass, without executing the plan or storing the memory.
    fn explain(&self, key: &Key, now: Timestamp) -> Option<Explanation> {
        let memory = self.memories.get(key);
        let observed = self.planner.observe(key, &memory)?;
        let (plan, memory) = self.planner.plan(&observed, &memory, now);
        let status_plan = self.planner.status(&observed, &memory, &assumed_outcomes(&plan), now);
        Some(explanation(&plan, &status_plan, self.planner.describe(&observed, now)))
    }
}

fn explanation(plan: &Plan, status_plan: &Plan, description: Description) -> Explanation {
    let mut would: Vec<String> =
        plan.actions.iter().chain(&status_plan.actions).map(introspect::action).collect();
    if plan.actions.iter().any(|action| matches!(action, Action::Read(_))) {
        would.push("decide by the reply".to_owned());
    }
    let requeue = sooner(plan.requeue, status_plan.requeue);
    Explanation { description, would, requeue, actions_unknown: false }
}

impl<P: Planner, H: PassHandler<P>> Passes for PlannerReconciler<P, H> {
    fn begin<'a>(&'a self, key: &'a Key) -> Option<Begun<'a>> {
        let lock = self.planning_lock.as_ref();
        let _guard = lock.map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
        let memory = self.memories.get(key);
        let Some(observed) = self.planner.observe(key, &memory) else {
            self.memories.forget(key);
            self.executor.barrier.forget(key);
            self.handler.on_gone(key);
            return None;
        };
        let at = self.clock.now();
        let (plan, memory) = self.planner.plan(&observed, &memory, at);
        assert_valid(&plan, key);
        let memory = self.memories.set(key, memory);
        self.handler.on_planned(&observed, plan::Planned { plan: &plan, memory: &memory, at });
        let pass = Box::new(PlannedPass { reconciler: self, key, observed, memory, at });
        Some(Begun { plan, at, pass })
    }

    fn means(&self) -> Means<'_> {
        let Self { executor, clock, status_throttle, .. } = self;
        Means { executor, clock, status_throttle }
    }
}

impl<P: Planner, H: PassHandler<P>> PlannerReconciler<P, H> {
    pub(super) fn pass<'a>(
        &'a self,
        key: &'a Key,
        fence: Option<&'a LeaderFence>,
        recorded: &'a mut RecordedActions,
    ) -> impl Future<Output = PassResult> + Send + 'a {
        pass(self, key, fence, recorded)
    }
}

async fn pass_request(
    passes: &dyn Passes,
    request: Request,
    fence: Option<&LeaderFence>,
    recorded: &mut RecordedActions,
) -> PassResult {
    pass(passes, &request.key, fence, recorded).await
}

/// Runs a pass. Like the driver, this is compiled once, because it does not depend on the planner's types.
async fn pass(
    passes: &dyn Passes,
    key: &Key,
    fence: Option<&LeaderFence>,
    recorded: &mut RecordedActions,
) -> PassResult {
    let Some(Begun { plan, at, pass }) = passes.begin(key) else { return Ok(None) };
    let Means { executor, clock, status_throttle } = passes.means();
    let fenced = fence.map(|fence| executor.fenced(fence));
    let executor = fenced.as_ref().unwrap_or(executor);
    Driver { key, executor, clock, status_throttle, pass: &*pass, recorded }.drive(at, plan).await
}

/// Drives a pass after its first plan. It does not depend on the planner's types, so that it is compiled only once.
struct Driver<'a> {
    key: &'a Key,
    executor: &'a Executor,
    clock: &'a Clock,
    status_throttle: &'a StatusThrottle,
    pass: &'a dyn StartedPass,
    recorded: &'a mut RecordedActions,
}

impl<'a> Driver<'a> {
    fn drive(mut self, at: Timestamp, plan: Plan) -> BoxFuture<'a, PassResult> {
        Box::pin(async move {
            let StepResults { outcomes, failure, requeue, is_incomplete } =
                self.run_steps(plan).await;
            let status_result =
                if is_incomplete { Ok(None) } else { self.write_status(&outcomes).await };
            let result = match (failure, status_result) {
                (Some(error), status_result) => {
                    let status_requeue = status_result.unwrap_or_else(|failed| failed.requeue);
                    Err(PassError { error, requeue: sooner(requeue, status_requeue) })
                }
                (None, Ok(_)) if is_incomplete => Ok(None),
                (None, Ok(status_requeue)) => Ok(sooner(requeue, status_requeue)),
                (None, Err(failed)) => {
                    Err(PassError { requeue: sooner(requeue, failed.requeue), ..failed })
                }
            };
            let took = self.clock.now().duration_since(at).try_into().unwrap_or_default();
            let succeeded = result.is_ok();
            self.pass.end(&PassSummary { outcomes: &outcomes, took, succeeded, is_incomplete });
            result
        })
    }

    /// Executes the plan, and then the plans that the planner derives from the outcomes.
    async fn run_steps(&mut self, plan: Plan) -> StepResults {
        let (mut steps, mut next) = (StepResults::default(), Some(plan));
        while let Some(plan) = next {
            let report = self.executor.run(self.key, &plan.actions).await;
            self.recorded.add(&plan.actions, &report.outcomes);
            let is_last = report.ends_steps() || plan.error.is_some() || plan.actions.is_empty();
            steps.add(plan, report);
            if is_last {
                break;
            }
            next = self.pass.next(&steps.outcomes);
            if let Some(plan) = &next {
                assert_valid(plan, self.key);
            }
        }
        steps
    }

    /// Executes the last plan, which writes the status.
    async fn write_status(&mut self, outcomes: &Outcomes) -> PassResult {
        let status_plan = self.pass.status(outcomes, self.clock.now());
        assert_valid(&status_plan, self.key);
        let Plan { actions, requeue, error, .. } = status_plan;
        if actions.is_empty() {
            return plan_result(requeue, error);
        }
        // A pass with actions writes its status immediately. A status that only reflects observations is throttled.
        if outcomes.0.is_empty()
            && let Some(delay) = self.status_throttle.delay(self.key, self.clock.instant())
        {
            return Ok(sooner(requeue, Some(delay)));
        }
        let Report { outcomes, failure, .. } = self.executor.run(self.key, &actions).await;
        self.recorded.add(&actions, &outcomes);
        if let Some(failure) = failure {
            // The queue's backoff delays the retry.
            return Err(PassError { error: action_error(failure), requeue });
        }
        self.status_throttle.record_write(self.key, self.clock.instant());
        plan_result(requeue, error)
    }
}

/// Returns the result of a plan whose actions succeeded.
fn plan_result(requeue: Option<Duration>, error: Option<PlanError>) -> PassResult {
    match error {
        Some(error) => Err(PassError { error: plan_error(error), requeue }),
        None => Ok(requeue),
    }
}

/// Results of all steps of a pass.
#[derive(Default)]
struct StepResults {
    outcomes: Outcomes,
    failure: Option<Error>,
    requeue: Option<Duration>,
    is_incomplete: bool,
}

impl StepResults {
    fn add(&mut self, plan: Plan, report: Report) {
        self.outcomes.0.extend(report.outcomes.0);
        self.requeue = sooner(self.requeue, plan.requeue);
        self.is_incomplete = report.is_incomplete;
        if self.failure.is_none() {
            self.failure = report.failure.map(action_error).or(plan.error.map(plan_error));
        }
    }
}

/// Returns the outcomes as if all actions of the plan had succeeded, for reports, which execute nothing.
fn assumed_outcomes(plan: &Plan) -> Outcomes {
    let success = |action: &Action| {
        let succeeded = if let Action::Create(create) = action { create.count } else { 1 };
        Outcome { succeeded, ..Outcome::default() }
    };
    Outcomes(plan.actions.iter().map(success).collect())
}

/// Returns the shorter delay; `None` if both are absent.
fn sooner(first: Option<Duration>, second: Option<Duration>) -> Option<Duration> {
    first.into_iter().chain(second).min()
}

/// Panics in debug builds if a plan violates the linter's rules, which is a bug of its planner. The worker catches the
/// panic.
fn assert_valid(plan: &Plan, key: &Key) {
    if cfg!(debug_assertions) {
        let violations = crate::plan::lint(plan);
        assert!(violations.is_empty(), "unsound plan for {key}: {}", violations.join("; "));
    }
}
