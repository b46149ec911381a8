//! Runs of the containers whose command the shell interpreter understands, and the files that these runs share.

use evenkeel_api::time::Timestamp;
use evenkeel_shell::{Process, Run, RunContext, Scope, Write, later};
use std::{sync::Arc, time::Duration};

use super::PodSync;
use crate::behaviour::CRASH_EXIT_CODE;
use crate::pod::memory::run_id;
use crate::pod::{
    facts::Container,
    memory::{CommandState, ShellExit, Slot},
};

/// Duration of a failing run that would not end by itself.
const FAILURE_DELAY: Duration = Duration::from_secs(1);

/// Returns the exit code of a run that fails.
fn failing(exit_code: i32) -> i32 {
    if exit_code == 0 { CRASH_EXIT_CODE } else { exit_code }
}

/// Writes of one run to the files of its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeWrites {
    /// ID of the run.
    pub(crate) by: Arc<str>,
    pub(crate) start: Timestamp,
    /// All writes of the run. They replace those recorded before.
    pub(crate) writes: Vec<Write>,
}

impl PodSync<'_> {
    /// Returns the run that began at `since`; `None` if the interpreter does not understand the command. Evaluates it
    /// again if shared files have changed and the run reads such files.
    fn evaluate(
        &mut self,
        container: &Container<'_>,
        slot: &mut Slot,
        since: Timestamp,
    ) -> Option<Arc<Run>> {
        let process = container.process?;
        let versions = (self.memory.files.changes(), self.node_files.changes());
        match &slot.command {
            CommandState::Unknown => return None,
            CommandState::Known(run, read) if *read == versions || !run.reads_shared_files => {
                return Some(Arc::clone(run));
            }
            _ => {}
        }
        let by = self.current_run_id(container, slot);
        match process.run(&self.run_context(since, slot.signal, &by)) {
            Err(_not_understood) => {
                slot.command = CommandState::Unknown;
                None
            }
            Ok(run) => {
                let run = Arc::new(run);
                self.record_writes(&by, since, &run.writes, None);
                let versions = (self.memory.files.changes(), self.node_files.changes());
                slot.command = CommandState::Known(Arc::clone(&run), versions);
                Some(run)
            }
        }
    }

    /// Returns the ID of the container's current run.
    fn current_run_id(&self, container: &Container<'_>, slot: &Slot) -> Arc<str> {
        run_id(self.facts.uid, container.name, slot.restarts).into()
    }

    /// Returns the context of the interpreter for a run.
    fn run_context<'p>(
        &'p self,
        start: Timestamp,
        signal: Option<Timestamp>,
        run: &'p str,
    ) -> RunContext<'p> {
        let since_start =
            |time: Timestamp| Duration::try_from(time.duration_since(start)).unwrap_or_default();
        RunContext {
            start,
            signal: signal.map(since_start),
            run,
            pod: &self.memory.files,
            node: &self.node_files,
            address: self.memory.ip,
        }
    }

    /// Records the writes of a run up to `end`, or all of them if `end` is `None`. They replace those recorded before.
    fn record_writes(
        &mut self,
        by: &Arc<str>,
        start: Timestamp,
        writes: &[Write],
        end: Option<Timestamp>,
    ) {
        let is_in_time = |write: &&Write| end.is_none_or(|end| later(start, write.after) <= end);
        let is_to_node = |write: &&Write| write.path.scope == Scope::Node;
        let (node, pod): (Vec<&Write>, Vec<&Write>) =
            writes.iter().filter(is_in_time).partition(is_to_node);
        if writes.iter().any(|write| !is_to_node(&write)) {
            Arc::make_mut(&mut self.memory.files).replace(by, start, &pod);
        }
        if writes.iter().any(|write| is_to_node(&write)) {
            Arc::make_mut(&mut self.node_files).replace(by, start, &node);
            let writes = node.into_iter().cloned().collect();
            self.node_writes.push(NodeWrites { by: Arc::clone(by), start, writes });
        }
    }

    /// Resets the container's state and files for a new run.
    pub(super) fn begin_run(&mut self, container: &Container<'_>, slot: &mut Slot) {
        (slot.command, slot.signal, slot.unready) = (CommandState::NotEvaluated, None, false);
        if container.process.is_some() {
            let running = self.memory.slots().filter_map(Slot::running).min();
            let oldest = running.map_or(self.now, |since| since.min(self.now));
            Arc::make_mut(&mut self.memory.files).clear_container(container.name, oldest);
        }
    }

    /// Returns the end and the exit code of the run that began at `since`; `None` if it does not end by itself. An
    /// attached shell's exit takes precedence, then a crash, then annotations, then the container's command, then the
    /// default.
    pub(super) fn exit_of_run(
        &mut self,
        container: &Container<'_>,
        slot: &mut Slot,
        since: Timestamp,
    ) -> Option<(Timestamp, i32)> {
        let script = &container.script;
        let is_of_run =
            |exit: &&ShellExit| exit.container == container.name && exit.restarts == slot.restarts;
        if let Some(exit) = self.facts.exits.iter().find(is_of_run) {
            return Some((exit.at, exit.exit_code));
        }
        if let Some(crash) = script.crash.and_then(|crash| crash.time(since, self.now)) {
            return Some((crash, CRASH_EXIT_CODE));
        }
        if !script.may_end(slot.restarts) {
            return None;
        }
        let run =
            if script.annotated.run_time { None } else { self.evaluate(container, slot, since) };
        let end = match run {
            Some(run) => run.lasts.map(|run_time| (run_time, run.exit_code)),
            None => script.run_time.map(|run_time| (run_time, 0)),
        };
        let fails = script.fails(slot.restarts);
        // With a failure rate, only failing runs have the exit code.
        let own_exit_code =
            script.own_exit_code().filter(|_| fails || script.failure.is_none() || script.crashes);
        let with_own = |exit_code: i32| own_exit_code.unwrap_or(exit_code);
        let (run_time, exit_code) = match end {
            end if !fails => end.map(|(run_time, exit_code)| (run_time, with_own(exit_code)))?,
            None => (FAILURE_DELAY, failing(with_own(0))),
            Some((run_time, exit_code)) => (run_time, failing(with_own(exit_code))),
        };
        Some((later(since, run_time), exit_code))
    }

    /// Returns the end and the exit code of the run after SIGTERM at `stopped_at`; no time if the run does not end.
    pub(super) fn exit_after_signal(
        &mut self,
        container: &Container<'_>,
        slot: &mut Slot,
        since: Timestamp,
        stopped_at: Timestamp,
    ) -> (Option<Timestamp>, i32) {
        let script = &container.script;
        if script.annotated.termination_time || script.annotated.run_time {
            return (Some(later(stopped_at, script.termination_time)), 0);
        }
        if slot.signal != Some(stopped_at) {
            slot.signal = Some(stopped_at);
            if matches!(slot.command, CommandState::Known(..)) {
                slot.command = CommandState::NotEvaluated;
            }
        }
        match self.evaluate(container, slot, since) {
            Some(run) => (run.lasts.map(|lasts| later(since, lasts)), run.exit_code),
            None => (Some(later(stopped_at, script.termination_time)), 0),
        }
    }

    /// Drops the writes that a stopped run would have made after now.
    pub(super) fn drop_later_writes(
        &mut self,
        container: &Container<'_>,
        slot: &Slot,
        since: Timestamp,
    ) {
        if let CommandState::Known(run, _) = &slot.command {
            let by = self.current_run_id(container, slot);
            self.record_writes(&by, since, &run.writes, Some(self.now));
        }
    }

    /// Runs the exec readiness probes, and wakes the sync at the next change of a file that one may read.
    pub(super) fn probe(&mut self) {
        for (group, index) in self.container_indexes() {
            let (container, slot) = self.container_at(group, index);
            let probed = container.process.filter(|process| {
                process.has_readiness_probe()
                    && slot.running().is_some()
                    && !container.script.annotated.readiness
            });
            let unready = probed.is_some_and(|process| self.readiness_fails(process));
            let files = [&self.memory.files, &self.node_files];
            let next_change =
                files.into_iter().filter_map(|files| files.next_change(self.now, "")).min();
            if let (Some(time), true) = (next_change, probed.is_some()) {
                self.wake_at(time);
            }
            self.memory.group_mut(group)[index].unready = unready;
        }
    }

    /// Returns whether the readiness probe of a process fails now.
    fn readiness_fails(&self, process: &Process) -> bool {
        let run = format!("{}/probe", self.facts.uid);
        process.readiness(&self.run_context(self.now, None, &run)) == Some(false)
    }
}
