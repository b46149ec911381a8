//! Command line of a program, and its exit code.

use crate::{
    flags::{About, Flags, InvalidFlags, Invocation, ParsedFlags},
    logging::Log,
    version,
    worker::Worker,
};
use anyhow::{Error, Result};
use futures::future::LocalBoxFuture;
use std::{collections::BTreeMap, process::ExitCode};

/// A program's flags and the other parts of its help text.
pub struct CommandLine {
    /// Flags that the program declares.
    pub flags: Flags,
    /// Name, usage and description for `--help` and man pages.
    pub about: About,
}

impl CommandLine {
    /// Parses the arguments, and prints the output of `--help` and `--version`.
    ///
    /// # Errors
    /// Returns the exit code if the program must not run: 0 after `--help` and `--version`, otherwise 1 after an error message.
    pub fn read(
        &self,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<ParsedFlags, ExitCode> {
        let name = self.about.name;
        match self.flags.parse(name, arguments) {
            Ok(Invocation::Run(parsed)) => {
                if let Some(version) = parsed.text("version").filter(|text| text.starts_with('v')) {
                    version::set_reported(&version);
                }
                Ok(parsed)
            }
            Ok(Invocation::Help) => {
                let columns = terminal_size::terminal_size().map(|(width, _)| width.0.into());
                Err(print(&self.flags.help(&self.about, columns)))
            }
            Ok(Invocation::Version { raw }) => {
                let text = if raw { version::raw() } else { version::short() };
                Err(print(&format!("{text}\n")))
            }
            Err(error) => Err(report_error(&format!("{error}\nSee '{name} --help' for usage."))),
        }
    }

    /// Returns the help text without wrapped lines.
    pub fn help(&self) -> String {
        self.flags.help(&self.about, None)
    }

    /// Returns the clap command, for generators of man pages and completion scripts.
    pub fn command(&self) -> clap::Command {
        crate::flags::command(&self.flags, &self.about)
    }
}

/// Prints invalid options to standard error, because the log has not started yet. Returns the exit code.
pub fn report_invalid_flags(invalid: InvalidFlags) -> ExitCode {
    report_error(&format!("{:#}", Error::from(invalid)))
}

/// Returns warnings about flags on the command line that are deprecated or have no effect.
pub fn warnings(parsed: &ParsedFlags, unimplemented: &[&str]) -> Vec<String> {
    let deprecated: BTreeMap<&str, &str> = parsed.deprecated().collect();
    let unimplemented = unimplemented.iter().filter(|flag| !deprecated.contains_key(*flag));
    let mut warnings = Vec::new();
    for (flag, why) in parsed.deprecated() {
        warnings.push(format!("Flag --{flag} has been deprecated: {why}"));
    }
    for flag in unimplemented {
        warnings.push(format!("--{flag} is accepted, but has no effect here"));
    }
    warnings
}

/// Returns the content of `/flagz`: the value of each flag by its name, as pflag prints it.
pub fn flagz(parsed: &ParsedFlags) -> BTreeMap<String, String> {
    let flags = parsed.flags().iter();
    flags.filter_map(|flag| Some((flag.name.to_owned(), parsed.text(flag.name)?))).collect()
}

/// Logs the warnings. At a verbosity above 0, also logs all flags.
///
/// Upstream: `PrintFlags`.
pub fn log_flags(parsed: &ParsedFlags, warnings: &[String], log: &Log) {
    if log.verbosity() > 0 {
        for (name, value) in flagz(parsed) {
            tracing::info!("FLAG: --{name}={value:?}");
        }
    }
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

/// Runs the program on a worker's runtime, flushes the log, and returns the exit code.
pub fn run(log: &Log, worker: Worker, work: impl Future<Output = Result<ExitCode>>) -> ExitCode {
    block_on(log, worker, Box::pin(work))
}

fn block_on(log: &Log, worker: Worker, work: LocalBoxFuture<'_, Result<ExitCode>>) -> ExitCode {
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

#[expect(clippy::print_stdout, reason = "requested output belongs on standard output")]
fn print(text: &str) -> ExitCode {
    print!("{text}");
    ExitCode::SUCCESS
}

#[expect(clippy::print_stderr, reason = "the log has not started yet")]
fn report_error(text: &str) -> ExitCode {
    eprintln!("Error: {text}");
    ExitCode::FAILURE
}
