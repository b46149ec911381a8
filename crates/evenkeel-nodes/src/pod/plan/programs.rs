//! What containers with a command that is understood do, and the files through which they see each other.

use evenkeel_api::time::Timestamp;
use std::{sync::Arc, time::Duration};

use super::Pass;
use crate::{
    pod::{
        facts::Container,
        memory::{Doing, Slot, later},
    },
    program::{
        Program, Run, Surroundings,
        files::{Scope, Write},
    },
};

/// What a run changes, and will change, on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeWrites {
    /// The run.
    pub(crate) by: Arc<str>,
    pub(crate) start: Timestamp,
    /// All of them: they take the place of those told before.
    pub(crate) writes: Vec<Write>,
}

impl Pass<'_> {
    /// What the run does that began at `since`; asked again when files have changed that it looked at.
    fn known(
        &mut self,
        container: &Container<'_>,
        slot: &mut Slot,
        since: Timestamp,
    ) -> Option<Arc<Run>> {
        let program = container.program?;
        let now = (self.memory.files.changes(), self.node_files.changes());
        match &slot.doing {
            Doing::Unknown => return None,
            Doing::Known(run, then) if *then == now || !run.looked => return Some(Arc::clone(run)),
            _ => {}
        }
        let by = self.run_of(container, slot);
        match program.run(&self.around(since, slot.signal, &by)) {
            Err(_not_understood) => {
                slot.doing = Doing::Unknown;
                None
            }
            Ok(run) => {
                let run = Arc::new(run);
                self.note(&by, since, &run.writes, None);
                let now = (self.memory.files.changes(), self.node_files.changes());
                slot.doing = Doing::Known(Arc::clone(&run), now);
                Some(run)
            }
        }
    }

    fn run_of(&self, container: &Container<'_>, slot: &Slot) -> Arc<str> {
        format!("{}/{}/{}", self.facts.uid, container.name, slot.restarts).into()
    }

    fn around<'p>(
        &'p self,
        start: Timestamp,
        signal: Option<Timestamp>,
        run: &'p str,
    ) -> Surroundings<'p> {
        let after =
            |at: Timestamp| Duration::try_from(at.duration_since(start)).unwrap_or_default();
        Surroundings {
            start,
            signal: signal.map(after),
            run,
            pod: &self.memory.files,
            node: &self.node_files,
            address: self.memory.ip,
        }
    }

    /// Notes what a run writes, up to `end`.
    fn note(&mut self, by: &Arc<str>, start: Timestamp, writes: &[Write], end: Option<Timestamp>) {
        let done = |write: &&Write| end.is_none_or(|end| later(start, write.after) <= end);
        let of_node = |write: &&Write| write.place.scope == Scope::Node;
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

    /// Makes ready for a new run of a container.
    pub(super) fn begin_program(&mut self, container: &Container<'_>, slot: &mut Slot) {
        (slot.doing, slot.signal, slot.unready) = (Doing::Unasked, None, false);
        if container.program.is_some() {
            let running = self.memory.slots().filter_map(Slot::running).min();
            let oldest = running.map_or(self.now, |since| since.min(self.now));
            Arc::make_mut(&mut self.memory.files).clear(container.name, oldest);
        }
    }

    /// When and with which code the run that began at `since` ends by itself. Annotations win over its command, and its
    /// command over what pods do by default.
    pub(super) fn ends(
        &mut self,
        container: &Container<'_>,
        slot: &mut Slot,
        since: Timestamp,
    ) -> Option<(Timestamp, i32)> {
        let script = &container.script;
        if !script.may_end(slot.restarts) {
            return None;
        }
        let run = if script.set.run_time { None } else { self.known(container, slot, since) };
        let (lasts, status) = match run {
            Some(run) => {
                (run.lasts?, if script.set.exit_code { script.exit_code } else { run.status })
            }
            None => (script.run_time?, script.exit_code),
        };
        Some((later(since, lasts), status))
    }

    /// When and with which code it ends when it is asked to stop at `asked`; no time when it does not heed that.
    pub(super) fn stops(
        &mut self,
        container: &Container<'_>,
        slot: &mut Slot,
        since: Timestamp,
        asked: Timestamp,
    ) -> (Option<Timestamp>, i32) {
        let script = &container.script;
        if script.set.termination_time || script.set.run_time {
            return (Some(later(asked, script.termination_time)), 0);
        }
        if slot.signal != Some(asked) {
            slot.signal = Some(asked);
            if matches!(slot.doing, Doing::Known(..)) {
                slot.doing = Doing::Unasked;
            }
        }
        match self.known(container, slot, since) {
            Some(run) => (run.lasts.map(|lasts| later(since, lasts)), run.status),
            None => (Some(later(asked, script.termination_time)), 0),
        }
    }

    /// What a run that was ended before its time will not write any more.
    pub(super) fn cut(&mut self, container: &Container<'_>, slot: &Slot, since: Timestamp) {
        if let Doing::Known(run, _) = &slot.doing {
            let by = self.run_of(container, slot);
            self.note(&by, since, &run.writes, Some(self.now));
        }
    }

    /// Asks the readiness probes that execute something, and looks again when their answer may change.
    pub(super) fn probe(&mut self) {
        for (init, n) in self.numbers() {
            let (container, slot) = self.at(init, n);
            let asked = container.program.filter(|program| {
                program.has_probe() && slot.running().is_some() && !container.script.set.readiness
            });
            let unready = asked.is_some_and(|program| self.fails(program));
            let changes = [&self.memory.files, &self.node_files];
            let next =
                changes.into_iter().filter_map(|files| files.next_change(self.now, "")).min();
            if let (Some(next), true) = (next, asked.is_some()) {
                self.wake_at(next);
            }
            let slot = if init { &mut self.memory.inits[n] } else { &mut self.memory.mains[n] };
            slot.unready = unready;
        }
    }

    fn fails(&self, program: &Program) -> bool {
        let run = format!("{}/probe", self.facts.uid);
        program.probe(&self.around(self.now, None, &run)) == Some(false)
    }
}
