//! One pass of a planner over a key: observe, plan, act, update the status.

use super::{
    execute::{Executor, Report},
    memory::Memories,
    reconcile::{Error, Explanation, Passed, Reconcile, Request, failed, planner_failed},
    status_throttle::StatusThrottle,
};
use crate::{
    clock::Clock,
    introspect::{self, Description, RecordedActions},
    plan::{self, Action, Key, Outcome, Outcomes, Pass, PassHandler, Plan, Planner},
};
use evenkeel_api::time::Timestamp;
use futures::future::BoxFuture;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Planner with its handler, its memories and the executor of its plans.
pub(super) struct Planned<P: Planner, H> {
    pub(super) planner: P,
    pub(super) handler: H,
    pub(super) memories: Memories<P::Memory>,
    pub(super) executor: Executor,
    pub(super) clock: Clock,
    pub(super) status_throttle: StatusThrottle,
    /// Held while a key is planned, if keys are planned one after the other.
    pub(super) turns: Option<Mutex<()>>,
}

/// Pass after its first plan. Independent of the planner's types.
trait Begun: Send + Sync {
    /// Returns the plan that follows from the outcomes so far.
    fn next(&self, outcomes: &Outcomes) -> Option<Plan>;
    /// Returns the last plan, which writes the status and depends on the outcomes.
    fn status(&self, outcomes: &Outcomes, now: Timestamp) -> Plan;
    /// Reports the results of the pass to the handler, and stores the planner's memory.
    fn end(&self, passed: &Ended<'_>);
}

/// Results of a pass.
struct Ended<'a> {
    outcomes: &'a Outcomes,
    took: Duration,
    succeeded: bool,
    is_incomplete: bool,
}

/// Pass of one planner, with its observation and memory.
struct PlannedPass<'a, P: Planner, H> {
    planned: &'a Planned<P, H>,
    key: &'a Key,
    observed: P::Observed,
    memory: Arc<P::Memory>,
    at: Timestamp,
}

impl<P: Planner, H: PassHandler<P>> Begun for PlannedPass<'_, P, H> {
    fn next(&self, outcomes: &Outcomes) -> Option<Plan> {
        self.planned.planner.next(&self.observed, &self.memory, outcomes, self.at)
    }

    fn status(&self, outcomes: &Outcomes, now: Timestamp) -> Plan {
        self.planned.planner.status(&self.observed, &self.memory, outcomes, now)
    }

    fn end(&self, ended: &Ended<'_>) {
        let Planned { planner, handler, memories, .. } = self.planned;
        let &Ended { outcomes, took, succeeded, is_incomplete } = ended;
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

impl<P: Planner, H: PassHandler<P>> Reconcile for Planned<P, H> {
    fn reconcile<'a>(
        &'a self,
        request: Request,
        recorded: &'a mut RecordedActions,
    ) -> BoxFuture<'a, Passed> {
        Box::pin(async move { self.pass(&request.key, recorded).await })
    }

    /// Plans like a pass, without executing the plan or storing the memory.
    fn explain(&self, key: &Key, now: Timestamp) -> Option<Explanation> {
        let memory = self.memories.get(key);
        let observed = self.planner.observe(key, &memory)?;
        let (plan, memory) = self.planner.plan(&observed, &memory, now);
        let after = self.planner.status(&observed, &memory, &as_if_done(&plan), now);
        Some(explanation(&plan, &after, self.planner.describe(&observed, now)))
    }
}

fn explanation(plan: &Plan, after: &Plan, description: Description) -> Explanation {
    let mut would: Vec<String> =
        plan.actions.iter().chain(&after.actions).map(introspect::action).collect();
    if plan.actions.iter().any(|action| matches!(action, Action::Read(_))) {
        would.push("decide by the reply".to_owned());
    }
    let requeue = sooner(plan.requeue, after.requeue);
    Explanation { description, would, requeue, actions_unknown: false }
}

impl<P: Planner, H: PassHandler<P>> Planned<P, H> {
    /// Observes and plans a pass, without acting. Returns `None` if no object exists at the key.
    fn begin<'a>(&'a self, key: &'a Key) -> Option<(Plan, PlannedPass<'a, P, H>)> {
        let turns = self.turns.as_ref();
        let _turn = turns.map(|turns| turns.lock().unwrap_or_else(PoisonError::into_inner));
        let memory = self.memories.get(key);
        let Some(observed) = self.planner.observe(key, &memory) else {
            self.memories.forget(key);
            self.executor.barrier.forget(key);
            self.handler.on_gone(key);
            return None;
        };
        let at = self.clock.now();
        let (plan, memory) = self.planner.plan(&observed, &memory, at);
        check(&plan, key);
        let memory = self.memories.set(key, memory);
        self.handler.on_planned(&observed, plan::Planned { plan: &plan, memory: &memory, at });
        Some((plan, PlannedPass { planned: self, key, observed, memory, at }))
    }

    pub(super) async fn pass(&self, key: &Key, recorded: &mut RecordedActions) -> Passed {
        let Some((plan, pass)) = self.begin(key) else { return Ok(None) };
        let Self { executor, clock, status_throttle, .. } = self;
        Driver { key, executor, clock, status_throttle, pass: &pass, recorded }
            .drive(pass.at, plan)
            .await
    }
}

/// Drives a pass after its first plan. It does not depend on the planner's types, so that it is compiled only once.
struct Driver<'a> {
    key: &'a Key,
    executor: &'a Executor,
    clock: &'a Clock,
    status_throttle: &'a StatusThrottle,
    pass: &'a dyn Begun,
    recorded: &'a mut RecordedActions,
}

impl<'a> Driver<'a> {
    fn drive(mut self, at: Timestamp, plan: Plan) -> BoxFuture<'a, Passed> {
        Box::pin(async move {
            let Steps { outcomes, failure, requeue, is_incomplete } = self.steps(plan).await;
            let followed = if is_incomplete { Ok(None) } else { self.follow_up(&outcomes).await };
            let passed = match failure {
                Some(failure) => Err(failure),
                None if is_incomplete => Ok(None),
                None => followed.map(|later| sooner(requeue, later)),
            };
            let took = self.clock.now().duration_since(at).try_into().unwrap_or_default();
            let succeeded = passed.is_ok();
            self.pass.end(&Ended { outcomes: &outcomes, took, succeeded, is_incomplete });
            passed
        })
    }

    /// Executes the plan, and then the plans that the planner derives from the outcomes.
    async fn steps(&mut self, plan: Plan) -> Steps {
        let (mut steps, mut next) = (Steps::default(), Some(plan));
        while let Some(plan) = next {
            let report = self.executor.run(self.key, &plan.actions).await;
            self.recorded.add(&plan.actions, &report.outcomes);
            let ended = report.ends_steps() || plan.error.is_some() || plan.actions.is_empty();
            steps.add(plan, report);
            if ended {
                break;
            }
            next = self.pass.next(&steps.outcomes);
            if let Some(plan) = &next {
                check(plan, self.key);
            }
        }
        steps
    }

    /// Executes the last plan, which writes the status.
    async fn follow_up(&mut self, outcomes: &Outcomes) -> Passed {
        let after = self.pass.status(outcomes, self.clock.now());
        check(&after, self.key);
        if after.actions.is_empty() {
            return after.error.map_or(Ok(after.requeue), |error| Err(planner_failed(error)));
        }
        // A pass with actions writes its status immediately. A status that only reflects observations is throttled.
        if outcomes.0.is_empty()
            && let wait @ Some(_) = self.status_throttle.wait(self.key, self.clock.instant())
        {
            return Ok(sooner(after.requeue, wait));
        }
        let Report { outcomes, failure, .. } = self.executor.run(self.key, &after.actions).await;
        self.recorded.add(&after.actions, &outcomes);
        if let Some(failure) = failure {
            // The queue's backoff delays the retry.
            return Err(failed(failure));
        }
        self.status_throttle.wrote(self.key, self.clock.instant());
        after.error.map_or(Ok(after.requeue), |error| Err(planner_failed(error)))
    }
}

/// Results of all steps of a pass.
#[derive(Default)]
struct Steps {
    outcomes: Outcomes,
    failure: Option<Error>,
    requeue: Option<Duration>,
    is_incomplete: bool,
}

impl Steps {
    fn add(&mut self, plan: Plan, report: Report) {
        self.outcomes.0.extend(report.outcomes.0);
        self.requeue = sooner(self.requeue, plan.requeue);
        self.is_incomplete = report.is_incomplete;
        if self.failure.is_none() {
            self.failure = report.failure.map(failed).or(plan.error.map(planner_failed));
        }
    }
}

/// Returns the outcomes of a successful plan, for reports that carry nothing out.
fn as_if_done(plan: &Plan) -> Outcomes {
    let done = |action: &Action| {
        let succeeded = if let Action::Create(create) = action { create.count } else { 1 };
        Outcome { succeeded, ..Outcome::default() }
    };
    Outcomes(plan.actions.iter().map(done).collect())
}

/// Returns the shorter delay; `None` if both are absent.
fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// Panics in debug builds if a plan violates the linter's rules, which is a bug of its planner. The worker catches the
/// panic.
fn check(plan: &Plan, key: &Key) {
    if cfg!(debug_assertions) {
        let wrong = crate::plan::lint(plan);
        assert!(wrong.is_empty(), "unsound plan for {key}: {}", wrong.join("; "));
    }
}
