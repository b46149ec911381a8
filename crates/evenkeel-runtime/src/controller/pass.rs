//! One pass of a planner over a key: observe, plan, act, then status.

use super::{
    execute::{Executor, Report},
    memory::Memories,
    pace::Pace,
    reconcile::{Error, Explanation, Passed, Reconcile, Request, failed, planner_failed},
};
use crate::{
    clock::Clock,
    introspect::{self, RecordedActions},
    plan::{self, Action, Key, Outcome, Outcomes, Pass, PassHandler, Plan, Planner},
};
use evenkeel_api::time::Timestamp;
use futures::future::BoxFuture;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// A planner with the shell that acts for it.
pub(super) struct Planned<P: Planner, H> {
    pub(super) planner: P,
    pub(super) handler: H,
    pub(super) memories: Memories<P::Memory>,
    pub(super) executor: Executor,
    pub(super) clock: Clock,
    pub(super) pace: Pace,
    /// Held while a key is planned, if keys are planned one after the other.
    pub(super) turns: Option<Mutex<()>>,
}

/// A pass that is planned.
struct Begun<P: Planner> {
    observed: P::Observed,
    memory: Arc<P::Memory>,
    at: Timestamp,
    plan: Plan,
}

impl<P: Planner, H: PassHandler<P>> Reconcile for Planned<P, H> {
    fn reconcile<'a>(
        &'a self,
        request: Request,
        recorded: &'a mut RecordedActions,
    ) -> BoxFuture<'a, Passed> {
        Box::pin(async move { self.pass(&request.key, recorded).await })
    }

    /// Plans as a pass would, and drops the plan and its memory.
    fn explain(&self, key: &Key, now: Timestamp) -> Option<Explanation> {
        let memory = self.memories.get(key);
        let observed = self.planner.observe(key, &memory)?;
        let (plan, memory) = self.planner.plan(&observed, &memory, now);
        let well = plan.actions.iter().map(as_if_done).collect();
        let after = self.planner.status(&observed, &memory, &Outcomes(well), now);
        let mut would: Vec<String> =
            plan.actions.iter().chain(&after.actions).map(introspect::action).collect();
        if plan.actions.iter().any(|action| matches!(action, Action::Read(_))) {
            would.push("decide by the reply".to_owned());
        }
        Some(Explanation {
            description: self.planner.describe(&observed, now),
            would,
            requeue: sooner(plan.requeue, after.requeue),
            actions_unknown: false,
        })
    }
}

impl<P: Planner, H: PassHandler<P>> Planned<P, H> {
    /// Plans a pass, up to its first action; `None` if there is nothing at the key.
    fn begin(&self, key: &Key) -> Option<Begun<P>> {
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
        Some(Begun { observed, memory, at, plan })
    }

    pub(super) async fn pass(&self, key: &Key, recorded: &mut RecordedActions) -> Passed {
        let Some(Begun { observed, memory, at, plan }) = self.begin(key) else { return Ok(None) };
        let Steps { outcomes, failure, requeue, aborted } =
            self.steps(key, &observed, &memory, (at, plan), recorded).await;
        let followed = if aborted {
            Ok(None)
        } else {
            self.follow_up(key, &observed, &memory, &outcomes, recorded).await
        };
        let passed = match failure {
            Some(failure) => Err(failure),
            None if aborted => Ok(None),
            None => followed.map(|later| sooner(requeue, later)),
        };
        let took = self.clock.now().duration_since(at).try_into().unwrap_or_default();
        let pass = Pass {
            planned: at,
            memory: &*memory,
            outcomes: &outcomes,
            took,
            succeeded: passed.is_ok(),
            aborted,
        };
        self.handler.on_passed(&observed, &pass);
        if !aborted && let Some(memory) = self.planner.remember(&observed, &memory, &outcomes, at) {
            self.memories.set(key, memory);
        }
        passed
    }

    /// Carries out the plan, and what the planner decides on its outcomes, step by step.
    async fn steps(
        &self,
        key: &Key,
        observed: &P::Observed,
        memory: &P::Memory,
        (at, plan): (Timestamp, Plan),
        recorded: &mut RecordedActions,
    ) -> Steps {
        let (mut steps, mut next) = (Steps::default(), Some(plan));
        while let Some(plan) = next {
            let report = self.executor.run(key, &plan.actions).await;
            recorded.add(&plan.actions, &report.outcomes);
            let ended = report.ends_steps() || plan.error.is_some() || plan.actions.is_empty();
            steps.add(plan, report);
            if ended {
                break;
            }
            next = self.planner.next(observed, memory, &steps.outcomes, at);
            if let Some(plan) = &next {
                check(plan, key);
            }
        }
        steps
    }

    /// The status, and what else follows from how the actions went.
    async fn follow_up(
        &self,
        key: &Key,
        observed: &P::Observed,
        memory: &P::Memory,
        outcomes: &Outcomes,
        recorded: &mut RecordedActions,
    ) -> Passed {
        let after = self.planner.status(observed, memory, outcomes, self.clock.now());
        check(&after, key);
        if after.actions.is_empty() {
            return after.error.map_or(Ok(after.requeue), |error| Err(planner_failed(error)));
        }
        // What the pass did must be told in it; what was only seen can be told later.
        if outcomes.0.is_empty()
            && let wait @ Some(_) = self.pace.wait(key, self.clock.instant())
        {
            return Ok(sooner(after.requeue, wait));
        }
        let Report { outcomes, failure, .. } = self.executor.run(key, &after.actions).await;
        recorded.add(&after.actions, &outcomes);
        if let Some(failure) = failure {
            // Its pause is the queue's, which grows.
            return Err(failed(failure));
        }
        self.pace.wrote(key, self.clock.instant());
        after.error.map_or(Ok(after.requeue), |error| Err(planner_failed(error)))
    }
}

/// How the steps of a pass went, taken together.
#[derive(Default)]
struct Steps {
    outcomes: Outcomes,
    failure: Option<Error>,
    requeue: Option<Duration>,
    aborted: bool,
}

impl Steps {
    fn add(&mut self, plan: Plan, report: Report) {
        self.outcomes.0.extend(report.outcomes.0);
        self.requeue = sooner(self.requeue, plan.requeue);
        self.aborted = report.aborted;
        if self.failure.is_none() {
            self.failure = report.failure.map(failed).or(plan.error.map(planner_failed));
        }
    }
}

/// How an action goes if nothing is in its way.
fn as_if_done(action: &Action) -> Outcome {
    let succeeded = if let Action::Create(create) = action { create.count } else { 1 };
    Outcome { succeeded, ..Outcome::default() }
}

fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// In debug builds a plan that breaks the linter's rules is a bug in its planner: the pass panics, which the worker
/// contains.
fn check(plan: &Plan, key: &Key) {
    if cfg!(debug_assertions) {
        let wrong = crate::plan::lint(plan);
        assert!(wrong.is_empty(), "unsound plan for {key}: {}", wrong.join("; "));
    }
}
