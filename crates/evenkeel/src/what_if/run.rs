//! Runs the variants, and reports their progress to the user.

use super::{Variant, memory};
use anyhow::{Result, anyhow};
use evenkeel_whatif::{Cluster, Progress, Scenario, charts, report, simulate_with_progress};
use std::{
    cell::Cell,
    io::Write as _,
    time::{Duration, Instant},
};

/// Interval between messages about the progress. A shorter run prints none.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Runs the variants, each on its own thread, concurrently if the memory allows it.
pub(super) fn run_all(cluster: &Cluster, scenarios: &[(String, Scenario)]) -> Result<Vec<Variant>> {
    let start = |(name, scenario): &(String, Scenario)| {
        let shown = (scenarios.len() > 1).then_some(&**name);
        let log = ProgressLog::new(shown, scenario.duration);
        let progress = |progress| log.report(progress);
        let recording = simulate_with_progress(cluster, scenario, progress)?;
        let (report, charts) = (report(&recording), charts(&recording));
        Ok(Variant { name: name.clone(), report, charts })
    };
    let runs = scenarios.len();
    if runs > 1 && !memory::fits(length(cluster), u64::try_from(runs).unwrap_or(u64::MAX)) {
        return scenarios.iter().map(start).collect();
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = scenarios
            .iter()
            .map(|variant| (&variant.0, scope.spawn(move || start(variant))))
            .collect();
        let finished = threads.into_iter().map(|(name, thread)| {
            thread.join().map_err(|_| anyhow!("the simulation of {name} panicked"))?
        });
        finished.collect()
    })
}

/// Returns the length of the cluster's objects as JSON.
fn length(cluster: &Cluster) -> u64 {
    let lengths = cluster.objects().iter().map(|object| object.to_string().len());
    u64::try_from(lengths.sum::<usize>()).unwrap_or(u64::MAX)
}

/// Messages on standard error about the progress of a long simulation.
struct ProgressLog<'a> {
    /// Name of the variant; `None` if there is only one.
    name: Option<&'a str>,
    /// Virtual time to simulate.
    duration: Duration,
    last: Cell<Instant>,
}

impl<'a> ProgressLog<'a> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the user waits for this program, not for virtual time"
    )]
    fn now() -> Instant {
        Instant::now()
    }

    fn new(name: Option<&'a str>, duration: Duration) -> Self {
        Self { name, duration, last: Cell::new(Self::now()) }
    }

    /// Writes a message if the last one was some time ago.
    fn report(&self, progress: Progress) {
        let now = Self::now();
        if now.duration_since(self.last.get()) < PROGRESS_INTERVAL {
            return;
        }
        self.last.set(now);
        // Nothing depends on a message that cannot be written.
        let _ = writeln!(std::io::stderr(), "{}", message(self.name, progress, self.duration));
    }
}

/// Returns a message about the progress.
fn message(name: Option<&str>, progress: Progress, duration: Duration) -> String {
    let time = |time: Duration| {
        let seconds = time.as_secs();
        format!("{}h{:02}m{:02}s", seconds / 3600, seconds / 60 % 60, seconds % 60)
    };
    let name = name.map_or(String::new(), |name| format!("{name}: "));
    match progress {
        Progress::Loading => format!("{name}loading the cluster"),
        Progress::Settling(passed) => {
            format!("{name}the cluster settles before the change: {} simulated", time(passed))
        }
        Progress::Changed(passed) => {
            format!("{name}{} of {} simulated", time(passed), time(duration))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_how_far_a_simulation_is() {
        let hours = Duration::from_hours;
        let changed = Progress::Changed(Duration::from_secs(3 * 3600 + 61));
        assert_eq!(message(None, changed, hours(24)), "3h01m01s of 24h00m00s simulated");
        let settling = Progress::Settling(Duration::from_secs(90));
        assert_eq!(
            message(Some("a.yaml"), settling, hours(24)),
            "a.yaml: the cluster settles before the change: 0h01m30s simulated"
        );
        assert_eq!(message(None, Progress::Loading, hours(1)), "loading the cluster");
    }
}
