//! Steps of a pass (one reconcile of a key), as one function.

use super::{Action, Outcome, Outcomes, Plan};
use std::time::Duration;

/// Outcomes of a pass so far, step by step.
///
/// Support for planners whose steps depend on each other. For each step, one pure function runs from the beginning. It receives
/// the outcomes of earlier steps as if it had awaited them, and returns the first step that was not executed yet:
///
/// ```
/// use evenkeel_runtime::plan::{LiveRead, Outcomes, Plan, Steps};
///
/// fn decide(steps: &mut Steps<'_>) -> Result<Plan, Plan> {
///     let read = steps.one(LiveRead::json("/version"))?;
///     let is_there = read.reply.is_some();
///     Ok(if is_there { Plan::nothing() } else { Plan::failure("there is no version") })
/// }
///
/// let first = Steps::next(&Outcomes::default(), decide).expect("a step");
/// assert_eq!(first, Plan::one(LiveRead::json("/version")));
/// ```
///
/// The function must be deterministic, so all steps of a pass receive the same time.
#[derive(Debug)]
pub struct Steps<'a> {
    /// Outcomes of the steps that `decide` has not reached yet.
    rest: &'a [Outcome],
    /// Total duration of the live reads so far.
    took: Duration,
}

impl<'a> Steps<'a> {
    /// Starts at the first of these outcomes, for results of all steps, such as metrics.
    pub fn of(outcomes: &'a Outcomes) -> Self {
        Self { rest: &outcomes.0, took: Duration::ZERO }
    }

    /// Returns the total duration of the live reads in the steps so far.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Returns the step after these outcomes: the error of `decide`, or the last step, which `decide` returns as its
    /// success. Returns `None` if the last step was executed.
    pub fn next(
        outcomes: &'a Outcomes,
        decide: impl FnOnce(&mut Self) -> Result<Plan, Plan>,
    ) -> Option<Plan> {
        let mut steps = Self::of(outcomes);
        match decide(&mut steps) {
            Err(step) => Some(step),
            Ok(last) => steps.rest.is_empty().then_some(last),
        }
    }

    /// Returns the outcomes of a step's actions; empty for a step without actions.
    ///
    /// # Errors
    /// `Err` contains the step itself, if it was not executed yet.
    pub fn all(&mut self, step: Plan) -> Result<&'a [Outcome], Plan> {
        match self.rest.split_at_checked(step.actions.len()) {
            Some((outcomes, rest)) => {
                self.rest = rest;
                self.took += outcomes.iter().map(|outcome| outcome.took).sum::<Duration>();
                Ok(outcomes)
            }
            None => Err(step),
        }
    }

    /// Returns the outcome of a step with one action.
    ///
    /// # Errors
    /// `Err` contains the step itself, if it was not executed yet.
    pub fn one(&mut self, action: impl Into<Action>) -> Result<&'a Outcome, Plan> {
        let Some((outcome, rest)) = self.rest.split_first() else { return Err(Plan::one(action)) };
        self.rest = rest;
        self.took += outcome.took;
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Failure, LiveRead, Reply};

    fn read(path: &str) -> LiveRead {
        LiveRead::json(path)
    }

    /// Reads one path, and two other paths if it exists.
    fn decide(steps: &mut Steps<'_>) -> Result<Plan, Plan> {
        if steps.one(read("/a"))?.reply.is_none() {
            return Ok(Plan::failure("gone"));
        }
        let both = steps.all(Plan::of(vec![read("/b").into(), read("/c").into()]))?;
        let found = both.iter().filter(|outcome| outcome.reply.is_some()).count();
        Ok(Plan::one(read(&format!("/{found}"))))
    }

    #[test]
    fn each_step_depends_on_the_outcomes_of_earlier_steps() {
        let found = || Outcome { reply: Some(Reply::json("{}")), ..Outcome::success() };
        let not_found = || Outcome::failure(Failure { code: 404, ..Failure::local("gone") });
        let both = Plan::of(vec![read("/b").into(), read("/c").into()]);
        let table = [
            (vec![], Some(Plan::one(read("/a")))),
            (vec![not_found()], Some(Plan::failure("gone"))),
            (vec![found()], Some(both)),
            (vec![found(), not_found(), found()], Some(Plan::one(read("/1")))),
            (vec![found(), not_found(), found(), found()], None),
        ];
        for (number, (outcomes, want)) in table.into_iter().enumerate() {
            assert_eq!(Steps::next(&Outcomes(outcomes), decide), want, "{number}");
        }
    }
}
