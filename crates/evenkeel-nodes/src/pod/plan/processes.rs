//! Runs of containers whose command the shell interpreter understands, and the files that these runs share.

use evenkeel_api::time::Timestamp;
use evenkeel_shell::{Process, Run, RunContext, Scope, Write, later};
use std::{sync::Arc, time::Duration};

use super::Pass;
use crate::pod::memory::run_id;
use crate::pod::{
    facts::Container,
    memory::{CommandState, ShellExit, Slot},
};

/// Files that one run writes to its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeWrites {
    /// ID of the run.
    pub(crate) by: Arc<str>,
    pub(crate) start: Timestamp,
    /// All writes of the run. They replace those recorded before.
    pub(crate) writes: Vec<Write>,
}

impl Pass<'_> {
    /// Returns the outcome of the run that began at `since`, and evaluates it again if files that it reads have
    /// changed.
    fn known(
        &mut self,
        container: &Container<'_>,
        slot: &mut Slot,
        since: Timestamp,
    ) -> Option<Arc<Run>> {
        let process = container.process?;
        let now = (self.memory.files.changes(), self.node_files.changes());
        match &slot.doing {
            CommandState::Unknown => return None,
            CommandState::Known(run, then) if *then == now || !run.reads_shared_files => {
                return Some(Arc::clone(run));
            }
            _ => {}
        }
        let by = self.run_of(container, slot);
        match process.run(&self.run_context(since, slot.signal, &by)) {
            Err(_not_understood) => {
                slot.doing = CommandState::Unknown;
                None
            }
            Ok(run) => {
                let run = Arc::new(run);
                self.record_writes(&by, since, &run.writes, None);
                let now = (self.memory.files.changes(), self.node_files.changes());
                slot.doing = CommandState::Known(Arc::clone(&run), now);
                Some(run)
            }
        }
    }

    fn run_of(&self, container: &Container<'_>, slot: &Slot) -> Arc<str> {
        run_id(self.facts.uid, container.name, slot.restarts).into()
    }

    fn run_context<'p>(
        &'p self,
        start: Timestamp,
        signal: Option<Timestamp>,
        run: &'p str,
    ) -> RunContext<'p> {
        let after =
            |at: Timestamp| Duration::try_from(at.duration_since(start)).unwrap_or_default();
        RunContext {
            start,
            signal: signal.map(after),
            run,
            pod: &self.memory.files,
            node: &self.node_files,
            address: self.memory.ip,
        }
    }

    /// Records the writes of a run up to `end`; all writes if `end` is `None`.
    fn record_writes(
        &mut self,
        by: &Arc<str>,
        start: Timestamp,
        writes: &[Write],
        end: Option<Timestamp>,
    ) {
        let done = |write: &&Write| end.is_none_or(|end| later(start, write.after) <= end);
        let of_node = |write: &&Write| write.path.scope == Scope::Node;
        let (node, pod): (Vec<&Write>, Vec<&Write>) = writes.iter().filter(done).partition(of_node);
        if writes.iter().any(|write| !of_node(&write)) {
            Arc::make_mut(&mut self.memory.files).replace(by, start, &pod);
        }
        if writes.iter().any(|write| of_node(&write)) {
            Arc::make_mut(&mut self.node_files).replace(by, start, &node);
            let writes = node.into_iter().cloned().collect();
            self.node_writes.push(NodeWrites { by: Arc::clone(by), start, writes });
        }
    }

    /// Resets the container's state and files for a new run.
    pub(super) fn begin_run(&mut self, container: &Container<'_>, slot: &mut Slot) {
        (slot.doing, slot.signal, slot.unready) = (CommandState::NotEvaluated, None, false);
        if container.process.is_some() {
            let running = self.memory.slots().filter_map(Slot::running).min();
            let oldest = running.map_or(self.now, |since| since.min(self.now));
            Arc::make_mut(&mut self.memory.files).clear(container.name, oldest);
        }
    }

    /// Returns when and with which exit code the run that began at `since` ends by itself. Annotations take precedence over
    /// the container's command, and the command over the default.
    pub(super) fn ends(
        &mut self,
        container: &Container<'_>,
        slot: &mut Slot,
        since: Timestamp,
    ) -> Option<(Timestamp, i32)> {
        let script = &container.script;
        let is_its =
            |exit: &&ShellExit| exit.container == container.name && exit.restarts == slot.restarts;
        if let Some(exit) = self.facts.exits.iter().find(is_its) {
            return Some((exit.at, exit.exit_code));
        }
        if !script.may_end(slot.restarts) {
            return None;
        }
        let run = if script.set.run_time { None } else { self.known(container, slot, since) };
        let (lasts, status) = match run {
            Some(run) => {
                (run.lasts?, if script.set.exit_code { script.exit_code } else { run.exit_code })
            }
            None => (script.run_time?, script.exit_code),
        };
        Some((later(since, lasts), status))
    }

    /// Returns when and with which exit code the run ends after SIGTERM at `stopped_at`; no time if it ignores the
    /// signal.
    pub(super) fn stops(
        &mut self,
        container: &Container<'_>,
        slot: &mut Slot,
        since: Timestamp,
        stopped_at: Timestamp,
    ) -> (Option<Timestamp>, i32) {
        let script = &container.script;
        if script.set.termination_time || script.set.run_time {
            return (Some(later(stopped_at, script.termination_time)), 0);
        }
        if slot.signal != Some(stopped_at) {
            slot.signal = Some(stopped_at);
            if matches!(slot.doing, CommandState::Known(..)) {
                slot.doing = CommandState::NotEvaluated;
            }
        }
        match self.known(container, slot, since) {
            Some(run) => (run.lasts.map(|lasts| later(since, lasts)), run.exit_code),
            None => (Some(later(stopped_at, script.termination_time)), 0),
        }
    }

    /// Drops the writes that a killed run would have made after now.
    pub(super) fn cut(&mut self, container: &Container<'_>, slot: &Slot, since: Timestamp) {
        if let CommandState::Known(run, _) = &slot.doing {
            let by = self.run_of(container, slot);
            self.record_writes(&by, since, &run.writes, Some(self.now));
        }
    }

    /// Runs the exec readiness probes, and wakes the sync at the next change of a file that they may read.
    pub(super) fn probe(&mut self) {
        for (group, n) in self.numbers() {
            let (container, slot) = self.at(group, n);
            let probed = container.process.filter(|process| {
                process.has_readiness_probe()
                    && slot.running().is_some()
                    && !container.script.set.readiness
            });
            let unready = probed.is_some_and(|process| self.readiness_fails(process));
            let changes = [&self.memory.files, &self.node_files];
            let next =
                changes.into_iter().filter_map(|files| files.next_change(self.now, "")).min();
            if let (Some(next), true) = (next, probed.is_some()) {
                self.wake_at(next);
            }
            self.memory.group_mut(group)[n].unready = unready;
        }
    }

    fn readiness_fails(&self, process: &Process) -> bool {
        let run = format!("{}/probe", self.facts.uid);
        process.readiness(&self.run_context(self.now, None, &run)) == Some(false)
    }
}
