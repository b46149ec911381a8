//! Runs of an exploration, one after the other.

use super::{
    failure::{Explored, FAULT_VARIABLE, Failure, SEED_VARIABLE},
    options::Exploration,
    plan::{KINDS, LEASE_KINDS, RunId, parse_fault, sample},
    run::{Observed, run},
    user::User,
};
use crate::{
    BoxError,
    simulation::{Fault, FaultKind},
};

/// Environment variable with the limit on the number of runs.
const RUNS_VARIABLE: &str = "EVENKEEL_RUNS";

/// Settings from the environment variables.
#[derive(Debug, Default, PartialEq, Eq)]
struct Selection {
    seed: Option<u64>,
    /// The only fault, or the only run without one.
    fault: Option<Option<Fault>>,
    max_runs: Option<usize>,
}

impl Selection {
    /// Reads the variables that `variable` returns.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let invalid = |name: &str, text: &str| format!("{name}={text}: no number or fault");
        let number = |name: &str| -> Result<Option<u64>, String> {
            let text = variable(name);
            text.map(|text| text.parse().map_err(|_| invalid(name, &text))).transpose()
        };
        let fault = variable(FAULT_VARIABLE);
        let fault = fault
            .map(|text| parse_fault(&text).ok_or_else(|| invalid(FAULT_VARIABLE, &text)))
            .transpose()?;
        let max_runs = number(RUNS_VARIABLE)?;
        let max_runs = max_runs.map(|runs| usize::try_from(runs).unwrap_or(usize::MAX));
        Ok(Self { seed: number(SEED_VARIABLE)?, fault, max_runs })
    }

    /// Reads the environment.
    #[expect(clippy::disallowed_methods, reason = "the environment of a test selects its runs")]
    fn of_environment() -> Self {
        let selection = Self::read(|name| std::env::var(name).ok());
        selection.unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Returns the limit on the number of runs that the environment variable `EVENKEEL_RUNS` sets, or this default.
///
/// # Panics
/// Panics if an environment variable that selects runs is invalid.
pub fn max_runs(default: usize) -> usize {
    Selection::of_environment().max_runs.unwrap_or(default)
}

impl Exploration {
    /// Performs all runs, as [`explore`](super::explore()) does.
    ///
    /// # Panics
    /// Panics if a run fails.
    pub fn run<S>(&self, scenario: S) -> Explored
    where
        S: AsyncFn(User) -> Result<(), BoxError>,
    {
        self.check(scenario).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Performs all runs, until one fails.
    ///
    /// # Errors
    /// Returns the first failure.
    ///
    /// # Panics
    /// Panics if an environment variable that selects runs is invalid.
    pub fn check<S>(&self, scenario: S) -> Result<Explored, Box<Failure>>
    where
        S: AsyncFn(User) -> Result<(), BoxError>,
    {
        self.check_selected(&scenario, &Selection::of_environment())
    }

    fn check_selected<S>(
        &self,
        scenario: &S,
        selection: &Selection,
    ) -> Result<Explored, Box<Failure>>
    where
        S: AsyncFn(User) -> Result<(), BoxError>,
    {
        let first = run(self, scenario, RunId::without_fault(0), None)?;
        let Observed { writes, digest, .. } = first;
        let mut explored = Explored { runs: 1, kinds: 0, writes, digest };
        let mut add = |id: RunId| -> Result<u64, Box<Failure>> {
            let observed = run(self, scenario, id, Some(&first))?;
            explored.runs += 1;
            explored.digest = explored.digest.rotate_left(1) ^ observed.digest;
            Ok(observed.writes)
        };
        let mut writes = Vec::new();
        let seeds = selection.seed.map_or(0..self.seeds, |seed| seed..seed.saturating_add(1));
        for seed in seeds {
            let of_seed = match (seed, selection.fault) {
                (0, _) => first.writes,
                // The run to repeat is known.
                (_, Some(Some(_))) => 0,
                _ => add(RunId::without_fault(seed))?,
            };
            writes.push((seed, of_seed));
        }
        let selected = match selection.fault {
            Some(None) => Vec::new(),
            Some(fault) => writes.iter().map(|(seed, _)| RunId { seed: *seed, fault }).collect(),
            None => {
                let max_runs = selection.max_runs.unwrap_or(self.max_runs);
                sample(&writes, &self.kinds_of(&first), max_runs)
            }
        };
        for id in &selected {
            add(*id)?;
        }
        let mut kinds: Vec<FaultKind> = Vec::new();
        for kind in selected.iter().filter_map(|id| Some(id.fault?.kind)) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        explored.kinds = kinds.len();
        Ok(explored)
    }

    fn kinds_of(&self, first: &Observed) -> Vec<FaultKind> {
        let of_leases = if first.has_leases { &LEASE_KINDS[..] } else { &[] };
        let all = || KINDS.iter().chain(of_leases).copied().collect();
        self.kinds.clone().unwrap_or_else(all)
    }

    /// Repeats the run that failed.
    ///
    /// # Errors
    /// Returns the failure of the run, which is the same as before.
    pub fn repeat<S>(&self, failure: &Failure, scenario: S) -> Result<Explored, Box<Failure>>
    where
        S: AsyncFn(User) -> Result<(), BoxError>,
    {
        let RunId { seed, fault } = failure.id();
        let selection = Selection { seed: Some(seed), fault: Some(fault), max_runs: None };
        self.check_selected(&scenario, &selection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explore::plan::OPERATOR;

    #[test]
    fn the_environment_selects_runs() {
        let read = |variables: &[(&str, &str)]| {
            Selection::read(|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, text)| (*text).to_owned())
            })
        };
        assert_eq!(read(&[]), Ok(Selection::default()));
        let fault = Fault { part: OPERATOR, at: 7, kind: FaultKind::CrashAfter };
        let one = Selection { seed: Some(3), fault: Some(Some(fault)), max_runs: None };
        assert_eq!(read(&[(SEED_VARIABLE, "3"), (FAULT_VARIABLE, "crash-after@7")]), Ok(one));
        let many = Selection { max_runs: Some(5000), ..Selection::default() };
        assert_eq!(read(&[(RUNS_VARIABLE, "5000")]), Ok(many));
        let error = read(&[(FAULT_VARIABLE, "crash")]).expect_err("it is no fault");
        assert!(error.contains("EVENKEEL_FAULT=crash"), "{error}");
    }
}
