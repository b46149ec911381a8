//! One pass of a planner over a key: observe, plan, act, then status.

use super::{
    execute::{Executor, Report},
    pace::Pace,
    reconcile::{Passed, Preview, Reconcile, Request, failed},
};
use crate::{
    clock::Clock,
    introspect::{self, RecordedActions},
    plan::{Action, Key, Outcome, Outcomes, Pass, Plan, Planner},
};
use evenkeel_api::time::Timestamp;
use futures::future::BoxFuture;
use std::time::Duration;
use tokio::time::Instant;

/// A planner with the shell that acts for it.
pub(super) struct Planned<P> {
    pub(super) planner: P,
    pub(super) executor: Executor,
    pub(super) clock: Clock,
    pub(super) pace: Pace,
}

impl<P: Planner> Reconcile for Planned<P> {
    fn reconcile<'a>(
        &'a self,
        request: Request,
        recorded: &'a mut RecordedActions,
    ) -> BoxFuture<'a, Passed> {
        Box::pin(async move { self.pass(&request.key, recorded).await })
    }

    fn preview(&self, key: &Key, now: Timestamp) -> Option<Preview> {
        let seen = self.planner.observe(key)?;
        let plan = self.planner.preview(&seen, now);
        let well = plan.actions.iter().map(as_if_done).collect();
        let after = self.planner.status(&seen, &Outcomes(well), now);
        Some(Preview {
            description: self.planner.describe(&seen, now),
            would: plan.actions.iter().chain(&after.actions).map(introspect::action).collect(),
            requeue: sooner(plan.requeue, after.requeue),
            untold: false,
        })
    }
}

impl<P: Planner> Planned<P> {
    async fn pass(&self, key: &Key, recorded: &mut RecordedActions) -> Passed {
        let Some(seen) = self.planner.observe(key) else {
            self.executor.barrier.forget(key);
            return Ok(None);
        };
        let planned = self.clock.now();
        let plan = self.planner.plan(&seen, planned);
        check(&plan, key);
        let Report { outcomes, failure, aborted, .. } = self.executor.run(key, &plan.actions).await;
        recorded.add(&plan.actions, &outcomes);
        let followed =
            if aborted { Ok(None) } else { self.follow_up(key, &seen, &outcomes, recorded).await };
        let passed = match failure {
            Some(failure) => Err(failed(failure)),
            None if aborted => Ok(None),
            None => followed.map(|requeue| sooner(plan.requeue, requeue)),
        };
        let took = self.clock.now().duration_since(planned).try_into().unwrap_or_default();
        let succeeded = passed.is_ok();
        self.planner.passed(&seen, &Pass { planned, outcomes: &outcomes, took, succeeded });
        passed
    }

    /// The status, and what else follows from how the actions went.
    async fn follow_up(
        &self,
        key: &Key,
        seen: &P::Seen,
        outcomes: &Outcomes,
        recorded: &mut RecordedActions,
    ) -> Passed {
        let after = self.planner.status(seen, outcomes, self.clock.now());
        check(&after, key);
        if after.actions.is_empty() {
            return Ok(after.requeue);
        }
        // What the pass did must be told in it; what was only seen can be told later.
        if outcomes.0.is_empty()
            && let wait @ Some(_) = self.pace.wait(key, Instant::now())
        {
            return Ok(sooner(after.requeue, wait));
        }
        let Report { outcomes, failure, .. } = self.executor.run(key, &after.actions).await;
        recorded.add(&after.actions, &outcomes);
        if let Some(failure) = failure {
            // Its pause is the queue's, which grows.
            return Err(failed(failure));
        }
        self.pace.wrote(key, Instant::now());
        Ok(after.requeue)
    }
}

/// How an action goes if nothing is in its way.
fn as_if_done(action: &Action) -> Outcome {
    let succeeded = if let Action::Create(create) = action { create.count } else { 1 };
    Outcome { succeeded, error: None }
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
