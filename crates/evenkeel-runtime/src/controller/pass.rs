//! One pass of a planner over a key: observe, plan, act, then status.

use super::{
    execute::{Executor, Report},
    reconcile::Preview,
    reconcile::{Passed, Reconcile, Request, failed},
};
use crate::{
    clock::Clock,
    introspect::{self, Deeds},
    plan::{Action, Key, Outcome, Outcomes, Plan, Planner},
};
use evenkeel_api::time::Timestamp;
use futures::future::BoxFuture;
use std::time::Duration;

/// A planner with the shell that acts for it.
pub(super) struct Planned<P> {
    pub(super) planner: P,
    pub(super) executor: Executor,
    pub(super) clock: Clock,
}

impl<P: Planner> Reconcile for Planned<P> {
    fn reconcile<'a>(&'a self, request: Request, deeds: &'a mut Deeds) -> BoxFuture<'a, Passed> {
        Box::pin(async move { self.pass(&request.key, deeds).await })
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
    async fn pass(&self, key: &Key, deeds: &mut Deeds) -> Passed {
        let Some(seen) = self.planner.observe(key) else {
            self.executor.barrier.forget(key);
            return Ok(None);
        };
        let plan = self.planner.plan(&seen, self.clock.now());
        check(&plan, key);
        let first = self.executor.run(key, &plan.actions).await;
        deeds.add(&plan.actions, &first.outcomes);
        if first.aborted {
            return ended(first, None);
        }
        let after = self.planner.status(&seen, &first.outcomes, self.clock.now());
        check(&after, key);
        let second = self.executor.run(key, &after.actions).await;
        deeds.add(&after.actions, &second.outcomes);
        ended(first, None)?;
        ended(second, sooner(plan.requeue, after.requeue))
    }
}

/// How an action goes if nothing is in its way.
fn as_if_done(action: &Action) -> Outcome {
    let succeeded = if let Action::Create(create) = action { create.count } else { 1 };
    Outcome { succeeded, error: None }
}

fn ended(report: Report, requeue: Option<Duration>) -> Passed {
    report.failure.map_or(Ok(requeue), |failure| Err(failed(failure)))
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
