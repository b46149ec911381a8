//! A program's command line, and how the program ends: what every program does alike.

use crate::{
    flags::{About, Asked, Flags, Given, Problems},
    logging::Log,
    version,
    worker::Worker,
};
use anyhow::{Error, Result};
use std::{collections::BTreeMap, process::ExitCode};

/// A program's flags, and what its help text says of them.
pub struct CommandLine {
    /// The flags of the program.
    pub flags: Flags,
    /// Name and description of the program.
    pub about: About,
}

impl CommandLine {
    /// Reads the arguments. What is asked for besides running is done: the help text and the version are printed.
    ///
    /// # Errors
    /// How the program ends, if it shall not run: well, when it was asked for something else; not, when what was given
    /// cannot be read, which is told.
    pub fn read(&self, arguments: impl IntoIterator<Item = String>) -> Result<Given, ExitCode> {
        let name = self.about.name;
        match self.flags.parse(name, arguments) {
            Ok(Asked::Run(given)) => {
                if let Some(version) = given.text("version").filter(|text| text.starts_with('v')) {
                    version::report(&version);
                }
                Ok(given)
            }
            Ok(Asked::Help) => {
                let columns = terminal_size::terminal_size().map(|(width, _)| width.0.into());
                Err(print(&self.flags.help(&self.about, columns)))
            }
            Ok(Asked::Version { raw }) => {
                let text = if raw { version::raw() } else { version::short() };
                Err(print(&format!("{text}\n")))
            }
            Err(error) => Err(refuse(&format!("{error}\nSee '{name} --help' for usage."))),
        }
    }

    /// The help text, with lines as long as they are.
    pub fn help(&self) -> String {
        self.flags.help(&self.about, None)
    }

    /// The same for what writes man pages and completion scripts.
    pub fn command(&self) -> clap::Command {
        crate::flags::command(&self.flags, &self.about)
    }
}

/// Tells the user, before there is a log, what of the given is not allowed.
pub fn refused(problems: Problems) -> ExitCode {
    refuse(&format!("{:#}", Error::from(problems)))
}

/// What there is to tell of flags that are given and that nobody should give: they are on their way out, or nobody has
/// read them.
pub fn warnings(given: &Given, unread: &[&str]) -> Vec<String> {
    let retired: BTreeMap<&str, &str> = given.retired().collect();
    let unread = unread.iter().filter(|flag| !retired.contains_key(*flag));
    let deprecated =
        given.retired().map(|(flag, why)| format!("Flag --{flag} has been deprecated: {why}"));
    deprecated
        .chain(unread.map(|flag| format!("--{flag} is accepted, but has no effect here")))
        .collect()
}

/// What `/flagz` shows: every flag's value, as pflag prints it, by name.
pub fn flagz(given: &Given) -> BTreeMap<String, String> {
    let flags = given.flags().iter();
    flags.filter_map(|flag| Some((flag.name.to_owned(), given.text(flag.name)?))).collect()
}

/// Tells the log what there is to say of what was given; all flags, too, where it tells more than usual.
pub fn tell(given: &Given, warnings: &[String], log: &Log) {
    if log.verbosity() > 0 {
        for (name, value) in flagz(given) {
            tracing::info!("FLAG: --{name}={value:?}");
        }
    }
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

/// Runs the program on such a worker, sees that the log is written out, and says how it ended.
pub fn run(log: &Log, worker: Worker, work: impl Future<Output = Result<ExitCode>>) -> ExitCode {
    let ended = match worker.runtime() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => Err(Error::from(error).context("the runtime cannot start")),
    };
    let code = ended.unwrap_or_else(|error| {
        tracing::error!(error = format!("{error:#}"), "command failed");
        ExitCode::FAILURE
    });
    log.flush();
    code
}

#[expect(clippy::print_stdout, reason = "what was asked for goes where it can be piped from")]
fn print(text: &str) -> ExitCode {
    print!("{text}");
    ExitCode::SUCCESS
}

#[expect(clippy::print_stderr, reason = "the log has not started yet")]
fn refuse(text: &str) -> ExitCode {
    eprintln!("Error: {text}");
    ExitCode::FAILURE
}
