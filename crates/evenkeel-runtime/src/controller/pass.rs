//! One pass of a planner over a key: observe, plan, act, then status.

use super::{
    execute::{Executor, Report},
    reconcile::{Passed, Reconcile, Request, failed},
};
use crate::{
    clock::Clock,
    plan::{Key, Plan, Planner},
};
use futures::future::BoxFuture;
use std::time::Duration;

/// A planner with the shell that acts for it.
pub(super) struct Planned<P> {
    pub(super) planner: P,
    pub(super) executor: Executor,
    pub(super) clock: Clock,
}

impl<P: Planner> Reconcile for Planned<P> {
    fn reconcile(&self, request: Request) -> BoxFuture<'_, Passed> {
        Box::pin(async move { self.pass(&request.key).await })
    }
}

impl<P: Planner> Planned<P> {
    async fn pass(&self, key: &Key) -> Passed {
        let Some(seen) = self.planner.observe(key) else {
            self.executor.barrier.forget(key);
            return Ok(None);
        };
        let plan = self.planner.plan(&seen, self.clock.now());
        check(&plan, key);
        let first = self.executor.run(key, &plan.actions).await;
        if first.aborted {
            return ended(first, None);
        }
        let after = self.planner.status(&seen, &first.outcomes, self.clock.now());
        check(&after, key);
        let second = self.executor.run(key, &after.actions).await;
        ended(first, None)?;
        ended(second, sooner(plan.requeue, after.requeue))
    }
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
