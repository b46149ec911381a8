//! What a simulated container's command does: how long it runs, how it ends, what a signal does to it, which files it
//! leaves and what it prints. Nothing is executed: the shell's language is followed in a time of its own.
//!
//! A program is a function of its words, its variables, the files it finds and the moment it begins; random draws are
//! seeded by the run. What files hold is known for every moment, past and to come, so that a program that waits for
//! another's file is simply asked again when there is news. The parser is our own because it must stand any text: the
//! parsers to be had recurse without a bound or take exponential time on nested parentheses.

mod arithmetic;
mod commands;
mod conditions;
mod disk;
mod expand;
pub(crate) mod files;
mod machine;
mod parse;
mod pattern;
mod read;
mod shell;
mod syntax;
mod tools;
mod words;

#[cfg(test)]
mod tests;

use evenkeel_api::{Text, time::Timestamp};
use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

pub(crate) use read::{Programs, only_waits, runs_a_shell};

use self::{
    files::{Content, Files, Mounts, Place, Scope, Write},
    machine::Machine,
    shell::{Shell, Variable},
};

/// What a container executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    container: Text,
    words: Vec<String>,
    /// The words of its readiness probe, where that executes something.
    probe: Option<Vec<String>>,
    variables: BTreeMap<String, Variable>,
    /// Variables whose value is the pod's address.
    addresses: Vec<String>,
    /// Whether there are variables that are not known by name.
    open: bool,
    mounts: Mounts,
    folder: String,
}

/// What a run finds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    /// When it begins.
    pub(crate) start: Timestamp,
    /// So long after that it is asked to stop.
    pub(crate) signal: Option<Duration>,
    /// Which run it is: what it wrote itself is under this name, and random draws are seeded with it.
    pub(crate) run: &'a str,
    /// Files of the pod.
    pub(crate) pod: &'a Files,
    /// Files of the node.
    pub(crate) node: &'a Files,
    pub(crate) address: Ipv4Addr,
}

/// What a run does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    /// How long it takes; `None`: until it is killed.
    pub(crate) lasts: Option<Duration>,
    /// How it ends by itself.
    pub(crate) status: i32,
    pub(crate) writes: Vec<Write>,
    /// Whether it read what others may write.
    pub(crate) looked: bool,
    /// What it printed.
    #[cfg(test)]
    pub(crate) output: String,
}

impl Program {
    /// What a run does; an error says what is not understood.
    pub(crate) fn run(&self, around: &Surroundings<'_>) -> Result<Run, String> {
        self.follow(&self.words, around)
    }

    /// Whether the readiness probe succeeds at `around.start`; `None` without one that is understood.
    pub(crate) fn probe(&self, around: &Surroundings<'_>) -> Option<bool> {
        let run = self.follow(self.probe.as_deref()?, around).ok()?;
        Some(run.lasts.is_some() && run.status == 0)
    }

    pub(crate) fn has_probe(&self) -> bool {
        self.probe.is_some()
    }

    fn follow(&self, words: &[String], around: &Surroundings<'_>) -> Result<Run, String> {
        let mut machine = Machine::new(around, &self.container, &self.mounts, self.open);
        let mut variables = self.variables.clone();
        for name in &self.addresses {
            let address = Some(around.address.to_string());
            variables.insert(name.clone(), Variable { value: address, exported: true });
        }
        let mut shell = Shell::new(&self.folder, variables);
        let first = words.first().map_or("", String::as_str);
        let name = first.rsplit('/').next().unwrap_or(first);
        let (lasts, status) = machine.main(&mut shell, |machine, shell| match name {
            "sh" | "bash" | "ash" | "dash" => {
                // The first process of a container is asked to stop; no other program here heeds that.
                shell.main = true;
                machine.run_shell(shell, name, &words[1..])
            }
            "" => shell::unknown("nothing to execute"),
            "pause" | "agnhost" if words.last().is_some_and(|word| word.ends_with("pause")) => {
                shell.now = around.signal.ok_or(shell::Halt::Forever)?;
                Ok(())
            }
            _ => machine.execute(shell, words),
        })?;
        let looked = machine.looked.get();
        let mut writes = machine.writes;
        // What is still going on when the first process ends, ends with it.
        writes.retain(|write| lasts.is_none_or(|lasts| write.after <= lasts));
        Ok(Run {
            lasts,
            status,
            writes,
            looked,
            #[cfg(test)]
            output: machine.outputs.swap_remove(0),
        })
    }
}

impl<'a> Surroundings<'a> {
    fn files(&self, place: &Place) -> &'a Files {
        if place.scope == Scope::Node { self.node } else { self.pod }
    }

    /// What others left at `place` by `time`, and since when.
    fn held(&self, place: &Place, time: Timestamp) -> Option<(Timestamp, Option<&'a Content>)> {
        self.files(place).at(place, time, self.run)
    }

    fn next_change(&self, time: Timestamp) -> Option<Timestamp> {
        let pod = self.pod.next_change(time, self.run);
        pod.into_iter().chain(self.node.next_change(time, self.run)).min()
    }

    fn below<'p>(&self, folder: &'p Place) -> impl Iterator<Item = &'p Place> + 'p
    where
        'a: 'p,
    {
        self.files(folder).below(folder)
    }
}
