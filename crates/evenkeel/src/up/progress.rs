//! Progress of a start: reports its stages and the waits of the current one, and updates the cluster's record.

use super::messages::Event;
use crate::clusters::{Claim, Record};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::clock::Clock;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Interval between reports about a stage that is not complete.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Returns the objects that a stage waits for.
type Waits = Box<dyn Fn() -> Vec<String> + Send>;

/// Function that prints an event.
pub(super) type Print = Box<dyn Fn(&Event) + Send + Sync>;

/// Progress of a start, reported to the user and recorded for other commands.
pub(super) struct Progress {
    clock: Clock,
    started: Timestamp,
    print: Print,
    claim: Claim,
    state: Mutex<StartState>,
}

/// Progress of the start of a cluster.
struct StartState {
    record: Record,
    /// Waits of the current stage.
    waits: Waits,
}

impl Progress {
    /// Creates the progress of a start that starts now.
    pub(super) fn new(clock: Clock, print: Print, claim: Claim, record: Record) -> Self {
        let state = Mutex::new(StartState { record, waits: Box::new(Vec::new) });
        Self { started: clock.now(), clock, print, claim, state }
    }

    fn state(&self) -> MutexGuard<'_, StartState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.clock.now().duration_since(self.started).as_millis()).unwrap_or_default()
    }

    /// Updates the record. Logs an error: the cluster works, but other commands do not see the change.
    pub(super) fn update_record(&self, change: impl FnOnce(&mut Record)) {
        let mut state = self.state();
        change(&mut state.record);
        if let Err(error) = self.claim.write(&state.record) {
            tracing::error!("the cluster's record cannot be written: {error:#}");
        }
    }

    /// Starts a stage. `waits` returns the objects that it waits for.
    pub(super) fn start_stage(
        &self,
        stage: &str,
        waits: impl Fn() -> Vec<String> + Send + 'static,
    ) {
        self.state().waits = Box::new(waits);
        self.update_record(|record| record.starting = Some(stage.to_owned()));
    }

    /// Reports the current stage as complete.
    pub(super) fn complete_stage(&self, detail: impl Into<String>) {
        let stage = self.state().record.starting.clone().unwrap_or_default();
        let elapsed_ms = self.elapsed_ms();
        self.print(&Event::Stage { stage, detail: detail.into(), elapsed_ms });
    }

    /// Reports that the cluster is ready.
    pub(super) fn ready(&self) {
        self.update_record(|record| record.starting = None);
        let record = self.state().record.clone();
        self.print(&Event::Ready {
            context: crate::clusters::context(&record.name),
            name: record.name,
            url: record.url.unwrap_or_default(),
            kubeconfig: record.kubeconfig,
            merged_into: record.merged_into,
            shell_kubeconfig: record.shell_kubeconfig,
            console: record.console,
            elapsed_ms: self.elapsed_ms(),
        });
    }

    /// Reports the current stage every [`REPORT_INTERVAL`] until the cluster is ready.
    pub(super) async fn report_waits(&self) {
        loop {
            self.clock.sleep(REPORT_INTERVAL).await;
            let event = {
                let state = self.state();
                let Some(stage) = state.record.starting.clone() else { return };
                Event::Waiting {
                    stage,
                    waiting_for: (state.waits)(),
                    elapsed_ms: self.elapsed_ms(),
                }
            };
            self.print(&event);
        }
    }

    /// Prints an event.
    pub(super) fn print(&self, event: &Event) {
        (self.print)(event);
    }

    /// Returns whether the cluster was ready.
    pub(super) fn was_ready(&self) -> bool {
        self.state().record.starting.is_none()
    }

    /// Ends the cluster, and removes its record and its log. With `kept_failure`, keeps them, so that other commands can show
    /// this failure.
    pub(super) fn end(self, kept_failure: Option<&str>) -> anyhow::Result<()> {
        let Some(failure) = kept_failure else { return self.claim.remove() };
        self.update_record(|record| record.failure = Some(failure.to_owned()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clusters::Clusters, kubeconfig::Home};
    use std::sync::Arc;

    const RECORD: &str =
        r#"{"name":"a","pid":1,"startedAt":"","socket":"","log":"","starting":"start"}"#;

    #[tokio::test(start_paused = true)]
    async fn a_start_that_takes_long_says_what_it_waits_for() {
        let state = tempfile::tempdir().expect("a folder");
        let home = Home { state: Some(state.path().to_owned()), ..Home::default() };
        let clusters = Clusters::of(&home);
        let clock = Clock::starting_at("2026-11-21T12:00:00Z".parse().expect("a time"));
        let printed = Arc::new(Mutex::new(Vec::new()));
        let print: Print = {
            let printed = Arc::clone(&printed);
            Box::new(move |event| printed.lock().expect("no panic").push(event.clone()))
        };
        let record = serde_json::from_str(RECORD).expect("a record");
        let claim = clusters.claim("a").expect("claimed");
        let progress = Progress::new(clock.clone(), print, claim, record);
        let start = async {
            progress.start_stage("API server", Vec::new);
            clock.sleep(Duration::from_secs(3)).await;
            progress.complete_stage("there");
            progress.start_stage("components", || vec!["pods".to_owned()]);
            let recorded = clusters.find("a").expect("read").expect("there").record;
            assert_eq!(recorded.and_then(|r| r.starting).as_deref(), Some("components"));
            clock.sleep(Duration::from_secs(8)).await;
            progress.complete_stage("there");
            progress.ready();
        };
        // The report ends by itself once the cluster is ready.
        tokio::join!(progress.report_waits(), start);
        let printed = printed.lock().expect("no panic");
        let waits: Vec<_> = printed
            .iter()
            .filter_map(|event| match event {
                Event::Waiting { stage, waiting_for, elapsed_ms } => {
                    Some((stage.as_str(), waiting_for.join(","), *elapsed_ms))
                }
                _ => None,
            })
            .collect();
        let pods = || "pods".to_owned();
        assert_eq!(waits, [("components", pods(), 5000), ("components", pods(), 10000)]);
        assert!(matches!(printed.last(), Some(Event::Ready { elapsed_ms: 11000, .. })));
        let recorded = clusters.find("a").expect("read").expect("there").record;
        assert_eq!(recorded.and_then(|record| record.starting), None);
    }
}
