//! Interpreter for the commands of simulated containers. It computes their run time, exit code, reaction to SIGTERM,
//! written files and output. It executes nothing, and runs shell scripts in simulated time.
//!
//! A run is a pure function of the process's arguments, its environment variables, the files it reads and its start
//! time; the run's ID seeds random draws. [`Files`] holds the content of each file at every time, past and future,
//! so that a process that waits for another's file is interpreted again when files change.
//!
//! The parser is our own, because its work must be bounded for any input. The available parsers recurse without a
//! limit, or take exponential time for nested parentheses.

mod archive;
mod arithmetic;
mod braces;
mod builtins;
mod conditions;
mod container;
mod disk;
pub mod encoding;
mod exec;
mod expand;
mod files;
mod interpreter;
mod log;
mod parse;
mod pattern;
mod shell;
mod syntax;
mod terminal;
mod tools;
mod words;

#[cfg(test)]
mod exec_tests;
#[cfg(test)]
mod tests;

use evenkeel_api::{Text, time::Timestamp};
use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

pub use container::{NodeFields, Processes, entrypoint_is_pause, entrypoint_is_shell};
pub use exec::{ExecRun, Output, Progress, ShellSession, copies_input, reads_commands};
pub use files::{Content, FilePath, Files, Full, Scope, Write};
pub use log::LogLine;
pub use terminal::{Terminal, Typed, with_carriage_returns};

use self::{
    files::Mounts,
    files::base_name,
    interpreter::Interpreter,
    shell::is_shell,
    shell::{Shell, Variable},
};

/// Environment of every process in a container: environment variables, volume mounts and working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    container: Text,
    variables: BTreeMap<String, Variable>,
    /// Names of the variables with the pod's IP address as value.
    address_variables: Vec<String>,
    /// Whether `envFrom` adds variables whose names are unknown.
    env_from: bool,
    mounts: Mounts,
    working_dir: String,
    /// Program of the container's process if it is a shell that reads its commands from an open standard input.
    attached_shell: Option<String>,
}

/// Process of a container, as in the OCI runtime specification: arguments, environment and working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    environment: Environment,
    arguments: Vec<String>,
    readiness_probe: Option<Probe>,
}

/// Exec action of a readiness probe.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Probe {
    command: Vec<String>,
    timeout: Duration,
}

/// Inputs of a run in addition to its process.
#[derive(Debug, Clone, Copy)]
pub struct RunContext<'a> {
    /// Start time of the run.
    pub start: Timestamp,
    /// Time of SIGTERM since `start`, or `None` if the signal is not sent.
    pub signal: Option<Duration>,
    /// ID of the run, which marks its own writes in [`Files`] and seeds random draws.
    pub run: &'a str,
    /// Files of the pod, including writes of its other runs.
    pub pod: &'a Files,
    /// Files of the node, including writes of its other pods.
    pub node: &'a Files,
    /// IP address of the pod.
    pub address: Ipv4Addr,
}

/// Outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Duration of the run, or `None` if it lasts until SIGKILL.
    pub lasts: Option<Duration>,
    /// Exit code if the process exits by itself.
    pub exit_code: i32,
    /// Writes of the run to files.
    pub writes: Vec<Write>,
    /// Whether the outcome depends on files that other runs may write.
    pub reads_shared_files: bool,
    /// Standard output and standard error.
    #[cfg(test)]
    pub(crate) output: String,
}

impl Process {
    /// Interprets the process. The error names the part that the interpreter does not support.
    pub fn run(&self, context: &RunContext<'_>) -> Result<Run, String> {
        self.interpret(&self.arguments, context)
    }

    /// Returns the lines that the process prints within `until` of its start.
    pub fn log(&self, context: &RunContext<'_>, until: Duration) -> Vec<LogLine> {
        let mut interpreter = self.environment.plain_interpreter(context);
        interpreter.log = Some(interpreter::Log::until(until));
        // Output before an unsupported part is valid.
        let lasts = self.first_process(&self.arguments, context, &mut interpreter);
        let lasts = lasts.ok().and_then(|(lasts, _)| lasts);
        let printed = interpreter.log.map(|log| log.printed).unwrap_or_default();
        log::lines(printed, until, lasts.filter(|lasts| *lasts <= until))
    }

    /// Returns whether the readiness probe succeeds at `context.start`, or `None` without a supported probe.
    pub fn readiness(&self, context: &RunContext<'_>) -> Option<bool> {
        let probe = self.readiness_probe.as_ref()?;
        let run = self.interpret(&probe.command, context).ok()?;
        Some(run.lasts.is_some_and(|lasts| lasts < probe.timeout) && run.exit_code == 0)
    }

    /// Returns whether the container has a readiness probe that executes a command.
    pub fn has_readiness_probe(&self) -> bool {
        self.readiness_probe.is_some()
    }

    fn interpret(&self, arguments: &[String], context: &RunContext<'_>) -> Result<Run, String> {
        let mut interpreter = self.environment.plain_interpreter(context);
        let (lasts, exit_code) = self.first_process(arguments, context, &mut interpreter)?;
        let reads_shared_files = interpreter.reads_shared_files.get();
        let writes = interpreter.writes.into_iter().map(|own| own.write);
        // Background jobs end with the first process.
        let writes =
            writes.filter(|write| lasts.is_none_or(|lasts| write.after <= lasts)).collect();
        Ok(Run {
            lasts,
            exit_code,
            writes,
            reads_shared_files,
            #[cfg(test)]
            output: interpreter.outputs.swap_remove(0),
        })
    }

    /// Interprets the container's first process. Returns its duration (`None` if it never ends) and exit code.
    fn first_process(
        &self,
        arguments: &[String],
        context: &RunContext<'_>,
        interpreter: &mut Interpreter<'_>,
    ) -> Result<(Option<Duration>, i32), String> {
        let variables = self.environment.variables_at(context.address);
        let mut shell = Shell::new(&self.environment.working_dir, variables);
        let first = arguments.first().map_or("", String::as_str);
        let name = base_name(first);
        interpreter.run_main_process(&mut shell, |interpreter, shell| match name {
            name if is_shell(name) => {
                // SIGTERM is sent to the container's first process. Only shells and `pause` handle it here.
                shell.is_main = true;
                interpreter.run_shell(shell, name, &arguments[1..])
            }
            "" => shell::unsupported("nothing to execute"),
            "pause" | "agnhost" if arguments.last().is_some_and(|word| word.ends_with("pause")) => {
                shell.now = context.signal.ok_or(shell::Halt::Forever)?;
                Ok(())
            }
            _ => interpreter.execute(shell, arguments),
        })
    }
}

impl Environment {
    /// Returns the program of the container's process if it is a shell that reads its commands from an attached
    /// client.
    pub fn attached_shell(&self) -> Option<&str> {
        self.attached_shell.as_deref()
    }

    fn plain_interpreter<'a>(&'a self, context: &'a RunContext<'a>) -> Interpreter<'a> {
        Interpreter::new(context, &self.container, &self.mounts, self.env_from)
    }

    fn variables_at(&self, address: Ipv4Addr) -> BTreeMap<String, Variable> {
        let mut variables = self.variables.clone();
        for name in &self.address_variables {
            let value = Some(address.to_string());
            variables.insert(name.clone(), Variable { value, exported: true });
        }
        variables
    }
}

impl<'a> RunContext<'a> {
    fn files(&self, path: &FilePath) -> &'a Files {
        if path.scope == Scope::Node { self.node } else { self.pod }
    }

    /// Returns the content that other runs have left at `path` by `time`, with the time of that write.
    fn content_at(
        &self,
        path: &FilePath,
        time: Timestamp,
    ) -> Option<(Timestamp, Option<&'a Content>)> {
        self.files(path).at(path, time, self.run)
    }

    fn next_change(&self, time: Timestamp) -> Option<Timestamp> {
        let pod = self.pod.next_change(time, self.run);
        pod.into_iter().chain(self.node.next_change(time, self.run)).min()
    }

    fn below<'p>(&self, folder: &'p FilePath) -> impl Iterator<Item = &'p FilePath> + 'p
    where
        'a: 'p,
    {
        self.files(folder).below(folder)
    }
}

/// Returns `time` plus `by`, or the latest representable time if the sum overflows.
pub fn later(time: Timestamp, by: Duration) -> Timestamp {
    evenkeel_api::time::saturating_add(time, by)
}
