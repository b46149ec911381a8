//! Logs of simulated containers.
//!
//! No lines are stored: a run is a function of its inputs, so each request interprets it again.

use evenkeel_api::time::Timestamp;
use evenkeel_shell::{Files, Processes, RunContext, later};
use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use crate::pod::memory::run_id;
use crate::pod::memory::{Memory, Slot, State};

/// Reference to the log of a container: of its current or of its previous run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerRef {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub name: String,
    /// Whether to read the log of the run before the last restart.
    pub previous: bool,
}

/// One line of a container's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Time at which the container printed the line.
    pub time: Timestamp,
    /// Text with its newline, which only the last line of a log may lack.
    pub text: String,
}

/// One run of a container, with all inputs that determine its log.
#[derive(Debug, Clone)]
pub(crate) struct LoggedRun {
    /// ID of the run: `UID/CONTAINER/RESTARTS`.
    pub(crate) id: String,
    pub(crate) start: Timestamp,
    /// End of the run; `None` while it runs.
    pub(crate) end: Option<Timestamp>,
    pub(crate) signal: Option<Timestamp>,
    pub(crate) address: Ipv4Addr,
    pub(crate) processes: Arc<Processes>,
    pub(crate) files: Arc<Files>,
    pub(crate) node_files: Arc<Files>,
}

impl LoggedRun {
    /// Returns the run of the container that `container` refers to; `None` if it has not run.
    pub(crate) fn select(
        uid: &str,
        container: &ContainerRef,
        slot: &Slot,
        memory: &Memory,
        processes: &Arc<Processes>,
        node_files: Arc<Files>,
    ) -> Option<Self> {
        let previous_run = || {
            // During the backoff, the restart is not counted yet, so the run that ended has the current number.
            let is_in_backoff = matches!(slot.state, State::BackOff { .. });
            let number =
                if is_in_backoff { slot.restarts } else { slot.restarts.checked_sub(1)? };
            let last = slot.last?;
            Some((number, last.started?, Some(last.finished), None))
        };
        let (number, start, end, signal) = match slot.state {
            _ if container.previous => previous_run()?,
            State::Running { since } => (slot.restarts, since, None, slot.signal),
            State::Ended(ended) => {
                (slot.restarts, ended.started?, Some(ended.finished), slot.signal)
            }
            _ => previous_run()?,
        };
        Some(Self {
            id: run_id(uid, &container.name, number),
            start,
            end,
            signal,
            address: memory.ip,
            processes: Arc::clone(processes),
            files: Arc::clone(&memory.files),
            node_files,
        })
    }

    /// Returns whether both are the same run with the same inputs.
    pub(crate) fn prints_the_same_as(&self, other: &Self) -> bool {
        let input = |run: &Self| {
            (run.start, run.end, run.signal, run.files.changes(), run.node_files.changes())
        };
        self.id == other.id && input(self) == input(other)
    }

    /// Returns the lines that the run prints until `until`; none if the interpreter does not understand its
    /// command.
    pub(crate) fn lines(&self, container: &str, until: Timestamp) -> Vec<LogLine> {
        let Some(process) = self.processes.get(container) else { return Vec::new() };
        let since_start = |time: Timestamp| {
            Duration::try_from(time.duration_since(self.start)).unwrap_or_default()
        };
        let context = RunContext {
            start: self.start,
            signal: self.signal.map(since_start),
            run: &self.id,
            pod: &self.files,
            node: &self.node_files,
            address: self.address,
        };
        let until = self.end.map_or(until, |end| end.min(until));
        let lines = process.log(&context, since_start(until)).into_iter();
        lines.map(|line| LogLine { time: later(self.start, line.after), text: line.text }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::memory::Ended;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn current_or_previous_run_is_selected() {
        let ended = |started: Option<i64>, finished: i64| Ended {
            started: started.map(at),
            finished: at(finished),
            exit_code: 1,
            killed: false,
        };
        let running = State::Running { since: at(30) };
        let back_off = State::BackOff { until: at(99) };
        let last = Some(ended(Some(10), 20));
        let table = [
            (State::Waiting, 0, None, None, None),
            (State::Creating { until: at(1) }, 0, None, None, None),
            (running, 0, None, Some(("u/c/0", 30, None)), None),
            (running, 2, last, Some(("u/c/2", 30, None)), Some(("u/c/1", 10, Some(20)))),
            (back_off, 1, last, Some(("u/c/1", 10, Some(20))), Some(("u/c/1", 10, Some(20)))),
            (State::Ended(ended(Some(10), 20)), 0, None, Some(("u/c/0", 10, Some(20))), None),
            (State::Ended(ended(None, 20)), 0, None, None, None),
        ];
        for (state, restarts, last, newest, before) in table {
            let slot = Slot { state, restarts, last, ..Slot::default() };
            for (previous, expected) in [(false, newest), (true, before)] {
                let container = ContainerRef {
                    namespace: "n".to_owned(),
                    pod: "p".to_owned(),
                    name: "c".to_owned(),
                    previous,
                };
                let memory = Memory::fresh(0, 1, Ipv4Addr::LOCALHOST, at(0));
                let run = LoggedRun::select(
                    "u",
                    &container,
                    &slot,
                    &memory,
                    &Arc::default(),
                    Arc::default(),
                );
                let found = run.as_ref().map(|run| {
                    (&*run.id, run.start.as_second(), run.end.map(Timestamp::as_second))
                });
                assert_eq!(found, expected, "{slot:?} {previous}");
            }
        }
    }
}
